"""The page's server: on loopback, behind a guard that lets in this machine's own browser only."""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import tempfile
import threading
import time
import webbrowser
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from pgfl.errors import ConfigError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

TOKEN = "token"
NAMES = ("127.0.0.1", "localhost")
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' data:; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""The browser itself refuses to load anything that is not from this page."""
HEADERS = {
    "content-security-policy": POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
WRONG_HOST = "This page answers at 127.0.0.1 and localhost only."
WRONG_ORIGIN = "Another page asked for this; open the studio itself."
NO_TOKEN = "The token is missing, wrong or used; open the address or the file that `pgfl studio` printed."


def new_secret() -> str:
    """Return 192 random bits, as text for an address or a cookie."""
    return secrets.token_urlsafe(24)


@dataclass
class Guard:
    """An ASGI application that passes on what it should, HTTP and websockets alike.

    The Host is checked against DNS rebinding, the Origin against other pages, and a token against other programs and
    users of this machine. A token works once: it is exchanged for a cookie, so that neither a shared address nor one
    that somebody saw lets anybody in.
    """

    app: App
    port: int
    on_entered: Callable[[], None] = lambda: None
    _session: str = field(default_factory=new_secret, repr=False)
    _tokens: set[str] = field(default_factory=set, repr=False)

    def new_token(self) -> str:
        """Return a token that works once."""
        token = new_secret()
        self._tokens.add(token)
        return token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if headers.get("host") not in self._hosts:
            return await _refuse(scope, receive, send, WRONG_HOST)
        origin = headers.get("origin")
        if origin is not None and origin != f"http://{headers['host']}":
            return await _refuse(scope, receive, send, WRONG_ORIGIN)
        if _equal(_cookie(headers.get("cookie", ""), self._cookie_name), self._session):
            return await self.app(scope, receive, _with_headers(send, HEADERS.items()))
        given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        token = next((value for name, value in given if name == TOKEN), "")
        if scope["type"] != "http" or scope["method"] != "GET" or not self._takes(token):
            return await _refuse(scope, receive, send, NO_TOKEN)
        rest = urlencode([pair for pair in given if pair[0] != TOKEN])
        path = "/" + quote(str(scope["path"]).lstrip("/"))
        return await _redirect(send, path + (f"?{rest}" if rest else ""), self._cookie())

    def _takes(self, given: str) -> bool:
        """Use a token up."""
        for token in tuple(self._tokens):  # another thread may add one
            if _equal(given, token):
                self._tokens.remove(token)
                self.on_entered()
                return True
        return False

    @property
    def _hosts(self) -> tuple[str, ...]:
        return tuple(f"{name}:{self.port}" for name in NAMES)

    @property
    def _cookie_name(self) -> str:
        return f"pgfl-studio-{self.port}"  # cookies do not know ports

    def _cookie(self) -> str:
        return f"{self._cookie_name}={self._session}; Path=/; HttpOnly; SameSite=Lax"


def _equal(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode(), secret.encode())


def _cookie(header: str, name: str) -> str:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return found.value if found else ""


def _with_headers(send: Send, headers: Iterable[tuple[str, str]]) -> Send:
    added = [(name.encode(), value.encode()) for name, value in headers]

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *added]
        await send(message)

    return sending


async def _redirect(send: Send, where: str, cookie: str) -> None:
    headers = [("location", where), ("set-cookie", cookie), ("cache-control", "no-store"), *HEADERS.items()]
    encoded = [(name.encode(), value.encode()) for name, value in headers]
    await send({"type": "http.response.start", "status": 303, "headers": encoded})
    await send({"type": "http.response.body", "body": b""})


async def _refuse(scope: Scope, receive: Receive, send: Send, why: str) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": why})
        return
    headers = [("content-type", "text/plain; charset=utf-8"), *HEADERS.items()]
    encoded = [(name.encode(), value.encode()) for name, value in headers]
    await send({"type": "http.response.start", "status": 403, "headers": encoded})
    await send({"type": "http.response.body", "body": f"{why}\n".encode()})


HOST = "127.0.0.1"
PORT = 8377
"""Always the same where it is free, so that addresses of views can be shared and kept."""


@dataclass(frozen=True)
class Wanted:
    """How the studio is to be started."""

    results: Path
    port: int | None = None
    open_browser: bool = True


Say = Callable[[str, Path], None]
"""Is told an address that works once, and a file that leads to the page again and again."""


def serve(wanted: Wanted, say: Say) -> None:
    """Serve until Ctrl-C."""
    import uvicorn
    from fastapi import FastAPI
    from nicegui import ui

    from pgfl.signals import sigterm_as_keyboard_interrupt
    from pgfl.studio.views import Studio, register

    listening = listen(wanted.port)
    port = listening.getsockname()[1]
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    guard = Guard(app, port)
    studio = Studio(wanted.results)
    register(studio)
    ui.run_with(app, title="pgfl studio", tailwind=False, show_welcome_message=False, reconnect_timeout=20.0)
    config = uvicorn.Config(
        guard, log_level="error", proxy_headers=False, server_header=False, timeout_graceful_shutdown=1,
        ws_max_size=64 * 2**20,
    )  # fmt: skip
    server = uvicorn.Server(config)
    try:
        with sigterm_as_keyboard_interrupt(), tempfile.TemporaryDirectory(prefix="pgfl-studio-") as folder:
            entrance = Path(folder) / "open.html"
            guard.on_entered = lambda: write_entrance(entrance, guard)
            write_entrance(entrance, guard)
            announcing = (server, guard, entrance, wanted.open_browser, say)
            threading.Thread(target=_announce, args=announcing, daemon=True).start()
            server.run(sockets=[listening])  # uvicorn hands the signal on when it has ended
    except KeyboardInterrupt:
        pass
    finally:
        studio.close()


def address_of(guard: Guard) -> str:
    """Return an address of the page that works once."""
    return f"http://{HOST}:{guard.port}/?token={guard.new_token()}"


def write_entrance(path: Path, guard: Guard) -> None:
    """Write a page, readable by its owner only, that leads to the studio with a new token."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={address_of(guard)}">\n')


def _announce(server: object, guard: Guard, entrance: Path, open_browser: bool, say: Say) -> None:
    while not getattr(server, "started", False):
        time.sleep(0.02)
    say(address_of(guard), entrance)
    if open_browser:
        webbrowser.open(entrance.as_uri())


def listen(port: int | None) -> socket.socket:
    """Return a listening socket on loopback: at the port that is asked for, else at the usual one, else at any."""
    for chosen in (port,) if port is not None else (PORT, 0):
        try:
            return socket.create_server((HOST, chosen))
        except OSError as error:
            problem = error.strerror or str(error)
    raise ConfigError(f"The studio cannot listen on {HOST}:{port}: {problem}; give another --port, or leave it out.")
