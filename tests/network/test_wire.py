"""Frames: what is encoded comes back, and nothing that is malformed gets through."""

from __future__ import annotations

import hashlib
import json
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgfl.algorithms import roles
from pgfl.network.protocol import messages
from pgfl.network.protocol.masked_messages import TO_CLIENT, TO_SITE
from pgfl.network.protocol.messages import BETWEEN_SITE_AND_CLIENT, BETWEEN_SITES
from pgfl.network.protocol.wire import VERSION, Kind, Limits, Malformed, decode, encode

ALL = (*BETWEEN_SITE_AND_CLIENT, *BETWEEN_SITES, *TO_CLIENT, *TO_SITE)
MESSAGE = {message.kind: message for message in ALL}
LIMITS = Limits(dimension=3, clusters=frozenset({"a", "b"}), norm=100.0, header_bytes=4096)
VECTORS = np.arange(6.0).reshape(2, 3)
WORDS = np.array([[0, 2**64 - 1, 0x7FF8000000000000]], dtype=np.uint64)  # the last would be NaN as a float
BATCH, DIGEST, BOXES = {"batch": "00" * 16}, "ab" * 32, {"ann": "00ff"}
GOOD = {
    Kind.CHALLENGE: ({"site": "north", "nonce": "00ff"}, None),
    Kind.HELLO: (
        {
            "key": "k",
            "signature": "ab",
            "releases": 3,
            "budget": "{}",
            "terms": "",
            "masks": True,
            "invitation": "00ff",
        },
        None,
    ),
    Kind.WELCOME: ({"client": "ann", "cluster": "a", "training": "{}", "releases": 0, "round": 0}, None),
    Kind.REQUEST: ({"round": 2, "server_clients": 4, "known": True, "accepted": 1, "restarted": 0}, VECTORS),
    Kind.ANSWER: ({"round": 2, "release": 1, "clean": True}, VECTORS),
    Kind.DECLINE: ({"round": 2, "reason": "spent", "final": True}, None),
    Kind.STOP: ({"reason": "done", "accepted": 9}, None),
    Kind.REFUSED: ({"reason": "who are you"}, None),
    Kind.PEER_HELLO: (
        {"site": "north", "training": "00" * 32, "round": 0, "degree": 2, "heard": 0, "ready": False, "rollbacks": []},
        None,
    ),
    Kind.PUBLICATION: (
        {
            "site": "north",
            "training": "00" * 32,
            "round": 1,
            "degree": 1,
            "clusters": ["a", "b"],
            "clients": [3, 0],
            "able": ["a"],
            "exhausted": ["b"],
            "rollbacks": [3],
        },
        VECTORS,
    ),
    Kind.LEARNED_PUBLICATION: (
        {
            "site": "north",
            "training": "00" * 32,
            "round": 1,
            "degree": 1,
            "clusters": ["a"],
            "clients": [3],
            "able": ["a"],
            "exhausted": [],
            "rollbacks": [],
            "vectors_each": 2,
        },
        VECTORS,
    ),
    Kind.INTRODUCTION: (
        {"invitation": "00ff", "certificate": "-----BEGIN", "address": "south:9094", "signature": "ab"},
        None,
    ),
    Kind.INTRODUCED: ({"site": "north"}, None),
    Kind.PREPARE: ({**BATCH, "slots": 8}, None),
    Kind.KEYS: ({**BATCH, "announced": ["00", "ff", "0a", "0b"]}, None),
    Kind.COHORT: ({**BATCH, "colluders": 1, "members": {"ann": ["00", "ff", "0a", "0b"]}}, None),
    Kind.SHARES: ({**BATCH, "boxes": BOXES}, None),
    Kind.DELIVERY: ({**BATCH, "boxes": BOXES}, None),
    Kind.READY: ({**BATCH, "unopened": ["bob"], "sigma": 0.5, "reach": 2.0}, None),
    Kind.UNPREPARED: ({**BATCH, "reason": "no"}, None),
    Kind.MASKED_REQUEST: (
        {
            "round": 2,
            "server_clients": 4,
            "known": True,
            "accepted": 1,
            "restarted": 0,
            **BATCH,
            "cohort": DIGEST,
            "holders": 5,
            "slot": 0,
            "invited": ["ann", "bob"],
            "required": 2,
            "colluders": 1,
            "sigma": 0.5,
            "bound": 1.0,
            "centre": DIGEST,
            "terms": DIGEST,
        },
        VECTORS,
    ),
    Kind.MASKED_ANSWER: ({"round": 2, "release": 1, "terms": DIGEST, "sigma": None}, WORDS),
    Kind.SURVIVORS: ({"round": 2, "survivors": ["ann", "bob"]}, None),
    Kind.CONSENT: ({"round": 2, "tags": "00"}, None),
    Kind.CONSENTS: ({"round": 2, "tags": "00"}, None),
    Kind.REVEAL: ({"round": 2, "seed": "00" * 16, "self_shares": BOXES, "key_shares": {}}, None),
    Kind.ACKNOWLEDGED: ({"site": "s", "training": "", "round": 0, "degree": 1, "finished": False, "ready": True}, None),
}


