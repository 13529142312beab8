"""What a site must not forget, in one SQLite file whose rows are sealed by digests."""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from pgfl.arrays import AnyArray, Floats
from pgfl.errors import NetworkError
from pgfl.files import configure, connect, snapshot, writing
from pgfl.network.processes import uptime
from pgfl.network.protocol.identity import SITE_CERTIFICATE, ClientKey, Neighbour, SiteCertificate, check_name


@dataclass(frozen=True)
class Admitted:
    """One admitted client; `releases` is the largest release number it reported, `accepted` its last round."""

    name: str
    key: ClientKey
    cluster: str
    releases: int
    accepted: int | None


@dataclass(frozen=True)
class Membership:
    """The members as of one moment, and the number of the operator's last change of them."""

    change: int
    clients: Mapping[str, Admitted]
    neighbours: Mapping[str, Neighbour]
    rollbacks: tuple[int, ...] = ()
    invited: frozenset[tuple[str, str]] = frozenset()  # kind and name of open invitations


Kind = Literal["client", "site"]
CODE_BYTES = 16  # which nobody guesses


@dataclass(frozen=True)
class Invited:
    """Who may come with a one-time code, until when (seconds since 1970)."""

    kind: Kind
    name: str
    cluster: str  # of a client
    expires: float


class InvitationRefused(Exception):
    """A code is good no more; the text goes to whoever has it, and to the log."""


class UnknownCode(InvitationRefused):
    """A code was never handed out: it is a guess, or from another site."""


def digest_of_code(code: str) -> str:
    """What is kept of a one-time code: it has 128 random bits, so that no salt and no slow hash are needed."""
    return hashlib.sha256(b"pgfl invitation v1\0" + code.encode()).hexdigest()


def neighbour_of(name: str, pem: bytes, address: str) -> Neighbour:
    """From the row of the store; `pem` is its certificate and perhaps the next one."""
    end = b"-----END CERTIFICATE-----\n"
    first, _, second = pem.partition(end)
    coming = SiteCertificate(name, second) if second else None
    return Neighbour(SiteCertificate(name, first + end), address, coming)


State = Mapping[str, AnyArray]


def pack(arrays: State) -> bytes:
    """Arrays as bytes."""
    packed = io.BytesIO()
    np.savez(packed, **dict(arrays))  # type: ignore[arg-type]
    return packed.getvalue()


def unpack(packed: bytes) -> dict[str, AnyArray]:
    """The arrays again."""
    with np.load(io.BytesIO(packed), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


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


STORE, LOCK = "site.db", "site.lock"  # in a site's folder
_MADE = ".made"  # beside it
_COMPLETED = "completed"  # the fact when, by the uptime of the machine, the last round was
_KEPT_ROUNDS = 1000
_TABLES = (
    "facts", "clients", "progress", "expelled", "names", "neighbours", "state", "past", "rounds", "noised",
    "invitations",
)  # fmt: skip
_SAW_RELEASE = "UPDATE clients SET releases = ? WHERE name = ? AND releases < ?"
_PAST_EVERY, _PAST_KEPT = 10, 20  # models of every tenth round can be taken back, of the last twenty such rounds
_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL, seal TEXT);
CREATE TABLE IF NOT EXISTS clients (
    name TEXT PRIMARY KEY, key TEXT NOT NULL UNIQUE, cluster TEXT NOT NULL, admitted REAL NOT NULL,
    releases INTEGER NOT NULL DEFAULT 0, accepted INTEGER, seal TEXT);
CREATE TABLE IF NOT EXISTS progress (only INTEGER PRIMARY KEY CHECK (only = 1), clients TEXT NOT NULL, seal TEXT);
CREATE TABLE IF NOT EXISTS expelled (key TEXT PRIMARY KEY, releases INTEGER NOT NULL, seal TEXT);
CREATE TABLE IF NOT EXISTS names (name TEXT PRIMARY KEY, key TEXT NOT NULL, seal TEXT);
CREATE TABLE IF NOT EXISTS neighbours (name TEXT PRIMARY KEY, pem BLOB NOT NULL, address TEXT NOT NULL, seal TEXT);
CREATE TABLE IF NOT EXISTS state (
    only INTEGER PRIMARY KEY CHECK (only = 1), round INTEGER NOT NULL, arrays BLOB NOT NULL, seal TEXT);
