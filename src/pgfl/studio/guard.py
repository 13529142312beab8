"""Who may talk to the page: this machine's own browser, with the token, from the page itself."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

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
