from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from pgfl.algorithms.algorithms import PGFL, FedAvg
from pgfl.algorithms.roles import Client, RoundRequest
from pgfl.errors import PrivacyError
from pgfl.federation.clipping import clip_labels, clip_rows
from pgfl.federation.federation import ClientData, Federation
from pgfl.lab.audit.cases import Welsch
from pgfl.objectives import Bounds, Hinge, Huber, Logistic, Objective, Ridge, Softmax
from pgfl.objectives.weighted import weighted
from pgfl.privacy.request import Privacy
from pgfl.privacy.sensitivity import release_sensitivity
from tests.neighbours import Neighbours, Searched, furthest


class Custom(Objective):
    kind = "mine"

    def __init__(self, bound=None, convex=True):
        self.bound, self.convex = bound, convex

    def value_and_gradient(self, w, features, targets, counts):
        return np.zeros(len(w)), np.zeros_like(w)

    def gradient_bound(self, bounds):
        return self.bound


def update_sensitivity(objective, bounds, counts, modulus, tolerance=0.0):
    return release_sensitivity(objective, PGFL(), bounds, counts, modulus, tolerance)


def test_the_papers_objectives():
    counts, weight = np.array([10, 25]), np.array([3.002, 5.0])
    share = counts * weight
    assert update_sensitivity(Huber(kappa=0.7), Bounds(x_norm=2.0), counts, weight) == pytest.approx(
        4 * 0.7 * 2.0 / share, rel=1e-14
    )
    assert update_sensitivity(Logistic(), Bounds(x_norm=2.0), counts, weight) == pytest.approx(
        2 * 2.0 / share, rel=1e-14
    )
    assert update_sensitivity(Hinge(), Bounds(x_norm=2.0), counts, weight) == pytest.approx(2 * 2.0 / share, rel=1e-14)
    assert update_sensitivity(Softmax(classes=4), Bounds(x_norm=2.0), counts, weight) == pytest.approx(
        2 * 2**0.5 * 2.0 / share, rel=1e-14
    )
    assert update_sensitivity(Ridge(w_norm=3.0), Bounds(x_norm=2.0, y_bound=1.5), counts, weight) == pytest.approx(
        2 * 2.0 * (2.0 * 3.0 + 2 * 1.5) / share, rel=1e-14
    )


def test_an_inexact_solver_adds_twice_its_tolerance():
    exact = update_sensitivity(Logistic(), Bounds(x_norm=1.0), 10, 2.0)
    assert update_sensitivity(Logistic(), Bounds(x_norm=1.0), 10, 2.0, 1e-3) == pytest.approx(exact + 2e-3, rel=1e-14)


@pytest.mark.parametrize(
    ("algorithm", "reach"),
    [(FedAvg(step_size=0.1, local_steps=5), 5 * 0.1), (PGFL(rho=0.4, client="gradient"), 1 / 0.4)],
    ids=["fedavg", "linearised"],
)
def test_rounding_widens_the_sensitivity_of_steps(algorithm, reach):
    """What floating point may add to either of two neighbours comes on top of their distance."""
    privacy = Privacy(phi0=1.0, x_norm=1.0)
    exact, rounded = (
        privacy.sensitivity(Huber(), algorithm, np.array([10]), np.ones(1), tolerance) for tolerance in (0.0, 1e-3)
    )
    assert exact == pytest.approx(reach * 4 / 10, rel=1e-14)
    assert rounded == pytest.approx(exact + 2e-3, rel=1e-14)


def test_clipped_updates_of_a_non_convex_objective_depend_on_nothing_else():
    bounds = Bounds(update_norm=0.25)
    assert (update_sensitivity(Custom(bound=9.0, convex=False), bounds, [1, 1000], [0.1, 9.0], 1e-3) == 0.5).all()


# --- the search ------------------------------------------------------------------------------------------------------


class LogCosh(Objective):
    """A convex loss as a user may write one, with its bound stated: ‖∇ℓ‖ = |tanh r|·‖x‖ ≤ B."""

    kind = "log cosh"
    lam = 0.5
    tolerance = 1e-8

    def value_and_gradient(self, w, features, targets, counts):
        rest = (features @ w[..., None])[..., 0] - targets
        slope = np.tanh(rest)[..., None] * features
        return np.sum(np.logaddexp(rest, -rest), axis=-1) / counts, np.sum(slope, axis=-2) / np.asarray(counts)[
            ..., None
        ]

    def gradient_bound(self, bounds):
        return bounds.x_norm


