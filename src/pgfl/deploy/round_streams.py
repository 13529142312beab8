"""Both ends of the stream between a site and a client: one authenticated bidirectional gRPC stream per client.

The site sends a challenge. The client answers with its key, the token of its invitation, and a signature over the
challenge and the site's certificate. Only then do frames flow. A second stream of the same client replaces the first.
`ClientStreams` is the site's end of all its streams, `SiteStream` the client's end of one.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import grpc
import grpc.aio
from cryptography.hazmat.primitives.asymmetric import ec

from pgfl.deploy import masked_messages, messages
from pgfl.deploy.grpc_options import channel_options, server_options
from pgfl.deploy.guarded_listener import LIMITS, ConnectionLimits, PortGuard
from pgfl.deploy.identity import SiteCertificate, public_key_of, sign_challenge
from pgfl.deploy.sparing_log import SparingLog
from pgfl.deploy.wire import Expected, Frame, Limits, Malformed, decode, encode

log = logging.getLogger(__name__)
SERVICE = "pgfl.Rounds"
_HELLO_SECONDS = 10.0
_TO_CLIENT_FIRST: Expected = (messages.Challenge, messages.Refused)
_TO_CLIENT: Expected = (
    messages.Welcome, messages.Request, messages.Stop, messages.Refused, *masked_messages.TO_CLIENT
)  # fmt: skip
_TO_SITE_FIRST: Expected = (messages.Hello,)
_TO_SITE: Expected = (messages.Answer, messages.Decline, *masked_messages.TO_SITE)
_MALFORMED_ALLOWED = 20  # of one stream; then it is closed


# The site's end -------------------------------------------------------------------------------------------------------


class Unwelcome(Exception):
    """A stream is refused; the text goes to the client and to the log."""


@dataclass
class ClientStreams:
    """All open streams. `authenticate(hello, nonce)` names the client or raises `Unwelcome`."""

    site: str
    certificate: bytes
    key: bytes
    limits: Limits
    authenticate: Callable[[messages.Hello, bytes], str]
    on_open: Callable[[str], None]
    on_frame: Callable[[str, Frame], None]
    on_close: Callable[[str], None]
    connections: ConnectionLimits = LIMITS
    refused: Counter[str] = field(default_factory=Counter)
    _servers: list[Any] = field(default_factory=list)
    _queues: dict[str, asyncio.Queue[bytes | None]] = field(default_factory=dict)
    _sparing: SparingLog = field(default_factory=lambda: SparingLog(log))

    async def start(self, address: str) -> int:
        """Listen; returns the port."""
        self._guard = PortGuard(self.refused, self.connections)
        inside = await self._serve()
        try:
            return self._guard.open(address, inside)
        except OSError:
            await self._servers.pop().stop(None)
            raise

    async def _serve(self) -> int:
        """Serve on loopback with the present certificate; returns the port."""
        server = grpc.aio.server(options=server_options(self.limits.frame_bytes))
        method = grpc.stream_stream_rpc_method_handler(self._stream)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Stream": method}),))
        inside = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(self.key, self.certificate)]))
        await server.start()
        self._servers.append(server)
        return int(inside)

    async def renew(self, certificate: bytes, key: bytes) -> None:
        """Show another certificate to those who connect from now on; streams that are open go on.

        A second server takes over, because gRPC's own way to change certificates crashes with asyncio.
        """
        self.certificate, self.key = certificate, key
        self._guard.lead_to(await self._serve())

    async def stop(self) -> None:
        """Close every stream; clients take it for a break and come back."""
        for client in self._queues:
            self.close(client)
        await asyncio.gather(*(server.stop(1.0) for server in self._servers))
        await self._guard.close()

    def send(self, client: str, data: bytes) -> None:
        """Queue a frame for a client; nothing happens if its stream is gone."""
        if client in self._queues:
            self._queues[client].put_nowait(data)

    def close(self, client: str) -> None:
        """Close a client's stream after what is queued."""
        if client in self._queues:
            self._queues[client].put_nowait(None)

    def __contains__(self, client: str) -> bool:
        return client in self._queues

    async def _stream(self, requests: Any, context: Any) -> None:
        try:
            client = await self._welcome(context)
        except (Malformed, Unwelcome) as error:
            self.refused["stream"] += 1
            host = self._guard.caller(int(context.peer().rpartition(":")[2])) or "this machine"
            self._sparing.warning(f"{host} {error}", f"a stream from {host} was refused: {error}")
            with suppress(Exception):
                await context.write(encode(messages.Refused(reason=str(error)[:300])))
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error)[:300])
            return
        if client in self._queues:
            log.info("client %s opened a new stream; the old one is closed", client)
            self._queues[client].put_nowait(None)
        outbox = self._queues[client] = asyncio.Queue()
        reader = asyncio.create_task(self._read(client, context))
        reader.add_done_callback(lambda _: outbox.put_nowait(None))
        try:
            self.on_open(client)
            while (data := await outbox.get()) is not None:
                await context.write(data)
        finally:
            reader.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await reader
            if self._queues.get(client) is outbox:
                del self._queues[client]
                self.on_close(client)

    async def _welcome(self, context: Any) -> str:
        nonce = secrets.token_bytes(32)
        await context.write(encode(messages.Challenge(site=self.site, nonce=nonce.hex())))
        try:
            data = await asyncio.wait_for(context.read(), _HELLO_SECONDS)
        except TimeoutError as error:
            raise Unwelcome("no hello came") from error
        if not isinstance(data, bytes):
            raise Unwelcome("the stream ended before its hello")
        hello = decode(data, self.limits, _TO_SITE_FIRST).header
        assert isinstance(hello, messages.Hello)
        return self.authenticate(hello, nonce)

    async def _read(self, client: str, context: Any) -> None:
        malformed = 0
        while True:
            data = await context.read()
            if not isinstance(data, bytes):
                return
            try:
                self.on_frame(client, decode(data, self.limits, _TO_SITE))
            except Malformed as error:
                malformed += 1
                self.refused["malformed"] += 1
                self._sparing.warning(f"{client} malformed", f"client {client}: refused {error}")
                if malformed >= _MALFORMED_ALLOWED:
                    log.warning("client %s sent %d malformed frames; its stream is closed", client, malformed)
                    return


