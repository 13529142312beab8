"""Both ends of the stream between a site and a client: one authenticated connection of frames over TLS per client.

The site sends a challenge. The client answers with its key and a signature over the challenge and the fingerprint of
the site's certificate. Only then do frames flow. A second stream of the same client replaces the first. `ClientStreams`
is the site's end of all its streams, `SiteStream` the client's end of one.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Literal

from cryptography.hazmat.primitives.asymmetric import ec

from pgfl.network.logs import RateLimitedLogger
from pgfl.network.protocol import masked_messages, messages
from pgfl.network.protocol.connection import TLS, Callee, Connection, Conversation, Transport
from pgfl.network.protocol.identity import SiteCertificate, public_key_of, sign_challenge
from pgfl.network.protocol.tls_frames import KEEP_ALIVE, PEER_DISCONNECTED, BadConnection, KeepAlive
from pgfl.network.protocol.wire import Expected, Frame, Limits, Malformed, decode, encode

log = logging.getLogger(__name__)
_HELLO_SECONDS: Final = 10.0
_OUTBOX_FRAMES: Final = 4  # of the longest, that may wait for a site
_LAST_SECONDS: Final = 1.0  # for what waits to be sent when a stream is closed
_TO_CLIENT_FIRST: Expected = (messages.Challenge, messages.Refused)
_TO_CLIENT: Expected = (
    messages.Welcome, messages.Request, messages.Stop, messages.Refused, *masked_messages.TO_CLIENT
)  # fmt: skip
_TO_SITE_FIRST: Expected = (messages.Hello, messages.Introduction)
_TO_SITE: Expected = (messages.Answer, messages.Decline, *masked_messages.TO_SITE)
_MALFORMED_ALLOWED: Final = 20  # of one stream; then it is closed


NOT_INVITED: Final = "its invitation"  # how a refusal begins that no other attempt mends


# The site's end -------------------------------------------------------------------------------------------------------


class AuthenticationFailed(Exception):
    """A stream is refused; the text goes to the client and to the log."""


def _no_introductions(header: messages.Introduction, nonce: bytes, host: str) -> None:
    raise AuthenticationFailed("nobody is invited here")


@dataclass
class ClientStreams:
    """All open streams. `authenticate(hello, nonce, host)` names the client or raises `AuthenticationFailed`."""

    site: str
    limits: Limits
    authenticate: Callable[[messages.Hello, bytes, str], str]
    on_open: Callable[[str], None]
    on_frame: Callable[[str, Frame], None]
    on_close: Callable[[str], None]
    on_refused_release: Callable[[str, int], None] = lambda client, number: None  # it was in a malformed frame
    introduce: Callable[[messages.Introduction, bytes, str], None] = _no_introductions  # links a site that was invited
    refused: Counter[str] = field(default_factory=Counter)
    _open: dict[str, Connection] = field(default_factory=dict)
    _limited_log: RateLimitedLogger = field(default_factory=lambda: RateLimitedLogger(log))

    def conversation(self, host: str) -> Conversation:
        """With somebody who calls from this address and may be a client."""
        return _ClientStream(self, host)

    def send(self, client: str, data: bytes) -> None:
        """Send a client a frame; nothing happens if its stream is gone."""
        if client in self._open:
            self._open[client].send(data)

    def close(self, client: str) -> None:
        """Close a client's stream after what waits to be sent."""
        if client in self._open:
            self._open[client].close()

    def __contains__(self, client: str) -> bool:
        return client in self._open

    def welcome(self, client: str, connection: Connection) -> None:
        """The connection is this client's stream from now on."""
        before = self._open.get(client)
        self._open[client] = connection
        if before is not None:
            log.info("client %s opened a new stream; the old one is closed", client)
            before.close()
        connection.longest = self.limits.frame_bytes
        self.on_open(client)

    def left(self, client: str, connection: Connection, why: str | None) -> None:
        """A client's connection is over."""
        if why is not None and why != PEER_DISCONNECTED:
            self._limited_log.warning(f"{client} {why}", f"the stream of client {client} ended: {why}")
        if self._open.get(client) is connection:
            del self._open[client]
            self.on_close(client)

    def refuse(self, host: str, why: str) -> None:
        """Count and log a stream that is refused; the same from the same address is logged at most once a minute."""
        self.refused["stream"] += 1
        self._limited_log.warning(f"{host} {why}", f"a stream from {host} was refused: {why}")

    def malformed(self, client: str, why: Malformed) -> None:
        """Count and log a frame that is refused; the release that it states was made all the same."""
        self.refused["malformed"] += 1
        self._limited_log.warning(f"{client} malformed", f"client {client}: refused {why}")
        if why.release is not None:
            self.on_refused_release(client, why.release)


