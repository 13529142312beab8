"""The site's end of its clients' streams: one authenticated bidirectional gRPC stream a client, in plain bytes.

The site sends a challenge; the client answers with its key, the token of its invitation and a signature over the
challenge and the site's certificate. Only then frames flow. A second stream of the same client replaces the first.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from pgfl.deploy.site.peer_links import server_options
from pgfl.deploy.wire import Frame, Kind, Limits, Malformed, decode, encode

log = logging.getLogger(__name__)
SERVICE = "pgfl.Rounds"
_HELLO_SECONDS = 10.0
_HELLO = frozenset({Kind.HELLO})
_FROM_CLIENTS = frozenset({Kind.ANSWER, Kind.DECLINE})
_MALFORMED_ALLOWED = 20  # a client that keeps sending nonsense is hung up on


class Unwelcome(Exception):
    """A stream is refused; the text goes to the client and to the log."""


@dataclass
class ClientStreams:
    """All open streams. `authenticate(hello, nonce)` names the client or raises `Unwelcome`."""

    site: str
    certificate: bytes
    key: bytes
    limits: Limits
    authenticate: Callable[[Frame, bytes], str]
    on_open: Callable[[str], None]
    on_frame: Callable[[str, Frame], None]
    on_close: Callable[[str], None]
    refused: Counter[str] = field(default_factory=Counter)
    _queues: dict[str, asyncio.Queue[bytes | None]] = field(default_factory=dict)

    async def start(self, address: str) -> int:
        """Listen; returns the port."""
        self._server = grpc.aio.server(options=server_options(self.limits.frame_bytes))
        method = grpc.stream_stream_rpc_method_handler(self._stream)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Stream": method}),))
        port = self._server.add_secure_port(address, grpc.ssl_server_credentials([(self.key, self.certificate)]))
        await self._server.start()
        return int(port)

    async def stop(self) -> None:
        """Hang up on everyone."""
        await self._server.stop(1.0)

    def send(self, client: str, data: bytes) -> None:
        """Queue a frame for a client; nothing happens if its stream is gone."""
        if client in self._queues:
            self._queues[client].put_nowait(data)

    def hang_up(self, client: str) -> None:
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
            log.warning("a stream from %s was refused: %s", context.peer(), error)
            with suppress(Exception):
                await context.write(encode(Kind.REFUSED, {"reason": str(error)[:300]}))
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error)[:300])
            return
        if client in self._queues:
            log.info("client %s opened a new stream; the old one is closed", client)
            self._queues[client].put_nowait(None)
        queue = self._queues[client] = asyncio.Queue()
        reader = asyncio.create_task(self._read(client, context))
        reader.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            self.on_open(client)
            while (data := await queue.get()) is not None:
                await context.write(data)
        finally:
            reader.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await reader
            if self._queues.get(client) is queue:
                del self._queues[client]
                self.on_close(client)

    async def _welcome(self, context: Any) -> str:
        nonce = secrets.token_bytes(32)
        await context.write(encode(Kind.CHALLENGE, {"site": self.site, "nonce": nonce.hex()}))
        try:
            data = await asyncio.wait_for(context.read(), _HELLO_SECONDS)
        except TimeoutError as error:
            raise Unwelcome("no hello came") from error
        if not isinstance(data, bytes):
            raise Unwelcome("the stream ended before its hello")
        return self.authenticate(decode(data, self.limits, _HELLO), nonce)

    async def _read(self, client: str, context: Any) -> None:
        malformed = 0
        while True:
            data = await context.read()
            if not isinstance(data, bytes):
                return
            try:
                self.on_frame(client, decode(data, self.limits, _FROM_CLIENTS))
            except Malformed as error:
                malformed += 1
                self.refused["malformed"] += 1
                log.warning("client %s: refused %s", client, error)
                if malformed >= _MALFORMED_ALLOWED:
                    log.warning("client %s sent %d malformed frames and is hung up on", client, malformed)
                    return
