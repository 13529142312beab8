"""Connections in a loop: slow, silent, stuck and hostile ends are disconnected, and hold nobody else up."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from contextlib import asynccontextmanager, suppress

import pytest

from pgfl.network.protocol import identity as pinned_tls
from pgfl.network.protocol.connection import FrameConnection, FramePort
from pgfl.network.protocol.listener import ConnectionLimits
from pgfl.network.protocol.tls_frames import KEEP_ALIVE, BadConnection, KeepAlive, TlsFrames
from tests.network import idle_clock
from tests.network.test_tls_frames import Site

LONGEST, OUTBOX = 1 << 20, 1 << 21
PATIENCE = 60.0
UNHANDLED = "what it sent could not be handled here"
QUICK, DEAD = KeepAlive(interval=0.1, timeout=1.5), KeepAlive(interval=PATIENCE, timeout=PATIENCE)
PATIENT = ConnectionLimits(handshake=PATIENCE)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return Site(tmp_path_factory.mktemp("north"), "north")


class Echo:
    """Sends everything back; `all` has every conversation."""

    def __init__(self, everyone=None):
        self.connection, self.received, self.why = None, [], "it goes on"
        if everyone is not None:
            everyone.append(self)

    def on_open(self, connection):
        self.connection = connection

    def on_frame(self, frame):
        self.received.append(frame)
        if frame == b"fail":
            raise KeyError("planted")
        if frame != b"hush":
            self.connection.send(frame)

    def on_close(self, why):
        self.why = why


class Said(Echo):
    """The caller's end: keeps what it receives."""

    def on_frame(self, frame):
        self.received.append(frame)


@asynccontextmanager
async def port(site, limits=PATIENT, keep_alive=KEEP_ALIVE, outbox=OUTBOX):
    """A port that echoes; yields its number and its conversations."""
    everyone, tls = [], pinned_tls.server_context(*site.files)
    opened = FramePort(lambda: tls, LONGEST, lambda host: Echo(everyone), outbox, Counter(), limits, keep_alive)
    number = opened.open("127.0.0.1:0")
    try:
        yield number, everyone
    finally:
        await opened.close()


async def call(site, number, keep_alive=KEEP_ALIVE, receives=None):
    """A connection to it; its system keeps `receives` bytes for it at the most."""
    said = Said()
    frames = TlsFrames(pinned_tls.client_context(site.certificate.pem), LONGEST, "north.pgfl")
    connection = FrameConnection(frames, said, PATIENCE, OUTBOX, keep_alive)
    raw = socket.socket()
    if receives is not None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
    raw.setblocking(False)
    await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", number))
    await asyncio.get_running_loop().create_connection(lambda: connection, sock=raw)
    await until(lambda: said.connection)
    return said


async def until(condition):
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.03)


async def echoed(said, frame=b"hello"):
    """Whether this comes back soon."""
    before = len(said.received)
    said.connection.send(frame)
    await until(lambda: len(said.received) > before)
    return said.received[-1] == frame


def test_a_conversation_and_its_end(site):
    async def scenario():
        async with port(site) as (number, everyone):
            said = await call(site, number)
            assert await echoed(said, b"x" * LONGEST)
            said.connection.close()
            await until(lambda: everyone[0].why != "it goes on")
            assert (said.why, everyone[0].why) == (None, "peer disconnected")

    asyncio.run(scenario())


def test_what_waits_is_sent_before_this_end_hangs_up(site):
    async def scenario():
        async with port(site) as (number, everyone):
            said = await call(site, number)
            await until(lambda: everyone and everyone[0].connection)
            everyone[0].connection.send(b"y" * LONGEST)
            everyone[0].connection.close()
            everyone[0].connection.send(b"too late")
            await until(lambda: said.why == "peer disconnected")
            assert [len(frame) for frame in said.received] == [LONGEST]

    asyncio.run(scenario())


def test_ends_that_say_nothing_stay_connected_by_signs_of_life(site):
    async def scenario():
        async with port(site, keep_alive=QUICK) as (number, everyone):
            said = await call(site, number, QUICK)
            await asyncio.sleep(3 * QUICK.timeout)
            assert await echoed(said)
            assert said.received == everyone[0].received == [b"hello"], "heartbeats are nobody's frames"

    idle_clock.run(scenario())


