"""Sums that do not depend on order or split, and that are as exact as a sum in double precision can be."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pgfl.federation.synthetic import synthetic_regression
from pgfl.simulate.communicator import SingleProcess
from pgfl.simulate.layout import lay_out
from pgfl.simulate.totals import Totals

FEDERATIONS = [synthetic_regression(servers=4, clients_per_server=5, dimension=3, run=run) for run in range(3)]
ONE, ALL = lay_out(FEDERATIONS[:1]), lay_out(FEDERATIONS)
numbers = st.floats(-1e100, 1e100, allow_subnormal=False)


class OneOfTwo(SingleProcess):
    """One of two processes, given what the other one contributes."""

    def __init__(self, largest, other=0.0):
        self._largest, self._other, self.added_up = largest, other, []

    def maximum(self, values):
        return np.maximum(values, self._largest)

    def sum(self, values):
        if values.dtype.kind == "i":
            return values  # the number of clients is that of both
        self.added_up.append(values)
        return values + self._other


def on_two_processes(values, at):
    first, second = (np.where((np.arange(len(values)) < at) == mine, values, 0.0) for mine in (True, False))
    other = OneOfTwo(np.abs(first).max())
    Totals(ONE, other).over_clients(second)
    return Totals(ONE, OneOfTwo(np.abs(second).max(), other.added_up[0])).over_clients(first)


@given(arrays(float, ONE.clients, elements=numbers), st.permutations(range(ONE.clients)), st.integers(0, ONE.clients))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_neither_order_nor_split_changes_a_bit(values, order, at):
    total = Totals(ONE).over_clients(values)
    assert total.tobytes() == Totals(ONE).over_clients(values[order]).tobytes()
    assert total.tobytes() == on_two_processes(values, at).tobytes()


@given(arrays(float, ONE.clients, elements=numbers))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_a_sum_is_as_exact_as_double_precision_allows(values):
    exact = math.fsum(values)
    error = abs(float(Totals(ONE).over_clients(values)[0]) - exact)
    assert error <= np.spacing(abs(exact)) + 1e-25 * np.abs(values).max() + 2.0**-890


@pytest.mark.parametrize("scale", [1e-300, 1e-100, 1.0, 1e200])
def test_any_scale_will_do(scale):
    values = scale * np.random.default_rng(1).normal(size=ONE.clients)
    assert Totals(ONE).over_clients(values)[0] == pytest.approx(math.fsum(values), rel=1e-15)


def test_what_is_not_finite_stays_so():
    values = np.ones(ONE.clients)
    values[3] = np.inf
    assert not np.isfinite(Totals(ONE).over_clients(values)).any()


def test_a_run_sums_to_the_same_bits_in_any_batch():
    rng, alone = np.random.default_rng(2), [lay_out([federation]) for federation in FEDERATIONS]
    per_client, per_pair = rng.normal(size=ALL.clients) * 1e3, rng.normal(size=(ALL.pairs, 3))
    per_client[: ONE.clients] *= 1e9
    together = Totals(ALL)
    for number, (layout, run) in enumerate(zip(alone, ALL.runs, strict=True)):
        own = Totals(layout)
        assert own.over_clients(per_client[run.clients])[0] == together.over_clients(per_client)[number]
        by_cluster = own.over_clients_by_cluster(per_client[run.clients])[0]
        assert (by_cluster == together.over_clients_by_cluster(per_client)[number]).all()
        assert (
            own.over_pairs_by_cluster(per_pair[run.pairs])[0] == together.over_pairs_by_cluster(per_pair)[number]
        ).all()


def test_groups_are_clusters_and_runs():
    totals = Totals(ALL)
    assert totals.clients.tolist() == [20, 20, 20]
    assert (totals.members.sum(axis=1) == totals.clients).all()
    ones = totals.over_clients_by_cluster(np.ones(ALL.clients))
    assert (ones == totals.members).all()
    chosen = np.arange(ALL.pairs) % 2 == 0
    assert totals.pairs_by_cluster(chosen).sum() == np.count_nonzero(chosen)
