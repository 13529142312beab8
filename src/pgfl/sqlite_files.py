"""SQLite files: how one is opened, and how a transaction begins and ends."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

Mode = Literal["ro", "rw", "rwc"]
PATIENCE_SECONDS = 10.0


def connect(path: Path, mode: Mode = "rwc", patience: float = PATIENCE_SECONDS) -> sqlite3.Connection:
    """A connection whose transactions are begun by hand, from any thread; `patience` is for the locks of others."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        timeout=patience,
        check_same_thread=False,
    )


def configure(connection: sqlite3.Connection, **pragmas: str) -> None:
    """Set pragmas, in this order."""
    for name, value in pragmas.items():
        connection.execute(f"PRAGMA {name} = {value}")


@contextmanager
def writing(connection: sqlite3.Connection, *, synced: bool = True) -> Iterator[None]:
    """All of it or nothing, for a connection with `synchronous = FULL`.

    What was written is durable on leaving; if not `synced`, a power cut may still undo it, but a kill does not.
    """
    if not synced:
        configure(connection, synchronous="NORMAL")
    try:
        with _transaction(connection, "IMMEDIATE"):
            yield
    finally:
        if not synced:
            configure(connection, synchronous="FULL")


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """What is read inside is as of one moment, whoever writes meanwhile."""
    with _transaction(connection, "DEFERRED"):
        yield


@contextmanager
def _transaction(connection: sqlite3.Connection, kind: str) -> Iterator[None]:
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
