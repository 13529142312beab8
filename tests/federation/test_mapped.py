"""A row map is part of a model: training, prediction, continuation, storage and exports all do the same to a row."""

import json
import tomllib

import joblib
import numpy as np
import onnxruntime
import polars
import pytest

import pgfl
from pgfl import Column, ConfigError, DataError, Federation, Huber, Logistic, Model, Privacy, Ridge, train
from pgfl.config import parse, to_toml
from pgfl.federation.digits import embedded
from pgfl.federation.encoding import RowEncoding
from pgfl.maps import Fourier, Group
from pgfl.maps.hats import heights, largest_square, means

DECLARED = {
    "age": Column(bounds=(20, 80), knots=5),
    "income": Column(bounds=(0, 10), missing="indicator"),
    "sex": Column(categories=["f", "m"]),
    "y": Column(bounds=(-3, 3)),
}


def table(rows=240, seed=2):
    """A target that is a curve of age: no linear model follows it."""
    rng = np.random.default_rng(seed)
    age, income, sex = rng.uniform(20, 80, rows), rng.uniform(0, 10, rows), rng.choice(["f", "m"], rows)
    target = np.abs(age - 50) / 15 - 1 + 0.1 * income * (sex == "f") + 0.05 * rng.standard_normal(rows)
    cells = [None if missing else value for value, missing in zip(income, rng.random(rows) < 0.1, strict=True)]
    places = {"client": [f"c{n % 6}" for n in range(rows)], "server": [f"s{n % 2}" for n in range(rows)]}
    return {**places, "age": age, "income": cells, "sex": sex, "y": target}


def read(columns=DECLARED, **options):
    return Federation.read(table(), columns=columns, test=0.25, graph="line", intercept=True, **options)


def score(result):
    return result.history["r2"][-1]


def trained(federation, **options):
    return train(federation, pgfl.PGFL(rho=1.0), Ridge(lam=1e-4), rounds=60, metrics=("r2",), **options)


def test_knots_let_a_linear_model_follow_a_curve():
    straight = {**DECLARED, "age": Column(bounds=(20, 80))}
    assert score(trained(read(straight))) < 0.3 < 0.9 < score(trained(read()))


def test_hats_are_named_and_their_norm_follows_from_the_declaration():
    federation = read()
    assert federation.encoding.feature_names == (
        *(f"age~{n}" for n in range(1, 6)), "income", "income=missing", "sex=f", "sex=m", "intercept"
    )  # fmt: skip
    longest = np.linalg.norm(federation.features, axis=1).max()
    assert longest <= federation.encoding.x_norm == pytest.approx(np.sqrt(largest_square(5) + 1 + 1 + 1))
    everywhere = read(map="hats").encoding
    assert everywhere.feature_names[5:11] == tuple(f"income~{n}" for n in range(1, 7))
    fine = heights(np.linspace(-1, 1, 20_001), 7)
    assert fine.mean(axis=0) == pytest.approx(0.0, abs=1e-4) and fine.sum(axis=1) == pytest.approx(0.0, abs=1e-12)
    assert (fine**2).sum(axis=1).max() == pytest.approx(largest_square(7)) and means(7).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("source", [None, ["hats", "products"], {"kind": "fourier", "features": 32, "seed": 5}])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_models_do_to_a_row_what_training_did(source, dtype, tmp_path):
    federation = read(map=source, dtype=dtype)
    privacy = Privacy(epsilon=8.0, delta=1e-5, max_releases=5, x_norm=1.2, noise="seeded")
    result = train(
        federation, pgfl.PGFL(rho=5.0, client="gradient"), Huber(kappa=1.0), rounds=5, privacy=privacy, dtype=dtype
    )
    model = result.model()
    raw = {name: values for name, values in table().items() if name != "y"}
    seen = privacy.bounded(Federation.read(table(), columns=DECLARED, intercept=True, map=source, dtype=dtype))
    order = np.concatenate([np.flatnonzero(np.array(raw["client"]) == name) for name in federation.client_ids])
    assert np.array_equal(model.encode(raw)[order], seen.features)
    model.save(tmp_path / "model.pgfl")
    again = Model.load(tmp_path / "model.pgfl")
    assert again.encoding == model.encoding and np.array_equal(again.predict(raw), model.predict(raw))
    federation.save(tmp_path / "federation")
    stored = Federation.open(tmp_path / "federation")
    assert stored.encoding == federation.encoding and np.array_equal(stored.features, federation.features)


@pytest.mark.parametrize("source", [None, ["hats", "products"], {"kind": "fourier", "features": 32}])
def test_exports_predict_what_the_model_predicts(source, tmp_path):
    model = trained(read(map=source)).model()
    raw = {name: table()[name] for name in ("age", "income", "sex")}
    expected = model.predict(raw)
    from pgfl.results.export import export

    export(model, tmp_path / "m.onnx", "onnx")
    inputs = {
        "age": np.array(raw["age"])[:, None],
        "income": np.array([np.nan if cell is None else cell for cell in raw["income"]])[:, None],
        "sex": np.array(raw["sex"], dtype=object)[:, None],
    }
    session = onnxruntime.InferenceSession((tmp_path / "m.onnx").read_bytes(), providers=["CPUExecutionProvider"])
    assert session.run(None, inputs)[0] == pytest.approx(expected, abs=1e-9)
    export(model, tmp_path / "m.joblib", "sklearn")
    pipeline = joblib.load(tmp_path / "m.joblib")
    assert pipeline.predict(polars.DataFrame(raw)) == pytest.approx(expected, abs=1e-9)


