"""What every server knows, round by round, and the sums over it that the algorithms ask for.

A server has a model for a cluster once an estimate has reached it. Who has what depends on the graph and on who took
part, never on values, so it is worked out here with NumPy whatever library holds the models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgfl.arrays import Linear, column
from pgfl.core.algorithms import Algorithm
from pgfl.simulate.flat_layout import Layout

Array = Any
Mask = NDArray[np.bool_]
Column = Any  # a number a pair, or one for all


@dataclass(frozen=True)
class NeighbourhoodOfPairs:
    """A `Neighbourhood` over flat pairs: linear operators, and columns that count."""

    mixing: Linear
    neighbours: Linear
    heard: Column
    degree: Column
    adopting: Column
    share: Column
    cluster_sum: Linear
    cluster_mean: Linear
    any_cluster: Column
    around_sum: Linear
    around_own: Linear
    around_scale: Column
    any_around: Column

    def average(self, values: Array) -> Array:
        """The mixing average over p ∈ 𝒩_s that have the cluster."""
        return self.mixing(values)

    def neighbour_sum(self, values: Array) -> Array:
        """Σ over p ∈ 𝒩_s⁻ that have the cluster, where s itself has it."""
        return self.neighbours(values)

    def neighbour_mean(self, values: Array) -> Array:
        """The plain mean over p ∈ 𝒩_s⁻ that have the cluster, for a server that has not."""
        return self.heard * self.around_own(values)

    def other_clusters(self, values: Array) -> tuple[Array, Array]:
        """The mean over r ≠ q that s has."""
        return self.cluster_mean(values), self.any_cluster

    def other_clusters_nearby(self, values: Array) -> tuple[Array, Array]:
        """The mean over r ≠ q and p ∈ 𝒩_s."""
        summed = self.around_sum(self.cluster_sum(values)) - self.around_own(values)
        return self.around_scale * summed, self.any_around


class Network:
    """Knowledge spreading over the server graph."""

    def __init__(self, layout: Layout, algorithm: Algorithm, dtype: Any = np.float64, xp: Any = np) -> None:
        self.layout, self.algorithm, self.dtype, self.xp = layout, algorithm, dtype, xp
        self.weights = layout.mixing(algorithm.mixing)
        self.known = np.full(layout.pairs, algorithm.starts_everywhere)
        self._off_diagonal = (self.weights.rows != self.weights.columns).astype(float)
        self.share = self._column(layout.shares)
        self._cached: tuple[bytes, NeighbourhoodOfPairs, Mask] | None = None

    @property
    def known(self) -> Mask:
        """Which pairs have a model."""
        return self._known

    @known.setter
    def known(self, known: Mask) -> None:
        self._known, self.complete = known, bool(known.all())

    def neighbourhood(self, contributing: Mask) -> NeighbourhoodOfPairs:
        """This round's neighbourhood, given which pairs have a participant; what is known then spreads."""
        key = b"all" if self.complete else self.known.tobytes() + contributing.tobytes()
        if self._cached is None or self._cached[0] != key:
            self._cached = (key, *self._work_out(contributing))
        _, neighbourhood, known = self._cached
        if known is not self._known:
            self.known = known
        return neighbourhood

    def published(self, contributing: Mask) -> Mask:
        """Which pairs tell their neighbours a model this round; the one-step rule tells that of the round before."""
        return self.known if self.algorithm.publishes_last_round else self.known | contributing

    def _work_out(self, contributing: Mask) -> tuple[NeighbourhoodOfPairs, Mask]:
        layout, pattern = self.layout, self.weights
        one_step = self.algorithm.publishes_last_round
        published = self.published(contributing)
        audible = published[pattern.columns].astype(float)
        total = _row_sums(pattern, pattern.values * audible)
        complete = _row_sums(pattern, 1.0 - audible) == 0
        scale = np.where(complete, 1.0, 1.0 / np.where(total > 0, total, 1.0))
        reached = _row_sums(pattern, audible) > 0
        both = audible * self._off_diagonal * published[pattern.rows]
        neighbours_heard = _row_sums(pattern, audible * self._off_diagonal)
        adopting = one_step & ~published & ~contributing & (neighbours_heard > 0)
        known = (published | contributing | adopting) if one_step else reached
        present = published if one_step else known
        at_server = layout.server_pairs
        cluster_sum = at_server.revalued(present[at_server.columns].astype(float))
        others_here = _row_sums(at_server, cluster_sum.values) - present
        others = at_server.rows != at_server.columns
        per_other = np.where(others_here > 0, 1.0 / np.maximum(others_here, 1.0), 0.0)
        others_around = _row_sums(pattern, others_here[pattern.columns])
        unit = pattern.revalued(audible)
        neighbourhood = NeighbourhoodOfPairs(
            mixing=self._typed(pattern.revalued(pattern.values * audible * scale[pattern.rows])),
            neighbours=self._typed(pattern.revalued(both)),
            heard=self._column(np.where(adopting, 1.0 / np.maximum(neighbours_heard, 1.0), 0.0)),
            degree=self._column(_row_sums(pattern, both)),
            adopting=self._column(adopting),
            share=self.share,
            cluster_sum=self._typed(cluster_sum),
            cluster_mean=self._typed(at_server.revalued(cluster_sum.values * others * per_other[at_server.rows])),
            any_cluster=self._column(others_here > 0),
            around_sum=self._typed(pattern.revalued(np.ones(len(pattern.values)))),
            around_own=self._typed(unit),
            around_scale=self._column(np.where(others_around > 0, 1.0 / np.maximum(others_around, 1.0), 0.0)),
            any_around=self._column(others_around > 0),
        )
        return neighbourhood, known

    def _typed(self, operator: Linear) -> Linear:
        return operator.revalued(operator.values.astype(self.dtype))

    def _column(self, values: NDArray[Any]) -> Column:
        return column(np.asarray(values, dtype=self.dtype), self.xp)


def _row_sums(pattern: Linear, values: NDArray[np.floating]) -> NDArray[np.float64]:
    return np.asarray(np.bincount(pattern.rows, weights=values, minlength=len(pattern.indptr) - 1), dtype=float)
