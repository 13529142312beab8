"""From a real table to a model, as a user goes: describe, init, run, predict; beside scikit-learn on the same rows."""

import csv
import json
import re
import runpy
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import r2_score, roc_auc_score

from pgfl import Federation
from pgfl.config import load_config
from tests.command_line import run

EXAMPLES = Path(__file__).parents[1] / "examples" / "tables"
TARGETS = {"diabetes": "progression", "breast_cancer": "diagnosis", "fair": "affair"}
MEASURE = {"diabetes": "r2", "breast_cancer": "auc", "fair": "auc"}
TABLES = [pytest.param(name, marks=pytest.mark.proof) if name == "fair" else name for name in TARGETS]


@pytest.fixture(scope="module", params=TABLES)
def walked(request, tmp_path_factory):
    """The folder in which a user described a table, made a config of it and ran that."""
    name, folder = request.param, tmp_path_factory.mktemp(request.param)
    table = folder / f"{name}.csv"
    runpy.run_path(str(EXAMPLES / "make_tables.py"))[name]().to_csv(table, index=False)
    described = run("describe", table, "--target", TARGETS[name])
    assert described.code == 0 and TARGETS[name] in described.out
    assert run("init", table, "--target", TARGETS[name], "--out", folder / "first.toml").code == 0
    ran = run("run", folder / "first.toml", "--out", folder / "result")
    assert ran.code == 0 and "Verdict: converged" in ran.out
    return name, folder


@pytest.mark.proof
def test_a_cluster_that_learns_alone_is_as_good_as_one_model_of_all_its_rows(walked):
    name, folder = walked
    ran = run("run", folder / "first.toml", "--set", "algorithm.tau=0", "--out", folder / "apart")
    assert ran.code == 0 and "Verdict: converged" in ran.out
    for cluster, value in measured(name, folder / "apart").items():
        assert abs(value - centralised(name, folder, cluster)) < 0.01, cluster
        assert value > centralised(name, folder, cluster, at_its_own_defaults=True) - 0.01, cluster


@pytest.mark.proof
def test_at_the_defaults_clusters_that_learn_from_each_other_are_as_good_on_average(walked):
    name, folder = walked
    gains = [
        value - max(centralised(name, folder, cluster), centralised(name, folder, cluster, at_its_own_defaults=True))
        for cluster, value in measured(name, folder / "result").items()
    ]
    assert np.mean(gains) > -0.01


def measured(name, result):
    found = json.loads((result / "summary.json").read_text("utf-8"))
    return {cluster: figure["value"] for cluster, figure in found["measures"][MEASURE[name]]["clusters"].items()}


@pytest.mark.proof
def test_predictions_come_in_the_order_of_the_rows_and_equal_the_model(walked):
    name, folder = walked
    table, out = folder / f"{name}.csv", folder / "predictions.csv"
    assert run("predict", folder / "result", table, "--out", out).code == 0
    before, after = pl.read_csv(table), pl.read_csv(out)
    assert after.columns == [*before.columns, "prediction"] and after.drop("prediction").equals(before)
    shuffled = folder / "shuffled.csv"
    before.select(sorted(before.columns)).write_csv(shuffled)
    again = folder / "again.csv"
    assert run("predict", folder / "result", shuffled, "--out", again).code == 0
    assert column(again, "prediction") == column(out, "prediction")
    target = column(table, TARGETS[name])
    if name == "diabetes":
        assert r2_score(np.array(target, float), np.array(column(out, "prediction"), float)) > 0.4
    else:
        assert np.mean(np.array(target) == np.array(column(out, "prediction"))) > 0.7


def column(path, name):
    with open(path, encoding="utf-8", newline="") as stream:
        return [row[name] for row in csv.DictReader(stream)]


def centralised(name, folder, cluster, at_its_own_defaults=False):
    """The same measure of scikit-learn's model of all rows of a cluster, in one place, with the same regularisation.

    Or as scikit-learn is without any settings: `Ridge()` and `LogisticRegression()`.
    """
    data = load_config(folder / "first.toml").data
    federation = Federation.read(
        folder / f"{name}.csv", target=data.target, columns=data.columns, test=data.test, intercept=True, seed=0
    )
    q = federation.cluster_ids.index(cluster)
    mine = np.repeat(federation.client_cluster == q, federation.counts)
    rows, targets, test = federation.features[mine], federation.targets[mine], federation.tests[cluster]
    if at_its_own_defaults:
        rows, seen = rows[:, :-1], test.features[:, :-1]  # it has an intercept of its own
        if name == "diabetes":
            return r2_score(test.targets, Ridge().fit(rows, targets).predict(seen))
        return roc_auc_score(test.targets, LogisticRegression(max_iter=1000).fit(rows, targets).decision_function(seen))
    clients = np.flatnonzero(federation.client_cluster == q)
    penalty = 0.01 * np.mean(1.0 / federation.server_sizes[federation.client_server[clients]])
    if name == "diabetes":
        model = Ridge(alpha=penalty * len(rows), fit_intercept=False).fit(rows, targets)
        return r2_score(test.targets, model.predict(test.features))
    model = LogisticRegression(C=1.0 / (2.0 * penalty * len(rows)), fit_intercept=False, max_iter=5000, tol=1e-8)
    return roc_auc_score(test.targets, model.fit(rows, targets).decision_function(test.features))


@pytest.mark.proof
@pytest.mark.parametrize("name", TABLES)
def test_with_privacy_figures_come_with_the_verdict_that_they_deserve(name):
    """Two of the nine seeds of examples/tables/compare.py are within the ends that its page prints.

    Verdicts agree with held-out rows, and are among those that it prints.
    """
    printed = {
        epsilon: (float(least), float(most), verdicts)
        for table, epsilon, least, most, verdicts in re.findall(
            r"^\| (\w+) \| \w+ \| ([\d.]+) \| \S+ \((\S+) to (\S+)\) \| (.*) \|$",
            (EXAMPLES / "README.md").read_text("utf-8"),
            re.MULTILINE,
        )
        if table == name
    }
    assert list(printed) == ["8", "4", "1"]
    found = runpy.run_path(str(EXAMPLES / "compare.py"))["compared"](name, epsilons=(8.0, 4.0, 1.0), seeds=(0, 1))
    for row in found:
        least, most, verdicts = printed[f"{row.epsilon:g}"]
        assert least - 0.002 <= row.least <= row.most <= most + 0.002
        assert all(kind in verdicts for kind in row.verdicts)
