"""A device's durable account of its releases: one SQLite file a client.

A release is written down, with the very bytes, and committed before it can be sent. A retry resends those bytes and
spends nothing. Past the budget there is no release.

The file beneath (`ledger_file.py`) makes a commit durable and keeps out a second process. Safety does not hang on the
latter: each release is one immediate transaction that reads the account afresh.

**Tampering.** Every row carries a digest over its own content and the digest before it, starting from the client and
its policy; the head keeps the count. `verify` recomputes all of it, and that the sums and variances follow from the
policy. Who rewrites the whole chain is not found by this; what a site remembers (`check_known`) then is.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from pgfl.errors import BudgetSpent, LedgerError, PrivacyError
from pgfl.privacy import accounting, ledger_file
from pgfl.privacy.ledger_file import plain_errors
from pgfl.privacy.mechanism import sigma_for

FORMAT = 1
_TABLES = """
CREATE TABLE about (format INTEGER NOT NULL, client TEXT NOT NULL, policy TEXT NOT NULL, digest BLOB NOT NULL);
CREATE TABLE head (releases INTEGER NOT NULL, accepted INTEGER NOT NULL, kept INTEGER NOT NULL, digest BLOB NOT NULL);
CREATE TABLE releases (
    number INTEGER PRIMARY KEY, round_key TEXT NOT NULL UNIQUE, phi REAL NOT NULL, rho REAL NOT NULL,
    sensitivity REAL NOT NULL, sigma REAL NOT NULL, payload BLOB NOT NULL, digest BLOB NOT NULL, accepted BLOB
);
CREATE TABLE state (key TEXT PRIMARY KEY, value BLOB NOT NULL, digest BLOB NOT NULL);
"""
_COLUMNS = "number, round_key, phi, rho, sensitivity, sigma, payload, digest, accepted"
_SUM_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Policy:
    """What a client has agreed to, for good: its noise schedule by release, its budget, and its data bounds.

    At least one of `max_releases` and `rho_budget` caps what can be spent.
    """

    phi0: float
    zeta: float
    delta: float
    max_releases: int | None = None
    rho_budget: float | None = None
    bounds: Mapping[str, float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        accounting.check_schedule(self.phi0, self.zeta, self.max_releases or 1)
        accounting.check_delta(self.delta)
        if self.max_releases is None and self.rho_budget is None:
            raise PrivacyError("A ledger needs a budget: set max_releases or a target epsilon.")
        if self.max_releases is not None and self.max_releases < 1:
            raise PrivacyError(f"max_releases must be at least 1, not {self.max_releases}.")
        if self.rho_budget is not None and not (self.rho_budget > 0.0 and math.isfinite(self.rho_budget)):
            raise PrivacyError(f"The budget in rho must be a positive number, not {self.rho_budget!r}.")
        object.__setattr__(self, "bounds", dict(self.bounds))

    @classmethod
    def from_target(
        cls,
        *,
        epsilon: float,
        delta: float,
        max_releases: int,
        zeta: float,
        bounds: Mapping[str, float | None] | None = None,
    ) -> Self:
        """The least noise with which `max_releases` releases stay within (ε, δ)."""
        found = accounting.schedule_for_target(epsilon=epsilon, delta=delta, zeta=zeta, max_releases=max_releases)
        budget = float(found["rho"]) * (1.0 + accounting.MARGIN)
        return cls(float(found["phi0"]), zeta, delta, max_releases, budget, dict(bounds or {}))

    def text(self) -> str:
        """One spelling of the policy, as it is stored and hashed."""
        return json.dumps(asdict(self), sort_keys=True)


@dataclass(frozen=True)
class Next:
    """The release about to be made. What `state` is given is stored in the same transaction as the release."""

    number: int
    round_key: str
    phi: float
    rho: float
    sensitivity: float
    sigma: float
    state: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Release:
    """A release that is written down: number n, its φ, the ρ spent up to and with it, its noise, and the bytes."""

    number: int
    round_key: str
    phi: float
    rho: float
    sensitivity: float
    sigma: float
    payload: bytes
    digest: bytes
    accepted: bool
    repeated: bool = False

    def described(self) -> dict[str, Any]:
        """The row for people and JSON, without the bytes themselves."""
        shown = ("number", "round_key", "phi", "rho", "sensitivity", "sigma", "accepted")
        figures = {name: getattr(self, name) for name in shown}
        return {**figures, "bytes": len(self.payload), "digest": self.digest.hex()}


class _Head(NamedTuple):
    """How many releases there are, how many are accepted, how much state is kept, and the last release's digest."""

    releases: int
    accepted: int
    kept: int
    digest: bytes


