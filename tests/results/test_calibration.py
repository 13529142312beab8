"""Probabilities beside what is observed, and the label that costs least."""

import json

import numpy as np
import pytest
from scipy.special import expit

from pgfl import PGFL, Huber, Logistic, Model, Privacy, train
from pgfl.errors import ResultError, UsageError
from pgfl.metrics import log_loss
from pgfl.results.calibration import Calibration, calibrate, least_margin, line
from pgfl.simulate.alternatives import calibration
from tests.results.test_alternatives import compared, federation


@pytest.fixture(scope="module")
def weighed():
    """Models whose probabilities are far too low, because the other label counts eight times."""
    made = federation([1.0, -1.0], rows=2400, labels=2)
    return made, compared(made.with_class_weights({0: 8.0}), Logistic(), rounds=40)


def of_cluster(made, name):
    test = made.tests[name]
    return test.features, test.targets


def test_a_calibration_mends_probabilities_that_class_weights_moved(weighed):
    made, result = weighed
    model, name = result.model(), result.cluster_ids[0]
    rows, labels = of_cluster(made, name)
    plain, mended = (
        model.predict_proba(rows, cluster=name, encoded=True, calibrated=calibrated)[:, 1]
        for calibrated in (False, True)
    )
    assert labels.mean() - plain.mean() > 0.2
    assert mended.mean() == pytest.approx(labels.mean(), abs=0.02)
    assert log_loss(mended[:, None], labels)[0] < log_loss(plain[:, None], labels)[0] - 0.05
    assert result.calibration.observed - result.calibration.predicted > 0.2


def test_it_goes_with_the_model_wherever_that_goes(weighed, tmp_path):
    made, result = weighed
    assert Calibration.from_json(json.loads(json.dumps(result.summary()["calibration"]))) == result.calibration
    name = result.cluster_ids[1]
    rows, _ = of_cluster(made, name)
    result.model().save(tmp_path / "model.pgfl")
    again = Model.load(tmp_path / "model.pgfl").predict_proba(rows, cluster=name, encoded=True, calibrated=True)
    assert (again == result.model().predict_proba(rows, cluster=name, encoded=True, calibrated=True)).all()


def test_costs_choose_the_label_that_costs_less(weighed):
    """On these rows no other threshold of the same probabilities costs much less."""
    made, result = weighed
    name = result.cluster_ids[0]
    rows, labels = of_cluster(made, name)
    model, positive = result.model(), result.model().label_names[1]
    said = model.predict(rows, cluster=name, encoded=True, calibrated=True, costs=(1.0, 4.0)) == positive
    chance = model.predict_proba(rows, cluster=name, encoded=True, calibrated=True)[:, 1]

    def cost(yes):
        return np.sum(~yes & (labels > 0.5)) + 4.0 * np.sum(yes & (labels < 0.5))

    assert (said == (chance > 0.8)).all()
    assert cost(said) <= 1.2 * min(cost(chance > at) for at in np.linspace(0.0, 1.0, 101))
    assert cost(said) < cost(chance > 0.5)


def test_few_rows_are_calibrated_with_the_others_or_not_at_all():
    rng = np.random.default_rng(1)
    margins = {"many": rng.normal(size=300), "few": rng.normal(size=20)}
    labels = {name: (rng.random(len(each)) < expit(each)) * 1.0 for name, each in margins.items()}
    found = calibrate(margins, labels)
    assert found.lines["few"] == line(*(np.concatenate(list(each.values())) for each in (margins, labels)))
    assert found.lines["many"] == line(margins["many"], labels["many"])
    assert calibrate({"few": margins["few"]}, {"few": labels["few"]}) is None


def test_with_privacy_or_for_numbers_there_is_none():
    made = federation([1.0], rows=400)
    assert compared(made, Huber()).calibration is None
    labels = federation([1.0], rows=600, labels=2)
    private = Privacy(epsilon=8.0, max_releases=3, noise="seeded")
    result = train(labels, PGFL(rho=5.0, client="gradient"), Logistic(), rounds=3, privacy=private)
    assert result.calibration is None and calibration(result.model(), labels) is not None
    with pytest.raises(ResultError, match="were not calibrated"):
        result.model().predict_proba(labels.features[:2], encoded=True, calibrated=True)


@pytest.mark.parametrize("costs", [(0.0, 1.0), (1.0, -1.0), (np.inf, 1.0), ("a", 1.0), 3.0])
def test_impossible_costs_are_refused(costs):
    with pytest.raises(UsageError, match="costs are two numbers above 0"):
        least_margin(costs)


def test_costs_are_for_two_labels():
    made = federation([1.0], rows=400)
    with pytest.raises(ResultError, match="are for two labels"):
        compared(made, Huber()).model().predict(made.features[:2], encoded=True, costs=(9.0, 1.0))
