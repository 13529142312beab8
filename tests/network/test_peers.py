"""The peer exchange over real TLS sockets: who gets in, who does not, and what arrives."""

from __future__ import annotations

import asyncio
import logging
import ssl
from types import SimpleNamespace

import numpy as np
import pytest

from pgfl.algorithms.roles import Publication
from pgfl.network.protocol import identity
from pgfl.network.protocol import identity as pinned_tls
from pgfl.network.protocol import links as peer_links
from pgfl.network.protocol.identity import Neighbour
from pgfl.network.protocol.links import PeerConnection, PeerLink, PeerService, Refused
from pgfl.network.protocol.messages import Acknowledged, PeerHello, encode_publication, read_publication
from pgfl.network.protocol.tls_frames import BadConnection, TlsFrames
from pgfl.network.protocol.wire import Kind, Limits, encode
from pgfl.network.site.sessions import Port
from tests.network.calls import Call
from tests.network.wires import Cable

LIMITS = Limits(dimension=4, clusters=frozenset({"a", "b"}), norm=1e6)
TRAINING = "00" * 32


class Stranger:
    """Somebody without a certificate, who may be a client; what it says is kept."""

    def __init__(self, said):
        self.said = said

    def __call__(self, host):
        return self

    def on_open(self, connection):
        self.said.append("opened")
        self.connection = connection

    def on_frame(self, frame):
        self.said.append(frame)
        self.connection.close()

    def on_close(self, why):
        pass


class Place:
    """One site's identity, service and inbox."""

    def __init__(self, folder, name):
        self.name = name
        self.certificate = identity.create_site(folder, name, [])
        self.shown = folder / identity.SITE_CERTIFICATE, folder / identity.SITE_KEY
        self.neighbours = {}
        self.inbox, self.replies, self.down = [], [], []
        self.refuse, self.links, self.strangers = None, {}, []
        self.service = PeerService(lambda: self.neighbours, LIMITS, self.receive, on_call=self.called)
        self.door = Port(
            *self.shown, LIMITS.frame_bytes, Stranger(self.strangers), self.service.conversation, self.service.trusted
        )

    async def listen(self, port=0):
        self.port = await self.door.start(f"127.0.0.1:{port}")

    def called(self, peer, talk):
        if peer in self.links:
            self.links[peer].called(talk)

    def knows(self, other, certificate=None, port=None):
        address = f"127.0.0.1:{port or other.port}"
        self.neighbours[other.name] = Neighbour(certificate or other.certificate, address)

    def receive(self, peer, frame):
        if self.refuse:
            raise Refused(self.refuse)
        self.inbox.append((peer, frame))
        return encode(Acknowledged(site=self.name, training=TRAINING, round=3, degree=1, finished=False))

    def link(self, other, shown=None):
        self.links[other] = PeerLink(
            self.name, other, self.neighbours[other], *(shown or self.shown), self.service, self.greeting,
            lambda p, f: self.replies.append((p, f)), lambda p, why: self.down.append((p, why)),
        )  # fmt: skip
        return self.links[other]

    def greeting(self):
        return encode(PeerHello(site=self.name, training=TRAINING, round=0, degree=1, heard=0))


async def until(condition, seconds=120.0):
    for _ in range(int(seconds / 0.02)):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("waited in vain")


async def call(north, south, happened, shown=None):
    """North calls, showing its own certificate or another, until something has happened; then both are done."""
    link = north.link("south", shown)
    link.start()
    await until(happened)
    await link.stop()
    await south.door.stop()


@pytest.fixture
def pair(tmp_path):
    return Place(tmp_path / "n", "north"), Place(tmp_path / "s", "south")


def test_a_publication_arrives_as_it_was_sent(pair):
    north, south = pair

    async def scenario():
        await north.listen()
        await south.listen()
        north.knows(south)
        south.knows(north)
        link = north.link("south")
        link.start()
        await until(lambda: north.replies)
        models = {"a": np.arange(4.0), "b": np.array([1e-300, -0.0, 1 / 3, 2.0])}
        link.publish(7, encode_publication("north", TRAINING, Publication(7, 2, models)))
        await until(lambda: link.drained)
        await link.stop()
        await north.door.stop()
        await south.door.stop()
        return models

    models = asyncio.run(scenario())
    peer, frame = south.inbox[-1]
    received = read_publication(frame)
    assert (peer, received.round, received.degree) == ("north", 7, 2)
    assert all((received.models[name] == models[name]).all() for name in models)
    assert north.replies[0][1].round == 3


