"""What is agreed about one masked round, in one digest that its clients consent to, and what a client insists on.

A server proposes terms; a client compares them with its own demands and refuses in a constant sentence, so that a
refusal reveals nothing about data. Whatever a client relies on is in the digest. Shares leave only if as many clients
as the threshold consent to the same one, and the masks of a client that was told otherwise do not cancel with theirs.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cached_property
from typing import Final

import numpy as np

from pgfl.array_types import Floats
from pgfl.errors import PrivacyError
from pgfl.masking.primitives import digest
from pgfl.privacy import lattice

TAIL: Final = 64.0
"""Deviations that noise stays within: a coordinate passes them with a probability below e⁻²⁰⁰⁰."""

LARGEST_SUM: Final = 2.0 ** (lattice.MODULUS_BITS - 2) * lattice.STEP
"""Every coordinate of a sum must stay below: half of what its modulus can tell apart."""


class Reason(StrEnum):
    """Why a client takes no part in a masked round: constant texts, so they reveal nothing about its data."""

    TOO_FEW = "fewer clients take part than this client demands"
    TOO_TRUSTING = "the terms withstand fewer colluders than this client demands"
    STRANGER = "a participant is not on this client's roster, or its keys are not signed by it"
    COPIED = "two participants announce the same key"
    NOT_ME = "this client's own keys are not among those of the round"
    REPEATED = "a participant is listed twice"
    UNSHARED = "an invited client has sealed no shares for this client in this cohort"
    UNPREPARED = "this client has not prepared such a round, or has used it already"
    TOO_LITTLE_NOISE = "the noise of the sum is less than this client's budget needs"
    OTHER_VIEW = "the terms do not describe what this client was asked"
    WOULD_WRAP = "the sum could pass the modulus of masked sums"
    OLD_ROUND = "this client has gone on to a later round"
    OTHER_LIST = "this client has agreed to another list of survivors in this round"
    BELOW_THRESHOLD = "fewer clients than the threshold have consented to this list of survivors"


class Declined(PrivacyError):
    """A client takes no part, for one of a few public reasons."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(f"Nothing was released: {reason}.")
        self.reason = reason


def insist(holds: bool, reason: Reason) -> None:
    """Decline unless a condition holds."""
    if not holds:
        raise Declined(reason)


def threshold_for(holders: int, colluders: int) -> int:
    """t, the least with 2t > n + colluders: two lists with t consents each have an honest client in common.

    >>> threshold_for(5, 1), threshold_for(20, 1), threshold_for(20, 2)
    (4, 11, 12)
    """
    return (holders + colluders) // 2 + 1


def centre_digest(centre: Floats) -> str:
    """A fingerprint of the public point from which updates are measured."""
    return hashlib.sha256(np.asarray(centre, dtype="<f8").tobytes()).hexdigest()


@dataclass(frozen=True)
class RoundTerms:
    """The terms of one round of one (server, cluster) pair.

    `holders` prepared the round together and hold shares; `invited` are those of them who are asked. At least
    `required` must contribute. Up to `colluders` of them may help the server, so that the noise of `honest` clients at
    least is left: their shares of the noise have the variance σ² together.
    """

    training: str
    site: str
    cluster: str
    round: int
    cohort: str  # the digest of all keys that were announced for it
    holders: int
    slot: int  # which of the prepared rounds it is
    invited: tuple[str, ...]
    required: int
    colluders: int
    sigma: float
    bound: float  # on the length of an update
    centre: str
    dimension: int

    def __post_init__(self) -> None:
        if min(self.required, self.dimension, self.round) < 1 or self.colluders < 0 or self.slot < 0:
            raise PrivacyError("The terms of a masked round name a number that is out of range.")
        if not all(0.0 < value < math.inf for value in (self.sigma, self.bound)):
            raise PrivacyError("The noise and the bound of a masked round must be positive numbers.")

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all of it."""
        return digest("round", {each.name: getattr(self, each.name) for each in fields(self)})

    @property
    def honest(self) -> int:
        """h, the least number of honest contributors."""
        return self.required - self.colluders

    @property
    def threshold(self) -> int:
        """How many must consent to a list of survivors, and how many shares open a seed."""
        return threshold_for(self.holders, self.colluders)

    @property
    def fewest(self) -> int:
        """The least number of survivors with whom the round is finished."""
        return max(self.required, self.threshold)

    @property
    def share_sigma(self) -> float:
        """The deviation of the noise that each client adds: σ²/h is its variance."""
        return self.sigma / math.sqrt(self.honest)

    def largest_sum(self, contributors: int) -> float:
        """A bound on every coordinate of a sum of updates with their noise."""
        return contributors * (self.bound + TAIL * self.share_sigma + lattice.STEP)

    def list_digest(self, survivors: Iterable[str]) -> str:
        """What clients consent to: these survivors, under these terms."""
        return digest("survivors", {"terms": self.digest, "survivors": sorted(survivors)})


@dataclass(frozen=True)
class Demands:
    """What a client's owner insists on: how many contribute at least, and how many of them may collude."""

    contributors: int
    colluders: int

    def check(self, terms: RoundTerms) -> None:
        """Decline terms that promise less; all of it follows from public numbers."""
        insist(len(set(terms.invited)) == len(terms.invited), Reason.REPEATED)
        insist(terms.colluders >= self.colluders, Reason.TOO_TRUSTING)
        insist(terms.required >= self.contributors and terms.honest >= 1, Reason.TOO_FEW)
        insist(len(terms.invited) >= terms.fewest, Reason.TOO_FEW)
        most = terms.largest_sum(len(terms.invited))
        insist(most < LARGEST_SUM, Reason.WOULD_WRAP)
        insist(terms.share_sigma >= lattice.LEAST_UNITS * lattice.STEP, Reason.TOO_LITTLE_NOISE)

    def check_cohort(self, members: Sequence[str], colluders: int) -> None:
        """Decline to share secrets with so few that no round could follow."""
        insist(len(set(members)) == len(members), Reason.REPEATED)
        insist(colluders >= self.colluders, Reason.TOO_TRUSTING)
        insist(len(members) >= max(self.contributors, threshold_for(len(members), colluders)), Reason.TOO_FEW)
