"""Flower's SuperLink with its control interface locked: `python -m pgfl.deploy.superlink SECRET_FILE [flags]`.

A SuperLink serves nodes and operators on one port, and without an account system anyone who reaches that port may
register nodes and start runs. Here every request to the control interface must carry the secret of this site's own
process; nodes are not affected.
"""

from __future__ import annotations

import hmac
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

CONTROL_HEADER = "x-pgfl-control"
_CONTROL_PATHS = ("/v1/control", "/docs", "/openapi")

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


def main() -> None:
    """Run the SuperLink behind the lock."""
    from flwr.superlink import extensions
    from flwr.superlink.cli.flower_superlink import flower_superlink
    from starlette.middleware import Middleware

    secret = Path(sys.argv.pop(1)).read_text().strip()
    extensions.get_middleware = lambda: (Middleware(ControlLock, secret=secret),)
    flower_superlink()


if __name__ == "__main__":
    main()
