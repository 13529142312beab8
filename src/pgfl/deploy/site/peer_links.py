"""The link between neighbouring sites: two small gRPC calls over TLS in which both sides know each other's certificate.

`Greet` carries the caller's name, configuration and round. `Publish` carries one round's aggregates. Both sides call
each other; a call that fails is repeated, and the newest publications wait until it works.
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

from pgfl.deploy import messages
from pgfl.deploy.grpc_options import channel_options, server_options
from pgfl.deploy.guarded_listener import LIMITS, ConnectionLimits
from pgfl.deploy.mtls_proxy import MtlsProxy
from pgfl.deploy.site.members import Neighbour
from pgfl.deploy.sparing_log import SparingLog
from pgfl.deploy.wire import Expected, Frame, Limits, Malformed, decode

log = logging.getLogger(__name__)
SERVICE = "pgfl.Peers"
CALL_SECONDS = 20.0  # enough for 8 MB over 20 Mbit/s with losses; a dead link is noticed by keepalive
_HEARTBEAT_SECONDS = 2.0
_KEPT_PUBLICATIONS = 3
_GREETING: Expected = (messages.PeerHello,)
_PUBLICATION: Expected = (messages.Publication,)
_REPLY: Expected = (messages.Acknowledged,)


class Refused(Exception):
    """A peer's call is refused; the text goes to the peer and to the log."""


Receive = Callable[[str, Frame], bytes]


