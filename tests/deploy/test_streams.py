"""A client's stream over a real TLS socket: the handshake, the refusals, the conversation."""

from __future__ import annotations

import asyncio
import threading
import time

import numpy as np
import pytest

from pgfl.core.roles import RoundRequest
from pgfl.deploy import identity
from pgfl.deploy.messages import Answer, Stop, encode_request
from pgfl.deploy.round_streams import ClientStreams, SiteStream, Unwelcome
from pgfl.deploy.wire import Limits, encode
from tests.deploy.wires import Cable

LIMITS = Limits(dimension=3)
TOKEN = "t" * 40


class Host:
    """A site's end in its own thread and loop: welcomes one key, asks `questions`, then stops."""

    def __init__(self, folder, key, questions=0):
        self.certificate = identity.create_site(folder, "north", [])
        self.allowed, self.questions, self.answers, self.gone = key, questions, [], []
        self.streams = ClientStreams(
            "north", folder / identity.SITE_CERTIFICATE, folder / identity.SITE_KEY, LIMITS, self.who, self.opened,
            self.frame, self.gone.append,
        )  # fmt: skip

    def __enter__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.port = self.call(self.streams.start("127.0.0.1:0"))
        return self

    def __exit__(self, *_):
        self.call(self.streams.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)
        self.loop.close()

    def call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(15)

    def who(self, hello, nonce):
        key = identity.ClientKey.parse(hello.key.encode())
        if key != self.allowed:
            raise Unwelcome("not admitted")
        if not key.verifies(bytes.fromhex(hello.signature), self.certificate.fingerprint, nonce):
            raise Unwelcome("wrong signature")
        if hello.token != TOKEN:
            raise Unwelcome("wrong token")
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


def stream(host, key, handle=lambda frame: None, certificate=None):
    return SiteStream(certificate or host.certificate, key, LIMITS, lambda: 0, handle)


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
        ended = stream(host, key, echo).run(f"127.0.0.1:{host.port}", TOKEN)
    assert (ended.how, ended.reason) == ("stopped", "done")
    assert [frame.vectors[1, 0] for frame in host.answers] == [1, 2, 3, 4, 5]
    assert host.gone == ["ann"]


def test_a_site_far_away_is_reached(tmp_path, key):
    """Half a second there and back, which a TLS handshake takes three times."""
    with Host(tmp_path / "n", identity.public_key_of(key), questions=2) as host:
        cable = Cable(host.port, delay=0.25)
        ended = stream(host, key, echo).run(f"127.0.0.1:{cable.port}", TOKEN)
    assert (ended.how, ended.reason) == ("stopped", "done")
    assert [frame.vectors[1, 0] for frame in host.answers] == [1, 2]


def test_a_key_that_is_not_admitted_is_refused(tmp_path, key):
    other = identity.create_client(tmp_path / "bob", "bob")
    with Host(tmp_path / "n", other) as host:
        ended = stream(host, key).run(f"127.0.0.1:{host.port}", TOKEN)
    assert (ended.how, ended.reason) == ("refused", "not admitted")
    assert host.streams.refused["stream"] == 1


def test_the_token_of_another_invitation_is_refused(tmp_path, key):
    with Host(tmp_path / "n", identity.public_key_of(key)) as host:
        assert stream(host, key).run(f"127.0.0.1:{host.port}", "x").reason == "wrong token"


def test_a_site_with_another_certificate_is_never_spoken_to(tmp_path, key):
    pinned = identity.create_site(tmp_path / "other", "north", [])
    with Host(tmp_path / "n", identity.public_key_of(key), questions=1) as host:
        ended = stream(host, key, echo, pinned).run(f"127.0.0.1:{host.port}", TOKEN)
    assert ended.how == "lost"
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
    with Host(tmp_path / "n", identity.public_key_of(key), questions=10**9) as host:
        first, second = (stream(host, key) for _ in range(2))
        ends = []
        thread = threading.Thread(target=lambda: ends.append(first.run(f"127.0.0.1:{host.port}", TOKEN)))
        thread.start()
        until(lambda: "ann" in host.streams)
        other = threading.Thread(target=lambda: second.run(f"127.0.0.1:{host.port}", TOKEN))
        other.start()
        thread.join(60)
        assert [ended.how for ended in ends] == ["lost"]
        assert "ann" in host.streams, "the second stream is open"
        second.close()
        other.join(60)
        assert not other.is_alive()


def test_closing_from_another_thread_ends_the_stream(tmp_path, key):
    with Host(tmp_path / "n", identity.public_key_of(key), questions=1) as host:
        open_stream = stream(host, key)
        threading.Timer(0.5, open_stream.close).start()
        assert open_stream.run(f"127.0.0.1:{host.port}", TOKEN).how == "stopped"


def test_nobody_there_is_lost_not_fatal(tmp_path, key):
    pinned = identity.create_site(tmp_path / "n", "north", [])
    assert stream(None, key, certificate=pinned).run("127.0.0.1:1", TOKEN).how == "lost"
