"""Between the roles' messages and frames; a frame that was decoded within its limits always converts."""

from __future__ import annotations

import numpy as np

from pgfl.core.roles import Accepted, Answer, Publication, RoundRequest
from pgfl.deploy.wire import Frame, Kind, encode


def encode_request(request: RoundRequest) -> bytes:
    """A site's question to a client."""
    accepted = request.accepted
    vectors = [v for v in (request.model, None if accepted is None else accepted.model) if v is not None]
    header = {
        "round": request.round,
        "server_clients": request.server_clients,
        "known": request.model is not None,
        "accepted": None if accepted is None else accepted.round,
    }
    return encode(Kind.REQUEST, header, np.stack(vectors) if vectors else None)


def read_request(frame: Frame) -> RoundRequest:
    """The question, at the client."""
    header, vectors = frame.header, list(frame.vectors)
    model = vectors.pop(0) if header["known"] else None
    accepted = None if header["accepted"] is None else Accepted(header["accepted"], vectors.pop(0))
    return RoundRequest(header["round"], header["server_clients"], model, accepted)


def read_answer(frame: Frame) -> Answer:
    """A client's answer, at the site."""
    return Answer(frame.header["round"], frame.vectors[0], frame.vectors[1])


def encode_publication(site: str, training: str, publication: Publication) -> bytes:
    """What a site tells its neighbours."""
    clusters = sorted(publication.models)
    header = {
        "site": site,
        "training": training,
        "round": publication.round,
        "degree": publication.degree,
        "clusters": clusters,
    }
    return encode(Kind.PUBLICATION, header, np.array([publication.models[cluster] for cluster in clusters]))


def read_publication(frame: Frame) -> Publication:
    """What a neighbour told."""
    models = dict(zip(frame.header["clusters"], frame.vectors, strict=True))
    return Publication(frame.header["round"], frame.header["degree"], models)