class Ledger:
    """One client's account. Open it with `create`, `open` or, to look only, `read`; it is a context manager."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: sqlite3.Connection | None) -> None:
        self.path = path
        self._connection = connection
        self._lock = lock
        self._one_thread = threading.RLock()
        self._closed = False
        with plain_errors(path):
            _check_format(connection, path)
            self.client, policy, self._root = self._about()
        self.policy = Policy(**json.loads(policy))

    @classmethod
    def create(cls, path: str | Path, client: str, policy: Policy) -> Self:
        """A new ledger. An existing file is never replaced."""
        return cls._to_write(path, client, policy, may_exist=False, may_be_new=True)

    @classmethod
    def open(cls, path: str | Path, client: str, policy: Policy | None = None) -> Self:
        """The ledger of `client`, for writing, verified; refused if it is another's, damaged, newer or in use.

        With a `policy`, one made under another is refused too: a promise is not changed under way.
        """
        _check_present(Path(path).resolve())
        return cls._to_write(path, client, policy, may_exist=True, may_be_new=False)

    @classmethod
    def open_or_create(cls, path: str | Path, client: str, policy: Policy) -> Self:
        """The client's ledger, new the first time; a creation that was killed half-way counts as none."""
        return cls._to_write(path, client, policy, may_exist=True, may_be_new=True)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Any client's ledger, to look at; works while its client has it open."""
        path = Path(path).resolve()
        _check_present(path)
        connection = ledger_file.open_for_reading(path)
        try:
            if ledger_file.is_blank(connection, path):
                raise _absent(path)
            return cls(path, connection, None)
        except BaseException:
            connection.close()
            raise

    @classmethod
    def _to_write(
        cls, path: str | Path, client: str, policy: Policy | None, *, may_exist: bool, may_be_new: bool
    ) -> Self:
        path = Path(path).resolve()
        lock, connection = ledger_file.take_lock(path), None
        try:
            connection = ledger_file.open_for_writing(path)
            blank = ledger_file.is_blank(connection, path)
            if blank and (policy is None or not may_be_new):
                raise _absent(path)
            with plain_errors(path):
                if blank and policy is not None:
                    _begin(connection, str(client), policy)
                ledger = cls(path, connection, lock)
                if not blank and not may_exist:
                    raise LedgerError(f"{path} exists already; open it, or choose another place for a new ledger.")
                ledger._check_own(client, policy)
                ledger_file.start_log(connection, path)
            return ledger
        except BaseException:
            if connection is not None:
                ledger_file.put_to_rest(connection, path)
            lock.close()
            raise

    def _check_own(self, client: str, policy: Policy | None) -> None:
        if self.client != client:
            raise LedgerError(f"{self.path} is the ledger of client {self.client}, not of {client}; open your own.")
        if policy is not None and policy.text() != self.policy.text():
            raise LedgerError(f"{self.path} was made under another policy; keep that one, or begin a new ledger.")
        self.verify()

    def close(self) -> None:
        """Let go of the file and of the lock."""
        if self._lock is None:
            self._connection.close()
        elif not self._closed:
            self._closed = True
            ledger_file.put_to_rest(self._connection, self.path)
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The account -----------------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many releases were made."""
        return self._head().releases

    @property
    def accepted(self) -> int:
        """How many of them a server has confirmed."""
        return self._head().accepted

    @property
    def rho(self) -> float:
        """What they spent, in zCDP."""
        last = self._row("number = ?", self.count)
        return 0.0 if last is None else last.rho

    def epsilon(self, delta: float | None = None) -> float:
        """What they spent as ε, exactly, at δ (the policy's, unless told)."""
        return float(accounting.exact_epsilon(self.rho, self.policy.delta if delta is None else delta))

    def rows(self) -> list[Release]:
        """Every release, in order."""
        return [_release(row) for row in self._raw_rows()]

    def find(self, round_key: str) -> Release | None:
        """The release made for a round, if there is one."""
        return self._row("round_key = ?", round_key)

    def state(self, key: str) -> Any:
        """What was stored under a key with a release or by `keep`."""
        with plain_errors(self.path):
            row = self._connection.execute("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def summary(self) -> dict[str, Any]:
        """The account for people and JSON."""
        rho, delta = self.rho, self.policy.delta
        return {
            "client": self.client,
            "policy": asdict(self.policy),
            "releases": self.count,
            "accepted": self.accepted,
            "rho": rho,
            "delta": delta,
            "epsilon": float(accounting.exact_epsilon(rho, delta)),
            "epsilon_paper": float(accounting.paper_epsilon(rho, delta)),
            "spent": self._refusal(self.count + 1, rho) is not None,
        }

    # Writing ---------------------------------------------------------------------------------------------------------

    def release(
        self, round_key: str, sensitivity: float, make: Callable[[Next], bytes], accepted: Iterable[str] = ()
    ) -> Release:
        """Release once for `round_key`: `make` is told φ and σ and returns the bytes, which are stored, then returned.

        Asked again for the same round it returns the stored bytes and spends nothing, whatever else is passed. Past
        the budget it raises `BudgetSpent`, before `make` is called and draws anything. `accepted` are earlier rounds
        that the server is now known to have used; noting them with the release costs no second commit.
        """
        round_key, sensitivity = str(round_key), float(sensitivity)
        with self._transaction():
            for earlier in accepted:
                self._mark_accepted(earlier)
            known = self._row("round_key = ?", round_key)
            if known is not None:
                return Release(**{**vars(known), "repeated": True})
            upcoming = self._next(round_key, sensitivity)
            payload = make(upcoming)
            if not isinstance(payload, bytes) or not payload:
                raise PrivacyError("A release must be bytes, and not empty; nothing was released.")
            before = self._head()
            number, phi, rho, sigma = upcoming.number, upcoming.phi, upcoming.rho, upcoming.sigma
            if before.releases + 1 != number:
                raise LedgerError(f"{self.path} changed while a release was made; nothing was released.")
            digest = _digest(before.digest, number, round_key, phi, rho, sensitivity, sigma, payload)
            self._connection.execute(
                f"INSERT INTO releases ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)",
                (number, round_key, phi, rho, sensitivity, sigma, payload, digest),
            )
            self._connection.execute("UPDATE head SET releases = ?, digest = ?", (number, digest))
            self._write_state(upcoming.state)
        return Release(number, round_key, phi, rho, sensitivity, sigma, payload, digest, accepted=False)

    def confirm(self, round_key: str, state: Mapping[str, bytes] | None = None) -> None:
        """Note that the server used this round's release, and store `state` with that. Twice is as good as once."""
        with self._transaction():
            self._mark_accepted(round_key)
            self._write_state(state or {})

    def keep(self, state: Mapping[str, bytes]) -> None:
        """Store state of the client's own that needs no release."""
        with self._transaction():
            self._write_state(state)

    # Checking --------------------------------------------------------------------------------------------------------

    def verify(self) -> None:
        """Recompute every row; raise `LedgerError` at the first that is damaged, altered, missing or out of order.

        All of it is read as of one moment, so this works on a ledger whose client is releasing.
        """
        with self._one_thread, plain_errors(self.path), ledger_file.snapshot(self._connection):
            ledger_file.check_log(self._connection, self.path)
            problem = self._connection.execute("PRAGMA integrity_check").fetchone()[0]
            if problem != "ok":
                raise LedgerError(
                    f"{self.path} is damaged ({problem.splitlines()[-1]}); put back a whole copy that is not older."
                )
            client, policy, root = self._about()
            if (client, policy, root) != (self.client, self.policy.text(), self._root):
                raise LedgerError(f"{self.path} was replaced while it was open; do not release from it.")
            digest, rho, number, accepted = root, 0.0, 0, 0
            for row in self._raw_rows():
                number += 1
                if row[0] != number:
                    raise LedgerError(f"{self.path}: release {number} is missing; do not release from it.")
                digest, marks = _digest(digest, *row[:7]), (None, _digest(row[7], "accepted"))
                if digest != row[7] or row[8] not in marks or not self._follows(_release(row), rho):
                    raise LedgerError(f"{self.path}: release {number} was altered; do not release from it.")
                rho = row[3]
                accepted += row[8] is not None
            kept = self._connection.execute("SELECT key, value, digest FROM state").fetchall()
            for key, value, seal in kept:
                if seal != _digest(root, key, value):
                    raise LedgerError(f"{self.path}: the stored {key} was altered; do not release from it.")
            if _Head(number, accepted, len(kept), digest) != self._head():
                raise LedgerError(
                    f"{self.path}: the last releases or other entries are missing; do not release from it."
                )

    def check_known(self, releases: int) -> None:
        """Refuse a ledger put back from a backup: one with fewer releases than a site has received from it."""
        if releases > self.count:
            raise LedgerError(
                f"{self.path} has {self.count} releases but the site has received {releases}: it was put back from a "
                "backup and would spend again what is spent; find the newer file, or leave the federation."
            )

    def _follows(self, row: Release, before: float) -> bool:
        """Whether a row is what the policy makes of its number and the ρ before it: its φ, ρ and σ, within budget."""
        phi = float(accounting.phi(self.policy.phi0, self.policy.zeta, row.number))
        sigma = float(sigma_for(row.sensitivity, row.phi))
        return (
            math.isclose(row.phi, phi, rel_tol=_SUM_TOLERANCE)
            and row.rho == before + row.phi
            and math.isclose(row.sigma, sigma, rel_tol=_SUM_TOLERANCE)
            and (self.policy.max_releases is None or row.number <= self.policy.max_releases)
            and (self.policy.rho_budget is None or row.rho <= self.policy.rho_budget)
        )

    # Inside ----------------------------------------------------------------------------------------------------------

    def _next(self, round_key: str, sensitivity: float) -> Next:
        if not (sensitivity > 0.0 and math.isfinite(sensitivity)):
            raise PrivacyError(f"The sensitivity of a release must be a positive number, not {sensitivity!r}.")
        number, before = self.count + 1, self.rho
        if refusal := self._refusal(number, before):
            raise BudgetSpent(f"Client {self.client} has spent its privacy budget ({refusal}); it takes no more part.")
        accounting.check_schedule(self.policy.phi0, self.policy.zeta, number)
        phi = float(accounting.phi(self.policy.phi0, self.policy.zeta, number))
        return Next(number, round_key, phi, before + phi, sensitivity, float(sigma_for(sensitivity, phi)))

    def _refusal(self, number: int, spent: float) -> str | None:
        """Why release `number` cannot be paid for, or None."""
        most, budget = self.policy.max_releases, self.policy.rho_budget
        if most is not None and number > most:
            return f"all {most} releases are made"
        phi = float(accounting.phi(self.policy.phi0, self.policy.zeta, number))
        if budget is not None and not spent + phi <= budget:
            return f"rho is {spent:.6g} of {budget:.6g} and the next release costs {phi:.6g}"
        return None

    def _about(self) -> tuple[str, str, bytes]:
        """The client, its policy, and the digest over both that the chain starts from."""
        rows = self._connection.execute("SELECT format, client, policy, digest FROM about").fetchall()
        if len(rows) != 1 or _digest(b"pgfl ledger", *rows[0][:3]) != rows[0][3]:
            raise LedgerError(f"{self.path}: the client's name or policy was altered; do not release from it.")
        _, client, policy, root = rows[0]
        return client, policy, root

    def _head(self) -> _Head:
        with plain_errors(self.path):
            rows = self._connection.execute("SELECT releases, accepted, kept, digest FROM head").fetchall()
        if len(rows) != 1:
            raise LedgerError(f"{self.path}: the count of releases was altered; do not release from it.")
        return _Head(*rows[0])

    def _raw_rows(self) -> list[tuple[Any, ...]]:
        with plain_errors(self.path):
            return self._connection.execute(f"SELECT {_COLUMNS} FROM releases ORDER BY number").fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """One writing transaction at a time, with errors as sentences."""
        if self._lock is None:
            raise LedgerError(f"{self.path} was opened to be read; open it as its client to release.")
        with self._one_thread, plain_errors(self.path), ledger_file.writing(self._connection):
            yield

    def _mark_accepted(self, round_key: str) -> None:
        known = self._row("round_key = ?", round_key)
        if known is None:
            raise LedgerError(f"{self.path} has no release for round {round_key}, so none can have been accepted.")
        if not known.accepted:
            mark = _digest(known.digest, "accepted")
            self._connection.execute("UPDATE releases SET accepted = ? WHERE number = ?", (mark, known.number))
            self._connection.execute("UPDATE head SET accepted = accepted + 1")

    def _write_state(self, state: Mapping[str, bytes]) -> None:
        for key, value in state.items():
            if not isinstance(value, bytes):
                raise LedgerError(f"State to keep must be bytes, and {key} is not; nothing was written.")
            sealed = (key, value, _digest(self._root, key, value))
            self._connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?, ?)", sealed)
        if state:
            self._connection.execute("UPDATE head SET kept = (SELECT count(*) FROM state)")

    def _row(self, where: str, value: object) -> Release | None:
        with plain_errors(self.path):
            row = self._connection.execute(f"SELECT {_COLUMNS} FROM releases WHERE {where}", (value,)).fetchone()
        return None if row is None else _release(row)


def _release(row: tuple[Any, ...]) -> Release:
    number, round_key, phi, rho, sensitivity, sigma, payload, digest, accepted = row
    return Release(number, round_key, phi, rho, sensitivity, sigma, payload, digest, accepted is not None)


def _digest(*parts: object) -> bytes:
    """SHA-256 over parts with their types and lengths, so that no two lists of parts look alike."""
    seal = hashlib.sha256()
    for part in parts:
        raw = part if isinstance(part, bytes) else (part.hex() if isinstance(part, float) else str(part)).encode()
        seal.update(f"{type(part).__name__}:{len(raw)}:".encode())
        seal.update(raw)
    return seal.digest()


def _begin(connection: sqlite3.Connection, client: str, policy: Policy) -> None:
    text = policy.text()
    root = _digest(b"pgfl ledger", FORMAT, client, text)
    with ledger_file.writing(connection):
        for statement in _TABLES.split(";\n"):
            if statement.strip():
                connection.execute(statement)
        connection.execute("INSERT INTO about VALUES (?, ?, ?, ?)", (FORMAT, client, text, root))
        connection.execute("INSERT INTO head VALUES (0, 0, 0, ?)", (root,))
        connection.execute(f"PRAGMA application_id = {ledger_file.APPLICATION}")


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application != ledger_file.APPLICATION or not {"about", "head", "releases", "state"} <= tables:
        raise LedgerError(f"{path} is a database, but not a pgfl ledger; name the right file.")
    for (form,) in connection.execute("SELECT format FROM about"):
        if form != FORMAT:
            raise LedgerError(f"{path} has ledger format {form}; this pgfl knows {FORMAT}, so use a newer one.")


def _check_present(path: Path) -> None:
    if not path.is_file() or not path.stat().st_size:
        raise _absent(path)


def _absent(path: Path) -> LedgerError:
    return LedgerError(f"There is no ledger at {path}; create it, or check the name.")
