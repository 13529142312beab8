"""The model: what is done to a row in training is done in prediction, and one file holds all of it."""

import io
import json
import zipfile
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgfl import PGFL, ClientData, Column, Federation, Huber, Logistic, Model, Privacy, Result, Ridge, train
from pgfl.errors import DataError, PgflError, ResultError
from pgfl.federation.columns import CategoryColumn, NumberColumn, TargetColumn
from pgfl.federation.encoding import RowEncoding
from pgfl.results import model_file
from pgfl.results.rows import ArrayRows
from pgfl.simulate.options import TrainingOptions
from pgfl.simulate.simulator import Simulator
from tests.sample_results import sample_result

ENCODING = RowEncoding(
    (NumberColumn("age", (20.0, 80.0)), CategoryColumn("sex", ("f", "m")), NumberColumn("dose", (0.0, 5.0))),
    TargetColumn("y", (0.0, 200.0)),
)


def raw_rows(count=60, seed=0):
    rng = np.random.default_rng(seed)
    rows = np.empty((count, 3), dtype=object)
    rows[:, 0] = rng.uniform(20, 80, count)
    rows[:, 1] = rng.choice(["f", "m"], count)
    rows[:, 2] = rng.uniform(0, 5, count)
    return rows


def measured(rows):
    return rows[:, 0].astype(float) + 20.0 * (rows[:, 1] == "m") + 10.0 * rows[:, 2].astype(float)


def encoded_federation(rows, encoding=ENCODING, targets=None):
    features = encoding.encode(ArrayRows(rows, [column.name for column in encoding.columns]))
    found = (measured(rows) - 100.0) / 100.0 if targets is None else targets
    half = len(rows) // 2
    clients = {
        "ann": ClientData("north", "adults", features[:half], found[:half]),
        "bob": ClientData("south", "adults", features[half:], found[half:]),
    }
    return Federation.from_clients(clients, edges=[("north", "south")]).replace(encoding=encoding)


def r2(targets, predicted):
    return 1.0 - np.sum((targets - predicted) ** 2) / np.sum((targets - targets.mean()) ** 2)


# ------------------------------------------------------------------------------------------- rows, as training saw them


def test_raw_rows_are_encoded_and_predictions_are_in_the_table_s_unit():
    rows = raw_rows()
    result = train(encoded_federation(rows), PGFL(rho=0.1), Ridge(lam=1e-6), rounds=300)
    assert r2(measured(rows), result.predict(rows, cluster="adults")) > 0.999
    assert r2(measured(rows), result.predict(rows)) > 0.999  # there is only one cluster
    encoded = encoded_federation(rows).features
    np.testing.assert_array_equal(result.predict(encoded, encoded=True), result.predict(rows))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_prediction_sees_the_very_bits_that_training_saw(dtype):
    """Encoded, rounded to the training's precision, then clipped: in this order, by the same functions."""
    rows = raw_rows(200)
    federation = encoded_federation(rows)
    privacy = Privacy(epsilon=4.0, max_releases=5, x_norm=1.2, noise="seeded")
    options = TrainingOptions(rounds=5, privacy=privacy, dtype=dtype)
    trained_on = Simulator([federation], PGFL(rho=1.0), Huber(), options).layout.runs[0].federation.features
    result = train(federation, PGFL(rho=1.0), Huber(), rounds=5, privacy=privacy, dtype=dtype)
    seen = result.model().encode(rows)
    assert seen.dtype == trained_on.dtype == dtype
    np.testing.assert_array_equal(seen, trained_on)
    assert not np.array_equal(seen, federation.features.astype(dtype))  # the clipping had something to do


