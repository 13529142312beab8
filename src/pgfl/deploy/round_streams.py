"""Both ends of the stream between a site and a client: one authenticated connection of frames over TLS per client.

The site sends a challenge. The client answers with its key, the token of its invitation, and a signature over the
challenge and the site's certificate. Only then do frames flow. A second stream of the same client replaces the first.
`ClientStreams` is the site's end of all its streams, `SiteStream` the client's end of one.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from cryptography.hazmat.primitives.asymmetric import ec

from pgfl.deploy import masked_messages, messages, pinned_tls
from pgfl.deploy.frame_call import FrameCall
from pgfl.deploy.frame_connection import FrameConnection, FramePort
from pgfl.deploy.guarded_listener import LIMITS, ConnectionLimits
from pgfl.deploy.identity import SiteCertificate, public_key_of, sign_challenge
from pgfl.deploy.sparing_log import SparingLog
from pgfl.deploy.tls_frames import HUNG_UP, PULSE, BadConnection, Pulse, TlsFrames
from pgfl.deploy.wire import Expected, Frame, Limits, Malformed, decode, encode

log = logging.getLogger(__name__)
_HELLO_SECONDS: Final = 10.0
_HELLO_BYTES: Final = 1 << 16  # the longest frame of one who is not known yet
_OUTBOX_FRAMES: Final = 4  # of the longest, that may wait for a client
_TO_CLIENT_FIRST: Expected = (messages.Challenge, messages.Refused)
_TO_CLIENT: Expected = (
    messages.Welcome, messages.Request, messages.Stop, messages.Refused, *masked_messages.TO_CLIENT
)  # fmt: skip
_TO_SITE_FIRST: Expected = (messages.Hello,)
_TO_SITE: Expected = (messages.Answer, messages.Decline, *masked_messages.TO_SITE)
_MALFORMED_ALLOWED: Final = 20  # of one stream; then it is closed


# The site's end -------------------------------------------------------------------------------------------------------


class Unwelcome(Exception):
    """A stream is refused; the text goes to the client and to the log."""


@dataclass
class ClientStreams:
    """All open streams. `authenticate(hello, nonce)` names the client or raises `Unwelcome`."""

    site: str
    certificate: Path
    key: Path
    limits: Limits
    authenticate: Callable[[messages.Hello, bytes], str]
    on_open: Callable[[str], None]
    on_frame: Callable[[str, Frame], None]
    on_close: Callable[[str], None]
    connections: ConnectionLimits = LIMITS
    pulse: Pulse = PULSE
    refused: Counter[str] = field(default_factory=Counter)
    _open: dict[str, FrameConnection] = field(default_factory=dict)
    _sparing: SparingLog = field(default_factory=lambda: SparingLog(log))

    async def start(self, address: str) -> int:
        """Listen; returns the port. Raises `OSError` where one cannot listen."""
        self.renew()
        self._port = FramePort(
            lambda: self._tls, _HELLO_BYTES, lambda host: _ClientStream(self, host),
            _OUTBOX_FRAMES * self.limits.frame_bytes, self.refused, self.connections, self.pulse,
        )  # fmt: skip
        return self._port.open(address)

    def renew(self) -> None:
        """Show those who connect from now on the certificate that is in its file now; streams that are open go on."""
        self._tls = pinned_tls.listening(self.certificate, self.key)

    async def stop(self) -> None:
        """Close every stream; clients take it for a break and come back."""
        await self._port.close()

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

    def welcome(self, client: str, connection: FrameConnection) -> None:
        """The connection is this client's stream from now on."""
        before = self._open.get(client)
        self._open[client] = connection
        if before is not None:
            log.info("client %s opened a new stream; the old one is closed", client)
            before.close()
        connection.frames.longest = self.limits.frame_bytes
        self.on_open(client)

    def left(self, client: str, connection: FrameConnection, why: str | None) -> None:
        """A client's connection is over."""
        if why is not None and why != HUNG_UP:
            self._sparing.warning(f"{client} {why}", f"the stream of client {client} ended: {why}")
        if self._open.get(client) is connection:
            del self._open[client]
            self.on_close(client)

    def refuse(self, host: str, why: str) -> None:
        """Count and log a stream that is refused; the same from the same address is logged at most once a minute."""
        self.refused["stream"] += 1
        self._sparing.warning(f"{host} {why}", f"a stream from {host} was refused: {why}")

    def malformed(self, client: str, why: Malformed) -> None:
        """Count and log a frame that is refused."""
        self.refused["malformed"] += 1
        self._sparing.warning(f"{client} malformed", f"client {client}: refused {why}")


