"""The file of a ledger: created in one step, one sync per release, one writer, and errors as plain sentences.

**Creation.** A new ledger is built in a draft beside its place, synced, and linked into it. A creation that is killed
leaves no ledger, and an empty file is not one.

**Durability.** While its client has it open, a ledger is written through SQLite's write-ahead log with
`synchronous=FULL`: a commit syncs the log once, and has happened when it returns. What may be lost in a power cut, the
bytes of a release that is charged already, is committed without a sync of its own. At rest the log is folded in.

**A log that is lost.** A copy of the file without its log would undercount. So its header (`user_version`) marks
that there is a log. The mark is written to the file itself before anything can be released, and removed by the log's
own last commit. A file that is marked but has no log is refused.

**One writer.** A lock on a file beside the ledger is held as long as it is open for writing; the kernel drops it when
the process ends, however it ends. Readers open the file read-only, so that none of them ever folds the log in.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from pgfl.errors import LedgerError
from pgfl.files import Mode, configure, connect, synchronise, writing

APPLICATION = 0x7067666C  # "pgfl", at a fixed place in the file's header
_HAS_LOG = 1
_DRAFT = ".new"


def create(path: Path, fill: Callable[[sqlite3.Connection], None]) -> None:
    """Create a database atomically, filled by `fill`; never replace an existing file."""
    draft = _draft(path)
    with plain_errors(path), closing(_connect(draft, "rw")) as connection:
        configure(connection, journal_mode="MEMORY", synchronous="FULL")
        with writing(connection):
            fill(connection)
    with plain_errors(path):
        os.link(draft, path)
        draft.unlink()
        synchronise(path.parent)


def place(path: Path, content: bytes) -> None:
    """Write a small file atomically and durably."""
    draft = _draft(path)
    with plain_errors(path):
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        synchronise(path.parent)


def _draft(path: Path) -> Path:
    """Create an empty private file, to be renamed when it is complete."""
    draft = sidecar_path(path, _DRAFT)
    with plain_errors(path):
        draft.unlink(missing_ok=True)
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    return draft


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Open the file, in rollback mode or with the log of a crash; close it with `checkpoint_and_close`."""
    sidecar_path(path, _DRAFT).unlink(missing_ok=True)  # a hard link to the file, if its creation was killed at the end
    connection = _connect(path, "rw")
    try:
        with plain_errors(path):
            configure(connection, synchronous="FULL", fullfsync="ON", checkpoint_fullfsync="ON")
    except BaseException:
        connection.close()
        raise
    return connection


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open the file read-only, whether or not its client has it open."""
    if sidecar_path(path, "-journal").exists():  # a creation or an opening was cut off, and a reader may not mend it
        with plain_errors(path), closing(_connect(path, "rw")) as mending:
            mending.execute("SELECT count(*) FROM sqlite_master")
    return _connect(path, "ro")


def check_log(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that is marked as having a log if the log is missing."""
    if _marked_as_logging(connection) and not log_size(path):
        raise LedgerError(
            f"{path} lacks its log, {path.name}-wal, so it may have forgotten releases; put the log back beside it, or "
            "leave the federation."
        )


def log_size(path: Path) -> int:
    """Return the size of the log in bytes, 0 without one."""
    log = sidecar_path(path, "-wal")
    return log.stat().st_size if log.exists() else 0


def start_log(connection: sqlite3.Connection, path: Path) -> None:
    """Switch to a write-ahead log, and mark the file as having one."""
    if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
        raise LedgerError(f"{path} cannot keep a log there; put it on a local disk.")
    connection.execute(f"PRAGMA user_version = {_HAS_LOG}")
    busy, logged, folded_in = connection.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
    if busy or logged != folded_in:
        raise LedgerError(f"{path} is being read by another process; try again when it is done.")


def checkpoint_and_close(connection: sqlite3.Connection, path: Path) -> None:
    """Checkpoint the log into the file and close it; if that is impossible now, keep the log for the next opening."""
    try:
        if _marked_as_logging(connection):
            connection.execute("PRAGMA user_version = 0")
            with suppress(sqlite3.Error):  # a reader is there
                connection.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error:  # no room, perhaps: the last to close must be one who leaves the log alone
        with suppress(LedgerError, sqlite3.Error), closing(_connect(path, "ro")) as guard:
            guard.execute("SELECT count(*) FROM sqlite_master")
            connection.close()
    finally:
        connection.close()


def take_lock(path: Path) -> sqlite3.Connection:
    """Hold an exclusive lock on a sidecar file until the returned connection closes."""
    try:
        lock = connect(sidecar_path(path, ".lock"), patience=0.0)
        configure(lock, journal_mode="MEMORY")
        lock.execute("BEGIN EXCLUSIVE")
        with suppress(OSError):
            sidecar_path(path, ".lock").chmod(0o600)
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise LedgerError(f"{path} is in use by another process; one client has one process.") from None
        raise LedgerError(f"{path} cannot be opened for writing ({error}); check its folder.") from None
    return lock


@contextmanager
def plain_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the system into one sentence."""
    try:
        yield
    except FileExistsError:
        raise LedgerError(f"{path} exists already; open it, or choose another place for a new ledger.") from None
    except OSError as error:
        raise LedgerError(f"{path} cannot be made ({error.strerror}); check its folder and disk.") from None
    except (sqlite3.Error, UnicodeError) as error:  # also SQLite's own messages quote names that are no text any more
        name = getattr(error, "sqlite_errorname", "")
        if name == "SQLITE_FULL" or name.startswith("SQLITE_IOERR"):
            message = f"{path} could not be written ({error}); nothing was sent; make room on the disk, then try again."
        elif name.startswith("SQLITE_BUSY"):
            message = f"{path} is in use by another process; try again when it is done."
        elif name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")):
            message = f"{path} cannot be opened or written ({error}); check that it exists and who may write it."
        else:
            message = f"{path} is damaged or no pgfl ledger ({error}); put back a whole copy that is not older."
        raise LedgerError(message) from None


def _connect(path: Path, mode: Mode) -> sqlite3.Connection:
    with plain_errors(path):
        return connect(path, mode)


def _marked_as_logging(connection: sqlite3.Connection) -> bool:
    mark, owner = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "application_id"))
    return bool(mark) and owner == APPLICATION


def sidecar_path(path: Path, ending: str) -> Path:
    """Return the path of a file that belongs to a ledger, such as its log."""
    return path.with_name(path.name + ending)