def test_clipping_is_part_of_the_model():
    """The rows of the issue: long ones, which training clips. Without clipping R² was −2.96 instead of 0.53."""
    rng = np.random.default_rng(3)
    direction = np.array([0.6, -0.8])
    features = rng.normal(size=(400, 2)) * rng.lognormal(2.0, 1.0, size=(400, 1))
    short = features / np.maximum(1.0, np.linalg.norm(features, axis=1, keepdims=True))
    targets = short @ direction + 0.1 * rng.normal(size=400)
    federation = Federation.from_clients({"ann": ClientData("north", "adults", features, targets)})
    privacy = Privacy(phi0=10.0, zeta=1.0, x_norm=1.0, noise="seeded")
    result = train(federation, PGFL(rho=0.1), Huber(lam=1e-6), rounds=60, privacy=privacy)
    assert r2(targets, result.predict(features)) > 0.5
    assert r2(targets, features @ result.cluster("adults")) < -2.0
    model = result.model()
    assert model.x_norm == 1.0


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_a_row_s_prediction_does_not_depend_on_its_neighbours(count, width, seed):
    rng = np.random.default_rng(seed)
    rows, weights = rng.normal(size=(count, width)), rng.normal(size=width)
    model = Model(("q",), ("ridge",), ("regression",), weights[None])
    whole, order = model.predict(rows), rng.permutation(count)
    np.testing.assert_array_equal(model.predict(rows[order]), whole[order])
    np.testing.assert_array_equal([model.predict(row)[0] for row in rows], whole)


def test_one_cluster_per_row():
    result = sample_result()
    rows = np.random.default_rng(0).normal(size=(6, 4))
    clusters = ["adults", "children", "adults", "children", "children", "adults"]
    expected = [result.predict(row, cluster=name)[0] for row, name in zip(rows, clusters, strict=True)]
    np.testing.assert_array_equal(result.predict(rows, cluster=clusters), expected)
    with pytest.raises(ResultError, match="6 rows but 2 clusters"):
        result.predict(rows, cluster=["adults", "children"])
    with pytest.raises(ResultError, match=r"no cluster 'adult' \(did you mean adults"):
        result.predict(rows, cluster=["adult"] * 6)


# ------------------------------------------------------------------------------------------------------------- labels


def labelled(labels=("healthy", "ill")):
    rows = raw_rows(200)
    encoding = RowEncoding(ENCODING.columns, TargetColumn("state", labels=labels))
    sick = (measured(rows) > np.median(measured(rows))).astype(float)
    federation = encoded_federation(rows, encoding, sick)
    return rows, sick, train(federation, PGFL(rho=0.05), Logistic(lam=1e-4), rounds=100)


def test_labels_are_text_where_they_were_declared():
    rows, sick, result = labelled()
    chances, labels = result.predict_proba(rows)[:, 1], result.predict(rows)
    assert set(labels) == {"healthy", "ill"}
    np.testing.assert_array_equal(labels == "ill", chances > 0.5)
    assert np.mean((labels == "ill") == (sick == 1)) > 0.95
    both = result.model().predict_proba(rows)
    np.testing.assert_allclose(both.sum(axis=1), 1.0)
    np.testing.assert_array_equal(both[:, 1], chances)


def test_labels_are_numbers_where_none_were_declared_and_regression_has_none():
    result = sample_result()
    rows = np.random.default_rng(0).normal(size=(6, 4))
    logistic = result.cluster_ids[2]
    labels = result.predict(rows, cluster=logistic)
    np.testing.assert_array_equal(labels, (result.predict_proba(rows, cluster=logistic)[:, 1] > 0.5).astype(int))
    with pytest.raises(ResultError, match="predicts numbers, which have no probabilities"):
        result.predict_proba(rows, cluster="adults")
    with pytest.raises(ResultError, match="different tasks"):
        result.predict(rows, cluster=["adults", logistic] * 3)


def test_many_classes_share_one_model_of_classes_times_features():
    coefficients = np.array([[1.0, 0.0, 0.0, 0.0, 2.0, 0.0, -1.0, -1.0, 0.5]])
    model = Model(("q",), ("softmax",), ("multiclass",), coefficients, intercept=True, classes=3)
    rows = np.array([[3.0, 0.0], [0.0, 3.0], [-2.0, -2.0]])
    assert model.predict(rows).tolist() == [0, 1, 2]
    chances = model.predict_proba(rows)
    assert chances.shape == (3, 3)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    margins = np.column_stack([rows, np.ones(3)]) @ coefficients.reshape(3, 3).T
    np.testing.assert_allclose(chances, np.exp(margins) / np.exp(margins).sum(axis=1, keepdims=True))


