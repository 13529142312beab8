"""What every server knows, round by round, and the sums over it that the algorithms ask for.

A server has a model for a cluster once an estimate has reached it. Who has what depends on the graph and on who took
part, never on values, so it is worked out here with NumPy whatever library holds the models.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgfl.algorithms.algorithms import Algorithm
from pgfl.algorithms.roles import exhausted, rests
from pgfl.algorithms.server_rules import Halves
from pgfl.arrays import AnyArray, AnyFloats, Array, Bools, DTypeLike, Floats, Ints, Linear, Namespace, column, pick
from pgfl.simulate.layout import Layout

Column = Array  # one number for each pair, or one for all


class AtServers:
    """Rows of pairs by server and cluster, and back."""

    server_rows: Ints  # the pair of every server and cluster, or one past the last
    place_at_server: Ints  # of every pair, in `server_rows`

    def at_servers(self, values: Array) -> Array:
        """Return rows by server and cluster, (S, Q, …)."""
        xp, shape = values.__array_namespace__(), self.server_rows.shape
        padded = xp.concat([values, 0.0 * values[:1, ...]])
        return xp.reshape(pick(padded, self.server_rows.reshape(-1)), (*shape, *values.shape[1:]))

    def at_pairs(self, values: Array) -> Array:
        """Return the rows of pairs again."""
        xp = values.__array_namespace__()
        return pick(xp.reshape(values, (-1, *values.shape[2:])), self.place_at_server)


@dataclass(frozen=True)
class NeighbourhoodOfPairs(AtServers):
    """A `Neighbourhood` over flat pairs: linear operators, and columns that count."""

    mixing: Linear
    neighbours: Linear
    adoption: Column
    degree: Column
    adopting: Column
    share: Column
    cluster_sum: Linear
    cluster_mean: Linear
    learns_here: Column
    nearby_sum: Linear
    nearby_own: Linear
    nearby_scale: Column
    learns_nearby: Column
    learning: Array
    server_rows: Ints
    place_at_server: Ints
    halves: Halves | None = None

    def average(self, values: Array) -> Array:
        """Return the mixing average over p ∈ 𝒩_s that have the cluster."""
        return self.mixing(values)

    def neighbour_sum(self, values: Array) -> Array:
        """Σ over p ∈ 𝒩_s⁻ that have the cluster, where s itself has it."""
        return self.neighbours(values)

    def neighbour_mean(self, values: Array) -> Array:
        """Return the plain mean over p ∈ 𝒩_s⁻ that have the cluster, for a server that has not."""
        return self.adoption * self.nearby_own(values)

    def other_clusters(self, values: Array) -> tuple[Array, Array]:
        """Return the mean over r ≠ q that s has."""
        return self.cluster_mean(values), self.learns_here

    def other_clusters_nearby(self, values: Array) -> tuple[Array, Array]:
        """Return the mean over r ≠ q and p ∈ 𝒩_s."""
        summed = self.nearby_sum(self.cluster_sum(values)) - self.nearby_own(values)
        return self.nearby_scale * summed, self.learns_nearby


class Network(AtServers):
    """Knowledge spreading over the server graph."""

    def __init__(self, layout: Layout, algorithm: Algorithm, dtype: DTypeLike = np.float64, xp: Namespace = np) -> None:
        self.layout, self.algorithm, self.dtype, self.xp = layout, algorithm, dtype, xp
        self.weights = layout.mixing(algorithm.mixing)
        self.known = np.full(layout.pairs, algorithm.server_rule.starts_everywhere)
        self._off_diagonal = (self.weights.rows != self.weights.columns).astype(float)
        self.share = self._column(layout.shares)
        self.able = self._has_clients = layout.pair_members > 0
        self.exhausted = self.rested = np.zeros(layout.pairs, dtype=bool)
        self._noted: tuple[Bools | None, Bools] = (None, self.rested)  # what is able and exhausted was made from
        self._resting_of: tuple[Bools, Bools, Bools] | None = None
        self._cached: tuple[bytes, NeighbourhoodOfPairs, Bools] | None = None
        self.halves: Halves | None = None  # of this round, for a rule that compares them
        compared = algorithm.server_rule.compares_halves
        self.server_rows, self.place_at_server = _server_grid(layout) if compared else (layout.pair_server[:0],) * 2

    @property
    def known(self) -> Bools:
        """Which pairs have a model."""
        return self._known

    @known.setter
    def known(self, known: Bools) -> None:
        self._known, self.complete = known, bool(known.all())

    @property
    def learning(self) -> Array:
        """1 where a server has a cluster that does not rest, before a round; a column."""
        return self._flags(self.known & ~self.rested)

    def _flags(self, flags: Bools) -> Array:
        return self.xp.asarray(flags.astype(self.dtype)[:, None])

    def neighbourhood(self, contributing: Bools) -> NeighbourhoodOfPairs:
        """This round's neighbourhood, given which pairs have a participant; what is known then spreads."""
        self.rested = resting = self._resting()
        key = b"all" if self.complete else self.known.tobytes() + contributing.tobytes()
        key += resting.tobytes() if np.count_nonzero(resting) else b""
        if self._cached is None or self._cached[0] != key:
            self._cached = (key, *self._work_out(contributing, resting))
        _, neighbourhood, known = self._cached
        if known is not self._known:
            self.known = known
        return neighbourhood

    def published(self, contributing: Bools) -> Bools:
        """Return which pairs send a model to their neighbours (with the one-step rule, that of the round before)."""
        return self.known if self.algorithm.server_rule.publishes_last_round else self.known | contributing

    def note_spent(self, spent: Bools | None) -> None:
        """Note, before a round, which clients can never contribute again, if any."""
        if spent is self._noted[0] and self.rested is self._noted[1]:
            return
        self._noted = (spent, self.rested)
        if (spent is not None and spent.any()) or np.count_nonzero(self.rested):
            left = self.layout.client_pair if spent is None else self.layout.client_pair[~spent]
            self.able = _kept_if_equal(self.able, np.bincount(left, minlength=self.layout.pairs) > 0)
            self.exhausted = _kept_if_equal(self.exhausted, exhausted(self._has_clients, self.able, self.rested))

    def status(self, contributing: Bools) -> Ints:
        """Return what other processes must know of each pair as bits: has a model to send, is able, is exhausted."""
        return np.asarray(self.published(contributing) + 2 * self.able + 4 * self.exhausted, dtype=np.int64)

    def receive(self, pairs: Ints, status: Ints) -> None:
        """Note the status of the borrowed pairs, as their owners sent it."""
        self.able, self.exhausted = (
            _replaced(flags, pairs, status & bit > 0) for flags, bit in ((self.able, 2), (self.exhausted, 4))
        )
        if not self.complete:
            self.known = _replaced(self.known, pairs, status & 1 > 0)

    def _resting(self) -> Bools:
        if not np.count_nonzero(self.exhausted):
            return self.exhausted
        if (of := self._resting_of) is None or of[0] is not self.able or of[1] is not self.exhausted:
            resting = rests(self._anywhere_near(self.able), self._anywhere_near(self.exhausted))
            self._resting_of = of = (self.able, self.exhausted, resting)
        return of[2]

    def _anywhere_near(self, flags: Bools) -> Bools:
        """Return where a flag is set at a server of the closed neighbourhood."""
        return _row_sums(self.weights, flags[self.weights.columns].astype(float)) > 0

    def _work_out(self, contributing: Bools, resting: Bools) -> tuple[NeighbourhoodOfPairs, Bools]:
        layout, pattern = self.layout, self.weights
        one_step = self.algorithm.server_rule.publishes_last_round
        publishing = self.published(contributing)
        sent = publishing[pattern.columns].astype(float)
        total = _row_sums(pattern, pattern.values * sent)
        complete = _row_sums(pattern, 1.0 - sent) == 0
        scale = np.where(complete, 1.0, 1.0 / np.where(total > 0, total, 1.0))
        reached = _row_sums(pattern, sent) > 0
        both = sent * self._off_diagonal * publishing[pattern.rows]
        neighbours_having = _row_sums(pattern, sent * self._off_diagonal)
        adopting = one_step & ~publishing & ~contributing & (neighbours_having > 0)
        known = (publishing | contributing | adopting) if one_step else reached
        present = publishing if one_step else known
        at_server = layout.server_pairs
        cluster_sum = at_server.revalued(present[at_server.columns].astype(float))
        others_here = _row_sums(at_server, cluster_sum.values) - present
        others = at_server.rows != at_server.columns
        per_other = np.where(others_here > 0, 1.0 / np.maximum(others_here, 1.0), 0.0)
        others_nearby = _row_sums(pattern, others_here[pattern.columns])
        unit = pattern.revalued(sent)
        neighbourhood = NeighbourhoodOfPairs(
            mixing=self._typed(pattern.revalued(pattern.values * sent * scale[pattern.rows])),
            neighbours=self._typed(pattern.revalued(both)),
            adoption=self._column(np.where(adopting, 1.0 / np.maximum(neighbours_having, 1.0), 0.0)),
            degree=self._column(_row_sums(pattern, both)),
            adopting=self._column(adopting),
            share=self.share,
            cluster_sum=self._typed(cluster_sum),
            cluster_mean=self._typed(at_server.revalued(cluster_sum.values * others * per_other[at_server.rows])),
            learns_here=self._column((others_here > 0) & ~resting),
            nearby_sum=self._typed(pattern.revalued(np.ones(len(pattern.values)))),
            nearby_own=self._typed(unit),
            nearby_scale=self._column(np.where(others_nearby > 0, 1.0 / np.maximum(others_nearby, 1.0), 0.0)),
            learns_nearby=self._column((others_nearby > 0) & ~resting),
            learning=self._flags(known & ~resting),
            server_rows=self.server_rows,
            place_at_server=self.place_at_server,
        )
        return neighbourhood, known

    def _typed(self, operator: Linear) -> Linear:
        return operator.revalued(operator.values.astype(self.dtype))

    def _column(self, values: AnyArray) -> Column:
        return column(np.asarray(values, dtype=self.dtype), self.xp)


def _server_grid(layout: Layout) -> tuple[Ints, Ints]:
    """Return the pair of every server and cluster, one past the last where there is none; and every pair's place."""
    first = np.searchsorted(layout.pair_server, np.arange(layout.servers))
    rank = np.arange(layout.pairs) - first[layout.pair_server]
    width = int(rank.max(initial=0)) + 1
    rows = np.full((layout.servers, width), layout.pairs)
    rows[layout.pair_server, rank] = np.arange(layout.pairs)
    return rows, layout.pair_server * width + rank


def _kept_if_equal(flags: Bools, new: Bools) -> Bools:
    """Return the old array where nothing has changed, so that what follows from it need not be worked out again."""
    return flags if np.array_equal(flags, new) else new


def _replaced(flags: Bools, places: Ints, values: Bools) -> Bools:
    changed = flags.copy()
    changed[places] = values
    return changed


def _row_sums(pattern: Linear, values: AnyFloats) -> Floats:
    return np.asarray(np.bincount(pattern.rows, weights=values, minlength=len(pattern.indptr) - 1), dtype=float)
