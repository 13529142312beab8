"""Noise that the contributors of a pair share: who can contribute, the σ of a pair's sum, and the noise itself.

`SharedNoise` is what an account needs to know of it. A `PairNoise` turns the models of a pair's contributors into the
noised mean that is published; the noise of the mean is that of the sum, divided by the number of contributors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from pgfl.array_types import AnyFloats, AnyInts, Bools, Floats, Ints
from pgfl.errors import PrivacyError
from pgfl.privacy import lattice
from pgfl.privacy.trust import Trust, charge, slack_of, sum_sigma

Normals = Callable[[Any, int, int], AnyFloats]
Contributions = Callable[[Trust, lattice.Points, float], lattice.Points]


@dataclass(frozen=True, eq=False)
class SharedNoise:
    """The pairs of all clients, and what their trust makes of them.

    `most` is how many clients of a server take part in a round at most; `dimension` the length of a model where sums
    are made on the lattice, else 0.
    """

    trust: Trust
    pair: Ints
    most: int | None = None
    dimension: int = 0

    def able(self, clients: AnyInts) -> Bools:
        """Who of `clients`, if they are all that contribute, belongs to a pair that can take part."""
        pair = self.pair[clients]
        return np.asarray(self._takes_part[np.bincount(pair, minlength=1)[pair]])

    def ever_able(self, left: Bools) -> Bools:
        """Which clients belong to a pair that can take part again, given who can still pay."""
        counts = np.bincount(self.pair[left], minlength=self._pairs)
        return np.asarray(
            left & self._takes_part[counts if self.most is None else np.minimum(counts, self.most)][self.pair]
        )

    def sigma(self, clients: AnyInts, sensitivity: Floats, price: Floats | float) -> Floats:
        """σ of the sum of each client's pair: the largest that one of its contributors asks for."""
        pair, asked = self.pair[clients], sum_sigma(sensitivity, price, self.slack)
        largest = np.zeros(self._pairs)
        np.maximum.at(largest, pair, asked)
        return np.asarray(largest[pair])

    def charges(self, clients: AnyInts, sensitivity: Floats, sigma: Floats) -> Floats:
        """What each client is charged, with its own Δ and its pair's σ."""
        return charge(sensitivity, sigma, self.slack)

    def variance_of_means(self, clients: AnyInts, asked: Floats, share: Floats) -> Floats:
        """Each contributor's part of the variance of its pair's mean, given the deviations that they ask for."""
        largest, pair = np.zeros(self._pairs), self.pair[clients]
        np.maximum.at(largest, pair, asked)
        sizes, place = np.unique(np.rint(1.0 / share).astype(np.int64), return_inverse=True)
        excess = np.array([self.trust.excess(size) for size in sizes.tolist()])[place]
        return np.asarray(excess * share**3 * largest[pair] ** 2)

    @cached_property
    def slack(self) -> float:
        """What a sum of shares on the lattice adds to √(2φ); 0 at the least deviation that is drawn."""
        honest = self._largest_honest
        return slack_of(lattice.LEAST_UNITS, honest, self.dimension) if self.dimension and honest > 1 else 0.0

    @property
    def least_share(self) -> float:
        """The least deviation of a share over that of its sum."""
        return float(1.0 / np.sqrt(self._largest_honest)) if self.trust.level == "masked" else 1.0

    @cached_property
    def _largest_honest(self) -> int:
        invited = range(1, self._largest + 1)
        return max([1, *(self.trust.honest(n) for n in invited if self.trust.takes_part(n))])

    @cached_property
    def _pairs(self) -> int:
        return int(self.pair.max()) + 1

    @cached_property
    def _largest(self) -> int:
        return int(np.bincount(self.pair).max())

    @cached_property
    def _takes_part(self) -> Bools:
        return np.array([self.trust.takes_part(invited) for invited in range(self._largest + 1)])


