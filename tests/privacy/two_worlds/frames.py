"""Frames as bytes, written and read here once more, so that a site can also say what no correct program encodes."""

from __future__ import annotations

import json
import struct
from functools import lru_cache

import numpy as np

from pgfl.network.protocol.wire import VERSION, Kind

_PREFIX = struct.Struct("<4sBBI")


def frame(kind, header, *vectors, magic=b"PGFL", version=VERSION):
    """A frame, whatever is in it."""
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    payload = b"".join(np.asarray(vector, dtype="<f8").tobytes() for vector in vectors)
    return _PREFIX.pack(magic, version, kind, len(text)) + text + payload


@lru_cache(maxsize=1024)
def opened(data):
    """(kind, header, numbers) of a frame that a client sent."""
    _, _, kind, length = _PREFIX.unpack_from(data)
    start = _PREFIX.size + length
    return Kind(kind), json.loads(data[_PREFIX.size : start]), np.frombuffer(data[start:], dtype="<f8")


def challenge(nonce):
    return frame(Kind.CHALLENGE, {"site": "north", "nonce": nonce})


def welcome(training, cluster="a", releases=0, round=0):
    text = training if isinstance(training, str) else json.dumps(training)
    fields = {"client": "ann", "cluster": cluster, "training": text, "releases": releases, "round": round}
    return frame(Kind.WELCOME, fields)


def request(round, server_clients, model=None, accepted=None, restarted=0):
    """`accepted` is a pair of round and model."""
    header = {
        "round": round, "server_clients": server_clients, "known": model is not None,
        "accepted": None if accepted is None else accepted[0], "restarted": restarted,
    }  # fmt: skip
    return frame(Kind.REQUEST, header, *[v for v in (model, accepted and accepted[1]) if v is not None])


def stop(accepted=None, reason="training is over"):
    return frame(Kind.STOP, {"reason": reason, "accepted": accepted})


def refused(reason="no"):
    return frame(Kind.REFUSED, {"reason": reason})