# ------------------------------------------------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([[40.0, "f"]], r"takes 3 columns per row \(age, sex, dose\); got 2\."),
        (np.zeros((1, 5)), "got 5; if these are encoded features, pass encoded=True"),
        ([[40.0, "x", 1.0]], "holds 'x', which is not one of its categories"),
        ([[40.0, "f", None]], "data row 1: column 'dose' is empty"),
        ([["old", "f", 1.0]], "a value that is not a number"),
        ([[40.0, "f", 1.0], [40.0]], "unequal lengths"),
        ([], "at least one row"),
        (np.zeros((2, 2, 2)), "at least one row"),
    ],
)
def test_rows_that_do_not_fit_are_refused_in_one_sentence(rows, sentence):
    model = train(encoded_federation(raw_rows()), PGFL(), Ridge(), rounds=1).model()
    with pytest.raises(DataError, match=sentence):
        model.predict(rows)


def test_a_value_that_is_not_finite_is_refused():
    with pytest.raises(DataError, match="data row 2: there is a value that is not a finite number"):
        sample_result().predict([[0.0] * 4, [np.inf] * 4], cluster="adults")


# ------------------------------------------------------------------------------------------------------------ the file


@pytest.mark.parametrize("noise", [None, "seeded", "secure"])
def test_a_saved_model_predicts_the_same_bits(tmp_path, noise):
    result = sample_result(noise=noise, intercept=True, x_norm=0.7, dtype="float32")
    result.save(tmp_path / "out")
    rows = np.random.default_rng(1).normal(size=(5, 3))
    for loaded in (Model.load(tmp_path / "out"), Model.load(tmp_path / "out" / "model.pgfl")):
        for asked in ({"cluster": "adults"}, {"server": "server-1", "cluster": "children"}, {"client": "client-03"}):
            np.testing.assert_array_equal(loaded.predict(rows, **asked), result.predict(rows, **asked))
        assert (loaded.x_norm, loaded.dtype, loaded.tasks) == (
            0.7,
            "float32",
            ("regression",) * 2 + ("classification",),
        )
    again = Result.load(tmp_path / "out")
    np.testing.assert_array_equal(again.predict(rows, cluster="adults"), result.predict(rows, cluster="adults"))


def test_the_encoding_and_the_provenance_survive(tmp_path):
    rows, _, result = labelled()
    result.save(tmp_path / "out")
    again = Result.load(tmp_path / "out")
    assert again.encoding == result.encoding
    model = Model.load(tmp_path / "out")
    assert model.encoding == result.encoding
    assert model.predict(rows).tolist() == result.predict(rows).tolist()
    assert model.provenance["rounds"] == 100
    assert model.provenance["version"] == result.summary()["version"]
    assert model.feature_names == ("age", "sex=f", "sex=m", "dose", "intercept")


def test_the_page_is_plain_json_and_nothing_private_but_what_was_released_is_in_the_file(tmp_path):
    result = sample_result(noise="seeded")
    result.model().save(tmp_path / "model.pgfl")
    with zipfile.ZipFile(tmp_path / "model.pgfl") as archive:
        page = json.loads(archive.read("model.json"))
        stored = b"".join(archive.read(name) for name in archive.namelist())
    assert (page["format"], page["version"]) == ("pgfl model", 1)
    assert page["provenance"]["guarantee"] == result.guarantee
    assert page["provenance"]["privacy"]["epsilon"]["worst"] == result.spending()["epsilon"]["worst"]
    assert any(value.tobytes() in stored for value in result.models[0].released[1:])
    assert not any(value.tobytes() in stored for value in result.models[0].clients)


def test_equal_models_are_equal_files_and_none_is_overwritten(tmp_path):
    for name in ("a", "b"):
        sample_result().model().save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with pytest.raises(ResultError, match="already exists, and nothing was overwritten"):
        sample_result().model().save(tmp_path / "a")


