import math
import sys

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from pgfl import PGFL, Huber, Privacy, synthetic_regression, train
from pgfl.errors import MissingExtra, PrivacyError, ResultError
from pgfl.privacy import accounting
from pgfl.privacy.budget import Budget
from tests.counted_calls import python_calls

# ζ, φ(1), n, then ρ, the paper's ε and the exact ε at δ = 1e-5, to the digits given.
TABLE = [
    (0.99, 1e-3, 100, 0.1715, 2.982, 2.379),
    (0.99, 1e-3, 300, 1.920, 11.322, 9.748),
    (0.98, 1e-3, 300, 20.96, 52.03, 47.80),
    (0.999, 1e-3, 300, 0.350, 4.363, 3.563),
    (0.99, 1e-5, 100, 0.0017, 0.283, 0.190),
]


@pytest.mark.parametrize(("zeta", "phi1", "rounds", "rho", "paper", "exact"), TABLE)
def test_known_figures(zeta, phi1, rounds, rho, paper, exact):
    figures = Budget.from_schedule(phi1=phi1, zeta=zeta, rounds=rounds, delta=1e-5).figures()
    assert figures["phi0"] == pytest.approx(phi1 * zeta, rel=1e-15)
    assert figures["rho"] == pytest.approx(rho, abs=5.1e-3 if rho > 10 else 5.1e-4 if rho > 0.2 else 5.1e-5)
    assert figures["epsilon_paper"] == pytest.approx(paper, abs=5.1e-3 if paper > 50 else 5.1e-4)
    assert figures["epsilon"] == pytest.approx(exact, abs=5.1e-3 if exact > 40 else 5.1e-4)


@pytest.mark.parametrize(("zeta", "phi1", "rounds", "rho", "paper", "exact"), TABLE)
def test_agrees_with_googles_accountant(zeta, phi1, rounds, rho, paper, exact):
    figures = Budget.from_schedule(phi1=phi1, zeta=zeta, rounds=rounds, delta=1e-5).figures()
    one = PLDAccountant(value_discretization_interval=1e-3 if figures["epsilon"] > 1 else 1e-5)
    one.compose(dp_accounting.GaussianDpEvent(1.0 / math.sqrt(2.0 * figures["rho"])))
    assert one.get_epsilon(1e-5) == pytest.approx(figures["epsilon"], rel=1e-3)


def test_composition_release_by_release_agrees_with_googles_accountant():
    phi0, zeta, releases = 5e-3, 0.9, 12
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    for n in range(1, releases + 1):
        sigma_over_sensitivity = 1.0 / math.sqrt(2.0 * float(accounting.phi(phi0, zeta, n)))
        accountant.compose(dp_accounting.GaussianDpEvent(sigma_over_sensitivity))
    ours = Budget.from_schedule(phi0=phi0, zeta=zeta, rounds=releases, delta=1e-6).figures()["epsilon"]
    assert accountant.get_epsilon(1e-6) == pytest.approx(ours, rel=2e-3)


@given(zeta=st.floats(0.5, 0.9999), phi1=st.floats(1e-8, 1e-1), n=st.integers(1, 400), delta=st.floats(1e-12, 0.5))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_papers_formula_as_printed(zeta, phi1, n, delta):
    ratio = phi1 * (1 - zeta**n) / (zeta ** (n - 1) - zeta**n)
    printed = ratio + 2 * math.sqrt(ratio * math.log(1 / delta))
    figures = Budget.from_schedule(phi1=phi1, zeta=zeta, rounds=n, delta=delta).figures()
    assert figures["epsilon_paper"] == pytest.approx(printed, rel=1e-9)
    assert figures["epsilon"] <= figures["epsilon_paper"] * (1 + 1e-12)


@pytest.mark.parametrize("zeta", [1.0, 1.0 - 1e-16, 1.0 - 1e-12, 1.0 - 1e-7, 0.999, 0.9, 0.3])
def test_sums_match_plain_addition(zeta):
    terms = [zeta**-n for n in range(1, 301)]
    assert accounting.growth(zeta, 1, 300) == pytest.approx(math.fsum(terms), rel=1e-12)
    assert accounting.growth(zeta, 291, 300) == pytest.approx(math.fsum(terms[290:]), rel=1e-12)
    assert accounting.rho_total(2e-3, zeta, [0, 1, 300]) == pytest.approx(
        [0.0, 2e-3 / zeta, 2e-3 * math.fsum(terms)], rel=1e-12
    )


def test_sums_are_continuous_at_one():
    near = accounting.growth(1.0 - 2.0**-53, 1, 10**6)
    assert near == pytest.approx(10**6, rel=1e-9)


def delta_of(rho: float, epsilon: float) -> float:
    """δ(ε), as the accountant inverts it."""
    return math.exp(accounting._log_delta(np.array([math.sqrt(2.0 * rho)]), np.array([epsilon]))[0][0])


