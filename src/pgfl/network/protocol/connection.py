"""Frames over TLS in an asyncio loop: one connection, from its handshake to its end, and a port for many of them.

What is said on a connection is up to its `Conversation`. Here it ends when its handshake takes too long, when nothing
comes from the other end for too long, and when that end does not take what it is sent: so much may wait for it, and no
more. None of this holds up other connections.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, Final, Protocol

from pgfl.network.protocol.listener import ConnectionLimits, Listener
from pgfl.network.protocol.tls_frames import (
    CHUNK,
    CONNECT_SECONDS,
    HUNG_UP,
    PULSE,
    SIGN_OF_LIFE,
    UNFINISHED,
    BadConnection,
    Pulse,
    TlsFrames,
)

_HANDSHAKES: Final = ThreadPoolExecutor(1, "handshakes")
_LAST_SECONDS: Final = 1.0  # for what waits to be sent when a port is closed
_UNHANDLED: Final = "what it sent could not be handled here"
_EARLY: Final = "it hung up in the TLS handshake"


class Conversation(Protocol):
    """What is said on one connection."""

    def opened(self, connection: FrameConnection) -> None:
        """The handshake is done; from now on one can send."""
        ...

    def heard(self, frame: bytes) -> None:
        """The other end sent a frame."""
        ...

    def ended(self, why: str | None) -> None:
        """The connection is over; `why` is about the other end, and None if this one closed it."""
        ...


class FrameConnection(asyncio.BufferedProtocol):
    """One connection, with what is said on it."""

    def __init__(
        self,
        frames: TlsFrames,
        conversation: Conversation,
        patience: float,
        outbox_bytes: int,
        pulse: Pulse = PULSE,
        chunk: memoryview | None = None,
    ) -> None:
        """`patience` is for the handshake, in seconds; connections of one loop may share their `chunk`."""
        self.frames, self._conversation, self._patience = frames, conversation, patience
        self._outbox_bytes, self._pulse = outbox_bytes, pulse
        self._chunk = memoryview(bytearray(CHUNK)) if chunk is None else chunk
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self._loop.create_future()
        self._closing = False  # this end hangs up
        self._why: str | None = None  # what the other end did wrong
        self._paused = False
        self._heard = self._moved = self._loop.time()
        self._sent = self._gone = 0  # bytes handed to the system to send, and those of them that it has sent

    # what a conversation does -----------------------------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        """Send a frame; nothing happens if this end has hung up."""
        if self._closing:
            return
        try:
            self.frames.send(frame)
        except BadConnection as error:
            self._refuse(error)
        else:
            self._flush()

    def pause(self) -> None:
        """Read no more for now: what the other end sends waits there."""
        self._paused = True
        self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._paused:
            self._paused, self._heard = False, self._loop.time()
            self._transport.resume_reading()

    def close(self) -> None:
        """Hang up after what waits to be sent; nothing more is heard."""
        self._closing = True
        self._transport.close()

    def abort(self) -> None:
        """Hang up at once."""
        self._closing = True
        self._transport.abort()

    # what the loop does -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands; the handshake begins."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=self._outbox_bytes)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._timer = self._loop.call_later(self._patience, self._late)
        self.frames.receive(b"")
        self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to put what comes."""
        return self._chunk

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes came."""
        self._heard = self._loop.time()
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
        """One step, in another thread: it takes a millisecond, and strangers may ask for as many as they like."""
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
            self._timer = self._loop.call_later(self._pulse.beat, self._beat)
            self._converse(self._conversation.opened, self)
            if error is not None:  # the handshake is done: what came with its last bytes is at fault
                self._refuse(error)
            else:
                self._pass_on(step.result())

    def _pass_on(self, frames: list[bytes]) -> None:
        for frame in frames:
            if frame and not self._closing:
                self._converse(self._conversation.heard, frame)

    def _converse(self, handle: Callable[[Any], None], argument: object) -> None:
        """Let the conversation handle something; if it fails, only this connection ends.

        asyncio would end it for a failure in `buffer_updated`, but not in a callback: the first frame may come with the
        last bytes of the handshake, and then it is handled in one.
        """
        try:
            handle(argument)
        except Exception as error:
            self._loop.call_exception_handler({"message": _UNHANDLED, "exception": error, "protocol": self})
            self._give_up(_UNHANDLED)

    def _refuse(self, error: BaseException) -> None:
        """Hang up, after TLS has told the other end why."""
        if not self._closing:
            self._why, self._closing = str(error), True
        self._flush()
        self.close()

    def _flush(self) -> None:
        if data := self.frames.outgoing():
            self._sent += len(data)
            self._transport.write(data)

    def pause_writing(self) -> None:
        """Too much waits to be sent."""
        self._give_up("it does not take what it is sent")

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._timer.cancel()
        if not self._closing:
            self._why = self._last_words() or (HUNG_UP if self.frames.ready else _EARLY)
        self._conversation.ended(self._why)
        self.over.set_result(None)

    def _last_words(self) -> str | None:
        """Why TLS at the other end gave up, where a failed write ended the connection before that was read."""
        try:
            with self._transport.get_extra_info("socket").dup() as unread:
                self.frames.receive(unread.recv(CHUNK))
        except BadConnection as error:
            return str(error)
        except OSError:
            pass
        return None

    def _give_up(self, why: str) -> None:
        """Hang up at once; the first reason is the one that counts."""
        if not self._closing:
            self._why = why
        self.abort()

    # signs of life ----------------------------------------------------------------------------------------------------

    def _late(self) -> None:
        self._give_up(UNFINISHED)

    def _beat(self) -> None:
        now, waiting = self._loop.time(), self._transport.get_write_buffer_size()
        if self._paused:
            self._heard = now
        if not waiting or self._sent - waiting > self._gone:
            self._moved = now
        self._gone = self._sent - waiting
        left = min(self._heard, self._moved) + self._pulse.silent - now
        if left <= 0.0:
            self._give_up(self._pulse.untaken if self._heard > self._moved else self._pulse.unheard)
        else:
            self.send(SIGN_OF_LIFE)
            self._timer = self._loop.call_later(min(self._pulse.beat, left), self._beat)


async def call(
    address: str, frames: TlsFrames, conversation: Conversation, outbox_bytes: int, pulse: Pulse = PULSE
) -> FrameConnection:
    """Call an address (host:port); the handshake follows. Raises `BadConnection`."""
    host, _, port = address.rpartition(":")
    connection = FrameConnection(frames, conversation, CONNECT_SECONDS, outbox_bytes, pulse)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await asyncio.get_running_loop().create_connection(lambda: connection, host.strip("[]"), int(port))
    except (OSError, ValueError) as error:
        raise BadConnection.because(error) from error
    return connection


class FramePort:
    """A port that those call who speak frames: every connection within its limits gets a conversation."""

    def __init__(
        self,
        tls: Callable[[], ssl.SSLContext],
        longest: int,
        converse: Callable[[str], Conversation],
        outbox_bytes: int,
        refused: Counter[str],
        limits: ConnectionLimits,
        pulse: Pulse = PULSE,
    ) -> None:
        """`tls` is asked at every connection; `converse` gets the caller's address."""
        self._tls, self._longest, self._converse, self._outbox_bytes = tls, longest, converse, outbox_bytes
        self._limits, self._pulse = limits, pulse
        self._listener = Listener(self._visit, refused, limits)
        self._chunk = memoryview(bytearray(CHUNK))
        self._connections: set[FrameConnection] = set()

    def open(self, address: str) -> int:
        """Listen; returns the port. Raises `OSError` where one cannot listen."""
        return self._listener.open(address)

    async def close(self) -> None:
        """Listen no more, and end every connection, soon after what waits to be sent."""
        for connection in self._connections:
            connection.close()
        if self._connections:
            await asyncio.wait([connection.over for connection in self._connections], timeout=_LAST_SECONDS)
        await self._listener.close()

    async def _visit(self, accepted: socket.socket, host: str) -> None:
        with closing(accepted):
            connection = FrameConnection(
                TlsFrames(self._tls(), self._longest), self._converse(host), self._limits.handshake,
                self._outbox_bytes, self._pulse, self._chunk,
            )  # fmt: skip
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, accepted)
            self._connections.add(connection)
            try:
                await asyncio.shield(connection.over)
            finally:
                self._connections.discard(connection)
                connection.abort()
