"""The contract of a metric of predictions."""

import numpy as np
import pytest

from pgfl.metrics import MEASURES, baseline, measured, of_task
from pgfl.objectives import Logistic, Ridge, Softmax

OBJECTIVE = {"regression": Ridge(), "classification": Logistic(), "multiclass": Softmax(classes=3)}
CASES = [(name, task) for name in MEASURES for task in MEASURES[name].tasks]
ROWS, MODELS = 60, 4


@pytest.fixture
def margins_and_targets(task):
    """Margins of models that are ever noisier versions of the truth."""
    rng = np.random.default_rng(4)
    if task == "multiclass":
        targets = rng.integers(0, 3, ROWS).astype(float)
        truth = 8.0 * (targets[:, None] == np.arange(3))
        noise = rng.normal(size=(ROWS, MODELS, 3))
        return truth[:, None] + np.array([0.0, 4.0, 16.0, 64.0])[:, None] * noise, targets
    truth = rng.normal(size=ROWS)
    noisy = truth[:, None] + np.array([0.0, 0.5, 2.0, 8.0]) * rng.normal(size=(ROWS, MODELS))
    return (noisy, truth) if task == "regression" else (4.0 * noisy, (truth > 0).astype(float))


@pytest.mark.parametrize(("name", "task"), CASES)
def test_one_number_per_model_whatever_stands_beside_it(name, task, margins_and_targets):
    margins, targets = margins_and_targets
    found = measured(name, OBJECTIVE[task], margins, targets)
    assert found.shape == (MODELS,) and np.isfinite(found).all()
    alone = [measured(name, OBJECTIVE[task], margins[:, [model]], targets)[0] for model in range(MODELS)]
    assert found == pytest.approx(alone, rel=1e-12)
    order = np.random.default_rng(1).permutation(ROWS)
    assert measured(name, OBJECTIVE[task], margins[order], targets[order]) == pytest.approx(found, rel=1e-9)


@pytest.mark.parametrize(("name", "task"), CASES)
def test_better_models_measure_better(name, task, margins_and_targets):
    margins, targets = margins_and_targets
    sign = -1.0 if MEASURES[name].lower_is_better else 1.0
    found = sign * measured(name, OBJECTIVE[task], margins, targets)
    assert (np.diff(found) < 0).all()
    assert found[0] > sign * baseline(name, targets) > -np.inf


@pytest.mark.parametrize(("name", "task"), CASES)
def test_rows_that_do_not_define_it_give_no_number(name, task):
    wide = (0, 2, 3) if task == "multiclass" else (0, 2)
    assert np.isnan(measured(name, OBJECTIVE[task], np.zeros(wide), np.zeros(0))).all()
    assert np.isnan(baseline(name, np.zeros(0)))
    assert name in of_task(task)
