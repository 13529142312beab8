"""Whom a client trusts, and what follows from it: who adds noise, how much of it, and what a client is charged.

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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from pgfl.array_types import Floats
from pgfl.core.algorithms import Algorithm
from pgfl.errors import PrivacyError
from pgfl.privacy import rules
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
        return Promise(RECORD, "everyone who sees all messages", "", "nothing beyond the device itself is trusted")

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
        if self.aggregates and algorithm.has_dual:
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
