"""Mistakes that people make with a table of their own: each is made twice, in a config and in Python.

Both answers are one sentence that names what is wrong. The command line ends with exit code 2 and leaves nothing.
"""

import re
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import pytest
import tomli_w

import pgfl
from pgfl.errors import PgflError
from tests.command_line import refused

BOUNDED = {"age": {"bounds": [18, 90]}, "bmi": {"bounds": [10, 60]}, "y": {"bounds": [0, 20]}}


def good() -> pd.DataFrame:
    """Six clients at three servers, in two clusters; the target is a number."""
    rows = range(36)
    return pd.DataFrame(
        {
            "client": [f"c{row % 6}" for row in rows],
            "server": [f"s{row % 3}" for row in rows],
            "cluster": [f"q{row % 2}" for row in rows],
            "age": [20.0 + row for row in rows],
            "bmi": [18.0 + row % 7 for row in rows],
            "y": [float(row % 9) for row in rows],
        }
    )


def without(*names: str) -> pd.DataFrame:
    return good().drop(columns=list(names))


def with_cell(column: str, row: int, cell: object) -> pd.DataFrame:
    table = good().astype({column: object})
    table.loc[row, column] = cell
    return table


@dataclass
class Mistake:
    """A table, what is asked of it in the keys of a config, and words of the answer."""

    words: str
    table: pd.DataFrame = field(default_factory=good)
    data: dict[str, Any] = field(default_factory=dict)
    graph: dict[str, Any] = field(default_factory=lambda: {"kind": "complete"})
    objective: dict[str, Any] = field(default_factory=lambda: {"kind": "ridge"})
    algorithm: dict[str, Any] = field(default_factory=dict)
    privacy: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


def columns(**declared: dict[str, Any]) -> dict[str, Any]:
    return {"columns": declared}


PRIVATE: dict[str, Any] = {"epsilon": 4.0, "max_releases": 5}
LOGISTIC = {"kind": "logistic"}
MISTAKES = {
    # who is where
    "no column of clients": Mistake("no column 'client'", without("client")),
    "clients under another name": Mistake("but 'Client'", good().rename(columns={"client": "Client"})),
    "a client without a name": Mistake("data row 4: column 'client' is empty", with_cell("client", 3, None)),
    "a client at two servers": Mistake("client 'c0' is at server 's2'", with_cell("server", 6, "s2")),
    "a client in two clusters": Mistake("client 'c0' is in cluster 'q1'", with_cell("cluster", 6, "q1")),
    "a misspelt server column": Mistake("no column 'hospital'", data={"server": "hospital"}),
    "one column for two places": Mistake("cannot be both", data={"server": "client"}),
    "an unknown kind of graph": Mistake("circle", graph={"kind": "circle"}),
    # columns
    "no target": Mistake("no column 'Y' (did you mean y?)", data={"target": "Y"}),
    "no features": Mistake("no feature columns", without("age", "bmi")),
    "no rows": Mistake("no rows below the header", good().head(0)),
    "the target among the features": Mistake(
        "`features` names 'y', which is the target", data={"features": ["age", "y"]}
    ),
    "a misspelt feature": Mistake("(did you mean bmi?)", data={"features": ["age", "bmii"]}),
    "a misspelt column to ignore": Mistake("which `ignore` names (did you mean age?)", data={"ignore": ["agee"]}),
    "a feature listed twice": Mistake("`features` names 'age' twice", data={"features": ["age", "age"]}),
    "a feature listed and ignored": Mistake("keep one of them", data={"features": ["age"], "ignore": ["age"]}),
    "everything ignored": Mistake("leaves no column as a feature", data={"ignore": ["age", "bmi"]}),
    "the client among the features": Mistake("names where a sample belongs", data={"features": ["client", "age"]}),
    # cells
    "text among numbers": Mistake("data row 3: column 'age' holds 'old'", with_cell("age", 2, "old")),
    "text that is not declared": Mistake("declare it", good().assign(bmi=["thin", "fat"] * 18)),
    "an empty cell": Mistake("data row 2: column 'bmi' is empty", with_cell("bmi", 1, None)),
    "an empty target": Mistake("data row 2: column 'y' is empty; fill it or remove the row", with_cell("y", 1, None)),
    "an infinite number": Mistake("column 'age' holds 'inf'", with_cell("age", 5, float("inf"))),
    "a percent sign": Mistake("holds '18%'", with_cell("bmi", 0, "18%")),
    "an unknown category": Mistake(
        "holds 'm', which is not one of its categories",
        good().assign(bmi=["f", "m"] * 18),
        columns(bmi={"categories": ["f", "x"]}),
    ),
    "a boolean that is none": Mistake("a boolean is true or false", data=columns(bmi={"boolean": True})),
    # declarations
    "bounds the wrong way round": Mistake("the lower one first", data=columns(age={"bounds": [90, 18]})),
    "one bound": Mistake("two numbers", data=columns(age={"bounds": [18]})),
    "bounds of an unknown column": Mistake("(did you mean age?)", data=columns(agee={"bounds": [18, 90]})),
    "a misspelt key of a column": Mistake("(did you mean bounds?)", data=columns(age={"bound": [18, 90]})),
    "bounds and categories": Mistake("exclude each other", data=columns(age={"bounds": [1, 2], "categories": ["a"]})),
    "a category listed twice": Mistake("twice", data=columns(bmi={"categories": ["a", "a"]})),
    "an unknown rule for empty cells": Mistake('"indicator"', data=columns(age={"bounds": [1, 99], "missing": "mean"})),
    "labels for a feature": Mistake("belong to the target", data=columns(bmi={"labels": ["a", "b"]})),
    "one label": Mistake("at least 2", data=columns(y={"labels": ["a"]}), objective=LOGISTIC),
    "a label that is not listed": Mistake(
        "its labels are ill, well",
        good().assign(y=["ill", "fine"] * 18),
        columns(y={"labels": ["ill", "well"]}),
        objective=LOGISTIC,
    ),
    # held-out rows
    "a share in per cent": Mistake("between 0 and 1, or a table; got 20", data={"test": 20}),
    "all rows held out": Mistake("between 0 and 1", data={"test": 1.0}),
    "a share as text": Mistake("0.2", data={"test": "0.2"}),
    "one fold": Mistake("2", data={"folds": 1}),
    "a test table that is not there": Mistake("does not exist", data={"test": "nowhere.csv"}),
    # tasks
    "numbers for logistic regression": Mistake("needs labels 0 and 1; recode", objective=LOGISTIC),
    "text labels for ridge": Mistake(
        "has labels, but ridge regression predicts numbers",
        good().assign(y=["ill", "well"] * 18),
        columns(y={"labels": ["ill", "well"]}),
    ),
    "three labels for logistic regression": Mistake(
        "choose softmax", good().assign(y=list("abc") * 12), columns(y={"labels": ["a", "b", "c"]}), objective=LOGISTIC
    ),
    "bounds for a label": Mistake("declare labels", data=columns(y={"bounds": [0, 1]}), objective=LOGISTIC),
    "a negative lambda": Mistake("lam", objective={"kind": "ridge", "lam": -1.0}),
    "tau above 1": Mistake("tau", algorithm={"kind": "pgfl", "tau": 1.5}),
    "an unknown metric": Mistake("metric", options={"metrics": ["r3"]}),
    "a metric of another task": Mistake("auc", data={"test": 0.2}, options={"metrics": ["auc"]}),
    "rounds below 1": Mistake("rounds", options={"rounds": 0}),
    # privacy
    "private without bounds": Mistake("x_norm", objective={"kind": "huber"}, privacy=PRIVATE),
    "private with one column unbounded": Mistake(
        "Column 'bmi' has no bounds", data=columns(age=BOUNDED["age"]), objective={"kind": "huber"}, privacy=PRIVATE
    ),
    "private with bounds from records": Mistake(
        "privacy does not allow",
        data=columns(**BOUNDED | {"bmi": {"bounds": "data"}}),
        objective={"kind": "huber"},
        privacy=PRIVATE,
    ),
    "private folds": Mistake(
        "the same records",
        data=columns(**BOUNDED) | {"folds": 3},
        objective={"kind": "huber"},
        privacy=PRIVATE,
        options={"runs": 3},
    ),
    "private ridge": Mistake("w_norm", data=columns(**BOUNDED), privacy=PRIVATE),
    "no epsilon to speak of": Mistake(
        "epsilon", data=columns(**BOUNDED), objective={"kind": "huber"}, privacy=PRIVATE | {"epsilon": -1.0}
    ),
}


