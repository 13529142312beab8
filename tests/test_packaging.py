"""The wheel holds what it must, and the version and the licences are the same everywhere."""

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import pgfl
from tests.command_line import run

ROOT = Path(__file__).parents[1]
DIGITS_LICENCE = "pgfl/federation/digits/LICENSE"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The files of a freshly built wheel, by name."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    with ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def metadata(wheel):
    (name,) = (name for name in wheel if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel[name].decode())


def test_the_wheel_is_typed_and_whole(wheel):
    packaged = {name for name in wheel if name.startswith("pgfl/")}
    source = ROOT / "src"
    present = {p.relative_to(source).as_posix() for p in (source / "pgfl").rglob("*") if p.is_file()}
    assert packaged == {name for name in present if "__pycache__" not in name}
    assert "pgfl/py.typed" in packaged


def test_the_wheel_states_the_licence_of_the_code_and_of_the_digits(wheel):
    assert metadata(wheel)["License-Expression"] == "MIT AND CC-BY-SA-3.0"
    for copy in (DIGITS_LICENCE, *(name for name in wheel if name.endswith("licenses/src/" + DIGITS_LICENCE))):
        assert b"CC BY-SA 3.0" in wheel[copy]
    assert sum(name.endswith(DIGITS_LICENCE) for name in wheel) == 2
    (licence,) = (name for name in wheel if name.endswith(".dist-info/licenses/LICENSE"))
    assert b"MIT License" in wheel[licence]


def test_there_is_one_version(wheel):
    assert metadata(wheel)["Version"] == pgfl.__version__
    assert run("--version").out == f"pgfl {pgfl.__version__}\n"
    assert citation()["version"] == pgfl.__version__
    assert f"\n## {pgfl.__version__} " in (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert not re.search(r"^version\s*=", (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)


def citation():
    return yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))


def test_the_citation_and_the_readme_name_both_licences():
    assert citation()["license"] == "MIT"
    assert [reference["license"] for reference in citation()["references"]] == ["CC-BY-SA-3.0"]
    readme = (ROOT / "README.md").read_text("utf-8")
    assert "MIT" in readme
    assert "CC BY-SA 3.0" in readme
    assert f"src/{DIGITS_LICENCE}" in readme


def test_the_core_needs_these_packages_and_no_others():
    """Anything heavier belongs into an extra, and is imported when it is used."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert {Requirement(text).name for text in project["dependencies"]} == {
        "numpy", "scipy", "networkx", "polars", "pydantic", "typer", "rich", "matplotlib", "jinja2", "markupsafe",
        "tomli-w", "opendp",
    }  # fmt: skip


def test_make_run_installs_what_a_run_needs_and_no_more():
    everything, for_a_run = pinned("requirements.lock"), pinned("requirements-run.lock")
    assert for_a_run.items() <= everything.items()
    build_backend = {"hatchling", "editables"}
    assert set(for_a_run) == closure(requirements_of("pgfl") | build_backend)
    first, later = pinned("requirements-first.lock"), {"polars", "opendp"}
    assert first.items() <= for_a_run.items()
    assert set(first) == closure(requirements_of("pgfl") - later | build_backend)


@pytest.mark.proof
def test_the_run_of_make_run_imports_neither_tables_nor_secure_noise(tmp_path):
    """They are the largest packages of the core, and `make run` installs them after it has shown its result."""
    refuse = "import sys; sys.modules['polars'] = sys.modules['opendp'] = None; from pgfl.cli import main; main()"
    command = [sys.executable, "-P", "-c", refuse, "run", "private-huber", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "report.html").exists()


def pinned(lock):
    lines = (ROOT / lock).read_text("utf-8").splitlines()
    pairs = (line.split("==") for line in lines if not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pairs}


def closure(names):
    """The packages that these need, directly or through others, on this machine."""
    found, pending = set(), set(names)
    while pending:
        found.add(name := pending.pop())
        pending |= requirements_of(name) - found
    return found


def requirements_of(name):
    wanted = (Requirement(text) for text in importlib.metadata.requires(name) or ())
    return {canonicalize_name(r.name) for r in wanted if r.marker is None or r.marker.evaluate({"extra": ""})}
