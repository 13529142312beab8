"""What the README shows is run: Python blocks as they stand, configs parsed, command lines looked up."""

import shlex
import tomllib

import pytest

from pgfl.cli import COMMANDS
from pgfl.config import parse, presets, warnings
from tests.command_line import run
from tests.documented import ROOT, blocks, make_targets, printed_as_commented

PAGE, START = "README.md", "docs/start.md"


@pytest.mark.parametrize("code", blocks(PAGE, "python"))
def test_python_runs_and_prints_what_its_comments_say(code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    printed_as_commented(PAGE, code, capsys)


@pytest.mark.parametrize("text", blocks(PAGE, "toml") + blocks(START, "toml"))
def test_configs_are_valid(text):
    assert warnings(parse(tomllib.loads(text))) == []


def test_commands_exist():
    lines = [shlex.split(line, comments=True) for block in blocks(PAGE, "bash") for line in block.splitlines()]
    for program, first, *rest in lines:
        assert program in ("make", "pgfl")
        assert first in (make_targets() if program == "make" else COMMANDS)
        if first == "run" and rest and not rest[0].startswith("-"):
            assert rest[0] in presets() or rest[0].endswith(".toml")


def test_the_moving_picture_moves_and_is_small():
    from PIL import Image

    path = ROOT / "docs" / "pictures" / "digits-against-epsilon.gif"
    assert "(docs/pictures/digits-against-epsilon.gif)" in (ROOT / PAGE).read_text("utf-8")
    assert path.stat().st_size < 1.5e6
    with Image.open(path) as picture:
        assert picture.n_frames >= 20
        first = picture.convert("RGB").tobytes()
        picture.seek(picture.n_frames - 1)
        assert picture.convert("RGB").tobytes() != first


@pytest.mark.proof
def test_the_start_page_shows_what_the_first_run_prints(tmp_path):
    (shown,) = blocks(START, "text")
    printed = " ".join(run("run", "private-huber", "--out", tmp_path / "first").out.split())
    lines = [line for line in shown.splitlines() if not line.startswith(("…", "Result:"))]
    assert [line for line in lines if " ".join(line.split()) not in printed] == []


def test_there_is_something_to_test():
    assert len(blocks(PAGE, "python")) >= 2
    assert blocks(PAGE, "toml")
    assert blocks(PAGE, "bash")