X_NORM = 2.0


def private(**bounds):
    return Privacy(phi0=1.0, zeta=1.0, **bounds)


def wide(gene):
    """Labels of every size, up to 3,000."""
    return np.sign(gene) * np.expm1(8.0 * np.abs(np.tanh(gene)))


def binary(gene):
    return (gene > 0).astype(float)


def one_of_three(gene):
    return (gene > 0).astype(float) + (gene > 1.5)


def fedavg(objective, local_steps, share_of_longest_step):
    step = share_of_longest_step * longest_step(objective)
    labels = binary if objective.task == "classification" else wide
    return Searched(
        objective, FedAvg(step_size=step, local_steps=local_steps), private(x_norm=X_NORM), labels, largest_model=100.0
    )


def longest_step(objective):
    """2/(L + 2λ), from the largest curvature of one record."""
    curvature = {"huber": 2.0, "logistic": 0.25, "hinge": 1.0}[objective.kind]
    return 2.0 / (curvature * X_NORM**2 + 2.0 * objective.lam)


class BoundedWelsch(Welsch):
    """Welsch with its gradient's bound: |2r exp(−r²)| ≤ √(2/e)."""

    def gradient_bound(self, bounds):
        return (2.0 / np.e) ** 0.5 * bounds.x_norm


class SmoothWelsch(BoundedWelsch):
    """With its smoothness stated as well."""

    def smoothness(self, bounds):
        return 2.0 * bounds.x_norm**2


def weighed(objective, algorithm, labels, cap=3.0, **bounds):
    """Records that weigh up to the cap."""
    return Searched(
        weighted(objective, cap),
        algorithm,
        private(weight_cap=cap, **{"x_norm": X_NORM} | bounds),
        labels,
        largest_model=100.0,
    )


