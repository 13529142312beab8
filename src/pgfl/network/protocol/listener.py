"""A port with limits: so many connections at a time and per address; each one is handed to a coroutine.

The address is the caller's, also behind a load balancer that the operator stated and that says who calls. An IPv6
address counts as its /64: that is what one caller is given, so that it could call from 2⁶⁴ addresses.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Network, ip_address
from typing import Any

from pgfl.network import processes
from pgfl.network.logs import RateLimitedLogger
from pgfl.network.protocol.proxy_header import BadHeader, Network, is_among, read_source

log = logging.getLogger(__name__)
_FILES_FOR_OTHERS = 256


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


def counted_address(address: str) -> str:
    """Return what an address is counted and logged as: itself if it is IPv4, else its /64."""
    found = ip_address(address)
    if isinstance(found, IPv4Address):
        return str(found)
    return str(found.ipv4_mapped or IPv6Network((int(found), 64), strict=False))


Visit = Callable[[socket.socket, str], Coroutine[Any, Any, None]]


@dataclass
class Listener:
    """A listening socket whose connections are counted; `visit` gets each one with the caller's address as counted."""

    visit: Visit
    refused: Counter[str]
    limits: ConnectionLimits = LIMITS
    files: int = 1  # that a connection takes
    balancers: tuple[Network, ...] = ()  # whose connections begin with a header of the PROXY protocol
    _open: Counter[str] = field(default_factory=Counter)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _limited_log: RateLimitedLogger = field(default_factory=lambda: RateLimitedLogger(log))

    def open(self, address: str) -> int:
        """Listen; returns the port. Raises `OSError` where one cannot listen."""
        host, _, port = address.rpartition(":")
        self._socket = processes.listen(host, int(port))
        self._socket.setblocking(False)
        files = allow_many_files()
        self._together = min(self.limits.together, max(16, (files - _FILES_FOR_OTHERS) // self.files))
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
                self._limited_log.warning("accept", f"a connection cannot be accepted ({error})")
                await asyncio.sleep(1.0)
                continue
            host = counted_address(address[0])
            behind = self._is_balancer(address[0])
            if self._open.total() >= self._together or (not behind and self._open[host] >= self.limits.per_address):
                self._refuse(connection, host)
                continue
            self._open[host] += 1
            visited = self._announced(connection, host) if behind else self._visited(connection, host)
            self._keep(visited)

    def _is_balancer(self, address: str) -> bool:
        """Whether a connection from this address says who calls."""
        return is_among(address, self.balancers)

    def _refuse(self, connection: socket.socket, host: str) -> None:
        connection.close()
        self.refused["connections"] += 1
        self._limited_log.warning(host, f"a connection from {host} is refused: {self._open[host]} are open already")

    async def _announced(self, connection: socket.socket, balancer: str) -> None:
        """Visit once the load balancer has said who calls; the connection counts as the balancer's until then."""
        try:
            async with asyncio.timeout(self.limits.handshake):
                source = await read_source(connection)
        except (BadHeader, OSError) as error:
            connection.close()
            self.refused["proxy header"] += 1
            why = str(error) or "it does not come"
            self._limited_log.warning(
                f"header {balancer}", f"a connection from the load balancer {balancer} is refused: its header, {why}"
            )
            return
        finally:
            self._leave(balancer)
        host = balancer if source is None else counted_address(source)
        if source is not None and self._open[host] >= self.limits.per_address:
            self._refuse(connection, host)
            return
        self._open[host] += 1
        await self._visited(connection, host)

    async def _visited(self, connection: socket.socket, host: str) -> None:
        try:
            with suppress(OSError):
                await self.visit(connection, host)
        finally:
            self._leave(host)

    def _leave(self, host: str) -> None:
        self._open[host] -= 1
        if not self._open[host]:
            del self._open[host]
