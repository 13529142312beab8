"""The contract of an objective: derivatives, bounds, solver and sensitivity are those of its loss."""

import numpy as np
import pytest

from pgfl import PGFL, Bounds, Privacy
from pgfl.config import parse
from pgfl.errors import DataError
from pgfl.objectives import OBJECTIVES
from pgfl.objectives.interface import tolerance_for
from pgfl.registry import config_keys
from tests.neighbours import Searched, furthest

X_NORM, Y_BOUND, W_NORM, LABELS = 1.5, 2.0, 3.0, 3
CLIENTS, ROWS, COLUMNS = 40, 5, 3


def built(kind):
    """The objective with what privacy and data would add to it."""
    return OBJECTIVES[kind](lam=0.05).constrained(W_NORM).with_labels(LABELS)


def targets_of(objective, genes):
    """Suitable targets from numbers of any size."""
    if objective.task == "regression":
        return np.clip(genes, -Y_BOUND, Y_BOUND)
    return np.floor(np.abs(genes) * 7.0) % (2 if objective.task == "classification" else LABELS)


@pytest.fixture(params=list(OBJECTIVES))
def objective(request):
    return built(request.param)


@pytest.fixture
def problem(objective):
    """Clients with rows and targets within the bounds, and models within the domain."""
    rng = np.random.default_rng(7)
    rows = rng.normal(size=(CLIENTS, ROWS, COLUMNS))
    rows *= X_NORM / np.maximum(X_NORM, np.linalg.norm(rows, axis=-1, keepdims=True))
    models = rng.normal(size=(2, CLIENTS, objective.model_length(COLUMNS))) * 10.0 ** rng.uniform(-2, 1, (CLIENTS, 1))
    if objective.domain is not None:
        models *= np.minimum(1.0, objective.domain / np.linalg.norm(models, axis=-1, keepdims=True))
    return rows, targets_of(objective, rng.normal(size=(CLIENTS, ROWS))), np.full(CLIENTS, float(ROWS)), models


def test_the_gradient_is_that_of_the_loss(objective, problem):
    rows, targets, counts, (models, _) = problem
    value, gradient = objective.value_and_gradient(models, rows, targets, counts)
    assert np.array_equal(value, objective.loss(models, rows, targets, counts))
    assert np.array_equal(gradient, objective.gradient(models, rows, targets, counts))
    step = 1e-6
    for axis in range(models.shape[1]):
        aside = np.zeros(models.shape[1])
        aside[axis] = step
        ahead, back = (objective.loss(models + sign * aside, rows, targets, counts) for sign in (1.0, -1.0))
        assert gradient[:, axis] == pytest.approx((ahead - back) / (2.0 * step), rel=1e-4, abs=1e-4)


def test_rows_past_the_count_do_not_count(objective, problem):
    rows, targets, counts, (models, _) = problem
    padded = np.concatenate([rows, np.zeros((CLIENTS, 2, COLUMNS))], axis=1)
    more = np.concatenate([targets, np.zeros((CLIENTS, 2))], axis=1)
    for one, other in zip(
        objective.value_and_gradient(models, rows, targets, counts),
        objective.value_and_gradient(models, padded, more, counts),
        strict=True,
    ):
        assert other == pytest.approx(one, rel=1e-12, abs=1e-14)


def test_a_convex_loss_lies_below_its_chords(objective, problem):
    rows, targets, counts, (one, other) = problem
    middle = objective.loss(0.5 * (one + other), rows, targets, counts)
    chord = 0.5 * (objective.loss(one, rows, targets, counts) + objective.loss(other, rows, targets, counts))
    assert not objective.convex or (middle <= chord + 1e-9 * (1.0 + np.abs(chord))).all()


def test_no_record_breaks_the_stated_bounds(objective, problem):
    rows, targets, _, (models, others) = problem
    bounds = Bounds(X_NORM, Y_BOUND, W_NORM)
    single = (rows[:, :1], targets[:, :1], np.ones(CLIENTS))
    swapped = (rows[:, 1:2], targets[:, 1:2], np.ones(CLIENTS))
    here, replaced = objective.gradient(models, *single), objective.gradient(models, *swapped)
    there = objective.gradient(others, *single)
    for bound, found in (
        (objective.gradient_bound(bounds), np.linalg.norm(here, axis=1)),
        (objective.gradient_change(bounds), np.linalg.norm(here - replaced, axis=1)),
        (objective.smoothness(bounds), np.linalg.norm(here - there, axis=1) / np.linalg.norm(models - others, axis=1)),
    ):
        assert bound is None or found.max() <= bound * (1.0 + 1e-9)


def test_a_solution_carries_a_certificate(objective, problem):
    rows, targets, counts, (centre, _) = problem
    modulus = np.full(CLIENTS, 0.7)
    solved, error = objective.prepare(rows, targets, counts, modulus).solve(centre)
    tolerance = tolerance_for(objective, np.float64, np)
    assert solved.shape == centre.shape and np.max(error) <= tolerance

    def value(w):
        return objective.loss(w, rows, targets, counts) + 0.5 * modulus * np.sum((w - centre) ** 2, axis=1)

    rng = np.random.default_rng(3)
    for size in (1e-4, 1e-2, 1.0):
        near = solved + size * rng.normal(size=solved.shape)
        if objective.domain is not None:
            near *= np.minimum(1.0, objective.domain / np.linalg.norm(near, axis=1, keepdims=True))
        assert (value(solved) <= value(near) + 1e-9 * (1.0 + value(near))).all()


@pytest.mark.parametrize("client", ["admm", "gradient"])
def test_no_neighbours_are_further_apart_than_the_sensitivity(objective, client):
    privacy = Privacy(phi0=1.0, zeta=1.0, x_norm=X_NORM, y_bound=Y_BOUND, w_norm=W_NORM)
    searched = Searched(
        objective,
        PGFL(rho=0.8, client=client),
        privacy,
        lambda genes: targets_of(objective, genes),
        largest_model=100.0,
    )
    assert furthest(searched, generations=8)[0] <= 1.0 + 1e-9


def test_targets_that_do_not_suit_are_refused(objective):
    objective.check_targets(targets_of(objective, np.linspace(-1, 1, 9)))
    with pytest.raises(DataError, match="sample 2 has target"):
        objective.check_targets(np.array([0.0, np.inf]))


@pytest.mark.parametrize("kind", list(OBJECTIVES))
def test_its_fields_are_keys_of_a_config(kind):
    settings = parse({"objective": {"kind": kind}}).objective
    made = settings.build()
    assert type(made) is OBJECTIVES[kind] and made.kind == kind
    for key in config_keys(OBJECTIVES[kind]):
        assert getattr(made, key) == getattr(settings, key)
    assert made.own_settings() == settings.own_keys
