"""A server's side of masked rounds, without I/O: gather a cohort's keys and shares, then one sum per round.

The server learns the sum over those who contributed and stayed, or nothing: too few of them, and the round is given up
before anyone reveals anything. What it cannot trust it checks: a sum that is longer than contributions can be was
spoilt by somebody, and is dropped.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from pgfl.arrays import Floats
from pgfl.masking import primitives
from pgfl.masking.member import Revealed, signed_mask
from pgfl.masking.preparation import Announcement, Cohort, pairwise_key
from pgfl.masking.primitives import KEY_BYTES, SEED_BYTES, Words
from pgfl.masking.terms import Declined, RoundTerms
from pgfl.privacy import lattice


@dataclass
class CohortGathering:
    """Keys and sealed shares of one batch, on their way from every client to every other."""

    expected: frozenset[str]
    colluders: int
    slots: int
    batch: str = field(default_factory=lambda: secrets.token_hex(16))
    _announced: dict[str, Announcement] = field(default_factory=dict)
    _boxes: dict[str, Mapping[str, bytes]] = field(default_factory=dict)
    cohort: Cohort | None = None

    def awaits_keys(self, name: str) -> bool:
        """Return whether a client's keys are waited for; only the first are checked, as that takes a while."""
        return self.cohort is None and name in self.expected and name not in self._announced

    def add_keys(self, name: str, announcement: Announcement) -> None:
        """Take a client's first keys; if they do not fit the batch, the client takes no part in it."""
        if not self.awaits_keys(name):
            return
        fits = (announcement.batch, announcement.name) == (self.batch, name) and len(announcement.masks) == self.slots
        fits = fits and all(len(key) == KEY_BYTES for key in announcement.keys)
        if fits and not self._would_be_declined(announcement):
            self._announced[name] = announcement
        else:
            self.exclude(name)

    def _would_be_declined(self, announcement: Announcement) -> bool:
        """Whether other clients would refuse a cohort with these keys, and so one client could keep all from it."""
        others = [each for name, each in self._announced.items() if name != announcement.name]
        copied = Cohort.of(self.batch, self.colluders, [announcement, *others]).copied
        agreeable = all(primitives.is_agreeable(key) for key in (announcement.transport, *announcement.masks))
        return copied or not agreeable

    def exclude(self, name: str) -> None:
        """Exclude a client from this batch."""
        self.expected -= {name}
        self._announced.pop(name, None)
        self._boxes.pop(name, None)

    @property
    def pending(self) -> frozenset[str]:
        """Clients that have not sent what is asked for now."""
        if self.cohort is None:
            return self.expected - self._announced.keys()
        return (frozenset(self.cohort.names) & self.expected) - self._boxes.keys()

    def fix_cohort(self) -> Cohort:
        """Return the cohort, fixed now: all clients that have announced keys."""
        if self.cohort is None:
            self.cohort = Cohort.of(self.batch, self.colluders, self._announced.values())
        return self.cohort

    def add_shares(self, name: str, boxes: Mapping[str, bytes]) -> None:
        """Add a client's sealed shares; ignore them unless they are for everybody else of the cohort."""
        if self.cohort is not None and name in self.cohort.by_name and boxes.keys() == set(self.cohort.names) - {name}:
            self._boxes.setdefault(name, boxes)

    def delivery(self, name: str) -> dict[str, bytes]:
        """The sealed shares for one client, by sender."""
        return {sender: boxes[name] for sender, boxes in self._boxes.items() if sender != name and name in boxes}

    @property
    def ready(self) -> frozenset[str]:
        """Members whose shares are out: those who drop out can be recovered."""
        return frozenset(self._boxes)


def disputed(unopened: Mapping[str, Collection[str]]) -> set[str]:
    """Whom to leave out so that nobody is left who could not open the shares of somebody else who is left.

    `unopened` names, for each who complains, those whose shares it could not open. Who lies cannot be told, but a liar
    is party to every complaint, and honest clients have none about each other. So of complaints that share no party,
    each has a liar: leaving out both parties of such complaints, until none is left, costs no more honest clients than
    there are liars. Whoever need not go after all, because all opponents go, stays: first those with fewest complaints.
    A liar who complains about two clients, or gives two of them bad shares, is alone to go. If there is one complaint,
    the one who made it goes.

    >>> sorted(disputed({"a": ["mallory"], "b": ["mallory"], "mallory": ["c"]})), disputed({"a": ["b"]})
    (['mallory'], {'a'})
    """
    complaints = sorted((one, other) for one, others in unopened.items() for other in others)
    opponents: dict[str, set[str]] = {}
    for one, other in complaints:
        opponents.setdefault(one, set()).add(other)
        opponents.setdefault(other, set()).add(one)
    left_out: set[str] = set()
    for complaint in sorted(complaints, key=lambda parties: -sum(len(opponents[name]) for name in parties)):
        if left_out.isdisjoint(complaint):
            left_out.update(complaint)
    for name in sorted(left_out, key=lambda name: (len(opponents[name]), bool(unopened.get(name)), name)):
        if opponents[name] <= left_out:
            left_out.remove(name)
    return left_out


class Stage(StrEnum):
    """How far a masked round has come."""

    CONTRIBUTING = "contributing"
    CONSENTING = "consenting"
    REVEALING = "revealing"
    DONE = "done"
    GIVEN_UP = "given up"


