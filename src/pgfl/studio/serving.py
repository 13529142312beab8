"""The page's server: on loopback, behind the guard, opened in the browser."""

from __future__ import annotations

import secrets
import socket
import threading
import time
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pgfl.errors import ConfigError

HOST = "127.0.0.1"
PORT = 8377
"""Always the same where it is free, so that addresses of views can be shared and kept."""


@dataclass(frozen=True)
class Wanted:
    """How the studio is to be started."""

    results: Path
    port: int | None = None
    open_browser: bool = True


def serve(wanted: Wanted, say: Callable[[str], None]) -> None:
    """Serve until Ctrl-C; `say` is told the address."""
    import uvicorn
    from fastapi import FastAPI
    from nicegui import ui

    from pgfl.deploy.ending import ended_like_ctrl_c
    from pgfl.studio.guard import Guard
    from pgfl.studio.views import Studio, register

    listening = listen(wanted.port)
    port, token = listening.getsockname()[1], secrets.token_urlsafe(24)
    address = f"http://{HOST}:{port}/?token={token}"
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    studio = Studio(wanted.results)
    register(studio)
    ui.run_with(app, title="pgfl studio", tailwind=False, show_welcome_message=False, reconnect_timeout=20.0)
    config = uvicorn.Config(
        Guard(app, token, port), log_level="error", proxy_headers=False, server_header=False,
        timeout_graceful_shutdown=1, ws_max_size=64 * 2**20,
    )  # fmt: skip
    server = uvicorn.Server(config)
    threading.Thread(target=_announce, args=(server, address, wanted.open_browser, say), daemon=True).start()
    try:
        with ended_like_ctrl_c():  # uvicorn hands the signal on when it has ended
            server.run(sockets=[listening])
    except KeyboardInterrupt:
        pass
    finally:
        studio.close()


def _announce(server: object, address: str, open_browser: bool, say: Callable[[str], None]) -> None:
    while not getattr(server, "started", False):
        time.sleep(0.02)
    say(address)
    if open_browser:
        webbrowser.open(address)


def listen(port: int | None) -> socket.socket:
    """A listening socket on loopback: at the port that is asked for, else at the usual one, else at any."""
    for chosen in (port,) if port is not None else (PORT, 0):
        try:
            return socket.create_server((HOST, chosen))
        except OSError as error:
            problem = error.strerror or str(error)
    raise ConfigError(f"The studio cannot listen on {HOST}:{port}: {problem}; give another --port, or leave it out.")
