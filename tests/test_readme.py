"""What the README shows is run: Python blocks as they stand, configs parsed, command lines looked up."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from pgfl.cli import COMMANDS
from pgfl.config import parse, presets, warnings

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("code", blocks("python"))
def test_python_runs_and_prints_what_its_comments_say(code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    expected = re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == expected


@pytest.mark.parametrize("text", blocks("toml"))
def test_configs_are_valid(text):
    assert warnings(parse(tomllib.loads(text))) == []


def test_commands_exist():
    lines = [shlex.split(line, comments=True) for block in blocks("bash") for line in block.splitlines()]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    for program, first, *rest in lines:
        assert program in ("make", "pgfl")
        assert first in (targets if program == "make" else COMMANDS)
        if first == "run" and rest and not rest[0].startswith("-"):
            assert rest[0] in presets() or rest[0].endswith(".toml")


def test_there_is_something_to_test():
    assert len(blocks("python")) >= 3
    assert blocks("toml")
    assert blocks("bash")
