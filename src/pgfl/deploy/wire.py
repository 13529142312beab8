"""Frames: what goes over a link, byte by byte, and every reason for which one is refused.

    "PGFL" | version u8 | kind u8 | header length u32 | header: JSON object | vectors: n × d float64, little-endian

Nothing in a frame is ever executed or unpickled. A frame is accepted only if its kind is expected, its header has
exactly the fields of its kind with values in their ranges, and its payload is exactly the finite, not absurdly long
vectors that the header promises. Everything else raises `Malformed`, which is counted and logged, never fatal.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

MAGIC: Final = b"PGFL"
VERSION: Final = 1
LARGEST_COUNT: Final = 2**53
_PREFIX: Final = struct.Struct("<4sBBI")
_FLOAT: Final = np.dtype("<f8")


class Malformed(Exception):
    """A frame that is refused; the text says why and holds nothing of the payload."""


class Kind(IntEnum):
    """What a frame is."""

    CHALLENGE = 1
    HELLO = 2
    WELCOME = 3
    REQUEST = 4
    ANSWER = 5
    DECLINE = 6
    STOP = 7
    REFUSED = 8
    PEER_HELLO = 16
    PUBLICATION = 17
    ACKNOWLEDGED = 18


@dataclass(frozen=True)
class Limits:
    """What a receiver can accept at all: the dimension of its models, the clusters it knows, a norm, a header size."""

    dimension: int
    clusters: frozenset[str] = frozenset()
    norm: float = 1e9
    header_bytes: int = 1 << 20
    vectors: int = 2

    @property
    def frame_bytes(self) -> int:
        """The longest frame that could be accepted."""
        most = max(self.vectors, len(self.clusters))
        return _PREFIX.size + self.header_bytes + most * self.dimension * _FLOAT.itemsize


@dataclass(frozen=True)
class Frame:
    """A decoded frame: its kind, its header fields, its vectors as the rows of an n × d array."""

    kind: Kind
    header: Mapping[str, Any]
    vectors: Vector = field(default_factory=lambda: np.empty((0, 0)))


Check = Callable[[Any], bool]


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < LARGEST_COUNT


def _positive(value: Any) -> bool:
    return _count(value) and value > 0


def _clients(value: Any) -> bool:
    return _positive(value) and value <= 10**9


def _maybe_count(value: Any) -> bool:
    return value is None or _count(value)


def _flag(value: Any) -> bool:
    return type(value) is bool


def _text(longest: int) -> Check:
    return lambda value: type(value) is str and len(value) <= longest


def _hex(longest: int) -> Check:
    def check(value: Any) -> bool:
        return type(value) is str and len(value) <= 2 * longest and len(value) % 2 == 0 and set(value) <= _HEX_DIGITS

    return check


def _names(value: Any) -> bool:
    return (
        type(value) is list
        and all(type(name) is str and 0 < len(name) <= 256 for name in value)
        and len(set(value)) == len(value)
    )


_HEX_DIGITS: Final = frozenset("0123456789abcdef")
FIELDS: Final[Mapping[Kind, Mapping[str, Check]]] = {
    Kind.CHALLENGE: {"site": _text(63), "nonce": _hex(64)},
    Kind.HELLO: {"key": _text(512), "token": _text(128), "signature": _hex(256), "releases": _count},
    Kind.WELCOME: {
        "client": _text(256), "cluster": _text(256), "training": _text(1 << 19), "releases": _count, "round": _count,
    },
    Kind.REQUEST: {"round": _positive, "server_clients": _clients, "known": _flag, "accepted": _maybe_count},
    Kind.ANSWER: {"round": _positive, "release": _count},
    Kind.DECLINE: {"round": _positive, "reason": _text(500), "final": _flag},
    Kind.STOP: {"reason": _text(500)},
    Kind.REFUSED: {"reason": _text(500)},
    Kind.PEER_HELLO: {"site": _text(63), "training": _hex(32), "round": _count, "degree": _count, "heard": _count},
    Kind.PUBLICATION: {
        "site": _text(63), "training": _hex(32), "round": _positive, "degree": _count, "clusters": _names,
    },
    Kind.ACKNOWLEDGED: {"site": _text(63), "training": _hex(32), "round": _count, "degree": _count, "finished": _flag},
}  # fmt: skip


def encode(kind: Kind, header: Mapping[str, Any], vectors: Vector | None = None) -> bytes:
    """A frame as bytes. What a correct program encodes is always decodable; the fields are checked all the same."""
    _check_fields(kind, dict(header))
    text = json.dumps(dict(header), separators=(",", ":"), ensure_ascii=True).encode()
    payload = b"" if vectors is None else np.ascontiguousarray(vectors, dtype=_FLOAT).tobytes()
    return _PREFIX.pack(MAGIC, VERSION, kind, len(text)) + text + payload


def decode(data: bytes, limits: Limits, expected: frozenset[Kind]) -> Frame:
    """The frame, or `Malformed` with the first reason found."""
    if len(data) > limits.frame_bytes:
        raise Malformed(f"a frame of {len(data)} bytes is longer than the {limits.frame_bytes} allowed")
    if len(data) < _PREFIX.size:
        raise Malformed("a frame shorter than its prefix")
    magic, version, number, length = _PREFIX.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise Malformed("not a pgfl frame of this version")
    if number not in FIELDS or number not in expected:
        raise Malformed(f"a frame of kind {number}, which is not expected here")
    kind = Kind(number)
    start = _PREFIX.size + length
    if length > limits.header_bytes or start > len(data):
        raise Malformed("a header longer than allowed or than the frame")
    header = _header(data[_PREFIX.size : start])
    _check_fields(kind, header)
    unknown = set(header.get("clusters", ())) - limits.clusters
    if unknown:
        raise Malformed(f"{len(unknown)} unknown clusters, the first is {min(unknown)!r}")
    return Frame(kind, header, _vectors(data[start:], _vector_count(kind, header), limits))


def _vector_count(kind: Kind, header: Mapping[str, Any]) -> int:
    if kind is Kind.REQUEST:
        return int(header["known"]) + int(header["accepted"] is not None)
    if kind is Kind.ANSWER:
        return 2
    return len(header["clusters"]) if kind is Kind.PUBLICATION else 0


def _vectors(payload: bytes, count: int, limits: Limits) -> Vector:
    if len(payload) != count * limits.dimension * _FLOAT.itemsize:
        raise Malformed(f"a payload of {len(payload)} bytes instead of {count} vectors of dimension {limits.dimension}")
    if not count:
        return np.empty((0, limits.dimension))
    vectors = np.frombuffer(payload, dtype=_FLOAT).astype(np.float64).reshape(count, limits.dimension)
    if not np.isfinite(vectors).all():
        raise Malformed("a vector with a value that is not a finite number")
    if np.abs(vectors).max() > limits.norm or np.linalg.norm(vectors, axis=1).max() > limits.norm:
        raise Malformed(f"a vector longer than {limits.norm:g}")
    return vectors


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Malformed("a header that is not strict JSON") from error
    if type(header) is not dict:
        raise Malformed("a header that is not a JSON object")
    return header


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a repeated field")
    return fields


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _check_fields(kind: Kind, header: dict[str, Any]) -> None:
    checks = FIELDS[kind]
    if header.keys() != checks.keys():
        raise Malformed(f"a {kind.name} header with the fields {sorted(header)} instead of {sorted(checks)}"[:500])
    for name, check in checks.items():
        if not check(header[name]):
            raise Malformed(f"a {kind.name} header whose field {name!r} is out of range")
