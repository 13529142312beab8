"""One budget for a million simulated clients and for one device."""

import numpy as np
import pytest

from pgfl.errors import PrivacyError
from pgfl.privacy.budget import Budget
from pgfl.privacy.ledger.rows import Policy
from pgfl.privacy.request import Privacy

CAPS = [{}, {"max_releases": 5}, {"rho_budget": 4e-3}, {"max_releases": 5, "rho_budget": 4e-3}]


@pytest.mark.parametrize("cap", CAPS)
def test_many_accounts_and_one_are_decided_alike(cap):
    budget = Budget(1e-3, 0.9, 1e-5, last=8, **cap)
    alone = Budget(1e-3, 0.9, 1e-5, **cap)
    releases = np.arange(9)
    rho = np.append(0.0, np.cumsum(budget.phi(np.arange(1, 9))))
    many = budget.affordable(rho, releases, clients=releases)
    assert 0 < many.sum() < 9
    for made in range(8):
        assert budget.affordable(rho[made], made) == many[made] == alone.affordable(rho[made], made)
        assert budget.price(made) == alone.price(made) == budget.price(releases, clients=releases)[made]
    assert not many[8]
    assert np.isinf(budget.price(8))


@pytest.mark.parametrize("asked", [{"phi0": 1e-3}, {"phi1": 1e-3}, {"epsilon": 2.0}])
def test_a_device_promises_what_a_simulation_by_release_plans(asked):
    privacy = Privacy(**asked, zeta=0.9, max_releases=20, x_norm=1.0, y_bound=2.0)
    planned = Privacy(**asked, zeta=0.9, max_releases=20, index="release").budget(rounds=20)
    policy = privacy.policy()
    assert policy == Policy.of(planned, {"x_norm": 1.0, "y_bound": 2.0, "w_norm": None})
    assert float(policy.budget.phi(7)) == float(planned.phi(7))
    assert policy.budget.sigma(0.3, 20) == planned.sigma(0.3, 20)


def test_a_device_needs_an_end():
    with pytest.raises(PrivacyError, match="budget that ends"):
        Privacy(epsilon=2.0, x_norm=1.0).policy()
    with pytest.raises(PrivacyError, match="by release"):
        Policy.of(Budget(1e-3, 0.9, 1e-5, index="round", last=5, max_releases=5))
    with pytest.raises(PrivacyError, match="no last release"):
        Budget(1e-3, 0.9, 1e-5, rho_budget=1.0).figures()
    with pytest.raises(PrivacyError, match="number of rounds"):
        Budget(1e-3, 0.9, 1e-5, index="round")


def test_figures_are_of_the_dearest_releases_that_are_allowed():
    budget = Budget(1e-3, 0.9, 1e-5, max_releases=3, index="round", last=10)
    figures = budget.figures()
    assert figures["rho"] == pytest.approx(float(budget.phi([8, 9, 10]).sum()), rel=1e-12)
    assert (figures["max_releases"], figures["last_phi"]) == (3, float(budget.phi(10)))


@pytest.mark.parametrize("asked", [{"phi0": 1e-3, "guarantee": "none"}, {"epsilon": 2.0, "update_norm": 1.0}])
def test_a_device_refuses_what_only_a_simulation_may_ask(asked):
    with pytest.raises(PrivacyError, match="A device guarantees the solution itself"):
        Privacy(**asked, max_releases=5, x_norm=1.0).policy()


@pytest.mark.parametrize("index", ["round", "release"])
def test_at_pace_is_what_an_owner_states_for_fewer_releases(index):
    """`max_releases` is a part of the rounds, and `zeta` to the power of that part."""
    whole = Budget.from_target(epsilon=4.0, delta=1e-5, zeta=0.99, max_releases=208, index=index, rounds=208)
    stated = Budget.from_target(epsilon=4.0, delta=1e-5, zeta=0.99**8, max_releases=26)
    paced, numbers = whole.at_pace(8), np.arange(1, 27)
    assert (paced.index, paced.last, paced.max_releases) == ("release", 26, 26)
    np.testing.assert_allclose(paced.phi(numbers), stated.phi(numbers), rtol=1e-9)
    np.testing.assert_allclose(paced.phi(2), whole.phi(np.arange(9, 17)).sum(), rtol=1e-9)


def test_at_pace_never_leaves_a_client_without_a_release_or_with_more_to_spend():
    schedule = Budget(phi0=1e-3, zeta=0.9, delta=1e-5, index="round", last=5)
    assert schedule.at_pace(10**6).last == 1
    np.testing.assert_allclose(schedule.at_pace(10**6).phi(1), schedule.phi(np.arange(1, 6)).sum())
    assert schedule.at_pace(2).phi(np.arange(1, 3)).sum() < schedule.phi(np.arange(1, 6)).sum()
