"""Costs of mistakes that a config states: saved with the model, and the labels of every way to predict follow them."""

import io

import joblib
import numpy as np
import onnxruntime
import pandas
import polars as pl
import pytest

from pgfl import Model
from pgfl.results.export import choose
from pgfl.results.export_onnx import write
from pgfl.results.export_sklearn import pipeline
from tests.command_line import refused, run

CONFIG = """
rounds = 12
[data]
kind = "table"
table = "ill.csv"
target = "state"
test = 0.5
intercept = true
costs = [9, 1]
[data.columns]
age = {{ bounds = [20, 80] }}
state = {{ labels = {labels} }}
[objective]
kind = "{objective}"
"""


def rows(count=600, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.uniform(20.0, 80.0, count)
    ill = rng.random(count) < 1.0 / (1.0 + np.exp(-(age - 70.0) / 8.0))
    clusters = rng.choice(["a", "b"], count)
    return pl.DataFrame({"client": clusters, "cluster": clusters, "age": age, "state": np.where(ill, "ill", "fine")})


@pytest.fixture(scope="module", params=['["fine", "ill"]', '["ill", "fine"]'], ids=["in order", "turned"])
def folder(request, tmp_path_factory):
    place = tmp_path_factory.mktemp("costs")
    rows().write_csv(place / "ill.csv")
    (place / "own.toml").write_text(CONFIG.format(labels=request.param, objective="logistic"))
    ran = run("run", place / "own.toml", "--out", place / "out")
    assert ran.code == 0, ran.err
    return place / "out"


def test_every_way_to_predict_takes_the_label_that_costs_less(folder, tmp_path):
    new = rows(300, seed=1).drop("state")
    rows(300, seed=1).drop("state").write_csv(tmp_path / "new.csv")
    model = Model.load(folder / "model.pgfl")
    assert model.costs == (9.0, 1.0)
    second = model.label_names[1]
    said = model.predict(new)
    corrected = model.predict_proba(new, calibrated=True)[:, 1]
    assert ((said == second) == (corrected > 0.1)).all()
    assert (said != model.predict(new, costs=(1, 1))).sum() > 20
    assert run("predict", folder, tmp_path / "new.csv", "--out", tmp_path / "said.csv").code == 0
    assert pl.read_csv(tmp_path / "said.csv")["prediction"].to_list() == said.tolist()
    for name in model.cluster_ids:
        mine, chosen = new.filter(pl.col("cluster") == name), choose(model, cluster=name)
        ages = mine["age"].to_numpy()
        session = onnxruntime.InferenceSession(write(chosen))
        assert session.run(["label"], {"age": ages[:, None]})[0].tolist() == said[new["cluster"] == name].tolist()
        stream = io.BytesIO()
        joblib.dump(pipeline(chosen), stream)
        stream.seek(0)
        fitted = joblib.load(stream)
        assert fitted.predict(pandas.DataFrame({"age": ages})).tolist() == said[new["cluster"] == name].tolist()


def test_the_model_card_states_the_costs_and_the_threshold(folder):
    card = (folder / "model_card.md").read_text("utf-8")
    second = Model.load(folder).label_names[1]
    assert "a miss costs 9 and a false alarm 1, as the config states: " in card
    assert f": `{second}` from a corrected probability of 0.1 on" in card


def test_init_writes_costs_and_only_for_two_labels(tmp_path):
    rows().write_csv(tmp_path / "ill.csv")
    ran = run("init", tmp_path / "ill.csv", "--target", "state", "--costs", "9:1", "--out", tmp_path / "own.toml")
    assert ran.code == 0, ran.err
    assert "costs = [9.0, 1.0]" in (tmp_path / "own.toml").read_text()
    said = refused("init", tmp_path / "ill.csv", "--target", "age", "--costs", "9:1", "--out", tmp_path / "other.toml")
    assert "--costs are for two labels" in said
    (tmp_path / "ridge.toml").write_text(CONFIG.format(labels='["fine", "ill"]', objective="softmax"))
    assert "`data.costs` are those of a miss and of a false alarm" in refused("run", tmp_path / "ridge.toml")