class _ClientStream:
    """One connection of a client to its site: a challenge, a hello, and then the client's frames."""

    def __init__(self, streams: ClientStreams, host: str) -> None:
        self._streams, self._host = streams, host
        self._nonce = secrets.token_bytes(32)
        self._client: str | None = None
        self._late: asyncio.TimerHandle | None = None
        self._malformed = 0

    def on_open(self, connection: Connection) -> None:
        self._connection = connection
        self._late = asyncio.get_running_loop().call_later(_HELLO_SECONDS, self._refuse, "no hello came")
        self._connection.send(encode(messages.Challenge(site=self._streams.site, nonce=self._nonce.hex())))

    def on_frame(self, frame: bytes) -> None:
        if self._client is None:
            self._greeted(frame)
            return
        try:
            self._streams.on_frame(self._client, decode(frame, self._streams.limits, _TO_SITE))
        except Malformed as error:
            self._malformed += 1
            self._streams.malformed(self._client, error)
            if self._malformed >= _MALFORMED_ALLOWED:
                log.warning("client %s sent %d malformed frames; its stream is closed", self._client, self._malformed)
                self._connection.close()

    def on_close(self, why: str | None) -> None:
        self._in_time()
        if self._client is not None:
            self._streams.left(self._client, self._connection, why)
        elif why is not None:
            self._streams.refuse(self._host, why if self._late is None else f"{why}, before its hello")

    def _greeted(self, frame: bytes) -> None:
        try:
            hello = decode(frame, self._streams.limits, _TO_SITE_FIRST).header
            if isinstance(hello, messages.Introduction):
                self._introduced(hello)
                return
            assert isinstance(hello, messages.Hello)
            self._client = self._streams.authenticate(hello, self._nonce, self._host)
        except (Malformed, AuthenticationFailed) as error:
            self._refuse(str(error))
            return
        self._in_time()
        self._streams.welcome(self._client, self._connection)

    def _introduced(self, header: messages.Introduction) -> None:
        """Link a site that was invited; it calls again, as a neighbour."""
        self._streams.introduce(header, self._nonce, self._host)
        self._in_time()
        self._connection.send(encode(messages.Introduced(site=self._streams.site)))
        self._connection.close()

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()

    def _refuse(self, why: str) -> None:
        self._streams.refuse(self._host, why)
        self._connection.send(encode(messages.Refused(reason=why[:300])))
        self._connection.close()


# The client's end ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """How a stream ended: `lost` or `refused` (try again), `stopped` (training is over)."""

    how: Literal["lost", "refused", "stopped"]
    reason: str


@dataclass
class SiteStream:
    """A client's streams to its site. `handle` gets each valid frame, in `computing`, and returns the reply, if any."""

    pins: Callable[[], Collection[str]]  # fingerprints that the site's certificate may have now
    key: ec.EllipticCurvePrivateKey
    limits: Limits
    releases: Callable[[], int]
    handle: Callable[[Frame], bytes | None]
    budget: str | None = None  # as the owner lets the site know it
    terms: Callable[[], str] = str  # of a client that trusts this site
    masks: bool = False  # whether it takes part in masked sums
    invitation: Callable[[], str] = str  # the code of an invitation that was not used yet
    keep_alive: KeepAlive = KEEP_ALIVE
    transport: Transport = TLS
    refused: Counter[str] = field(default_factory=Counter)
    shown: SiteCertificate | None = None  # by the site, on the newest stream
    computing: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "computing"))
    _limited_log: RateLimitedLogger = field(default_factory=lambda: RateLimitedLogger(log))

    async def run(self, address: str) -> Ended:
        """One stream from its opening to its end. What `handle` computes goes on if this is cancelled meanwhile."""
        longest, loop, inbox = self.limits.frame_bytes, asyncio.get_running_loop(), _Inbox()
        callee = Callee(address, fingerprints=self.pins())
        try:
            connection = await self.transport.call(callee, inbox, longest, _OUTBOX_FRAMES * longest, self.keep_alive)
            try:
                talk = _Dialogue(self, await inbox.certificate)
                while True:
                    reply, ended = await loop.run_in_executor(self.computing, talk.answer, await inbox.next())
                    if reply is not None:
                        connection.send(reply)
                    if ended is not None:
                        return ended
            finally:
                connection.close()
                await asyncio.wait([connection.over], timeout=_LAST_SECONDS)
                connection.abort()
        except BadConnection as error:
            return Ended("lost", str(error)[:200])

    def converse(self, frames: Iterator[bytes], shown: SiteCertificate, send: Callable[[bytes], None]) -> Ended:
        """Answer frames, wherever they come from, until it is over."""
        talk = _Dialogue(self, shown)
        for data in frames:
            reply, ended = talk.answer(data)
            if reply is not None:
                send(reply)
            if ended is not None:
                return ended
        return Ended("lost", PEER_DISCONNECTED)


