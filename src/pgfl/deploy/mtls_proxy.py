"""A proxy for neighbouring sites: mutual TLS with pinned certificates, and a log line for every refused caller.

gRPC's own TLS refuses a caller without naming it. So TLS ends here, in Python's `ssl`. The plain connection goes on
over loopback to the service, which looks up the caller's certificate with `certificate_of`. A connection that bypasses
the proxy has none.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pgfl.deploy import processes
from pgfl.deploy.identity import SiteCertificate
from pgfl.deploy.sparing_log import SparingLog

log = logging.getLogger(__name__)
_HANDSHAKE_SECONDS = 10.0
_CHUNK = 1 << 18
_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate",
    "CERTIFICATE_VERIFY_FAILED": "the certificate that it shows is not linked, or not valid today",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the certificate of this site",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not trust the certificate of this site",
    "HTTP_REQUEST": "it does not speak TLS",
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "ConnectionResetError": "it hung up in the TLS handshake, as one that does not trust this site's certificate does",
    "ConnectionAbortedError": "it did not finish the TLS handshake",
}


@dataclass
class MtlsProxy:
    """Listens for callers and connects those with a trusted certificate to a port on loopback."""

    certificate: Path
    key: Path
    trusted: Callable[[], bytes]  # PEM, read at every new connection
    refused: Counter[str]
    _certificates: dict[int, SiteCertificate] = field(default_factory=dict)
    _sparing: SparingLog = field(default_factory=lambda: SparingLog(log))
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def open(self, address: str, inside: int) -> int:
        """Listen; returns the port. Raises `OSError` where one cannot listen."""
        host, _, port = address.rpartition(":")
        self._inside, self._socket = inside, processes.listen(host, int(port))
        self._socket.setblocking(False)
        self._keep(self._accept())
        return int(self._socket.getsockname()[1])

    async def close(self) -> None:
        """Stop listening and close every connection."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._socket.close()

    def certificate_of(self, address: str) -> SiteCertificate | None:
        """The certificate of the caller whose connection gRPC knows as `address`; None if it was not proxied."""
        host, _, port = address.rpartition(":")
        return self._certificates.get(int(port)) if host == "ipv4:127.0.0.1" and port.isdigit() else None

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
                log.warning("a connection cannot be accepted (%s)", error)
                await asyncio.sleep(1.0)
                continue
            self._keep(self._receive(connection, str(address[0])))

    async def _receive(self, connection: socket.socket, host: str) -> None:
        loop, outer = asyncio.get_running_loop(), asyncio.StreamReader()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            transport, protocol = await loop.connect_accepted_socket(
                lambda: asyncio.StreamReaderProtocol(outer), connection, ssl=self._tls(),
                ssl_handshake_timeout=_HANDSHAKE_SECONDS,
            )  # fmt: skip
            shown = ssl.DER_cert_to_PEM_cert(transport.get_extra_info("ssl_object").getpeercert(binary_form=True))
            certificate = SiteCertificate.parse(shown.encode())
        except (OSError, ValueError) as error:
            connection.close()
            self._refuse(host, error)
            return
        with closing(asyncio.StreamWriter(transport, protocol, outer, loop)) as caller, suppress(OSError):
            await self._connect_through(outer, caller, certificate)

    async def _connect_through(
        self, outer: asyncio.StreamReader, caller: asyncio.StreamWriter, certificate: SiteCertificate
    ) -> None:
        inner, service = await asyncio.open_connection("127.0.0.1", self._inside)
        port = service.get_extra_info("sockname")[1]
        self._certificates[port] = certificate
        ways = [asyncio.ensure_future(_pass_on(outer, service)), asyncio.ensure_future(_pass_on(inner, caller))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            del self._certificates[port]
            service.close()

    def _refuse(self, host: str, error: Exception) -> None:
        """Count and log a refusal; the same from the same address is logged at most once a minute."""
        reason = getattr(error, "reason", None) or type(error).__name__
        why = _REASONS.get(reason, f"TLS failed ({reason})")
        self.refused["certificate"] += 1
        self._sparing.warning(f"{host} {why}", f"a site that calls from {host} is refused: {why}")

    def _tls(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(self.certificate, self.key)
        context.verify_mode = ssl.CERT_REQUIRED
        if trusted := self.trusted():
            context.load_verify_locations(cadata=trusted.decode())
        context.set_alpn_protocols(["h2"])
        context.num_tickets = 0  # every connection shows its certificate anew
        return context


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
