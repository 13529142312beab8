"""Compiled gradient steps equal plain ones at every length of a row, in registers or not, and touch nothing else."""

import numpy as np
import pytest

from pgfl import Hinge, Huber, Logistic, Ridge, synthetic_regression
from pgfl.simulate.compiled import blocks as fast
from pgfl.simulate.compiled.gradients import gradient_phase, gradient_phase_in_registers
from pgfl.simulate.compiled.products import registers_of
from pgfl.simulate.layout import lay_out

LOSSES = (Ridge(0.3), Huber(0.1, kappa=0.4), Logistic(0.2), Hinge())
REACH, FULL_RECORDS, STEPS = 0.2, 5, 3
FENCE = 3  # rows around all rows, which would spoil a result
SLOPES = {
    0: lambda margin, y, kappa: 2 * (margin - y),
    1: lambda margin, y, kappa: np.clip(2 * (margin - y), -2 * kappa, 2 * kappa),
    2: lambda margin, y, kappa: 1 / (1 + np.exp(-margin)) - y,
    3: lambda margin, y, kappa: -(2 * y - 1) * np.clip(1 - (2 * y - 1) * margin, 0, 1),
}


def _fenced_problems(dimension, dtype):
    shape = {"servers": 2, "clients_per_server": 9, "clusters": 4, "samples": (1, 9), "graph": "ring", "seed": 3}
    made = synthetic_regression(dimension=dimension, **shape)
    made = made.replace(targets=(made.targets > 0).astype(float))
    layout = lay_out([made])
    (block,) = fast.prepare(layout, {f"cluster-{i}": loss for i, loss in enumerate(LOSSES)}, 1.0, dtype, solved=False)
    fence = np.full((FENCE, dimension), np.nan, dtype)
    fenced = np.concatenate([fence, block.problems.features, fence])
    targets = np.concatenate([fence[:, 0], block.problems.targets])
    return layout, block.problems._replace(features=fenced, targets=targets, first=block.problems.first + FENCE)


def _expected(problems, k, model):
    first, count, reach = problems.first[k], problems.counts[k], REACH
    rows, targets = (part[first : first + count].astype(float) for part in (problems.features, problems.targets))
    reach *= min(1.0, count / FULL_RECORDS)
    for _ in range(STEPS):
        slopes = SLOPES[int(problems.kind[k])](rows @ model, targets, float(problems.kappa[k]))
        model = model - reach * (rows.T @ slopes / count + problems.ridge_penalty[k] * model)
    return model


def _assert_equal_to_plain_steps(dimension, dtype, in_registers):
    layout, problems = _fenced_problems(dimension, dtype)
    clients = np.flatnonzero(np.arange(layout.clients) % 5 != 2)
    pairs = layout.client_pair[clients]
    bounds = np.searchsorted(pairs, np.arange(layout.pairs + 1))
    shares = (1.0 / np.maximum(np.diff(bounds), 1))[:, None].astype(dtype)
    servers = np.random.default_rng(dimension).normal(size=(layout.pairs, dimension)).astype(dtype)
    models, means = np.full((layout.clients, dimension), np.nan, dtype), np.full_like(servers, np.nan)
    given = (clients, bounds, 0, tuple(problems), servers, models, means, shares, True, REACH, FULL_RECORDS, STEPS)
    if in_registers:
        gradient_phase_in_registers(*given, registers_of(problems.features))
    else:
        gradient_phase(*given, (None, None))
    expected = np.array(
        [_expected(problems, k, servers[pair].astype(float)) for k, pair in zip(clients, pairs, strict=True)]
    )
    tolerance = 1e-12 if dtype is np.float64 else 1e-4
    np.testing.assert_allclose(models[clients], expected, rtol=tolerance, atol=tolerance)
    assert np.isnan(np.delete(models, clients, axis=0)).all(), "nobody else's model is written"
    for pair in range(layout.pairs):
        own = expected[pairs == pair]
        mean = own.mean(axis=0) if len(own) else np.zeros(dimension)
        np.testing.assert_allclose(means[pair], mean, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dimension", [8, 9, 15, 16, 20, 60, 64])
def test_steps_in_registers_are_plain_ones(dimension):
    _assert_equal_to_plain_steps(dimension, np.float64, in_registers=True)


@pytest.mark.parametrize("dimension", [1, 7, 65])
def test_other_steps_are_plain_ones(dimension):
    _assert_equal_to_plain_steps(dimension, np.float64, in_registers=False)


@pytest.mark.proof
@pytest.mark.parametrize("in_registers", [True, False])
def test_steps_in_single_precision_are_plain_ones(in_registers):
    _assert_equal_to_plain_steps(45, np.float32, in_registers)


@pytest.mark.parametrize(
    ("dimension", "dtype", "registers"),
    [(7, float, None), (8, float, 1), (9, float, 2), (17, float, 4), (60, float, 8), (64, float, 8), (65, float, None),
     (15, np.float32, None), (16, np.float32, 1), (128, np.float32, 8), (129, np.float32, None)],
)  # fmt: skip
def test_a_row_fits_into_registers_if_it_fills_one_and_needs_no_more_than_eight(dimension, dtype, registers):
    found = registers_of(np.zeros((3, dimension), dtype))
    assert (None if found is None else len(found)) == registers