@dataclass
class PeerService:
    """Answers neighbours: `receive` gets the name of an authenticated neighbour and a valid frame, and replies."""

    certificate: Path
    key: Path
    neighbours: Callable[[], Mapping[str, Neighbour]]
    limits: Limits
    receive: Receive
    on_switched: Callable[[str], None] = lambda peer: None  # it shows the certificate that was to come
    connections: ConnectionLimits = LIMITS
    refused: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._sparing = SparingLog(log)
        self.proxy = MtlsProxy(self.certificate, self.key, self._pinned, self.refused, self.connections)

    async def start(self, address: str) -> int:
        """Listen; returns the port."""
        self._server = grpc.aio.server(options=server_options(self.limits.frame_bytes))
        self._server.add_generic_rpc_handlers((_handlers(SERVICE, Greet=self._greet, Publish=self._publish),))
        inside = self._server.add_insecure_port("127.0.0.1:0")  # behind the proxy, which does TLS
        port = self.proxy.open(address, inside)
        await self._server.start()
        return port

    async def stop(self) -> None:
        """Stop listening."""
        await self._server.stop(0.5)
        await self.proxy.close()

    def _pinned(self) -> bytes:
        return b"".join(neighbour.trusted for neighbour in self.neighbours().values())

    async def _greet(self, data: bytes, context: Any) -> bytes:
        return await self._take(data, context, _GREETING)

    async def _publish(self, data: bytes, context: Any) -> bytes:
        return await self._take(data, context, _PUBLICATION)

    async def _take(self, data: bytes, context: Any, expected: Expected) -> bytes:
        peer = context.peer()
        try:
            peer = self._who(context)
            frame = decode(data, self.limits, expected)
            assert isinstance(frame.header, messages.PeerHello | messages.Publication)
            if frame.header.site != peer:
                raise Refused(f"it calls itself {frame.header.site!r}")
            return self.receive(peer, frame)
        except Malformed as error:
            self.refused["malformed"] += 1
            self._sparing.warning(f"{peer} malformed", f"site {peer}: refused {error}")
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error)[:300])
        except Refused as error:
            self.refused["refused"] += 1
            self._sparing.warning(f"{peer} {error}", f"site {peer}: refused, {error}")
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error)[:300])
        raise AssertionError("abort raises")

    def _who(self, context: Any) -> str:
        certificate = self.proxy.certificate_of(context.peer())
        if certificate is None:
            raise Refused("only proxied connections are accepted")
        pinned = self.neighbours().get(certificate.name)
        if pinned is None or certificate not in (pinned.certificate, pinned.coming):
            raise Refused(f"its certificate names {certificate.name!r} and is not the one that is linked")
        if certificate == pinned.coming:
            self.on_switched(certificate.name)
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
    on_reply: Callable[[str, messages.Acknowledged], None]  # the neighbour is reached
    on_down: Callable[[str, str], None]  # it is not, with the reason
    _outbox: deque[tuple[int, bytes]] = field(default_factory=lambda: deque(maxlen=_KEPT_PUBLICATIONS))
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _sending: bool = False

    def start(self) -> asyncio.Task[None]:
        """Begin to call; returns the task, which ends only if it is stopped or fails."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self._task

    async def stop(self) -> None:
        """Stop calling."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def publish(self, round: int, data: bytes) -> None:
        """Send this as soon as the link allows; only the newest few wait."""
        self._outbox.append((round, data))
        self._wake.set()

    def clear(self) -> None:
        """Forget what waits to be sent."""
        self._outbox.clear()

    def greet_now(self) -> None:
        """Greet the neighbour at once instead of with the next heartbeat."""
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
                        self._acknowledged(await greet(self.greeting(), timeout=CALL_SECONDS))
                        pause = 0.1
                        await self._send(publish)
            except grpc.aio.AioRpcError as error:
                self.on_down(self.peer, f"{error.code().name}: {(error.details() or '').strip()[:200]}")
            except Malformed as error:
                self.on_down(self.peer, f"its reply is malformed: {error}")
            await asyncio.sleep(pause)
            pause = min(2 * pause, 3.0)

    async def _send(self, publish: Any) -> None:
        """Publications as they come; returns when a heartbeat is due.

        The next one does not wait until the last is acknowledged: far apart, that would cost half of the rounds.
        """
        loop = asyncio.get_running_loop()
        calls: dict[asyncio.Task[None], tuple[int, bytes]] = {}
        try:
            while True:
                under_way = {id(item) for item in calls.values()}
                for item in self._outbox:
                    if id(item) not in under_way:
                        calls[loop.create_task(self._publish(publish, item))] = item
                self._sending = bool(calls)
                self._wake.clear()
                heartbeat = loop.call_later(_HEARTBEAT_SECONDS, self._wake.set)
                woken = loop.create_task(self._wake.wait())
                try:
                    await asyncio.wait({woken, *calls}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    woken.cancel()
                    heartbeat.cancel()
                for call in [call for call in calls if call.done()]:
                    del calls[call]
                    call.result()
                self._sending = bool(calls)
                if self._wake.is_set() and self.drained:
                    return
        finally:
            self._sending = False
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    async def _publish(self, publish: Any, item: tuple[int, bytes]) -> None:
        self._acknowledged(await publish(item[1], timeout=CALL_SECONDS))
        with suppress(ValueError):
            self._outbox.remove(item)

    def _acknowledged(self, data: bytes) -> None:
        reply = decode(data, self.limits, _REPLY).header
        assert isinstance(reply, messages.Acknowledged)
        if reply.site != self.peer:
            raise Malformed(f"it calls itself {reply.site!r}")
        self.on_reply(self.peer, reply)

    def _channel(self) -> Any:
        pinned = self.neighbour.certificate
        credentials = grpc.ssl_channel_credentials(self.neighbour.trusted, self.key, self.certificate)
        options = channel_options(self.limits.frame_bytes, pinned.tls_name)
        return grpc.aio.secure_channel(self.neighbour.address, credentials, options=options)


def _caller(channel: Any, method: str) -> Any:
    return channel.unary_unary(f"/{SERVICE}/{method}", request_serializer=None, response_deserializer=None)


def _handlers(service: str, **methods: Any) -> Any:
    """Generic handlers of unary calls in plain bytes: no generated code."""
    return grpc.method_handlers_generic_handler(
        service, {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
    )
