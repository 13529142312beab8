"""Every message of the network: its header, how it is written, and how it is read.

A frame that was decoded within its limits always reads as the message that its header says it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any, Final, Self, TypeVar

import numpy as np
from pydantic import AfterValidator, FailFast, Field, model_validator

from pgfl.algorithms import roles
from pgfl.network.protocol.wire import LARGEST, Expected, Frame, Header, Kind, encode

HEX: Final = "^(?:[0-9a-f]{2})*$"

Count = Annotated[int, Field(ge=0, lt=LARGEST)]
Round = Annotated[int, Field(gt=0, lt=LARGEST)]
Clients = Annotated[int, Field(gt=0, le=10**9)]
SiteName = Annotated[str, Field(max_length=63)]
Name = Annotated[str, Field(max_length=256)]
Reason = Annotated[str, Field(max_length=500)]
Digest = Annotated[str, Field(max_length=64, pattern=HEX)]
Code = Annotated[str, Field(max_length=64, pattern=HEX)]  # of an invitation, once
ClusterName = Annotated[str, Field(min_length=1, max_length=256)]


Rollbacks = Annotated[list[Count], Field(max_length=1000)]
"""The rounds that a site's operator has rolled back to, in order; neighbours must agree on them."""


def _without_repetition(names: list[str]) -> list[str]:
    if len(set(names)) != len(names):
        raise ValueError("a name is repeated")
    return names


ClusterNames = Annotated[list[ClusterName], FailFast(), AfterValidator(_without_repetition)]


# Between a site and its clients ---------------------------------------------------------------------------------------


class Challenge(Header):
    """A site's first frame: the client must sign its nonce."""

    kind = Kind.CHALLENGE
    site: SiteName
    nonce: Annotated[str, Field(max_length=128, pattern=HEX)]


class Hello(Header):
    """A client proves who it is, and reports how many releases it has made and, unless it minds, may make.

    With `terms` (`entrusting.SiteTerms`) it entrusts its contributions to this site, where the training asks for that.
    `masks` says that it takes part in masked sums, where the training has them. The first time a client that was
    invited also says the one-time code of its `invitation`.
    """

    kind = Kind.HELLO
    key: Annotated[str, Field(max_length=512)]
    signature: Annotated[str, Field(max_length=512, pattern=HEX)]
    releases: Count
    budget: Annotated[str, Field(max_length=500)] | None = None
    terms: Annotated[str, Field(max_length=4096)] = ""
    masks: bool = False
    invitation: Code = ""


class Welcome(Header):
    """A site lets a client in: its cluster, the training, and the largest release number that the site has seen."""

    kind = Kind.WELCOME
    client: Name
    cluster: Name
    training: Annotated[str, Field(max_length=1 << 19)]
    releases: Count
    round: Count


class Request(Header):
    """A site asks a client for its answer to a round. The vectors are its model and the accepted one, if known."""

    kind = Kind.REQUEST
    round: Round
    server_clients: Clients
    known: bool
    accepted: Count | None
    restarted: Count = 0

    def vector_count(self) -> int:
        """The current model if there is one, and the model of the accepted round if there is one."""
        return int(self.known) + int(self.accepted is not None)


class Answer(Header):
    """A client's answer to a round: the released model and the dual; `clean` if the site is to add the noise."""

    kind = Kind.ANSWER
    round: Round
    release: Count
    clean: bool

    def vector_count(self) -> int:
        """The model and the dual."""
        return 2


class Decline(Header):
    """A client does not answer a round or, if it is final, any later one."""

    kind = Kind.DECLINE
    round: Round
    reason: Reason
    final: bool


class Stop(Header):
    """Training is over; the last answer of this client that was accepted is to this round."""

    kind = Kind.STOP
    reason: Reason
    accepted: Count | None = None


class Refused(Header):
    """A site does not let a client in."""

    kind = Kind.REFUSED
    reason: Reason


# Between neighbouring sites -------------------------------------------------------------------------------------------


class Introduction(Header):
    """A site that was invited shows its certificate (PEM) to its neighbour to be, and where it is called, if at all.

    It replies to the challenge, as it is no neighbour yet that could show its certificate in TLS.
    """

    kind = Kind.INTRODUCTION
    invitation: Code
    certificate: Annotated[str, Field(max_length=16_384)]
    address: Name = ""  # host:port
    signature: Annotated[str, Field(max_length=512, pattern=HEX)]


class Introduced(Header):
    """A site is linked from now on."""

    kind = Kind.INTRODUCED
    site: SiteName


class PeerHello(Header):
    """A site greets its neighbour: its training, its round, the last one it received, and whether it can begin."""

    kind = Kind.PEER_HELLO
    site: SiteName
    training: Digest
    round: Count
    degree: Count
    heard: Count
    ready: bool = True
    rollbacks: Rollbacks = Field(default_factory=list)


class Publication(Header):
    """A site's aggregates of a round, one vector per cluster, its clients, and where they can still contribute."""

    kind = Kind.PUBLICATION
    site: SiteName
    training: Digest
    round: Round
    degree: Count
    clusters: ClusterNames
    clients: list[Count]  # of every cluster of `clusters`
    able: ClusterNames
    exhausted: ClusterNames
    rollbacks: Rollbacks = Field(default_factory=list)

    @model_validator(mode="after")
    def _counted(self) -> Self:
        if len(self.clients) != len(self.clusters):
            raise ValueError("there must be one number of clients for every cluster")
        return self

    def vector_count(self) -> int:
        """One model per cluster."""
        return len(self.clusters)

    def named_clusters(self) -> Collection[str]:
        """The clusters whose models follow, and those that clients can or cannot contribute to any more."""
        return [*self.clusters, *self.able, *self.exhausted]