def test_very_many_client_models_are_not_stored_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(model_file, "MOST_NUMBERS", 10)
    result = sample_result()
    result.save(tmp_path)
    model = Model.load(tmp_path)
    assert model.clients is None
    with pytest.raises(ResultError, match="holds no client models; load the result folder"):
        model.predict([[0.0] * 4], client="client-03")
    with pytest.raises(ResultError, match="holds no server models; load the result folder"):
        model.predict([[0.0] * 4], server="server-1", cluster="adults")
    np.testing.assert_array_equal(
        model.predict([[1.0] * 4], cluster="adults"), result.predict([[1.0] * 4], cluster="adults")
    )
    assert "client-03" not in (tmp_path / "model.pgfl").read_bytes().decode("latin-1")
    assert Result.load(tmp_path).predict([[0.0] * 4], client="client-03").shape == (1,)


def test_cluster_models_are_the_means_over_servers():
    result = sample_result()
    result.models[0].present[result.models[0].pair_cluster == 1] = False
    expected = [result.cluster(name) for name in result.cluster_ids]
    np.testing.assert_array_equal(result.model().clusters, expected)
    assert np.isnan(result.model().clusters[1]).all()
    with pytest.raises(ResultError, match="Cluster children has no model to predict with"):
        result.predict([[0.0] * 4], cluster="children")


def test_a_folder_of_an_older_version_has_its_model_made_from_the_result(tmp_path):
    result = sample_result()
    result.save(tmp_path)
    (tmp_path / "model.pgfl").unlink()
    rows = np.ones((1, 4))
    np.testing.assert_array_equal(
        Model.load(tmp_path).predict(rows, cluster="adults"), result.predict(rows, cluster="adults")
    )


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_damaged_file_is_one_sentence_or_the_same_model(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("models")
    sample_result().model().save(folder / "model.pgfl")
    whole = bytearray((folder / "model.pgfl").read_bytes())
    if data.draw(st.booleans()):
        del whole[data.draw(st.integers(0, len(whole) - 1)) :]
    else:
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    (folder / "model.pgfl").write_bytes(whole)
    with suppress(PgflError):
        model = Model.load(folder / "model.pgfl")
        np.testing.assert_array_equal(model.clusters, sample_result().model().clusters)


def changed(path, **changes):
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["model.json"] = json.dumps(json.loads(parts["model.json"]) | changes).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"format": "zip"}, "damaged or no model file"),
        ({"version": 2}, "written by a newer pgfl"),
        ({"cluster_ids": ["a"]}, "parts do not fit each other"),
        ({"classes": 3}, "parts do not fit each other"),
        ({"dtype": "object"}, "parts do not fit each other"),
        ({"encoding": {"columns": []}}, "damaged or no model file"),
    ],
)
def test_a_foreign_or_contradictory_file_is_refused(tmp_path, changes, sentence):
    sample_result().model().save(tmp_path / "model.pgfl")
    changed(tmp_path / "model.pgfl", **changes)
    with pytest.raises(ResultError, match=sentence):
        Model.load(tmp_path / "model.pgfl")


def with_huge_shape(path, name):
    """Claim 2⁵⁸ numbers in one array of an archive."""
    with zipfile.ZipFile(path) as archive:
        parts = {entry: archive.read(entry) for entry in archive.namelist()}
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (2**29, 2**29)})
    parts[name] = header.getvalue() + bytes(64)
    with zipfile.ZipFile(path, "w") as archive:
        for entry, content in parts.items():
            archive.writestr(entry, content)


def test_a_huge_shape_in_a_strangers_file_is_one_sentence(tmp_path):
    sample_result().save(tmp_path / "run")
    for file in ("models.npz", "model.pgfl"):
        with_huge_shape(tmp_path / "run" / file, "clusters.npy" if file == "model.pgfl" else "clients.npy")
    with pytest.raises(ResultError, match=r"model file .* damaged or no model file \(Unable to allocate"):
        Model.load(tmp_path / "run" / "model.pgfl")
    with pytest.raises(ResultError, match="is damaged: Unable to allocate"):
        Result.load(tmp_path / "run")


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(ResultError, match="does not exist; give a result folder or a model file"):
        Model.load(tmp_path / "absent")
    with pytest.raises(ResultError, match="holds no finished result"):
        Model.load(tmp_path)
    np.savez(tmp_path / "other.npz", a=np.ones(2))
    with pytest.raises(ResultError, match="damaged or no model file"):
        Model.load(tmp_path / "other.npz")


