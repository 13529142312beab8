"""A client's stream over a real TLS socket: the handshake, the refusals, the conversation."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections import Counter
from contextlib import asynccontextmanager, contextmanager, suppress

import numpy as np
import pytest

from pgfl.algorithms.roles import RoundRequest
from pgfl.network.protocol import connection as frame_connection
from pgfl.network.protocol import identity
from pgfl.network.protocol import identity as pinned_tls
from pgfl.network.protocol import streams as round_streams
from pgfl.network.protocol.connection import FrameConnection
from pgfl.network.protocol.listener import ConnectionLimits
from pgfl.network.protocol.messages import (
    BETWEEN_SITE_AND_CLIENT,
    Answer,
    Challenge,
    Hello,
    Refused,
    Stop,
    encode_request,
)
from pgfl.network.protocol.streams import AuthenticationFailed, ClientStreams, SiteStream, _Inbox
from pgfl.network.protocol.tls_frames import HEARTBEAT, KEEP_ALIVE, BadConnection, KeepAlive, TlsFrames
from pgfl.network.protocol.wire import Limits, decode, encode
from pgfl.network.site.sessions import Port
from tests.network import idle_clock
from tests.network.calls import Call
from tests.network.test_tls_frames import Site
from tests.network.wires import Cable

LIMITS, WIDE = Limits(dimension=3), Limits(dimension=500)
QUICK, DEAD = KeepAlive(interval=0.1, timeout=1.5), KeepAlive(interval=60.0, timeout=60.0)


def port_of(streams, *files, **options):
    """A port for clients alone."""
    return Port(*files, streams.limits.frame_bytes, streams.conversation, None, **options)


class Host:
    """A site's end in its own thread and loop: welcomes one key, asks `questions`, then stops."""

    def __init__(self, folder, key, questions=0, keep_alive=KEEP_ALIVE):
        self.certificate = identity.create_site(folder, "north", [])
        self.allowed, self.questions, self.answers, self.gone = key, questions, [], []
        self.streams = ClientStreams("north", LIMITS, self.who, self.opened, self.frame, self.gone.append)
        files = folder / identity.SITE_CERTIFICATE, folder / identity.SITE_KEY
        self.site_port = port_of(self.streams, *files, keep_alive=keep_alive)

    def __enter__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.port = self.call(self.site_port.start("127.0.0.1:0"))
        return self

    def __exit__(self, *_):
        self.call(self.site_port.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)
        self.loop.close()

    @asynccontextmanager
    async def here(self):
        """Serve in the loop that runs, with its clock; yields the address."""
        yield f"127.0.0.1:{await self.site_port.start('127.0.0.1:0')}"
        await self.site_port.stop()

    def call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(15)

    def who(self, hello, nonce, host):
        key = identity.ClientKey.parse(hello.key.encode())
        if key != self.allowed:
            raise AuthenticationFailed("not admitted")
        if not key.verifies(bytes.fromhex(hello.signature), self.certificate.fingerprint, nonce):
            raise AuthenticationFailed("wrong signature")
        return "ann"

    def opened(self, client):
        self.ask(client)

    def ask(self, client):
        round = len(self.answers) + 1
        if round > self.questions:
            self.streams.send(client, encode(Stop(reason="done")))
        else:
            self.streams.send(client, encode_request(RoundRequest(round, 1, np.full(3, float(round)))))

    def frame(self, client, frame):
        self.answers.append(frame)
        self.ask(client)


def stream(host, key, handle=lambda frame: None, certificate=None, keep_alive=KEEP_ALIVE):
    pinned = certificate or host.certificate
    return SiteStream(lambda: {pinned.fingerprint}, key, LIMITS, lambda: 0, handle, keep_alive=keep_alive)


def ended(open_stream, port):
    """How a stream to this port ends."""
    try:
        return asyncio.run(open_stream.run(f"127.0.0.1:{port}"))
    finally:
        open_stream.computing.shutdown()


@contextmanager
def running(host, open_stream):
    """The stream in a thread and a loop of its own; yields how it ended, when it has."""
    ends, tasks = [], []

    async def run():
        tasks.append((asyncio.get_running_loop(), asyncio.current_task()))
        ends.append(await open_stream.run(f"127.0.0.1:{host.port}"))

    def in_thread():
        with suppress(asyncio.CancelledError):
            asyncio.run(run())
        open_stream.computing.shutdown()

    thread = threading.Thread(target=in_thread)
    thread.start()
    try:
        yield ends
    finally:
        with suppress(RuntimeError):  # it has ended
            tasks[0][0].call_soon_threadsafe(tasks[0][1].cancel)
        thread.join(60)
        assert not thread.is_alive()


