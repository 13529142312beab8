"""The closed form of ridge regression says how far it may be off, and an engine believes nothing more."""

from dataclasses import replace

import numpy as np
import pytest

from pgfl import Ridge
from pgfl.errors import SolverError
from tests import bridges
from tests.federations import random_problem


def solved(clients=7, rows=4, dimension=9, scale=1.0):
    """(a solver of ill-conditioned problems, centres, the exact solutions in extended precision)."""
    rng = np.random.default_rng(3)
    features = scale * rng.standard_normal((clients, rows, dimension))
    targets, centre = rng.standard_normal((clients, rows)), rng.standard_normal((clients, dimension))
    counts, weight = np.full(clients, float(rows)), np.full(clients, 0.5)
    exact = [_exact(*client) for client in zip(features, targets, weight, centre, strict=True)]
    return Ridge().prepare(features, targets, counts, weight), centre, np.array(exact)


def _exact(features, targets, weight, centre):
    """Conjugate gradients on the normal equations, in long double, far past convergence."""
    x, y, w = (np.asarray(values, dtype=np.longdouble) for values in (features, targets, centre))
    left = 2 / np.longdouble(len(y)) * x.T @ x + weight * np.eye(len(w), dtype=np.longdouble)
    right = 2 / np.longdouble(len(y)) * x.T @ y + weight * w
    gap = right - left @ w
    step = gap.copy()
    for _ in range(400):
        if not gap @ gap:
            break
        length = gap @ gap / (step @ left @ step)
        w, before = w + length * step, gap @ gap
        gap = gap - length * (left @ step)
        step = gap + gap @ gap / before * step
    return np.asarray(w, dtype=float)


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_one_bound_for_all_is_a_bound_for_each(scale):
    solver, centre, exact = solved(scale=scale)
    together, each = solver.solve(centre)[1], replace(solver, tolerance=0.0).solve(centre)[1]
    assert together.shape == (1,)
    assert each.shape == (len(centre),)
    assert (each <= together).all()
    rounding = 64 * np.finfo(float).eps * np.linalg.norm(centre, axis=1)
    assert (np.linalg.norm(solver.solve(centre)[0] - exact, axis=1) <= each + rounding).all()


def test_where_the_common_bound_is_not_enough_every_client_has_its_own():
    solver, centre, _ = solved()
    wrong = replace(solver, slack=np.where(np.arange(len(centre)) == 2, 1.0, solver.slack))
    error = wrong.solve(centre)[1]
    assert error.argmax() == 2
    assert np.sort(error)[-2] < 1e-10 < error[2]


def test_an_engine_names_the_client_that_was_not_solved():
    engine = bridges.simulator(random_problem(1, "ridge", "ordinary", algorithm="pgfl"))
    bucket = engine.engine.blocks[0].buckets[0]
    slack = bucket.prepared.slack + np.where(np.arange(len(bucket.where)) == 1, 1.0, 0.0)
    object.__setattr__(bucket, "prepared", replace(bucket.prepared, slack=slack))
    run = engine.layout.runs[0]
    name = run.federation.client_ids[run.order[bucket.where[1]]]
    with pytest.raises(SolverError, match=f"The primal problem of client {name} was solved only to"):
        engine.run_round()
