"""Tens of thousands of malformed messages to the peer service, to a site's end of a stream, and to a client."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, deque
from contextlib import suppress

import numpy as np
import pytest

from pgfl.network.protocol import identity, masked_messages
from pgfl.network.protocol.identity import Neighbour
from pgfl.network.protocol.links import PeerService
from pgfl.network.protocol.messages import (
    Answer,
    Challenge,
    Decline,
    LearnedPublication,
    PeerHello,
    Publication,
    Refused,
    Request,
    Stop,
    Welcome,
)
from pgfl.network.protocol.streams import ClientStreams, SiteStream, _ClientStream
from pgfl.network.protocol.wire import Kind, Malformed, decode, encode
from tests.network.test_wire import ALL, LIMITS, MALFORMED, good

MESSAGES = 20_000
TO_SITE = (Answer, Decline, *masked_messages.TO_SITE)
TO_CLIENT = (Welcome, Request, Stop, Refused, *masked_messages.TO_CLIENT)


@pytest.fixture(autouse=True)
def _quiet(caplog):
    caplog.set_level(logging.ERROR, logger="pgfl.network")  # twenty thousand warnings are no help


def hostile(seed, count=MESSAGES):
    """Known malformed frames, damaged good ones, noise, and a few that are good."""
    chance = random.Random(seed)
    known, kinds = list(MALFORMED.values()), list(Kind)
    for _ in range(count):
        way = chance.random()
        if way < 0.2:
            yield chance.choice(known)
        elif way < 0.4:
            yield chance.randbytes(chance.randint(0, 200))
        elif way < 0.42:
            yield good(chance.choice(kinds))
        else:
            frame = bytearray(good(chance.choice(kinds)))
            for _ in range(chance.randint(1, 6)):
                place = chance.randrange(len(frame))
                action = chance.randint(0, 3)
                if action == 0:
                    frame[place] = chance.randrange(256)
                elif action == 1:
                    del frame[place : place + chance.randint(1, 9)]
                elif action == 2:
                    frame[place:place] = chance.randbytes(chance.randint(1, 9))
                else:
                    frame += frame[place:]
                if not frame:
                    break
            yield bytes(frame)


def valid(frames, expected):
    """Those that the decoder itself accepts."""
    for data in frames:
        with suppress(Malformed):
            yield decode(data, LIMITS, expected)


def refused_by_hand(frames, expected):
    """How many of them the decoder itself refuses."""
    return MESSAGES - sum(1 for _ in valid(frames, expected))


def converse_by_hand(batch, malformed):
    """How a client must end a stream of these frames, how many it refuses, and which ones it handles."""
    refused, handled = 0, []
    for data in batch:
        try:
            frame = decode(data, LIMITS, TO_CLIENT)
        except Malformed:
            refused += 1
            if (malformed + refused) % 20 == 0:
                return "lost", refused, handled
            continue
        if frame.kind is Kind.STOP:
            handled.append(frame)
        if frame.kind in (Kind.STOP, Kind.REFUSED):
            return {Kind.STOP: "stopped", Kind.REFUSED: "refused"}[frame.kind], refused, handled
        handled.append(frame)
    return "lost", refused, handled


def test_the_peer_service_survives(tmp_path):
    certificate = identity.create_site(tmp_path, "north", [])
    taken = []

    def receive(peer, frame):
        taken.append(frame)
        return b"ok"

    service = PeerService(lambda: {"north": Neighbour(certificate, "x")}, LIMITS, receive)
    replies = [service.reply(certificate, data) for data in hostile(1)]
    expected = refused_by_hand(hostile(1), (PeerHello, Publication, LearnedPublication))
    assert service.refused["malformed"] == expected > 0.9 * MESSAGES
    assert len(taken) + sum(service.refused.values()) == MESSAGES
    assert {decode(reply, LIMITS, ALL).kind for reply, accepted in replies if not accepted} == {Kind.REFUSED}
    assert [reply for reply, accepted in replies if accepted] == [b"ok"] * len(taken)
    assert all(frame.header.site == "north" and np.isfinite(frame.vectors).all() for frame in taken)


def test_a_sites_end_of_a_stream_survives():
    frames, kept = deque(hostile(2)), []
    streams = ClientStreams(
        "north", LIMITS, lambda hello, nonce, host: "eve", lambda client: None,
        lambda client, frame: kept.append(frame), lambda client: None,
    )  # fmt: skip
    hung_up = 0
    while frames:
        connection = Connection()
        asyncio.run(connection.hear(_ClientStream(streams, "there"), frames))
        hung_up += 1
    refused = refused_by_hand(hostile(2), TO_SITE)
    assert streams.refused["malformed"] == refused
    assert hung_up == -(-refused // 20), "twenty malformed frames close a stream"
    assert [frame.kind for frame in kept] == [frame.kind for frame in valid(hostile(2), TO_SITE)]
    assert len(kept) == MESSAGES - refused > 0


class Connection:
    """In the place of a real one: passes frames on until it is closed."""

    def __init__(self):
        self.longest, self.closed = 0, False

    async def hear(self, conversation, frames):
        conversation.on_open(self)
        conversation.on_frame(good(Kind.HELLO))
        while frames and not self.closed:
            conversation.on_frame(frames.popleft())
        conversation.on_close(None)

    def send(self, frame):
        decode(frame, LIMITS, ALL)

    def close(self):
        self.closed = True


def test_a_client_survives(tmp_path):
    certificate = identity.create_site(tmp_path / "n", "north", [])
    identity.create_client(tmp_path / "ann", "ann")
    key = identity.read_client_key(tmp_path / "ann" / identity.CLIENT_KEY)
    handled = []
    stream = SiteStream(set, key, LIMITS, lambda: 0, handled.append)
    challenge = encode(Challenge(site="north", nonce="00" * 32))
    frames, ends = deque(hostile(5)), []

    expected, malformed, passed = Counter(), 0, []
    while frames:
        batch = [frames.popleft() for _ in range(min(50, len(frames)))]
        how, refused, taken = converse_by_hand(batch, malformed)
        expected[how] += 1
        malformed += refused
        passed += taken
        ends.append(stream.converse(iter([challenge, *batch]), certificate, lambda data: decode(data, LIMITS, ALL)).how)
    assert stream.refused["malformed"] == malformed > 0.3 * MESSAGES
    assert Counter(ends) == expected
    assert set(expected) == {"lost", "stopped", "refused"}
    assert [frame.kind for frame in handled] == [frame.kind for frame in passed]
    assert {frame.kind for frame in handled} == {message.kind for message in TO_CLIENT} - {Kind.REFUSED}


@pytest.mark.parametrize("first", list(MALFORMED.values())[:8])
def test_a_malformed_challenge_gets_no_signature(tmp_path, first):
    certificate = identity.create_site(tmp_path / "n", "north", [])
    stream = SiteStream(set, None, LIMITS, lambda: 0, None)
    assert stream.converse(iter([first]), certificate, None).how == "lost"
