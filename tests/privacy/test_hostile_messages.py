"""Messages that are meant to break the arithmetic under the guarantee, and rows that rounding lengthens."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgfl import PGFL, FedAvg, Huber, Logistic, Privacy, Ridge, train
from pgfl import equations as eq
from pgfl.algorithms.accuracy import Terms
from pgfl.algorithms.roles import Accepted, Client, RoundRequest
from pgfl.errors import DataError, SolverError
from pgfl.federation.clipping import clip_rows
from pgfl.federation.federation import ClientData, Federation
from pgfl.objectives import Bounds
from pgfl.objectives import margins as margin_solver

OBJECTIVES = [Huber(lam=0.1), Logistic(lam=0.1), Ridge(lam=0.1, w_norm=1.0)]


class Forbidden:
    """A release that must not be asked for."""

    def __call__(self, model):
        raise AssertionError("something was released")


TERMS = Terms(Bounds(x_norm=1.0, y_bound=1.0), tolerance=1e-10)


def client(objective, algorithm=None, update_norm=None, terms=TERMS):
    rng = np.random.default_rng(3)
    features, targets = clip_rows(rng.standard_normal((5, 4)), 1.0), (rng.random(5) < 0.5).astype(float)
    return Client(objective, algorithm or PGFL(rho=2.0), features, targets, update_norm, terms)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: o.kind)
@pytest.mark.parametrize("size", [1e6, 1e12, 1e300, np.inf, np.nan])
def test_a_huge_model_is_refused_before_anything_is_released(objective, size):
    one = client(objective)
    with pytest.raises(DataError, match="Nothing was released"):
        one.answer(RoundRequest(1, 3, np.array([0.0, size, 0.0, 0.0])), Forbidden())
    assert one.sent is None


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: o.kind)
def test_a_huge_dual_is_refused_too(objective):
    one = client(objective)
    one.answer(RoundRequest(1, 3, np.ones(4)), lambda model: model)
    with pytest.raises(DataError, match="Nothing was released"):
        one.answer(RoundRequest(2, 3, np.ones(4), Accepted(1, np.full(4, 1e12))), Forbidden())


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: o.kind)
def test_models_of_a_size_that_audits_need_are_answered(objective):
    client(objective).answer(RoundRequest(1, 3, np.array([0.0, 2e3, 0.0, 0.0])), lambda model: model)


def test_the_refusal_depends_on_the_message_alone():
    """The largest accepted message is the same whatever the data is."""

    def limit(features):
        one = Client(Huber(), PGFL(rho=2.0), features, np.zeros(len(features)), terms=TERMS)
        low, high = 1.0, 1e12
        while high / low > 1.0001:
            middle = (low * high) ** 0.5
            try:
                one.answer(RoundRequest(1, 3, np.array([middle, 0.0])), lambda model: model)
                low = middle
            except DataError:
                high = middle
        return low

    assert limit([[1.0, 0.0], [0.0, 1e-3]]) == limit([[1e-9, 0.5], [0.0, 1.0]])


def test_an_accepted_model_of_another_length_is_refused():
    one = client(Huber())
    one.answer(RoundRequest(1, 3, np.ones(4)), lambda model: model)
    with pytest.raises(DataError, match="coefficients"):
        one.answer(RoundRequest(2, 3, np.ones(4), Accepted(1, np.ones(1))), Forbidden())


def test_without_terms_an_unsolved_problem_is_refused_before_anything_is_released(monkeypatch):
    monkeypatch.setattr(margin_solver, "NEWTON_STEPS", 1)
    with pytest.raises(SolverError, match="nothing was released"):
        client(Logistic(lam=0.1), terms=None).answer(RoundRequest(1, 3, np.ones(4)), Forbidden())


@given(
    st.lists(st.floats(-1e9, 1e9), min_size=3, max_size=3),
    st.lists(st.floats(-10, 10), min_size=3, max_size=3),
    st.floats(1e-3, 10.0),
)
def test_a_clipped_update_is_within_its_radius_in_exact_arithmetic(centre, move, radius):
    middle = np.array([centre])
    clipped = eq.clip_update(middle + np.array([move]), middle, radius)
    squares = sum((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(clipped[0], middle[0], strict=True))
    assert squares <= Fraction(radius) ** 2


@pytest.mark.parametrize("objective", [Huber(lam=0.1), Logistic(lam=0.1)], ids=lambda o: o.kind)
@pytest.mark.parametrize("size", [1e6, 1e12, 1e300, np.inf, np.nan])
def test_a_huge_model_is_refused_by_a_linearised_step(objective, size):
    one = client(objective, PGFL(rho=2.0, client="gradient"))
    with pytest.raises(DataError, match="Nothing was released"):
        one.answer(RoundRequest(1, 3, np.array([0.0, size, 0.0, 0.0])), Forbidden())


@pytest.mark.parametrize("size", [0.5, 1e6, 1e90])
def test_a_linearised_step_of_ridge_starts_inside_the_ball_whatever_the_model_is(size):
    one = client(Ridge(lam=0.1, w_norm=1.0), PGFL(rho=2.0, client="gradient"))
    model = one.answer(RoundRequest(1, 3, np.array([0.0, size, 0.0, 0.0])), lambda model: model).model
    inside = np.array([0.0, min(size, 1.0), 0.0, 0.0])
    expected = inside - one._problem_at(3).gradient(inside[None])[0] / 2.0
    np.testing.assert_allclose(model, expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("size", [1e101, 1e300, np.inf, np.nan])
def test_a_model_too_long_to_be_projected_is_refused(size):
    one = client(Ridge(lam=0.1, w_norm=1.0), PGFL(rho=2.0, client="gradient"))
    with pytest.raises(DataError, match="Nothing was released"):
        one.answer(RoundRequest(1, 3, np.array([0.0, size, 0.0, 0.0])), Forbidden())


@pytest.mark.parametrize(
    "algorithm",
    [PGFL(rho=2.0), PGFL(rho=2.0, client="gradient"), FedAvg(step_size=0.1, local_steps=2)],
    ids=["pgfl", "linearised", "fedavg"],
)
def test_a_huge_model_around_which_updates_are_clipped_is_refused(algorithm):
    with pytest.raises(DataError, match="Nothing was released"):
        client(Ridge(lam=0.0), algorithm, update_norm=1e-3).answer(RoundRequest(1, 3, np.full(4, 1e13)), Forbidden())


@pytest.mark.parametrize("x_norm", [0.3, 1.0, 7.7])
def test_single_precision_does_not_lengthen_rows_past_the_bound(x_norm, monkeypatch):
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((400, 6))
    rows *= x_norm / np.linalg.norm(rows, axis=1, keepdims=True)
    cast = rows.astype(np.float32)
    assert (np.linalg.norm(cast.astype(float), axis=1) > x_norm).any(), "the case must be one where it matters"
    seen = []
    prepare = Huber.prepare
    monkeypatch.setattr(
        Huber, "prepare", lambda self, features, *rest: seen.append(features) or prepare(self, features, *rest)
    )
    federation = Federation.from_clients({"a": ClientData("s", "q", rows, np.zeros(400))})
    privacy = Privacy(phi0=0.1, zeta=1.0, x_norm=x_norm)
    train(federation, PGFL(rho=2.0), Huber(), rounds=1, privacy=privacy, dtype=np.float32, metrics=())
    assert seen
    for features in seen:
        assert features.dtype == np.float32
        for row in features.reshape(-1, 6):
            assert sum(Fraction(float(value)) ** 2 for value in row) <= Fraction(x_norm) ** 2
