"""Rows of any table: files, pandas, polars, Arrow and dicts give the same numbers, texts and sentences."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from pgfl.errors import DataError
from pgfl.federation.columns import BooleanColumn, CategoryColumn, NumberColumn, TargetColumn
from pgfl.federation.encoding import Part, PlaceColumns, RowEncoding, TableRows, read_rows

COLUMNS = {"age": [40, None, 55], "sex": ["f", " m ", None], "smoker": [True, False, None], "y": [1.5, 2.5, 3.5]}
ENCODING = RowEncoding(
    (
        NumberColumn("age", (20.0, 80.0), fill=50.0, indicator=True),
        CategoryColumn("sex", ("f", "m"), missing=True),
        BooleanColumn("smoker", fill=False),
    ),
    TargetColumn("y"),
    places=PlaceColumns("patient", None, None),
    ignored=("note",),
)
EXPECTED = [[-1 / 3, 0, 1, 0, 0, 1, 1], [0, 1, 0, 1, 0, 0, 1], [1 / 6, 0, 0, 0, 1, 0, 1]]


def as_csv(columns, folder):
    pl.DataFrame(columns).write_csv(folder / "rows.csv")
    return folder / "rows.csv"


def as_parquet(columns, folder):
    pl.DataFrame(columns).write_parquet(folder / "rows.parquet")
    return str(folder / "rows.parquet")


SOURCES = {
    "csv": as_csv,
    "parquet": as_parquet,
    "polars": lambda columns, folder: pl.DataFrame(columns),
    "lazy polars": lambda columns, folder: pl.LazyFrame(columns),
    "pandas": lambda columns, folder: pd.DataFrame(columns),
    "pandas with nullable types": lambda columns, folder: pd.DataFrame(columns).convert_dtypes(),
    "pandas with categories": lambda columns, folder: pd.DataFrame(columns).astype({"sex": "category"}),
    "arrow": lambda columns, folder: pa.table(columns),
    "dict": lambda columns, folder: columns,
    "dict of arrays": lambda columns, folder: {name: np.array(cells, dtype=object) for name, cells in columns.items()},
}


@pytest.fixture(params=SOURCES)
def source(request):
    return SOURCES[request.param]


def test_every_source_is_encoded_alike(source, tmp_path):
    rows = read_rows(source(COLUMNS, tmp_path))
    assert len(rows) == 3
    np.testing.assert_array_equal(ENCODING.encode(rows), EXPECTED)
    assert ENCODING.target.encode(rows).tolist() == [1.5, 2.5, 3.5]


def test_the_order_of_columns_is_irrelevant(source, tmp_path):
    turned = {name: COLUMNS[name] for name in reversed(COLUMNS)}
    rows = read_rows(source(turned, tmp_path))
    rows.check(ENCODING)
    np.testing.assert_array_equal(ENCODING.encode(rows), EXPECTED)


def test_missing_and_unknown_columns_are_refused_by_name(source, tmp_path):
    lacking = {name: cells for name, cells in COLUMNS.items() if name != "sex"} | {"gender": ["f"] * 3}
    if source is not SOURCES["pandas with categories"]:
        with pytest.raises(DataError, match=r"has no column 'sex'; it has age, smoker, y, gender\.$"):
            read_rows(source(lacking, tmp_path)).check(ENCODING)
    with pytest.raises(DataError, match=r"has a column 'ages' that the model's own table lacks \(did you mean age\?\)"):
        read_rows(source(COLUMNS | {"ages": [1] * 3}, tmp_path)).check(ENCODING)


def test_columns_that_the_model_did_not_use_and_the_target_may_be_there_or_not(tmp_path):
    more = {"patient": ["p"] * 3, "note": ["n"] * 3, "ward": [1] * 3}
    read_rows(COLUMNS | more).check(ENCODING, optional=["ward"])
    read_rows({name: cells for name, cells in COLUMNS.items() if name != "y"}).check(ENCODING)


def test_some_rows_keep_the_numbers_of_the_table_in_messages():
    table = read_rows({"x": [1.0, None, 3.0], "t": ["u", "v", "w"]}).table
    rows = TableRows(table, np.array([0, 2]), ahead=["x"])
    assert (rows.numbers("x").tolist(), rows.texts("t").tolist()) == ([1.0, 3.0], ["u", "w"])
    with pytest.raises(DataError, match=r"^The table, data row 3: wrong\.$"):
        raise rows.refuse(1, "wrong.")


def test_words_for_missing_count_in_columns_of_numbers_only():
    rows = read_rows({"x": ["1", "NA", "nan", ""], "land": ["NA", "DE", "", "nan"]})
    assert rows.numbers("x").tolist()[0] == 1.0
    assert np.isnan(rows.numbers("x")[1:]).all()
    assert rows.texts("land").tolist() == ["NA", "DE", None, "nan"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ([[1.0, 2.0]], "A list is no table; give the path"),
        (np.eye(2), "An array is no table: it has no column names (see Federation.from_clients); give"),
        (None, "None is no table"),
        (4, "4 is no table"),
        ({"x": 3}, "Column 'x' of the table is int; give a list of cells"),
        ({"x": [1], "y": [1, 2]}, "have 1 to 2 cells"),
        ({"x": [1], " x": [2]}, "The table has two columns named 'x'"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), "The table has two columns named 'x'"),
        ({"": [1]}, "Column 1 of the table has no name"),
    ],
)
def test_what_is_no_table_is_one_sentence(source, words):
    with pytest.raises(DataError) as error:
        read_rows(source)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_text_where_numbers_belong_is_refused():
    with pytest.raises(DataError, match=r"data row 2: column 'x' holds 'two', which is not a finite number"):
        read_rows({"x": [1, "two"]}).numbers("x")
    rows = read_rows({"sex": ["f", "m"], "ok": ["yes", "no"]}).table
    with pytest.raises(DataError, match=r"'sex' holds text \('f', 'm'\).* sex = \{ categories = \[\"f\", \"m\"\] \}"):
        TableRows(rows, undeclared={"sex": "categories"}).numbers("sex")
    with pytest.raises(DataError, match=r"ok = \{ boolean = true \}"):
        TableRows(rows, undeclared={"ok": "categories"}).numbers("ok")


def test_an_encoding_survives_json():
    assert RowEncoding.from_json(ENCODING.to_json()) == ENCODING


def test_the_bound_on_the_norm_is_attained_and_never_exceeded():
    assert ENCODING.x_norm == 2.0
    assert np.linalg.norm(EXPECTED, axis=1).max() <= 2.0
    filled_at_the_end = RowEncoding(
        (NumberColumn("x", (0.0, 2.0), fill=2.0, indicator=True),), TargetColumn("y"), False
    )
    assert (
        np.linalg.norm(filled_at_the_end.encode(read_rows({"x": [None], "t": ["u"]})))
        == filled_at_the_end.x_norm
        == 2.0**0.5
    )


def test_an_array_is_filled_column_by_column_in_the_order_that_is_asked_for():
    parts = [
        Part(np.full((len(order), 7), np.nan, dtype=np.float32), np.empty(len(order)), np.array(order))
        for order in ([2, 0], [1])
    ]
    ENCODING.encode_into(read_rows(COLUMNS), *parts)
    for part in parts:
        np.testing.assert_array_equal(part.features, np.array(EXPECTED, dtype=np.float32)[part.order])
        assert part.targets.tolist() == [COLUMNS["y"][row] for row in part.order]
    large = RowEncoding((NumberColumn("x"),), TargetColumn("y"), False)
    part = Part(np.empty((2, 1), dtype=np.float32), np.empty(2), np.array([1, 0]))
    with pytest.raises(DataError, match=r"data row 2: column 'x' holds '1e300', which is too large for float32"):
        large.encode_into(read_rows({"x": ["1", "1e300"], "y": [1, 2]}), part)
