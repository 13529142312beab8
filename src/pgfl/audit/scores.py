"""Scores of a transcript: positive for world 1. Any score gives a valid bound.

`likelihood` is the log-likelihood ratio if the noise is what it should be. The others are for noise that is not:
`cancelled` sees a draw that was used twice, `dual` a dual that was built from the clean model, and, where the record
moves several coordinates, each of them alone shows whether its noise is weaker than the others'. `nearest` trusts the
one number of all answers that is nearest to what one of the worlds computes: it sees a single clean one.
"""

from __future__ import annotations

import numpy as np

from pgfl.array_types import Floats
from pgfl.audit.lying_server import LyingServer

PART = 0.1  # of the worlds' distance, from which a coordinate is scored by itself
NOTHING = 1e-12  # of the worlds' distance, below which nothing is distinguished
NOTICED = 1e-6  # how far, relative to the worlds' distance, an implied model must be from the released one to be news


def scores(server: LyingServer, clean: tuple[Floats, Floats]) -> dict[str, Floats]:
    """The scores of every trial, by kind, given the clean models of both worlds."""
    middle, apart = 0.5 * (clean[0] + clean[1]), clean[1] - clean[0]
    along = apart / np.linalg.norm(apart)
    phi = server.case.phi
    received = np.stack([(released - middle) @ along for released in server.released], axis=1)
    standard = received * np.sqrt(phi)
    growth = np.diff(np.sqrt(phi))
    found = {"likelihood": received @ phi, "cancelled": np.diff(standard, axis=1) @ growth}
    found |= _by_coordinate(server, middle, along)
    if server.answers is not None:
        found["nearest"] = _nearest(server.answers, clean, NOTHING * float(np.linalg.norm(apart)))
    found["dual"] = np.zeros(len(received))
    for implied, released in zip(server.implied, server.released, strict=False):
        news = np.linalg.norm(implied - released, axis=1) > NOTICED * np.linalg.norm(apart)
        first = news & (found["dual"] == 0.0)  # a dual that is not as expected moves the centre of the rounds after it
        found["dual"] += np.where(first, (implied - middle) @ along, 0.0)
    return found


def _by_coordinate(server: LyingServer, middle: Floats, along: Floats) -> dict[str, Floats]:
    telling = np.flatnonzero(np.abs(along) > PART)
    if len(telling) < 2:
        return {}
    weighted = sum(phi * (released - middle) for phi, released in zip(server.case.phi, server.released, strict=True))
    return {f"coordinate {place + 1}": weighted[:, place] * along[place] for place in telling.tolist()}


def _nearest(answers: Floats, clean: tuple[Floats, Floats], nothing: float) -> Floats:
    far = [np.abs(answers - world) + nothing for world in clean]
    closer = np.nan_to_num(np.log(far[0] / far[1])).reshape(len(answers), -1)
    return np.asarray(closer[np.arange(len(closer)), np.argmax(np.abs(closer), axis=1)])
