"""The link between neighbouring sites: two small gRPC calls over TLS in which both sides know each other's certificate.

`Greet` says who is there, with which configuration, at which round. `Publish` carries one round's aggregates. Both
sides call each other; a call that fails is repeated, the newest publications wait until it works.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from pgfl.deploy.mtls_proxy import MtlsProxy
from pgfl.deploy.site.site_store import Neighbour
from pgfl.deploy.wire import Frame, Kind, Limits, Malformed, decode

log = logging.getLogger(__name__)
SERVICE = "pgfl.Peers"
CALL_SECONDS = 5.0
_HEARTBEAT_SECONDS = 2.0
_KEPT_PUBLICATIONS = 3
_GREETING, _PUBLICATION = frozenset({Kind.PEER_HELLO}), frozenset({Kind.PUBLICATION})
_REPLY = frozenset({Kind.ACKNOWLEDGED})


class Refused(Exception):
    """A peer's call is refused; the text goes to the peer and to the log."""


Receive = Callable[[str, Frame], bytes]


@dataclass
class PeerService:
    """Answers neighbours. `receive` gets the authenticated neighbour's name and a valid frame, and gives the reply."""

    certificate: Path
    key: Path
    neighbours: Callable[[], Mapping[str, Neighbour]]
    limits: Limits
    receive: Receive
    refused: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.door = MtlsProxy(self.certificate, self.key, self._pinned, self.refused)

    async def start(self, address: str) -> int:
        """Listen; returns the port."""
        self._server = grpc.aio.server(options=server_options(self.limits.frame_bytes))
        self._server.add_generic_rpc_handlers((handlers(SERVICE, Greet=self._greet, Publish=self._publish),))
        inside = self._server.add_insecure_port("127.0.0.1:0")  # behind the door, which does TLS
        port = self.door.open(address, inside)
        await self._server.start()
        return port

    async def stop(self) -> None:
        """Stop listening."""
        await self._server.stop(0.5)
        await self.door.close()

    def _pinned(self) -> bytes:
        return b"".join(neighbour.certificate.pem for neighbour in self.neighbours().values())

    async def _greet(self, data: bytes, context: Any) -> bytes:
        return await self._take(data, context, _GREETING)

    async def _publish(self, data: bytes, context: Any) -> bytes:
        return await self._take(data, context, _PUBLICATION)

    async def _take(self, data: bytes, context: Any, expected: frozenset[Kind]) -> bytes:
        peer = context.peer()
        try:
            peer = self._who(context)
            frame = decode(data, self.limits, expected)
            if frame.header["site"] != peer:
                raise Refused(f"it calls itself {frame.header['site']!r}")
            return self.receive(peer, frame)
        except Malformed as error:
            self.refused["malformed"] += 1
            log.warning("site %s: refused %s", peer, error)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error)[:300])
        except Refused as error:
            self.refused["refused"] += 1
            log.warning("site %s: refused, %s", peer, error)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error)[:300])
        raise AssertionError("abort raises")

    def _who(self, context: Any) -> str:
        certificate = self.door.guest(context.peer())
        if certificate is None:
            raise Refused("it did not come through the door")
        pinned = self.neighbours().get(certificate.name)
        if pinned is None or pinned.certificate.pem != certificate.pem:
            raise Refused(f"its certificate names {certificate.name!r} and is not the one that is linked")
        return certificate.name


@dataclass
class PeerLink:
    """Calls one neighbour for as long as the site runs."""

    peer: str
    neighbour: Neighbour
    certificate: bytes
    key: bytes
    limits: Limits
    greeting: Callable[[], bytes]
    on_reply: Callable[[str, Frame], None]  # the neighbour is there
    on_down: Callable[[str, str], None]  # it is not, and why
    _outbox: deque[tuple[int, bytes]] = field(default_factory=lambda: deque(maxlen=_KEPT_PUBLICATIONS))
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _sending: bool = False

    def start(self) -> None:
        """Begin to call."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Hang up."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    def publish(self, round: int, data: bytes) -> None:
        """Send this as soon as the link allows; only the newest few wait."""
        self._outbox.append((round, data))
        self._wake.set()

    @property
    def drained(self) -> bool:
        """Whether the neighbour has acknowledged everything."""
        return not self._outbox and not self._sending

    async def _run(self) -> None:
        pause = 0.1
        while True:
            try:
                async with self._channel() as channel:
                    greet, publish = (_caller(channel, method) for method in ("Greet", "Publish"))
                    while True:
                        self._told(await greet(self.greeting(), timeout=CALL_SECONDS))
                        pause = 0.1
                        await self._send(publish)
            except grpc.aio.AioRpcError as error:
                self.on_down(self.peer, f"{error.code().name}: {(error.details() or '').strip()[:200]}")
            except Malformed as error:
                self.on_down(self.peer, f"its reply is malformed: {error}")
            await asyncio.sleep(pause)
            pause = min(2 * pause, 3.0)

    async def _send(self, publish: Any) -> None:
        """Publications as they come; returns when a heartbeat is due."""
        while True:
            while self._outbox:
                item = self._outbox[0]
                self._sending = True
                try:
                    self._told(await publish(item[1], timeout=CALL_SECONDS))
                finally:
                    self._sending = False
                with suppress(ValueError):
                    self._outbox.remove(item)
            self._wake.clear()
            heartbeat = asyncio.get_running_loop().call_later(_HEARTBEAT_SECONDS, self._wake.set)
            await self._wake.wait()  # not wait_for: it can lose a cancellation that comes with the event
            heartbeat.cancel()
            if not self._outbox:
                return

    def _told(self, data: bytes) -> None:
        frame = decode(data, self.limits, _REPLY)
        if frame.header["site"] != self.peer:
            raise Malformed(f"it calls itself {frame.header['site']!r}")
        self.on_reply(self.peer, frame)

    def _channel(self) -> Any:
        pinned = self.neighbour.certificate
        credentials = grpc.ssl_channel_credentials(pinned.pem, self.key, self.certificate)
        options = [*channel_options(self.limits.frame_bytes), ("grpc.ssl_target_name_override", pinned.tls_name)]
        return grpc.aio.secure_channel(self.neighbour.address, credentials, options=options)


def _caller(channel: Any, method: str) -> Any:
    return channel.unary_unary(f"/{SERVICE}/{method}", request_serializer=None, response_deserializer=None)


def handlers(service: str, **methods: Any) -> Any:
    """Generic handlers of unary calls in plain bytes: no generated code."""
    return grpc.method_handlers_generic_handler(
        service, {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
    )


def server_options(frame_bytes: int) -> list[tuple[str, int]]:
    """One process a port, no frame longer than can be valid, and peers that hang are noticed."""
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", frame_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.http2.ping_timeout_ms", 5_000),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


def channel_options(frame_bytes: int) -> list[tuple[str, int]]:
    """The same for the calling side, and quick to try again."""
    return [
        ("grpc.max_receive_message_length", frame_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.http2.ping_timeout_ms", 5_000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.min_reconnect_backoff_ms", 20_000),  # the time that an attempt to connect may take, too
        ("grpc.max_reconnect_backoff_ms", 3_000),
        ("grpc.enable_retries", 0),
    ]
