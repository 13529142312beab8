"""HTTP CONNECT proxies: which one a call goes through, and how it opens the way.

A proxy sees the address that is called and encrypted bytes. TLS, and with it the pinned certificate, is between the two
ends, so a proxy that leads elsewhere is refused like any stranger.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self
from urllib.parse import unquote, urlsplit

from pgfl.errors import ConfigError
from pgfl.network.protocol.tls_frames import BadConnection

_MOST_HEADER_BYTES: Final = 1 << 14
_VARIABLES: Final = ("https_proxy", "HTTPS_PROXY")
_EXCEPTIONS: Final = ("no_proxy", "NO_PROXY")


def host_and_port(address: str) -> tuple[str, int]:
    """Split host:port; raise `ValueError` if the port is no number.

    >>> host_and_port("[2001:db8::7]:9094")
    ('2001:db8::7', 9094)
    """
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


@dataclass(frozen=True)
class Proxy:
    """An HTTP proxy; its text has no password, since it goes to logs."""

    host: str
    port: int
    authorization: str | None = field(default=None, repr=False)  # for basic authentication, encoded

    @classmethod
    def parse(cls, url: str, key: str) -> Self:
        """From http://[name:password@]host:port; `key` is where it stands, for the error."""
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            host, port = parts.hostname, parts.port or 3128
        except ValueError:
            host, port = None, 0
        if host is None or parts.scheme != "http" or parts.path not in ("", "/"):
            raise ConfigError(f"`{key}` must be http://host:port or http://name:password@host:port, an HTTP proxy.")
        if parts.username is None:
            return cls(host, port)
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return cls(host, port, base64.b64encode(secret.encode()).decode())

    def __str__(self) -> str:
        return f"the proxy {self.host}:{self.port}"

    def request(self, address: str) -> bytes:
        """Return what asks the proxy for a way to this address."""
        lines = [f"CONNECT {address} HTTP/1.1", f"Host: {address}"]
        if self.authorization is not None:
            lines.append(f"Proxy-Authorization: Basic {self.authorization}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def check(self, reply: bytes, address: str) -> None:
        """Raise `BadConnection` unless the proxy's reply opens the way; nothing else of it is repeated."""
        words = reply.split(b"\r\n", 1)[0].split(b" ", 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            raise BadConnection(f"{self} does not speak HTTP")
        status = int(words[1])
        if status == 407:
            raise BadConnection(f"{self} wants a name and a password, or other ones (http://name:password@host:port)")
        if not 200 <= status < 300:
            raise BadConnection(f"{self} does not open the way to {address} (status {status})")
        if not reply.endswith(b"\r\n\r\n"):
            raise BadConnection(f"{self} says something before the other end was asked")

    async def tunnel(self, address: str) -> socket.socket:
        """Return a connection through the proxy to an address. Raise `BadConnection` or `OSError` if there is none."""
        loop, refused = asyncio.get_running_loop(), OSError(f"{self} has no address")
        for family, kind, protocol, _, place in await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
            connection = socket.socket(family, kind, protocol)
            connection.setblocking(False)
            try:
                await loop.sock_connect(connection, place)
            except BaseException as error:
                connection.close()
                if not isinstance(error, OSError):
                    raise
                refused = OSError(f"{self} is not reached ({error.strerror or error})")
            else:
                return await self._ask(loop, connection, address)
        raise refused

    async def _ask(self, loop: asyncio.AbstractEventLoop, connection: socket.socket, address: str) -> socket.socket:
        try:
            await loop.sock_sendall(connection, self.request(address))
            reply = b""
            while b"\r\n\r\n" not in reply:
                received = await loop.sock_recv(connection, 4096)
                reply += received
                if not received:
                    raise BadConnection(f"{self} disconnected")
                if len(reply) > _MOST_HEADER_BYTES:
                    raise BadConnection(f"{self} does not speak HTTP")
            self.check(reply, address)
        except BaseException:
            connection.close()
            raise
        return connection


@dataclass(frozen=True)
class Proxies:
    """Which calls go through a proxy: all of them, but for hosts that are `excepted`."""

    proxy: Proxy | None = None
    excepted: tuple[str, ...] = ()

    @classmethod
    def stated(
        cls, proxy: str | None, no_proxy: Sequence[str] | None, environment: Mapping[str, str] = os.environ
    ) -> Self:
        """As the keys `proxy` and `no_proxy` state, or else the environment; `proxy = ""` is no proxy.

        A proxy of the environment is for the world outside, so it is never asked for the way to this machine itself.
        """
        from_environment = next((environment[name] for name in _VARIABLES if environment.get(name)), "")
        exceptions = next((environment[name] for name in _EXCEPTIONS if environment.get(name)), "")
        excepted = tuple(exceptions.split(",")) if no_proxy is None else tuple(no_proxy)
        url, key = (proxy, "proxy") if proxy is not None else (from_environment, "https_proxy")
        if not url:
            return cls()
        if proxy is None:
            excepted += ("localhost", "127.0.0.0/8", "::1")
        return cls(Proxy.parse(url, key), tuple(one.strip() for one in excepted if one.strip()))

    def of(self, address: str) -> Proxy | None:
        """Return the proxy for a call to host:port, None if it goes there directly."""
        host = host_and_port(address)[0].lower()
        return None if any(_matches(host, one.lower()) for one in self.excepted) else self.proxy


DIRECT: Final = Proxies()


def _matches(host: str, excepted: str) -> bool:
    """Whether a host is excepted: by its name, a domain that it is in, its address, or a network; `*` is every host."""
    if excepted == "*":
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(excepted.strip("[]"), strict=False)
    except ValueError:
        domain = excepted.removeprefix("*").lstrip(".")
        return host == domain or host.endswith(f".{domain}")
