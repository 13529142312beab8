"""Seams are open: nobody asks for a concrete class of a seam outside of its own file, and registries answer by name."""

import ast
import sys
from pathlib import Path

import pytest

import pgfl
from pgfl.algorithms.algorithms import ALGORITHMS
from pgfl.algorithms.client_rules import CLIENT_RULES
from pgfl.config.schema import DATA
from pgfl.errors import ConfigError
from pgfl.federation.graphs import GRAPHS
from pgfl.maps import MAPS
from pgfl.objectives import OBJECTIVES
from pgfl.registry import Registry
from tests.parsed import parsed

SOURCE = Path(pgfl.__file__).parent
REGISTRIES = (OBJECTIVES, ALGORITHMS, CLIENT_RULES, DATA, MAPS)
CONCRETE = {registry[name] for registry in REGISTRIES for name in registry.built_in}
CONCRETE |= {pgfl.GradientSteps, pgfl.Pair, pgfl.NeighbourhoodAverage, pgfl.ExactDiffusion, pgfl.OneStepUpdate}
NAMES = {kind.__name__ for kind in CONCRETE}
HOMES = {Path(sys.modules[kind.__module__].__file__) for kind in CONCRETE}


def asked_for(tree):
    """Every question for the class of an object: `isinstance`, `issubclass`, and a comparison with a class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
            names = {one.id for one in ast.walk(node.args[1]) if isinstance(one, ast.Name)}
        elif isinstance(node, ast.Compare):
            names = {getattr(one, "id", "") for one in (node.left, *node.comparators)}
        elif isinstance(node, ast.MatchClass):
            names = {getattr(node.cls, "id", "")}
        else:
            continue
        if names & NAMES:
            yield node.lineno


def test_nobody_asks_for_a_concrete_class_of_a_seam():
    found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path not in HOMES
        for line in asked_for(parsed(path))
    ]
    assert found == []


def test_the_count_sees_every_way_to_ask():
    for question in (
        "isinstance(x, Ridge | Huber)",
        "type(x) is PGFL",
        "kind == FedAvg",
        "isinstance(x, (int, Ridge))",
    ):
        assert list(asked_for(ast.parse(question))) == [1], question
    assert not list(asked_for(ast.parse("isinstance(x, Objective) and Ridge(lam=0.1)")))


@pytest.mark.parametrize("registry", [*REGISTRIES, GRAPHS], ids=lambda one: one.seam)
def test_a_registry_answers_by_name(registry):
    assert set(registry.built_in) <= set(registry.names()) == set(registry)
    for name in registry:
        assert name in registry and registry[name] is registry.get(name)
    first = registry.built_in[0]
    with pytest.raises(ConfigError, match=rf"Unknown {registry.noun} '{first}x' \(did you mean {first}\?\); choose"):
        registry[first + "x"]
    assert 3 not in registry and None not in registry


def test_a_registration_is_lazy_and_its_name_is_taken():
    registry = Registry("things", "thing", {"path": "pathlib:Path"})
    registry.register("late", "pgfl.registry:Registry")
    assert registry["path"] is Path and registry["late"] is Registry
    with pytest.raises(ConfigError, match="'late' is registered already"):
        registry.register("late", 3)


def test_a_package_that_fails_is_named_in_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "broken_thing.py").write_text("raise RuntimeError('no\\nluck')\n")
    meta = tmp_path / "broken_thing-1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-thing\nVersion: 1.0\n")
    (meta / "entry_points.txt").write_text("[pgfl.things]\nbroken = broken_thing:Thing\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = Registry("things", "thing")
    assert registry.names() == ("broken",)
    with pytest.raises(ConfigError, match=r"^The thing 'broken' of the package 'broken-thing' cannot be loaded \(Run"):
        registry["broken"]