def good(kind):
    """A valid frame of this kind."""
    header, vectors = GOOD[kind]
    return encode(MESSAGE[kind](**header), vectors)


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_comes_back_as_it_was(kind):
    header, vectors = GOOD[kind]
    frame = decode(good(kind), LIMITS, ALL)
    assert (frame.kind, frame.header.model_dump()) == (kind, header)
    found = frame.words if frame.header.masked else frame.vectors
    assert found.tolist() == ([] if vectors is None else vectors.tolist())


@pytest.mark.parametrize("kind", list(Kind))
def test_a_frame_is_a_prefix_its_header_in_compact_json_and_its_vectors(kind):
    header, vectors = GOOD[kind]
    text = json.dumps(header, separators=(",", ":")).encode()
    payload = b"" if vectors is None else vectors.astype(vectors.dtype.newbyteorder("<")).tobytes()
    assert good(kind) == b"PGFL" + bytes([VERSION, kind]) + len(text).to_bytes(4, "little") + text + payload


def test_every_kind_is_covered_here():
    assert set(GOOD) == set(MESSAGE) == set(Kind)
    assert len(MESSAGE) == len(ALL)


def test_messages_that_change_have_a_new_version():
    """Machines whose messages differ must refuse each other by version, with what to do, and not as malformed."""
    shapes = {message.kind.name: [message.kind, sorted(message.model_fields)] for message in ALL}
    digest = hashlib.sha256(json.dumps(shapes, sort_keys=True).encode()).hexdigest()
    assert (VERSION, digest[:16]) == (9, "3e62f56afad9582b"), "raise wire.VERSION, and write the new pair here"


