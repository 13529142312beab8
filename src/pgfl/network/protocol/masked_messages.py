"""The messages of masked sums, and what a site and its clients compute alike about a masked update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Final

import numpy as np
from pydantic import Field

from pgfl import equations as eq
from pgfl.algorithms import roles
from pgfl.algorithms.algorithms import Algorithm
from pgfl.arrays import Floats
from pgfl.errors import PrivacyError
from pgfl.masking.member import Revealed
from pgfl.masking.preparation import MOST_SLOTS, Announcement, Cohort
from pgfl.masking.primitives import TAG_BYTES, Words
from pgfl.masking.terms import RoundTerms
from pgfl.network.protocol.messages import HEX, Count, Digest, Name, Reason, Request, Round, read_request
from pgfl.network.protocol.wire import Expected, Frame, Header, Kind, Malformed, encode
from pgfl.objectives import Objective

_MOST_MEMBERS = 10_000
_NO_TAG: Final = bytes(TAG_BYTES)  # nobody's

Batch = Annotated[str, Field(min_length=8, max_length=64, pattern=HEX)]
Secret = Annotated[str, Field(max_length=1 << 17, pattern=HEX)]
ByName = Annotated[dict[Name, Secret], Field(max_length=_MOST_MEMBERS)]
Keys = Annotated[
    list[Annotated[str, Field(max_length=512, pattern=HEX)]], Field(min_length=3, max_length=MOST_SLOTS + 2)
]
Tags = Annotated[str, Field(max_length=2 * TAG_BYTES * _MOST_MEMBERS, pattern=HEX)]
Names = Annotated[list[Name], Field(max_length=_MOST_MEMBERS)]
Positive = Annotated[float, Field(gt=0.0, lt=1e300)]
Members = Annotated[int, Field(ge=0, le=_MOST_MEMBERS)]


class OfBatch(Header):
    """A message of a preparation."""

    batch: Batch


class WithBoxes(OfBatch):
    """Sealed shares, which only their receivers can open, by the name of the other party."""

    boxes: ByName


class OfRound(Header):
    """A message of one round."""

    round: Round


class Prepare(OfBatch):
    """A site asks for fresh keys for so many rounds."""

    kind = Kind.PREPARE
    slots: Annotated[int, Field(ge=1, le=MOST_SLOTS)]


class AnnouncedKeys(OfBatch):
    """A client's keys: its signature, the transport key, then one key per slot."""

    kind = Kind.KEYS
    announced: Keys


class CohortKeys(OfBatch):
    """Everyone's keys."""

    kind = Kind.COHORT
    colluders: Members
    members: Annotated[dict[Name, Keys], Field(max_length=_MOST_MEMBERS)]


class SealedShares(WithBoxes):
    """A client's shares for every other member of a cohort."""

    kind = Kind.SHARES


class Delivery(WithBoxes):
    """The shares of everyone else, for one client."""

    kind = Kind.DELIVERY


class Ready(OfBatch):
    """A client has its shares; it states the σ that its next release needs, and how far a loss can move an update.

    Together with those whose shares it could not open it would not contribute.
    """

    kind = Kind.READY
    unopened: Names
    sigma: Positive
    reach: Positive


class Unprepared(OfBatch):
    """A client does not take part in a batch."""

    kind = Kind.UNPREPARED
    reason: Reason


class MaskedRequest(Request):
    """A site asks for a masked answer to a round, on these terms; the vectors are those of a plain request."""

    kind: ClassVar[Kind] = Kind.MASKED_REQUEST
    batch: Batch
    cohort: Digest
    holders: Members
    slot: Count
    invited: Names
    required: Members
    colluders: Members
    sigma: Positive
    bound: Positive
    centre: Digest
    terms: Digest  # of all of it, as the site sees it


_TERMS = ("cohort", "holders", "slot", "required", "colluders", "sigma", "bound", "centre")  # those that are copied


class MaskedAnswer(OfRound):
    """A client's masked contribution under terms of this digest, and the σ that its next release needs, if any."""

    kind = Kind.MASKED_ANSWER
    masked: ClassVar[bool] = True
    release: Count
    terms: Digest
    sigma: Positive | None

    def vector_count(self) -> int:
        """The masked vector."""
        return 1


class Survivors(OfRound):
    """Those whose contributions a site has; they are asked to agree to this list."""

    kind = Kind.SURVIVORS
    survivors: Names


class Consent(OfRound):
    """A client agrees to a list of survivors: one tag for every other survivor, in the order of their names."""

    kind = Kind.CONSENT
    tags: Tags


class Consents(OfRound):
    """The tags of the other survivors for one of them, in the order of their names; zeros for one that sent none."""

    kind = Kind.CONSENTS
    tags: Tags


class Reveal(OfRound):
    """What a client reveals, so that the sum over the survivors can be unmasked."""

    kind = Kind.REVEAL
    seed: Annotated[str, Field(max_length=64, pattern=HEX)]
    self_shares: ByName
    key_shares: ByName


TO_CLIENT: Expected = (Prepare, CohortKeys, Delivery, MaskedRequest, Survivors, Consents)
TO_SITE: Expected = (AnnouncedKeys, SealedShares, Ready, Unprepared, MaskedAnswer, Consent, Reveal)


# As the state machines know them --------------------------------------------------------------------------------------


