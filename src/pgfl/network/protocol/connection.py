"""Frames over TLS in an asyncio loop: one connection, from its handshake to its end, and a port for many of them.

A `Conversation` decides what is sent. A connection is closed when its handshake or the peer's next heartbeat times out,
and when more than its outbox allows waits to be sent. None of this blocks other connections.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from pgfl.network.protocol import identity as pinned_tls
from pgfl.network.protocol.listener import ConnectionLimits, Listener
from pgfl.network.protocol.proxies import DIRECT, Proxies, host_and_port
from pgfl.network.protocol.proxy_header import Network
from pgfl.network.protocol.tls_frames import (
    CHUNK,
    CONNECT_SECONDS,
    HEARTBEAT,
    KEEP_ALIVE,
    PEER_DISCONNECTED,
    UNFINISHED,
    BadConnection,
    KeepAlive,
    TlsFrames,
)

_HANDSHAKES: Final = ThreadPoolExecutor(1, "handshakes")
_LAST_SECONDS: Final = 1.0  # for what waits to be sent when a port is closed
_UNHANDLED: Final = "what it sent could not be handled here"
_EARLY: Final = "peer disconnected during the TLS handshake"


class Connection(Protocol):
    """One open connection, as its conversation uses it."""

    longest: int  # of a frame that is accepted, in bytes
    over: asyncio.Future[None]

    @property
    def certificate(self) -> bytes | None:
        """What the peer shows (DER); None if that is nothing."""
        ...

    def send(self, frame: bytes) -> None:
        """Send a frame; do nothing if this end is closing."""
        ...

    def pause(self) -> None:
        """Stop reading, so that the peer has to wait."""
        ...

    def resume(self) -> None:
        """Continue reading."""
        ...

    def close(self) -> None:
        """Close after what waits to be sent; ignore whatever still comes."""
        ...

    def abort(self) -> None:
        """Close at once."""
        ...


class Conversation(Protocol):
    """Handles the events of one connection."""

    def on_open(self, connection: Connection) -> None:
        """Start: the handshake is done, and frames can be sent."""
        ...

    def on_frame(self, frame: bytes) -> None:
        """Handle a frame of the peer."""
        ...

    def on_close(self, why: str | None) -> None:
        """Clean up; `why` is what the peer did, None if this end closed the connection."""
        ...


class FrameConnection(asyncio.BufferedProtocol):
    """One TLS connection, driven by asyncio, with its conversation."""

    def __init__(
        self,
        frames: TlsFrames,
        conversation: Conversation,
        patience: float,
        outbox_bytes: int,
        keep_alive: KeepAlive = KEEP_ALIVE,
        chunk: memoryview | None = None,
    ) -> None:
        """`patience` is for the handshake, in seconds; connections of one loop may share their `chunk`."""
        self.frames, self._conversation, self._patience = frames, conversation, patience
        self._outbox_bytes, self._keep_alive = outbox_bytes, keep_alive
        self._chunk = memoryview(bytearray(CHUNK)) if chunk is None else chunk
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self._loop.create_future()
        self._closing = False  # this end disconnects
        self._why: str | None = None  # what the peer did wrong
        self._paused = False
        self._received = self._moved = self._loop.time()
        self._sent = self._written = 0  # bytes handed to the transport, and those of them that left it

    # called by the conversation ---------------------------------------------------------------------------------------

    @property
    def certificate(self) -> bytes | None:
        """What the peer shows (DER); None if that is nothing."""
        return self.frames.certificate

    @property
    def longest(self) -> int:
        """The longest frame that is accepted, in bytes."""
        return self.frames.longest

    @longest.setter
    def longest(self, size: int) -> None:
        self.frames.longest = size

    def send(self, frame: bytes) -> None:
        """Send a frame; do nothing if this end is closing."""
        if self._closing:
            return
        try:
            self.frames.send(frame)
        except BadConnection as error:
            self._refuse(error)
        else:
            self._flush()

    def pause(self) -> None:
        """Stop reading, so that the peer has to wait."""
        self._paused = True
        self._transport.pause_reading()

    def resume(self) -> None:
        """Continue reading."""
        if self._paused:
            self._paused, self._received = False, self._loop.time()
            self._transport.resume_reading()

    def close(self) -> None:
        """Close after what waits to be sent; ignore whatever still comes."""
        self._closing = True
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        self._transport.abort()

    # called by the event loop -----------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=self._outbox_bytes)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._timer = self._loop.call_later(self._patience, self._late)
        self.frames.receive(b"")
        self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer to read into."""
        return self._chunk

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypt what was read and pass whole frames on."""
        self._received = self._loop.time()
        if not self.frames.ready:
            self._shake_hands(bytes(self._chunk[:nbytes]))
            return
        try:
            frames = self.frames.receive(self._chunk[:nbytes])
        except BadConnection as error:
            self._refuse(error)
            return
        self._flush()
        self._pass_on(frames)

    def _shake_hands(self, data: bytes) -> None:
        """Do one step in another thread: it takes a millisecond, and strangers may ask for as many as they like."""
        self._transport.pause_reading()
        self._loop.run_in_executor(_HANDSHAKES, self.frames.receive, data).add_done_callback(self._shook_hands)

    def _shook_hands(self, step: asyncio.Future[list[bytes]]) -> None:
        error = step.exception()
        if self.over.done():
            return
        if error is not None and not self.frames.ready:
            self._refuse(error)
            return
        self._flush()
        self._transport.resume_reading()
        if self.frames.ready and not self._closing:
            self._timer.cancel()
            self._timer = self._loop.call_later(self._keep_alive.interval, self._send_heartbeat)
            self._converse(self._conversation.on_open, self)
            if error is not None:  # the handshake is done: what came with its last bytes is at fault
                self._refuse(error)
            else:
                self._pass_on(step.result())

    def _pass_on(self, frames: list[bytes]) -> None:
        for frame in frames:
            if frame and not self._closing:
                self._converse(self._conversation.on_frame, frame)

    def _converse(self, handle: Callable[[Any], None], argument: object) -> None:
        """Call the conversation; if it fails, close this connection only.

        asyncio would end it for a failure in `buffer_updated`, but not in a callback: the first frame may come with the
        last bytes of the handshake, and then it is handled in one.
        """
        try:
            handle(argument)
        except Exception as error:
            self._loop.call_exception_handler({"message": _UNHANDLED, "exception": error, "protocol": self})
            self._give_up(_UNHANDLED)

    def _refuse(self, error: BaseException) -> None:
        """Close, after TLS has sent the peer an alert."""
        if not self._closing:
            self._why, self._closing = str(error), True
        self._flush()
        self.close()

    def _flush(self) -> None:
        if data := self.frames.outgoing():
            self._sent += len(data)
            self._transport.write(data)

    def pause_writing(self) -> None:
        """Disconnect a peer that reads too slowly."""
        self._give_up("it does not read what it is sent")

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the conversation why the connection ended."""
        self._timer.cancel()
        if not self._closing:
            self._why = self._tls_alert() or (PEER_DISCONNECTED if self.frames.ready else _EARLY)
        self._conversation.on_close(self._why)
        self.over.set_result(None)

    def _tls_alert(self) -> str | None:
        """Return the alert of the peer's TLS, if a failed write ended the connection before it was read."""
        try:
            with self._transport.get_extra_info("socket").dup() as unread:
                self.frames.receive(unread.recv(CHUNK))
        except BadConnection as error:
            return str(error)
        except OSError:
            pass
        return None

    def _give_up(self, why: str) -> None:
        """Close at once, keeping the first reason."""
        if not self._closing:
            self._why = why
        self.abort()

    # heartbeats -------------------------------------------------------------------------------------------------------
    def _late(self) -> None:
        self._give_up(UNFINISHED)

    def _send_heartbeat(self) -> None:
        now, waiting = self._loop.time(), self._transport.get_write_buffer_size()
        if self._paused:
            self._received = now
        if not waiting or self._sent - waiting > self._written:
            self._moved = now
        self._written = self._sent - waiting
        left = min(self._received, self._moved) + self._keep_alive.timeout - now
        if left <= 0.0:
            self._give_up(self._keep_alive.stalled if self._received > self._moved else self._keep_alive.silent)
        else:
            self.send(HEARTBEAT)
            self._timer = self._loop.call_later(min(self._keep_alive.interval, left), self._send_heartbeat)


