"""Every library that the package imports is declared: by the core, or by the extra that the module belongs to."""

import ast
import tomllib
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.declared import DISTRIBUTION_OF, EXTRA_OF, EXTRA_OF_FUNCTIONS, NEVER_REQUIRED, extra_of, imports, modules
from tests.parsed import parsed

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]


@cache
def declared(group):
    texts = PROJECT["dependencies"] if group is None else PROJECT["optional-dependencies"][group]
    return {canonicalize_name(Requirement(text).name) for text in texts}


def undeclared(module, tree):
    """The libraries that a module imports and neither the core nor its extra declares."""
    own = declared(None) | (declared(extra) if (extra := extra_of(module)) else set())
    later = own | (declared(EXTRA_OF_FUNCTIONS[module]) if module in EXTRA_OF_FUNCTIONS else set())
    anyone = set().union(later, *map(declared, PROJECT["optional-dependencies"]))
    for name, when_loaded, for_types in imports(tree):
        known = anyone if for_types else own if when_loaded else later
        if name not in NEVER_REQUIRED and canonicalize_name(DISTRIBUTION_OF.get(name, name)) not in known:
            yield name


@pytest.mark.proof
def test_every_import_is_declared():
    found = {module: missing for module, path in modules() if (missing := {*undeclared(module, parsed(path))})}
    assert not {module: missing for module, missing in found.items() if missing}


def test_every_declared_library_of_the_core_is_imported():
    used = {name for module, path in modules() for name, *_ in imports(parsed(path))}
    assert declared(None) <= {canonicalize_name(DISTRIBUTION_OF.get(name, name)) for name in used}


@pytest.mark.parametrize("start", EXTRA_OF)
def test_the_list_of_modules_is_up_to_date(start):
    assert any(module.startswith(start) for module, _ in modules())


@pytest.mark.parametrize(
    ("module", "source", "missing"),
    [
        ("pgfl.cli", "import click", {"click"}),
        ("pgfl.cli", "if TYPE_CHECKING:\n    import click", set()),
        ("pgfl.cli", "def f():\n    from click.core import Group", {"click"}),
        ("pgfl.metrics", "import jax", {"jax"}),
        ("pgfl.arrays", "import jax", {"jax"}),
        ("pgfl.arrays", "def f():\n    import jax", set()),
        ("pgfl.privacy.accounting", "import dp_accounting", {"dp_accounting"}),
        ("pgfl.privacy.accounting", "def f():\n    import dp_accounting", set()),
        ("pgfl.studio.shell", "import nicegui, cryptography", {"cryptography"}),
        ("pgfl.masking.member", "from Crypto.Hash import SHA256", set()),
        ("pgfl.studio.shell", "import json, numpy, pgfl.core", set()),
    ],
)
def test_what_is_not_declared_is_found(module, source, missing):
    assert {*undeclared(module, ast.parse(source))} == missing
