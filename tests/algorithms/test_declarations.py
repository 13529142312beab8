"""Declarations of columns: the same rules in Python and in a config, each mistake one sentence."""

import numpy as np
import pandas as pd
import pytest

from pgfl import Column
from pgfl.config import parse, to_toml
from pgfl.errors import ConfigError

WRONG = [
    ({"bounds": (90, 18)}, "`bounds` must be two numbers, the lower one first; got [90, 18]."),
    ({"bounds": (1, 1)}, "`bounds` must be two numbers, the lower one first; got [1, 1]."),
    ({"bounds": (1,)}, "`bounds` must be two numbers"),
    ({"bounds": ("a", "b")}, "`bounds` must be two numbers"),
    ({"bounds": (0.0, float("inf"))}, "`bounds` must be two numbers"),
    ({"bounds": "date"}, "`bounds` must be two numbers"),
    ({"bounds": 5}, "`bounds` must be two numbers"),
    ({"bounds": (True, 2)}, "`bounds` must be two numbers"),
    ({"categories": ()}, "`categories` must hold at least 1 texts"),
    ({"categories": "fm"}, "`categories` must be a list of texts"),
    ({"categories": ("f", "f")}, "`categories` holds 'f' twice"),
    ({"categories": ("f", "")}, "`categories` must be a list of texts"),
    ({"categories": ("f", None)}, "`categories` must be a list of texts"),
    ({"labels": ("ill",)}, "`labels` must hold at least 2 texts"),
    ({"boolean": "yes"}, "`boolean` must be true or false"),
    ({"boolean": True, "bounds": (0, 1)}, "`bounds` and boolean exclude each other"),
    ({"categories": ("a",), "labels": ("a", "b")}, "`categories` and labels exclude each other"),
    ({"other": True}, "`other` belongs to categories"),
    ({"other": 1, "categories": ("a",)}, "`other` must be true or false"),
    ({"categories": ("other", "a"), "other": True}, "`other` = true has the name of a category 'other'"),
    ({"categories": ("missing", "a"), "missing": "indicator"}, "has the name of a category 'missing'"),
    ({"missing": "mean"}, '`missing` must be "refuse", "indicator" or a number'),
    ({"missing": True}, '`missing` must be "refuse", "indicator" or a number'),
    ({"bounds": (0, 1), "missing": 2}, "`missing` = 2 lies outside the bounds"),
    ({"boolean": True, "missing": 1}, '`missing` must be "refuse", "indicator" or true, false'),
    ({"categories": ("a",), "missing": "b"}, '`missing` must be "refuse", "indicator" or one of the categories'),
    ({"labels": ("a", "b"), "missing": "indicator"}, '`missing` must be "refuse" for a column with labels'),
]


@pytest.mark.parametrize(("values", "words"), WRONG)
def test_the_same_rules_in_python_and_in_a_config(values, words):
    with pytest.raises(ConfigError) as error:
        Column(**values)
    assert str(error.value).startswith(words) or words in str(error.value)
    with pytest.raises(ConfigError) as configured:
        parse({"data": {"kind": "table", "table": "x.csv", "columns": {"age": values}}})
    assert str(configured.value) == str(error.value).replace("`", "`data.columns.age.", 1)
    assert "\n" not in str(error.value)


def test_unknown_keys_and_values_that_are_no_tables():
    for columns, words in [
        ({"age": {"bound": [1, 2]}}, r"Unknown key `data.columns.age.bound` \(did you mean bounds\?\)"),
        ({"age": [18, 90]}, r"`data.columns.age` must be a table, as in \{ bounds = \[18, 90\] \}; got a list of 2"),
        ([1], "`data.columns` must be a table"),
    ]:
        with pytest.raises(ConfigError, match=words):
            parse({"data": {"kind": "table", "table": "x.csv", "columns": columns}})


def test_whole_numbers_are_categories_as_cells_hold_them():
    assert Column(categories=[1, 2.0, 2.5, True, " f "]).categories == ("1", "2", "2.5", "true", "f")


def test_arrays_are_lists_too():
    assert Column(bounds=np.array([18, 90])) == Column(bounds=(18, 90)) == Column(bounds=[np.int64(18), np.float32(90)])
    assert Column(categories=pd.Series(["f", "m"]).unique()).categories == ("f", "m")
    assert Column(labels=np.array([0, 1])).labels == ("0", "1")


