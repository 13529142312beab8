"""What is agreed about one masked round, in one digest that its clients consent to, and what a client insists on.

A server proposes terms; a client compares them with its own demands and refuses in a constant sentence, so that a
refusal reveals nothing about data. Whatever a client relies on is in the digest. Shares leave only if as many clients
as the threshold consent to the same one, and the masks of a client that was told otherwise do not cancel with theirs.

Who may take part with a client: names and identity keys, which the client's owner pins or a steward signs.

Without a roster a server could invent participants, and "the sum over ten clients" would be one client and nine of the
server's own making. A steward is anyone but the site: a key that the site has must not vouch for participants.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pgfl.arrays import Floats
from pgfl.errors import PrivacyError
from pgfl.masking.primitives import digest
from pgfl.privacy import lattice

_PURPOSE = "roster"
_MOST_MEMBERS = 10_000


@dataclass(frozen=True)
class Roster:
    """Names and public keys (OpenSSH lines). One person, one name, one key."""

    keys: Mapping[str, str]

    def __post_init__(self) -> None:
        if not self.keys or len(self.keys) > _MOST_MEMBERS:
            raise PrivacyError(f"A roster names 1 to {_MOST_MEMBERS} clients, not {len(self.keys)}.")
        spelled: dict[str, str] = {}
        for name, line in self.keys.items():
            key = _public(line)
            if key is None:
                raise PrivacyError(f"The roster's key of {name} is no client's public key; take it from client.pub.")
            spelled[name] = _line(key)
        if len(set(spelled.values())) != len(spelled):
            raise PrivacyError("A roster lists one key under two names; every client has a key of its own.")
        object.__setattr__(self, "keys", spelled)

    @property
    def digest(self) -> str:
        """SHA-256 of all of it, for owners to compare."""
        return digest(_PURPOSE, {"keys": dict(self.keys)})

    def signed_by(self, name: str, signature: bytes, message: str) -> bool:
        """Whether the member of this name signed a message with its identity key."""
        line = self.keys.get(name)
        return line is not None and _verifies(line, signature, message)


def read_roster(path: Path, steward: str | None = None, site: bytes | None = None) -> Roster:
    """A roster file: {"keys": {name: key}, "signature": hex}. With a steward's key, only one that it signed.

    `site` is the certificate of the site, in PEM: its key must neither vouch for participants nor be one.
    """
    try:
        stored: Any = json.loads(path.read_text("utf-8"))
        keys = {str(name): str(line) for name, line in stored["keys"].items()}
        signature = bytes.fromhex(stored.get("signature") or "")
    except OSError as error:
        raise PrivacyError(f"The roster {path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PrivacyError(f'{path} is not a roster; it is JSON like {{"keys": {{"name": "ecdsa-…"}}}}.') from error
    roster = Roster(keys)
    if steward is not None and not _verifies(steward, signature, roster.digest):
        raise PrivacyError(f"The roster {path} is not signed by the steward that client.toml names; ask for a new one.")
    if site is not None:
        _check_not_site_key(path, roster, steward, site)
    return roster


def _check_not_site_key(path: Path, roster: Roster, steward: str | None, site: bytes) -> None:
    """Refuse a site that vouches for participants, or takes part under a client's name."""
    key = x509.load_pem_x509_certificate(site).public_key()
    of_site = _line(key) if isinstance(key, ec.EllipticCurvePublicKey) else None
    vouching = None if steward is None else _public(steward)
    if vouching is not None and _line(vouching) == of_site:
        raise PrivacyError(
            "The steward in client.toml is the site itself, which could then invent participants; name somebody else."
        )
    if of_site in roster.keys.values():
        raise PrivacyError(f"The roster {path} lists the site's own key as a client; ask for one without it.")


def roster_text(roster: Roster, steward: ec.EllipticCurvePrivateKey | None = None) -> str:
    """The content of a roster file, signed if there is a steward."""
    content: dict[str, Any] = {"keys": dict(sorted(roster.keys.items()))}
    if steward is not None:
        content["signature"] = identity_signature(steward, roster.digest).hex()
    return json.dumps(content, indent=1) + "\n"


def identity_signature(key: ec.EllipticCurvePrivateKey, message: str) -> bytes:
    """A signature with a client's identity key."""
    return key.sign(message.encode(), ec.ECDSA(hashes.SHA384()))


def identity_line(key: ec.EllipticCurvePrivateKey) -> str:
    """The public half, as a roster lists it."""
    return _line(key.public_key())


def _line(key: ec.EllipticCurvePublicKey) -> str:
    return key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()


def _public(line: str) -> ec.EllipticCurvePublicKey | None:
    try:
        key = serialization.load_ssh_public_key(line.encode())
    except (ValueError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, ec.EllipticCurvePublicKey) else None


def _verifies(line: str, signature: bytes, message: str) -> bool:
    key = _public(line)
    try:
        if key is not None:
            key.verify(signature, message.encode(), ec.ECDSA(hashes.SHA384()))
    except InvalidSignature:
        return False
    return key is not None


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


def require(holds: bool, reason: Reason) -> None:
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
        require(len(set(terms.invited)) == len(terms.invited), Reason.REPEATED)
        require(terms.colluders >= self.colluders, Reason.TOO_TRUSTING)
        require(terms.required >= self.contributors and terms.honest >= 1, Reason.TOO_FEW)
        require(len(terms.invited) >= terms.fewest, Reason.TOO_FEW)
        most = terms.largest_sum(len(terms.invited))
        require(most < LARGEST_SUM, Reason.WOULD_WRAP)
        require(terms.share_sigma >= lattice.LEAST_UNITS * lattice.STEP, Reason.TOO_LITTLE_NOISE)

    def check_cohort(self, members: Sequence[str], colluders: int) -> None:
        """Decline to share secrets with so few that no round could follow."""
        require(len(set(members)) == len(members), Reason.REPEATED)
        require(colluders >= self.colluders, Reason.TOO_TRUSTING)
        require(len(members) >= max(self.contributors, threshold_for(len(members), colluders)), Reason.TOO_FEW)
