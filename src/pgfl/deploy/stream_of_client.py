"""The client's end of its stream to the site: open, prove who we are, answer frames until it is over."""

from __future__ import annotations

import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
from cryptography.hazmat.primitives.asymmetric import ec

from pgfl.deploy.identity import SiteCertificate, public_key_of, sign_challenge
from pgfl.deploy.site.peer_links import channel_options
from pgfl.deploy.streams_of_site import SERVICE
from pgfl.deploy.wire import Frame, Kind, Limits, Malformed, decode, encode

log = logging.getLogger(__name__)
_FIRST = frozenset({Kind.CHALLENGE, Kind.REFUSED})
_FROM_SITE = frozenset({Kind.WELCOME, Kind.REQUEST, Kind.STOP, Kind.REFUSED})
_MALFORMED_ALLOWED = 20


@dataclass(frozen=True)
class Ended:
    """How a stream ended: `lost` (try again), `refused` (ask for a new invitation), `stopped` (training is over)."""

    how: str
    reason: str


@dataclass
class SiteStream:
    """A connection to one pinned site. `handle` gets each valid frame and gives the reply, if there is one."""

    site: SiteCertificate
    key: ec.EllipticCurvePrivateKey
    limits: Limits
    releases: Callable[[], int]
    handle: Callable[[Frame], bytes | None]
    refused: Counter[str] = field(default_factory=Counter)
    _call: Any = None
    _closed: bool = False
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def close(self) -> None:
        """Hang up, from any thread."""
        with self._guard:
            self._closed = True
            if self._call is not None:
                self._call.cancel()

    def run(self, address: str, token: str) -> Ended:
        """One stream from its opening to its end."""
        credentials = grpc.ssl_channel_credentials(self.site.pem)
        options = [*channel_options(self.limits.frame_bytes), ("grpc.ssl_target_name_override", self.site.tls_name)]
        outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        with grpc.secure_channel(address, credentials, options=options) as channel:
            method = channel.stream_stream(f"/{SERVICE}/Stream", request_serializer=None, response_deserializer=None)
            with self._guard:
                if self._closed:
                    return Ended("stopped", "closed here")
                self._call = method(iter(outbox.get, None))
            try:
                return self.converse(self._call, token, outbox)
            except grpc.RpcError as error:
                if self._closed:
                    return Ended("stopped", "closed here")
                how = "refused" if error.code() is grpc.StatusCode.UNAUTHENTICATED else "lost"
                return Ended(how, f"{error.code().name}: {(error.details() or '')[:200]}")
            finally:
                outbox.put(None)
                self._call.cancel()

    def converse(self, frames: Iterator[bytes], token: str, outbox: queue.SimpleQueue[bytes | None]) -> Ended:
        """Answer frames, wherever they come from, into the outbox, until it is over."""
        first = next(frames, None)
        if first is None:
            return Ended("lost", "the site hung up")
        try:
            challenge = decode(first, self.limits, _FIRST)
        except Malformed as error:
            return Ended("lost", f"the site's first frame is malformed: {error}")
        if challenge.kind is Kind.REFUSED:
            return Ended("refused", challenge.header["reason"])
        outbox.put(self._hello(bytes.fromhex(challenge.header["nonce"]), token))
        for data in frames:
            try:
                frame = decode(data, self.limits, _FROM_SITE)
            except Malformed as error:
                self.refused["malformed"] += 1
                log.warning("the site sent %s: refused", error)
                if self.refused["malformed"] % _MALFORMED_ALLOWED == 0:
                    return Ended("lost", "the site keeps sending malformed frames")
                continue
            if frame.kind is Kind.STOP:
                return Ended("stopped", frame.header["reason"])
            if frame.kind is Kind.REFUSED:
                return Ended("refused", frame.header["reason"])
            reply = self.handle(frame)
            if reply is not None:
                outbox.put(reply)
        return Ended("lost", "the site hung up")

    def _hello(self, nonce: bytes, token: str) -> bytes:
        signature = sign_challenge(self.key, self.site.fingerprint, nonce)
        fields = {"key": public_key_of(self.key).line, "token": token, "signature": signature.hex()}
        return encode(Kind.HELLO, {**fields, "releases": self.releases()})