def integrated_delta(mu: float, epsilon: float) -> float:
    """δ(ε) = ∫ max(0, p − e^ε q) for p = N(μ, 1), q = N(0, 1), by quadrature from the point where they cross."""
    start = epsilon / mu + mu / 2

    def excess(x: float) -> float:
        return norm.pdf(x - mu) * -math.expm1(epsilon - mu * x + mu * mu / 2)

    return quad(excess, start, start + 12, epsabs=0, epsrel=1e-12, limit=500)[0]


@pytest.mark.parametrize("rho", [1e-12, 1e-9, 1.9e-6, 2.1e-6, 1e-3, 0.1, 1.0, 30.0, 1e3, 1e4])
@pytest.mark.parametrize("standard", [0.0, 0.5, 2.0, 5.0])
def test_curve_against_numerical_integration(rho, standard):
    mu = math.sqrt(2 * rho)
    epsilon = max(0.0, mu * mu / 2 + standard * mu)
    assert delta_of(rho, epsilon) == pytest.approx(integrated_delta(mu, epsilon), rel=1e-8)


@given(rho=st.floats(-28, 9).map(math.exp), delta=st.floats(-200, -0.2).map(math.exp))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_epsilon_inverts_the_curve(rho, delta):
    epsilon = float(accounting.exact_epsilon(rho, delta))
    if epsilon == 0.0:
        assert delta_of(rho, 0.0) <= delta
    else:
        assert delta_of(rho, epsilon) == pytest.approx(delta, rel=1e-9)


def test_extremes():
    assert accounting.exact_epsilon([0.0, np.inf], 1e-5) == pytest.approx([0.0, np.inf])
    assert accounting.exact_epsilon(1e-12, 1e-5) == 0.0
    assert accounting.exact_epsilon(1e4, 1e-5) == pytest.approx(10602.16143789907, rel=1e-12)
    assert accounting.exact_epsilon(1e-12, 1e-300) == pytest.approx(5.173726830800496e-05, rel=1e-12)
    assert accounting.exact_epsilon(np.zeros((2, 3)), 0.1).shape == (2, 3)


@given(epsilon=st.floats(-9, 6).map(math.exp), delta=st.floats(-60, -0.2).map(math.exp))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_largest_rho_meets_the_target_and_no_more_would(epsilon, delta):
    rho = accounting.exact_rho(epsilon, delta)
    assert accounting.exact_epsilon(rho, delta) <= epsilon
    assert accounting.exact_epsilon(rho * (1 + 1e-6), delta) > epsilon


@pytest.mark.parametrize("zeta", [1.0, 0.99, 0.9])
def test_target_by_release(zeta):
    found = Budget.from_target(epsilon=2.0, delta=1e-6, zeta=zeta, max_releases=50)
    again = Budget.from_schedule(phi0=found.phi0, zeta=zeta, rounds=50, delta=1e-6).figures()
    assert 2.0 * (1 - 1e-8) < again["epsilon"] <= 2.0
    assert found.figures()["epsilon"] <= 2.0


def test_target_by_round_assumes_the_last_and_dearest_rounds():
    found = Budget.from_target(epsilon=2.0, delta=1e-6, zeta=0.98, max_releases=5, index="round", rounds=200)
    prices = np.sort(found.phi(np.arange(1, 201)))
    assert 2.0 * (1 - 1e-8) < accounting.exact_epsilon(prices[-5:].sum(), 1e-6) <= 2.0
    by_release = Budget.from_target(epsilon=2.0, delta=1e-6, zeta=0.98, max_releases=5)
    assert found.phi0 < by_release.phi0


def test_group_figures_scale_mu_by_the_size():
    rho, delta = 0.01, 1e-5
    assert accounting.group_rho(rho, 1) == rho
    assert math.sqrt(2 * accounting.group_rho(rho, 7)) == pytest.approx(7 * math.sqrt(2 * rho))
    assert accounting.group_epsilon(rho, delta, 20) == pytest.approx(accounting.exact_epsilon(rho * 400, delta))
    assert accounting.group_epsilon(rho, delta, 20) > 20 * accounting.exact_epsilon(rho, delta)


