"""The page's server: on loopback, behind the guard, opened in the browser.

Every user of the machine can read the command line of a browser. So it is given a file that only its owner can read;
the file leads on to the page, with a token that works once.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pgfl.errors import ConfigError
from pgfl.studio.guard import Guard

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

    from pgfl.signals import ended_like_ctrl_c
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
        with ended_like_ctrl_c(), tempfile.TemporaryDirectory(prefix="pgfl-studio-") as folder:
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
    """A listening socket on loopback: at the port that is asked for, else at the usual one, else at any."""
    for chosen in (port,) if port is not None else (PORT, 0):
        try:
            return socket.create_server((HOST, chosen))
        except OSError as error:
            problem = error.strerror or str(error)
    raise ConfigError(f"The studio cannot listen on {HOST}:{port}: {problem}; give another --port, or leave it out.")