def test_a_greeting_that_is_asked_for_while_another_is_answered_is_not_left_to_the_heartbeat(pair, monkeypatch):
    """A site that becomes ready meanwhile would keep its neighbours from the first round for two seconds."""
    north, south = pair
    monkeypatch.setattr(peer_links, "_HEARTBEAT_SECONDS", 1e6)
    acknowledge = south.receive

    def receive(peer, frame):
        if not south.inbox:
            north.links["south"].greet_now()
        return acknowledge(peer, frame)

    south.service.receive = receive

    async def scenario():
        await south.listen()
        north.knows(south)
        south.neighbours["north"] = Neighbour(north.certificate, "127.0.0.1:1")
        await call(north, south, lambda: len(south.inbox) == 2)

    asyncio.run(scenario())
    assert len(south.inbox) == 2


def test_a_neighbour_that_comes_back_gets_what_waited(pair):
    north, south = pair

    async def scenario():
        await south.listen()
        north.knows(south)
        south.neighbours["north"] = Neighbour(north.certificate, "127.0.0.1:1")
        await south.door.stop()
        link = north.link("south")
        link.start()
        for round in (1, 2, 3, 4, 5):
            link.publish(round, encode_publication("north", TRAINING, Publication(round, 1, {"a": np.zeros(4)})))
        await until(lambda: north.down)
        await south.listen(south.port)
        await until(lambda: link.drained)
        await link.stop()
        await south.door.stop()

    asyncio.run(scenario())
    rounds = [frame.header.round for _, frame in south.inbox if frame.kind is Kind.PUBLICATION]
    assert rounds == [3, 4, 5], "the newest few"


def test_a_neighbour_far_away_is_reached(pair):
    """Half a second there and back, which a TLS handshake takes three times."""
    north, south = pair

    async def scenario():
        await south.listen()
        north.knows(south, port=Cable(south.port, delay=0.25).port)
        south.neighbours["north"] = Neighbour(north.certificate, "127.0.0.1:1")
        await call(north, south, lambda: north.replies)

    asyncio.run(scenario())
    assert south.inbox[0][0] == "north"


def impostor(folder, name):
    """The certificate of another site of this name, and where it and its key are."""
    certificate = identity.create_site(folder / "impostor", name, [])
    return certificate, (folder / "impostor" / identity.SITE_CERTIFICATE, folder / "impostor" / identity.SITE_KEY)


def test_a_caller_with_a_certificate_that_is_not_linked_is_refused(pair, tmp_path, caplog):
    north, south = pair
    _, shown = impostor(tmp_path, "north")

    async def scenario():
        await south.listen()
        north.knows(south)
        south.neighbours["north"] = Neighbour(north.certificate, "127.0.0.1:1")
        await call(north, south, lambda: south.door.refused["handshake"] > 2 and north.down, shown)

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert not south.inbox
    assert not north.replies
    refusal = "a connection from 127.0.0.1 was refused: the certificate that it shows is not linked, or not valid today"
    assert caplog.messages.count(refusal) == 1, "logged once, however often it tries"


def test_a_server_with_another_certificate_than_the_pinned_is_refused(pair, tmp_path):
    north, south = pair
    other, _ = impostor(tmp_path, "south")

    async def scenario():
        await south.listen()
        north.knows(south, certificate=other)
        south.neighbours["north"] = Neighbour(north.certificate, "127.0.0.1:1")
        await call(north, south, lambda: north.down)

    asyncio.run(scenario())
    assert not south.inbox
    assert north.down[0][1] == "the certificate that it shows is not the pinned one, or not valid today"


def greet_without_certificate(south, trusted):
    """The replies to a greeting from somebody who shows no certificate and trusts `trusted`."""
    frames = TlsFrames(pinned_tls.client_context(trusted.pem), LIMITS.frame_bytes, south.certificate.tls_name)
    with Call(south.port, frames) as call:
        call.send(south.greeting())
        return list(call.frames())


def test_a_caller_without_a_certificate_is_no_neighbour(pair):
    north, south = pair

    async def scenario():
        await south.listen()
        south.neighbours["north"] = Neighbour(north.certificate, "127.0.0.1:1")
        assert await asyncio.to_thread(greet_without_certificate, south, south.certificate) == []
        await south.door.stop()

    asyncio.run(scenario())
    assert not south.inbox
    assert south.strangers == ["opened", south.greeting()], "it is taken for a client"