def test_an_end_that_is_silent_is_given_up_by_each_of_both(site):
    """A machine that vanished, a process that is stopped: the connection stands and no byte comes."""

    async def scenario():
        async with port(site, keep_alive=QUICK) as (number, everyone):
            dead = await call(site, number, DEAD)
            await until(lambda: everyone[0].why != "it goes on")
            assert everyone[0].why == "no heartbeat for 1.5 s"
            assert dead.why in ("it goes on", "peer disconnected")
        async with port(site, keep_alive=DEAD) as (number, everyone):
            alive = await call(site, number, QUICK)
            await until(lambda: alive.why != "it goes on")
            assert alive.why == "no heartbeat for 1.5 s"

    idle_clock.run(scenario())


def test_a_handshake_must_be_finished_in_time_however_many_bytes_come(site):
    caller = TlsFrames(pinned_tls.client_context(site.certificate.pem), LONGEST, "north.pgfl")
    caller.receive(b"")
    hello = caller.outgoing()

    async def scenario():
        async with port(site, ConnectionLimits(handshake=0.5)) as (number, everyone):
            loop = asyncio.get_running_loop()
            began = loop.time()
            _, writer = await asyncio.open_connection("127.0.0.1", number)
            await until(lambda: everyone)
            with suppress(ConnectionError):
                for place in range(len(hello)):
                    writer.write(hello[place : place + 1])
                    await writer.drain()
                    await asyncio.sleep(0.05)
                    if everyone[0].why != "it goes on":
                        break
            assert everyone[0].why == "it did not finish the TLS handshake"
            assert 0.5 <= loop.time() - began < 1.0
            writer.close()

    idle_clock.run(scenario())


def test_a_handshake_holds_up_nobody_who_is_connected(site, monkeypatch):
    """It is arithmetic that any stranger may ask for."""
    done, begun, shake_hands = threading.Event(), [], TlsFrames._shake_hands

    def for_long(frames):
        if frames._incoming.pending:  # the site's end; the caller begins with nothing
            begun.append(frames)
            done.wait(PATIENCE)
        shake_hands(frames)

    async def scenario():
        async with port(site) as (number, everyone):
            good = await call(site, number)
            await until(lambda: everyone[0].connection)
            monkeypatch.setattr(TlsFrames, "_shake_hands", for_long)
            coming = asyncio.create_task(call(site, number))
            await until(lambda: begun)
            assert await echoed(good)
            done.set()
            assert await echoed(await coming)

    asyncio.run(scenario())


def test_a_frame_that_stops_in_the_middle_ends_its_connection(site):
    """One byte a minute is no heartbeat."""

    async def scenario():
        async with port(site, keep_alive=QUICK) as (number, everyone):
            said = await call(site, number, DEAD)
            said.connection.frames._tls.write(struct.pack("<I", 1000) + b"begun")
            said.connection._flush()
            await until(lambda: everyone[0].why != "it goes on")
            assert everyone[0].why == "no heartbeat for 1.5 s"
            assert not everyone[0].received

    idle_clock.run(scenario())


def test_who_takes_nothing_of_much_is_hung_up_on_and_holds_nobody_up(site):
    """No more than the outbox waits for it, whatever heartbeats it sends."""

    async def scenario():
        async with port(site) as (number, everyone):
            stuck, other = await call(site, number, receives=4096), await call(site, number)
            stuck.connection._transport.pause_reading()
            most, sent = 0, 0
            while everyone[0].why == "it goes on":
                everyone[0].connection.send(bytes(1 << 16))
                sent += 1 << 16
                most = max(most, everyone[0].connection._transport.get_write_buffer_size())
                assert sent < 50 * OUTBOX, "all of this waits in memory"
                if sent % (1 << 20) == 0:
                    assert await echoed(other)
            assert everyone[0].why == "it does not read what it is sent"
            assert most < 2 * OUTBOX
            assert await echoed(other)

    asyncio.run(scenario())


def test_who_takes_nothing_of_little_is_hung_up_on_in_time(site):
    """As long as something waits for it, it must take some of it now and then."""

    async def scenario():
        async with port(site, keep_alive=QUICK, outbox=100 * OUTBOX) as (number, everyone):
            stuck = await call(site, number, DEAD, receives=4096)
            stuck.connection._transport.pause_reading()
            await until(lambda: everyone and everyone[0].connection)
            beating = asyncio.create_task(beat(stuck))
            while not everyone[0].connection._transport.get_write_buffer_size():
                everyone[0].connection.send(bytes(LONGEST))
            await until(lambda: everyone[0].why != "it goes on")
            assert everyone[0].why == "it read nothing for 1.5 s"
            beating.cancel()

    async def beat(said):
        while True:
            said.connection.send(b"")
            await asyncio.sleep(0.1)

    idle_clock.run(scenario())


