"""Turned rows are orthogonal and have the same problem; the certificate counts how oblique they are."""

import numpy as np
import pytest

from pgfl import PGFL, Ridge, synthetic_regression
from pgfl.simulate.compiled.kind import COPIED, orthogonal_width
from pgfl.simulate.options import Performance, TrainingOptions
from pgfl.simulate.simulator import Simulator


def played(data, dtype=np.float64, **options):
    return Simulator(
        [data], PGFL(), Ridge(0.01), TrainingOptions(9, dtype=dtype, **options, performance=Performance(engine="numba"))
    )


def awkward(**changes):
    """Clients with equal rows, with zero rows, with rows of very different sizes, and with more rows than features."""
    settings = {"servers": 4, "clients_per_server": 8, "clusters": 2, "dimension": 13, "samples": (1, 20), "seed": 5}
    made = synthetic_regression(**settings | changes)
    rows = made.features.copy()
    for k, start in enumerate(made.offsets[:-1]):
        own = rows[start : made.offsets[k + 1]]
        if k % 4 == 1:
            own[:] = own[0]
        elif k % 4 == 2:
            own[::2] = 0.0
        elif k % 4 == 3:
            own *= 10.0 ** -np.arange(len(own))[:, None]
    return made.replace(features=rows)


def own_rows(simulator):
    """(rows, targets, orthogonal rows, turned targets, places) of every client, in double precision."""
    problems, kept = simulator.engine.blocks[0].problems, simulator.engine._coordinates
    for start, begin, count in zip(problems.first, kept.first, problems.counts, strict=True):
        given, own = slice(start, start + count), slice(begin, begin + count)
        arrays = (problems.features[given], problems.targets[given], kept.rows[own], kept.target[own])
        yield *(values.astype(float) for values in arrays), own


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-14), (np.float32, 1e-6)])
def test_turned_rows_are_orthogonal_and_have_the_same_problem(dtype, tolerance):
    simulator = played(awkward(), dtype)
    kept = simulator.engine._coordinates
    for x, y, rotated, target, own in own_rows(simulator):
        size = np.sum(x**2)
        inner, (_, dimension) = rotated[:, : x.shape[1]], x.shape
        assert not rotated[:, dimension:].any()
        assert np.abs(inner.T @ inner - x.T @ x).max() <= tolerance * size
        assert np.abs(inner.T @ target - x.T @ y).max() <= tolerance * np.sqrt(size) * np.linalg.norm(y)
        assert np.sum(target**2) == pytest.approx(np.sum(y**2), rel=tolerance)
        gram = inner @ inner.T
        assert np.abs(gram - np.diag(kept.size[own])).max() <= tolerance * size


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_certificate_counts_how_oblique_the_rows_are(dtype):
    simulator = played(awkward(), dtype)
    problems, kept = simulator.engine.blocks[0].problems, simulator.engine._coordinates
    counted = []
    for k, (x, _, rotated, _, own) in enumerate(own_rows(simulator)):
        kappa, gain = 2.0 / (len(x) * float(problems.modulus[k])), kept.gain[own].astype(float)
        off = (np.eye(len(x)) + kappa * rotated @ rotated.T) @ np.diag(gain) / kappa - np.eye(len(x))
        counted.append(0.5 * np.sqrt(kappa) * np.linalg.norm(off))
        assert problems.slack[k] >= counted[-1] * (1.0 - 1e-3) - 1e-16
    assert np.max(counted) > 1e-9 if dtype is np.float32 else np.max(counted) < 1e-13


def test_clients_with_awkward_rows_have_the_models_of_numpy():
    data = awkward(samples=(1, 25))
    ours, theirs = (
        Simulator([data], PGFL(tau=0.2), Ridge(0.1), TrainingOptions(30, performance=Performance(engine=engine)))
        for engine in ("numba", "numpy")
    )
    ours.run(30), theirs.run(30)
    for name in ("model", "dual", "server_models"):
        expected = getattr(theirs.state, name)
        assert np.abs(getattr(ours.state, name) - expected).max() <= 1e-12 * (1.0 + np.abs(expected).max())


@pytest.mark.parametrize(
    ("rows", "dimension", "item", "width"),
    [
        (1000, 60, 8, 64),
        (1000, 60, 4, 64),
        (1000, 5, 8, 8),
        (1000, 20, 8, 32),
        (1000, 128, 8, 128),
        (1000, 129, 8, 0),
        (COPIED // 512, 60, 8, 64),
        (COPIED // 512 + 1, 60, 8, 0),
    ],
)
def test_rows_are_turned_where_they_fit_in_registers_and_a_copy_is_small(rows, dimension, item, width):
    assert orthogonal_width(rows, dimension, item) == width