def test_a_caller_that_does_not_trust_the_site_is_told_of(pair, tmp_path, caplog):
    _, south = pair

    async def scenario():
        await south.listen()
        with pytest.raises(BadConnection, match="is not the pinned one"):
            await asyncio.to_thread(greet_without_certificate, south, impostor(tmp_path, "south")[0])
        await until(lambda: south.door.refused["handshake"])
        await south.door.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert "127.0.0.1 was refused: it does not trust the certificate of this site" in caplog.text


@pytest.mark.parametrize(
    ("said", "why"),
    [(b"GET / HTTP/1.1\r\n\r\n", "does not speak TLS"), (b"\x16\x03\x01\xff", "TLS handshake"), (b"", "TLS handshake")],
)
def test_what_is_no_tls_is_refused_and_hurts_nobody(pair, caplog, said, why):
    north, south = pair

    async def scenario():
        await south.listen()
        _, writer = await asyncio.open_connection("127.0.0.1", south.port)
        writer.write(said)
        writer.write_eof()
        await until(lambda: south.door.refused["handshake"])
        writer.close()
        north.knows(south)
        south.neighbours["north"] = Neighbour(north.certificate, "127.0.0.1:1")
        await call(north, south, lambda: north.replies)

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert "a connection from 127.0.0.1 was refused" in caplog.text
    assert why in caplog.text


def test_a_linked_site_cannot_speak_for_another(pair, caplog):
    north, south = pair

    async def scenario():
        await south.listen()
        north.knows(south)
        south.neighbours["north"] = Neighbour(north.certificate, "127.0.0.1:1")
        north.name = "east"
        await call(north, south, lambda: north.down)

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert north.down[0][1] == "it refuses: it calls itself 'east'"
    assert "site north: refused, it calls itself 'east'" in caplog.text


def test_a_refusal_names_who_and_why_on_both_sides(pair, caplog):
    north, south = pair
    south.refuse = "it has another training configuration"

    async def scenario():
        await south.listen()
        north.knows(south)
        south.neighbours["north"] = Neighbour(north.certificate, "127.0.0.1:1")
        await call(north, south, lambda: north.down)

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert "another training configuration" in north.down[0][1]
    assert "site north: refused, it has another training configuration" in caplog.text


def test_a_neighbour_linked_while_running_gets_in(pair):
    north, south = pair

    async def scenario():
        await south.listen()
        north.knows(south)
        link = north.link("south")
        link.start()
        await until(lambda: north.down)
        south.neighbours["north"] = Neighbour(north.certificate, "127.0.0.1:1")
        await until(lambda: north.replies)
        await link.stop()
        await south.door.stop()

    asyncio.run(scenario())
    assert south.inbox[0][0] == "north"


def test_a_neighbour_that_is_unlinked_while_it_is_connected_is_heard_no_more(pair, caplog):
    north, south = pair

    async def scenario():
        await south.listen()
        north.knows(south)
        south.neighbours["north"] = Neighbour(north.certificate, "127.0.0.1:1")
        link = north.link("south")
        link.start()
        await until(lambda: north.replies)
        del south.neighbours["north"]
        heard = len(south.inbox)
        link.publish(7, encode_publication("north", TRAINING, Publication(7, 2, {"a": np.zeros(4)})))
        await until(lambda: north.down)
        assert len(south.inbox) == heard
        await link.stop()
        await south.door.stop()

    asyncio.run(scenario())
    assert north.down[0][1] == "it refuses: its certificate names 'north' and is not the one that is linked"
    assert "site north: refused, its certificate names 'north' and is not the one that is linked" in caplog.text


def test_a_neighbour_that_does_not_reply_is_called_again(pair, monkeypatch):
    """It takes frames and sends heartbeats, and says nothing."""
    north, south = pair
    monkeypatch.setattr(peer_links, "REPLY_SECONDS", 0.3)

    async def scenario():
        await south.listen()
        north.knows(south)
        south.neighbours["north"] = Neighbour(north.certificate, "127.0.0.1:1")
        monkeypatch.setattr(PeerConnection, "on_frame", lambda talk, frame: None)
        link = north.link("south")
        link.start()
        await until(lambda: len(north.down) > 1)
        monkeypatch.undo()
        await until(lambda: north.replies)
        await link.stop()
        await south.door.stop()

    asyncio.run(scenario())
    assert north.down[0][1] == "it did not reply in 0.3 s"