def test_who_takes_much_slowly_is_waited_for(site):
    """A slow link is no dead one: what waits for it grows less all the time, and is never gone."""

    async def scenario():
        async with port(site, keep_alive=QUICK, outbox=100 * OUTBOX) as (number, everyone):
            slow = await call(site, number, QUICK, receives=1 << 16)
            takes, transport = slow.connection.buffer_updated, slow.connection._transport

            def take_and_rest(count):
                takes(count)
                transport.pause_reading()

            slow.connection._chunk = slow.connection._chunk[:40_000]
            slow.connection.buffer_updated = take_and_rest
            await until(lambda: everyone and everyone[0].connection)
            raw = everyone[0].connection._transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)  # the rest waits at the site
            loop, frames = asyncio.get_running_loop(), 2
            began = loop.time()
            for _ in range(frames):
                everyone[0].connection.send(bytes(LONGEST))
            while len(slow.received) < frames:
                await asyncio.sleep(0.1)
                assert (everyone[0].why, slow.why) == ("it goes on", "it goes on")
                transport.resume_reading()
            assert loop.time() - began > 2 * QUICK.timeout, "it was too quick to show anything"

    idle_clock.run(scenario())


def test_a_stranger_hurts_nobody(site):
    """No TLS, a length of 4 GiB, TLS without frames, a conversation that fails: only its own connection ends."""

    async def scenario():
        async with port(site) as (number, everyone):
            good = await call(site, number)
            _, writer = await asyncio.open_connection("127.0.0.1", number)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await until(lambda: len(everyone) == 2 and everyone[1].why == "it does not speak TLS")
            said = await call(site, number)
            said.connection.frames._tls.write(b"\xff\xff\xff\xff")
            said.connection._flush()
            await until(lambda: everyone[2].why.startswith("it sends a frame of 4294967295 bytes"))
            trusting = ssl.create_default_context(cadata=site.certificate.pem.decode())
            await asyncio.open_connection("127.0.0.1", number, ssl=trusting, server_hostname="north.pgfl")
            await until(lambda: len(everyone) == 4 and everyone[3].why.startswith("it does not speak pgfl's frames"))
            failing = await call(site, number)
            failing.connection.send(b"fail")
            await until(lambda: everyone[4].why == UNHANDLED)
            assert await echoed(good)
            writer.close()

    asyncio.run(scenario())


def test_a_frame_that_is_refused_with_the_end_of_the_handshake_is_the_conversations(site):
    """TLS is done: who called is known by then, and its conversation hears why it ended."""
    caller = TlsFrames(pinned_tls.client_context(site.certificate.pem), LONGEST, "north.pgfl")
    caller.receive(b"")

    async def scenario():
        async with port(site) as (number, everyone):
            reader, writer = await asyncio.open_connection("127.0.0.1", number)
            writer.write(caller.outgoing())
            while not caller.ready:
                caller.receive(await reader.read(1 << 16))
            caller._tls.write(b"\xff\xff\xff\xff")
            writer.write(caller.outgoing())
            await until(lambda: everyone[0].why != "it goes on")
            assert everyone[0].why.startswith("it sends a frame of 4294967295 bytes")
            assert everyone[0].connection is not None
            writer.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("together", [True, False], ids=["with the handshake", "after it"])
def test_a_conversation_that_fails_ends_its_connection_whenever_its_frame_comes(site, together):
    """The first frame may come in one read with the caller's last bytes of the handshake, or in a later one."""
    caller = TlsFrames(pinned_tls.client_context(site.certificate.pem), LONGEST, "north.pgfl")
    caller.receive(b"")

    async def scenario():
        async with port(site) as (number, everyone):
            reader, writer = await asyncio.open_connection("127.0.0.1", number)
            writer.write(caller.outgoing())
            while not caller.ready:
                caller.receive(await reader.read(1 << 16))
            if not together:
                writer.write(caller.outgoing())
                await until(lambda: everyone[0].connection)
            caller.send(b"fail")
            writer.write(caller.outgoing())
            assert await asyncio.wait_for(reader.read(), PATIENCE) == b"", "the connection is not closed"
            assert everyone[0].why == UNHANDLED
            writer.close()

    failures = []
    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(lambda loop, context: failures.append(context["exception"]))
        runner.run(scenario())
    assert [str(error) for error in failures] == ["'planted'"], "its own log has the traceback"


