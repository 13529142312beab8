"""Noise that the contributors of a pair share: who can contribute, the σ of a pair's sum, and the noise itself.

`SharedNoise` is what an account needs to know of it. A `PairNoise` turns the models of a pair's contributors into the
noised mean that is published; the noise of the mean is that of the sum, divided by the number of contributors.

Whom a client trusts, and what follows from it: who adds noise, how much of it, and what a client is charged.

A *pair* is one cluster at one server. With `local` trust every client noises its own model. With `site` and `masked`
trust only the sum over a pair's contributors is noised, and everyone, the pair's own clients included, sees the noised
sum only. One record of client k moves the sum by at most its own Δ_k. The noise of the sum has at least the public
variance σ² = max_k Δ_k²/(2φ_k), where φ_k is the price of k's next release, so k is charged Δ_k²/(2σ²) ≤ φ_k.

With `site` trust the server adds that noise. With `masked` trust every client adds a discrete Gaussian of variance σ²/h
to its update, on a lattice, where h is the least number of contributors who are honest. The server learns only the sum,
which holds h shares or more that it cannot subtract. The sum of h discrete Gaussians is not quite a discrete Gaussian:
Kairouz, Liu and Steinke (2021), Proposition 14, bound what that adds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike

from pgfl.algorithms.algorithms import Algorithm
from pgfl.arrays import AnyFloats, AnyInts, Bools, Floats, Ints
from pgfl.errors import PrivacyError
from pgfl.privacy import lattice, rules
from pgfl.privacy.budget import sigma_for

Level = Literal["local", "site", "masked"]

CONTRIBUTORS = 2
"""The sum over one client is that client's own model; two is the least number that is a sum."""

COLLUDERS = 1
"""The server may know what one contributor of a pair knows: a client it runs itself, say."""

DROPOUTS = 0.1
"""One client in ten may be lost in a round. Noise for the rest costs at most half a decibel, and pairs of ten or more
clients survive a lost phone; smaller ones sit the round out, as one share of five is too much to make up for."""


NOISE_CAP = 10.0
"""How many times the noise of the median member of its pair a client may ask for."""


@dataclass(frozen=True)
class Promise:
    """What a level of trust promises: for which change of the data, against whom, and what it does not cover."""

    unit: str
    against: str
    assuming: str
    not_covered: str

    @property
    def label(self) -> str:
        """In one line, for every result, page and terminal."""
        return f"zCDP for {self.unit}, against {self.against}" + (f", {self.assuming}" if self.assuming else "")


RECORD = "one replaced record"


@dataclass(frozen=True)
class Trust:
    """A level of trust, with the numbers that `site` and `masked` need.

    With fewer than `contributors` contributors a pair sits the round out, and nobody is charged. With `masked` trust
    up to `colluders` contributors of a pair may work with the server, and up to the share `dropouts` of those who were
    invited may drop out of a round.

    >>> Trust("masked").honest(33), Trust("masked").honest(5)
    (29, 4)
    >>> Trust("masked", contributors=1).complaint(1)
    'with 1 invited, of whom 1 must contribute and 1 may collude, nobody is sure to be honest'
    """

    level: Level = "local"
    contributors: int = CONTRIBUTORS
    colluders: int = COLLUDERS
    dropouts: float = DROPOUTS

    def __post_init__(self) -> None:
        asked = {"trust": self.level} | {key: getattr(self, key) for key in rules.TRUST_NUMBERS}
        for key, value in asked.items():
            if found := rules.problem(key, value):
                raise PrivacyError(found)

    @property
    def aggregates(self) -> bool:
        """Whether only a pair's noised aggregate is released, and no model of a client."""
        return self.level != "local"

    @property
    def promise(self) -> Promise:
        """What is promised."""
        if self.level == "site":
            return Promise(
                RECORD,
                "everyone but the client's own site",
                "which sees its clients' contributions without noise and publishes noised aggregates only",
                "the site itself, and whoever breaks into it",
            )
        if self.level == "masked":
            return Promise(
                RECORD,
                "everyone who sees all messages",
                f"if at most {_clients(self.colluders)} of the same server and cluster colludes with others",
                f"more than {_clients(self.colluders)} of a pair that work with the server",
            )
        return Promise(RECORD, "everyone who sees all messages", "", "whoever breaks into the device itself")

    def required(self, invited: int) -> int:
        """How many of the invited contributors of a pair must contribute, or the pair sits the round out."""
        lost = math.floor(self.dropouts * invited) if self.level == "masked" else 0
        return max(self.contributors, invited - lost)

    def honest(self, invited: int) -> int:
        """h: how many of those who contribute are sure to be honest; only these count as sources of noise."""
        return self.required(invited) - self.colluders if self.level == "masked" else invited

    def complaint(self, invited: int) -> str | None:
        """Why a pair with so many invited contributors cannot take part; None if it can."""
        if not self.aggregates:
            return None
        required = self.required(invited)
        if invited < required:
            return f"only {invited} can contribute, and privacy.contributors asks for {required}"
        if self.honest(invited) < 1:
            return (
                f"with {invited} invited, of whom {required} must contribute and {self.colluders} may collude, "
                "nobody is sure to be honest"
            )
        return None

    def takes_part(self, invited: int) -> bool:
        """Whether a pair with so many invited contributors can take part in a round."""
        return self.complaint(invited) is None

    def excess(self, invited: int, contributing: int | None = None) -> float:
        """The variance of the noise in a pair's sum over σ²: 1 at a site; masked, one share of 1/h per contributor."""
        if self.level != "masked":
            return 1.0
        return (invited if contributing is None else contributing) / self.honest(invited)

    def check(self, algorithm: Algorithm) -> None:
        """Refuse a client step that keeps a dual: a hidden noised model would live on in it."""
        if self.aggregates and algorithm.client_rule.has_dual:
            raise PrivacyError(
                f'privacy.trust = "{self.level}" needs clients that keep no dual, because a model that nobody released '
                'would live on in it; set algorithm.client = "gradient".'
            )