CREATE TABLE IF NOT EXISTS past (round INTEGER PRIMARY KEY, arrays BLOB NOT NULL, seal TEXT);
CREATE TABLE IF NOT EXISTS rounds (
    round INTEGER PRIMARY KEY, finished REAL NOT NULL, figures TEXT NOT NULL, seal TEXT);
CREATE TABLE IF NOT EXISTS noised (
    round INTEGER NOT NULL, pair TEXT NOT NULL, contributors INTEGER NOT NULL, sum BLOB NOT NULL, seal TEXT,
    PRIMARY KEY (round, pair));
CREATE TABLE IF NOT EXISTS invitations (
    code TEXT PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, cluster TEXT NOT NULL, expires REAL NOT NULL,
    state TEXT NOT NULL, seal TEXT);
"""


class SiteStore:
    """The file. Methods are short transactions; other processes (`pgfl site admit`) may write in between."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_name(path.name + _MADE)
        if not path.exists() and made.exists():
            raise NetworkError(
                f"The site's record {path} is missing, and with it what each client has released; put it back from a "
                f"backup, or start in a new home folder. If this site never served a client, remove {made}."
            )
        with self._plain_errors():
            if not path.exists():
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            made.touch(0o600)  # after the file: a start that is killed here leaves both or none
            self._db = connect(path)
            configure(self._db, journal_mode="WAL", synchronous="FULL")
            self._db.executescript(_SCHEMA)
            self._seals = Seals(self._db, _TABLES)
            if not self._seals.present:
                with writing(self._db):
                    self._seals.add()
                    self._db.execute("INSERT OR IGNORE INTO names (name, key) SELECT name, key FROM clients")
            self._check()
        os.chmod(path, 0o600)

    def _check(self) -> None:
        """Refuse a file in which anything has changed that was not written here."""
        damaged = self._seals.damaged()
        if damaged is not None:
            self._db.close()
            raise NetworkError(
                f"The site's record {self.path} is damaged ({damaged}); put it back from a backup, or start in a new "
                "home folder."
            )

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

    def membership(self) -> Membership:
        """Everyone who is admitted and linked, read in one piece."""
        with self._plain_errors(), snapshot(self._db):
            invited = frozenset((each.kind, each.name) for each in self.invitations())
            return Membership(self._changes(), self.clients(), self.neighbours(), self.rollbacks(), invited)

    def admit(self, name: str, key: ClientKey, cluster: str) -> int:
        """Admit a client, or move it to another cluster; returns the number of the change.

        A key cannot have two names at once. A name is bound to its key for ever, also after an expulsion, because what
        the site remembers of a client goes by its name.
        """
        check_name("client", name)
        with self._change() as number:
            self._admit(name, key, cluster)
        return number

    def _admit(self, name: str, key: ClientKey, cluster: str) -> None:
        """In the transaction that is open."""
        bound = self._db.execute("SELECT key FROM names WHERE name = ?", (name,)).fetchone()
        if bound is not None and bound[0] != key.line:
            raise NetworkError(
                f"The name {name} belongs to another key, also after an expulsion; give this one a new name with "
                "--name."
            )
        other = self._db.execute("SELECT name FROM clients WHERE key = ? AND name != ?", (key.line, name)).fetchone()
        if other is not None:
            raise NetworkError(f"This key is admitted as {other[0]} already; a client has one name.")
        self._db.execute("INSERT OR IGNORE INTO names (name, key) VALUES (?, ?)", (name, key.line))
        self._db.execute(
            "INSERT INTO clients (name, key, cluster, admitted, releases) "
            "VALUES (?, ?, ?, ?, coalesce((SELECT releases FROM expelled WHERE key = ?), 0)) "
            "ON CONFLICT (name) DO UPDATE SET cluster = excluded.cluster",
            (name, key.line, cluster, time.time(), key.line),
        )

    def expel(self, name: str) -> int:
        """A client takes no part any more; what it released is remembered, should it come back."""
        with self._change() as number:
            self._keep_releases(name)
            if not self._db.execute("DELETE FROM clients WHERE name = ?", (name,)).rowcount:
                raise NetworkError(f"No client {name} is admitted here.")
        return number

    def clients(self) -> dict[str, Admitted]:
        """Everyone admitted, by name, sorted."""
        with self._plain_errors():
            rows = self._db.execute(
                "SELECT name, key, cluster, releases, accepted FROM clients ORDER BY name"
            ).fetchall()
            progress = self._progress()
        known = {}
        for name, key, cluster, releases, accepted in rows:
            released, round = progress.get(name, (0, accepted))
            known[name] = Admitted(name, ClientKey(key), cluster, max(releases, released), round)
        return known

    def _progress(self) -> dict[str, tuple[int, int | None]]:
        """As of the last round, by client: the largest number of a release, and the last accepted round.

        It is one row for all clients: to write so many rows in every round would take longer than all else.
        """
        row = self._db.execute("SELECT clients FROM progress").fetchone()
        return {} if row is None else {name: tuple(both) for name, both in json.loads(row[0]).items()}

    def _keep_releases(self, name: str) -> None:
        """Remember how many releases were made under a client's present key, should it come back."""
        known = self.clients().get(name)
        if known is not None:
            self._db.execute(
                "INSERT OR REPLACE INTO expelled (key, releases) VALUES (?, ?)", (known.key.line, known.releases)
            )

    def record_release(self, client: str, number: int) -> None:
        """The same for one client."""
        self.record_releases({client: number})

    def record_releases(self, numbers: Mapping[str, int]) -> None:
        """Remember that clients have made so many releases, whatever becomes of them.

        A kill does not undo this. It costs no sync: the round's commit, which follows, is one.
        """
        with self._transaction(synced=False):
            self._db.executemany(_SAW_RELEASE, [(number, client, number) for client, number in numbers.items()])

    def client_of(self, key: ClientKey) -> str | None:
        """The name of the admitted client with this key."""
        with self._plain_errors():
            row = self._db.execute("SELECT name FROM clients WHERE key = ?", (key.line,)).fetchone()
        return None if row is None else str(row[0])

    def link(self, neighbour: SiteCertificate, address: str) -> int:
        """Trust this certificate as a neighbour; linking again changes its address."""
        with self._change() as number:
            self._link(neighbour, address)
        return number

    def _link(self, neighbour: SiteCertificate, address: str) -> None:
        """In the transaction that is open."""
        self._db.execute(
            "INSERT INTO neighbours (name, pem, address) VALUES (?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET pem = excluded.pem, address = excluded.address",
            (neighbour.name, neighbour.pem, address),
        )

    def trust_next(self, coming: SiteCertificate) -> int:
        """Trust the certificate that a neighbour will switch to, beside the present one."""
        with self._change() as number:
            known = self.neighbours().get(coming.name)
            if known is None:
                raise NetworkError(f"No site {coming.name} is linked here; link it first.")
            both = known.certificate.pem + coming.pem
            self._db.execute("UPDATE neighbours SET pem = ? WHERE name = ?", (both, coming.name))
        return number

    def switched(self, neighbour: str) -> None:
        """A neighbour has shown its next certificate; the one before is trusted no more."""
        with self._change():
            known = self.neighbours().get(neighbour)
            if known is not None and known.coming is not None:
                self._db.execute("UPDATE neighbours SET pem = ? WHERE name = ?", (known.coming.pem, neighbour))

    def rekey(self, old: ClientKey, new: ClientKey) -> tuple[str, int]:
        """A client has a new key from now on; returns its name and the number of the change."""
        with self._change() as number:
            name = self.client_of(old)
            if name is None:
                raise NetworkError(f"No client with the key {old.fingerprint[:16]}… is admitted here.")
            if self._db.execute("SELECT name FROM names WHERE key = ? AND name != ?", (new.line, name)).fetchone():
                raise NetworkError("The new key belongs to another client already; its owner must make another one.")
            self._keep_releases(name)
            self._db.execute("UPDATE clients SET key = ? WHERE name = ?", (new.line, name))
            self._db.execute("UPDATE names SET key = ? WHERE name = ?", (new.line, name))
        return name, number

    def unlink(self, name: str) -> int:
        """Trust this neighbour no more."""
        with self._change() as number:
            if not self._db.execute("DELETE FROM neighbours WHERE name = ?", (name,)).rowcount:
                raise NetworkError(f"No site {name} is linked here.")
        return number

    # invitations ------------------------------------------------------------------------------------------------------

    def invite(self, kind: Kind, name: str, cluster: str, expires: float) -> str:
        """Return the one-time code of a new invitation; one that was open for this name is revoked."""
        check_name(kind, name)
        with self._change():
            taken = (
                "SELECT 1 FROM names WHERE name = ?" if kind == "client" else "SELECT 1 FROM neighbours WHERE name = ?"
            )
            if self._db.execute(taken, (name,)).fetchone():
                raise NetworkError(
                    f"There is a {kind} {name} already; choose another name, or go on without invitation."
                )
            self._revoke(name)
            code = secrets.token_hex(CODE_BYTES)
            self._db.execute(
                "INSERT INTO invitations (code, kind, name, cluster, expires, state) VALUES (?, ?, ?, ?, ?, 'open')",
                (digest_of_code(code), kind, name, cluster, expires),
            )
        return code

    def revoke(self, name: str) -> int:
        """Nobody can use this name's open invitation any more; returns the number of the change."""
        with self._change() as number:
            if not self._revoke(name):
                raise NetworkError(
                    f"There is no open invitation for {name}. If it was used: `pgfl site expel` removes a client, "
                    "`pgfl site unlink` a site."
                )
        return number

    def revoke_all(self) -> None:
        """None of the codes that were ever handed out is good any more."""
        with self._change():
            self._db.execute("UPDATE invitations SET state = 'revoked' WHERE state = 'open'")

    def _revoke(self, name: str) -> int:
        return self._db.execute(
            "UPDATE invitations SET state = 'revoked' WHERE name = ? AND state = 'open'", (name,)
        ).rowcount

    def invitations(self) -> list[Invited]:
        """The open invitations, by name, sorted."""
        with self._plain_errors():
            rows = self._db.execute(
                "SELECT kind, name, cluster, expires FROM invitations WHERE state = 'open' AND expires > ? "
                "ORDER BY name",
                (time.time(),),
            ).fetchall()
        return [Invited(*row) for row in rows]

    def redeem_client(self, code: str, key: ClientKey) -> str:
        """Admit the client that has this code, with this key, and nobody else; return its name."""
        with self._change():
            found = self._redeem("client", code)
            if self._db.execute("SELECT 1 FROM names WHERE name = ?", (found.name,)).fetchone():
                raise InvitationRefused(f"the name {found.name} was given to another key meanwhile")
            self._admit(found.name, key, found.cluster)
        return found.name

    def redeem_site(self, code: str, neighbour: SiteCertificate, address: str) -> None:
        """Link the site that has this code, under the name that was invited."""
        with self._change():
            found = self._redeem("site", code)
            if found.name != neighbour.name:
                raise InvitationRefused(f"its invitation is for {found.name}, and it calls itself {neighbour.name}")
            if found.name in self.neighbours():
                raise InvitationRefused(f"a site {found.name} is linked already")
            self._link(neighbour, address)

    def _redeem(self, kind: Kind, code: str) -> Invited:
        """Use a code up, in the transaction that is open."""
        found, state = self._invitation(kind, code)
        if state != "open":
            raise InvitationRefused(f"its invitation was {state} before")
        if found.expires <= time.time():
            raise InvitationRefused("its invitation has expired; ask the site's operator for a new one")
        self._db.execute("UPDATE invitations SET state = 'used' WHERE code = ?", (digest_of_code(code),))
        return found

    def _invitation(self, kind: Kind, code: str) -> tuple[Invited, str]:
        row = self._db.execute(
            "SELECT kind, name, cluster, expires, state FROM invitations WHERE code = ?", (digest_of_code(code),)
        ).fetchone()
        if row is None or row[0] != kind:
            raise UnknownCode("its invitation is not one of this site")
        return Invited(*row[:4]), str(row[4])

    def acknowledge(self, change: int, round: int) -> None:
        """The running site has taken over all changes up to this one, from this round on."""
        self.remember("acknowledged", json.dumps([change, round]))

    def acknowledged(self) -> tuple[int, int]:
        """The last change that a running site took over, and from which round on."""
        change, round = json.loads(self.fact("acknowledged") or "[0, 0]")
        return int(change), int(round)

    def neighbours(self) -> dict[str, Neighbour]:
        """All links, by name, sorted."""
        with self._plain_errors():
            rows = self._db.execute("SELECT name, pem, address FROM neighbours ORDER BY name").fetchall()
        return {name: neighbour_of(name, bytes(pem), address) for name, pem, address in rows}

    # rounds -----------------------------------------------------------------------------------------------------------

    def bind_training(self, digest: str, clusters: Iterable[str] = ()) -> None:
        """A store belongs to one training configuration; another one would continue what it cannot continue."""
        known = self.fact("training")
        if known is not None and known != digest and self.last_round() > 0:
            raise NetworkError(
                f"{self.path} holds round {self.last_round()} of another training configuration; restore [training] or "
                "start in a new home folder."
            )
        self.remember("training", digest)
        self.remember("clusters", json.dumps(sorted(clusters)))

    def clusters(self) -> list[str]:
        """The clusters of the training that was served last; empty before the first start."""
        return list(json.loads(self.fact("clusters") or "[]"))

    def save_round(
        self,
        round: int,
        state: State,
        accepted: Iterable[str],
        figures: Mapping[str, Any],
        releases: Mapping[str, int] | None = None,
    ) -> None:
        """A completed round, and the `releases` that were seen meanwhile, all of it or nothing."""
        with self._transaction():
            self._save_state(round, state)
            self._save_progress(round, accepted, releases or {})
            if round % _PAST_EVERY == 0:
                models = {name: array for name, array in state.items() if name.startswith("state.") or name == "about"}
                self._db.execute("INSERT OR REPLACE INTO past (round, arrays) VALUES (?, ?)", (round, pack(models)))
                self._db.execute(
                    "DELETE FROM past WHERE round NOT IN (SELECT round FROM past ORDER BY round DESC LIMIT ?)",
                    (_PAST_KEPT,),
                )
            self._db.execute(
                "INSERT OR REPLACE INTO rounds (round, finished, figures) VALUES (?, ?, ?)",
                (round, time.time(), json.dumps(dict(figures))),
            )
            self._db.execute(
                "INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)", (_COMPLETED, json.dumps(uptime()))
            )
            self._db.execute(
                "DELETE FROM rounds WHERE round <= (SELECT round FROM rounds ORDER BY round DESC LIMIT 1 OFFSET ?)",
                (_KEPT_ROUNDS,),
            )
            self._db.execute("DELETE FROM noised WHERE round <= ?", (round,))

    def keep_noised(self, round: int, pair: str, noised: Floats, contributors: int) -> None:
        """A noised sum of the round under way, durable before it is used; there is one for each pair."""
        with self._transaction():
            self._db.execute(
                "INSERT INTO noised (round, pair, contributors, sum) VALUES (?, ?, ?, ?)",
                (round, pair, contributors, np.ascontiguousarray(noised, dtype="<f8").tobytes()),
            )

    def noised(self, round: int, pair: str) -> tuple[Floats, int] | None:
        """The noised sum that was kept for a pair in a round that is not completed, and its number of contributors."""
        with self._plain_errors():
            row = self._db.execute(
                "SELECT sum, contributors FROM noised WHERE round = ? AND pair = ?", (round, pair)
            ).fetchone()
        return None if row is None else (np.frombuffer(row[0], dtype="<f8").astype(np.float64), int(row[1]))

    def save_rollback(self, round: int, state: State) -> None:
        """The state after a rollback; the training goes on, so nobody knows its end any more."""
        with self._transaction():
            self._save_state(round, state)
            self._db.execute("INSERT OR REPLACE INTO facts (name, value) VALUES ('informed', '[]')")

    def _save_state(self, round: int, state: State) -> None:
        self._db.execute(
            "INSERT INTO state (only, round, arrays) VALUES (1, ?, ?) "
            "ON CONFLICT (only) DO UPDATE SET round = excluded.round, arrays = excluded.arrays",
            (round, pack(state)),
        )

    def _save_progress(self, round: int, accepted: Iterable[str], seen: Mapping[str, int]) -> None:
        progress = self._progress()
        for client, number in seen.items():
            releases, last = progress.get(client, (0, None))
            progress[client] = max(releases, number), last
        progress |= {client: (progress.get(client, (0, None))[0], round) for client in accepted}
        self._db.execute("INSERT OR REPLACE INTO progress (only, clients) VALUES (1, ?)", (json.dumps(progress),))

    def roll_back(self, round: int) -> tuple[int, int]:
        """Ask for the models of a round, or the newest that are kept before it; returns the change and their round."""
        with self._change() as number:
            if not 0 <= round < self.last_round():
                raise NetworkError(f"The last completed round is {self.last_round()}; give an earlier one.")
            kept = [row[0] for row in self._db.execute("SELECT round FROM past ORDER BY round")]
            found = max((past for past in [0, *kept] if past <= round), default=0)
            if not found and round:
                raise NetworkError(
                    f"No models up to round {round} are kept, only of {', '.join(map(str, kept)) or 'none'}; give one "
                    "of these, or 0 to begin anew."
                )
            wanted = json.dumps([*self.rollbacks(), round])
            self._db.execute("INSERT OR REPLACE INTO facts (name, value) VALUES ('rollbacks', ?)", (wanted,))
        return number, found

    def rollbacks(self) -> tuple[int, ...]:
        """The rounds that the operator has rolled back to, in order."""
        return tuple(json.loads(self.fact("rollbacks") or "[]"))

    def past(self, round: int) -> dict[str, AnyArray] | None:
        """The models of a round, or the newest that are kept before it; None for those of the start."""
        with self._plain_errors():
            row = self._db.execute(
                "SELECT arrays FROM past WHERE round <= ? ORDER BY round DESC LIMIT 1", (round,)
            ).fetchone()
        return None if row is None else unpack(row[0])

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
        return int(row[0]), unpack(row[1])

    def history(self, most: int = _KEPT_ROUNDS) -> list[dict[str, Any]]:
        """The figures of the last rounds, oldest first."""
        with self._plain_errors():
            rows = self._db.execute(
                "SELECT round, finished, figures FROM rounds ORDER BY round DESC LIMIT ?", (most,)
            ).fetchall()
        return [{"round": row[0], "finished": row[1], **json.loads(row[2])} for row in reversed(rows)]

    def idle(self) -> float:
        """Seconds since the last completed round; a clock that jumps does not change them while the machine is up."""
        started, then = json.loads(self.fact(_COMPLETED) or '["", 0.0]')
        which, now = uptime()
        if which and which == started:
            return float(now - then)
        return max(0.0, time.time() - row["finished"]) if (row := next(iter(self.history(1)), None)) else 0.0

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
            self._db.execute("INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)", (name, value))

    def fact(self, name: str) -> str | None:
        """A fact, if it is known."""
        with self._plain_errors():
            row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def _changes(self) -> int:
        return int(self.fact("changes") or 0)

    @contextmanager
    def _change(self) -> Iterator[int]:
        """A transaction that changes the members; yields its number, by which the running site acknowledges it."""
        with self._transaction():
            number = self._changes() + 1
            yield number
            self._db.execute("INSERT OR REPLACE INTO facts (name, value) VALUES ('changes', ?)", (str(number),))

    @contextmanager
    def _transaction(self, *, synced: bool = True) -> Iterator[None]:
        with self._plain_errors(), writing(self._db, synced=synced):
            yield

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except (sqlite3.Error, UnicodeError) as error:
            raise NetworkError(
                f"The site's record {self.path} cannot be read or written ({error}); what was saved before is intact."
            ) from error
