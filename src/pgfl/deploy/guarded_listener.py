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
        outer, caller = await asyncio.open_connection(sock=connection, limit=CHUNK)
        with closing(caller):
            inner, service = await asyncio.open_connection("127.0.0.1", self._inside, limit=CHUNK)
            port = service.get_extra_info("sockname")[1]
            self._addresses[port] = host
            passing = _Passing(self.limits)
            try:
                await passed_on(
                    passing.watched(outer, service, _Handshake()), passing.watched(inner, caller, None), passing.timed()
                )
            finally:
                del self._addresses[port]
                service.close()


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
    """Both directions of one connection, and the clock over them."""

    limits: ConnectionLimits
    _handshake: _Handshake | None = None
    _moved: bool = False

    async def watched(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handshake: _Handshake | None
    ) -> None:
        self._handshake = handshake or self._handshake
        while data := await reader.read(CHUNK):
            self._moved = True
            if handshake is not None:
                handshake.saw(data)
            writer.write(data)
            await writer.drain()

    async def timed(self) -> None:
        """Ends when the handshake takes too long, or when nothing has moved for too long."""
        await asyncio.sleep(self.limits.handshake)
        while self._handshake is not None and self._handshake.done and self._moved:
            self._moved = False
            await asyncio.sleep(self.limits.idle)
