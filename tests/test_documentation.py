"""The documentation site: what is generated is complete, and every page is found. `make docs` builds it."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

import pgfl
from pgfl import cli
from tests.documented import make_targets

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def generated():
    found = importlib.util.spec_from_file_location("generated_reference", DOCS / "generated_reference.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


NAMES = [name for name in pgfl.__all__ if not name.startswith("_")]


def test_every_key_of_a_config_has_a_meaning_and_every_meaning_a_key(generated):
    meanings = tomllib.loads((DOCS / "reference" / "meanings.toml").read_text("utf-8"))
    keys = {model.__name__: set(generated.shown_keys(model)) for _, model in generated.config_sections()}
    assert {name: set(table) for name, table in meanings.items()} == keys
    page = generated.config_page()
    assert all(f"| {meaning} |" in page for table in meanings.values() for meaning in table.values())


def test_every_command_option_and_public_name_is_documented(generated):
    commands, api, errors = generated.commands_page(), generated.api_page(), generated.errors_page()
    assert all(f"## `pgfl {name}" in commands for name in cli.COMMANDS)
    assert all(f"(api/{name}.md)" in api and f":: pgfl.{name}\n" in generated.object_page(name) for name in NAMES)
    assert "| `ConfigError` | 2 |" in errors


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_can_be_imported_as_its_page_says(generated, name):
    (line,) = re.findall(r"^```python\n(.*?)\n```", generated.object_page(name), re.MULTILINE)
    found = {}
    exec(line, found)
    assert found[name] is getattr(pgfl, name)


def test_every_page_is_in_a_table_of_contents():
    listed = set()
    for index in (DOCS / "index.md", DOCS / "reference" / "index.md"):
        for block in re.findall(r"```\{toctree\}\n(.*?)```", index.read_text("utf-8"), re.DOTALL):
            lines = [line for line in block.splitlines() if line and not line.startswith(":")]
            names = [line.partition("<")[2].rstrip(">") or line for line in lines]  # TITLE <PAGE>, or PAGE
            listed |= {(index.parent / f"{name}.md").resolve() for name in names}
    pages = {path.resolve() for path in DOCS.rglob("*.md") if "_build" not in path.parts}
    assert {path for path in pages if "generated" not in path.parts} - {DOCS / "index.md"} <= listed
    assert all(path.exists() or "generated" in path.parts for path in listed)


def test_commands_on_every_page_exist():
    """In blocks of commands and in code: `pgfl COMMAND` and `make TARGET`."""
    found = set()
    for page in DOCS.rglob("*.md"):
        if "_build" in page.parts or page.name == "messages.md":
            continue
        text = page.read_text("utf-8")
        blocks = "".join(re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
        spans = "\n".join(re.findall(r"`([^`\n]+)`", text))
        found |= set(re.findall(r"^(?:mpiexec -n \w+ )?(pgfl|make) ([a-z-]+)", f"{blocks}\n{spans}", re.MULTILINE))
    assert len(found) > 15
    targets, commands = make_targets(), set(cli.COMMANDS)
    assert not {(program, name) for program, name in found if name not in (targets if program == "make" else commands)}
