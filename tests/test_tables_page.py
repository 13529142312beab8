"""docs/tables.md: its Python runs, its config is valid, and its commands and keys exist."""

import re
import shlex
import tomllib

import numpy as np
import pytest

from pgfl import Column
from pgfl.cli import COMMANDS
from pgfl.config import parse, warnings
from pgfl.config.table_data import TableData
from pgfl.federation.frames import open_table
from pgfl.federation.places import place_columns
from pgfl.federation.table_encoding import build_encoding, select_columns
from tests.documented import ROOT, blocks, printed_as_commented

PAGE = "docs/tables.md"


@pytest.mark.parametrize("code", blocks(PAGE, "python"))
def test_python_runs_and_prints_what_its_comments_say(code, capsys):
    printed_as_commented(PAGE, code, capsys)


def test_the_config_is_valid_and_bounds_a_row_by_the_root_of_six():
    text, _ = blocks(PAGE, "toml")
    config = parse(tomllib.loads(text))
    assert warnings(config) == []
    data = config.data
    names = [data.client, data.server, data.cluster, data.target, *data.ignore, *(set(data.columns) - {data.target})]
    table = open_table({name: ["1"] for name in names})
    places = place_columns(table, data.client, data.server, data.cluster)
    selection = select_columns(table, data.target, places, data.columns, data.features, data.ignore)
    assert build_encoding(table, selection, np.array([0]), data.intercept).x_norm == pytest.approx(6**0.5)


def test_commands_exist():
    for line in "".join(blocks(PAGE, "bash")).splitlines():
        program, command, *_ = shlex.split(line, comments=True)
        assert program == "pgfl"
        assert command in COMMANDS


def test_every_key_of_a_table_and_of_a_column_is_on_the_page():
    page = (ROOT / PAGE).read_text("utf-8")
    listed = set(re.findall(r"`(\w+)(?:`| =)", page))
    assert set(TableData.model_fields) - {"kind"} <= listed
    assert set(Column.__dataclass_fields__) <= listed
