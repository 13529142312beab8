from fractions import Fraction

import numpy as np
import pytest

from pgfl.errors import PrivacyError
from pgfl.objectives import Bounds, Huber, Logistic, Objective, Ridge
from pgfl.privacy.sensitivity import clip_labels, clip_rows, update_sensitivity


class Custom(Objective):
    kind = "mine"

    def __init__(self, bound=None, convex=True):
        self.bound, self.convex = bound, convex

    def value_and_gradient(self, w, features, targets, counts):
        return np.zeros(len(w)), np.zeros_like(w)

    def gradient_bound(self, bounds):
        return self.bound


def test_the_papers_objectives():
    counts, weight = np.array([10, 25]), np.array([3.002, 5.0])
    share = counts * weight
    assert update_sensitivity(Huber(kappa=0.7), Bounds(x_norm=2.0), counts, weight) == pytest.approx(
        4 * 0.7 * 2.0 / share, rel=1e-14
    )
    assert update_sensitivity(Logistic(), Bounds(x_norm=2.0), counts, weight) == pytest.approx(
        2 * 2.0 / share, rel=1e-14
    )
    assert update_sensitivity(Ridge(w_norm=3.0), Bounds(x_norm=2.0, y_bound=1.5), counts, weight) == pytest.approx(
        2 * 2.0 * (2.0 * 3.0 + 2 * 1.5) / share, rel=1e-14
    )


def test_an_inexact_solver_adds_twice_its_tolerance():
    exact = update_sensitivity(Logistic(), Bounds(x_norm=1.0), 10, 2.0)
    assert update_sensitivity(Logistic(), Bounds(x_norm=1.0), 10, 2.0, 1e-3) == pytest.approx(exact + 2e-3, rel=1e-14)


def test_clipped_updates_of_a_non_convex_objective_depend_on_nothing_else():
    bounds = Bounds(update_norm=0.25)
    assert (update_sensitivity(Custom(bound=9.0, convex=False), bounds, [1, 1000], [0.1, 9.0], 1e-3) == 0.5).all()


def solve(objective, features, targets, weight, centre):
    rows = np.array([len(features)])
    prepared = objective.prepare(features[None], targets[None], rows, np.array([weight]))
    return np.asarray(prepared.solve(centre[None])[0])[0]


