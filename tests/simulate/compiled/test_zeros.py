"""Rows without their zeros: the same bits as whole rows, wherever a register ends."""

import numpy as np
import pytest

from pgfl import PGFL, Huber, Logistic, synthetic_regression
from pgfl.simulate.compiled import sparse as numba_rows
from pgfl.simulate.compiled.cache import compiled
from pgfl.simulate.compiled.margins import _chance, _chance_in_lanes
from pgfl.simulate.compiled.sparse import sparse_rows
from pgfl.simulate.options import Performance, TrainingOptions
from pgfl.simulate.simulator import Simulator


def federation(dimension, share=0.03):
    made = synthetic_regression(
        servers=4, clients_per_server=6, dimension=dimension, samples=(3, 12), seed=5, x_norm=1.0
    )
    holes = np.random.default_rng(0).uniform(size=made.features.shape) > share
    return made.replace(features=np.where(holes, 0.0, made.features), targets=(made.targets > 0).astype(float))


def played(data, objective, engine, client="admm", dtype=np.float64):
    options = TrainingOptions(rounds=10, participants=3, dtype=dtype, performance=Performance(engine=engine))
    simulator = Simulator([data], PGFL(rho=2.0, tau=0.2, client=client), objective, options)
    return simulator.run(10)


@pytest.mark.proof
@pytest.mark.parametrize("dimension", [8, 23, 60, 64, 100])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("client", ["admm", "gradient"])
def test_leaving_out_zeros_changes_no_bit(monkeypatch, dimension, dtype, client):
    data = federation(dimension)
    kept = played(data, Logistic(), "numba", client, dtype)
    used = []
    monkeypatch.setattr(numba_rows, "sparse_rows", lambda rows: used.append(sparse_rows(rows)))
    whole = played(data, Logistic(), "numba", client, dtype)
    assert (used[0] is None) == (dimension == 8 and dtype is np.float32), "shorter than a register"
    for name in ("model", "dual", "server_models"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(whole, name))


@pytest.mark.proof
@pytest.mark.parametrize("objective", [Logistic(), Huber()], ids=["logistic", "huber"])
def test_rounds_without_zeros_are_those_of_numpy(objective):
    data = federation(60)
    found, expected = (played(data, objective, engine) for engine in ("numba", "numpy"))
    for name in ("model", "dual", "server_models"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=0, atol=1e-9)


def test_full_rows_and_short_ones_stay_as_they_are():
    assert sparse_rows(np.ones((5, 60))) is None
    assert sparse_rows(np.zeros((5, 7))) is None
    late = np.vstack([np.zeros((1000, 16)), np.ones((3000, 16))])
    assert sparse_rows(late) is None, "the first rows alone do not decide"
    begins, places, values = sparse_rows(np.vstack([np.zeros((3, 20)), np.eye(20)[[0, 9, 19]]]))
    assert begins.tolist() == [0, 0, 0, 0, 1, 2, 3] and places.tolist() == [0, 8, 16]
    assert values.reshape(3, 8).sum(axis=1).tolist() == [1.0, 1.0, 1.0]


@compiled
def _both(margins, plain, fast):
    for i in range(len(margins)):
        plain[i], fast[i] = _chance(margins[i]), _chance_in_lanes(margins[i])


def test_chances_that_fill_registers_are_the_plain_ones():
    margins = np.concatenate([np.linspace(-40.0, 40.0, 9999), [0.0, -0.0, 1e-300, 699.0, -699.0, 1e6]])
    plain, fast = np.empty((2, len(margins)))
    _both(margins, plain, fast)
    np.testing.assert_allclose(fast, plain, rtol=1e-13)
    _both(np.array([-1e9, np.nan]), plain, fast)
    assert fast[0] < 1e-300 and np.isnan(fast[1])
