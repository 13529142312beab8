"""An account that adds charges up when somebody looks is one that adds each of them up at once, bit by bit."""

import numpy as np
import pytest

from pgfl.privacy.mechanism import NOTED, Account


class AtOnce:
    """Every charge is added when it is made, client by client."""

    def __init__(self, clients):
        self.releases, self.rho = [0] * clients, [0.0] * clients

    def charge(self, clients, phi):
        for client, spent in zip(clients.tolist(), np.broadcast_to(phi, len(clients)).tolist(), strict=True):
            self.releases[client] += 1
            self.rho[client] += spent


def assert_equal(account, expected, first="rho"):
    for name in (first, "rho", "releases"):
        np.testing.assert_array_equal(getattr(account, name), getattr(expected, name))


@pytest.mark.parametrize("clients", [1, 7, 300, NOTED, 2 * NOTED])
@pytest.mark.parametrize("looks", [0.0, 0.05, 1.0])
@pytest.mark.parametrize("prices", ["one", "each"])
@pytest.mark.parametrize("first", ["rho", "releases"])
def test_every_charge_is_there_whenever_somebody_looks(clients, looks, prices, first):
    random = np.random.default_rng(clients)
    account, expected = Account.empty(clients), AtOnce(clients)
    for _ in range(60):
        taking_part = np.flatnonzero(random.random(clients) < random.random())
        phi = random.lognormal(0.0, 3.0) if prices == "one" else random.lognormal(0.0, 3.0, len(taking_part))
        account.charge(taking_part, phi)
        expected.charge(taking_part, phi)
        if random.random() < looks:
            assert_equal(account, expected, first)
    assert_equal(account, expected, first)


def test_what_was_charged_does_not_change_with_the_callers_arrays():
    account, clients, phi = Account.empty(3), np.array([0, 2]), np.array([0.5, 0.25])
    account.charge(clients, phi)
    clients[:], phi[:] = 1, 0.0
    assert (account.rho.tolist(), account.releases.tolist()) == ([0.5, 0.0, 0.25], [1, 0, 1])


def test_interrupted_while_it_adds_up_an_account_has_lost_nothing(monkeypatch):
    account, expected, adding = Account.empty(2), AtOnce(2), Account._add
    for phi in (0.5, 0.25):
        account.charge(np.array([0, 1]), phi)
        expected.charge(np.array([0, 1]), phi)

    def interrupted(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(Account, "_add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        account.rho.sum()
    monkeypatch.setattr(Account, "_add", adding)
    assert_equal(account, expected)
