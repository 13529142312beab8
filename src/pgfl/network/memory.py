"""Sites and clients in one event loop, joined in memory: no sockets, no TLS, for tests.

Everything above the transport is real: frames, limits, pinned certificates, signatures of clients, stores and ledgers.
Nothing is encrypted, and nobody proves to have the key of the certificate that it shows, so never use it between
machines.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from pgfl.network.client.client import Participant
from pgfl.network.client.samples import load_samples
from pgfl.network.client.settings import load_client
from pgfl.network.local import LocalNetwork
from pgfl.network.protocol.connection import TLS, Callee, Conversation, Endpoint, Transport
from pgfl.network.protocol.tls_frames import PEER_DISCONNECTED, BadConnection, KeepAlive
from pgfl.network.site.settings import load_site
from pgfl.network.site.site import Site

_HOST: Final = "127.0.0.1"  # the address under which the site counts every caller


class MemoryConnection:
    """One end of a connection; frames are delivered by the event loop, in order."""

    def __init__(self, conversation: Conversation, certificate: bytes | None, longest: int) -> None:
        """`certificate` is what the peer shows (DER), `longest` the longest frame that this end accepts."""
        self.certificate, self.longest = certificate, longest
        self._conversation = conversation
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self._loop.create_future()
        self._inbox: deque[bytes | None] = deque()  # None: the peer disconnected
        self._paused = self._closing = False

    def join(self, peer: MemoryConnection) -> None:
        """Open this end, whose other end is `peer`."""
        self._peer = peer
        self._loop.call_soon(self._converse, self._conversation.on_open, self)

    def send(self, frame: bytes) -> None:
        """Send a frame; do nothing if this end is closing."""
        if not self._closing:
            self._loop.call_soon(self._peer._receive, frame)

    def pause(self) -> None:
        """Stop reading; frames wait."""
        self._paused = True

    def resume(self) -> None:
        """Continue reading."""
        if self._paused:
            self._paused = False
            self._loop.call_soon(self._deliver)

    def close(self, why: str | None = None) -> None:
        """Close after what was sent; `why` is what the peer did wrong, if anything."""
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._peer._receive, None)
            self._loop.call_soon(self._end, why)

    def abort(self) -> None:
        """Close at once."""
        self.close()

    def _receive(self, frame: bytes | None) -> None:
        self._inbox.append(frame)
        self._deliver()

    def _deliver(self) -> None:
        while self._inbox and not self._paused and not self._closing:
            frame = self._inbox.popleft()
            if frame is None:
                self._closing = True
                self._end(PEER_DISCONNECTED)
            elif len(frame) > self.longest:
                self.close(f"it sends a frame of {len(frame)} bytes, longer than the {self.longest} allowed")
            else:
                self._converse(self._conversation.on_frame, frame)

    def _converse(self, handle: Callable[[Any], None], argument: object) -> None:
        """Call the conversation; if it fails, close this connection only."""
        try:
            handle(argument)
        except Exception as error:
            self._loop.call_exception_handler({"message": "a frame could not be handled", "exception": error})
            self.close("what it sent could not be handled here")

    def _end(self, why: str | None) -> None:
        if not self.over.done():
            self.over.set_result(None)
            self._conversation.on_close(why)


class MemoryPort:
    """A port of a `MemoryTransport`."""

    def __init__(self, ports: dict[int, MemoryPort], endpoint: Endpoint) -> None:
        self._ports, self.endpoint = ports, endpoint
        self.loop = asyncio.get_running_loop()
        self.connections: list[MemoryConnection] = []

    def open(self, address: str) -> int:
        """Listen; return the port number. Raise `OSError` if it is taken."""
        self._number = int(address.rpartition(":")[2])
        if self._number in self._ports:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        self._ports[self._number] = self
        return self._number

    async def close(self) -> None:
        """Stop listening and close every connection."""
        self._ports.pop(self._number, None)
        for connection in self.connections:
            connection.close()
        await asyncio.gather(*(connection.over for connection in self.connections))


class MemoryTransport:
    """Joins the sites and clients of one event loop; a site is found by its port number alone."""

    def __init__(self) -> None:
        self._ports: dict[int, MemoryPort] = {}

    def listen(self, endpoint: Endpoint) -> MemoryPort:
        """Return a port for an endpoint; it is not open yet."""
        return MemoryPort(self._ports, endpoint)

    async def call(
        self, callee: Callee, conversation: Conversation, longest: int, outbox_bytes: int, keep_alive: KeepAlive
    ) -> MemoryConnection:
        """Connect to a site; raise `BadConnection` if it is not there, or either end does not trust the other."""
        port = self._ports.get(int(callee.address.rpartition(":")[2]))
        if port is None or port.loop is not asyncio.get_running_loop():
            raise BadConnection("no site of this event loop listens there")
        inbound = port.endpoint.converse(_HOST)
        shown, own = _der(port.endpoint.certificate), None
        if not _is_pinned(shown, callee):
            inbound.on_close("it does not trust the certificate of this site")
            raise BadConnection("the certificate that it shows is not the pinned one")
        if callee.certificate is not None:
            own = _der(callee.certificate)
            if own not in _certificates(port.endpoint.trusted()):
                inbound.on_close("the certificate that it shows is not linked, or not valid today")
                raise BadConnection("it does not trust the certificate that it is shown")
        here = MemoryConnection(conversation, shown, longest)
        there = MemoryConnection(inbound, own, port.endpoint.first_bytes)
        port.connections = [each for each in port.connections if not each.over.done()] + [there]
        there.join(here)
        here.join(there)
        return here


def train(
    network: LocalNetwork,
    transport: Transport | None = None,
    seconds: float = 400.0,
    addresses: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Train a prepared network in this process; return why each site and client ended, by name.

    Args:
        network: Folders, keys and settings, after `prepare`; ledgers and stores are written there.
        transport: What joins them, a new `MemoryTransport` unless given.
        seconds: After so long `TimeoutError` is raised.
        addresses: Other addresses (host:port) for some clients to call.
    """
    joint = MemoryTransport() if transport is None else transport
    sites = {name: Site(load_site(network.home(name) / "site.toml"), joint) for name in network.federation.server_ids}
    clients = {
        name: participant(network, name, joint, (addresses or {}).get(name)) for name in network.federation.client_ids
    }

    async def all_together() -> list[str]:
        async with asyncio.timeout(seconds):
            return await asyncio.gather(
                *(site.run() for site in sites.values()), *(client.join() for client in clients.values())
            )

    return dict(zip([*sites, *clients], asyncio.run(all_together()), strict=True))


def participant(
    network: LocalNetwork, client: str, transport: Transport = TLS, address: str | None = None
) -> Participant:
    """Return a client of a prepared network; `address` (host:port) replaces that of its site."""
    settings = load_client(network.home(client) / "client.toml")
    if address is not None:
        site = settings.site.model_copy(update={"address": address})
        settings = settings.model_copy(update={"site": site})
    return Participant(settings, load_samples(settings), transport)


def _der(certificate: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificate.read_text())


def _certificates(pem: bytes) -> set[bytes]:
    return {each.public_bytes(Encoding.DER) for each in x509.load_pem_x509_certificates(pem)} if pem else set()


def _is_pinned(shown: bytes, callee: Callee) -> bool:
    if callee.fingerprints is not None:
        return hashlib.sha256(shown).hexdigest() in callee.fingerprints
    return shown in _certificates(callee.trusted)
