"""`make quick` covers every room, and its list of tests is up to date."""

import ast
from functools import cache
from pathlib import Path

import pytest

import pgfl
from tests.conftest import QUICK, TESTS
from tests.parsed import parsed

SOURCE = Path(pgfl.__file__).parent
ROOMS = sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists())
TEST_FOLDERS = sorted({path.parent.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")} | {"."})


@cache
def imported_rooms(name):
    """The rooms from which a test file imports."""
    found = set()
    for node in ast.walk(parsed(TESTS / name)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in found if name.startswith("pgfl.")}


def functions(name):
    return {
        node.name
        for node in ast.walk(parsed(TESTS / name))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize("folder", TEST_FOLDERS)
def test_every_folder_of_tests_has_a_quick_test(folder):
    quick = [name for name in QUICK if Path(name).parent.as_posix() == folder]
    assert any(functions(name) - set(QUICK[name]) for name in quick)


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_is_used_by_a_quick_test(room):
    assert [name for name in QUICK if room in imported_rooms(name)]


@pytest.mark.parametrize("name", QUICK)
def test_the_list_names_tests_that_exist(name):
    assert set(QUICK[name]) < functions(name)


def test_what_is_listed_is_marked(request):
    assert request.node.get_closest_marker("quick")
