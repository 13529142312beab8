"""Before any round: clients announce fresh keys for many rounds ahead and share out the seeds behind them.

All of it is independent of data, so it costs no privacy, and it is done while nothing waits for it. One *batch* has a
fixed cohort and a number of *slots*, one per later round. Every slot has key pairs and self masks of its own, so
recovering a client that dropped out opens that slot only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from pgfl.masking import primitives
from pgfl.masking.primitives import SEED_BYTES
from pgfl.masking.terms import Declined, Demands, Reason, Roster, identity_signature, require, threshold_for

MOST_SLOTS: Final = 1000
_PAIR: Final = 2 * SEED_BYTES  # of a slot: a share of the self mask's seed, and one of the key pair's


@dataclass(frozen=True)
class Announcement:
    """One client's public keys for a batch, signed with its identity key."""

    batch: str
    name: str
    transport: bytes  # for shares and consents on their way through the server
    masks: tuple[bytes, ...]  # one per slot
    signature: bytes = b""

    @property
    def keys(self) -> tuple[bytes, ...]:
        """All of them."""
        return (self.transport, *self.masks)

    @cached_property
    def digest(self) -> str:
        """What its signature covers."""
        keys = [key.hex() for key in self.keys]
        return primitives.digest("announcement", {"batch": self.batch, "name": self.name, "keys": keys})


@dataclass(frozen=True)
class Cohort:
    """All announcements of a batch, in the order of names; a client's place is its number among the shares."""

    batch: str
    colluders: int
    announcements: tuple[Announcement, ...]

    @classmethod
    def of(cls, batch: str, colluders: int, announcements: Iterable[Announcement]) -> Cohort:
        """From announcements in any order."""
        return cls(batch, colluders, tuple(sorted(announcements, key=lambda each: each.name)))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Its members."""
        return tuple(each.name for each in self.announcements)

    @cached_property
    def by_name(self) -> dict[str, Announcement]:
        """Its announcements."""
        return {each.name: each for each in self.announcements}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of every member's keys and of the colluders to withstand."""
        members = [each.digest for each in self.announcements]
        return primitives.digest("cohort", {"batch": self.batch, "colluders": self.colluders, "members": members})

    @property
    def threshold(self) -> int:
        """How many shares open a seed."""
        return threshold_for(len(self.announcements), self.colluders)

    @cached_property
    def slots(self) -> int:
        """How many rounds it is prepared for."""
        return min(len(each.masks) for each in self.announcements)

    @property
    def copied(self) -> bool:
        """Whether a key is announced twice."""
        keys = [key for each in self.announcements for key in each.keys]
        return len(set(keys)) < len(keys)

    def place(self, name: str) -> int:
        """A member's number among the shares, counted from 0."""
        return self.names.index(name)


@dataclass
class SlotSecrets:
    """What a client keeps for one slot until it is used, or passed over."""

    self_seed: bytes
    key_seed: bytes
    pairwise: dict[str, bytes] = field(default_factory=dict)  # keys of masks in common with others
    self_shares: dict[str, bytes] = field(default_factory=dict)  # of others
    key_shares: dict[str, bytes] = field(default_factory=dict)