def test_arrays_take_maps(tmp_path):
    plain = pgfl.synthetic_regression(servers=2, clients_per_server=3, graph="line", dimension=4, seed=1)
    mapped = plain.mapped({"kind": "hats", "knots": 4}, bounds=(-3.0, 3.0), intercept=True)
    assert mapped.dimension == 17 and mapped.generated and mapped.encoding.x_norm > 0
    model = trained(mapped).model()
    assert np.array_equal(model.encode(plain.features), mapped.features)
    with pytest.raises(DataError, match="encoded already"):
        mapped.mapped("hats")
    from pgfl.results.export import export

    export(model, tmp_path / "m.onnx", "onnx", cluster=model.cluster_ids[0])
    session = onnxruntime.InferenceSession((tmp_path / "m.onnx").read_bytes(), providers=["CPUExecutionProvider"])
    expected = model.predict(plain.features, cluster=model.cluster_ids[0])
    assert session.run(None, {"feature": plain.features})[0] == pytest.approx(expected, abs=1e-9)


def test_digits_take_maps():
    federation = pgfl.mnist_federation(
        "pairs", servers=2, clients_per_server=3, graph="line", map="gradients", intercept=True
    )
    assert federation.dimension == 289 and federation.encoding.x_norm == pytest.approx(2**0.5)
    model = train(federation, pgfl.PGFL(rho=0.1), Logistic(), rounds=3).model()
    images = np.concatenate([embedded().test[1], embedded().test[8]])
    test = federation.tests["1|8"]
    assert np.array_equal(model.encode(images), test.features)
    assert np.mean(model.predict(images, cluster="1|8") == test.targets) > 0.9


def test_a_private_run_needs_no_other_bound_than_the_map():
    federation = pgfl.mnist_federation("pairs", servers=2, clients_per_server=3, graph="line", map="gradients")
    result = train(
        federation,
        pgfl.PGFL(client="gradient", rho=5.0),
        Logistic(),
        rounds=2,
        privacy=Privacy(epsilon=2.0, delta=1e-5, max_releases=2, noise="seeded"),
    )
    assert result.x_norm == 1.0
    unbounded = Federation.read({"client": ["a", "b"], "x": [1.0, 2.0], "y": [0.0, 1.0]}, map={"kind": "fourier"})
    assert Privacy(epsilon=1.0, delta=1e-5).completed(unbounded.encoding).x_norm == pytest.approx(1.0)


def test_models_of_another_map_are_not_continued():
    earlier = trained(read(map="hats"))
    with pytest.raises(ConfigError, match="mapped by no map, in the earlier run by hats"):
        trained(read(), start=earlier)
    with pytest.raises(ConfigError, match="Column 'age' is not encoded as in the earlier run"):
        trained(read({**DECLARED, "age": Column(bounds=(20, 80), knots=6)}, map="hats"), start=earlier)
    assert earlier.declared_columns["age"].knots == 5


def test_a_config_names_a_map_and_keeps_it(tmp_path):
    import polars

    polars.DataFrame(table(), strict=False).write_csv(tmp_path / "rows.csv")
    data = {"kind": "table", "table": "rows.csv", "columns": {"age": {"bounds": [20, 80], "knots": 3}}}
    data["columns"] |= {"sex": {"categories": ["f", "m"]}, "income": {"bounds": [0, 10], "missing": "indicator"}}
    for stated in ("hats", {"kind": "hats", "knots": 4}, ["hats", {"kind": "fourier", "features": 8}]):
        config = parse({"data": {**data, "map": stated}}, tmp_path)
        again = parse(tomllib.loads(to_toml(config)), tmp_path)
        assert again == config
        federation = config.federations()(0, None)
        assert (
            config.data.expected_extent().dimension == federation.dimension == config.data.public_encoding().dimension
        )
    with pytest.raises(ConfigError, match=r"Unknown key `data.map.knotz` \(did you mean knots\?\)"):
        parse({"data": {**data, "map": {"kind": "hats", "knotz": 4}}}, tmp_path)
    with pytest.raises(ConfigError, match=r"`data.columns.y.knots` lie between bounds"):
        parse({"data": {**data, "columns": {"y": {"knots": 4}}}}, tmp_path)


def test_an_encoding_without_maps_is_read_as_before():
    encoding = read(map="hats").encoding
    description = json.loads(json.dumps(encoding.to_json()))
    assert RowEncoding.from_json(description) == encoding
    del description["maps"]
    assert RowEncoding.from_json(description).maps == ()


def test_estimators_take_maps():
    from pgfl.sklearn import PGFLRegressor

    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (300, 2))
    y = np.abs(X[:, 0]) + 0.5 * X[:, 1]
    straight, curved = PGFLRegressor().fit(X, y), PGFLRegressor(map={"kind": "hats", "knots": 9}).fit(X, y)
    assert straight.score(X, y) < 0.7 < 0.98 < curved.score(X, y)
    assert curved.coef_.shape == (18,)


def test_numbers_outside_of_the_bounds_count_as_the_ends():
    assert np.array_equal(heights(np.array([-9.0, 9.0]), 4), heights(np.array([-1.0, 1.0]), 4))


def test_a_seed_is_kept():
    rows = np.ones((1, 1))
    groups = (Group("x", ("x",), 1.0),)
    one, other = (Fourier(features=8, seed=seed) for seed in (1, 2))
    assert not np.array_equal(one.apply(rows, groups), other.apply(rows, groups))
    assert read(map=[{"kind": "fourier", "seed": 9}]).encoding.maps[0].seed == 9