def test_a_link_that_is_stopped_as_a_reply_arrives_ends(pair):
    """`asyncio.wait_for` of Python 3.11 returns the reply and forgets the stop: the site would never end."""
    north, south = pair
    north.neighbours["south"] = Neighbour(south.certificate, "127.0.0.1:1")
    certificate = ssl.PEM_cert_to_DER_cert(south.certificate.pem.decode())
    shown = SimpleNamespace(certificate=certificate, send=lambda frame: None)

    async def scenario():
        talk = PeerConnection(north.service, calls=False)
        talk.on_open(shown)
        waiting = asyncio.ensure_future(talk.reply(b"a question"))
        await asyncio.sleep(0)
        talk.on_frame(south.receive("north", None))
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return waiting.cancelled()

    assert asyncio.run(scenario())


def test_a_neighbour_that_says_what_was_not_asked_is_called_again(pair, monkeypatch):
    north, south = pair
    real = PeerConnection.on_open

    def on_open(talk, connection):
        real(talk, connection)
        if talk._calls:  # at south
            connection.send(encode(Acknowledged(site="south", training=TRAINING, round=3, degree=1, finished=False)))
            connection.send(encode(Acknowledged(site="south", training=TRAINING, round=3, degree=1, finished=False)))

    async def scenario():
        await south.listen()
        north.knows(south)
        south.neighbours["north"] = Neighbour(north.certificate, "127.0.0.1:1")
        monkeypatch.setattr(PeerConnection, "on_open", on_open)
        await call(north, south, lambda: north.down)

    asyncio.run(scenario())
    assert "what was not asked" in north.down[0][1]


def test_one_context_serves_all_connections_until_the_links_change(pair):
    north, south = pair
    first = south.door.tls()
    assert south.door.tls() is first
    south.neighbours["north"] = Neighbour(north.certificate, "127.0.0.1:1")
    second = south.door.tls()
    assert second is not first
    assert south.door.tls() is second
    south.door.renew()
    assert south.door.tls() is not second


def connections(place):
    """How many connections to a site stand."""
    return len(place.door._listening._connections)


@pytest.mark.parametrize("addresses", ["both", "north's", "south's"])
def test_one_connection_carries_both_directions(pair, addresses):
    """Also where one of the two cannot be called, as behind a router."""
    north, south = pair

    async def scenario():
        await north.listen()
        await south.listen()
        north.neighbours["south"] = Neighbour(south.certificate, f"127.0.0.1:{south.port}" * (addresses != "north's"))
        south.neighbours["north"] = Neighbour(north.certificate, f"127.0.0.1:{north.port}" * (addresses != "south's"))
        links = north.link("south"), south.link("north")
        for link in links:
            link.start()
        await until(lambda: north.replies and south.replies)
        for place, link in zip(pair, links, strict=True):
            link.publish(7, encode_publication(place.name, TRAINING, Publication(7, 1, {"a": np.zeros(4)})))
        await until(lambda: all(link.drained for link in links))
        await until(lambda: connections(north) + connections(south) == 1)
        for link in links:
            await link.stop()
        for place in pair:
            await place.door.stop()

    asyncio.run(scenario())
    for place in pair:
        assert [frame.kind for _, frame in place.inbox].count(Kind.PUBLICATION) == 1


def test_a_neighbour_that_calls_anew_is_believed(pair):
    """Its last connection is dead, and this site has not noticed."""
    north, south = pair

    async def scenario():
        await south.listen()
        north.knows(south)
        south.neighbours["north"] = Neighbour(north.certificate, "")
        answering = south.link("north")
        answering.start()
        first = north.link("south")
        first.start()
        await until(lambda: north.replies and south.replies)
        again = north.link("south")
        again.start()
        await until(lambda: connections(south) == 1 and answering._inbound.alive)
        answering.publish(7, encode_publication("south", TRAINING, Publication(7, 1, {"a": np.zeros(4)})))
        await until(lambda: answering.drained)
        for link in (first, again, answering):
            await link.stop()
        await south.door.stop()

    asyncio.run(scenario())
    assert any(frame.kind is Kind.PUBLICATION for _, frame in north.inbox)


def test_a_neighbour_without_an_address_is_waited_for(pair):
    north, south = pair

    async def scenario():
        north.neighbours["south"] = Neighbour(south.certificate, "")
        link = north.link("south")
        link.start()
        await until(lambda: north.down)
        await link.stop()

    asyncio.run(scenario())
    assert north.down == [("south", "it has not called, and no address of it is known here")]