@pytest.fixture
def key(tmp_path):
    identity.create_client(tmp_path / "ann", "ann")
    return identity.read_client_key(tmp_path / "ann" / identity.CLIENT_KEY)


def until(condition, seconds=60.0):
    """Wait for a condition; fail if it does not come."""
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "waited in vain"
        time.sleep(0.01)


def echo(frame):
    if isinstance(frame.header, Stop):
        return None
    return encode(Answer(round=frame.header.round, release=1, clean=False), np.tile(frame.vectors[0], (2, 1)))


def test_a_conversation(tmp_path, key):
    with Host(tmp_path / "n", identity.public_key_of(key), questions=5) as host:
        end = ended(stream(host, key, echo), host.port)
    assert (end.how, end.reason) == ("stopped", "done")
    assert [frame.vectors[1, 0] for frame in host.answers] == [1, 2, 3, 4, 5]
    assert host.gone == ["ann"]


def test_a_site_far_away_is_reached(tmp_path, key):
    """Half a second there and back, which a TLS handshake takes three times."""
    with Host(tmp_path / "n", identity.public_key_of(key), questions=2) as host:
        cable = Cable(host.port, delay=0.25)
        end = ended(stream(host, key, echo), cable.port)
    assert (end.how, end.reason) == ("stopped", "done")
    assert [frame.vectors[1, 0] for frame in host.answers] == [1, 2]


def test_a_key_that_is_not_admitted_is_refused(tmp_path, key):
    other = identity.create_client(tmp_path / "bob", "bob")
    with Host(tmp_path / "n", other) as host:
        end = ended(stream(host, key), host.port)
    assert (end.how, end.reason) == ("refused", "not admitted")
    assert host.streams.refused["stream"] == 1


def test_a_site_with_another_certificate_is_never_spoken_to(tmp_path, key):
    pinned = identity.create_site(tmp_path / "other", "north", [])
    with Host(tmp_path / "n", identity.public_key_of(key), questions=1) as host:
        end = ended(stream(host, key, echo, pinned), host.port)
    assert end.how == "lost"
    assert not host.answers


def test_a_signature_for_one_site_is_worth_nothing_at_another(key):
    public = identity.public_key_of(key)
    nonce = b"n" * 32
    signature = identity.sign_challenge(key, "site one", nonce)
    assert public.verifies(signature, "site one", nonce)
    assert not public.verifies(signature, "site two", nonce)
    assert not public.verifies(signature, "site one", b"m" * 32)
    assert not public.verifies(b"nonsense", "site one", nonce)


def test_a_second_stream_replaces_the_first(tmp_path, key):
    site = Host(tmp_path / "n", identity.public_key_of(key), questions=10**9)
    with site as host, running(host, stream(host, key)) as first:
        until(lambda: "ann" in host.streams)
        with running(host, stream(host, key)) as second:
            until(lambda: first)
            assert [end.how for end in first] == ["lost"]
            assert "ann" in host.streams, "the second stream is open"
            assert not second
            assert not host.gone, "the client was there all the time"


def test_what_is_being_computed_is_finished_when_a_stream_is_cancelled(tmp_path, key):
    begun, goes_on, done = threading.Event(), threading.Event(), []

    def ponder(frame):
        begun.set()
        goes_on.wait(60)
        done.append(frame)

    with Host(tmp_path / "n", identity.public_key_of(key), questions=1) as host:
        with running(host, stream(host, key, ponder)) as ends:
            assert begun.wait(60)
            threading.Timer(0.2, goes_on.set).start()
        assert done, "the thread that computes has ended"
        assert not ends
        until(lambda: host.gone == ["ann"])


def test_nobody_there_is_lost_not_fatal(tmp_path, key):
    pinned = identity.create_site(tmp_path / "n", "north", [])
    assert ended(stream(None, key, certificate=pinned), 1).how == "lost"


def test_a_failure_of_the_client_is_no_lost_stream(tmp_path, key):
    """A full disk is not mended by another stream."""

    def fail(frame):
        raise OSError(28, "No space left on device")

    with Host(tmp_path / "n", identity.public_key_of(key), questions=1) as host:
        with pytest.raises(OSError, match="No space left"):
            ended(stream(host, key, fail), host.port)
        until(lambda: host.gone == ["ann"])


def test_a_client_whose_process_is_stopped_is_gone_soon(tmp_path, key):
    host = Host(tmp_path / "n", identity.public_key_of(key), questions=10**9, keep_alive=QUICK)
    dead = stream(host, key, lambda frame: None, keep_alive=DEAD)

    async def scenario():
        async with host.here() as address:
            assert (await dead.run(address)).how == "lost"
            assert host.gone == ["ann"]
            assert "ann" not in host.streams
            assert asyncio.get_running_loop().time() < 2 * QUICK.timeout

    idle_clock.run(scenario())
    dead.computing.shutdown()