def test_a_config_keeps_its_declarations():
    columns = {
        "age": {"bounds": [18, 90], "missing": 40},
        "sex": {"categories": ["f", "m"], "other": True, "missing": "indicator"},
        "smoker": {"boolean": True},
        "y": {"labels": ["no", "yes"]},
    }
    data = {"kind": "table", "table": "x.csv", "columns": columns, "ignore": ["id"], "test": 0.2, "client": "patient"}
    config = parse({"data": data})
    assert config.data.columns["age"] == Column(bounds=(18, 90), missing=40)
    import tomllib

    again = parse(tomllib.loads(to_toml(config)))
    assert again == config
    assert "columns" not in to_toml(parse({"data": {"kind": "table", "table": "x.csv"}}))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"test": 0.0}, "`data.test` must be a share between 0 and 1, or a table; got 0"),
        ({"test": 1.0}, "`data.test` must be a share between 0 and 1, or a table; got 1"),
        ({"test": 0.2, "folds": 5}, "`data.test` and `data.folds` both hold rows out"),
        ({"folds": 1}, "`data.folds` must be at least 2"),
        ({"features": "age"}, "`data.features` must be a list"),
        ({"ignore": [3]}, "`data.ignore.0` must be text"),
    ],
)
def test_bad_keys_of_a_table(data, words):
    with pytest.raises(ConfigError, match=words):
        parse({"data": {"kind": "table", "table": "x.csv"} | data})


def test_folds_are_runs():
    table = {"kind": "table", "table": "x.csv", "folds": 5}
    assert parse({"data": table}).runs == 5
    assert parse({"data": table, "runs": 10}).runs == 10
    with pytest.raises(ConfigError, match=r"`runs` = 7 is no multiple of `data.folds` = 5; every run is one fold"):
        parse({"data": table, "runs": 7})
    with pytest.raises(ConfigError, match=r"`data.folds` trains on the same records several times.*test = 0.2"):
        parse({"data": table, "privacy": {"epsilon": 4.0, "x_norm": 1.0}, "objective": {"kind": "huber"}})


def test_several_private_runs_on_the_same_records_are_refused():
    settings = {
        "data": {"kind": "table", "table": "x.csv"}, "runs": 3, "objective": {"kind": "huber"},
        "privacy": {"epsilon": 4.0, "x_norm": 1.0},
    }  # fmt: skip
    with pytest.raises(ConfigError, match=r"`runs` = 3 releases models of the same records 3 times.*set runs = 1"):
        parse(settings)
    settings["privacy"]["noise"] = "seeded"
    assert parse(settings).runs == 3
    del settings["data"], settings["privacy"]["noise"]
    assert parse(settings).runs == 3


def private(columns, **privacy):
    data = {"kind": "table", "table": "x.csv", "columns": columns}
    return {"data": data, "objective": {"kind": "huber"}, "privacy": {"epsilon": 4.0} | privacy}


@pytest.mark.parametrize("key", ["bounds", "categories", "labels"])
def test_what_would_be_read_from_records_is_refused_by_name(key):
    name = "y" if key == "labels" else "age"
    words = rf'`data.columns.{name}.{key}` = "data" would be read from records.*state public {key}'
    with pytest.raises(ConfigError, match=words):
        parse(private({name: {key: "data"}}, x_norm=1.0))
    parse(private({name: {key: "data"}}, enabled=False))


def test_declared_columns_take_the_place_of_x_norm_and_y_bound():
    declared = {"age": {"bounds": [18, 90]}, "y": {"bounds": [0, 10]}}
    assert parse(private(declared)).privacy.x_norm is None
    with pytest.raises(ConfigError, match=r"`privacy.x_norm` is missing"):
        parse(private({}))
    ridge = private(declared, w_norm=3.0) | {"objective": {"kind": "ridge"}}
    assert parse(ridge).privacy.y_bound is None
    del ridge["data"]["columns"]["y"]
    with pytest.raises(ConfigError, match=r"`privacy.y_bound` is missing"):
        parse(ridge)