ADMM, LINEARISED = PGFL(rho=0.3), PGFL(rho=0.3, client="gradient")
BY_RECORDS = PGFL(rho=0.3, client="gradient", full_records=20)
PRIMAL_BY_RECORDS = PGFL(rho=0.3, full_records=20)
IN_BALL = private(x_norm=X_NORM, y_bound=1.5, w_norm=0.7)
SEARCHES = {
    **{
        f"huber, kappa {kappa}": (Searched(Huber(lam=0.5, kappa=kappa), ADMM, private(x_norm=X_NORM), wide), 0.99)
        for kappa in (0.05, 1.0, 7.0)
    },
    "huber, one record": (Searched(Huber(lam=3.0, kappa=0.4), ADMM, private(x_norm=0.1), wide, records=1), 0.99),
    "logistic": (Searched(Logistic(lam=0.5), ADMM, private(x_norm=X_NORM), binary), 0.99),
    "hinge": (Searched(Hinge(lam=0.5), ADMM, private(x_norm=X_NORM), binary), 0.99),
    "softmax": (Searched(Softmax(lam=0.5, classes=3), ADMM, private(x_norm=X_NORM), one_of_three), 0.99),
    "ridge, held by rho": (Searched(Ridge(lam=0.5), PGFL(rho=30.0), IN_BALL, lambda gene: 3.0 * gene), 0.75),
    "ridge, moved by data": (Searched(Ridge(lam=0.5), ADMM, IN_BALL, lambda gene: 3.0 * gene), 0.25),
    "one's own": (Searched(LogCosh(), ADMM, private(x_norm=X_NORM), wide, largest_model=100.0), 0.99),
    "not convex": (Searched(Welsch(lam=0.5), ADMM, private(update_norm=0.2), lambda gene: 3.0 * gene), 0.99),
    "huber, clipped": (Searched(Huber(kappa=3.0), ADMM, private(x_norm=X_NORM, update_norm=0.2), wide), 0.99),
    "huber, radius never reached": (Searched(Huber(kappa=0.3), ADMM, private(x_norm=0.1, update_norm=9.0), wide), 0.99),
    "linearised, huber": (Searched(Huber(lam=0.5, kappa=0.3), LINEARISED, private(x_norm=X_NORM), wide), 0.99),
    "linearised, few records": (Searched(Huber(lam=0.5, kappa=0.3), BY_RECORDS, private(x_norm=X_NORM), wide), 0.99),
    "huber, few records": (Searched(Huber(lam=0.5, kappa=0.3), PRIMAL_BY_RECORDS, private(x_norm=X_NORM), wide), 0.99),
    "logistic, few records": (Searched(Logistic(lam=0.5), PRIMAL_BY_RECORDS, private(x_norm=X_NORM), binary), 0.99),
    "fedavg, few records": (
        Searched(Huber(lam=0.0, kappa=0.3), FedAvg(0.05, 4, full_records=20), private(x_norm=X_NORM), wide), 0.9
    ),
    "linearised, logistic": (Searched(Logistic(lam=0.5), LINEARISED, private(x_norm=X_NORM), binary), 0.99),
    "linearised, hinge": (Searched(Hinge(lam=0.5), LINEARISED, private(x_norm=X_NORM), binary), 0.99),
    "linearised, ridge": (Searched(Ridge(lam=0.5), LINEARISED, IN_BALL, lambda gene: 3.0 * gene), 0.75),
    "linearised, not convex": (
        Searched(BoundedWelsch(lam=0.5), LINEARISED, private(x_norm=X_NORM), lambda gene: 3.0 * gene),
        0.99,
    ),
    "linearised, clipped": (Searched(Huber(), LINEARISED, private(x_norm=X_NORM, update_norm=0.2), wide), 0.99),
    **{
        f"fedavg, {objective.kind}, {steps} steps, {share} of the longest": (fedavg(objective, steps, share), 0.95)
        for objective in (Huber(lam=2.0, kappa=4.0), Logistic(lam=0.0))
        for steps in (1, 4, 15)
        for share in (0.3, 1.0)
    },
    "fedavg, hinge, 4 steps, 1.0 of the longest": (fedavg(Hinge(lam=0.0), 4, 1.0), 0.95),
    "fedavg, small kappa, no regulariser": (fedavg(Huber(lam=0.0, kappa=0.3), 15, 1.0), 0.95),
    "weights, huber": (weighed(Huber(lam=0.5, kappa=0.3), ADMM, wide), 0.99),
    "weights, logistic, linearised": (weighed(Logistic(lam=0.5), LINEARISED, binary), 0.99),
    "weights, softmax": (weighed(Softmax(lam=0.5, classes=3), LINEARISED, one_of_three), 0.95),
    "weights, ridge, linearised": (
        weighed(Ridge(lam=0.5), LINEARISED, lambda gene: 3.0 * gene, y_bound=1.5, w_norm=0.7), 0.6
    ),
    "weights, fedavg": (weighed(Huber(lam=0.0, kappa=0.3), FedAvg(0.02, 4), wide), 0.9),
    "fedavg, not convex": (
        Searched(Welsch(lam=0.5), FedAvg(0.5, local_steps=4), private(update_norm=0.05), lambda gene: gene), 0.99
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SEARCHES)
def test_no_replaced_record_and_no_message_moves_the_solution_further(name):
    """Δ holds for all neighbours, models and |C_s| that the search finds, and it comes as near as is required."""
    searched, required = SEARCHES[name]
    effort = {"generations": 6, "population": 32, "parents": 8} if name == "one's own" else {}
    ratio, pair = furthest(searched, **effort)
    assert required <= ratio <= 1.0
    moved = np.linalg.norm(np.subtract(*(answered(searched, pair, world) for world in (0, 1))))
    assert required <= moved / calibrated(searched, pair) <= 1.0


def answered(searched, pair, world):
    """What a client's role answers; it has solved the same for another |C_s| before."""
    role = as_role(searched, pair, world)
    clients = int(pair.server_clients[0])
    role.answer(RoundRequest(1, 10**9 + 1 - clients, pair.model[0]), lambda model: model)
    return role.answer(RoundRequest(2, clients, pair.model[0]), lambda model: model).model


def calibrated(searched, pair):
    role = as_role(searched, pair, 0)
    weight = np.array([role.strong_convexity(int(pair.server_clients[0]))])
    counts = np.array([searched.records])
    return searched.privacy.sensitivity(role.objective, role.algorithm, counts, weight, role.objective.tolerance)[0]


def as_role(searched, pair, world):
    rows, labels = pair.features[world][0], pair.targets[world][0]
    return Client(searched.shipped, searched.algorithm, rows, labels, searched.privacy.update_norm)


def test_the_search_looks_where_bounds_break():
    """Records whose xxᵀ differ, models inside and far outside ridge's ball, and |C_s| from 1 to 10⁹."""
    searched, _ = SEARCHES["ridge, held by rho"]
    pairs = searched.decoded(searched.canaries())
    one, other = (features[:, -1] for features in pairs.features)
    products = [row[:, :, None] * row[:, None, :] for row in (one, other)]
    assert np.linalg.norm(products[0] - products[1], axis=(1, 2)).max() > 1.4 * X_NORM**2 * (1 - 1e-9)
    sizes = np.linalg.norm(pairs.model, axis=1)
    assert sizes.min() < 0.1 * IN_BALL.w_norm
    assert sizes.max() > 1e4 * IN_BALL.w_norm
    assert set(pairs.server_clients) >= {1.0, 1e9}
    assert all((features[:, :-1] == pairs.features[0][:, :-1]).all() for features in pairs.features)


@pytest.mark.parametrize("objective", [Huber(lam=0.0), Huber(lam=2.0), Logistic(lam=0.02)], ids=str)
def test_longer_steps_of_fedavg_spread_models_and_are_refused(objective):
    """One per cent past the limit there is no bound; at three times the limit the sum of the steps would be none."""
    for share in (1.01, 3.0):
        longer = fedavg(objective, 6, share)
        with pytest.raises(PrivacyError, match="step"):
            longer.bound(longer.decoded(longer.canaries()))
    records = 41
    rows = np.tile(X_NORM * np.eye(3)[0], (1, records, 1))
    balanced = np.tile([0.0, 1.0] if isinstance(objective, Logistic) else [0.0, 0.0], records)[None, :records]
    one, other = balanced.copy(), balanced.copy()
    one[:, -1], other[:, -1] = (0.0, 1.0) if isinstance(objective, Logistic) else (-100.0, 100.0)
    pair = Neighbours((rows, rows), (one, other), np.zeros((1, 3)), np.ones(1))
    spread = replace(longer, records=records).apart(pair)[0]
    summed = 6 * longer.algorithm.step_size * objective.gradient_change(longer.privacy.bounds) / records
    assert spread > 1.5 * summed


def solve(objective, features, targets, weight, centre):
    rows = np.array([len(features)])
    prepared = objective.prepare(features[None], targets[None], rows, np.array([weight]))
    return np.asarray(prepared.solve(centre[None])[0])[0]


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


def test_ridge_takes_linearised_steps_only_within_a_ball():
    """Its gradient is unbounded, so without a W no noise is enough."""
    with pytest.raises(PrivacyError, match="w_norm"):
        release_sensitivity(Ridge(), LINEARISED, Bounds(x_norm=1.0, y_bound=1.0), 5, 1.0)


def test_several_steps_on_a_loss_that_is_not_convex_are_refused():
    """One step is taken from one public model; after it, the worlds' models may be driven apart."""
    bounded = SmoothWelsch(lam=0.0)
    release_sensitivity(bounded, FedAvg(step_size=0.1, local_steps=1), Bounds(x_norm=1.0), 5, 1.0)
    with pytest.raises(PrivacyError, match="not convex"):
        release_sensitivity(bounded, FedAvg(step_size=0.1, local_steps=2), Bounds(x_norm=1.0), 5, 1.0)


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
    monkeypatch.setattr("pgfl.federation.clipping._BLOCK_BYTES", 100)
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


def test_labels_are_clipped_where_no_bound_is_stated_but_a_guarantee_is_given():
    """A label of any size would show in how its problem is solved."""
    own = Federation.from_clients({"c": ClientData("s", "q", np.ones((3, 1)), np.array([1e20, -1e20, 0.5]))})
    assert Privacy(phi0=1.0, x_norm=1.0).bounded(own).targets.tolist() == [1e6, -1e6, 0.5]
    assert Privacy(phi0=1.0, x_norm=1.0, y_bound=2.0).bounded(own).targets.tolist() == [2.0, -2.0, 0.5]
    assert Privacy(phi0=1.0, guarantee="none").bounded(own).targets is own.targets
