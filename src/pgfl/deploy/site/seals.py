"""Digests of rows in a SQLite file, so that a bit that changes on the disk is noticed.

SQLite checks the structure of a file but not the values in it. Here every row carries a digest of its values, which
triggers of the writing connection keep up to date.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence

_COLUMN = "seal"
_SEALED = 1  # the file's user_version


class Seals:
    """The seals of some tables, kept for as long as the connection is open."""

    def __init__(self, connection: sqlite3.Connection, tables: Sequence[str]) -> None:
        self._db, self._tables = connection, tables
        connection.create_function("digest_of", -1, _digest, deterministic=True)
        if self.present:
            self._keep()

    @property
    def present(self) -> bool:
        """Whether the file has seals; an older one, or one without any version, has not."""
        return int(self._db.execute("PRAGMA user_version").fetchone()[0]) == _SEALED

    def add(self) -> None:
        """Seal what is there, in the transaction that is open."""
        for table in self._tables:
            if _COLUMN not in self._columns(table, everything=True):
                self._db.execute(f"ALTER TABLE {table} ADD COLUMN {_COLUMN} TEXT")
            self._db.execute(f"UPDATE {table} SET {_COLUMN} = digest_of({self._values(table)})")
        self._db.execute(f"PRAGMA user_version = {_SEALED}")
        self._keep()

    def damaged(self) -> str | None:
        """What has changed since it was written, in words; None if nothing has."""
        for (found,) in self._db.execute("PRAGMA integrity_check(1)"):
            if found != "ok":
                return str(found).splitlines()[0]
        for table in self._tables:
            wrong = f"SELECT count(*) FROM {table} WHERE {_COLUMN} IS NOT digest_of({self._values(table)})"
            if self._db.execute(wrong).fetchone()[0]:
                return f"a row of {table} is not as it was written"
        return None

    def _keep(self) -> None:
        for table in self._tables:
            for event in ("INSERT", "UPDATE"):
                self._db.execute(
                    f"CREATE TEMP TRIGGER IF NOT EXISTS seal_{table}_{event} AFTER {event} ON main.{table} BEGIN "
                    f"UPDATE {table} SET {_COLUMN} = digest_of({self._values(table)}) WHERE rowid = new.rowid; END"
                )

    def _values(self, table: str) -> str:
        return ", ".join([f"'{table}'", *self._columns(table)])

    def _columns(self, table: str, everything: bool = False) -> list[str]:
        names = [str(row[1]) for row in self._db.execute(f"PRAGMA table_info({table})")]
        return names if everything else [name for name in names if name != _COLUMN]


def _digest(*values: str | bytes | float | None) -> str:
    """Of a row's values with their types and lengths, so that no two rows share one by accident."""
    parts = []
    for value in values:
        content = value if isinstance(value, bytes) else repr(value).encode(errors="surrogatepass")
        parts += [type(value).__name__.encode(), b"%d:" % len(content), content]
    return hashlib.blake2b(b"".join(parts), digest_size=16).hexdigest()
