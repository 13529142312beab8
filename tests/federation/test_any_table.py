"""Tables of any content: encoded rows stay within their bound, and whatever is wrong is one sentence."""

import tomllib

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pgfl import Column, Federation
from pgfl.config import parse
from pgfl.config.starter import InitOptions, draft_config
from pgfl.errors import PgflError
from pgfl.federation.survey import survey

TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=3)
WORDS = [
    "a",
    "b",
    "other",
    "missing",
    "NA",
    "nan",
    "",
    " ",
    "true",
    "No",
    "1",
    "1.0",
    "-2",
    "007",
    "1e3",
    "inf",
    "é",
    "x=y",
]
CELL = st.one_of(st.sampled_from(WORDS), st.none(), st.floats(-1e6, 1e6).map(repr), st.integers(-9, 9).map(str), TEXT)
NAME = st.one_of(
    st.sampled_from(["y", "x", "age", "sex", "patient_id", "intercept", 'a "b"']),
    TEXT.filter(str.strip),
)


@st.composite
def tables(draw, cells=CELL):
    rows = draw(st.integers(4, 14))
    names = draw(st.lists(NAME, min_size=1, max_size=6, unique_by=str.strip))
    columns = {name: draw(st.lists(cells, min_size=rows, max_size=rows)) for name in names}
    columns["client"] = draw(st.lists(st.sampled_from("ab"), min_size=rows, max_size=rows))
    if draw(st.integers(0, 3)):
        columns["y"] = draw(st.lists(st.integers(0, 1).map(str), min_size=rows, max_size=rows))
    return columns


def attempted(work):
    """What work gives, or the one sentence with which it is refused."""
    try:
        return work()
    except PgflError as error:
        complaint = str(error)
    assert "\n" not in complaint
    assert complaint.endswith((".", "?"))
    return complaint


BOUNDS = st.tuples(st.floats(-100, 100), st.floats(-100, 100)).filter(lambda ends: ends[1] - ends[0] > 1e-6)
MISSING = st.sampled_from(["refuse", "indicator"])
DECLARATION = st.one_of(
    st.builds(Column, bounds=BOUNDS, missing=MISSING),
    BOUNDS.flatmap(lambda ends: st.builds(Column, bounds=st.just(ends), missing=st.floats(*ends))),
    st.builds(Column, categories=st.just(["a", "b", "1"]), other=st.booleans(), missing=MISSING),
    st.builds(Column, categories=st.just(["a", "b", "1"]), other=st.just(True), missing=st.sampled_from(["a", "1"])),
    st.builds(Column, boolean=st.just(True), missing=st.sampled_from(["refuse", "indicator", True, False])),
)
QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much]


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=QUIET)
@given(
    cells=st.lists(CELL, min_size=1, max_size=8),
    declared=DECLARATION,
    intercept=st.booleans(),
    single=st.booleans(),
)
def test_encoded_rows_are_finite_and_within_the_bound_that_privacy_relies_on(cells, declared, intercept, single):
    table = {"client": ["a"] * len(cells), "y": [0.0] * len(cells), "x": cells}
    dtype = np.float32 if single else np.float64
    options = {"columns": {"x": declared}, "intercept": intercept, "dtype": dtype}
    made = attempted(lambda: Federation.read(pl.DataFrame(table, strict=False), **options))
    if isinstance(made, str):
        return
    assert np.isfinite(made.features).all()
    assert np.linalg.norm(made.features, axis=1).max() <= made.encoding.x_norm * (1 + 4 * np.finfo(dtype).eps)


@pytest.mark.proof
@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=QUIET)
@given(columns=tables())
def test_any_table_is_described_and_its_first_config_runs_or_says_why_not(tmp_path, columns):
    path = tmp_path / "t.parquet"
    pl.DataFrame(columns, strict=False).write_parquet(path)
    facts = survey(path)
    draft = attempted(lambda: draft_config(facts, InitOptions(str(path))))
    if isinstance(draft, str):
        return
    config = parse(tomllib.loads(draft.text.replace("softmax", "logistic")))
    assert set(config.data.columns) <= {column.name for column in facts.columns}
    made = attempted(lambda: config.federations()(0, None))
    if isinstance(made, str):
        assert (
            "one label only" in made or facts.column(facts.target).missing or "Two features would be called" in made
        ), draft.text
    else:
        assert np.abs(made.features).max() <= 1.0
