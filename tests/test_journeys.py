"""The journeys of docs/architecture.md: every file that is named is visited, and no room is entered twice."""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from pathlib import Path

import pytest

import pgfl
from tests.command_line import PGFL, ROOT, finish, start

SOURCE = Path(pgfl.__file__).parent
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
MPIEXEC = Path(sys.executable).with_name("mpiexec")
TRACER = """
import atexit, json, os, sys, threading
if folder := os.environ.get("PGFL_JOURNEY"):
    visited = {}
    def visit(frame, event, argument):
        if event == "call":
            visited.setdefault(frame.f_code.co_filename)
    def write():
        sys.setprofile(None)
        with open(os.path.join(folder, f"{os.getpid()}.json"), "w") as file:
            json.dump({"command": sys.orig_argv, "files": list(visited)}, file)
    atexit.register(write)
    threading.setprofile(visit)
    sys.setprofile(visit)
"""


def journey(title):
    """The files that a journey of the page names, in order."""
    (text,) = re.findall(rf"^\*\*`{re.escape(title)}`\*\*(.*?)(?=^\*\*|^## )", PAGE, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([\w/]+\.py)`", text)


TITLES = re.findall(r"^\*\*`(.*?)`\*\*", PAGE.partition("## Four journeys")[2].partition("## ")[0], flags=re.MULTILINE)


def room(file):
    return file.split("/")[0]


def visited(folder, *command, of=""):
    """Run a command, and name the files of the package that its processes (those with `of` in theirs) executed."""
    hook = folder / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(TRACER)
    paths = os.pathsep.join(map(str, (hook, ROOT, ROOT / "src")))
    done = finish(start(*command, PYTHONPATH=paths, PGFL_JOURNEY=str(folder)))
    assert done.returncode == 0, done.stderr
    found = [json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")]
    files = {file for one in found if of in " ".join(one["command"]) for file in one["files"]}
    return {Path(file).relative_to(SOURCE).as_posix() for file in files if Path(file).is_relative_to(SOURCE)}


def test_there_are_four():
    assert len(TITLES) == 4


@pytest.mark.parametrize("title", TITLES)
def test_no_room_is_entered_twice(title):
    files = journey(title)
    assert files
    assert all((SOURCE / file).is_file() for file in files)
    rooms = [name for name, _ in itertools.groupby(files, room)]
    assert len(rooms) == len(set(rooms)), rooms


@pytest.mark.proof
def test_pgfl_run(tmp_path):
    found = visited(tmp_path, *PGFL, "run", "--set", "rounds=2", "--out", tmp_path / "out")
    assert set(journey("pgfl run")) <= found


@pytest.mark.proof
def test_mpiexec_pgfl_run(tmp_path):
    command = (*PGFL, "run", "paper-fig1", "--engine", "numba", "--set", "rounds=2", "--out", tmp_path / "out")
    found = visited(tmp_path, MPIEXEC, "-n", 2, *command)
    assert set(journey("mpiexec -n 4 pgfl run --engine numba")) <= found


@pytest.mark.proof
def test_pgfl_reproduce(tmp_path):
    found = visited(tmp_path, *PGFL, "reproduce", "fig1", "--quick", "--runs", 2, "--out", tmp_path / "out")
    assert set(journey("pgfl reproduce fig1")) <= found


@pytest.mark.proof
def test_pgfl_client_join(tmp_path):
    demo = (*PGFL, "network", "demo", "--sites", 1, "--clients", 1, "--rounds", 2, "--json")
    assert set(journey("pgfl client join")) <= visited(tmp_path, *demo, of="client join")