def test_a_client_that_computes_for_long_is_not_gone(tmp_path, key):
    host = Host(tmp_path / "n", identity.public_key_of(key), questions=1, keep_alive=QUICK)

    async def scenario():
        loop = asyncio.get_running_loop()

        def ponder(frame):
            if not isinstance(frame.header, Stop):
                loop.let_pass(2 * QUICK.timeout)
            return echo(frame)

        open_stream = stream(host, key, ponder, keep_alive=QUICK)
        async with host.here() as address:
            end = await open_stream.run(address)
        open_stream.computing.shutdown()
        assert loop.time() > 2 * QUICK.timeout
        return end

    assert idle_clock.run(scenario()).how == "stopped"
    assert len(host.answers) == 1


def test_what_a_busy_client_is_sent_waits_at_the_site(tmp_path):
    class Connection:
        reads = True

        def pause(self):
            self.reads = False

        def resume(self):
            self.reads = True

    async def scenario():
        inbox, connection = _Inbox(), Connection()
        shown = identity.create_site(tmp_path, "north", []).pem.decode()
        connection.certificate = ssl.PEM_cert_to_DER_cert(shown)
        inbox.on_open(connection)
        for frame in (b"first", b"second"):
            asking = asyncio.create_task(inbox.next())
            await asyncio.sleep(0)
            assert connection.reads
            inbox.on_frame(frame)
            assert not connection.reads
            assert await asking == frame
        assert not connection.reads, "while the frame is being answered"
        inbox.on_frame(b"third")
        inbox.on_close(None)
        assert await inbox.next() == b"third"
        with pytest.raises(BadConnection, match="closed here"):
            await inbox.next()

    asyncio.run(scenario())


def test_a_site_whose_process_is_stopped_is_lost_soon_and_found_again(tmp_path, key):
    with Host(tmp_path / "n", identity.public_key_of(key), questions=1) as host:
        goes_on = threading.Event()
        mute = stream(
            host, key, lambda frame: host.loop.call_soon_threadsafe(goes_on.wait, 60.0) and None, keep_alive=QUICK
        )
        with running(host, mute) as ends:
            until(lambda: ends)
            assert (ends[0].how, ends[0].reason) == ("lost", "no heartbeat for 1.5 s")
        goes_on.set()
        assert ended(stream(host, key, echo), host.port).how == "stopped"


def call(host):
    """Somebody who speaks frames, and has not said hello."""
    frames = TlsFrames(pinned_tls.client_context(host.certificate.pem), LIMITS.frame_bytes, host.certificate.tls_name)
    return Call(host.port, frames)


class Stranger:
    """Speaks frames, sends a heartbeat, and keeps what it receives."""

    def __init__(self):
        self.received = []

    def on_open(self, connection):
        connection.send(HEARTBEAT)

    def on_frame(self, frame):
        self.received.append(decode(frame, LIMITS, BETWEEN_SITE_AND_CLIENT).header)

    def on_close(self, why):
        pass


def test_who_does_not_say_hello_is_told_so_and_hung_up_on(tmp_path, key):
    """Heartbeats are no hello."""
    host, stranger = Host(tmp_path / "n", identity.public_key_of(key)), Stranger()

    async def scenario():
        async with host.here() as address:
            callee = frame_connection.Callee(address, trusted=host.certificate.pem, name=host.certificate.tls_name)
            connection = await frame_connection.TLS.call(callee, stranger, LIMITS.frame_bytes, 1 << 20, KEEP_ALIVE)
            await asyncio.wait_for(connection.over, 60.0)
            assert round_streams._HELLO_SECONDS <= asyncio.get_running_loop().time() < 2 * round_streams._HELLO_SECONDS

    idle_clock.run(scenario())
    assert [type(header) for header in stranger.received] == [Challenge, Refused]
    assert stranger.received[1].reason == "no hello came"
    assert host.streams.refused["stream"] == 1


def test_a_stranger_may_send_no_more_than_a_hello(tmp_path, key, caplog):
    """A client may send a frame as long as its models; before it is known who it is, much less is kept."""
    length = (1 << 16) + 1
    with Host(tmp_path / "n", identity.public_key_of(key)) as host:
        assert length < LIMITS.frame_bytes
        with call(host) as stranger, suppress(BadConnection):
            stranger.send(bytes(length))
            assert len(list(stranger.frames())) <= 1, "a challenge and no more"
        until(lambda: host.streams.refused["stream"] == 1)
    assert f"a stream from 127.0.0.1 was refused: it sends a frame of {length} bytes" in caplog.text


