"""The skeletons in CONTRIBUTING.md run, and its commands exist."""

import re
import shlex

import pytest

from pgfl.cli import COMMANDS
from tests.documented import ROOT, blocks, make_targets, printed_as_commented

PAGE = "CONTRIBUTING.md"
SKELETONS = blocks(PAGE, "python")


@pytest.mark.parametrize("code", SKELETONS, ids=lambda code: code.split("class ")[-1].split("(")[0].split(":")[0])
def test_a_skeleton_runs_and_prints_what_its_comments_say(code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    printed_as_commented(PAGE, code, capsys)


def test_commands_exist():
    for block in blocks(PAGE, "bash"):
        for program, name, *_ in (shlex.split(line, comments=True) for line in block.splitlines()):
            assert name in (make_targets() if program == "make" else COMMANDS), (program, name)


def test_files_that_are_named_exist():
    text = (ROOT / PAGE).read_text("utf-8")
    paths = re.findall(r"`([^`\s]*/[^`\s]*)`", text)
    assert paths
    for name in paths:
        assert any(list(folder.glob(name.rstrip("/"))) for folder in (ROOT, ROOT / "src/pgfl")), name
