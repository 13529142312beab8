"""Losses of a margin: every solution is as near as it says, and is the same bits whoever else is solved with it."""

import numpy as np
import pytest
from scipy.optimize import minimize

from pgfl import Hinge, Huber, Logistic
from pgfl.arrays import OwnRows, own_rows, rows_times, times_rows

RHO = 3.0


def problems(objective, dimension, longest, scales, seed=0):
    """Clients with 1 to `longest` rows, padded; a scale a client decides which method it is solved by."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, longest + 1, len(scales)).astype(float)
    inside = np.arange(longest) < counts[:, None]
    features = rng.standard_normal((len(scales), longest, dimension)) * inside[..., None]
    features *= np.array(scales)[:, None, None] / np.sqrt(dimension)
    targets = rng.standard_normal((len(scales), longest)) * inside
    if objective.task == "classification":
        targets = (targets > 0).astype(float)
    return features, targets, counts, RHO + 0.1 * rng.random(len(scales)), rng.standard_normal((len(scales), dimension))


def argmin(objective, features, targets, count, weight, centre):
    rows = int(count)

    def penalised(w):
        value, gradient = objective.value_and_gradient(w, features[:rows], targets[:rows], count)
        return value + 0.5 * weight * (w - centre) @ (w - centre), gradient + weight * (w - centre)

    found = minimize(penalised, centre, jac=True, method="L-BFGS-B", options={"gtol": 1e-12, "ftol": 0.0})
    return found.x, np.linalg.norm(penalised(found.x)[1]) / weight


GENTLE, MIXED, STEEP = [1.0, 0.5, 0.1, 0.0], [1.0, 30.0, 0.0, 100.0], [10.0, 100.0, 50.0, 1000.0]
SHAPES = {"sample space": (12, 7), "feature space": (4, 9), "large": (800, 9)}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scales", [GENTLE, MIXED, STEEP], ids=["gentle", "mixed", "steep"])
@pytest.mark.parametrize("objective", [Huber(), Huber(kappa=0.05), Logistic(), Hinge()], ids=str)
def test_a_solution_is_as_near_as_it_says(objective, scales, shape):
    *data, centre = problems(objective, *SHAPES[shape], scales)
    solved, errors = objective.prepare(*data).solve(centre)
    assert (errors <= objective.tolerance).all()
    for client, (w, error) in enumerate(zip(solved, errors, strict=True)):
        exact, off = argmin(objective, *(part[client] for part in data), centre[client])
        assert np.linalg.norm(w - exact) <= error + off + 1e-13 * (1.0 + np.linalg.norm(w))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("objective", [Huber(), Logistic(), Hinge()], ids=["huber", "logistic", "hinge"])
def test_company_changes_no_bit(objective, shape):
    *data, centre = problems(objective, *SHAPES[shape], MIXED + GENTLE)
    together, errors = objective.prepare(*data).solve(centre)
    for chosen in ([0], [1], [4, 5, 6], [0, 3, 7]):
        picked, found = objective.prepare(*data).solve(centre[chosen], np.array(chosen))
        np.testing.assert_array_equal(picked, together[chosen])
        np.testing.assert_array_equal(found, errors[chosen])
        alone, found = objective.prepare(*(part[chosen] for part in data)).solve(centre[chosen])
        np.testing.assert_array_equal(alone, together[chosen])
        np.testing.assert_array_equal(found, errors[chosen])


@pytest.mark.parametrize("index", [None, np.array([0, 2])], ids=["all", "some"])
def test_large_matrices_are_multiplied_without_padding_and_zeros(index):
    rng = np.random.default_rng(1)
    counts = np.array([3.0, 9.0, 6.0])
    matrices = rng.standard_normal((3, 9, 700)) * (np.arange(9) < counts[:, None])[..., None]
    matrices[2] *= rng.random((9, 700)) < 0.1
    kept = own_rows(matrices, counts)
    assert isinstance(kept, OwnRows)
    chosen = matrices if index is None else matrices[index]
    vectors, coefficients = rng.standard_normal((len(chosen), 700)), rng.standard_normal((len(chosen), 9))
    np.testing.assert_allclose(rows_times(kept, vectors, index), np.matvec(chosen, vectors), atol=1e-12)
    np.testing.assert_allclose(times_rows(coefficients, kept, index), np.vecmat(coefficients, chosen), atol=1e-12)