@pytest.mark.parametrize(
    ("objective", "bounds"),
    [
        (Huber(kappa=0.7), Bounds(x_norm=1.0)),
        (Logistic(), Bounds(x_norm=1.0)),
        (Ridge(w_norm=1.5), Bounds(x_norm=1.0, y_bound=2.0)),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_no_replaced_record_and_no_message_moves_the_solution_further(objective, bounds):
    """The bound holds for every neighbour and message tried, and a wrong one (a third of it) does not."""
    random = np.random.default_rng(3)
    worst, weight, dimension = 0.0, 2.0, 3
    for trial in range(120):
        records = random.integers(1, 5)
        features = clip_rows(random.normal(size=(records, dimension)) * 2, 1.0)
        axis = np.eye(dimension)[0]
        centre = random.normal(size=dimension) * 10.0 ** random.integers(-1, 4)
        if objective.kind == "logistic":
            targets, swap = random.integers(0, 2, records).astype(float), (1.0, 0.0)
        else:
            targets = np.clip(random.normal(size=records) * 2, -2, 2)
            swap = (2.0, -2.0) if objective.kind == "ridge" else (1e6, -1e6)
        if trial % 2:  # the canary: opposite gradients along one axis, as large as they get
            features[0], targets[0] = axis, swap[0]
        other_features, other_targets = features.copy(), targets.copy()
        other_features[0], other_targets[0] = (axis, swap[1]) if trial % 2 else (-features[0], swap[trial % 4 // 2])
        moved = solve(objective, features, targets, weight, centre) - solve(
            objective, other_features, other_targets, weight, centre
        )
        bound = update_sensitivity(objective, bounds, records, weight, objective.tolerance)
        worst = max(worst, np.linalg.norm(moved) / bound)
    assert 1 / 3 < worst <= 1.0


def test_the_papers_own_ridge_regression_has_no_bound():
    """Why it is refused: the change grows with what the server sends."""
    changes = []
    for norm in (1.0, 1e2, 1e4):
        centre = norm * np.eye(2)[0]
        one = solve(Ridge(), np.eye(2)[:1], np.zeros(1), 1.0, centre)
        other = solve(Ridge(), np.eye(2)[1:], np.zeros(1), 1.0, centre)
        changes.append(np.linalg.norm(one - other))
    assert changes[2] > 50 * changes[1] > 2000 * changes[0]


@pytest.mark.parametrize(
    ("objective", "bounds", "counts", "weight", "word"),
    [
        (Ridge(), Bounds(x_norm=1.0), 5, 1.0, "y_bound"),
        (Ridge(w_norm=1.0), Bounds(x_norm=1.0), 5, 1.0, "y_bound"),
        (Huber(), Bounds(), 5, 1.0, "x_norm"),
        (Huber(), Bounds(x_norm=-1.0), 5, 1.0, "x_norm"),
        (Huber(), Bounds(x_norm=np.nan), 5, 1.0, "x_norm"),
        (Custom(), Bounds(x_norm=1.0), 5, 1.0, "gradient_bound"),
        (Custom(bound=np.inf), Bounds(x_norm=1.0), 5, 1.0, "gradient change"),
        (Custom(bound=1.0, convex=False), Bounds(x_norm=1.0), 5, 1.0, "update_norm"),
        (Custom(bound=1.0, convex=False), Bounds(x_norm=1.0, update_norm=0.0), 5, 1.0, "update_norm"),
        (Huber(), Bounds(x_norm=1.0), 0, 1.0, "record"),
        (Huber(), Bounds(x_norm=1.0), 5, 0.0, "rho"),
    ],
)
def test_refuses(objective, bounds, counts, weight, word):
    with pytest.raises(PrivacyError, match=word) as refusal:
        update_sensitivity(objective, bounds, counts, weight)
    assert "\n" not in str(refusal.value)


def test_refuses_a_tolerance_that_is_none():
    with pytest.raises(PrivacyError, match="tolerance"):
        update_sensitivity(Huber(), Bounds(x_norm=1.0), 5, 1.0, np.nan)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("limit", [1.0, 0.1, 7.3, 1e-20, 1e20])
def test_clipped_rows_are_within_the_bound_exactly_and_as_computed(dtype, limit):
    random = np.random.default_rng(0)
    rows = random.normal(size=(400, 13))
    rows *= limit / np.linalg.norm(rows, axis=1)[:, None]  # on the edge, where rounding decides
    rows[::7] *= 5
    rows[::11] /= 3
    rows = rows.astype(dtype)
    clipped = clip_rows(rows, limit)
    squared = Fraction(limit) ** 2
    inside = [sum(Fraction(float(x)) ** 2 for x in row) <= squared for row in clipped]
    assert all(inside)
    assert (np.linalg.norm(clipped.astype(float), axis=1) <= limit).all()
    assert clipped.dtype == dtype
    assert (clipped[::11] == rows[::11])[np.arange(0, 400, 11) % 7 != 0].all()
    assert np.allclose(np.linalg.norm(clipped[::7].astype(float)[1:10], axis=1), limit, rtol=1e-4)
    assert clip_rows(clipped, limit) is clipped


def test_rows_within_are_left_alone_without_a_copy():
    rows = np.array([[3.0, 4.0], [0.0, 0.0], [-5.0, 0.0]])
    assert clip_rows(rows, 5.0) is rows
    given = np.array([[3.0, 4.0], [30.0, 40.0]])
    before = given.copy()
    clipped = clip_rows(given, 5.0)
    assert (given == before).all()
    assert (clipped[0] == given[0]).all()
    assert clipped[1] == pytest.approx([3.0, 4.0])


def test_clipping_works_across_blocks_and_batches(monkeypatch):
    monkeypatch.setattr("pgfl.privacy.sensitivity._BLOCK_BYTES", 100)
    rows = np.random.default_rng(1).normal(size=(4, 5, 3))
    clipped = clip_rows(rows, 1.0)
    lengths = np.linalg.norm(rows, axis=-1)
    assert clipped == pytest.approx(rows / np.maximum(lengths, 1.0)[..., None], rel=1e-12)
    assert (clipped[lengths < 1] == rows[lengths < 1]).all()


def test_extreme_rows():
    rows = np.array([[1e300, 1e300], [1e-300, 1e-300]])
    clipped = clip_rows(rows, 1.0)
    assert clipped[0] == pytest.approx([0.5**0.5] * 2)
    assert (clipped[1] == rows[1]).all()
    assert clip_rows([[3, 4]], 1) == pytest.approx(np.array([[0.6, 0.8]]))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_that_is_no_number_is_named(bad):
    with pytest.raises(PrivacyError, match="Row 1 "):
        clip_rows([[0.0, 1.0], [0.0, bad]], 1.0)
    with pytest.raises(PrivacyError, match="Label 2 "):
        clip_labels([0.0, 1.0, bad], 1.0)


def test_labels():
    labels = np.array([-1.0, 0.5])
    assert clip_labels(labels, 1.0) is labels
    assert clip_labels([-3.0, 0.5, 9.0], 2.0).tolist() == [-2.0, 0.5, 2.0]
    single = clip_labels(np.array([5.0, -5.0], dtype=np.float32), 0.1)
    assert single.dtype == np.float32
    assert (np.abs(single.astype(float)) <= 0.1).all()
