"""Every measure agrees with scikit-learn, also where targets tie, are constant or have one class."""

import numpy as np
import pytest
from sklearn import metrics as theirs

from pgfl import Huber, Logistic, Ridge
from pgfl import metrics as measures
from pgfl.errors import ConfigError

RNG = np.random.default_rng(7)
TARGETS = {
    "ordinary": RNG.normal(size=40),
    "constant": np.full(9, 2.5),
    "two rows": np.array([1.0, -1.0]),
    "large": 1e6 + RNG.normal(size=30),
}
LABELS = {
    "ordinary": (RNG.random(50) < 0.3).astype(float),
    "one of each": np.array([0.0, 1.0]),
}


def predictions(targets, k=4):
    found = targets[:, None] + RNG.normal(size=(len(targets), k))
    found[:, -1] = targets
    return found


@pytest.mark.parametrize("targets", TARGETS.values(), ids=TARGETS)
def test_regression_measures_are_scikit_learn_s(targets):
    predicted = predictions(targets)
    for model, column in enumerate(predicted.T):
        assert measures.r2(predicted, targets)[model] == pytest.approx(theirs.r2_score(targets, column), abs=1e-9)
        assert measures.mae(predicted, targets)[model] == pytest.approx(theirs.mean_absolute_error(targets, column))
        expected = theirs.root_mean_squared_error(targets, column)
        assert measures.rmse(predicted, targets)[model] == pytest.approx(expected)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("ties", [False, True])
def test_classification_measures_are_scikit_learn_s(labels, ties):
    margins = RNG.normal(size=(len(labels), 5)) + labels[:, None]
    margins = np.round(margins) if ties else margins
    chance = 1 / (1 + np.exp(-margins))
    for model in range(5):
        given = (labels, margins[:, model])
        assert measures.auc(margins, labels)[model] == pytest.approx(theirs.roc_auc_score(*given))
        expected = theirs.accuracy_score(labels, margins[:, model] > 0)
        assert measures.hits(margins, labels)[model] / len(labels) == pytest.approx(expected)
        expected = theirs.log_loss(labels, y_proba=chance[:, model], labels=[0, 1])
        assert measures.log_loss(chance, labels)[model] == pytest.approx(expected)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_certain_probabilities_are_clipped_as_scikit_learn_does(dtype):
    labels, chance = np.array([0.0, 1.0, 1.0, 0.0]), np.array([0.0, 1.0, 0.0, 1.0], dtype=dtype)
    expected = theirs.log_loss(labels, y_proba=chance)
    assert measures.log_loss(chance[:, None], labels)[0] == pytest.approx(expected, rel=1e-6)


def test_multiclass_measures_are_scikit_learn_s():
    labels = RNG.integers(4, size=80).astype(float)
    margins = RNG.normal(size=(80, 3, 4)) + 2 * (labels[:, None, None] == np.arange(4))
    margins[::5] = np.round(margins[::5])
    chance = np.exp(margins) / np.exp(margins).sum(axis=2, keepdims=True)
    for model in range(3):
        own = chance[:, model]
        expected = theirs.roc_auc_score(labels, own, multi_class="ovr", average="macro")
        assert measures.auc(chance, labels)[model] == pytest.approx(expected)
        assert measures.log_loss(chance, labels)[model] == pytest.approx(theirs.log_loss(labels, y_proba=own))
        expected = theirs.accuracy_score(labels, own.argmax(axis=1))
        assert measures.hits(margins, labels)[model] / 80 == pytest.approx(expected)


def test_models_of_several_classes_are_rows_of_one_vector():
    model, features = RNG.normal(size=(2, 3 * 4)), RNG.normal(size=(6, 4))
    found = measures.margins(model, features)
    assert found.shape == (6, 2, 3)
    np.testing.assert_allclose(found[:, 1], features @ model[1].reshape(3, 4).T)


def test_what_the_rows_do_not_define_is_nan():
    one_class, one_row, margins = np.ones(5), np.array([3.0]), RNG.normal(size=(5, 2))
    assert np.isnan(measures.measured("auc", Logistic(), margins, one_class)).all()
    assert np.isnan(measures.baseline("auc", one_class))
    assert np.isnan(measures.measured("r2", Ridge(), margins[:1], one_row)).all()
    assert np.isfinite(measures.measured("log_loss", Logistic(), margins, one_class)).all()
    assert np.isfinite(measures.measured("mae", Ridge(), margins[:1], one_row)).all()


def test_models_that_are_not_finite_measure_nan_beside_those_that_are():
    margins, labels = RNG.normal(size=(6, 2)), np.array([0.0, 1.0] * 3)
    margins[:, 1] = np.nan
    for name, objective in (("auc", Logistic()), ("log_loss", Logistic()), ("r2", Ridge()), ("rmse", Ridge())):
        good, bad = measures.measured(name, objective, margins, labels)
        assert np.isfinite(good) and np.isnan(bad), name


def test_baselines_are_the_mean_the_majority_and_the_shares():
    targets, labels = TARGETS["ordinary"], LABELS["ordinary"]
    mean = np.full(len(targets), targets.mean())
    assert measures.baseline("r2", targets) == pytest.approx(0.0, abs=1e-12)
    assert measures.baseline("mae", targets) == pytest.approx(theirs.mean_absolute_error(targets, mean))
    assert measures.baseline("rmse", targets) == pytest.approx(targets.std())
    assert measures.baseline("accuracy", labels) == max(labels.mean(), 1 - labels.mean())
    assert measures.baseline("auc", labels) == 0.5
    expected = theirs.log_loss(labels, y_proba=np.full(len(labels), labels.mean()))
    assert measures.baseline("log_loss", labels) == pytest.approx(expected)
    several = np.array([0.0, 1.0, 1.0, 2.0])
    assert measures.baseline("log_loss", several) == pytest.approx(
        theirs.log_loss(several, y_proba=np.tile([0.25, 0.5, 0.25], (4, 1)))
    )


def test_a_measure_of_another_task_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"accuracy measures classification, which huber is not; .* r2, mae, rmse"):
        measures.check_wanted(("nmsd", "accuracy"), [Huber()])
    with pytest.raises(ConfigError, match="r2 measures regression, which logistic is not"):
        measures.check_wanted(("r2",), [Logistic()])
    measures.check_wanted(("accuracy", "r2"), [Huber(), Logistic()])
    measures.check_wanted(measures.MEASURES, [Huber()])