def test_a_client_that_is_known_may_send_a_frame_as_long_as_its_models(tmp_path, key):
    site = Host(tmp_path / "n", identity.public_key_of(key), questions=1)
    with site as host, running(host, stream(host, key, lambda frame: bytes(LIMITS.frame_bytes))) as ends:
        until(lambda: host.streams.refused["malformed"] == 1)
        assert "ann" in host.streams
        assert not ends


def test_a_new_certificate_is_shown_to_new_streams_while_the_old_ones_go_on(tmp_path, key):
    asked = []

    def later(frame):
        asked.append(frame)
        return echo(frame) if len(asked) > 1 else None

    with Host(tmp_path / "n", identity.public_key_of(key), questions=10**9) as host:
        with running(host, stream(host, key, later)):
            until(lambda: asked)
            old, new = host.certificate, identity.create_site(tmp_path / "new", "north", [])
            for name in (identity.SITE_CERTIFICATE, identity.SITE_KEY):
                (tmp_path / "n" / name).write_bytes((tmp_path / "new" / name).read_bytes())
            host.certificate = new
            host.loop.call_soon_threadsafe(host.site_port.renew)
            until(lambda: ended(stream(host, key, certificate=old), host.port).how == "lost")
            host.loop.call_soon_threadsafe(host.ask, "ann")
            until(lambda: len(host.answers) > 3)
        answered = len(host.answers)
        with running(host, stream(host, key, echo)):
            until(lambda: len(host.answers) > answered + 3)


class Answering:
    """A client without arithmetic, in the site's own loop; its key is its name."""

    def __init__(self, name, answered):
        self.name, self.answered, self.connection = name, answered, None

    def on_open(self, connection):
        self.connection = connection

    def on_frame(self, frame):
        header = decode(frame, WIDE, BETWEEN_SITE_AND_CLIENT).header
        if isinstance(header, Challenge):
            self.connection.send(encode(Hello(key=self.name, signature="", releases=0)))
        else:
            self.answered[self.name] += 1
            answer = Answer(round=header.round, release=1, clean=False)
            self.connection.send(encode(answer, np.zeros((2, WIDE.dimension))))

    def on_close(self, why):
        pass


@pytest.mark.proof
def test_a_thousand_streams_hold_and_some_that_take_nothing_hold_nobody_up(tmp_path):
    """All are asked at once, again and again; those that never read are the only ones that are disconnected."""
    site, crowd, stuck, rounds = Site(tmp_path, "north"), 1000, {"client-3", "client-77", "client-901"}, 3
    asked, answered, came, gone = Counter(), Counter(), [], []
    streams = ClientStreams(
        "north", WIDE, lambda hello, nonce, host: hello.key, came.append,
        lambda client, frame: asked.subtract([client]), gone.append,
    )  # fmt: skip
    site_port = port_of(streams, *site.files, connections=ConnectionLimits(per_address=2 * crowd, handshake=60.0))
    request = encode_request(RoundRequest(1, crowd, np.zeros(WIDE.dimension)))

    async def scenario():
        port, tls = await site_port.start("127.0.0.1:0"), pinned_tls.client_context(site.certificate.pem)
        loop, chunk = asyncio.get_running_loop(), memoryview(bytearray(1 << 16))
        clients = {}
        for number, name in enumerate(f"client-{number}" for number in range(crowd)):
            clients[name] = FrameConnection(
                TlsFrames(tls, WIDE.frame_bytes, "north.pgfl"),
                Answering(name, answered),
                60.0,
                1 << 30,
                KEEP_ALIVE,
                chunk,
            )
            await loop.create_connection(lambda name=name: clients[name], "127.0.0.1", port)
            while len(came) <= number:
                await asyncio.sleep(0.001)
        async with asyncio.timeout(200.0):
            for name in stuck:
                clients[name]._transport.pause_reading()
            for _ in range(rounds):
                for name in clients:
                    asked[name] += 1
                    streams.send(name, request)
                while any(asked[name] for name in clients.keys() - stuck):
                    await asyncio.sleep(0.01)
            filler = bytes(WIDE.frame_bytes)
            for _ in range(100):
                for name in stuck:
                    streams.send(name, filler)
                await asyncio.sleep(0)
            assert set(gone) == stuck
            assert all(name in streams for name in clients.keys() - stuck)
            assert all(answered[name] == rounds for name in clients.keys() - stuck)
        await site_port.stop()

    asyncio.run(scenario())