# The client's end -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """How a stream ended: `lost` (try again), `refused` (ask for a new invitation), `stopped` (training is over)."""

    how: Literal["lost", "refused", "stopped"]
    reason: str


@dataclass
class SiteStream:
    """A connection to one pinned site. `handle` gets each valid frame and returns the reply, if there is one."""

    site: SiteCertificate
    key: ec.EllipticCurvePrivateKey
    limits: Limits
    releases: Callable[[], int]
    handle: Callable[[Frame], bytes | None]
    budget: str | None = None  # as the owner lets the site know it
    terms: Callable[[], str] = str  # of a client that trusts this site
    masks: bool = False  # whether it takes part in masked sums
    refused: Counter[str] = field(default_factory=Counter)
    _call: Any = None
    _closed: bool = False
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _sparing: SparingLog = field(default_factory=lambda: SparingLog(log))

    def close(self) -> None:
        """Close the stream, from any thread."""
        with self._guard:
            self._closed = True
            if self._call is not None:
                self._call.cancel()

    def run(self, address: str, token: str) -> Ended:
        """One stream from its opening to its end."""
        credentials = grpc.ssl_channel_credentials(self.site.pem)
        options = channel_options(self.limits.frame_bytes, self.site.tls_name)
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
                reason = f"{error.code().name}: {(error.details() or '')[:200]}"
                return Ended("refused" if error.code() is grpc.StatusCode.UNAUTHENTICATED else "lost", reason)
            finally:
                outbox.put(None)
                self._call.cancel()

    def converse(self, frames: Iterator[bytes], token: str, outbox: queue.SimpleQueue[bytes | None]) -> Ended:
        """Answer frames, wherever they come from, into the outbox, until it is over."""
        first = next(frames, None)
        if first is None:
            return Ended("lost", "the site hung up")
        try:
            challenge = decode(first, self.limits, _TO_CLIENT_FIRST).header
        except Malformed as error:
            return Ended("lost", f"the site's first frame is malformed: {error}")
        if isinstance(challenge, messages.Refused):
            return Ended("refused", challenge.reason)
        assert isinstance(challenge, messages.Challenge)
        outbox.put(self._hello(bytes.fromhex(challenge.nonce), token))
        for data in frames:
            try:
                frame = decode(data, self.limits, _TO_CLIENT)
            except Malformed as error:
                self.refused["malformed"] += 1
                self._sparing.warning("malformed", f"the site sent {error}: refused")
                if self.refused["malformed"] % _MALFORMED_ALLOWED == 0:
                    return Ended("lost", "the site keeps sending malformed frames")
                continue
            if isinstance(frame.header, messages.Stop):
                self.handle(frame)
                return Ended("stopped", frame.header.reason)
            if isinstance(frame.header, messages.Refused):
                return Ended("refused", frame.header.reason)
            reply = self.handle(frame)
            if reply is not None:
                outbox.put(reply)
        return Ended("lost", "the site hung up")

    def _hello(self, nonce: bytes, token: str) -> bytes:
        signature = sign_challenge(self.key, self.site.fingerprint, nonce)
        key = public_key_of(self.key).line
        hello = messages.Hello(
            key=key,
            token=token,
            signature=signature.hex(),
            releases=self.releases(),
            budget=self.budget,
            terms=self.terms(),
            masks=self.masks,
        )
        return encode(hello)
