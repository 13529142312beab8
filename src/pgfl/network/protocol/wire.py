"""Frames: what goes over a link, byte by byte, and every reason to refuse one.

    "PGFL" | version u8 | kind u8 | header length u32 | header: JSON object | vectors: n × d float64, little-endian

Masked vectors are whole numbers modulo 2⁶⁴ (uint64) in the place of floats; every value of them is valid.

Nothing in a frame is ever executed or unpickled. A frame is accepted only if its kind is expected, its header has
exactly the fields of its kind (`messages.py`) with values in their ranges, and its payload is exactly the finite, not
absurdly long vectors that the header promises. Anything else raises `Malformed`, which is counted and logged, never
fatal.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache, cached_property
from typing import Any, ClassVar, Final, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from pgfl.arrays import Floats

Words: TypeAlias = NDArray[np.uint64]
MAGIC: Final = b"PGFL"
VERSION = 9  # one more whenever a message changes; a test compares it with the messages
LARGEST: Final = 2**53  # which no count reaches; exact in JSON
_PREFIX: Final = struct.Struct("<4sBBI")
_KIND_PLACE: Final = 5
_FLOAT: Final = np.dtype("<f8")
_WORD: Final = np.dtype("<u8")
_NO_VECTORS: Final[Floats] = np.empty((0, 0))
_NO_WORDS: Final[Words] = np.empty((0, 0), dtype=np.uint64)


class Malformed(Exception):
    """A frame is refused; the text gives the reason and nothing of the payload.

    `release` is the number that the frame states of a release, if it states one: it was made all the same.
    """

    release: int | None = None


class Kind(IntEnum):
    """The kind of a frame, as it is numbered on the wire."""

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
    LEARNED_PUBLICATION = 19
    INTRODUCTION = 20
    INTRODUCED = 21
    PREPARE = 32
    KEYS = 33
    COHORT = 34
    SHARES = 35
    DELIVERY = 36
    READY = 37
    UNPREPARED = 38
    MASKED_REQUEST = 39
    MASKED_ANSWER = 40
    SURVIVORS = 41
    CONSENT = 42
    CONSENTS = 43
    REVEAL = 44


class Header(BaseModel):
    """The header of one kind of frame: a subclass declares its fields in the order in which they are written."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    kind: ClassVar[Kind]
    masked: ClassVar[bool] = False  # whether its vectors are numbers modulo 2⁶⁴

    def vector_count(self) -> int:
        """How many vectors follow this header."""
        return 0

    def named_clusters(self) -> Collection[str]:
        """The clusters that this header names, all of which the receiver must know."""
        return ()


Expected: TypeAlias = tuple[type[Header], ...]
"""The messages that a receiver accepts now."""


@dataclass(frozen=True)
class Limits:
    """What a receiver accepts: the dimension of its models, the clusters it knows, a norm, a header size."""

    dimension: int
    clusters: frozenset[str] = frozenset()
    norm: float = 1e9
    header_bytes: int = 1 << 20
    vectors: int = 2

    @cached_property
    def frame_bytes(self) -> int:
        """The length of the longest frame that could be accepted."""
        most = max(self.vectors, len(self.clusters))
        return _PREFIX.size + self.header_bytes + most * self.dimension * _FLOAT.itemsize


@dataclass(frozen=True)
class Frame:
    """A decoded frame: its header, and its vectors as the rows of an n × d array."""

    header: Header
    vectors: Floats = field(default_factory=lambda: _NO_VECTORS)
    words: Words = field(default_factory=lambda: _NO_WORDS)

    @property
    def kind(self) -> Kind:
        """The kind of its header."""
        return self.header.kind


def encode(header: Header, vectors: Floats | Words | None = None) -> bytes:
    """A frame as bytes."""
    text = _WRITER.encode(dict(header)).encode()
    form = _WORD if header.masked else _FLOAT
    payload = b"" if vectors is None else np.ascontiguousarray(vectors, dtype=form).tobytes()
    return _PREFIX.pack(MAGIC, VERSION, header.kind, len(text)) + text + payload


