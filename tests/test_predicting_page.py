"""What docs/predicting.md shows is run: Python blocks as they stand, command lines looked up."""

import shlex

import pytest

from pgfl.cli import COMMANDS
from tests.documented import blocks, printed_as_commented

PAGE = "docs/predicting.md"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("code", blocks(PAGE, "python"))
def test_python_runs_and_prints_what_its_comments_say(code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    printed_as_commented(PAGE, code, capsys)


def test_commands_exist():
    lines = [shlex.split(line) for block in blocks(PAGE, "bash") for line in block.splitlines()]
    assert {first for _, first, *_ in lines} == {"predict", "coefficients", "export", "run"} <= set(COMMANDS)