# -------------------------------------------------------------------------------------------------------------- tables


def columns_of(rows):
    ages, sexes, doses = (rows[:, place].tolist() for place in range(3))
    return {"dose": doses, "client": ["x"] * len(rows), "age": ages, "sex": sexes}


def test_a_table_in_any_form_and_order_of_columns_predicts_the_same(tmp_path):
    import pandas
    import polars
    import pyarrow

    rows = raw_rows()
    result = train(encoded_federation(rows), PGFL(), Ridge(), rounds=3)
    columns, expected = columns_of(rows), result.predict(rows)
    frame = polars.DataFrame(columns)
    frame.write_parquet(tmp_path / "rows.parquet")
    frame.write_csv(tmp_path / "rows.csv")
    tables = (columns, frame, pandas.DataFrame(columns), pyarrow.table(columns), tmp_path / "rows.parquet")
    for table in (*tables, tmp_path / "rows.csv"):
        np.testing.assert_array_equal(result.predict(table), expected)


def test_a_missing_or_unknown_column_is_refused_by_name():
    rows = raw_rows()
    result = train(encoded_federation(rows), PGFL(), Ridge(), rounds=3)
    columns = columns_of(rows)
    with pytest.raises(DataError, match="has no column 'age'"):
        result.predict({name: cells for name, cells in columns.items() if name != "age"})
    more = columns | {"weight": [70.0] * len(rows)}
    with pytest.raises(DataError, match="has a column 'weight' that the model's own table lacks"):
        result.predict(more)
    np.testing.assert_array_equal(result.predict(more, ignore=["weight"]), result.predict(rows))
    with pytest.raises(DataError, match="features of this model have no names"):
        sample_result().predict(columns, cluster="adults")


def places(count):
    return {"client": [f"c{k % 4}" for k in range(count)], "server": ["s"] * count, "cluster": ["all"] * count}


@pytest.mark.parametrize("privacy", [None, Privacy(phi0=1e4, zeta=1.0, noise="seeded")], ids=["clean", "private"])
def test_from_a_table_with_an_intercept_to_predictions_and_back_from_disk(tmp_path, privacy):
    """`Federation.read(intercept=True)`, `train`, `predict` once failed; `x_norm` follows from the bounds."""
    rows = raw_rows(400)
    columns = columns_of(rows) | places(400) | {"y": measured(rows)}
    declared = {
        "age": Column(bounds=(20, 80)),
        "dose": Column(bounds=(0, 5)),
        "sex": Column(categories=["f", "m"]),
        "y": Column(bounds=(0, 200)),
    }
    federation = Federation.read(columns, columns=declared, intercept=True)
    result = train(federation, PGFL(rho=0.1), Huber(lam=1e-6), rounds=200, privacy=privacy)
    new = raw_rows(50, seed=1)
    found = result.predict(columns_of(new))
    assert r2(measured(new), found) > 0.98
    np.testing.assert_array_equal(result.predict(new[:, [2, 0, 1]]), found)  # an array, in the table's order
    result.save(tmp_path / "out")
    np.testing.assert_array_equal(Model.load(tmp_path / "out").predict(columns_of(new)), found)
    if privacy is not None:
        assert result.x_norm == federation.encoding.x_norm == 2.0


def test_every_run_has_an_encoding_of_its_own(tmp_path):
    rows = raw_rows()
    columns = columns_of(rows) | places(60) | {"y": measured(rows)}

    def data(run):
        declared = {"age": Column(bounds=(20, 80 + 40 * run)), "sex": Column(categories=["f", "m"])}
        return Federation.read(columns, columns=declared, intercept=True)

    result = train(data, PGFL(rho=0.1), Ridge(lam=1e-6), rounds=100, runs=2)
    result.save(tmp_path / "out")
    again = Result.load(tmp_path / "out")
    for run in range(2):
        assert again.model(run).encoding.columns[1].bounds == (20.0, 80.0 + 40 * run)
        np.testing.assert_array_equal(again.predict(columns, run=run), result.predict(columns, run=run))
        assert r2(measured(rows), result.predict(columns, run=run)) > 0.99