@pytest.mark.parametrize(
    "call",
    [
        lambda: Budget.from_schedule(phi0=0.0, zeta=0.9, rounds=5, delta=1e-5).figures(),
        lambda: Budget.from_schedule(phi0=-1.0, zeta=0.9, rounds=5, delta=1e-5).figures(),
        lambda: Budget.from_schedule(phi0=math.nan, zeta=0.9, rounds=5, delta=1e-5).figures(),
        lambda: Budget.from_schedule(phi1=math.inf, zeta=0.9, rounds=5, delta=1e-5).figures(),
        lambda: Budget.from_schedule(phi0=1.0, zeta=0.0, rounds=5, delta=1e-5).figures(),
        lambda: Budget.from_schedule(phi0=1.0, zeta=1.0001, rounds=5, delta=1e-5).figures(),
        lambda: Budget.from_schedule(phi0=1.0, zeta=math.nan, rounds=5, delta=1e-5).figures(),
        lambda: Budget.from_schedule(phi0=1.0, zeta=0.9, rounds=0, delta=1e-5).figures(),
        lambda: Budget.from_schedule(phi0=1.0, zeta=0.9, rounds=2.5, delta=1e-5).figures(),
        lambda: Budget.from_schedule(phi0=1.0, zeta=0.9, rounds=5, delta=0.0).figures(),
        lambda: Budget.from_schedule(phi0=1.0, zeta=0.9, rounds=5, delta=1.0).figures(),
        lambda: Budget.from_schedule(phi0=1.0, zeta=0.9, rounds=7000, delta=1e-5).figures(),
        lambda: Budget.from_schedule(phi0=1.0, phi1=1.0, zeta=0.9, rounds=5, delta=1e-5).figures(),
        lambda: Budget.from_schedule(zeta=0.9, rounds=5, delta=1e-5).figures(),
        lambda: Budget.from_target(epsilon=0.0, delta=1e-5, zeta=0.9, max_releases=5),
        lambda: Budget.from_target(epsilon=math.inf, delta=1e-5, zeta=0.9, max_releases=5),
        lambda: Budget.from_target(epsilon=1.0, delta=1e-5, zeta=0.5, max_releases=2000),
        lambda: Budget.from_target(epsilon=1e-5, delta=1e-30, zeta=0.5, max_releases=1020),
        lambda: Budget.from_target(epsilon=1.0, delta=1e-5, zeta=0.5, max_releases=5, index="round"),
        lambda: Budget.from_target(epsilon=1.0, delta=1e-5, zeta=0.5, max_releases=5, index="day"),
        lambda: Budget.from_target(epsilon=1.0, delta=1e-5, zeta=0.5, max_releases=0),
        lambda: accounting.exact_epsilon([-1.0], 1e-5),
        lambda: accounting.exact_epsilon([math.nan], 1e-5),
        lambda: accounting.group_rho(1.0, 0),
    ],
)
def test_refuses(call):
    with pytest.raises(PrivacyError) as refusal:
        call()
    assert str(refusal.value).endswith(".")
    assert "\n" not in str(refusal.value)


def test_last_index_before_underflow_is_allowed_and_the_next_refused():
    last = int(math.log(np.finfo(float).tiny) / math.log(0.5))
    accounting.check_schedule(1e-9, 0.5, last - 1)
    with pytest.raises(PrivacyError, match="underflows"):
        accounting.check_schedule(1e-9, 0.5, last + 1)


def test_many_distinct_accounts_are_converted_at_once():
    rho = np.exp(np.random.default_rng(0).uniform(-14, 5, 10_000))
    few, many = (python_calls(accounting.exact_epsilon, rho[:size], 1e-5) for size in (100, len(rho)))
    assert many <= 2 * few


def googles_epsilon(event, delta, interval=1e-4):
    accountant = PLDAccountant(value_discretization_interval=interval)
    accountant.compose(event)
    return accountant.get_epsilon(delta)


def test_events_give_googles_accountant_the_same_epsilon():
    private = Privacy(epsilon=2.0, delta=1e-5, zeta=0.9, max_releases=6, x_norm=1.0)
    event = private.to_dp_event(rounds=9)
    assert len(event.events) == 6
    assert googles_epsilon(event, 1e-5) == pytest.approx(2.0, rel=1e-3)
    capped = Budget.from_schedule(phi0=5e-3, zeta=0.9, rounds=12, delta=1e-6)
    assert googles_epsilon(capped.to_dp_event(), 1e-6) == pytest.approx(capped.figures()["epsilon"], rel=2e-3)


def test_an_account_of_a_result_gives_googles_accountant_the_same_epsilon():
    federation = synthetic_regression(servers=4, clients_per_server=3, dimension=3)
    private = Privacy(epsilon=1.5, zeta=0.95, x_norm=1.0)
    result = train(federation, PGFL(), Huber(), rounds=5, participants=2, privacy=private)
    table = result.privacy[0]
    worst = float(table["epsilon"].max())
    assert googles_epsilon(result.to_dp_event(), 1e-5) == pytest.approx(worst, rel=1e-3)
    least = int(np.argmin(table["rho"]))
    found = result.to_dp_event(client=result.client_ids[least])
    expected = float(table["epsilon"][least])
    assert (googles_epsilon(found, 1e-5) if table["rho"][least] else 0.0) == pytest.approx(expected, rel=1e-3)


def test_no_guarantee_is_an_event_that_no_accountant_bounds_and_no_privacy_is_no_event(monkeypatch):
    unbounded = Privacy(phi0=1e-3, guarantee="none")
    assert isinstance(unbounded.to_dp_event(rounds=3), dp_accounting.NonPrivateDpEvent)
    plain = train(synthetic_regression(servers=4, clients_per_server=2, dimension=2), rounds=1)
    with pytest.raises(ResultError, match="no privacy account"):
        plain.to_dp_event()
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(MissingExtra, match=r"pgfl\[accounting\]"):
        Budget.from_schedule(phi0=1e-3, zeta=0.9, rounds=3, delta=1e-6).to_dp_event()
