"""Held-out rows: whose model is measured on which rows, and how clients and clusters are averaged."""

import numpy as np
import pytest
from sklearn import metrics as theirs

from pgfl import PGFL, ClientData, FedAvg, Federation, Huber, Logistic, Privacy, Ridge, TestSet, train
from pgfl.errors import ConfigError
from pgfl.federation.columns import NumberColumn, TargetColumn
from pgfl.federation.encoding import RowEncoding
from pgfl.metrics import MEASURES
from pgfl.simulate import predictions as prediction_points

SLOPES = {"east": [1.0, -1.0, 0.5], "west": [0.5, 1.0, -0.2]}


def federation(labels=False, tested=("east", "west"), by_client=True, clients=6, rows=20, seed=1):
    rng = np.random.default_rng(seed)
    data, tests = {}, {}

    def sample(cluster, count):
        features = rng.normal(size=(count, 3))
        targets = features @ SLOPES[cluster] + 0.3 * rng.normal(size=count)
        return features, (targets > 0).astype(float) if labels else targets

    for number in range(clients):
        cluster = ("east", "west")[number % 2]
        data[f"c{number}"] = ClientData(f"s{number % 3}", cluster, *sample(cluster, 15))
    for place, cluster in enumerate(tested):
        owner = np.repeat([k for k in range(clients) if k % 2 == place], rows)
        tests[cluster] = TestSet(*sample(cluster, len(owner)), owner if by_client else None)
    return Federation.from_clients(data, [("s0", "s1"), ("s1", "s2")], tests=tests)


def own_models(result):
    return {name: result.client(name) for name in result.client_ids}


def test_the_figures_are_means_over_clients_of_their_own_models():
    made = federation()
    result = train(made, PGFL(rho=2.0), Ridge(), rounds=5)
    per_cluster = {}
    for cluster, test in made.tests.items():
        scores = [
            theirs.r2_score(test.targets, test.features @ model)
            for name, model in own_models(result).items()
            if made.cluster_ids[made.client_cluster[made.client_index(name)]] == cluster
        ]
        per_cluster[cluster] = np.mean(scores)
        assert result.history[f"r2_{cluster}"][-1] == pytest.approx(per_cluster[cluster])
    assert result.history["r2"][-1] == pytest.approx(np.mean(list(per_cluster.values())))
    measured = {each.name: each for each in result.measures}
    assert list(measured) == ["r2", "mae", "rmse"]
    assert measured["r2"].whole.value == pytest.approx(result.history["r2"][-1])
    assert {q: figure.value for q, figure in measured["r2"].clusters.items()} == pytest.approx(per_cluster)