@dataclass
class Batch:
    """A client's secrets of one batch; they are never written anywhere."""

    name: str
    announcement: Announcement
    transport: X25519PrivateKey
    slots: list[SlotSecrets | None]
    cohort: Cohort | None = None
    consents: dict[str, bytes] = field(default_factory=dict)  # keys for what this client and another one agree to
    sealed_by: set[str] = field(default_factory=set)  # whose shares for this very cohort were opened here
    next_slot: int = 0
    _boxes: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def begin(cls, batch: str, name: str, identity: ec.EllipticCurvePrivateKey, slots: int) -> Batch:
        """Fresh keys and seeds for so many rounds."""
        require(1 <= slots <= MOST_SLOTS, Reason.UNPREPARED)
        transport = X25519PrivateKey.generate()
        made = [SlotSecrets(primitives.fresh_seed(), primitives.fresh_seed()) for _ in range(slots)]
        masks = tuple(_raw(primitives.mask_key_pair(slot.key_seed)) for slot in made)
        bare = Announcement(batch, name, _raw(transport), masks)
        signature = identity_signature(identity, bare.digest)
        announced = Announcement(batch, name, bare.transport, masks, signature)
        return cls(name, announced, transport, list(made))

    def join(self, cohort: Cohort, roster: Roster, demands: Demands) -> dict[str, bytes]:
        """Check who takes part, agree on masks with everyone, and return sealed shares for everyone else.

        Asked again, it returns the same bytes: a batch has one cohort.
        """
        if self.cohort is None:
            self._check(cohort, roster, demands)
            self._agree(cohort)
            self._boxes = self._share_out(cohort)
            self.cohort = cohort
        require(cohort.digest == self.cohort.digest, Reason.OTHER_VIEW)
        return self._boxes

    def receive(self, boxes: Mapping[str, bytes]) -> set[str]:
        """Open the shares of others; returns whose could not be opened, and so could not be recovered with our help."""
        require(self.cohort is not None, Reason.UNPREPARED)
        assert self.cohort is not None
        unopened = set()
        for sender, box in boxes.items():
            if sender not in self.cohort.by_name or sender == self.name:
                continue
            shares = self._opened(self.cohort, sender, box)
            if shares is None or len(shares) != _PAIR * self.cohort.slots:
                unopened.add(sender)
                continue
            self.sealed_by.add(sender)
            for number, slot in enumerate(self.slots[: self.cohort.slots]):
                if slot is not None:
                    pair = shares[number * _PAIR : (number + 1) * _PAIR]
                    slot.self_shares.setdefault(sender, pair[:SEED_BYTES])
                    slot.key_shares.setdefault(sender, pair[SEED_BYTES:])
        return unopened

    def take(self, slot: int) -> SlotSecrets:
        """The secrets of a slot, once; slots that are passed over are forgotten."""
        require(self.cohort is not None and self.next_slot <= slot < len(self.slots), Reason.UNPREPARED)
        secrets = self.slots[slot]
        assert secrets is not None  # as slots are taken in ascending order
        self.next_slot = slot + 1
        self.slots[: self.next_slot] = [None] * self.next_slot
        return secrets

    def _check(self, cohort: Cohort, roster: Roster, demands: Demands) -> None:
        demands.check_cohort(cohort.names, cohort.colluders)
        for each in cohort.announcements:
            require(each.batch == self.announcement.batch == cohort.batch, Reason.STRANGER)
            require(roster.signed_by(each.name, each.signature, each.digest), Reason.STRANGER)
        require(not cohort.copied, Reason.COPIED)
        mine = cohort.by_name.get(self.name)
        require(mine is not None and mine.digest == self.announcement.digest, Reason.NOT_ME)
        require(cohort.slots == len(self.slots), Reason.UNPREPARED)

    def _agree(self, cohort: Cohort) -> None:
        """X25519 with every other member for every slot: the costly part, done ahead.

        Keys for consents do not come from a slot's key pair: that one is opened to recover a client that dropped out,
        and then it must not speak for it.
        """
        for other in self._others(cohort):
            self.consents[other.name] = self._transport_key(cohort, other, "consent")
        for number, slot in enumerate(self.slots):
            assert slot is not None  # as no slot is taken before this
            own = primitives.mask_key_pair(slot.key_seed)
            for other in self._others(cohort):
                slot.pairwise[other.name] = pairwise_key(cohort, number, own, self.name, other.name)

    def _share_out(self, cohort: Cohort) -> dict[str, bytes]:
        shares: dict[str, list[bytes]] = {name: [] for name in cohort.names}
        for slot in self.slots:
            assert slot is not None
            halves = [primitives.split(seed, cohort.threshold, len(shares)) for seed in (slot.self_seed, slot.key_seed)]
            for place, name in enumerate(cohort.names):
                shares[name] += [half[place] for half in halves]
            slot.self_shares[self.name], slot.key_shares[self.name] = shares[self.name][-2:]
        return {
            other.name: primitives.sealed(
                self._transport_key(cohort, other, "shares"),
                b"".join(shares[other.name]),
                _about(cohort, self.name, other.name),
            )
            for other in self._others(cohort)
        }

    def _opened(self, cohort: Cohort, sender: str, box: bytes) -> bytes | None:
        try:
            key = self._transport_key(cohort, cohort.by_name[sender], "shares")
        except Declined:
            return None
        return primitives.opened(key, box, _about(cohort, sender, self.name))

    def _transport_key(self, cohort: Cohort, other: Announcement, purpose: str) -> bytes:
        return _agreed(self.transport, other.transport, purpose, _pair(cohort, self.name, other.name))

    def _others(self, cohort: Cohort) -> list[Announcement]:
        return [each for each in cohort.announcements if each.name != self.name]


def pairwise_key(cohort: Cohort, slot: int, own: X25519PrivateKey, name: str, other: str) -> bytes:
    """The key of the mask that `name`, whose key pair is `own`, and another member have in common in one slot."""
    public = cohort.by_name[other].masks[slot]
    return _agreed(own, public, "pairwise mask", f"{slot} {_pair(cohort, name, other)}")


def _agreed(own: X25519PrivateKey, public: bytes, purpose: str, about: str) -> bytes:
    try:
        return primitives.agreed(own, public, purpose, about)
    except ValueError as error:
        raise Declined(Reason.STRANGER) from error


def _pair(cohort: Cohort, name: str, other: str) -> str:
    """Two members of a cohort, in either order."""
    return primitives.digest("pair", {"cohort": cohort.digest, "members": sorted((name, other))})


def _about(cohort: Cohort, sender: str, receiver: str) -> bytes:
    return primitives.digest("shares", {"cohort": cohort.digest, "from": sender, "to": receiver}).encode()


def _raw(key: Any) -> bytes:
    return bytes(key.public_key().public_bytes_raw())
