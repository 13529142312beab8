"""The one port of a site: who shows the certificate of a linked site is a neighbour, everyone else may be a client."""

from __future__ import annotations

import logging
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pgfl.deploy import pinned_tls
from pgfl.deploy.frame_connection import Conversation, FrameConnection, FramePort
from pgfl.deploy.guarded_listener import LIMITS, ConnectionLimits
from pgfl.deploy.sparing_log import SparingLog
from pgfl.deploy.tls_frames import PULSE, Pulse

log = logging.getLogger(__name__)
_FIRST_BYTES: Final = 1 << 16  # the longest frame of one who is not known yet
_OUTBOX_FRAMES: Final = 4  # of the longest, that may wait for a client or a neighbour

Converse = Callable[[str], Conversation]


@dataclass
class SitePort:
    """Listens; `clients` and `neighbours` converse with those who call, whose address they get."""

    certificate: Path
    key: Path
    frame_bytes: int  # of the longest frame
    clients: Converse
    neighbours: Converse
    trusted: Callable[[], bytes] = bytes  # certificates of the linked sites, in PEM
    connections: ConnectionLimits = LIMITS
    pulse: Pulse = PULSE
    refused: Counter[str] = field(default_factory=Counter)
    _sparing: SparingLog = field(default_factory=lambda: SparingLog(log))
    _tls: tuple[bytes, ssl.SSLContext] | None = None

    async def start(self, address: str) -> int:
        """Listen; returns the port. Raises `OSError` where one cannot listen."""
        self.tls()  # a certificate that cannot be read is found now
        self._port = FramePort(
            self.tls, _FIRST_BYTES, lambda host: _Visitor(self, host), _OUTBOX_FRAMES * self.frame_bytes, self.refused,
            self.connections, self.pulse,
        )  # fmt: skip
        return self._port.open(address)

    async def stop(self) -> None:
        """Close every connection; clients and neighbours take it for a break and come back."""
        await self._port.close()

    def renew(self) -> None:
        """Show those who connect from now on the certificate that is in its file now; open connections go on."""
        self._tls = None

    def tls(self) -> ssl.SSLContext:
        """One context for all connections, made anew when the trusted certificates change."""
        trusted = self.trusted()
        if self._tls is None or self._tls[0] != trusted:
            self._tls = trusted, pinned_tls.listening(self.certificate, self.key, trusted)
        return self._tls[1]

    def refuse(self, host: str, why: str) -> None:
        """Count and log who did not get through TLS; the same of one address is logged at most once a minute."""
        self.refused["handshake"] += 1
        self._sparing.warning(f"{host} {why}", f"a connection from {host} was refused: {why}")


class _Visitor:
    """One connection to the port: once TLS is done, it is a neighbour's or a client's."""

    def __init__(self, port: SitePort, host: str) -> None:
        self._port, self._host = port, host
        self._conversation: Conversation | None = None

    def opened(self, connection: FrameConnection) -> None:
        known = connection.frames.certificate is not None
        self._conversation = (self._port.neighbours if known else self._port.clients)(self._host)
        if known:
            connection.frames.longest = self._port.frame_bytes
        self._conversation.opened(connection)

    def heard(self, frame: bytes) -> None:
        assert self._conversation is not None
        self._conversation.heard(frame)

    def ended(self, why: str | None) -> None:
        if self._conversation is not None:
            self._conversation.ended(why)
        elif why is not None:
            self._port.refuse(self._host, why)
