"""In front of Flower's port: connections are passed on, byte by byte, to a SuperLink on loopback that does TLS itself.

A caller must finish its TLS handshake soon, and may not be idle for long.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field

from pgfl.deploy.guarded_listener import LIMITS, ConnectionLimits, Listener

_FILES = 3  # of a connection: the caller's socket, and both ends of the one behind it
_APPLICATION_DATA = 23  # the type of a TLS record after the handshake


@dataclass
class PortGuard:
    """Passes connections on to a port on loopback, byte by byte."""

    refused: Counter[str] = field(default_factory=Counter)
    limits: ConnectionLimits = LIMITS
    _addresses: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._listener = Listener(self._visit, self.refused, self.limits, _FILES)

    def open(self, address: str, inside: int) -> int:
        """Listen; returns the port."""
        self._inside = inside
        return self._listener.open(address)

    async def close(self) -> None:
        """Stop listening and close every connection."""
        await self._listener.close()

    def caller(self, port: int) -> str | None:
        """The address of the caller whose connection comes from this port on loopback."""
        return self._addresses.get(port)

    async def _visit(self, connection: socket.socket, host: str) -> None:
        loop, handshake = asyncio.get_running_loop(), _Handshake()
        passing = _Passing(self.limits, handshake, loop.create_future())
        outer, inner = _End(passing, handshake), _End(passing)
        outer.other, inner.other = inner, outer
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with closing(connection):
            service, _ = await loop.create_connection(lambda: inner, "127.0.0.1", self._inside)
            port = service.get_extra_info("sockname")[1]
            self._addresses[port] = host
            try:
                await loop.connect_accepted_socket(lambda: outer, connection)
                await passing.done()
            finally:
                del self._addresses[port]
                for end in (outer, inner):
                    end.close()


class _Handshake:
    """Follows the caller's TLS records until the first one with application data."""

    def __init__(self) -> None:
        self.done = False
        self._skip, self._header = 0, b""

    def saw(self, data: bytes) -> None:
        while data and not self.done:
            skipped = min(self._skip, len(data))
            self._skip, data = self._skip - skipped, data[skipped:]
            missing = 5 - len(self._header)
            self._header, data = self._header + data[:missing], data[missing:]
            if len(self._header) == 5:
                self.done = self._header[0] == _APPLICATION_DATA
                self._skip, self._header = int.from_bytes(self._header[3:], "big"), b""


@dataclass
class _Passing:
    """One connection that is passed on, and the clock over it."""

    limits: ConnectionLimits
    handshake: _Handshake
    over: asyncio.Future[None]  # one of its ends has ended
    moved: bool = False

    async def done(self) -> None:
        """Until one end has ended, the handshake takes too long, or nothing has moved for too long."""
        patience = self.limits.handshake
        while True:
            await asyncio.wait([self.over], timeout=patience)
            if self.over.done() or not (self.handshake.done and self.moved):
                return
            self.moved, patience = False, self.limits.idle


class _End(asyncio.Protocol):
    """One end of a connection that is passed on: what it receives goes to the other, no faster than that can send."""

    other: _End

    def __init__(self, passing: _Passing, handshake: _Handshake | None = None) -> None:
        self._passing, self._handshake = passing, handshake
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._passing.moved = True
        if self._handshake is not None:
            self._handshake.saw(data)
            if self._handshake.done:
                self._handshake = None
        self.other.send(data)

    def send(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def pause_writing(self) -> None:
        self.other.reads(False)

    def resume_writing(self) -> None:
        self.other.reads(True)

    def reads(self, onwards: bool) -> None:
        if self._transport is not None and not self._transport.is_closing():
            (self._transport.resume_reading if onwards else self._transport.pause_reading)()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._passing.over.done():
            self._passing.over.set_result(None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