@dataclass(frozen=True)
class Callee:
    """The site to call: where it is, how it is recognised, and the certificate to show it, if any.

    It is recognised by the `fingerprints` that its certificate may have, or by the certificates in `trusted` (PEM) and
    the `name` in them.
    """

    address: str  # host:port
    fingerprints: Collection[str] | None = None
    trusted: bytes = b""
    name: str | None = None
    certificate: Path | None = None
    key: Path | None = None

    def tls(self) -> ssl.SSLContext:
        """Return the context for a call."""
        if self.fingerprints is not None:
            return pinned_tls.fingerprint_context()
        return pinned_tls.client_context(self.trusted, self.certificate, self.key)


class Endpoint(Protocol):
    """A site that can be called; implemented by `site.sessions.Port`."""

    certificate: Path
    connections: ConnectionLimits
    keep_alive: KeepAlive
    refused: Counter[str]
    balancers: tuple[Network, ...]  # whose connections begin with a header of the PROXY protocol

    def trusted(self) -> bytes:
        """Return the certificates of neighbours (PEM)."""
        ...

    @property
    def first_bytes(self) -> int:
        """The longest frame of a peer that is not authenticated yet."""
        ...

    @property
    def outbox_bytes(self) -> int:
        """How much may wait to be sent to one peer."""
        ...

    def tls(self) -> ssl.SSLContext:
        """Return the context for the next connection."""
        ...

    def converse(self, host: str) -> Conversation:
        """Return the conversation for a new connection from this address."""
        ...


