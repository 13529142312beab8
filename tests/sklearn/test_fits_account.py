"""The account of several fits, and where their rows belong."""

import copy
import pickle
from threading import Thread

import numpy as np
import pytest
from sklearn.base import clone

from pgfl.errors import BudgetSpent, PrivacyError
from pgfl.privacy.accounting import exact_epsilon, exact_rho
from pgfl.sklearn import PrivacyAccount
from pgfl.sklearn.places import federation_of


def test_rho_adds_up_and_epsilon_follows_from_the_sum():
    account = PrivacyAccount(delta=1e-6)
    account.charge(1.0)
    account.charge(2.0, 1e-5)
    expected = exact_rho(1.0, 1e-6) + exact_rho(2.0, 1e-5)
    assert account.rho == pytest.approx(expected)
    assert account.epsilon == pytest.approx(float(exact_epsilon(expected, 1e-6)))
    assert repr(account) == f"<PrivacyAccount: 2 fits, ε = {account.epsilon:.4g} at δ = 1e-06>"


def test_a_refused_charge_spends_nothing():
    account = PrivacyAccount(epsilon=2.0)
    account.charge(2.0)
    with pytest.raises(BudgetSpent, match="past epsilon = 2"):
        account.charge(0.1)
    assert account.fits == 1


def test_copies_are_the_account_itself_and_pickles_are_detached():
    account = PrivacyAccount()
    assert clone(account, safe=False) is copy.copy(account) is copy.deepcopy(account) is account
    again = pickle.loads(pickle.dumps(account))
    with pytest.raises(PrivacyError, match="copy from another process"):
        again.charge(1.0)
    assert again.fits == account.fits == 0


def test_threads_add_up_too():
    account = PrivacyAccount()
    threads = [Thread(target=lambda: [account.charge(1.0) for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert account.fits == 80
    assert account.rho == pytest.approx(80 * exact_rho(1.0, 1e-5))


def test_without_clients_every_server_has_one_per_cluster():
    features, targets = np.eye(4), np.ones(4)
    found = federation_of(features, targets, None, ["s", "s", "t", "t"], ["a", "b", "a", "a"], "complete")
    assert found.client_ids == ("s/a", "s/b", "t/a")
    assert found.counts.tolist() == [1, 1, 2]
    assert found.graph.edges.tolist() == [[0, 1]]
    plain = federation_of(features, targets, None, None, None, "complete")
    assert (plain.client_ids, plain.server_ids, plain.cluster_ids) == (("server/all",), ("server",), ("all",))
    edges = federation_of(features, targets, [1, 2, 3, 4], ["s", "s", "t", "u"], None, [("s", "u")])
    assert (edges.client_ids, edges.graph.edges.tolist()) == (("1", "2", "3", "4"), [[0, 2]])