def sum_sigma(sensitivity: ArrayLike, phi: ArrayLike, slack: float = 0.0) -> Floats:
    """The σ of a pair's sum that each contributor asks for; the pair's σ is the largest of them.

    `slack` is √d·τ of `distance_from_gaussian`, where the sum's noise is made of shares.

    >>> sum_sigma([1.0, 2.0], [0.5, 0.5]).max()
    np.float64(2.0)
    """
    if slack == 0.0:
        return sigma_for(sensitivity, phi)
    left = np.sqrt(2.0 * np.asarray(phi, dtype=np.float64)) - slack
    if not (left > 0.0).all():
        raise PrivacyError("The lattice is too coarse for so small a price; spend more in a release.")
    return np.asarray(np.asarray(sensitivity, dtype=np.float64) / left, dtype=np.float64)


def over_cap(stated: Mapping[str, float], cap: float) -> set[str]:
    """Who states more than `cap` times the median, of two in the middle the smaller one.

    The noise of a sum is what its most demanding contributor asks for, on its own word. Without a cap one of them
    drowns the others.

    >>> over_cap({"ann": 1.0, "bob": 2.0, "mallory": 1e6}, 10.0)
    {'mallory'}
    """
    if not stated:
        return set()
    median = sorted(stated.values())[(len(stated) - 1) // 2]
    return {name for name, value in stated.items() if not value <= cap * median}


def charge(sensitivity: ArrayLike, sigma: ArrayLike, slack: float = 0.0) -> Floats:
    """What a contributor is charged for its pair's noised sum: (Δ_k/σ + slack)²/2, with its own Δ_k."""
    mu = np.asarray(sensitivity, dtype=np.float64) / np.asarray(sigma, dtype=np.float64) + slack
    return np.asarray(0.5 * mu * mu, dtype=np.float64)


def distance_from_gaussian(share_units: float, honest: int) -> float:
    """τ: how far the sum of `honest` discrete Gaussians is from one, where each has deviation `share_units` ≥ 1/2.

    10 Σ_{k=1}^{h−1} exp(−2π² s² k/(k+1)), a bound on the logarithm of the ratio of probabilities of a coordinate. It is
    below 1e-300 for s ≥ 9, so it never shows on the lattice that the package uses.
    """
    if not share_units >= 0.5:
        raise PrivacyError("A share of noise must be at least half a unit of its lattice wide.")
    return 10.0 * math.fsum(math.exp(-2.0 * (math.pi * share_units) ** 2 * k / (k + 1)) for k in range(1, honest))


def slack_of(share_units: float, honest: int, dimension: int) -> float:
    """√d·τ, what the sum of shares adds to √(2φ) beyond a discrete Gaussian."""
    return math.sqrt(dimension) * distance_from_gaussian(share_units, honest)


def _clients(number: int) -> str:
    return "1 contributor" if number == 1 else f"{number} contributors"


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
