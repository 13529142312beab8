"""Weights of records, in tables, Python and configs: under privacy up to a public cap."""

from dataclasses import replace

import numpy as np
import pytest

from pgfl import PGFL, Column, FedAvg, Huber, Logistic, Privacy, Ridge, Softmax, train
from pgfl.config import parse
from pgfl.config.building import build_privacy
from pgfl.errors import ConfigError, DataError, PrivacyError, UsageError
from pgfl.federation.federation import ClientData, Federation
from pgfl.objectives import Bounds
from pgfl.objectives.weighted import weighted
from pgfl.planning.facts import facts_of
from pgfl.privacy.sensitivity import release_sensitivity

STEP = PGFL(rho=2.0, client="gradient")


def federation(weights=None, repeat=False, labels=lambda y: y):
    """Four clients of two servers; with `repeat`, rows stand there as often as their weights say."""
    rng, clients = np.random.default_rng(3), {}
    for k in range(4):
        features = 0.4 * rng.standard_normal((8, 3))
        targets = labels(features @ [1.0, -2.0, 0.5] + 0.3 * rng.standard_normal(8))
        own = None if weights is None else np.resize(weights, 8)
        if repeat:
            features, targets, own = (np.repeat(each, own.astype(int), axis=0) for each in (features, targets, own))
            own = None
        clients[f"c{k}"] = ClientData(f"s{k % 2}", "q", features, targets, own)
    return Federation.from_clients(clients, edges=[("s0", "s1")])


def models(made, objective, **options):
    return train(made, options.pop("algorithm", PGFL(rho=1.0)), objective, rounds=options.pop("rounds", 15), **options)


@pytest.mark.parametrize(
    ("objective", "labels"),
    [
        (Ridge(), lambda y: y),
        (Huber(kappa=0.4), lambda y: y),
        (Logistic(), lambda y: (y > 0) * 1.0),
        (Softmax(classes=3), lambda y: np.clip(np.round(y + 1), 0, 2)),
    ],
    ids=["ridge", "huber", "logistic", "softmax"],
)
@pytest.mark.parametrize("client", ["admm", "gradient"])
def test_a_weight_of_two_is_the_same_row_twice(objective, labels, client):
    """Weights add up to twice the records of every client, so λ counts twice as well."""
    weights = [2.0, 1.0, 3.0, 4.0, 1.0, 2.0, 3.0, 0.0]
    twice = federation(weights, repeat=True, labels=labels)
    once = models(federation(weights, labels=labels), replace(objective, lam=0.02), algorithm=PGFL(2.0, client=client))
    same = models(twice, replace(objective, lam=0.01), algorithm=PGFL(1.0, client=client))
    assert once.client("c0") == pytest.approx(same.client("c0"), abs=1e-8)


def test_no_weight_above_the_cap_counts():
    """Two worlds whose weights differ only beyond the cap release the same to the bit."""
    private = Privacy(epsilon=4.0, max_releases=5, x_norm=1.0, weight_cap=2.0, noise="seeded")
    options = {"algorithm": STEP, "privacy": private, "rounds": 5}
    capped, beyond = (
        models(federation([1.0, weight, 0.5]), Huber(), **options).client("c1") for weight in (2.0, 500.0)
    )
    assert (capped == beyond).all()
    assert (capped != models(federation([1.0, 1.9, 0.5]), Huber(), **options).client("c1")).any()


def test_the_noise_grows_with_the_cap():
    bounds = Bounds(x_norm=1.0)
    plain = release_sensitivity(Huber(), STEP, bounds, 10, 2.0)
    assert release_sensitivity(weighted(Huber(), 5.0), STEP, bounds, 10, 2.0) == pytest.approx(5.0 * plain)


def test_a_cap_only_ever_grows():
    """A loss that was made for lighter records must not be calibrated for those."""
    assert weighted(weighted(Huber(), 2.0), 5.0).cap == 5.0
    assert weighted(weighted(Huber(), 5.0), 2.0).cap == 5.0


def test_steps_that_weights_make_too_long_are_refused():
    """A step of 0.4 is steady for records that weigh 1, and not for those of 5: Δ would not hold."""
    steps, bounds = FedAvg(0.4, 4), Bounds(x_norm=1.0)
    assert release_sensitivity(Huber(), steps, bounds, 10, 1.0) > 0
    with pytest.raises(PrivacyError, match="step"):
        release_sensitivity(weighted(Huber(), 5.0), steps, bounds, 10, 1.0)


