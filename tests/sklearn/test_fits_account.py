"""The account of several fits, and where their rows belong."""

import copy
import os
import pickle
from contextlib import suppress
from threading import Thread

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from pgfl.errors import BudgetSpent, PrivacyError
from pgfl.privacy.accounting import exact_epsilon, exact_rho
from pgfl.sklearn import PGFLRegressor, PrivacyAccount
from pgfl.sklearn.arguments import federation_of
from tests.contest import Contest


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


@pytest.mark.forks
def test_a_process_that_was_forked_does_not_charge_a_copy_of_the_account():
    """What it spends would be forgotten with it."""
    account = PrivacyAccount()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            account.charge(1.0)
            os.write(writing, b"charged")
        except PrivacyError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert b"copy from another process" in os.read(reading, 1000)
    account.charge(1.0)
    assert account.fits == 1


def test_threads_add_up_too():
    account = PrivacyAccount()
    threads = [Thread(target=lambda: [account.charge(1.0) for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert account.fits == 80
    assert account.rho == pytest.approx(80 * exact_rho(1.0, 1e-5))


@pytest.mark.parametrize(("limit", "read", "fits"), [(1.0, 1, 1), (8.0, 2, 2)], ids=["checked", "added"])
def test_a_charge_waits_for_the_one_before_it(limit, read, fits):
    """The sum is read to be checked, and again to be added to; a second charge gets in after neither."""
    account, reads = PrivacyAccount(epsilon=limit), []

    def charge():
        with suppress(BudgetSpent):
            account.charge(1.0)

    contest = Contest(account._lock, charge)

    class Read(float):
        def __add__(self, other):
            reads.append(self)
            if len(reads) == read:
                contest.begin()
            return float(self) + other

    account._lock, account.rho = contest, Read(0.0)
    account.charge(1.0)
    contest.finish()
    assert account.fits == fits
    assert account.rho == pytest.approx(fits * exact_rho(1.0, 1e-5))


def test_an_estimator_does_not_forget_its_fits_in_another_account():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, size=(30, 2)), rng.uniform(-1, 1, size=30)
    model = PGFLRegressor(
        epsilon=1.0, feature_bounds=(-1, 1), target_bounds=(-1, 1), objective="huber", rounds=2, random_state=0
    )
    model.fit(X, y)
    with pytest.raises(PrivacyError, match="in another account"):
        model.set_params(account=PrivacyAccount()).fit(X, y)
    model.set_params(account=model.account_).fit(X, y)
    assert model.account_.fits == 2


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.lists(st.lists(st.sampled_from(["", "a", "b", "c"]), min_size=12, max_size=12), min_size=1, max_size=3))
@pytest.mark.filterwarnings("ignore")
def test_no_record_has_lost_more_in_all_fits_than_the_account_says(history):
    """Records split, merge, are renamed, leave and come back between fits of one estimator."""
    rng = np.random.default_rng(1)
    X, y, lost = rng.uniform(-1, 1, size=(12, 2)), rng.uniform(-1, 1, size=12), np.zeros(12)
    model = PGFLRegressor(
        epsilon=1.0, feature_bounds=(-1, 1), target_bounds=(-1, 1), objective="huber", rounds=2, random_state=0
    )
    for clients in history:
        held = np.array([place for place, name in enumerate(clients) if name])
        if not len(held):
            continue
        names = [clients[place] for place in held]
        model.fit(X[held], y[held], client=names)
        table = model.result_.privacy[0]
        spent = dict(zip(table["client"].tolist(), table["rho"].tolist(), strict=True))
        lost[held] += [spent[name] for name in names]
        assert 0 < lost.max() <= model.account_.rho * (1 + 1e-6)


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
