"""Sums over clients and servers that are the same to the last bit in any order and on any number of processes.

Every number is rounded to a grid that is a power of two and coarse enough for all sums of such numbers to be exact;
what that leaves over is added up in the same way on a second, finer grid. Exact sums do not depend on their order, and
the two together hold as many digits as a sum in double precision can. The grid follows from the largest number and
from how many there are in the whole run, so it is the same in every process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pgfl.arrays import AnyArray, AnyFloats, Bools, Ints, Linear
from pgfl.simulate.communicator import SINGLE_PROCESS, Communicator
from pgfl.simulate.layout import Layout

DIGITS = 53
LEAST_EXPONENT = -800  # numbers below 2⁻⁸⁰⁰ share its grid


@dataclass(frozen=True)
class Grouping:
    """Rows that are added up in groups: the run of each, and how many rows a run has in all processes together."""

    run: Ints
    starts: Ints
    bits: Ints
    sums: Callable[[AnyFloats], AnyFloats]


class Totals:
    """Adds up what a layout's clients or pairs have, run by run or cluster by cluster, over all processes."""

    def __init__(self, layout: Layout, communicator: Communicator = SINGLE_PROCESS) -> None:
        self.layout, self._communicator = layout, communicator
        self.width = max(len(run.federation.cluster_ids) for run in layout.runs)
        self._client_run = np.repeat(np.arange(len(layout.runs)), [run.federation.size for run in layout.runs])
        sizes = [run.pairs.stop - run.pairs.start for run in layout.runs]
        self._pair_run = self._own(np.repeat(np.arange(len(layout.runs)), sizes))
        self._pair_group = self._pair_run * self.width + self._own(layout.pair_cluster)
        cluster = np.concatenate([run.federation.client_cluster[run.order] for run in layout.runs])
        self.client_group = self._client_run * self.width + cluster

    def added(self, values: AnyArray) -> AnyArray:
        """Return the sum of what all processes have; it is exact."""
        return self._communicator.sum(values)

    @cached_property
    def clients(self) -> Ints:
        """How many clients a run has."""
        return self.added(np.bincount(self._client_run, minlength=len(self.layout.runs)))

    @cached_property
    def pairs(self) -> Ints:
        """How many (server, cluster) pairs a run has."""
        return self.added(np.bincount(self._pair_run, minlength=len(self.layout.runs)))

    @cached_property
    def members(self) -> Ints:
        """How many clients a cluster has: (runs, clusters)."""
        return self._counted(self.client_group)

    def over_clients(self, values: AnyFloats) -> AnyFloats:
        """(runs,) from one number per client."""
        return self._add_up(values, self._clients_by_run)

    def over_clients_by_cluster(self, values: AnyFloats) -> AnyFloats:
        """(runs, clusters) from one number per client."""
        return self._add_up(values, self._clients_by_cluster).reshape(-1, self.width)

    def over_pairs(self, values: AnyFloats) -> AnyFloats:
        """(runs,) from one number per pair."""
        return self._add_up(self._own(values), self._pairs_by_run)

    def over_pairs_by_cluster(self, values: AnyFloats) -> AnyFloats:
        """(runs, clusters, d) from one row per pair."""
        return self._add_up(self._own(values), self._pairs_by_cluster).reshape(-1, self.width, values.shape[1])

    def pairs_by_cluster(self, chosen: Bools) -> Ints:
        """(runs, clusters): how many pairs are chosen."""
        return self._counted(self._pair_group[self._own(chosen)])

    def _own(self, values: AnyArray) -> AnyArray:
        return values[self.layout.own_pairs]

    def _counted(self, group: Ints) -> Ints:
        found = np.bincount(group, minlength=len(self.layout.runs) * self.width)
        return self.added(found).reshape(-1, self.width)

    @cached_property
    def _clients_by_run(self) -> Grouping:
        return _by_run(self._client_run, self.clients)

    @cached_property
    def _clients_by_cluster(self) -> Grouping:
        return self._by_group(self._client_run, self.client_group, self.clients)

    @cached_property
    def _pairs_by_run(self) -> Grouping:
        return _by_run(self._pair_run, self.pairs)

    @cached_property
    def _pairs_by_cluster(self) -> Grouping:
        return self._by_group(self._pair_run, self._pair_group, self.pairs)

    def _by_group(self, run: Ints, group: Ints, sizes: Ints) -> Grouping:
        groups = len(self.layout.runs) * self.width
        of_rows = Linear.from_entries(group, np.arange(len(run)), np.ones(len(run)), groups, len(run))

        def sums(values: AnyFloats) -> AnyFloats:
            return np.asarray(of_rows(values) if values.ndim == 2 else np.bincount(group, values, groups), dtype=float)

        return Grouping(run, _starts(run), _bits(sizes), sums)

    def _add_up(self, values: AnyFloats, by: Grouping) -> AnyFloats:
        rows = values.astype(np.float64, copy=False)
        with np.errstate(invalid="ignore", over="ignore"):
            sizes = np.abs(rows) if rows.ndim == 1 else np.abs(rows).max(axis=1)
            alone = len(by.starts) == 1
            largest = self._communicator.maximum(
                sizes.max(keepdims=True) if alone else np.maximum.reduceat(sizes, by.starts)
            )
            exponent = np.maximum(np.frexp(largest)[1], LEAST_EXPONENT)
            coarse = np.ldexp(1.5, exponent + by.bits - 1)
            fine = np.ldexp(1.5, exponent + 2 * by.bits - DIGITS - 2)
            if not alone:
                spread = by.run if rows.ndim == 1 else by.run[:, None]
                coarse, fine = coarse[spread], fine[spread]
            high = (rows + coarse) - coarse
            low = ((rows - high) + fine) - fine
            first, second = self.added(np.stack([by.sums(high), by.sums(low)]))
            return np.asarray(first + second)


def _by_run(run: Ints, sizes: Ints) -> Grouping:
    starts = _starts(run)
    return Grouping(run, starts, _bits(sizes), lambda values: np.add.reduceat(values, starts, axis=0))


def _starts(run: Ints) -> Ints:
    return np.flatnonzero(np.diff(run, prepend=-1))


def _bits(sizes: Ints) -> Ints:
    """n ≤ 2^bits, and at least 2: adding 1.5 · 2⁵² grids then rounds to the grid."""
    return np.maximum(np.ceil(np.log2(sizes)).astype(np.int64), 2)
