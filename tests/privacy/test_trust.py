"""Levels of trust: who may take part, how much noise there is, and what everybody is charged."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgfl import PGFL, FedAvg, Privacy
from pgfl.config import parse
from pgfl.errors import ConfigError, PrivacyError
from pgfl.privacy import lattice
from pgfl.privacy.trust import Trust, charge, distance_from_gaussian, slack_of, sum_sigma

PRICES = st.floats(1e-8, 1e2)
DELTAS = st.floats(1e-6, 1e3)


@given(
    invited=st.integers(1, 200), contributors=st.integers(1, 20), colluders=st.integers(0, 20), lost=st.floats(0, 0.9)
)
def test_those_who_are_sure_to_be_honest_are_never_more_than_can_be_counted_on(invited, contributors, colluders, lost):
    trust = Trust("masked", contributors, colluders, lost)
    if not trust.takes_part(invited):
        assert invited < contributors or trust.required(invited) - colluders < 1
        return
    survivors = trust.required(invited)
    assert contributors <= survivors <= invited
    assert trust.honest(invited) == survivors - colluders >= 1
    assert invited - survivors <= lost * invited
    assert trust.excess(invited, survivors) >= 1.0
    assert trust.excess(invited) == invited / trust.honest(invited)


@given(st.lists(st.tuples(DELTAS, PRICES), min_size=1, max_size=30), st.floats(0, 1e-5))
def test_nobody_is_charged_more_than_its_price_and_one_pays_all_of_it(clients, slack):
    deltas, prices = np.array(clients).T
    sigma = sum_sigma(deltas, prices, slack).max()
    charged = charge(deltas, sigma, slack)
    assert (charged <= prices * (1 + 1e-12)).all()
    assert np.isclose(charged / prices, 1.0, rtol=1e-9).any()
    assert (charge(deltas, sigma) >= deltas**2 / (2 * sigma**2) * (1 - 1e-12)).all()


def test_a_site_asks_for_a_minimum_and_counts_everyone():
    trust = Trust("site", contributors=3)
    assert [trust.takes_part(n) for n in (2, 3, 40)] == [False, True, True]
    assert trust.excess(40) == 1.0
    assert "only 2 can contribute" in (trust.complaint(2) or "")


def test_dropouts_leave_fewer_honest_shares_to_count_on():
    assert [Trust("masked", dropouts=lost).honest(20) for lost in (0.0, 0.1, 0.5)] == [19, 17, 9]
    assert Trust("masked", contributors=15, dropouts=0.5).honest(20) == 14


def test_local_trust_asks_for_nobody_else():
    assert Trust().takes_part(1)
    assert not Trust().aggregates


def test_the_distance_from_a_gaussian_bounds_the_true_one():
    """The sum of h discrete Gaussians, convolved exactly, beside one of the same variance."""
    for share, honest in ((0.5, 2), (0.7, 3), (0.8, 5), (1.0, 4)):
        single = _discrete_gaussian(share)
        summed = single
        for _ in range(honest - 1):
            summed = np.convolve(summed, single)
        one = _discrete_gaussian(share * math.sqrt(honest), width=len(summed) // 2)
        near = one > 1e-12
        apart = np.abs(np.log(summed[near] / one[near])).max()
        assert apart <= distance_from_gaussian(share, honest)
        assert distance_from_gaussian(share, honest) < 1000 * apart


def renyi(one, other, order):
    """Rényi divergence of two distributions on the same points."""
    near = np.minimum(one, other) > 1e-250  # beyond, there are no digits left, and next to no weight
    terms = np.exp(order * np.log(one[near]) + (1 - order) * np.log(other[near]))
    return math.log(math.fsum(terms)) / (order - 1)


ORDERS = (1.01, 1.5, 2.0, 4.0, 8.0)


@pytest.mark.parametrize("honest", [2, 3, 5])
@pytest.mark.parametrize("share", [0.5, 0.55, 0.6, 0.7, 0.8, 1.0])
@pytest.mark.parametrize("moved", [1, 2])
def test_what_is_charged_covers_the_exact_divergence_of_a_sum_of_discrete_gaussians(share, honest, moved):
    """An oracle of Proposition 14 of Kairouz et al. (2021) that shares nothing with its proof: exact convolution."""
    summed, one = _discrete_gaussian(share), _discrete_gaussian(share)
    for _ in range(honest - 1):
        summed = np.convolve(summed, one)
    sigma = share * math.sqrt(honest)
    charged = float(charge(moved, sigma, distance_from_gaussian(share, honest)))
    for order in ORDERS:
        apart = renyi(summed[moved:], summed[:-moved], order)
        assert apart <= order * charged * (1 + 1e-9)


def test_a_charge_without_the_extra_term_would_be_too_small():
    """On a coarse lattice the sum of two discrete Gaussians is less private than one of the same variance."""
    share, honest = 0.5, 2
    one = _discrete_gaussian(share)
    summed = np.convolve(one, one)
    sigma = share * math.sqrt(honest)
    excess = [renyi(summed[1:], summed[:-1], order) / (order * float(charge(1, sigma))) for order in ORDERS]
    assert max(excess) > 1.001
    d = 3  # in several dimensions divergences add up, and the charge grows with √d·τ
    for order in ORDERS:
        apart = d * renyi(summed[1:], summed[:-1], order)
        assert apart <= order * float(charge(math.sqrt(d), sigma, slack_of(share, honest, d)))


def test_the_distance_vanishes_on_the_lattice_in_use_and_shows_on_a_coarse_one():
    assert slack_of(lattice.LEAST_UNITS, 50, 10_000) == 0.0
    assert slack_of(0.8, 5, 60) > 0.1
    with pytest.raises(PrivacyError, match="half a unit"):
        distance_from_gaussian(0.4, 2)
    with pytest.raises(PrivacyError, match="too coarse"):
        sum_sigma([1.0], [1e-4], slack_of(0.8, 5, 60))


@pytest.mark.parametrize("level", ["site", "masked"])
def test_a_dual_is_refused_in_python_and_in_a_config(level):
    with pytest.raises(PrivacyError, match=r'algorithm\.client = "gradient"'):
        Trust(level).check(PGFL())
    Trust(level).check(PGFL(client="gradient"))
    Trust(level).check(FedAvg(local_steps=3))
    Trust().check(PGFL())
    with pytest.raises(ConfigError, match=r'`algorithm\.client` = "gradient"'):
        parse({"objective": {"kind": "huber"}, "privacy": {"epsilon": 1.0, "x_norm": 1.0, "trust": level}})


def test_trust_without_a_guarantee_is_a_contradiction():
    with pytest.raises(PrivacyError, match="does not keep"):
        Privacy(phi0=1e-3, trust="site", guarantee="none")


def test_promises_differ_and_name_whom_they_hold_against():
    labels = {Trust(level).promise.label for level in ("local", "site", "masked")}
    assert len(labels) == 3
    assert all(label.startswith("zCDP for one replaced record, against everyone") for label in labels)
    assert "but the client's own site" in Trust("site").promise.label
    assert "at most 2 contributors" in Trust("masked", colluders=2).promise.label


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8), st.data())
def test_rounding_to_the_lattice_takes_neighbours_apart_by_no_more_than_is_counted(one, data):
    other = data.draw(st.lists(st.floats(-1e6, 1e6), min_size=len(one), max_size=len(one)))
    apart = lattice.from_lattice(lattice.to_lattice(one) - lattice.to_lattice(other))
    before = np.linalg.norm(np.subtract(one, other))
    assert np.linalg.norm(apart) <= lattice.widened(before, len(one)) * (1 + 1e-12)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e7])
def test_what_the_lattice_cannot_hold_is_refused(value):
    with pytest.raises(PrivacyError, match="nothing was released"):
        lattice.to_lattice([0.0, value])


def test_noise_on_the_lattice_has_the_deviation_that_is_stated():
    sigma = 1e-3
    drawn = lattice.from_lattice(lattice.with_noise(np.zeros((20, 100), dtype=np.int64), sigma))
    found = float(np.sqrt(np.mean(drawn**2)))
    assert 0.9 * sigma < found < 1.1 * sigma
    assert (drawn / lattice.STEP == np.rint(drawn / lattice.STEP)).all()
    with pytest.raises(PrivacyError, match="below"):
        lattice.with_noise(np.zeros(2, dtype=np.int64), lattice.STEP)


def _discrete_gaussian(sigma, width=60):
    at = np.arange(-width, width + 1)
    weights = np.exp(-(at**2) / (2 * sigma**2))
    return weights / weights.sum()