def decode(data: bytes, limits: Limits, expected: Expected) -> Frame:
    """The frame, or `Malformed` with the first reason found."""
    if len(data) > limits.frame_bytes:
        raise Malformed(f"a frame of {len(data)} bytes is longer than the {limits.frame_bytes} allowed")
    if len(data) < _PREFIX.size:
        raise Malformed("a frame shorter than its prefix")
    magic, version, number, length = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise Malformed("what is not a pgfl frame")
    if version != VERSION:
        raise Malformed(_other_version(version))
    message = _by_number(expected).get(number)
    if message is None:
        raise Malformed(f"a frame of kind {number}, which is not expected here")
    start = _PREFIX.size + length
    if length > limits.header_bytes or start > len(data):
        raise Malformed("a header longer than allowed or than the frame")
    fields = _fields(data[_PREFIX.size : start])
    try:
        return _whole(message, fields, data, start, limits)
    except Malformed as error:
        error.release = _stated_release(fields)
        raise


def _whole(message: type[Header], fields: dict[str, Any], data: bytes, start: int, limits: Limits) -> Frame:
    header = _validated(message, fields)
    if named := header.named_clusters():
        unknown = set(named) - limits.clusters
        if unknown:
            raise Malformed(f"{len(unknown)} unknown clusters, the first is {min(unknown)!r}")
    if header.masked:
        return Frame(header, words=_words(data, start, header.vector_count(), limits))
    return Frame(header, _vectors(data, start, header.vector_count(), limits))


def _stated_release(fields: dict[str, Any]) -> int | None:
    number = fields.get("release")
    return number if type(number) is int and 0 <= number < LARGEST else None


def kind_of(data: bytes) -> int | None:
    """The number of a frame's kind, before anything of it is checked; None if it is too short to have one."""
    return data[_KIND_PLACE] if len(data) > _KIND_PLACE else None


@cache
def _by_number(expected: Expected) -> Mapping[int, type[Header]]:
    return {message.kind: message for message in expected}


@cache
def _names_of_fields(message: type[Header]) -> frozenset[str]:
    return frozenset(message.model_fields)


def _other_version(version: int) -> str:
    who, where = ("a newer", "on this machine") if version > VERSION else ("an older", "there")
    return f"a frame of version {version}, which {who} pgfl writes, this one writes {VERSION}: upgrade pgfl {where}"


def _fields(text: bytes) -> dict[str, Any]:
    try:
        fields = _READER.decode(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise Malformed("a header that is not strict JSON") from error
    if type(fields) is not dict:
        raise Malformed("a header that is not a JSON object")
    return fields


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a repeated field")
    return fields


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_WRITER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True)
_READER: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)


def _validated(message: type[Header], fields: dict[str, Any]) -> Header:
    wanted = _names_of_fields(message)
    if fields.keys() != wanted:
        named = f"{sorted(fields)} instead of {sorted(wanted)}"
        raise Malformed(f"a {message.kind.name} header with the fields {named}"[:500])
    try:
        return message.model_validate(fields)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False, include_input=False)[0]["loc"][0]
    raise Malformed(f"a {message.kind.name} header whose field {wrong!r} is out of range")


def _words(data: bytes, start: int, count: int, limits: Limits) -> Words:
    _check_length(len(data) - start, count, limits)
    return np.frombuffer(data, _WORD, offset=start).astype(np.uint64).reshape(count, limits.dimension)


def _check_length(payload: int, count: int, limits: Limits) -> None:
    if payload != count * limits.dimension * _FLOAT.itemsize:
        raise Malformed(f"a payload of {payload} bytes instead of {count} vectors of dimension {limits.dimension}")


def _vectors(data: bytes, start: int, count: int, limits: Limits) -> Floats:
    _check_length(len(data) - start, count, limits)
    if not count:
        return np.empty((0, limits.dimension))
    numbers = np.frombuffer(data, _FLOAT, offset=start).astype(np.float64)
    vectors = numbers.reshape(count, limits.dimension)
    if np.vdot(numbers, numbers) <= limits.norm**2:  # all vectors together, so each of them; False if one is not finite
        return vectors
    if not np.isfinite(vectors).all():
        raise Malformed("a vector with a value that is not a finite number")
    if np.abs(vectors).max() > limits.norm or np.linalg.norm(vectors, axis=1).max() > limits.norm:
        raise Malformed(f"a vector longer than {limits.norm:g}")
    return vectors
