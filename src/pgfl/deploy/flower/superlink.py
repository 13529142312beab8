"""Flower's SuperLink behind a guard and with its control interface locked.

    python -m pgfl.deploy.flower.superlink SECRET_FILE CHANNEL PER_ADDRESS CONNECTIONS [flags of flower-superlink]

A SuperLink serves nodes and operators on one port, and without an account system anyone who reaches that port may
register nodes and start runs. Here every request to the control interface must carry a secret that only the owner of
the site's folder can read; nodes are not affected. Who is refused as a node is logged. CHANNEL is the number of the
open socket over which a `NodeInviter` in this process talks with the site; PER_ADDRESS and CONNECTIONS limit callers.
"""

from __future__ import annotations

import asyncio
import gc
import hmac
import logging
import os
import socket
import sys
import threading
from base64 import b64decode
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pgfl.deploy import processes
from pgfl.deploy.flower.node_inviter import NodeInviter
from pgfl.deploy.flower.port_guard import PortGuard
from pgfl.deploy.guarded_listener import LIMITS, ConnectionLimits
from pgfl.deploy.identity import ClientKey
from pgfl.deploy.sparing_log import SparingLog

log = logging.getLogger(__name__)

CONTROL_HEADER = "x-pgfl-control"
MOST_BODY_BYTES = 1 << 20
_LOOK_SECONDS = 0.05
_CONTROL_PATHS = ("/v1/control", "/docs", "/openapi")
_NODE_PATHS = "/v1/fleet"
_REASONS = {
    401: "its signature is wrong, or its clock is more than 5 s ahead of this one or 5 min behind",
    412: "it is not admitted, or its session before is not over",
}

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class ControlLock:
    """Middleware that answers 403 to a control request without the secret."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], secret: str) -> None:
        self.app = app
        self.secret = secret.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is not control, or control with the secret."""
        if scope["type"] == "http" and scope["path"].startswith(_CONTROL_PATHS):
            offered = dict(scope["headers"]).get(CONTROL_HEADER.encode(), b"")
            if not hmac.compare_digest(offered, self.secret):
                await send({"type": "http.response.start", "status": 403, "headers": []})
                await send({"type": "http.response.body", "body": b"control is locked"})
                return
        await self.app(scope, receive, send)


class BodyLimit:
    """Middleware that answers 413 to a body that is longer than anything Flower is sent here.

    The body is read before it is passed on, so that never more than the limit is in memory.
    """

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], most: int = MOST_BODY_BYTES) -> None:
        self.app, self.most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is short enough."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        parts: deque[MutableMapping[str, Any]] = deque()
        length, more = _stated_length(scope), True
        while more and length <= self.most:
            parts.append(await receive())
            length = sum(len(part.get("body", b"")) for part in parts)
            more = bool(parts[-1].get("more_body"))
        if length > self.most:
            log.warning("a body of more than %d bytes is refused", self.most)
            await send({"type": "http.response.start", "status": 413, "headers": [(b"connection", b"close")]})
            await send({"type": "http.response.body", "body": b"too long"})
            return

        async def read_before() -> MutableMapping[str, Any]:
            return parts.popleft() if parts else await receive()

        await self.app(scope, read_before, send)


def _stated_length(scope: Scope) -> int:
    stated = dict(scope["headers"]).get(b"content-length", b"0")
    return int(stated) if stated.isdigit() else 0


class RefusalLog:
    """Middleware that logs which node Flower refuses: its address and the key that it shows."""

    def __init__(
        self,
        app: Callable[[Scope, Receive, Send], Awaitable[None]],
        caller: Callable[[int], str | None] = lambda port: None,
    ) -> None:
        self.app, self.caller = app, caller
        self._sparing = SparingLog(log)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Look at the answers to nodes."""

        async def telling(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                host, port = scope.get("client") or ("?", 0)
                who, address = _key_shown(dict(scope["headers"])), self.caller(port) or host
                why = _REASONS.get(message["status"], f"status {message['status']} to {scope['path']}")
                self._sparing.warning(f"{address} {who} {why}", f"a node at {address} with {who} is refused: {why}")
            await send(message)

        nodes = scope["type"] == "http" and scope["path"].startswith(_NODE_PATHS)
        await self.app(scope, receive, telling if nodes else send)


def _key_shown(headers: Mapping[bytes, bytes]) -> str:
    from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER
    from flwr.supercore.primitives.asymmetric import bytes_to_public_key

    try:
        key = bytes_to_public_key(b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER.encode()], validate=True))
        return f"the key with fingerprint {ClientKey.of(key).fingerprint[:16]}…"
    except Exception:
        return "a key that cannot be read"


def main() -> None:
    """Run the SuperLink behind the lock."""
    secret = Path(sys.argv.pop(1)).read_text().strip()
    channel = socket.socket(fileno=int(sys.argv.pop(1)))
    channel.set_inheritable(False)
    guard = _guarded(replace(LIMITS, per_address=int(sys.argv.pop(1)), together=int(sys.argv.pop(1))))
    gc.disable()  # importing makes much and leaves little
    from flwr.superlink import extensions
    from flwr.superlink.cli.flower_superlink import flower_superlink
    from starlette.middleware import Middleware

    logging.getLogger("uvicorn.access").addFilter(_is_refusal)

    @asynccontextmanager
    async def inviting(app: Any) -> AsyncIterator[None]:
        gc.freeze()
        gc.enable()
        inviter = NodeInviter(app.state.linkstate_factory.state(), channel)
        threading.Thread(target=inviter.serve, name="node-inviter", daemon=True).start()
        yield

    extensions.get_lifespan_contexts = lambda: (inviting,)
    extensions.get_middleware = lambda: (
        Middleware(BodyLimit),
        Middleware(RefusalLog, caller=guard.caller),
        Middleware(ControlLock, secret=secret),
    )
    flower_superlink()


def _is_refusal(record: logging.LogRecord) -> bool:
    """Of Flower's lines about requests, several a second, only those about refused ones are kept."""
    status = record.args[-1] if isinstance(record.args, tuple) and record.args else 0
    return isinstance(status, int) and status >= 400


def _guarded(limits: ConnectionLimits) -> PortGuard:
    """Put a guard in front of the SuperLink, which then listens on loopback; it runs in a thread of its own."""
    host, port = (sys.argv.index(flag) + 1 for flag in ("--host", "--port"))
    address, inside = f"{sys.argv[host]}:{sys.argv[port]}", processes.free_port()
    sys.argv[host], sys.argv[port] = "127.0.0.1", str(inside)
    guard = PortGuard(limits=limits)
    threading.Thread(target=_guard_for_ever, args=(guard, address, inside), name="port-guard", daemon=True).start()
    return guard


def _guard_for_ever(guard: PortGuard, address: str, inside: int) -> None:
    """Listen as soon as the SuperLink does, so that who comes too early is refused at once and tries again."""

    async def listen() -> None:
        while not await _answers(inside):
            await asyncio.sleep(_LOOK_SECONDS)
        guard.open(address, inside)

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(listen())
    except OSError as error:
        log.error("%s cannot be listened on: %s", address, error)
        os._exit(1)
    loop.run_forever()


async def _answers(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


if __name__ == "__main__":
    main()