def frame(kind, header, payload=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<4sBBI", b"PGFL", VERSION, kind, len(text)) + text + payload


ANSWER = {"round": 2, "release": 1, "clean": False}
PAYLOAD = VECTORS.astype("<f8").tobytes()
NAN = np.array([[0, np.nan, 0], [0, 0, 0]]).tobytes()
INFINITE = np.array([[0, np.inf, 0], [0, 0, 0]]).tobytes()
LONG = np.array([[0, 60.0, 99], [0, 0, 0]]).tobytes()
HUGE = np.full((2, 3), 1e308).tobytes()
PUBLICATION = {
    "site": "s", "training": "", "round": 1, "degree": 0,
    "clusters": ["a", "c"], "clients": [1, 1], "able": [], "exhausted": [],
}  # fmt: skip
TWO_CLUSTERS = {**PUBLICATION, "clusters": ["a", "b"]}
MALFORMED = {
    "empty": b"",
    "short": b"PGFL",
    "other magic": b"HTTP" + frame(Kind.ANSWER, ANSWER, PAYLOAD)[4:],
    "other version": frame(Kind.ANSWER, ANSWER, PAYLOAD)[:4] + b"\x01" + frame(Kind.ANSWER, ANSWER, PAYLOAD)[5:],
    "unknown kind": frame(99, ANSWER, PAYLOAD),
    "header too long": struct.pack("<4sBBI", b"PGFL", 1, 5, 2**31) + b"{}",
    "not json": frame(Kind.ANSWER, b"\x80\x04K\x01."),
    "deep json": frame(Kind.ANSWER, b"[" * 4000),
    "not an object": frame(Kind.ANSWER, b"[1]"),
    "twice the same field": frame(Kind.ANSWER, b'{"round":1,"round":2,"release":1,"clean":false}', PAYLOAD),
    "missing field": frame(Kind.ANSWER, {"round": 2}, PAYLOAD),
    "extra field": frame(Kind.ANSWER, {**ANSWER, "more": 1}, PAYLOAD),
    "NaN in the header": frame(Kind.ANSWER, b'{"round":NaN,"release":1,"clean":false}', PAYLOAD),
    "a float for a count": frame(Kind.ANSWER, {**ANSWER, "round": 2.0}, PAYLOAD),
    "a bool for a count": frame(Kind.ANSWER, {**ANSWER, "round": True}, PAYLOAD),
    "round 0": frame(Kind.ANSWER, {**ANSWER, "round": 0}, PAYLOAD),
    "a negative count": frame(Kind.ANSWER, {**ANSWER, "release": -1}, PAYLOAD),
    "an absurd count": frame(Kind.ANSWER, {**ANSWER, "round": 10**400}, PAYLOAD),
    "one vector too few": frame(Kind.ANSWER, ANSWER, PAYLOAD[:24]),
    "one byte too many": frame(Kind.ANSWER, ANSWER, PAYLOAD + b"\0"),
    "oversized": frame(Kind.ANSWER, ANSWER, b"\0" * 10_000),
    "NaN": frame(Kind.ANSWER, ANSWER, NAN),
    "infinity": frame(Kind.ANSWER, ANSWER, INFINITE),
    "absurd norm": frame(Kind.ANSWER, ANSWER, LONG),
    "overflowing norm": frame(Kind.ANSWER, ANSWER, HUGE),
    "unknown cluster": frame(Kind.PUBLICATION, PUBLICATION, PAYLOAD),
    "a cluster twice": frame(Kind.PUBLICATION, {**PUBLICATION, "clusters": ["a", "a"]}, PAYLOAD),
    "a number of clients too few": frame(Kind.PUBLICATION, {**TWO_CLUSTERS, "clients": [1]}, PAYLOAD),
    "a negative number of clients": frame(Kind.PUBLICATION, {**TWO_CLUSTERS, "clients": [1, -1]}, PAYLOAD),
    "clusters that are no list": frame(Kind.PUBLICATION, {**PUBLICATION, "clusters": "ab"}, PAYLOAD),
    "an unknown able cluster": frame(Kind.PUBLICATION, {**PUBLICATION, "clusters": [], "clients": [], "able": ["c"]}),
    "an unknown cluster that is exhausted": frame(
        Kind.PUBLICATION, {**PUBLICATION, "clusters": [], "clients": [], "exhausted": ["c"]}
    ),
    "odd hex": frame(Kind.CHALLENGE, {"site": "s", "nonce": "0"}),
    "no hex": frame(Kind.CHALLENGE, {"site": "s", "nonce": "zz"}),
    "long text": frame(Kind.STOP, {"reason": "x" * 501}),
    "a vector where none belongs": frame(Kind.STOP, {"reason": "x"}, PAYLOAD),
}


def test_another_version_is_refused_with_what_to_do():
    with pytest.raises(Malformed, match=rf"version 1, which an older pgfl writes, .* {VERSION}: upgrade pgfl there"):
        decode(MALFORMED["other version"], LIMITS, ALL)
    newer = frame(Kind.ANSWER, ANSWER, PAYLOAD)[:4] + bytes([VERSION + 1]) + frame(Kind.ANSWER, ANSWER, PAYLOAD)[5:]
    with pytest.raises(Malformed, match=r"which a newer pgfl writes, .*: upgrade pgfl on this machine"):
        decode(newer, LIMITS, ALL)


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_is_refused(name):
    with pytest.raises(Malformed):
        decode(MALFORMED[name], LIMITS, ALL)


def test_a_kind_that_is_not_expected_is_refused():
    with pytest.raises(Malformed, match="not expected"):
        decode(frame(Kind.ANSWER, ANSWER, PAYLOAD), LIMITS, (MESSAGE[Kind.HELLO],))


def test_a_publication_of_an_older_version_is_refused_by_its_fields():
    older = {key: value for key, value in PUBLICATION.items() if key not in ("able", "exhausted")}
    with pytest.raises(Malformed, match=r"PUBLICATION header with the fields .* instead of \['able'.*'exhausted'"):
        decode(frame(Kind.PUBLICATION, older, PAYLOAD), LIMITS, ALL)


def test_a_refusal_says_nothing_of_the_payload():
    with pytest.raises(Malformed) as refusal:
        decode(frame(Kind.ANSWER, ANSWER, np.array([[1.2345, np.nan, 0], [0, 0, 0]]).tobytes()), LIMITS, ALL)
    assert "1.23" not in str(refusal.value)


@settings(max_examples=1500, deadline=None)
@given(data=st.binary(max_size=300), kind=st.sampled_from(sorted(Kind)), whole=st.booleans())
def test_any_bytes_are_a_frame_or_malformed(data, kind, whole):
    try:
        decode(data if whole else frame(kind, data), LIMITS, ALL)
    except Malformed:
        return


@settings(max_examples=1500, deadline=None)
@given(kind=st.sampled_from(sorted(Kind)), cut=st.integers(0, 200), byte=st.integers(0, 255), drop=st.integers(0, 3))
def test_damaged_frames_are_valid_or_malformed(kind, cut, byte, drop):
    whole = good(kind)
    at = cut % len(whole)
    damaged = whole[:at] + bytes([byte]) + whole[at + 1 + drop :]
    try:
        result = decode(damaged, LIMITS, ALL)
    except Malformed:
        return
    assert np.isfinite(result.vectors).all()
    assert (np.linalg.norm(result.vectors, axis=1) <= LIMITS.norm).all()


def test_a_publication_without_models_is_read_as_it_was_sent():
    """A site that publishes the models of the round before has none in the first."""
    empty = roles.Publication(1, 2, {}, frozenset({"a"}))
    data = messages.encode_publication("north", "ab" * 32, empty)
    assert messages.read_publication(decode(data, LIMITS, ALL)) == empty
