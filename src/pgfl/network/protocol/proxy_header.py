"""The header of the PROXY protocol, version 2, with which a load balancer says who calls.

Only a connection from an address that the operator stated is read like this; from anywhere else the same bytes are what
they are to everyone: not TLS.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
_HEAD: Final = struct.Struct(">12sBBH")
_MOST_BYTES: Final = 4096  # of addresses and extensions; balancers send some hundred at most
_LOCAL, _PROXY = 0x20, 0x21
_ADDRESSES: Final[dict[int, tuple[type[IPv4Address | IPv6Address], int]]] = {
    0x11: (IPv4Address, 4),  # TCP over IPv4: source, destination, ports
    0x21: (IPv6Address, 16),
}
Network = IPv4Network | IPv6Network


class BadHeader(Exception):
    """A load balancer's connection does not begin with a header; the text says why."""


def is_among(address: str, networks: tuple[Network, ...]) -> bool:
    """Whether an address is in one of these networks, also one of IPv4 that is written as one of IPv6."""
    found = ip_address(address)
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return any((mapped or found) in network for network in networks)


def source_of(command: int, family: int, content: bytes) -> str | None:
    """Return the caller's address; None where the balancer speaks for itself or does not know it."""
    if command == _LOCAL:
        return None
    if command != _PROXY:
        raise BadHeader("it is not version 2 of the PROXY protocol")
    if family not in _ADDRESSES:
        return None
    kind, size = _ADDRESSES[family]
    if len(content) < 2 * size + 4:
        raise BadHeader("its addresses are cut off")
    return str(kind(content[:size]))


async def read_source(connection: socket.socket) -> str | None:
    """Read the header, and nothing of what follows it; return the caller's address as `source_of` does."""
    signature, command, family, length = _HEAD.unpack(await _exactly(connection, _HEAD.size))
    if signature != SIGNATURE:
        raise BadHeader("there is none")
    if length > _MOST_BYTES:
        raise BadHeader(f"it has {length} bytes")
    return source_of(command, family, await _exactly(connection, length))


async def _exactly(connection: socket.socket, size: int) -> bytes:
    loop, data = asyncio.get_running_loop(), b""
    while len(data) < size:
        received = await loop.sock_recv(connection, size - len(data))
        if not received:
            raise BadHeader("the connection ended before it")
        data += received
    return data
