"""What a site must not forget, in one SQLite file: whom it admitted, whom it is linked to, and the last round.

A round is saved in one transaction: the models, who was accepted, the figures. After a crash at any point the file
holds the last completed round, whole. The largest number of a release that a client has reported is kept here too,
whether it was accepted, came late, or is of a client expelled since; a client whose ledger has fewer was restored from
a backup.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from pgfl.array_types import AnyArray
from pgfl.deploy.identity import SITE_CERTIFICATE, ClientKey, SiteCertificate, check_name
from pgfl.errors import NetworkError
from pgfl.sqlite_files import configure, connect, writing

State = Mapping[str, AnyArray]
STORE = "site.db"  # in a site's folder
_KEPT_ROUNDS = 1000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS clients (
    name TEXT PRIMARY KEY, key TEXT NOT NULL UNIQUE, cluster TEXT NOT NULL, admitted REAL NOT NULL,
    token TEXT, invited TEXT, releases INTEGER NOT NULL DEFAULT 0, accepted INTEGER);
CREATE TABLE IF NOT EXISTS expelled (key TEXT PRIMARY KEY, releases INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS neighbours (name TEXT PRIMARY KEY, pem BLOB NOT NULL, address TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS state (
    only INTEGER PRIMARY KEY CHECK (only = 1), round INTEGER NOT NULL, arrays BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS rounds (round INTEGER PRIMARY KEY, finished REAL NOT NULL, figures TEXT NOT NULL);
"""


@dataclass(frozen=True)
class Admitted:
    """One admitted client; `releases` is the largest release number it reported, `accepted` its last round."""

    name: str
    key: ClientKey
    cluster: str
    releases: int
    accepted: int | None


@dataclass(frozen=True)
class Neighbour:
    """One linked site and where its peer service is."""

    certificate: SiteCertificate
    address: str