def one_sentence(text: str) -> bool:
    return text.endswith(".") and len(re.findall(r"[.!?](?=\s+[A-Z]|$)", text)) == 1


def test_there_are_more_than_forty():
    assert len(MISTAKES) > 40


@pytest.mark.parametrize("name", MISTAKES)
def test_in_a_config(name, tmp_path):
    made = MISTAKES[name]
    made.table.to_csv(tmp_path / "t.csv", index=False)
    config = {
        **{"rounds": 3, "seed": 0} | made.options,
        "data": {"kind": "table", "table": "t.csv"} | made.data,
        "graph": made.graph,
        "objective": made.objective,
        "algorithm": made.algorithm,
    } | ({"privacy": made.privacy} if made.privacy else {})
    (tmp_path / "mine.toml").write_text(tomli_w.dumps(config), encoding="utf-8")
    sentence = refused("run", tmp_path / "mine.toml", "--out", tmp_path / "out")
    assert made.words in sentence and one_sentence(sentence.replace(str(tmp_path), "")), sentence
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", MISTAKES)
def test_in_python(name):
    made = MISTAKES[name]
    with pytest.raises(PgflError) as answer:
        in_python(made)
    assert made.words in str(answer.value) and one_sentence(str(answer.value)), str(answer.value)


def in_python(made: Mistake) -> None:
    objectives = {"ridge": pgfl.Ridge, "huber": pgfl.Huber, "logistic": pgfl.Logistic}
    settings = dict(made.objective)
    objective = objectives[settings.pop("kind")](**settings)
    algorithm = pgfl.PGFL(**{key: value for key, value in made.algorithm.items() if key != "kind"})
    privacy = pgfl.Privacy(**made.privacy) if made.privacy else None

    def federation(run: int) -> pgfl.Federation:
        folds = {"fold": run} if "folds" in made.data else {}
        return pgfl.Federation.read(made.table, graph=made.graph["kind"], **made.data, **folds)

    options = {"rounds": 3} | made.options
    pgfl.train(federation if "folds" in made.data else federation(0), algorithm, objective, privacy=privacy, **options)