def keys_of(announcement: Announcement) -> list[str]:
    """An announcement as hexadecimal text."""
    return [key.hex() for key in (announcement.signature, *announcement.keys)]


def announcement_of(batch: str, name: str, keys: list[str]) -> Announcement:
    """The inverse."""
    signature, transport, *masks = (bytes.fromhex(key) for key in keys)
    return Announcement(batch, name, transport, tuple(masks), signature)


def cohort_frame(cohort: Cohort) -> bytes:
    """The frame of everyone's keys."""
    members = {each.name: keys_of(each) for each in cohort.announcements}
    return encode(CohortKeys(batch=cohort.batch, colluders=cohort.colluders, members=members))


def cohort_of(header: CohortKeys) -> Cohort:
    """The cohort in a header."""
    announced = [announcement_of(header.batch, name, keys) for name, keys in header.members.items()]
    return Cohort.of(header.batch, header.colluders, announced)


def masked_request_frame(request: roles.RoundRequest, batch: str, terms: RoundTerms) -> bytes:
    """The frame of a request for a masked answer."""
    accepted = request.accepted
    header = MaskedRequest(
        round=request.round,
        server_clients=request.server_clients,
        known=request.model is not None,
        accepted=None if accepted is None else accepted.round,
        restarted=request.restarted,
        batch=batch,
        invited=list(terms.invited),
        **{name: getattr(terms, name) for name in _TERMS},
        terms=terms.digest,
    )
    vectors = [v for v in (request.model, None if accepted is None else accepted.model) if v is not None]
    return encode(header, np.stack(vectors) if vectors else None)


def read_masked_request(
    frame: Frame, training: str, site: str, cluster: str, dimension: int
) -> tuple[roles.RoundRequest, RoundTerms]:
    """The request and its terms; what a client knows of itself is taken from it and not from the frame."""
    header = frame.header
    assert isinstance(header, MaskedRequest)
    try:
        terms = RoundTerms(
            training=training,
            site=site,
            cluster=cluster,
            round=header.round,
            invited=tuple(header.invited),
            dimension=dimension,
            **{name: getattr(header, name) for name in _TERMS},
        )
    except PrivacyError as error:
        raise Malformed("the terms of a masked round that are out of range") from error
    return read_request(frame), terms


def masked_answer_frame(round: int, release: int, terms: RoundTerms, sigma: float | None, masked: Words) -> bytes:
    """The frame of a masked answer."""
    header = MaskedAnswer(round=round, release=release, terms=terms.digest, sigma=sigma)
    return encode(header, masked[None])


def reveal_frame(round: int, revealed: Revealed) -> bytes:
    """The frame of what a client reveals."""
    shares = {kind: _hex(getattr(revealed, kind)) for kind in ("self_shares", "key_shares")}
    return encode(Reveal(round=round, seed=revealed.own_seed.hex(), **shares))


def revealed_of(header: Reveal) -> Revealed:
    """The inverse."""
    return Revealed(bytes.fromhex(header.seed), _bytes(header.self_shares), _bytes(header.key_shares))


def boxes_of(header: WithBoxes) -> dict[str, bytes]:
    """Sealed shares by the other party."""
    return _bytes(header.boxes)


def joined_tags(tags: Mapping[str, bytes], names: Sequence[str]) -> str:
    """Tags in the order of names, as text."""
    return b"".join(tags.get(name, _NO_TAG) for name in names).hex()


def tags_of(header: Consent | Consents, names: Sequence[str]) -> dict[str, bytes]:
    """Tags by name; none at all if there are not as many as names."""
    joined = bytes.fromhex(header.tags)
    if len(joined) != TAG_BYTES * len(names):
        return {}
    return {name: joined[TAG_BYTES * place :][:TAG_BYTES] for place, name in enumerate(names)}


def hex_by_name(values: Mapping[str, bytes]) -> dict[str, str]:
    """Bytes by name, as text."""
    return _hex(values)


def _hex(values: Mapping[str, bytes]) -> dict[str, str]:
    return {name: value.hex() for name, value in values.items()}


def _bytes(values: Mapping[str, str]) -> dict[str, bytes]:
    return {name: bytes.fromhex(value) for name, value in values.items()}


MARGIN = 1e-6  # relative, of a stated σ or length over the least one, so that rounding never makes a client refuse


def centre_of(model: Floats | None, dimension: int) -> Floats:
    """The model that a request carries; zero while the site has none."""
    return np.zeros(dimension) if model is None else np.asarray(model, dtype=float)


def reach_of(algorithm: Algorithm, objective: Objective, gradient: float, server_clients: int) -> float:
    """How far a loss whose gradients are at most `gradient` moves an update."""
    rule = algorithm.client_rule
    return float(rule.reach(np.float64(rule.modulus(objective.lam, server_clients, rule.full_records)))) * gradient


def update_bound(
    algorithm: Algorithm, objective: Objective, reach: float, centre: Floats, server_clients: int
) -> float:
    """A bound on the length of an update: what the loss, the regulariser and a projection can do to it."""
    penalty = float(eq.ridge_penalty(objective.lam, server_clients))
    of_model = reach_of(algorithm, objective, penalty, server_clients) + float("w_norm" in objective.needs_bounds)
    return (reach + of_model * float(np.linalg.norm(centre))) * (1.0 + MARGIN)