@pytest.mark.parametrize(("block_bytes", "models_together"), [(3 * 8 * 7, 64), (1 << 19, 1), (1, 2)])
def test_no_figure_depends_on_how_many_rows_and_servers_are_multiplied_together(
    monkeypatch, block_bytes, models_together
):
    whole = train(federation(labels=True), PGFL(rho=2.0), Logistic(), rounds=3)
    monkeypatch.setattr(prediction_points, "BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(prediction_points, "MODELS_TOGETHER", models_together)
    parts = train(federation(labels=True), PGFL(rho=2.0), Logistic(), rounds=3)
    for name, values in whole.history.items():
        np.testing.assert_allclose(parts.history[name], values, rtol=1e-12)
    for name in ("accuracy", "auc", "log_loss"):
        np.testing.assert_allclose(parts.client_measures[name], whole.client_measures[name], rtol=1e-12)


def test_clients_are_compared_on_their_own_rows():
    made = federation()
    result = train(made, PGFL(rho=2.0), Ridge(), rounds=5)
    errors = {}
    for test in made.tests.values():
        for client in np.unique(test.clients):
            rows, name = test.clients == client, made.client_id(client)
            errors[name] = np.abs(test.targets[rows] - test.features[rows] @ result.client(name)).mean()
    (mae,) = (each for each in result.measures if each.name == "mae")
    assert mae.worst_client == max(errors, key=errors.get)
    assert mae.worst.value == pytest.approx(max(errors.values()))
    assert mae.median.value == pytest.approx(np.median(list(errors.values())))
    shown = dict(zip(result.client_measures["client"].tolist(), result.client_measures["mae"].tolist(), strict=True))
    assert shown == pytest.approx(errors)
    (r2,) = (each for each in result.measures if each.name == "r2")
    assert r2.worst.value == min(result.client_measures["r2"])
    own = {
        made.client_id(client): np.sum(test.clients == client)
        for test in made.tests.values()
        for client in test.clients
    }
    assert dict(zip(result.client_ids, result.client_measures["rows"].tolist(), strict=True)) == own


def test_a_model_that_is_no_better_than_the_mean_is_not_passed_over():
    made = federation()
    flipped = {q: TestSet(test.features, -test.targets, test.clients) for q, test in made.tests.items()}
    good, bad = (train(each, PGFL(rho=2.0), Ridge(), rounds=30) for each in (made, made.replace(tests=flipped)))
    assert good.verdict.kind != "not useful"
    assert bad.curve("r2")[0, -1] < 0.0
    assert bad.verdict.kind == "not useful"
    assert "worse than a trivial prediction" in bad.summary()["verdict"]["sentence"]
    few = made.tests[made.cluster_ids[0]].clients
    assert any("held-out rows in the median" in note for note in good.notes) == (np.median(np.bincount(few)) < 10)


@pytest.mark.parametrize("by_client", [True, False])
def test_one_tested_cluster_of_two_is_not_diluted(by_client):
    whole, part = (
        train(federation(labels=True, tested=tested, by_client=by_client), PGFL(rho=1.0), Logistic(), rounds=20)
        for tested in (("east", "west"), ("east",))
    )
    for name in ("accuracy", "auc", "log_loss"):
        assert part.history[name][-1] == pytest.approx(whole.history[f"{name}_east"][-1], rel=1e-12)
        assert f"{name}_west" not in part.metrics
    (accuracy, *_) = part.measures
    assert set(accuracy.clusters) == {"east"}
    assert accuracy.whole.value > 0.8 > accuracy.whole.baseline


def test_no_accuracy_of_a_regression_and_no_r2_of_a_classification():
    assert not {"accuracy", "auc", "log_loss"} & set(train(federation(), PGFL(), Huber(), rounds=2).metrics)
    found = train(federation(labels=True), PGFL(), Logistic(), rounds=2)
    assert not {"r2", "mae", "rmse"} & set(found.metrics)
    with pytest.raises(ConfigError, match="accuracy measures classification"):
        train(federation(), PGFL(), Ridge(), rounds=2, metrics=["accuracy"])


def test_each_cluster_has_the_measures_of_its_own_task():
    mixed = federation(labels=True)
    result = train(mixed, PGFL(tau=0.0), {"east": Ridge(), "west": Logistic()}, rounds=3)
    tables = {each.name: set(each.clusters) for each in result.measures}
    assert tables == {name: {"east"} if name in ("r2", "mae", "rmse") else {"west"} for name in MEASURES}


def test_errors_are_in_the_unit_of_the_table():
    made = federation()
    columns = tuple(NumberColumn(name) for name in "abc")
    encoding = RowEncoding(columns, TargetColumn("y", bounds=(0.0, 200.0)), intercept=False)
    plain, scaled = (train(each, PGFL(), Ridge(), rounds=3) for each in (made, made.replace(encoding=encoding)))
    for name, factor in (("mae", 100.0), ("rmse", 100.0), ("r2", 1.0)):
        np.testing.assert_allclose(scaled.history[name], factor * plain.history[name], rtol=1e-12)
    assert scaled.measures[1].whole.baseline == pytest.approx(100.0 * plain.measures[1].whole.baseline)
    assert scaled.feature_names == ("a", "b", "c")
    np.testing.assert_allclose(scaled.held_out["observed"], 100.0 + 100.0 * plain.held_out["observed"])


def test_one_class_of_held_out_rows_has_no_auc():
    made = federation(labels=True)
    tests = {
        name: TestSet(test.features, np.ones_like(test.targets), test.clients) for name, test in made.tests.items()
    }
    result = train(made.replace(tests=tests), PGFL(), Logistic(), rounds=2)
    assert "auc" not in result.metrics
    assert [each.name for each in result.measures] == ["accuracy", "log_loss"]


def private(x_norm):
    return Privacy(epsilon=50.0, max_releases=5, index="release", x_norm=x_norm, noise="seeded")


def test_with_privacy_the_models_that_clients_receive_are_measured():
    made = federation()
    result = train(made, PGFL(rho=2.0), Huber(), rounds=5, privacy=private(x_norm=100.0))
    errors = []
    for client in made.client_ids:
        index = made.client_index(client)
        cluster = made.cluster_ids[made.client_cluster[index]]
        model, test = result.server(made.server_ids[made.client_server[index]], cluster), made.tests[cluster]
        errors.append(np.abs(test.targets - test.features @ model).mean())
    assert result.history["mae"][-1] == pytest.approx(np.mean(errors))
    assert result.client_measures is None
    assert all(each.worst_client is None for each in result.measures)
    assert (result.held_out["rows"] >= 20).all()
    assert result.clean_history["mae"][-1] != pytest.approx(np.mean(errors))


def test_held_out_rows_are_clipped_as_training_rows_are():
    made = federation()
    long = {name: TestSet(10.0 * test.features, test.targets, test.clients) for name, test in made.tests.items()}
    result = train(made.replace(tests=long), PGFL(), Huber(), rounds=5, privacy=private(x_norm=2.0))
    test = long["east"]
    clipped = test.features * np.minimum(1.0, 2.0 / np.linalg.norm(test.features, axis=1))[:, None]
    found = [np.abs(test.targets - clipped @ result.server(f"s{k % 3}", "east")).mean() for k in (0, 2, 4)]
    assert result.history["mae_east"][-1] == pytest.approx(np.mean(found), rel=1e-6)


def test_fedavg_measures_one_model_for_all_clusters():
    made = federation()
    result = train(made, FedAvg(step_size=0.05), Ridge(), rounds=30)
    assert np.isfinite(result.history["r2_east"]).all()
    assert result.history["r2"][-1] > result.history["r2"][0]


def test_rows_that_a_part_of_the_federation_lacks_belong_to_nobody_there():
    made = federation()
    part = made.part([0, 2])
    for cluster, test in part.tests.items():
        whole = made.tests[cluster].clients
        names = [part.client_id(k) if k >= 0 else None for k in test.clients.tolist()]
        expected = [made.client_id(k) if made.client_server[k] != 1 else None for k in whole.tolist()]
        assert names == expected


def test_no_figure_depends_on_the_batch():
    made = federation(labels=True)
    alone = train(made, PGFL(), Logistic(), rounds=4, participants=1)
    batch = train(made, PGFL(), Logistic(), rounds=4, participants=1, runs=3)
    for name, values in alone.history.items():
        np.testing.assert_array_equal(batch.history[name][: len(values)], values)
