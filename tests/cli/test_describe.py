"""`pgfl describe`: the figures of a table, and what looks wrong with it."""

import json

import numpy as np
import polars as pl
import pytest

from pgfl.federation.survey import survey
from tests.command_line import refused, run

ROWS = 60
RNG = np.random.default_rng(0)
NUMBER = RNG.integers(0, 10, size=ROWS)
TABLE = {
    "client": [f"k{k}" for k in NUMBER],
    "server": [f"s{k % 3}" for k in NUMBER],
    "cluster": [f"q{k % 2}" for k in NUMBER],
    "patient_id": [1000 + row // 2 for row in range(ROWS)],
    "serial": list(range(ROWS)),
    "uuid4": [f"{row:032x}" for row in RNG.permutation(ROWS)],
    "age": (20 + RNG.integers(0, 60, size=ROWS)).tolist(),
    "weight": [None if row % 10 == 0 else 50.0 + row / 3 for row in range(ROWS)],
    "sex": RNG.choice(["f", "m"], size=ROWS).tolist(),
    "smoker": RNG.choice(["yes", "no"], size=ROWS).tolist(),
    "always": [1] * ROWS,
    "ill": ["ill" if row < 3 else "well" for row in range(ROWS)],
}


@pytest.fixture
def table(tmp_path):
    def write(**changes):
        columns = {name: cells for name, cells in (TABLE | changes).items() if cells is not None}
        pl.DataFrame(columns).write_csv(tmp_path / "t.csv")
        return tmp_path / "t.csv"

    return write


def test_columns_places_and_warnings(table):
    code, out, err = run("describe", table(), "--target", "ill", "--json")
    assert (code, err) == (0, "")
    facts = json.loads(out)
    columns = {column["name"]: column for column in facts["columns"]}
    assert {name: column["kind"] for name, column in columns.items()} == {
        "client": "category", "server": "category", "cluster": "category", "patient_id": "number", "serial": "number",
        "uuid4": "text", "age": "number", "weight": "number", "sex": "category", "smoker": "boolean",
        "always": "number", "ill": "category",
    }  # fmt: skip
    assert (columns["age"]["low"], columns["age"]["high"]) == (min(TABLE["age"]), max(TABLE["age"]))
    assert (columns["weight"]["missing"], columns["weight"]["distinct"]) == (6, 54)
    assert sum(columns["age"]["histogram"]) == ROWS
    assert dict(columns["sex"]["frequent"]) == {word: TABLE["sex"].count(word) for word in ("f", "m")}
    sizes = np.bincount(NUMBER)
    assert facts["places"]["rows_per_client"] == [sizes.min(), np.median(sizes), sizes.max()]
    assert facts["places"]["clients_by_cluster_and_server"] == [[2, 1, 2], [2, 2, 1]]
    warnings = "\n".join(facts["warnings"])
    assert "Columns 'patient_id', 'serial', 'uuid4' look like ids; leave them out with `ignore`." in warnings
    assert "Column 'always' is constant" in warnings
    assert "Label 'ill' of 'ill' is in 3 of 60 rows only" in warnings
    assert "exact figures of records" in facts["note"]


def test_the_printed_page_shows_every_column_and_says_what_it_is(table):
    code, out, err = run("describe", table(), "--target", "ill")
    assert (code, err) == (0, "")
    for words in (*TABLE, "10 clients, 3 servers, 2 clusters", "whole number", "exact figures of records", "█"):
        assert words in out


def test_a_table_without_places_is_described_all_the_same(table):
    path = table(client=None, server=None, cluster=None, patient=TABLE["client"])
    code, out, _ = run("describe", path)
    assert code == 0
    assert "has no column 'client'" in " ".join(out.split())
    named = json.loads(run("describe", path, "--client", "patient", "--json").out)
    assert named["places"]["servers"] == ["all"]
    assert any("There is no column 'server'" in warning for warning in named["warnings"])


def test_a_client_in_two_clusters_is_a_warning(table):
    moved = list(TABLE["cluster"])
    moved[-1] = "q7"
    facts = json.loads(run("describe", table(cluster=moved), "--json").out)
    assert facts["places"] is None
    assert "in cluster 'q7', but in cluster" in facts["warnings"][0]


def test_clients_in_several_clusters_are_offered_to_be_split(table):
    """A school has girls and boys: one client per school and sex, rather than something to correct."""
    sentence = refused("init", table(), "--target", "ill", "--client", "client", "--cluster", "sex")
    assert "name the client of a row by 'client' and 'sex' together" in sentence and "client_sex" in sentence


LEAKS = {
    "doubled": lambda y, _: 2.0 * y + 1.0,
    "flag": lambda _, label: ["late" if word == "ill" else "never" for word in label],
    "day": lambda _, label: [200.0 + row if word == "ill" else row / 9.0 for row, word in enumerate(label)],
}


@pytest.mark.parametrize(("target", "leak"), [("y", "doubled"), ("label", "flag"), ("label", "day")])
def test_a_column_that_gives_the_target_away_is_named(target, leak):
    """And no other: a good feature is no leak."""
    rng = np.random.default_rng(3)
    good = rng.normal(size=200)
    y = good + 0.3 * rng.normal(size=200)
    label = np.where(y > 1.0, "ill", "well").tolist()
    columns = {"client": [f"c{k % 9}" for k in range(200)], "good": good, leak: LEAKS[leak](y, label)}
    columns |= {"word": rng.choice(["a", "b"], 200).tolist(), target: y if target == "y" else label}
    told = [warning for warning in survey(columns, target=target).warnings if "tell" in warning]
    assert told == [warning for warning in told if f"Column '{leak}' nearly tells the target" in warning] and told


def test_a_column_of_two_values_is_no_id_whatever_its_name():
    columns = {"client": ["a", "b"] * 20, "group_id": [3, 7] * 20, "sex_key": ["f", "m"] * 20, "y": range(40)}
    assert not any(column.looks_like_id for column in survey(columns).columns if column.name != "y")


def test_mistakes_are_one_sentence(table, tmp_path):
    assert "does not exist" in refused("describe", tmp_path / "absent.csv")
    assert "has no column 'z'" in refused("describe", table(), "--target", "z")
    assert "has no column 'ward'" in refused("describe", table(), "--cluster", "ward")
    (tmp_path / "empty.csv").write_text("client,y\n")
    assert "no rows below the header" in refused("describe", tmp_path / "empty.csv")


def test_numbers_that_are_measurements_are_no_ids():
    income = {"client": ["a"] * 100, "income": (RNG.permutation(10_000)[:100]).tolist(), "y": list(range(100))}
    assert not survey(income).column("income").looks_like_id
    assert not any("look" in warning for warning in survey(income).warnings)


def test_odd_columns_are_described(tmp_path):
    odd = {
        "client": ["a"] * 3,
        "day": pl.Series(["2020-01-01", "2020-01-02", "2020-01-03"]).str.to_date(),
        "list": [[1], [2], [3]],
        "empty": pl.Series([None, None, None], dtype=pl.String),
        "huge": [-1.7e308, 0.0, 1.7e308],
        "y": [0, 1, 0],
    }
    facts = survey(pl.DataFrame(odd))
    assert [column.kind for column in facts.columns] == ["category", "other", "other", "category", "number", "boolean"]
    assert facts.column("empty").constant
    assert facts.column("huge").histogram == ()