@dataclass
class SumCollector:
    """One round of one pair. `close` ends a stage with what has come in, and says what follows."""

    cohort: Cohort
    terms: RoundTerms
    stage: Stage = Stage.CONTRIBUTING
    why: str = ""
    survivors: tuple[str, ...] = ()
    consents: dict[str, Mapping[str, bytes]] = field(default_factory=dict)  # tags for every other survivor, by sender
    total: Floats | None = None
    _masked: dict[str, Words] = field(default_factory=dict)
    _revealed: dict[str, Revealed] = field(default_factory=dict)
    _left: set[str] = field(default_factory=set)

    @property
    def pending(self) -> frozenset[str]:
        """Whose message the present stage still waits for."""
        asked, answered = self._asked_and_answered()
        return frozenset(name for name in asked if name not in answered and name not in self._left)

    def _awaits(self, name: str, stage: Stage) -> bool:
        """Whether this message of a client is waited for."""
        asked, answered = self._asked_and_answered()
        return self.stage is stage and name in asked and name not in answered and name not in self._left

    def _asked_and_answered(self) -> tuple[Collection[str], Collection[str]]:
        match self.stage:
            case Stage.CONTRIBUTING:
                return self.terms.invited, self._masked
            case Stage.CONSENTING:
                return self.survivors, self.consents
            case Stage.REVEALING:
                return self.survivors, self._revealed
        return (), ()

    def add_contribution(self, name: str, masked: Words) -> bool:
        """Add a masked contribution; return False if it is not expected."""
        if not self._awaits(name, Stage.CONTRIBUTING) or masked.shape != (self.terms.dimension,):
            return False
        self._masked[name] = masked
        return True

    def add_consent(self, name: str, tags: Mapping[str, bytes]) -> bool:
        """Add a client's consent to the list; return False unless it is for everybody else on it."""
        if not self._awaits(name, Stage.CONSENTING):
            return False
        if tags.keys() != set(self.survivors) - {name}:
            self._left.add(name)
            return False
        self.consents[name] = tags
        return True

    def consents_for(self, name: str) -> dict[str, bytes]:
        """Return the tags of the other survivors for one of them, by sender."""
        return {sender: tags[name] for sender, tags in self.consents.items() if sender != name}

    def add_reveal(self, name: str, revealed: Revealed) -> bool:
        """Add what a client reveals; return False if it is not expected."""
        if not self._awaits(name, Stage.REVEALING):
            return False
        self._revealed[name] = revealed
        return True

    def drop(self, name: str) -> None:
        """Stop waiting for a client that declines or has left."""
        self._left.add(name)

    def close(self) -> Stage:
        """Close the stage: go on with those who answered, or give up if they are too few."""
        match self.stage:
            case Stage.CONTRIBUTING:
                self.survivors = tuple(sorted(self._masked))
                self._next(Stage.CONSENTING, len(self._masked), self.terms.fewest, "contributed")
            case Stage.CONSENTING:
                self._next(Stage.REVEALING, len(self.consents), self.terms.threshold, "agreed to the list of survivors")
            case Stage.REVEALING:
                if self._next(Stage.DONE, len(self._revealed), self.terms.threshold, "revealed their shares"):
                    self._finish()
            case _:
                pass
        return self.stage

    def _next(self, stage: Stage, came: int, needed: int, what: str) -> bool:
        enough = came >= needed
        self.stage = stage if enough else Stage.GIVEN_UP
        if not enough:
            self.why = f"{came} of {len(self.terms.invited)} clients {what}, {needed} are needed"
            self._masked.clear()
        return enough

    def _finish(self) -> None:
        try:
            total = self._unmasked()
        except (_Unrecoverable, Declined) as error:
            self.stage, self.why = Stage.GIVEN_UP, str(error)
        else:
            most = self.terms.largest_sum(len(self.survivors))
            if np.abs(total).max() <= most:
                self.total = total
            else:
                self.stage, self.why = Stage.GIVEN_UP, "the sum is longer than contributions can be; a client spoilt it"
        self._masked.clear()
        self._revealed.clear()

    def _unmasked(self) -> Floats:
        size = self.terms.dimension
        total: Words = np.sum([self._masked[name] for name in self.survivors], axis=0, dtype=np.uint64)
        for name in self.survivors:
            given = self._revealed.get(name)
            seed = given.own_seed if given is not None else self._recovered(name, "self_shares")
            total = total - primitives.mask(primitives.self_mask_key(seed), size)
        for name in sorted(set(self.terms.invited) - set(self.survivors)):
            own = primitives.mask_key_pair(self._recovered(name, "key_shares"))
            if own.public_key().public_bytes_raw() != self.cohort.by_name[name].masks[self.terms.slot]:
                raise _Unrecoverable(name)
            for other in self.survivors:
                key = pairwise_key(self.cohort, self.terms.slot, own, name, other)
                total = total - signed_mask(other, name, key, self.terms)
        return lattice.from_lattice(total.view(np.int64))

    def _recovered(self, name: str, kind: str) -> bytes:
        """A seed from as many shares as the threshold."""
        shares = [
            (self.cohort.place(holder), getattr(given, kind)[name])
            for holder, given in self._revealed.items()
            if len(getattr(given, kind).get(name, b"")) == SEED_BYTES
        ]
        if len(shares) < self.terms.threshold:
            raise _Unrecoverable(name)
        return primitives.combined(shares[: self.terms.threshold])


class _Unrecoverable(Exception):
    """Too few or wrong shares of a client's seed."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the masks of {name}, who dropped out, could not be recovered")
