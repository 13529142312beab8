"""Flower is used by its public interface alone, in a range of versions; its classes are never subclassed or patched."""

from __future__ import annotations

import ast
import tomllib

import pytest

from tests.command_line import ROOT

PUBLIC = {"flwr.app", "flwr.clientapp", "flwr.serverapp"}
FILES = [path for folder in ("src/pgfl", "examples/flower") for path in sorted((ROOT / folder).rglob("*.py"))]
USERS = [path for path in FILES if "flwr" in path.read_text("utf-8")]


def breaches(source):
    """Private imports from Flower, and classes of its that are subclassed or whose attributes are set."""
    tree, names, found = ast.parse(source), set(), []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [each.name for each in node.names if each.name.partition(".")[0] == "flwr"]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "flwr":
            names |= {each.asname or each.name for each in node.names}
            found += [each.name for each in node.names if node.module not in PUBLIC or each.name.startswith("_")]
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            found += [node.name for base in node.bases if _root(base) in names]
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            found += [node.attr] if _root(node) in names else []
        elif isinstance(node, ast.Call) and _root(node.func) in ("setattr", "delattr"):
            found += [_root(node.args[0])] if _root(node.args[0]) in names else []
    return found


def _root(node):
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


@pytest.mark.parametrize("path", USERS, ids=lambda path: path.name)
def test_only_the_public_interface_is_used(path):
    assert breaches(path.read_text("utf-8")) == []


def test_somebody_uses_it():
    assert ROOT / "src/pgfl/flower/apps.py" in USERS


@pytest.mark.parametrize(
    "source",
    [
        "import flwr.server.driver",
        "from flwr.supernode.start import run",
        "from flwr.app import Message\nclass Ours(Message): ...",
        "from flwr.serverapp import Grid\nGrid.push = None",
        "from flwr.serverapp import Grid\nsetattr(Grid, 'push', None)",
    ],
)
def test_a_breach_is_found(source):
    assert len(breaches(source)) == 1


def test_the_version_is_a_range():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert [each for each in extras["flower"] if each.startswith("flwr")] == ["flwr>=1.41,<1.42"]