class PairNoise(Protocol):
    """Releases the means of pairs."""

    def check(self, sigma: float) -> None:
        """Refuse a σ of a sum that this source cannot draw as stated."""

    def release(
        self, models: AnyFloats, means: AnyFloats, starts: AnyInts, sigma: Floats, pairs: AnyInts, round: int
    ) -> Floats:
        """The noised means of `pairs`, (P, d).

        `models` (A, d) are those of all contributors, pair after pair, `starts` where each pair begins, and `means`
        (P, d) what they come to; σ (P,) is that of the sum of each pair.
        """


class SeededPairNoise:
    """Reproducible noise on the mean, all shares drawn at once: for simulations only."""

    def __init__(self, trust: Trust, normals: Normals) -> None:
        self._trust, self.normals = trust, normals
        self._excess: Floats = np.empty(0)  # by the number of contributors, as far as it was needed

    def check(self, sigma: float) -> None:
        """Any positive number will do."""

    def release(
        self, models: AnyFloats, means: AnyFloats, starts: AnyInts, sigma: Floats, pairs: AnyInts, round: int
    ) -> Floats:
        """Add N(0, excess · σ²/n² I) to every mean."""
        noise = self.normals(pairs, round, means.shape[1])
        if noise.shape != means.shape:
            raise PrivacyError(f"The noise has shape {noise.shape} and the means {means.shape}; nothing was released.")
        return np.asarray(means + noise * self.deviations(sigma, _contributors(starts, len(models)))[:, None])

    def deviations(self, sigma: Floats, counts: Ints) -> Floats:
        """√excess · σ/n: the deviation of each pair's mean, given that of its sum and its number of contributors."""
        return np.asarray(sigma * np.sqrt(self._excess_of(counts)) / counts)

    def _excess_of(self, counts: Ints) -> Floats:
        most = int(counts.max(initial=0))
        if len(self._excess) <= most:
            trust = self._trust
            self._excess = np.array([trust.excess(n) if trust.takes_part(n) else np.nan for n in range(most + 1)])
        return np.asarray(self._excess[counts])


def masked_contributions(trust: Trust, points: lattice.Points, sigma: float) -> lattice.Points:
    """What the contributors of a pair hand in under their masks: their points, each with a share of the noise."""
    return lattice.with_noise(points, sigma / math.sqrt(trust.honest(len(points))))


class LatticePairNoise:
    """Float-safe noise: models are added up on the lattice, where every share of noise is a discrete Gaussian."""

    def __init__(self, trust: Trust, least_share: float = 1.0, contributions: Contributions | None = None) -> None:
        self._trust, self._least_share = trust, least_share
        self._contributions = contributions or masked_contributions

    def check(self, sigma: float) -> None:
        """Refuse a σ of which a share would be too fine for the lattice."""
        lattice.units(sigma * self._least_share)

    def release(
        self, models: AnyFloats, means: AnyFloats, starts: AnyInts, sigma: Floats, pairs: AnyInts, round: int
    ) -> Floats:
        """The exact sums with their noise, divided by the number of contributors; `means` are not looked at."""
        counts = _contributors(starts, len(models))
        points = lattice.to_lattice(models, summands=int(counts.max(initial=1)))
        released = np.empty((len(counts), points.shape[1]))
        for row, (start, count, deviation) in enumerate(
            zip(starts.tolist(), counts.tolist(), sigma.tolist(), strict=True)
        ):
            released[row] = lattice.from_lattice(self._sum(points[start : start + count], deviation)) / count
        return released

    def _sum(self, points: lattice.Points, sigma: float) -> lattice.Points:
        """Of one pair: at a site one draw, masked a share from each contributor."""
        if self._trust.level == "masked":
            return np.asarray(self._contributions(self._trust, points, sigma).sum(axis=0))
        return lattice.with_noise(points.sum(axis=0), sigma)


def _contributors(starts: AnyInts, total: int) -> Ints:
    """How many contributors each pair has."""
    ends = np.full(len(starts), total, dtype=np.int64)
    ends[:-1] = starts[1:]
    return ends - starts