class LearnedPublication(Publication):
    """A publication with what weights between clusters are learned from: the model of every cluster comes first.

    The numbers of a cluster fill whole vectors; zeros fill the last one.
    """

    kind = Kind.LEARNED_PUBLICATION
    vectors_each: Annotated[int, Field(ge=2, le=16)]

    def vector_count(self) -> int:
        """So many per cluster."""
        return self.vectors_each * len(self.clusters)


class Acknowledged(Header):
    """A site's reply to a greeting or a publication."""

    kind = Kind.ACKNOWLEDGED
    site: SiteName
    training: Digest
    round: Count
    degree: Count
    finished: bool
    ready: bool = True


BETWEEN_SITE_AND_CLIENT: Expected = (Challenge, Hello, Welcome, Request, Answer, Decline, Stop, Refused)
BETWEEN_SITES: Expected = (PeerHello, Publication, LearnedPublication, Acknowledged, Introduction, Introduced)


# Messages with vectors, as the roles know them ------------------------------------------------------------------------


def encode_request(request: roles.RoundRequest) -> bytes:
    """The frame of a site's request."""
    accepted = request.accepted
    header = Request(
        round=request.round,
        server_clients=request.server_clients,
        known=request.model is not None,
        accepted=None if accepted is None else accepted.round,
        restarted=request.restarted,
    )
    vectors = [v for v in (request.model, None if accepted is None else accepted.model) if v is not None]
    return encode(header, np.stack(vectors) if vectors else None)


class RequestFrames:
    """The frames of requests that are sent together. Clients of a cluster are often sent the same one: written once."""

    def __init__(self, write: Callable[[roles.RoundRequest], bytes] | None = None) -> None:
        self._write = encode_request if write is None else write
        self._known: dict[tuple[object, ...], tuple[roles.RoundRequest, bytes]] = {}

    def of(self, request: roles.RoundRequest) -> bytes:
        """The frame of a request; the same vectors are recognised by their identity, as long as this object lives."""
        accepted = request.accepted
        closing = (None, None) if accepted is None else (accepted.round, id(accepted.model))
        key = (request.round, request.server_clients, id(request.model), *closing, request.restarted)
        if key not in self._known:
            self._known[key] = request, self._write(request)
        return self._known[key][1]


def read_request(frame: Frame) -> roles.RoundRequest:
    """The request in a frame."""
    header, vectors = _header(frame, Request), list(frame.vectors)
    model = vectors.pop(0) if header.known else None
    accepted = None if header.accepted is None else roles.Accepted(header.accepted, vectors.pop(0))
    return roles.RoundRequest(header.round, header.server_clients, model, accepted, header.restarted)


def encode_answer(answer: roles.Answer, release: int) -> bytes:
    """The frame of a client's answer; `release` is the number under which it was charged."""
    header = Answer(round=answer.round, release=release, clean=answer.clean)
    return encode(header, np.stack([answer.model, answer.dual]))


def read_answer(frame: Frame) -> roles.Answer:
    """The answer in a frame."""
    header = _header(frame, Answer)
    return roles.Answer(header.round, frame.vectors[0], frame.vectors[1], header.clean)


def encode_publication(
    site: str, training: str, publication: roles.Publication, rollbacks: Sequence[int] = ()
) -> bytes:
    """The frame of a site's publication under the training with this hash, after these rollbacks."""
    clusters = sorted(publication.models)
    written: dict[str, Any] = {
        "site": site,
        "training": training,
        "round": publication.round,
        "degree": publication.degree,
        "clusters": clusters,
        "clients": [publication.clients.get(cluster, 0) for cluster in clusters],
        "able": sorted(publication.able),
        "exhausted": sorted(publication.exhausted),
        "rollbacks": list(rollbacks),
    }
    models = np.array([publication.models[cluster] for cluster in clusters])
    if not publication.memory:
        return encode(Publication(**written), models)
    wide = np.array([np.concatenate([publication.models[q], publication.memory[q]]) for q in clusters])
    each = vectors_each(models.shape[1], wide.shape[1])
    padded = np.zeros((len(clusters), each * models.shape[1]))
    padded[:, : wide.shape[1]] = wide
    return encode(LearnedPublication(**written, vectors_each=each), padded.reshape(-1, models.shape[1]))


def vectors_each(dimension: int, numbers: int) -> int:
    """How many vectors so many numbers fill."""
    return -(-numbers // dimension)


def read_publication(frame: Frame) -> roles.Publication:
    """The publication in a frame."""
    header = _header(frame, Publication)
    each = header.vectors_each if isinstance(header, LearnedPublication) else 1
    length = frame.vectors.shape[-1]
    rows = frame.vectors.reshape(len(header.clusters), each * length)  # there may be none, before the first round
    models = {cluster: row[:length] for cluster, row in zip(header.clusters, rows, strict=True)}
    memory = {cluster: row[length:] for cluster, row in zip(header.clusters, rows, strict=True) if each > 1}
    able, exhausted = frozenset(header.able), frozenset(header.exhausted)
    clients = dict(zip(header.clusters, header.clients, strict=True))
    return roles.Publication(header.round, header.degree, models, able, exhausted, clients, memory)


AnyHeader = TypeVar("AnyHeader", bound=Header)


def _header(frame: Frame, message: type[AnyHeader]) -> AnyHeader:
    if not isinstance(frame.header, message):
        raise TypeError(f"a {frame.kind.name} frame cannot be read as {message.__name__}")
    return frame.header
