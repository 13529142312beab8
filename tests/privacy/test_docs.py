"""docs/privacy.md names a test for each of its sentences; they exist, and none is named in vain."""

import ast
import re
from pathlib import Path

import pytest

from tests.parsed import parsed

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "privacy.md").read_text("utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


def test_every_sentence_of_the_table_names_a_test():
    table = PAGE.split("## How each sentence is tested")[1].split("##")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 25
    assert all("::test_" in row for row in rows)


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_the_named_test_exists(file, test):
    tree = parsed(REPOSITORY / file)
    assert test in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