def test_private_weights_need_a_cap():
    with pytest.raises(PrivacyError, match=r"privacy\.weight_cap is missing"):
        models(federation([1.0, 2.0]), Huber(), algorithm=STEP, privacy=Privacy(epsilon=4.0, x_norm=1.0))


@pytest.mark.parametrize("trust", ["local", "masked", "site"])
def test_every_trust_level_calibrates_with_the_cap(trust):
    numbers = {} if trust == "local" else {"contributors": 2} | ({"colluders": 0} if trust == "masked" else {})
    sigmas = []
    for cap in (1.0, 3.0):
        private = Privacy(
            epsilon=4.0, x_norm=1.0, max_releases=1, weight_cap=cap, noise="seeded", trust=trust, **numbers
        )
        made = federation([0.0, 1e-9])  # hardly any data: what moves the models is noise
        sigmas.append(models(made, Huber(), algorithm=STEP, privacy=private, rounds=1).models[0].servers)
    assert sigmas[1] == pytest.approx(3.0 * sigmas[0], rel=1e-3)


@pytest.mark.parametrize(
    ("weights", "complaint"),
    [([-1.0], "has the weight -1"), ([np.nan], "has the weight nan"), ([0.0], "All weights are 0")],
)
def test_impossible_weights_are_refused(weights, complaint):
    with pytest.raises(DataError, match=complaint):
        federation(weights)


def test_parts_and_copies_on_disk_keep_weights(tmp_path):
    made = federation([1.0, 2.0, 0.5])
    made.save(tmp_path / "saved")
    assert (Federation.open(tmp_path / "saved").weights == made.weights).all()
    assert (made.part([1]).weights == np.concatenate([made.weights[8:16], made.weights[24:]])).all()


TABLE = {
    "client": ["a", "a", "b", "b", "b"],
    "w": [1.0, 2.0, 0.0, 4.0, 1.0],
    "x": [0.1, 0.4, -0.3, 0.2, 0.9],
    "y": ["no", "yes", "no", "no", "yes"],
}
COLUMNS = {"x": Column(bounds=(-1, 1)), "y": Column(labels=["no", "yes"])}


def test_a_table_has_a_column_of_weights_and_weights_of_labels():
    made = Federation.read(TABLE, columns=COLUMNS, weight="w", class_weight={"yes": 10.0})
    assert made.weights.tolist() == [1.0, 20.0, 0.0, 4.0, 10.0]
    assert made.encoding.feature_names == ("x",)


@pytest.mark.parametrize(
    ("changes", "options", "error", "complaint"),
    [
        ({"w": [1.0, -2.0, 0.0, 4.0, 1.0]}, {"weight": "w"}, DataError, "holds -2; weights are numbers from 0 up"),
        ({"w": [1.0, None, 0.0, 4.0, 1.0]}, {"weight": "w"}, DataError, "is empty; weights are"),
        ({}, {"class_weight": {"yse": 2.0}}, ConfigError, "names the label 'yse', which the target does not have"),
        ({}, {"class_weight": {"yes": -2.0}}, ConfigError, "weights are numbers from 0 up"),
    ],
)
def test_mistakes_in_a_table_are_one_sentence(changes, options, error, complaint):
    with pytest.raises(error, match=complaint) as found:
        Federation.read(TABLE | changes, columns=COLUMNS, **options)
    assert "\n" not in str(found.value)


def config(**data):
    section = {"kind": "table", "table": "rows.csv", "columns": {"y": {"labels": ["no", "yes"]}}} | data
    return parse({"data": section, "objective": {"kind": "logistic"}, "privacy": {"epsilon": 4.0, "x_norm": 1.0}})


def test_weights_of_labels_are_public_and_those_of_rows_are_not():
    assert build_privacy(config(class_weight={"yes": 9.0})).weight_cap == 9.0
    assert build_privacy(config(class_weight={"yes": 0.1})).weight_cap == 1.0
    assert build_privacy(config(class_weight={"yes": 9.0}, weight="w")).weight_cap is None


def test_a_plan_and_discovery_refuse_weights_and_a_device_takes_its_cap_from_its_training():
    with pytest.raises(ConfigError, match="A plan takes all records to count alike"):
        facts_of(config(weight="w"))
    with pytest.raises(PrivacyError, match="A device's cap on weights is its training's"):
        Privacy(epsilon=4.0, max_releases=5, x_norm=1.0, weight_cap=2.0).policy()
    with pytest.raises(UsageError, match="Clusters are found from records that count alike"):
        models(federation([1.0, 2.0]), Ridge(), discover=True)
