"""Packages import in one direction."""

import ast
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

import pgfl
from tests.parsed import parsed

SOURCE = Path(pgfl.__file__).parent
FLOORS = (
    ("errors", "suggestions", "registry", "files", "signals", "arrays", "streams"),
    ("objectives", "drawing", "equations", "maps"),
    ("metrics", "federation"),
    ("algorithms",),
    ("privacy",),
    ("masking",),
    ("config",),
    ("results",),
    ("simulate", "network"),
    ("experiment", "sklearn", "flower"),
    ("demo", "planning"),
    ("lab",),
    ("studio",),
    ("cli",),
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
FOUNDATIONS = FLOORS[0]


def room_of(module):
    """The first part of a module's name below `pgfl`."""
    return module.split(".")[1]


def modules():
    """Every module of the package, by its dotted name."""
    for path in sorted(SOURCE.rglob("*.py")):
        parts = ["pgfl", *path.relative_to(SOURCE).with_suffix("").parts]
        if parts != ["pgfl", "__init__"]:
            yield ".".join(parts), path


def loaded(tree):
    """The statements that run when a module is loaded: not those in functions, nor those for type checkers only."""
    for node in tree.body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node


def imports(path, *, when_loaded=False):
    """The dotted names below `pgfl` that a file imports: anywhere in it, or only when it is loaded."""
    tree = parsed(path)
    for node in loaded(tree) if when_loaded else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("pgfl."))
        elif isinstance(node, ast.ImportFrom) and node.module == "pgfl":
            yield from (f"pgfl.{alias.name}" for alias in node.names if alias.name in FLOOR_OF)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pgfl."):
            yield node.module
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path}: relative import"


@cache
def graph_of_rooms():
    """An edge from every room to each room that it imports, with the files that do so."""
    drawn = nx.DiGraph()
    drawn.add_nodes_from(room_of(name) for name, _ in modules())
    for name, path in modules():
        for imported in imports(path):
            here, there = room_of(name), room_of(imported)
            if here != there:
                drawn.add_edge(here, there)
                drawn[here][there].setdefault("files", set()).add(path.relative_to(SOURCE).as_posix())
    return drawn


def test_every_room_is_on_a_floor():
    assert set(graph_of_rooms()) <= set(FLOOR_OF)


def test_rooms_form_no_cycle():
    drawn = graph_of_rooms()
    cycles = list(nx.simple_cycles(drawn))
    assert not cycles, [drawn[a][b] for cycle in cycles for a, b in zip(cycle, cycle[1:] + cycle[:1], strict=True)]


def test_rooms_import_only_from_floors_below():
    drawn = graph_of_rooms()
    for here, there, edge in drawn.edges(data=True):
        if here in FOUNDATIONS and there in FOUNDATIONS:
            continue
        assert FLOOR_OF[there] < FLOOR_OF[here], f"{here} imports {there} in {sorted(edge['files'])}"


@pytest.mark.parametrize("room", sorted({room_of(name) for name, _ in modules()} - set(FOUNDATIONS)))
def test_modules_of_a_room_are_loaded_in_one_direction(room):
    """A function may import the file that implements what it promises; loading a file never needs a cycle."""
    drawn = nx.DiGraph()
    for name, path in modules():
        for there in imports(path, when_loaded=True) if room_of(name) == room else ():
            if there != name and room_of(there) == room:
                drawn.add_edge(name, there)
    cycles = list(nx.simple_cycles(drawn))
    assert not cycles, cycles
