"""A client's side of masked rounds, without I/O: prepare, contribute, consent, reveal.

The order is what makes it safe. A contribution is masked under terms that the client has checked. It consents to one
list of survivors per round. It reveals what opens the masks of that list, and only once as many clients as the
threshold have consented to the very same terms and list. Of each participant it reveals a share of the self mask's
seed or of the key pair's, never both. All of this is in memory: a client that was restarted has no secrets of earlier
rounds, so nothing can make it reveal the other half.

Announcements are signed, but a signature stays good for ever. A server can show it again, after the key pairs behind it
were opened to recover a client that dropped out, and the others have forgotten the batch. So a member contributes only
if everybody who is invited has sealed shares for it *in this cohort*: the key of that box follows from all keys of the
cohort, this member's fresh ones among them, and from a transport key that never leaves its owner.

A consent is one tag for every other survivor, under a key that only the two of them have. A server can neither make
one up nor show it to anyone else; and a signature would take fifty times as long to check.

What a client masks: its update, clipped to a public bound, on the lattice, with its share of the noise.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec

from pgfl import equations as eq
from pgfl.arrays import Floats
from pgfl.errors import PrivacyError
from pgfl.masking import primitives
from pgfl.masking.preparation import Announcement, Batch, Cohort, SlotSecrets
from pgfl.masking.primitives import Words
from pgfl.masking.terms import Demands, Reason, Roster, RoundTerms, require
from pgfl.privacy import lattice
from pgfl.privacy.lattice import Points


def noised_update(update: Floats, terms: RoundTerms) -> Points:
    """The update as lattice points, with discrete Gaussian noise of variance σ²/h.

    Clipping to a ball takes no two updates further apart, and the noise is drawn anew at every call.
    """
    if not np.isfinite(update).all():
        raise PrivacyError("An update holds NaN or infinity; nothing was released.")
    clipped = eq.clip_update(update, np.zeros_like(update), terms.bound)
    return lattice.with_noise(lattice.to_lattice(np.asarray(clipped)), terms.share_sigma)


_KEPT_BATCHES = 2  # the one in use, and the next one


@dataclass(frozen=True)
class Revealed:
    """What a client reveals in the end: its own seed, and its shares of the seeds of others.

    `self_shares` are of survivors, whose self masks must come off the sum; `key_shares` of clients that dropped out,
    whose pairwise masks were left over.
    """

    own_seed: bytes
    self_shares: Mapping[str, bytes]
    key_shares: Mapping[str, bytes]


@dataclass
class _OpenRound:
    """The one round that is under way."""

    terms: RoundTerms
    cohort: Cohort
    batch: Batch
    secrets: SlotSecrets
    survivors: frozenset[str] | None = None  # those it has consented to, for good


@dataclass
class Member:
    """One client. Whatever it refuses it refuses with `Declined`, before anything has changed."""

    name: str
    identity: ec.EllipticCurvePrivateKey
    roster: Roster
    demands: Demands
    last_round: int = 0  # a contribution for it, or for an earlier one, is not made any more
    _batches: dict[str, Batch] = field(default_factory=dict)
    _open: _OpenRound | None = None

    # Before any round -------------------------------------------------------------------------------------------------

    def announce(self, batch: str, slots: int) -> Announcement:
        """Fresh public keys for a batch; the same ones if it is asked again."""
        if batch not in self._batches:
            self._batches[batch] = Batch.begin(batch, self.name, self.identity, slots)
            for old in list(self._batches)[:-_KEPT_BATCHES]:
                del self._batches[old]
        return self._batches[batch].announcement

    def share(self, cohort: Cohort) -> dict[str, bytes]:
        """Sealed shares for the other members of a cohort, if they are all on the roster."""
        return self._batch(cohort.batch).join(cohort, self.roster, self.demands)

    def receive(self, batch: str, boxes: Mapping[str, bytes]) -> set[str]:
        """Take the shares of others; returns those whose shares could not be opened."""
        return self._batch(batch).receive(boxes)

    def prepared(self, batch: str) -> Cohort | None:
        """The cohort of a batch that this client has joined."""
        known = self._batches.get(batch)
        return None if known is None else known.cohort

    # One round --------------------------------------------------------------------------------------------------------

    def check(self, batch: str, terms: RoundTerms) -> None:
        """Decline terms that this client cannot accept; ask before anything is charged."""
        cohort = self.prepared(batch)
        require(cohort is not None, Reason.UNPREPARED)
        assert cohort is not None
        require(terms.round > self.last_round, Reason.OLD_ROUND)
        require(self._batches[batch].next_slot <= terms.slot < cohort.slots, Reason.UNPREPARED)
        require((terms.cohort, terms.holders) == (cohort.digest, len(cohort.names)), Reason.OTHER_VIEW)
        require(terms.colluders == cohort.colluders, Reason.OTHER_VIEW)
        require(cohort.by_name.keys() >= set(terms.invited), Reason.STRANGER)
        require(self.name in terms.invited, Reason.NOT_ME)
        require(self._batches[batch].sealed_by >= set(terms.invited) - {self.name}, Reason.UNSHARED)
        self.demands.check(terms)

    def contribute(self, batch: str, terms: RoundTerms, noised: Points) -> Words:
        """The masked contribution; call it once the release is charged. The slot is used up by it."""
        self.check(batch, terms)
        require(noised.shape == (terms.dimension,), Reason.OTHER_VIEW)
        self.last_round = terms.round
        known = self._batches[batch]
        secrets = known.take(terms.slot)
        assert known.cohort is not None
        self._open = _OpenRound(terms, known.cohort, known, secrets)
        own = primitives.mask(primitives.self_mask_key(secrets.self_seed), terms.dimension)
        masked: Words = noised.astype(np.int64).view(np.uint64) + own
        for other in terms.invited:
            if other != self.name:
                masked += signed_mask(self.name, other, secrets.pairwise[other], terms)
        return masked

    def consent(self, round: int, survivors: Collection[str]) -> dict[str, bytes]:
        """A tag for every other survivor on a list, the only list that this client ever consents to in the round."""
        under_way, listed = self._at(round), frozenset(survivors)
        require(len(listed) == len(survivors), Reason.REPEATED)
        require(listed <= set(under_way.terms.invited), Reason.STRANGER)
        require(self.name in listed, Reason.NOT_ME)
        require(len(listed) >= under_way.terms.fewest, Reason.TOO_FEW)
        require(under_way.survivors in (None, listed), Reason.OTHER_LIST)
        under_way.survivors = listed
        message, keys = under_way.terms.list_digest(listed), under_way.batch.consents
        return {name: primitives.tag(keys[name], self.name, message) for name in listed if name != self.name}

    def others(self, round: int) -> tuple[str, ...]:
        """The other survivors of the list that this client has consented to, in order."""
        return tuple(sorted((self._at(round).survivors or frozenset()) - {self.name}))

    def reveal(self, round: int, consents: Mapping[str, bytes]) -> Revealed:
        """What opens the sum over the survivors, once enough of them have consented to the same list and terms."""
        under_way = self._at(round)
        require(under_way.survivors is not None, Reason.BELOW_THRESHOLD)
        assert under_way.survivors is not None
        terms, survivors = under_way.terms, under_way.survivors
        require(self._enough_consent(under_way, survivors, consents), Reason.BELOW_THRESHOLD)
        secrets, dropped = under_way.secrets, set(terms.invited) - survivors
        return Revealed(
            secrets.self_seed,
            {name: share for name, share in secrets.self_shares.items() if name in survivors},
            {name: share for name, share in secrets.key_shares.items() if name in dropped},
        )

    def _enough_consent(self, under_way: _OpenRound, survivors: frozenset[str], shown: Mapping[str, bytes]) -> bool:
        """Whether `threshold` different survivors, of whom this client is one, consent to what it consents to."""
        message, needed = under_way.terms.list_digest(survivors), under_way.terms.threshold - 1
        others, keys = (name for name in shown if name in survivors and name != self.name), under_way.batch.consents
        return sum(primitives.is_tagged(keys[name], name, message, shown[name]) for name in others) >= needed

    def _at(self, round: int) -> _OpenRound:
        require(self._open is not None and self._open.terms.round == round, Reason.OLD_ROUND)
        assert self._open is not None
        return self._open

    def _batch(self, batch: str) -> Batch:
        require(batch in self._batches, Reason.UNPREPARED)
        return self._batches[batch]


def signed_mask(name: str, other: str, pairwise: bytes, terms: RoundTerms) -> Words:
    """The mask in common with another client: the first of the two by name adds it, the other one subtracts it.

    It depends on the terms. So it cancels only between clients that were told the same, and one that alone was told
    of more noise than there is stays masked, whatever the others agree to and reveal.
    """
    common = primitives.mask(primitives.common_mask_key(pairwise, terms.digest), terms.dimension)
    return common if name < other else -common
