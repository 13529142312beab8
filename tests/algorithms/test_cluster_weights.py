"""Weights between clusters, estimated from released models: what must hold for any estimates, and where they lead."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgfl import equations as eq

CURVATURE, RHO, RATIO = 2.0, 20.0, 0.25


def weights_of(first, second, active=None, masses=(0.5, 0.5), lasting=None, step=1.0 / RHO):
    """A, where recent and lasting estimates are the same unless others are given."""
    shape = first.shape[:-1]
    active = np.ones(shape) if active is None else active
    mass = tuple(np.full(shape, value) for value in masses)
    return eq.cluster_weights(
        (first, second), lasting or (first, second), mass, mass, active, CURVATURE, np.full(shape, step), RATIO
    )


def halves(models, error, seed=0):
    rng = np.random.default_rng(seed)
    return tuple(models + error * rng.standard_normal(models.shape) for _ in range(2))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.sampled_from([0.0, 1e-3, 0.3, 30.0]))
def test_rows_sum_to_one_and_no_mode_grows(seed, clusters, error):
    rng = np.random.default_rng(seed)
    models = rng.standard_normal((clusters, 12)) * rng.uniform(0.01, 10.0, (clusters, 1))
    found = weights_of(*halves(models, error, seed))
    assert np.allclose(found.sum(axis=1), 1.0, atol=1e-9)
    modes = np.linalg.eigvals(found)
    assert np.abs(modes.imag).max() < 1e-8 and modes.real.min() > 0 and modes.real.max() < 1 + 1e-8


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_clusters_may_be_named_in_any_order(seed):
    rng = np.random.default_rng(seed)
    first, second = halves(rng.standard_normal((5, 9)), 0.5, seed)
    order = rng.permutation(5)
    found, moved = weights_of(first, second), weights_of(first[order], second[order])
    np.testing.assert_allclose(moved, found[np.ix_(order, order)], atol=1e-9)


def test_one_cluster_learns_from_itself():
    first, second = halves(np.ones((1, 4)), 0.1)
    np.testing.assert_array_equal(weights_of(first, second), [[1.0]])


def test_relatives_share_and_strangers_do_not():
    rng = np.random.default_rng(3)
    family = rng.standard_normal((2, 60)) * 3
    models = np.repeat(family, 3, axis=0) * (1 + rng.uniform(-0.05, 0.05, (6, 60)))
    found = np.linalg.matrix_power(weights_of(*halves(models, 0.5)), 50)  # as after many rounds
    own = np.kron(np.eye(2), np.ones((3, 3))).astype(bool)
    off_diagonal = own & ~np.eye(6, dtype=bool)
    assert found[off_diagonal].min() > 0.1
    assert np.abs(found[~own]).max() < 0.02


def test_a_cluster_that_may_not_learn_neither_takes_nor_gives():
    first, second = halves(np.random.default_rng(1).standard_normal((4, 30)), 1.0)
    found = weights_of(first, second, np.array([1.0, 0.0, 1.0, 1.0]))
    assert np.array_equal(found[1], [0, 1, 0, 0]) and np.array_equal(found[:, 1], [0, 1, 0, 0])
    without = weights_of(first[[0, 2, 3]], second[[0, 2, 3]])
    np.testing.assert_allclose(found[np.ix_([0, 2, 3], [0, 2, 3])], without, atol=1e-12)


def test_learning_after_every_step_adds_a_quadratic_coupling_to_the_losses():
    """The fixed point of w ← A (w − ∇F(w)/ρ) is where ∇F(w) + R w = 0, whatever ρ is."""
    rng = np.random.default_rng(4)
    centres, curvature = rng.standard_normal((3, 5)), rng.uniform(0.5, 2.0, (3, 5))
    spread = np.array([[2.0, -1.0, -1.0], [-1.0, 1.5, -0.5], [-1.0, -0.5, 1.5]])
    for rho in (5.0, 50.0):
        weights = eq.cluster_mixing(spread, np.full(3, 1.0 / rho))
        w = np.zeros((3, 5))
        for _ in range(4000):
            w = eq.learn_by_weights(weights, w - curvature * (w - centres) / rho)
        np.testing.assert_allclose(curvature * (w - centres) + spread @ w, 0.0, atol=1e-9)


def test_the_variance_of_a_mean_follows_from_its_halves():
    rng = np.random.default_rng(5)
    for sizes in ((8, 8), (3, 13)):
        draws = [rng.standard_normal((4000, size)).mean(axis=1) for size in sizes]
        found = eq.variance_of_mean(*draws, *(np.array(size / 16.0) for size in sizes))
        assert found == pytest.approx(1.0 / 16.0, rel=0.1)


def test_noise_that_is_drawn_anew_counts_half():
    """Only what a longer memory does not average away is an error that clusters must share to reduce fully."""
    models = np.zeros((3, 400))
    models[0] += 9.0  # far apart: a little sharing is best, and half as much where noise is drawn anew
    noisy, lasting = halves(models, 2.0, 1), halves(models, 1.0, 2)
    alone, fresh = weights_of(*noisy, lasting=noisy), weights_of(*noisy, lasting=lasting)
    assert 0 < fresh[0, 0] < 1 and fresh[0, 0] > alone[0, 0]
    assert eq.fresh_variance(np.array([1.0, 1.0, 1.0]), np.array([0.25, 1.5, 0.0]), 0.25).tolist() == [1.0, 0.0, 1.0]


def test_a_half_leads_where_its_gradient_says():
    model, optimum = np.array([[1.0, 2.0]]), np.array([[3.0, -1.0]])
    contribution = model - CURVATURE * (model - optimum) / RHO
    np.testing.assert_allclose(eq.half_estimate(model, 0.25 * contribution, 0.25, RHO, CURVATURE), 0.25 * optimum)


def test_uphill_is_the_component_of_an_estimate_away_from_a_step():
    model, towards = np.array([[1.0, 2.0]]), np.array([[0.0, -3.0]])
    given = model - np.array([[0.5, 0.25]])  # the gradient points to larger numbers: down is downhill
    found = eq.uphill(model, 0.5 * given, 0.5, towards, RHO, CURVATURE)
    np.testing.assert_allclose(found, [[-0.5 * 0.25 * RHO / CURVATURE]])
    assert eq.uphill(model, given, 1.0, 0.0 * towards, RHO, CURVATURE).tolist() == [[0.0]]


@pytest.mark.parametrize(("gain", "share"), [(-5.0, 0.0), (0.5, 0.0), (1.5, 0.5), (3.0, 1.0)])
def test_steps_that_do_not_surely_go_downhill_are_not_taken(gain, share):
    """By the standard error of the clusters' common gain: clusters without a step say nothing."""
    towards = np.array([[3.0, 4.0], [0.0, 0.0]])
    found = eq.downhill_share(np.array([-2.0 * gain, 1e9]), towards, np.array([4.0, 4.0]))
    assert found == pytest.approx(share)
    assert eq.downhill_share(np.zeros(2), 0.0 * towards, np.zeros(2)) == 0.0
