"""`pgfl predict`: the rows of a table in their order, with the prediction as the last column."""

import csv

import numpy as np
import polars as pl
import pytest

from pgfl import PGFL, ClientData, Federation, Logistic, Model, Ridge, train
from pgfl.cli import predict as command
from pgfl.federation.columns import CategoryColumn, NumberColumn, TargetColumn
from pgfl.federation.encoding import RowEncoding, read_rows
from tests.command_line import refused, run

COLUMNS = (NumberColumn("age", (20.0, 80.0)), CategoryColumn("sex", ("f", "m")))


def table(count=40, seed=0):
    rng = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "patient": [f"{number:03d}" for number in range(count)],
            "sex": rng.choice(["f", "m"], count),
            "age": rng.uniform(20, 80, count),
            "cluster": rng.choice(["adults", "elders"], count),
        }
    )


def train_on(frame, target, objective):
    encoding = RowEncoding(COLUMNS, target)
    features = encoding.encode(read_rows(frame))
    ill = (frame["age"].to_numpy() > 50).astype(float)
    clients = {
        name: ClientData("north", name, features[frame["cluster"].to_numpy() == name], ill[frame["cluster"] == name])
        for name in ("adults", "elders")
    }
    federation = Federation.from_clients(clients).replace(encoding=encoding)
    return train(federation, PGFL(rho=0.1), objective, rounds=30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("run") / "out"
    return train_on(table(), TargetColumn("y", (0.0, 10.0)), Ridge(lam=1e-4)).save(place)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    place = tmp_path_factory.mktemp("run") / "out"
    return train_on(table(), TargetColumn("state", labels=("healthy", "ill")), Logistic(lam=1e-3)).save(place)


def predict(model, given, out, *options):
    ran = run("predict", model, given, "--out", out, *options)
    assert ran.code == 0, ran.err
    return pl.read_csv(out, infer_schema=False) if out.suffix == ".csv" else pl.read_parquet(out)


def test_rows_and_columns_keep_their_order_and_the_prediction_comes_last(folder, tmp_path):
    frame = table()
    frame.write_csv(tmp_path / "new.csv")
    found = predict(folder, tmp_path / "new.csv", tmp_path / "out.csv", "--ignore", "patient")
    assert found.columns == [*frame.columns, "prediction"]
    assert found["patient"].to_list() == frame["patient"].to_list()  # 007 stays 007
    expected = Model.load(folder).predict(frame, ignore=["patient"])
    np.testing.assert_array_equal(found["prediction"].cast(pl.Float64).to_numpy(), expected)  # to the last bit
    assert len(set(expected.round(6))) > 10


def test_a_table_with_its_columns_reordered_predicts_the_same(folder, tmp_path):
    frame = table().drop("patient")
    frame.write_csv(tmp_path / "a.csv")
    frame.select("cluster", "age", "sex").write_parquet(tmp_path / "b.parquet")
    one = predict(folder, tmp_path / "a.csv", tmp_path / "a-out.csv")
    other = predict(folder, tmp_path / "b.parquet", tmp_path / "b-out.parquet")
    np.testing.assert_array_equal(one["prediction"].cast(pl.Float64), other["prediction"])
    assert other.columns == ["cluster", "age", "sex", "prediction"]


def test_large_tables_are_predicted_in_parts_and_messages_keep_the_row_numbers(folder, tmp_path, monkeypatch):
    frame = table(100).drop("patient")
    frame.write_csv(tmp_path / "new.csv")
    whole = predict(folder, tmp_path / "new.csv", tmp_path / "whole.csv")
    monkeypatch.setattr(command, "ROWS_AT_A_TIME", 7)
    assert predict(folder, tmp_path / "new.csv", tmp_path / "parts.csv").equals(whole)
    assert predict(folder, tmp_path / "new.csv", tmp_path / "parts.parquet")["prediction"].len() == 100
    frame.with_columns(sex=pl.when(pl.int_range(pl.len()) == 44).then(pl.lit("x")).otherwise("sex")).write_csv(
        tmp_path / "bad.csv"
    )
    sentence = refused("predict", folder, tmp_path / "bad.csv", "--out", tmp_path / "bad-out.csv")
    assert "data row 45: column 'sex' holds 'x'" in sentence
    assert not (tmp_path / "bad-out.csv").exists()


def test_the_model_is_that_of_the_column_of_a_cluster_or_of_a_client(folder, tmp_path):
    frame = table().drop("patient")
    frame.write_csv(tmp_path / "new.csv")
    by_column = predict(folder, tmp_path / "new.csv", tmp_path / "column.csv")["prediction"].cast(pl.Float64).to_numpy()
    elders = (frame["cluster"] == "elders").to_numpy()
    for options in (("--cluster", "elders"), ("--client", "elders"), ("--cluster", "elders", "--server", "north")):
        out = tmp_path / f"{'-'.join(options)}.csv"
        found = predict(folder, tmp_path / "new.csv", out, *options)["prediction"].cast(pl.Float64).to_numpy()
        asked = {name.removeprefix("--"): value for name, value in zip(options[::2], options[1::2], strict=True)}
        np.testing.assert_array_equal(found, Model.load(folder).predict(frame, **asked))
        if options == ("--cluster", "elders"):
            np.testing.assert_array_equal(found[elders], by_column[elders])
            assert not np.array_equal(found[~elders], by_column[~elders])


def test_rows_of_another_cluster_are_refused_even_if_there_is_only_one_model(tmp_path):
    frame = table().with_columns(cluster=pl.lit("adults"))
    features = RowEncoding(COLUMNS, TargetColumn("y")).encode(read_rows(frame))
    federation = Federation.from_clients({"ann": ClientData("north", "adults", features, features[:, 0])})
    result = train(federation.replace(encoding=RowEncoding(COLUMNS, TargetColumn("y"))), PGFL(), Ridge(), rounds=2)
    folder = result.save(tmp_path / "run")
    other = frame.with_columns(cluster=pl.lit("elders")).drop("patient")
    other.write_csv(tmp_path / "new.csv")
    sentence = refused("predict", folder, tmp_path / "new.csv", "--out", tmp_path / "out.csv")
    assert "There is no cluster 'elders'" in sentence
    predict(folder, tmp_path / "new.csv", tmp_path / "out.csv", "--cluster", "adults")
    other.drop("cluster").write_csv(tmp_path / "bare.csv")
    predict(folder, tmp_path / "bare.csv", tmp_path / "bare-out.csv")


def test_a_classifier_writes_labels_and_probabilities_where_they_are_wanted(classifier, tmp_path):
    frame = table().drop("patient")
    frame.write_csv(tmp_path / "new.csv")
    plain = predict(classifier / "model.pgfl", tmp_path / "new.csv", tmp_path / "plain.csv")
    assert plain.columns == [*frame.columns, "prediction"]
    assert set(plain["prediction"]) == {"healthy", "ill"}
    more = predict(classifier, tmp_path / "new.csv", tmp_path / "more.csv", "--probabilities")
    assert more.columns == [*frame.columns, "probability_healthy", "probability_ill", "prediction"]
    chances = more["probability_ill"].cast(pl.Float64).to_numpy()
    np.testing.assert_array_equal(chances > 0.5, (more["prediction"] == "ill").to_numpy())
    np.testing.assert_array_equal(chances, Model.load(classifier).predict_proba(frame)[:, 1])


def test_blank_lines_are_no_rows_and_quotes_survive(folder, tmp_path):
    (tmp_path / "new.csv").write_text('note,age,sex,cluster\n"a, ""b""",30,f,adults\n\n,,,\nc,40,m,elders\n')
    predict(folder, tmp_path / "new.csv", tmp_path / "out.csv", "--ignore", "note")
    with (tmp_path / "out.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["note"] for row in rows] == ['a, "b"', "c"]


MISTAKES = {
    "unknown column": ({"cluster": ["adults"], "age": [30], "sex": ["f"], "patient": ["1"]}, (), "column 'patient'"),
    "missing column": ({"cluster": ["adults"], "age": [30]}, (), "has no column 'sex'"),
    "unknown cluster": ({"cluster": ["adult"], "age": [30], "sex": ["f"]}, (), "no cluster 'adult' (did you mean"),
    "empty cluster": ({"cluster": ["adults", None], "age": [3, 3], "sex": ["f", "f"]}, (), "data row 2: column 'clus"),
    "no cluster": ({"age": [30], "sex": ["f"]}, (), "2 clusters (adults, elders); name one with --cluster, or add"),
    "other cluster": ({"age": [30], "sex": ["f"]}, ("--cluster", "x"), "no cluster 'x'"),
    "other client": ({"age": [30], "sex": ["f"]}, ("--client", "x"), "no client 'x'"),
    "both": ({"age": [30], "sex": ["f"]}, ("--client", "adults", "--cluster", "adults"), "leave out --cluster"),
    "taken column": ({"prediction": [1], "age": [30], "sex": ["f"]}, ("--client", "adults"), "already has a column"),
    "no chances": ({"age": [30], "sex": ["f"]}, ("--client", "adults", "--probabilities"), "no probabilities"),
    "no rows": ({"age": [], "sex": []}, ("--client", "adults"), "no rows below the header"),
    "no number": ({"age": ["old"], "sex": ["f"]}, ("--client", "adults"), "holds 'old', which is not a finite number"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence_and_leaves_no_file(folder, tmp_path, mistake):
    columns, options, sentence = MISTAKES[mistake]
    pl.DataFrame(columns, strict=False).write_csv(tmp_path / "new.csv")
    out = tmp_path / "out.csv"
    assert sentence in refused("predict", folder, tmp_path / "new.csv", "--out", out, *options)
    assert not out.exists()


def test_a_file_in_the_way_a_wrong_ending_and_a_missing_model_are_refused(folder, tmp_path):
    table().write_csv(tmp_path / "new.csv")
    (tmp_path / "out.csv").write_text("mine")
    assert "already exists" in refused("predict", folder, tmp_path / "new.csv", "--out", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "mine"
    assert "Unsupported file type" in refused("predict", folder, tmp_path / "new.csv", "--out", tmp_path / "out.txt")
    absent = tmp_path / "absent"
    assert "does not exist" in refused("predict", folder, tmp_path / "new.csv", "--out", absent / "out.csv")
    assert "does not exist" in refused("predict", absent, tmp_path / "new.csv", "--out", tmp_path / "o.csv")
    assert "does not exist" in refused("predict", folder, tmp_path / "no.csv", "--out", tmp_path / "o.csv")