class _Inbox:
    """The frames of a connection, one after the other: while one is being answered, the next ones wait at the site."""

    def __init__(self) -> None:
        self.certificate: asyncio.Future[SiteCertificate] = asyncio.get_running_loop().create_future()
        self._frames: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._ended: str | None = None

    async def next(self) -> bytes:
        """The next frame; raises `BadConnection` where none comes any more."""
        while not self._frames:
            if self._ended is not None:
                raise BadConnection(self._ended)
            self._connection.resume()
            self._wake.clear()
            await self._wake.wait()
        return self._frames.popleft()

    def on_open(self, connection: Connection) -> None:
        self._connection, shown = connection, connection.certificate
        try:
            assert shown is not None  # it is pinned
            self.certificate.set_result(SiteCertificate.parse(ssl.DER_cert_to_PEM_cert(shown).encode()))
        except ValueError:
            self.certificate.set_exception(BadConnection("the certificate that it shows is not that of a pgfl site"))

    def on_frame(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._connection.pause()
        self._wake.set()

    def on_close(self, why: str | None) -> None:
        self._ended = why or "it was closed here"
        self._wake.set()
        if not self.certificate.done():
            self.certificate.set_exception(BadConnection(self._ended))


class _Dialogue:
    """What a client says on one stream, frame by frame, without I/O."""

    def __init__(self, stream: SiteStream, shown: SiteCertificate) -> None:
        self._stream, self._limits, self._greeted = stream, stream.limits, False
        stream.shown = shown

    def answer(self, data: bytes) -> tuple[bytes | None, Ended | None]:
        """The reply to a frame, and how the stream ended, if it has."""
        if not self._greeted:
            return self._first(data)
        stream = self._stream
        try:
            frame = decode(data, self._limits, _TO_CLIENT)
        except Malformed as error:
            stream.refused["malformed"] += 1
            stream._limited_log.warning("malformed", f"the site sent {error}: refused")
            many = stream.refused["malformed"] % _MALFORMED_ALLOWED == 0
            return None, Ended("lost", "the site keeps sending malformed frames") if many else None
        if isinstance(frame.header, messages.Refused):
            return None, Ended("refused", frame.header.reason)
        reply = stream.handle(frame)
        if isinstance(frame.header, messages.Stop):
            return None, Ended("stopped", frame.header.reason)
        return reply, None

    def _first(self, data: bytes) -> tuple[bytes | None, Ended | None]:
        try:
            challenge = decode(data, self._limits, _TO_CLIENT_FIRST).header
        except Malformed as error:
            return None, Ended("lost", f"the site's first frame is malformed: {error}")
        if isinstance(challenge, messages.Refused):
            return None, Ended("refused", challenge.reason)
        assert isinstance(challenge, messages.Challenge)
        self._greeted = True
        return self._hello(bytes.fromhex(challenge.nonce)), None

    def _hello(self, nonce: bytes) -> bytes:
        stream = self._stream
        assert stream.shown is not None
        hello = messages.Hello(
            key=public_key_of(stream.key).line,
            signature=sign_challenge(stream.key, stream.shown.fingerprint, nonce).hex(),
            releases=stream.releases(),
            budget=stream.budget,
            terms=stream.terms(),
            masks=stream.masks,
            invitation=stream.invitation(),
        )
        return encode(hello)
