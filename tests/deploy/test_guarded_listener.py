"""What stands in front of every port: limits on connections, handshakes, idleness and bodies."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import Counter

import pytest

from pgfl.deploy import identity
from pgfl.deploy.flower.port_guard import PortGuard, _Handshake
from pgfl.deploy.flower.superlink import BodyLimit
from pgfl.deploy.guarded_listener import ConnectionLimits
from pgfl.deploy.round_streams import SiteStream
from tests.command_line import wait_for
from tests.deploy.test_streams import LIMITS, TOKEN, Host

PATIENCE = 120.0


@pytest.fixture
def site(tmp_path):
    identity.create_site(tmp_path, "north", [])
    return tmp_path / identity.SITE_CERTIFICATE, tmp_path / identity.SITE_KEY


def guarded(site, limits, scenario):
    """Run a scenario with a guard in front of a TLS server that sends everything back."""

    async def echo(reader, writer):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def run():
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*site)
        patient = 10 * PATIENCE  # so that it is the guard who ends a handshake
        server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context, ssl_handshake_timeout=patient)
        guard = PortGuard(Counter(), limits)
        port = guard.open("127.0.0.1:0", server.sockets[0].getsockname()[1])
        try:
            await asyncio.wait_for(scenario(guard, port), PATIENCE)
        finally:
            await guard.close()
            server.close()

    asyncio.run(run())


async def connected(site, port):
    context = ssl.create_default_context(cafile=str(site[0]))
    return await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="north.pgfl")


async def echoed(site, port, data=b"hello"):
    reader, writer = await connected(site, port)
    writer.write(data)
    back = await reader.readexactly(len(data))
    writer.close()
    return back


def test_connections_of_one_address_are_limited_and_the_silent_ones_make_room_soon(site):
    async def scenario(guard, port):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        reader, _ = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b"", "the fourth is closed at once"
        assert guard.refused["connections"] == 1
        for reader, _ in silent:
            assert await reader.read() == b"", "who does not finish its handshake is closed"
        while True:
            try:
                assert await echoed(site, port) == b"hello"
                return
            except (OSError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.05)

    guarded(site, ConnectionLimits(per_address=3, handshake=1.0), scenario)


def test_what_is_passed_on_is_whole_and_outlives_the_time_for_handshakes(site):
    data = bytes(range(256)) * 20_000

    async def scenario(guard, port):
        reader, writer = await connected(site, port)
        for _ in range(3):
            await asyncio.sleep(0.4)
            writer.write(data)
            assert await reader.readexactly(len(data)) == data
        assert len(guard._addresses) == 1
        assert guard.caller(next(iter(guard._addresses))) == "127.0.0.1"
        writer.close()

    guarded(site, ConnectionLimits(handshake=1.0), scenario)


def test_a_connection_that_stays_idle_after_its_handshake_is_closed(site):
    async def scenario(guard, port):
        reader, _ = await connected(site, port)
        assert await reader.read() == b""

    guarded(site, ConnectionLimits(idle=0.2), scenario)


def test_a_handshake_is_over_with_the_first_record_of_application_data_however_it_is_cut():
    records = [(22, b"h" * 300), (20, b"\x01"), (22, b"\x17" * 40), (23, b"finished")]
    whole = b"".join(bytes([kind, 3, 3]) + len(body).to_bytes(2, "big") + body for kind, body in records)
    place = whole.index(b"finished") - 5
    for size in (1, 2, 7, 1000):
        handshake = _Handshake()
        for start in range(0, place, size):
            handshake.saw(whole[start : min(start + size, place)])
            assert not handshake.done
        handshake.saw(whole[place:])
        assert handshake.done


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize(("sent", "status"), [(999, 200), (1001, 413)])
def test_a_body_is_counted_whether_it_states_its_length_or_not(stated, sent, status):
    kept, answers = bytearray(), []

    async def app(scope, receive, send):
        more = True
        while more:
            message = await receive()
            kept.extend(message["body"])
            more = message["more_body"]
        await send({"type": "http.response.start", "status": 200})

    parts = [{"body": b"x" * 100, "more_body": True}] * (sent // 100)
    parts.append({"body": b"x" * (sent % 100), "more_body": False})

    coming = iter(parts)

    async def receive():
        return next(coming)

    async def send(message):
        answers.append(message)

    scope = {"type": "http", "headers": [(b"content-length", str(sent).encode())] if stated else []}
    asyncio.run(BodyLimit(app, most=1000)(scope, receive, send))
    assert answers[0]["status"] == status
    assert len(kept) <= 1000


def test_a_thousand_idle_connections_do_not_lock_a_client_out(tmp_path):
    """All from the address of the client itself, which is the worst place: they are gone after a handshake's time."""
    key = identity.create_client(tmp_path / "ann", "ann")
    private = identity.read_client_key(tmp_path / "ann" / identity.CLIENT_KEY)
    with Host(tmp_path / "site", key) as host:
        idle = [socket.create_connection(("127.0.0.1", host.port)) for _ in range(1000)]

        def welcome():
            time.sleep(0.1)
            stream = SiteStream(host.certificate, private, LIMITS, lambda: 0, lambda frame: None)
            return stream.run(f"127.0.0.1:{host.port}", TOKEN).how == "stopped"

        assert wait_for(welcome)
        for connection in idle:
            connection.close()
    assert host.streams.refused["connections"] >= 700
