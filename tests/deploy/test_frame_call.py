"""A client's call to a site: heard in one thread, kept alive by another, and closed from any."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import Counter
from contextlib import contextmanager

import pytest

from pgfl.deploy import frame_call, pinned_tls
from pgfl.deploy.frame_call import FrameCall
from pgfl.deploy.frame_connection import FramePort
from pgfl.deploy.tls_frames import PULSE, BadConnection, TlsFrames
from tests.deploy.test_frame_connection import DEAD, LONGEST, OUTBOX, PATIENCE, PATIENT, QUICK, Echo
from tests.deploy.test_tls_frames import Site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return Site(tmp_path_factory.mktemp("north"), "north")


class Echoing:
    """A port that echoes, in a loop and a thread of its own."""

    def __init__(self, site, pulse, outbox):
        self.site, self.everyone, self.loop = site, [], asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.number = self.run(self._open(pulse, outbox))

    async def _open(self, pulse, outbox):
        tls = pinned_tls.listening(*self.site.files)
        self.port = FramePort(lambda: tls, LONGEST, lambda host: Echo(self.everyone), outbox, Counter(), PATIENT, pulse)
        return self.port.open("127.0.0.1:0")

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE)

    def call(self, pulse=PULSE):
        frames = TlsFrames(pinned_tls.calling(self.site.certificate.pem), LONGEST, "north.pgfl")
        return FrameCall(f"127.0.0.1:{self.number}", frames, pulse)


@contextmanager
def echoing(site, pulse=PULSE, outbox=OUTBOX):
    port = Echoing(site, pulse, outbox)
    try:
        yield port
    finally:
        port.run(port.port.close())
        port.loop.call_soon_threadsafe(port.loop.stop)
        port.thread.join(PATIENCE)
        port.loop.close()


def until(condition):
    ends = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < ends, "waited in vain"
        time.sleep(0.01)


def test_what_many_threads_send_at_a_time_arrives_whole(site):
    frames = [bytes([number]) * (997 * number) for number in range(1, 101)]
    with echoing(site, outbox=100 * OUTBOX) as port, port.call() as call:
        threads = [threading.Thread(target=list, args=(map(call.send, frames[part::4]),)) for part in range(4)]
        for thread in threads:
            thread.start()
        back = [frame for _, frame in zip(frames, call.frames(), strict=False)]
        for thread in threads:
            thread.join(PATIENCE)
    assert sorted(back) == frames


def test_a_client_that_is_busy_for_long_gives_signs_of_life(site):
    with echoing(site, QUICK) as port, port.call(QUICK) as call:
        frames = call.frames()
        call.send(b"a question")
        assert next(frames) == b"a question"
        time.sleep(2 * QUICK.silent)  # it computes
        call.send(b"its answer")
        assert next(frames) == b"its answer"
        assert port.everyone[0].why == "it goes on"


def test_a_site_that_is_silent_is_given_up(site):
    with echoing(site, DEAD) as port, port.call(QUICK) as call:
        in_vain = threading.Timer(PATIENCE / 2, call.close)
        in_vain.start()
        with pytest.raises(BadConnection, match=r"nothing was heard of it for 1\.5 s"):
            next(call.frames())
        in_vain.cancel()


def test_a_site_that_takes_nothing_is_given_up(site):
    """Its loop is stopped, as by SIGSTOP: the system takes what it has room for, and then nothing."""
    with echoing(site) as port, port.call(QUICK) as call:
        stopped = threading.Event()
        port.loop.call_soon_threadsafe(stopped.wait, PATIENCE)
        try:
            with pytest.raises(BadConnection, match=r"it took nothing for 1\.5 s"):
                list(map(call.send, [bytes(LONGEST)] * 100))
        finally:
            stopped.set()


def test_what_a_busy_client_is_sent_waits_at_the_site(site):
    with echoing(site, outbox=1000 * OUTBOX) as port, port.call() as call:
        until(lambda: port.everyone and port.everyone[0].connection)

        async def flood():
            for _ in range(64):
                port.everyone[0].connection.send(bytes(LONGEST))

        port.run(flood())
        waiting = port.everyone[0].connection._transport.get_write_buffer_size()
        assert waiting > 16 * LONGEST, "else it is in the memory of the client"
        assert sum(1 for _ in zip(range(64), call.frames(), strict=False)) == 64


def test_it_is_closed_from_another_thread(site):
    with echoing(site) as port, port.call() as call:
        threading.Timer(0.2, call.close).start()
        assert list(call.frames()) == []
        until(lambda: port.everyone[0].why == "it hung up")


def test_it_is_closed_while_it_is_being_connected(site):
    """Somebody listens who never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        frames = TlsFrames(pinned_tls.calling(site.certificate.pem), LONGEST, "north.pgfl")
        call = FrameCall(f"127.0.0.1:{mute.getsockname()[1]}", frames)
        threading.Timer(0.2, call.close).start()
        began = time.monotonic()
        with pytest.raises(BadConnection, match="closed here"):
            call.__enter__()
        assert time.monotonic() - began < frame_call.CONNECT_SECONDS / 2
        call._keeper.join(PATIENCE)
        assert call._socket.fileno() == -1


def test_a_site_that_never_finishes_the_handshake_is_given_up(site, monkeypatch):
    monkeypatch.setattr(frame_call, "CONNECT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        frames = TlsFrames(pinned_tls.calling(site.certificate.pem), LONGEST, "north.pgfl")
        call = FrameCall(f"127.0.0.1:{mute.getsockname()[1]}", frames)
        with pytest.raises(BadConnection, match="did not finish the TLS handshake"):
            call.__enter__()


@pytest.mark.parametrize(
    ("address", "called"), [("[::1]:9093", ("::1", 9093)), ("north.example.org:443", ("north.example.org", 443))]
)
def test_addresses_are_of_either_kind(site, monkeypatch, address, called):
    asked = []

    def create_connection(where, timeout):
        asked.append(where)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(frame_call.socket, "create_connection", create_connection)
    frames = TlsFrames(pinned_tls.calling(site.certificate.pem), LONGEST, "north.pgfl")
    with pytest.raises(BadConnection, match="Connection refused"):
        FrameCall(address, frames).__enter__()
    assert asked == [called]


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:x", "", "x" * 300 + ":1"])
def test_an_address_that_is_none_is_no_accident(site, address):
    frames = TlsFrames(pinned_tls.calling(site.certificate.pem), LONGEST, "north.pgfl")
    with pytest.raises(BadConnection):
        FrameCall(address, frames).__enter__()


def test_small_frames_leave_at_once(site):
    with echoing(site) as port, port.call() as call:
        assert call._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
