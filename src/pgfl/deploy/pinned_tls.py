"""TLS between those who have pinned each other's certificates: no authority, no older version, no resumed session."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

PROTOCOL: Final = "pgfl-frames"  # by ALPN both ends know that the other speaks frames and nothing else
_LISTENER_SAYS: Final = {
    "CERTIFICATE_VERIFY_FAILED": "the certificate that it shows is not linked, or not valid today",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the certificate of this site",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not trust the certificate of this site",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not trust the certificate of this site",
    "HTTP_REQUEST": "it does not speak TLS",
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
}
_CALLER_SAYS: Final = {
    "CERTIFICATE_VERIFY_FAILED": "the certificate that it shows is not the pinned one, or not valid today",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it wants to see a certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the certificate that it is shown",
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
}


def listening(certificate: Path, key: Path, neighbours: bytes = b"") -> ssl.SSLContext:
    """For a site that shows this certificate. Who shows one, too, must show one of these (PEM)."""
    context = _strict(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.num_tickets = 0
    context.verify_mode = ssl.CERT_OPTIONAL
    _trust(context, neighbours)
    return context


def calling(pinned: bytes, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """For a call to a site that shows a pinned certificate (PEM), and the name in it; perhaps showing one's own."""
    context = _strict(ssl.PROTOCOL_TLS_CLIENT)  # which checks the name
    _trust(context, pinned)
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context


def calling_by_fingerprint() -> ssl.SSLContext:
    """For a call to a site of which one knows the fingerprint: `TlsFrames` compares it before anything is sent."""
    context = _strict(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def in_words(error: ssl.SSLError, *, caller: bool) -> str:
    """What went wrong, about the other end; `caller` is the end that called."""
    reason = error.reason or type(error).__name__
    return (_CALLER_SAYS if caller else _LISTENER_SAYS).get(reason, f"TLS failed ({reason})")


def _strict(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3  # which has no renegotiation
    context.set_alpn_protocols([PROTOCOL])
    return context


def _trust(context: ssl.SSLContext, certificates: bytes) -> None:
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the pinned certificate itself, not one of its name
    if certificates:
        context.load_verify_locations(cadata=certificates.decode())
