"""Frames over TLS without I/O: bytes of a connection go in and frames come out, and the other way round.

    length u32, little-endian | frame

An empty frame is a heartbeat. A frame that is longer than the receiver allows is refused by its length, before any
of it is kept. `connection` reads and writes the bytes.
"""

from __future__ import annotations

import hashlib
import ssl
import struct
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Self

from pgfl.network.protocol.identity import PROTOCOL, describe_tls_error

CONNECT_SECONDS: Final = 20.0  # with the handshake; enough for a round trip of half a second and lost packets
CHUNK: Final = 1 << 16  # bytes read from a connection at a time
HEARTBEAT: Final = b""
PEER_DISCONNECTED: Final = "peer disconnected"
UNFINISHED: Final = "it did not finish the TLS handshake"
_LENGTH: Final = struct.Struct("<I")
_RECORD: Final = 1 << 14  # the most that a TLS record holds


class BadConnection(Exception):
    """A connection cannot be made or cannot go on; the text says why, about the other end."""

    @classmethod
    def because(cls, error: Exception) -> Self:
        """Of what the system says."""
        return cls(str(getattr(error, "strerror", None) or error) or type(error).__name__)


@dataclass(frozen=True)
class KeepAlive:
    """Each end sends a heartbeat every `interval` seconds, and disconnects after `timeout` seconds without one."""

    interval: float = 15.0
    timeout: float = 35.0  # a site with a thousand streams on a busy machine may be slow

    @property
    def silent(self) -> str:
        """Reason recorded when a peer goes silent."""
        return f"no heartbeat for {self.timeout:g} s"

    @property
    def stalled(self) -> str:
        """Reason recorded when a peer stops reading."""
        return f"it read nothing for {self.timeout:g} s"


KEEP_ALIVE: Final = KeepAlive()


class TlsFrames:
    """One end of one TLS connection; not thread-safe."""

    def __init__(
        self, tls: ssl.SSLContext, longest: int, calls: str | None = None, pins: Collection[str] | None = None
    ) -> None:
        """`longest` is for a frame, in bytes.

        Who calls a site knows the name in its certificate (`calls`), or the fingerprints that it may have (`pins`).
        """
        self.longest = longest
        self.ready = False  # the handshake is done
        self._caller, self._pins = calls is not None or pins is not None, pins
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.wrap_bio(self._incoming, self._outgoing, not self._caller, calls)
        self._begun = bytearray()  # a frame of which more is to come

    @property
    def certificate(self) -> bytes | None:
        """What the other end shows (DER); None if that is nothing."""
        return self._tls.getpeercert(binary_form=True)

    def receive(self, data: bytes | memoryview) -> list[bytes]:
        """Bytes from the other end, none to begin with; returns the frames that are whole. Raises `BadConnection`."""
        self._incoming.write(data)
        try:
            if not self.ready:
                self._shake_hands()
            return self._read()
        except ssl.SSLWantReadError:
            return []
        except ssl.SSLZeroReturnError:
            raise BadConnection(PEER_DISCONNECTED) from None
        except ssl.SSLError as error:
            raise BadConnection(describe_tls_error(error, caller=self._caller)) from error

    def send(self, frame: bytes) -> None:
        """A frame for the other end. Raises `BadConnection` where TLS has ended."""
        try:
            self._tls.write(_LENGTH.pack(len(frame)) + frame)
        except ssl.SSLError as error:
            raise BadConnection(describe_tls_error(error, caller=self._caller)) from error

    def outgoing(self) -> bytes:
        """Bytes for the other end, due after every other call, also after a failed one: they say why."""
        return self._outgoing.read()

    def _shake_hands(self) -> None:
        self._tls.do_handshake()
        if self._pins is not None and hashlib.sha256(self.certificate or b"").hexdigest() not in self._pins:
            raise BadConnection("the certificate that it shows is not the pinned one")
        if self._tls.selected_alpn_protocol() != PROTOCOL:
            raise BadConnection("it does not speak pgfl's frames; if it is an older pgfl, upgrade it there")
        self.ready = True

    def _read(self) -> list[bytes]:
        frames: list[bytes] = []
        while self._incoming.pending:
            try:
                data = self._tls.read(_RECORD)
            except ssl.SSLWantReadError:
                break
            frames += self._cut(data)
        return frames

    def _cut(self, data: bytes) -> list[bytes]:
        begun = self._begun
        begun += data
        frames: list[bytes] = []
        place, end = 0, len(begun)
        while end - place >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(begun, place)
            if length > self.longest:
                raise BadConnection(f"it sends a frame of {length} bytes, longer than the {self.longest} allowed")
            whole = place + _LENGTH.size + length
            if whole > end:
                break
            frames.append(bytes(begun[place + _LENGTH.size : whole]))
            place = whole
        del begun[:place]
        return frames
