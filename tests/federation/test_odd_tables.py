"""Tables as people have them: packed, semicolons, signs and units, dates, empty columns, numbers without end."""

import gzip

import numpy as np
import pandas as pd
import pytest

from pgfl import PGFL, Column, Federation, Huber, Logistic, Result, Ridge, Softmax, train
from pgfl.cli.describe import names_text, values_text
from pgfl.errors import DataError, UsageError
from pgfl.federation.survey import survey
from tests.command_line import run

ROWS = 60


def table(**columns):
    rng = np.random.default_rng(0)
    numbers = np.arange(ROWS)
    made = {
        "client": [f"c{n % 6}" for n in numbers],
        "a": rng.normal(size=ROWS).round(3),
        "y": rng.normal(size=ROWS).round(3),
    }
    return pd.DataFrame(made | columns)


def warned(**columns):
    return " ".join(survey(table(**columns)).warnings)


def test_a_csv_file_may_be_packed(tmp_path):
    table().to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress((tmp_path / "t.csv").read_bytes()))
    plain, packed = (Federation.read(tmp_path / name) for name in ("t.csv", "t.csv.gz"))
    np.testing.assert_array_equal(plain.features, packed.features, strict=True)
    (tmp_path / "cut.csv.gz").write_bytes((tmp_path / "t.csv.gz").read_bytes()[:-200])
    (tmp_path / "no.csv.gz").write_bytes(b"client,y\n")
    for name in ("cut.csv.gz", "no.csv.gz"):
        with pytest.raises(DataError, match=rf"{name} cannot be read"):
            Federation.read(tmp_path / name)


@pytest.mark.parametrize(("mark", "word"), [(";", "semicolons"), ("\t", "tabs"), ("|", "vertical bars")])
def test_another_separator_is_named(tmp_path, mark, word):
    table().to_csv(tmp_path / "t.csv", index=False, sep=mark, decimal=",")
    with pytest.raises(DataError, match=f"separates its columns by {word}; save it with commas"):
        survey(tmp_path / "t.csv")
    read = pd.read_csv(tmp_path / "t.csv", sep=mark, decimal=",")  # as the message says
    np.testing.assert_array_equal(Federation.read(read).features, Federation.read(table()).features)


def test_the_index_that_pandas_writes_is_explained(tmp_path):
    table().to_csv(tmp_path / "t.csv")
    with pytest.raises(DataError, match="index=False"):
        Federation.read(tmp_path / "t.csv")


@pytest.mark.parametrize("far", [10**30, 10**18])
def test_numbers_that_cannot_be_told_apart_are_described(far):
    facts = survey(table(a=[str(far + n) for n in range(ROWS)]))
    assert facts.column("a").low == float(far)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([f"{n}%" for n in range(ROWS)], "'a' holds numbers with signs or units, such as '0%'"),
        ([f"1,{n:03d}" for n in range(ROWS)], "signs or units, such as '1,000'"),
        ([f"{n},5" for n in range(ROWS)], "signs or units, such as '0,5'"),
        ([f"{n} kg" for n in range(ROWS)], "signs or units, such as '0 kg'"),
        ([f"{n}.5" if n else "?" for n in range(ROWS)], "'a' holds numbers, but also '?' in 1 row;"),
        ([f"{n}.5" if n > 1 else "inf" for n in range(ROWS)], "holds numbers, but also 'inf' in 2 rows"),
        ([f"2020-01-{n % 28 + 1:02d}" for n in range(ROWS)], "'a' holds dates"),
        ([f"{n % 28 + 1}.12.2020" for n in range(ROWS)], "'a' holds dates"),
        ([None] * ROWS, "'a' is empty"),
        ([f"x{n}" for n in range(ROWS)], "'a' looks like an id"),
    ],
)
def test_what_is_wrong_with_a_column_is_said(cells, words):
    assert words in warned(a=cells)
    assert "'a'" not in warned()


def test_numbers_with_leading_zeros_are_names(tmp_path):
    """Postal codes and ids as Excel writes them where it is told to: neither bounds nor a mean make sense of them."""
    path, codes = tmp_path / "t.csv", [f"0{1000 + n % 4}" for n in range(ROWS)]
    table(client=[f"{n % 6:04d}" for n in range(ROWS)], zip=codes).to_csv(path, index=False)
    facts = survey(path)
    assert facts.column("zip").kind == facts.column("client").kind == "category"
    assert facts.column("zip").labels == ("01000", "01001", "01002", "01003")
    assert run("init", path, "--out", tmp_path / "t.toml").code == 0
    assert run("run", tmp_path / "t.toml", "--out", tmp_path / "out").code == 0
    names = Result.load(tmp_path / "out").feature_names
    assert "zip=01000" in names and "zip" not in names
    assert "0000, 0001" in run("describe", path).out
    assert survey(table(a=["0", "0.5", "10"] * (ROWS // 3))).column("a").kind == "number"


def test_a_column_of_dates_and_one_of_places_are_shown_as_what_they_are():
    facts = survey(table(a=[f"{n % 28 + 1}/12/2020" for n in range(ROWS)], client=[n % 6 for n in range(ROWS)]))
    assert values_text(facts.column("a")) == ""
    assert names_text(facts.column("client")) == "0, 1, 2, 3, …"
    torn = survey(table(cluster=["p", "q", "r", "s"] * (ROWS // 4)))
    assert torn.places is None and [column.name for column in torn.features] == ["a"]


def test_categories_may_be_numbers_and_words():
    assert survey(table(a=["0", "1", "2", "3+"] * 15)).column("a").kind == "category"


def test_a_label_is_rare_beside_the_others_not_beside_all_rows():
    assert "Label" not in warned(y=[n % 10 for n in range(ROWS)])
    assert "Label '9' of 'y' is in 1 of 60 rows" in warned(y=[n % 9 for n in range(ROWS - 1)] + [9])
    assert "Label" in warned(y=["well"] * 55 + ["ill"] * 5)


@pytest.mark.parametrize(
    ("declared", "objective", "sentence"),
    [
        (["b", "g"], Ridge(), "has labels, but ridge regression predicts numbers; choose logistic"),
        (["b", "g"], Huber(), "has labels, but huber regression predicts numbers"),
        (["b", "g", "r"], Logistic(), "has 3 labels, but logistic regression has two; choose softmax"),
    ],
)
def test_labels_need_an_objective_for_labels(declared, objective, sentence):
    labels = table(y=[declared[n % len(declared)] for n in range(ROWS)])
    federation = Federation.read(labels, columns={"y": Column(labels=declared)})
    with pytest.raises(DataError, match=sentence):
        train(federation, PGFL(), objective, rounds=1)


@pytest.mark.parametrize("objective", [Logistic(), Softmax()])
def test_bounds_of_a_target_belong_to_a_regression(objective):
    federation = Federation.read(table(y=[n % 2 for n in range(ROWS)]), columns={"y": Column(bounds=(0, 1))})
    with pytest.raises(DataError, match=r"has bounds, but .* predicts labels; declare labels instead"):
        train(federation, PGFL(), objective, rounds=1)


def test_wrong_calls_say_how_to_call():
    with pytest.raises(UsageError, match=r"no argument targets \(did you mean target\?\)"):
        Federation.read(table(), targets="y")
    with pytest.raises(UsageError, match="takes 1 argument by position"):
        Federation.read(table(), "y")
    with pytest.raises(UsageError, match=r"start=Result.load\('mine'\)"):
        train(Federation.read(table()), rounds=1, start="mine")