class SiteStore:
    """The file. Methods are short transactions; other processes (`pgfl site admit`) may write in between."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._plain_errors():
            self._db = connect(path)
            configure(self._db, journal_mode="WAL", synchronous="FULL")
            self._db.executescript(_SCHEMA)
        os.chmod(path, 0o600)

    @classmethod
    def of_site(cls, home: Path) -> Self:
        """The store of the site whose folder this is."""
        if not (home / SITE_CERTIFICATE).exists():
            raise NetworkError(f"{home} is not a site's folder; `pgfl site init NAME` makes one.")
        return cls(home / STORE)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    # whom we know ---------------------------------------------------------------------------------------------------

    def admit(self, name: str, key: ClientKey, cluster: str) -> None:
        """Admit a client, or move it to another cluster; a name cannot change its key, a key cannot have two names."""
        check_name("client", name)
        with self._transaction():
            for known, line in self._db.execute(
                "SELECT name, key FROM clients WHERE name = ? OR key = ?", (name, key.line)
            ):
                if known != name:
                    raise NetworkError(f"This key is admitted as {known} already; a client has one name.")
                if line != key.line:
                    raise NetworkError(f"Client {name} is admitted with another key; `pgfl site expel {name}` first.")
            self._db.execute(
                "INSERT INTO clients (name, key, cluster, admitted, releases) "
                "VALUES (?, ?, ?, ?, coalesce((SELECT releases FROM expelled WHERE key = ?), 0)) "
                "ON CONFLICT (name) DO UPDATE SET cluster = excluded.cluster",
                (name, key.line, cluster, time.time(), key.line),
            )

    def expel(self, name: str) -> None:
        """A client takes no part any more; what it released is remembered, should it come back."""
        with self._transaction():
            self._db.execute(
                "INSERT OR REPLACE INTO expelled SELECT key, releases FROM clients WHERE name = ?", (name,)
            )
            if not self._db.execute("DELETE FROM clients WHERE name = ?", (name,)).rowcount:
                raise NetworkError(f"No client {name} is admitted here.")

    def clients(self) -> dict[str, Admitted]:
        """Everyone admitted, by name, sorted."""
        with self._plain_errors():
            rows = self._db.execute(
                "SELECT name, key, cluster, releases, accepted FROM clients ORDER BY name"
            ).fetchall()
        return {row[0]: Admitted(row[0], ClientKey(row[1]), *row[2:]) for row in rows}

    def saw_release(self, client: str, number: int) -> None:
        """Remember that a client has made so many releases, whatever becomes of them.

        A kill does not undo this. It costs no sync: the round's commit, which follows, is one.
        """
        with self._transaction(synced=False):
            self._db.execute("UPDATE clients SET releases = max(releases, ?) WHERE name = ?", (number, client))

    def link(self, neighbour: SiteCertificate, address: str) -> None:
        """Trust this certificate as a neighbour; linking again changes its address."""
        with self._transaction():
            self._db.execute(
                "INSERT INTO neighbours VALUES (?, ?, ?) "
                "ON CONFLICT (name) DO UPDATE SET pem = excluded.pem, address = excluded.address",
                (neighbour.name, neighbour.pem, address),
            )

    def neighbours(self) -> dict[str, Neighbour]:
        """All links, by name, sorted."""
        with self._plain_errors():
            rows = self._db.execute("SELECT name, pem, address FROM neighbours ORDER BY name").fetchall()
        return {name: Neighbour(SiteCertificate(name, bytes(pem)), address) for name, pem, address in rows}

    # tokens -----------------------------------------------------------------------------------------------------------

    def give_token(self, client: str, token: str) -> None:
        """The token of a new invitation; the one that was used last stays good until the new one is used."""
        with self._transaction():
            self._db.execute("UPDATE clients SET invited = ? WHERE name = ?", (_digest(token), client))

    def takes_token(self, client: str, token: str) -> bool:
        """Whether this token opens the client's stream, also again after a break; a new one replaces the old."""
        with self._plain_errors():
            row = self._db.execute("SELECT token, invited FROM clients WHERE name = ?", (client,)).fetchone()
        used, invited = row or (None, None)
        offered = _digest(token)
        if invited and hmac.compare_digest(invited, offered):
            with self._transaction():
                self._db.execute("UPDATE clients SET token = invited, invited = NULL WHERE name = ?", (client,))
            return True
        return bool(used and hmac.compare_digest(used, offered))

    # rounds -----------------------------------------------------------------------------------------------------------

    def bind_training(self, digest: str) -> None:
        """A store belongs to one training configuration; another one would continue what it cannot continue."""
        known = self.fact("training")
        if known is not None and known != digest and self.last_round() > 0:
            raise NetworkError(
                f"{self.path} holds round {self.last_round()} of another training configuration; restore [training] or "
                "start in a new home folder."
            )
        self.remember("training", digest)

    def save_round(self, round: int, state: State, accepted: Iterable[str], figures: Mapping[str, Any]) -> None:
        """A completed round, all of it or nothing."""
        packed = io.BytesIO()
        np.savez(packed, **dict(state))  # type: ignore[arg-type]
        with self._transaction():
            self._db.execute(
                "INSERT INTO state VALUES (1, ?, ?) ON CONFLICT (only) DO UPDATE SET round = excluded.round, "
                "arrays = excluded.arrays",
                (round, packed.getbuffer()),
            )
            self._db.executemany(
                "UPDATE clients SET accepted = ? WHERE name = ?", [(round, client) for client in accepted]
            )
            self._db.execute(
                "INSERT OR REPLACE INTO rounds VALUES (?, ?, ?)", (round, time.time(), json.dumps(dict(figures)))
            )
            self._db.execute("DELETE FROM rounds WHERE round <= ?", (round - _KEPT_ROUNDS,))

    def last_round(self) -> int:
        """The last completed round, 0 before the first."""
        with self._plain_errors():
            row = self._db.execute("SELECT round FROM state").fetchone()
        return int(row[0]) if row else 0

    def load_state(self) -> tuple[int, dict[str, AnyArray]] | None:
        """The last completed round and its arrays."""
        with self._plain_errors():
            row = self._db.execute("SELECT round, arrays FROM state").fetchone()
        if row is None:
            return None
        with np.load(io.BytesIO(row[1]), allow_pickle=False) as arrays:
            return int(row[0]), {name: arrays[name] for name in arrays.files}

    def history(self, most: int = _KEPT_ROUNDS) -> list[dict[str, Any]]:
        """The figures of the last rounds, oldest first."""
        with self._plain_errors():
            rows = self._db.execute(
                "SELECT round, finished, figures FROM rounds ORDER BY round DESC LIMIT ?", (most,)
            ).fetchall()
        return [{"round": row[0], "finished": row[1], **json.loads(row[2])} for row in reversed(rows)]

    def informed(self) -> set[str]:
        """The clients that know that the training is over."""
        return set(json.loads(self.fact("informed") or "[]"))

    def remember_informed(self, clients: Iterable[str]) -> None:
        """These clients know that the training is over."""
        self.remember("informed", json.dumps(sorted(clients)))

    # small facts ------------------------------------------------------------------------------------------------------

    def remember(self, name: str, value: str) -> None:
        """One small fact."""
        with self._transaction():
            self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def fact(self, name: str) -> str | None:
        """A fact, if it is known."""
        with self._plain_errors():
            row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    @contextmanager
    def _transaction(self, *, synced: bool = True) -> Iterator[None]:
        with self._plain_errors(), writing(self._db, synced=synced):
            yield

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except sqlite3.Error as error:
            raise NetworkError(
                f"The site's record {self.path} cannot be read or written ({error}); what was saved before is intact."
            ) from error


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
