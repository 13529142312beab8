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
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pgfl.deploy.guarded_listener import CHUNK, LIMITS, ConnectionLimits, Listener, passed_on
from pgfl.deploy.identity import SiteCertificate
from pgfl.deploy.sparing_log import SparingLog

log = logging.getLogger(__name__)
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
    limits: ConnectionLimits = LIMITS
    _certificates: dict[int, SiteCertificate] = field(default_factory=dict)
    _sparing: SparingLog = field(default_factory=lambda: SparingLog(log))
    _context: tuple[bytes, ssl.SSLContext] | None = None

    def __post_init__(self) -> None:
        self._listener = Listener(self._receive, self.refused, self.limits)

    def open(self, address: str, inside: int) -> int:
        """Listen; returns the port. Raises `OSError` where one cannot listen."""
        self._inside = inside
        return self._listener.open(address)

    async def close(self) -> None:
        """Stop listening and close every connection."""
        await self._listener.close()

    def renew(self) -> None:
        """Read this site's own certificate and key again, for those who connect from now on."""
        self._context = None

    def certificate_of(self, address: str) -> SiteCertificate | None:
        """The certificate of the caller whose connection gRPC knows as `address`; None if it was not proxied."""
        host, _, port = address.rpartition(":")
        return self._certificates.get(int(port)) if host == "ipv4:127.0.0.1" and port.isdigit() else None

    async def _receive(self, connection: socket.socket, host: str) -> None:
        loop, outer = asyncio.get_running_loop(), asyncio.StreamReader()
        try:
            transport, protocol = await loop.connect_accepted_socket(
                lambda: asyncio.StreamReaderProtocol(outer), connection, ssl=self._tls(),
                ssl_handshake_timeout=self.limits.handshake,
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
        try:
            await passed_on(_pass_on(outer, service), _pass_on(inner, caller))
        finally:
            del self._certificates[port]
            service.close()

    def _refuse(self, host: str, error: Exception) -> None:
        """Count and log a refusal; the same from the same address is logged at most once a minute."""
        reason = getattr(error, "reason", None) or type(error).__name__
        why = _REASONS.get(reason, f"TLS failed ({reason})")
        self.refused["certificate"] += 1
        self._sparing.warning(f"{host} {why}", f"a site that calls from {host} is refused: {why}")

    def _tls(self) -> ssl.SSLContext:
        """One context for all connections, made anew when the trusted certificates change."""
        trusted = self.trusted()
        if self._context is None or self._context[0] != trusted:
            self._context = (trusted, self._new_context(trusted))
        return self._context[1]

    def _new_context(self, trusted: bytes) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(self.certificate, self.key)
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the pinned certificate itself, not one of its name
        if trusted:
            context.load_verify_locations(cadata=trusted.decode())
        context.set_alpn_protocols(["h2"])
        context.num_tickets = 0  # every connection shows its certificate anew
        return context


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