class _ClientStream:
    """One connection to a site's port for clients: a challenge, a hello, and then a client's frames."""

    def __init__(self, streams: ClientStreams, host: str) -> None:
        self._streams, self._host = streams, host
        self._nonce = secrets.token_bytes(32)
        self._client: str | None = None
        self._late: asyncio.TimerHandle | None = None
        self._malformed = 0

    def opened(self, connection: FrameConnection) -> None:
        self._connection = connection
        self._late = asyncio.get_running_loop().call_later(_HELLO_SECONDS, self._refuse, "no hello came")
        self._connection.send(encode(messages.Challenge(site=self._streams.site, nonce=self._nonce.hex())))

    def heard(self, frame: bytes) -> None:
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

    def ended(self, why: str | None) -> None:
        self._in_time()
        if self._client is not None:
            self._streams.left(self._client, self._connection, why)
        elif why is not None:
            self._streams.refuse(self._host, why if self._late is None else f"{why}, before its hello")

    def _greeted(self, frame: bytes) -> None:
        try:
            hello = decode(frame, self._streams.limits, _TO_SITE_FIRST).header
            assert isinstance(hello, messages.Hello)
            self._client = self._streams.authenticate(hello, self._nonce)
        except (Malformed, Unwelcome) as error:
            self._refuse(str(error))
            return
        self._in_time()
        self._streams.welcome(self._client, self._connection)

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()

    def _refuse(self, why: str) -> None:
        self._streams.refuse(self._host, why)
        self._connection.send(encode(messages.Refused(reason=why[:300])))
        self._connection.close()


# The client's end -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """How a stream ended: `lost` (try again), `refused` (ask for a new invitation), `stopped` (training is over)."""

    how: Literal["lost", "refused", "stopped"]
    reason: str


@dataclass
class SiteStream:
    """A connection to one pinned site. `handle` gets each valid frame and returns the reply, if there is one."""

    site: SiteCertificate
    key: ec.EllipticCurvePrivateKey
    limits: Limits
    releases: Callable[[], int]
    handle: Callable[[Frame], bytes | None]
    budget: str | None = None  # as the owner lets the site know it
    terms: Callable[[], str] = str  # of a client that trusts this site
    masks: bool = False  # whether it takes part in masked sums
    pulse: Pulse = PULSE
    refused: Counter[str] = field(default_factory=Counter)
    _call: FrameCall | None = None
    _closed: bool = False
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _sparing: SparingLog = field(default_factory=lambda: SparingLog(log))

    def close(self) -> None:
        """Close the stream for good, from any thread."""
        with self._guard:
            self._closed = True
            if self._call is not None:
                self._call.close()

    def run(self, address: str, token: str) -> Ended:
        """One stream from its opening to its end."""
        frames = TlsFrames(pinned_tls.calling(self.site.pem), self.limits.frame_bytes, self.site.tls_name)
        with self._guard:
            if self._closed:
                return Ended("stopped", "closed here")
            self._call = FrameCall(address, frames, self.pulse)
        try:
            with self._call as call:
                ended = self.converse(call.frames(), token, call.send)
        except BadConnection as error:
            ended = Ended("lost", str(error)[:200])
        return Ended("stopped", "closed here") if self._closed and ended.how == "lost" else ended

    def converse(self, frames: Iterator[bytes], token: str, send: Callable[[bytes], None]) -> Ended:
        """Answer frames, wherever they come from, until it is over."""
        first = next(frames, None)
        if first is None:
            return Ended("lost", "the site hung up")
        try:
            challenge = decode(first, self.limits, _TO_CLIENT_FIRST).header
        except Malformed as error:
            return Ended("lost", f"the site's first frame is malformed: {error}")
        if isinstance(challenge, messages.Refused):
            return Ended("refused", challenge.reason)
        assert isinstance(challenge, messages.Challenge)
        send(self._hello(bytes.fromhex(challenge.nonce), token))
        for data in frames:
            try:
                frame = decode(data, self.limits, _TO_CLIENT)
            except Malformed as error:
                self.refused["malformed"] += 1
                self._sparing.warning("malformed", f"the site sent {error}: refused")
                if self.refused["malformed"] % _MALFORMED_ALLOWED == 0:
                    return Ended("lost", "the site keeps sending malformed frames")
                continue
            if isinstance(frame.header, messages.Stop):
                self.handle(frame)
                return Ended("stopped", frame.header.reason)
            if isinstance(frame.header, messages.Refused):
                return Ended("refused", frame.header.reason)
            reply = self.handle(frame)
            if reply is not None:
                send(reply)
        return Ended("lost", "the site hung up")

    def _hello(self, nonce: bytes, token: str) -> bytes:
        signature = sign_challenge(self.key, self.site.fingerprint, nonce)
        key = public_key_of(self.key).line
        hello = messages.Hello(
            key=key,
            token=token,
            signature=signature.hex(),
            releases=self.releases(),
            budget=self.budget,
            terms=self.terms(),
            masks=self.masks,
        )
        return encode(hello)
