"""In front of every port: so many connections at a time and per address, and no time for those who stay silent.

`Listener` accepts connections within the limits and hands each one to a coroutine. `PortGuard` passes them on to a
server on loopback that does TLS itself: a caller must finish its TLS handshake soon, and may not be idle for long.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

from pgfl.deploy import processes
from pgfl.deploy.sparing_log import SparingLog

log = logging.getLogger(__name__)
CHUNK = 1 << 18
_FILES_PER_CONNECTION = 3  # the caller's socket, and both ends of the one behind it
_FILES_FOR_OTHERS = 256
_APPLICATION_DATA = 23  # the type of a TLS record after the handshake


@dataclass(frozen=True)
class ConnectionLimits:
    """How many connections at a time, and how many seconds for a handshake and without a byte."""

    per_address: int = 256
    together: int = 4096
    handshake: float = 10.0
    idle: float = 120.0


LIMITS = ConnectionLimits()


def allow_many_files() -> int:
    """Raise the limit of open files as far as the system lets this user; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


Visit = Callable[[socket.socket, str], Coroutine[Any, Any, None]]


@dataclass
class Listener:
    """A listening socket whose connections are counted; `visit` gets each one with the caller's address."""

    visit: Visit
    refused: Counter[str]
    limits: ConnectionLimits = LIMITS
    _open: Counter[str] = field(default_factory=Counter)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _sparing: SparingLog = field(default_factory=lambda: SparingLog(log))

    def open(self, address: str) -> int:
        """Listen; returns the port. Raises `OSError` where one cannot listen."""
        host, _, port = address.rpartition(":")
        self._socket = processes.listen(host, int(port))
        self._socket.setblocking(False)
        files = allow_many_files()
        self._together = min(self.limits.together, max(16, (files - _FILES_FOR_OTHERS) // _FILES_PER_CONNECTION))
        self._keep(self._accept())
        return int(self._socket.getsockname()[1])

    async def close(self) -> None:
        """Stop listening and close every connection."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._socket.close()

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(self._socket)
            except OSError as error:  # too many open files, perhaps
                self._sparing.warning("accept", f"a connection cannot be accepted ({error})")
                await asyncio.sleep(1.0)
                continue
            host = str(address[0])
            if self._open[host] >= self.limits.per_address or self._open.total() >= self._together:
                connection.close()
                self.refused["connections"] += 1
                self._sparing.warning(host, f"a connection from {host} is refused: {self._open[host]} are open already")
                continue
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open[host] += 1
            self._keep(self._visited(connection, host))

    async def _visited(self, connection: socket.socket, host: str) -> None:
        try:
            with suppress(OSError):
                await self.visit(connection, host)
        finally:
            self._open[host] -= 1
            if not self._open[host]:
                del self._open[host]


@dataclass
class PortGuard:
    """Passes connections on to a port on loopback, byte by byte."""

    refused: Counter[str] = field(default_factory=Counter)
    limits: ConnectionLimits = LIMITS
    _addresses: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._listener = Listener(self._visit, self.refused, self.limits)

    def open(self, address: str, inside: int) -> int:
        """Listen; returns the port."""
        self._inside = inside
        return self._listener.open(address)

    def lead_to(self, inside: int) -> None:
        """Pass new connections on to another port."""
        self._inside = inside

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


async def passed_on(*ways: Coroutine[Any, Any, None]) -> None:
    """Run both directions of a connection until one of them ends."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


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
