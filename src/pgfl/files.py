"""Files that are whole or absent, and SQLite files: how they are opened, written and synchronised."""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal

from pgfl.errors import ResultError, is_full_disk

TEMPORARY = ".part"


def user_cache() -> Path:
    """Return the folder of what can be computed again, where the user's system keeps such files."""
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
        return Path(local) / "pgfl" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "pgfl"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pgfl"


def write_atomically(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Put what `write` writes at `path`; a kill or a full disk at any moment leaves the old file as it was."""
    target = Path(path)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}{TEMPORARY}")
    try:
        with open(draft, "xb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, target)
        synchronise(target.parent)
    except OSError as error:
        raise ResultError(_why_not_written(target, error)) from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Put UTF-8 text at `path`, whole or not at all."""
    write_atomically(path, lambda stream: stream.write(text.encode("utf-8")))


def make_folder(path: str | os.PathLike[str]) -> Path:
    """The folder, made with its parents where it is missing."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ResultError(f"{folder} is a file; choose a folder for the result.") from None
    except OSError as error:
        raise ResultError(_why_not_written(folder, error)) from error
    return folder


def remove_drafts(folder: Path) -> None:
    """Remove what a kill in the middle of a write left behind."""
    for draft in folder.glob(f".*{TEMPORARY}"):
        draft.unlink(missing_ok=True)


def synchronise(folder: Path) -> None:
    """Make the rename itself durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _why_not_written(path: Path, error: OSError) -> str:
    if is_full_disk(error):
        return f"The disk is full, so {path} was not written and what was there before is kept; free some space."
    return f"{path} cannot be written: {error.strerror or error}; choose another folder with --out."


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