class Listening(Protocol):
    """A port that can be opened and closed."""

    def open(self, address: str) -> int:
        """Listen; return the port number. Raise `OSError` if that is impossible."""
        ...

    async def close(self) -> None:
        """Stop listening, and close every connection soon after what waits to be sent."""
        ...


class Transport(Protocol):
    """How sites and clients connect: `TLS`, or `memory.MemoryTransport` in tests."""

    def listen(self, endpoint: Endpoint) -> Listening:
        """Return a port for an endpoint; it is not open yet."""
        ...

    async def call(
        self, callee: Callee, conversation: Conversation, longest: int, outbox_bytes: int, keep_alive: KeepAlive
    ) -> Connection:
        """Connect to a site; raise `BadConnection` if that fails. `on_open` follows."""
        ...


@dataclass(frozen=True)
class TlsTransport:
    """Frames over TLS 1.3 and TCP; calls go through the proxies that are stated."""

    proxies: Proxies = DIRECT

    def listen(self, endpoint: Endpoint) -> FramePort:
        """Return a TCP port for an endpoint."""
        return FramePort(
            endpoint.tls, endpoint.first_bytes, endpoint.converse, endpoint.outbox_bytes, endpoint.refused,
            endpoint.connections, endpoint.keep_alive, endpoint.balancers,
        )  # fmt: skip

    async def call(
        self, callee: Callee, conversation: Conversation, longest: int, outbox_bytes: int, keep_alive: KeepAlive
    ) -> FrameConnection:
        """Connect and begin the handshake."""
        loop = asyncio.get_running_loop()
        try:
            (host, port), proxy = host_and_port(callee.address), self.proxies.of(callee.address)
            frames = TlsFrames(callee.tls(), longest, callee.name, callee.fingerprints)
            connection = FrameConnection(frames, conversation, CONNECT_SECONDS, outbox_bytes, keep_alive)
            async with asyncio.timeout(CONNECT_SECONDS):
                if proxy is None:
                    await loop.create_connection(lambda: connection, host, port)
                else:
                    await loop.create_connection(lambda: connection, sock=await proxy.tunnel(callee.address))
        except (OSError, ValueError) as error:
            raise BadConnection.because(error) from error
        return connection


TLS: Final = TlsTransport()


class FramePort:
    """A listening port; every connection within its limits gets a conversation."""

    def __init__(
        self,
        tls: Callable[[], ssl.SSLContext],
        longest: int,
        converse: Callable[[str], Conversation],
        outbox_bytes: int,
        refused: Counter[str],
        limits: ConnectionLimits,
        keep_alive: KeepAlive = KEEP_ALIVE,
        balancers: tuple[Network, ...] = (),
    ) -> None:
        """Call `tls` for every connection, and `converse` with the peer's address."""
        self._tls, self._longest, self._converse, self._outbox_bytes = tls, longest, converse, outbox_bytes
        self._limits, self._keep_alive = limits, keep_alive
        self._listener = Listener(self._serve, refused, limits, balancers=balancers)
        self._chunk = memoryview(bytearray(CHUNK))
        self._connections: set[FrameConnection] = set()

    def open(self, address: str) -> int:
        """Listen; returns the port. Raises `OSError` where one cannot listen."""
        return self._listener.open(address)

    async def close(self) -> None:
        """Stop listening, and close every connection soon after what waits to be sent."""
        for connection in self._connections:
            connection.close()
        if self._connections:
            await asyncio.wait([connection.over for connection in self._connections], timeout=_LAST_SECONDS)
        await self._listener.close()

    async def _serve(self, accepted: socket.socket, host: str) -> None:
        with closing(accepted):
            connection = FrameConnection(
                TlsFrames(self._tls(), self._longest), self._converse(host), self._limits.handshake,
                self._outbox_bytes, self._keep_alive, self._chunk,
            )  # fmt: skip
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, accepted)
            self._connections.add(connection)
            try:
                await asyncio.shield(connection.over)
            finally:
                self._connections.discard(connection)
                connection.abort()