def test_the_first_reason_is_the_one_that_is_told(site):
    """What is given up for one reason stays given up for it: no full outbox and no late timer replaces it."""

    async def scenario():
        async with port(site) as (number, everyone):
            stuck = await call(site, number, receives=4096)
            await until(lambda: everyone[0].connection)
            stuck.connection._transport.pause_reading()
            connection = everyone[0].connection
            while not connection._transport.get_write_buffer_size():
                connection.send(bytes(1 << 16))
            stuck.connection.frames._tls.write(b"\xff\xff\xff\xff")
            stuck.connection._flush()
            await until(lambda: connection._why)
            connection.pause_writing()  # as the loop does where the alert does not fit into the outbox
            await until(lambda: everyone[0].why != "it goes on")
            assert everyone[0].why.startswith("it sends a frame of 4294967295 bytes")

    asyncio.run(scenario())


def test_what_the_other_end_said_last_is_read_even_if_a_write_fails_first(site, tmp_path):
    """A site refuses this end's certificate and disconnects; this end, busy meanwhile, writes before it reads that."""
    refusing, stranger = TlsFrames(pinned_tls.server_context(*site.files), LONGEST), Site(tmp_path, "stranger")

    async def scenario():
        loop, said = asyncio.get_running_loop(), Said()
        frames = TlsFrames(pinned_tls.client_context(site.certificate.pem, *stranger.files), LONGEST, "north.pgfl")
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.setblocking(False)
            connection = FrameConnection(frames, said, PATIENCE, OUTBOX)
            await loop.create_connection(lambda: connection, *listening.getsockname())
            raw, _ = await loop.sock_accept(listening)
            with raw:
                while not (hello := refusing.outgoing()):
                    refusing.receive(await loop.sock_recv(raw, 1 << 16))
                await loop.sock_sendall(raw, hello)
                while said.connection is None:  # its handshake is done in a thread, however slowly
                    await asyncio.sleep(0.01)
                connection._transport.pause_reading()  # it is busy
                with pytest.raises(BadConnection):
                    refusing.receive(await loop.sock_recv(raw, 1 << 16))
                await loop.sock_sendall(raw, refusing.outgoing())
            while said.why == "it goes on":
                connection.send(b"are you there?")
                await asyncio.sleep(0.01)
        assert "certificate" in said.why

    asyncio.run(scenario())


def test_a_port_closes_soon_whoever_takes_nothing(site):
    async def scenario():
        async with port(site) as (number, everyone):
            stuck = await call(site, number, receives=4096)
            stuck.connection._transport.pause_reading()
            silent, _ = await asyncio.open_connection("127.0.0.1", number)
            await until(lambda: len(everyone) == 2 and everyone[0].connection)
            everyone[0].connection.send(bytes(LONGEST))
            everyone[0].connection.send(bytes(LONGEST))
            began = time.monotonic()
        assert time.monotonic() - began < 30.0
        assert all(one.why is None for one in everyone), "this end ended them"
        assert await silent.read() == b""
        with pytest.raises(OSError, match="Connect call failed"):
            await asyncio.open_connection("127.0.0.1", number)

    asyncio.run(scenario())


def test_small_frames_leave_at_once(site):
    async def scenario():
        async with port(site) as (number, everyone):
            said = await call(site, number)
            await until(lambda: everyone[0].connection)
            for one in (said, everyone[0]):
                raw = one.connection._transport.get_extra_info("socket")
                assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1

    asyncio.run(scenario())


def test_connections_of_one_address_are_limited(site):
    async def scenario():
        async with port(site, ConnectionLimits(per_address=2, handshake=PATIENCE)) as (number, everyone):
            first = await call(site, number)
            await asyncio.open_connection("127.0.0.1", number)
            await until(lambda: len(everyone) == 2)
            reader, _ = await asyncio.open_connection("127.0.0.1", number)
            assert await reader.read() == b"", "the third is closed at once"
            first.connection.close()
            await until(lambda: everyone[0].why != "it goes on")
            assert await echoed(await call(site, number))

    asyncio.run(scenario())
