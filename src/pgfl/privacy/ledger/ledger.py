"""A device's durable account of its releases: one SQLite file per client, and an anchor beside it.

**Charge first.** `with ledger.reserve(…) as slot` commits the charge before its body runs. The bytes that the body puts
in the slot follow in a second commit; only then may they leave. A body that fails or is killed leaves the release
*void*: charged for good, without bytes, never made anew. A retry resends the stored bytes. Past the budget there is no
release.

**Without noise.** A release whose owner switched privacy off is written down as costing ρ = ∞. From then on the ledger
shows ε = ∞, and no private release is made from it.

**Whom to trust.** Every row says at which level of trust it was made. A contribution that a client entrusts to its site
leaves it clean (σ = 0) and costs what its schedule says, because the site adds the noise before anything goes on: the
ledger then states ε against everyone but the site. Where several share one noise, the row states its σ, which is at
least what the schedule asks for, and costs Δ²/(2σ²).

**Going back.** The file beneath (`file.py`) makes a commit durable and keeps out a second process. A ledger with
fewer releases than its anchor (`anchor.py`) is refused, and so is one without an anchor: a copy takes both. If
both are older copies, this is found by what a site remembers (`check_known`).

**Tampering.** Every row carries a digest over its own content and the digest before it, starting from the client and
its policy, and seals for its bytes and its acceptance; the head keeps the counts. `verify` recomputes all of it, and
that the sums and variances follow from the policy. Rewriting the whole chain is not detected by this.
"""

from __future__ import annotations

import json
import math
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

from pgfl.errors import BudgetSpent, LedgerError, PrivacyError
from pgfl.files import snapshot, writing
from pgfl.privacy import accounting
from pgfl.privacy.budget import sigma_for
from pgfl.privacy.ledger import anchor
from pgfl.privacy.ledger import file as ledger_file
from pgfl.privacy.ledger.anchor import Anchor
from pgfl.privacy.ledger.file import plain_errors
from pgfl.privacy.ledger.rows import (
    COLUMNS,
    NO_POLICY,
    TABLES,
    Head,
    Policy,
    Release,
    Slot,
    digest_of,
    release_of,
    sealed,
)
from pgfl.privacy.trust import Level, charge

FORMAT = 3
BUDGET_SPENT = "The privacy budget of this client is spent; it takes no more part."
_SUM_TOLERANCE = 1e-9


class Ledger:
    """One client's account. Open it with `create`, `open` or, to look only, `read`; it is a context manager."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: sqlite3.Connection | None) -> None:
        self.path = path
        self._connection = connection
        self._lock = lock
        self._one_thread = threading.RLock()
        self._closed = False
        noted = anchor.read(path)  # before the ledger: a client that is releasing writes its anchor last
        with plain_errors(path), snapshot(connection):
            _check_format(connection, path)
            ledger_file.check_log(connection, path)
            self.client, self._policy_text, self._root = self._about()
            self._check_anchor(noted)
        self.policy = None if self._policy_text == NO_POLICY else Policy(**json.loads(self._policy_text))

    @classmethod
    def create(cls, path: str | Path, client: str, policy: Policy | None) -> Self:
        """A new ledger, without a policy if privacy is off. An existing file is never replaced."""
        return cls._to_write(path, client, policy, may_exist=False, may_be_new=True)

    @classmethod
    def open(cls, path: str | Path, client: str, policy: Policy | None = None) -> Self:
        """The ledger of `client`, for writing, verified; refused if it is another's, damaged, older or in use.

        With a `policy`, one made under another or none is refused too: a promise is not changed under way.
        """
        return cls._to_write(path, client, policy, may_exist=True, may_be_new=False)

    @classmethod
    def open_or_create(cls, path: str | Path, client: str, policy: Policy | None) -> Self:
        """The client's ledger, new the first time; a creation that was killed half-way counts as none."""
        return cls._to_write(path, client, policy, may_exist=True, may_be_new=True)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Any client's ledger, to look at; works while its client has it open."""
        path = Path(path).resolve()
        _check_present(path)
        connection = ledger_file.open_for_reading(path)
        try:
            return cls(path, connection, None)
        except BaseException:
            connection.close()
            raise

    @classmethod
    def _to_write(
        cls, path: str | Path, client: str, policy: Policy | None, *, may_exist: bool, may_be_new: bool
    ) -> Self:
        path = Path(path).resolve()
        lock = ledger_file.take_lock(path)
        try:
            if may_be_new and not (may_exist and path.exists()):
                _begin(path, str(client), policy)
            with cls.read(path) as looked_at:  # a reader changes nothing, so a refusal takes nothing away
                looked_at._check_own(client, policy)
            return cls._started(path, lock)
        except BaseException:
            lock.close()
            raise

    @classmethod
    def _started(cls, path: Path, lock: sqlite3.Connection) -> Self:
        connection = ledger_file.open_for_writing(path)
        try:
            with plain_errors(path):
                ledger_file.start_log(connection, path)
            ledger = cls(path, connection, lock)
            ledger._advance_anchor()
            return ledger
        except BaseException:
            ledger_file.checkpoint_and_close(connection, path)
            raise

    def _check_own(self, client: str, policy: Policy | None) -> None:
        if self.client != client:
            raise LedgerError(f"{self.path} is the ledger of client {self.client}, not of {client}; open your own.")
        if policy is not None and self.policy is None:
            raise LedgerError(
                f"{self.path} was begun with privacy off and can promise nothing; leave privacy off, or begin a new "
                "ledger, which does not take back what was sent."
            )
        if policy is not None and policy.text() != self._policy_text:
            raise LedgerError(f"{self.path} was made under another policy; keep that one, or begin a new ledger.")
        self.verify()

    def close(self) -> None:
        """Close the file and release the lock."""
        if self._lock is None:
            self._connection.close()
        elif not self._closed:
            self._closed = True
            ledger_file.checkpoint_and_close(self._connection, self.path)
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The account -----------------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many releases were charged."""
        return self._head().releases

    @property
    def accepted(self) -> int:
        """How many of them a server has confirmed."""
        return self._head().accepted

    @property
    def rho(self) -> float:
        """What they spent, in zCDP; infinite for good once one left without noise."""
        return self._count_and_rho()[1]

    def epsilon(self, delta: float | None = None) -> float:
        """What they spent as ε, exactly, at δ (the policy's, unless given)."""
        return self._as_epsilon(accounting.exact_epsilon, delta)

    def _as_epsilon(self, convert: Callable[[float, float], Any], delta: float | None = None) -> float:
        rho = self.rho
        delta = self.policy.delta if delta is None and self.policy is not None else delta
        return rho if delta is None or math.isinf(rho) else float(convert(rho, delta))

    @property
    def spent(self) -> bool:
        """Whether no further private release can be paid for."""
        made, rho = self._count_and_rho()
        return not self._affords(made + 1, rho)

    @property
    def next_phi(self) -> float:
        """What the next private release may cost; `BudgetSpent` if none can be paid for."""
        made, rho = self._count_and_rho()
        if self.policy is None or not self._affords(made + 1, rho):
            raise BudgetSpent(BUDGET_SPENT)
        return float(self.policy.budget.phi(made + 1))

    def used_by_site(self, prefix: str) -> int:
        """How many entrusted contributions under keys with this prefix the site is known to have used."""
        return sum(row.entrusted and row.accepted and row.round_key.startswith(prefix) for row in self.rows())

    def rows(self) -> list[Release]:
        """Every release, in order."""
        return [release_of(row) for row in self._raw_rows()]

    def find(self, round_key: str) -> Release | None:
        """The release charged for a round, if there is one; it may be void."""
        return self._row("round_key = ?", round_key)

    def state(self, key: str) -> bytes | None:
        """What was stored under a key with the bytes of a release."""
        with plain_errors(self.path):
            row = self._connection.execute("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
        return None if row is None else bytes(row[0])

    def summary(self) -> dict[str, Any]:
        """The account for people and JSON."""
        head = self._head()
        return {
            "client": self.client,
            "policy": None if self.policy is None else asdict(self.policy),
            "releases": head.releases,
            "accepted": head.accepted,
            "void": head.releases - head.filled,
            "unprotected": self._count("phi > 1e308"),
            "entrusted": self._count("trust = 'site' AND sigma = 0"),
            "trust": "site" if self._count("trust = 'site'") else "local",
            "rho": self.rho,
            "delta": None if self.policy is None else self.policy.delta,
            "epsilon": self.epsilon(),
            "epsilon_paper": self._as_epsilon(accounting.paper_epsilon),
            "spent": self.spent,
        }

    # Writing ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def reserve(
        self,
        round_key: str,
        sensitivity: float,
        accepted: Iterable[str] = (),
        *,
        trust: Level = "local",
        sigma: float | None = None,
    ) -> Iterator[Slot]:
        """Charge the one release of `round_key`, then let it be made: the slot has its φ and σ and takes the bytes.

        The charge is committed before the body runs, and nothing gives it back: a body that raises, is killed or sets
        no payload leaves the release void. Past the budget `BudgetSpent` is raised and nothing is written. `accepted`
        are earlier rounds that the server is now known to have used; noting them here costs no commit of their own.

        With a `sigma` of noise that several share, the release costs Δ²/(2σ²); less noise than the schedule asks for is
        refused.
        """
        _check_sensitivity(sensitivity)
        slot = self._charge(round_key, lambda: self._next(str(round_key), float(sensitivity), trust, sigma), accepted)
        yield slot
        self._fill(slot)

    @contextmanager
    def reserve_entrusted(self, round_key: str, sensitivity: float, accepted: Iterable[str] = ()) -> Iterator[Slot]:
        """The same for a contribution that leaves clean, to a site that adds the noise; the schedule's φ is charged."""
        _check_sensitivity(sensitivity)

        def clean() -> Slot:
            return replace(self._next(str(round_key), float(sensitivity), "site"), sigma=0.0)

        slot = self._charge(round_key, clean, accepted)
        yield slot
        self._fill(slot)

    @contextmanager
    def reserve_unprotected(self, round_key: str, accepted: Iterable[str] = ()) -> Iterator[Slot]:
        """The same for a release without noise, where the owner switched privacy off: it costs ρ = ∞."""
        slot = self._charge(round_key, lambda: self._next_unprotected(str(round_key)), accepted)
        yield slot
        self._fill(slot)

    def _charge(self, round_key: str, next_slot: Callable[[], Slot], accepted: Iterable[str]) -> Slot:
        """Commit the charge of one release."""
        with self._one_thread:
            with self._transaction():
                if self.find(str(round_key)) is not None:
                    raise LedgerError(
                        f"{self.path} has a release for round {round_key} already; resend its bytes if it has any."
                    )
                slot = next_slot()
                for earlier in accepted:
                    self._mark_accepted(earlier)
                charged = (slot.number, slot.round_key, slot.phi, slot.rho, slot.sensitivity, slot.sigma, slot.trust)
                digest = digest_of(self._head().digest, *charged)
                self._connection.execute(
                    f"INSERT INTO releases ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL, NULL)",
                    (*charged, digest),
                )
                self._connection.execute("UPDATE head SET releases = ?, digest = ?", (slot.number, digest))
            self._advance_anchor()
        return slot

    def _fill(self, slot: Slot) -> None:
        """The bytes are not synced: a power cut may void a release that was sent, which costs nothing but its retry."""
        if slot.payload is None:
            return
        if not isinstance(slot.payload, bytes) or not slot.payload:
            raise PrivacyError("A release must be bytes, and not empty; it is charged, and void.")
        with self._transaction(synced=False):
            known = self._row("number = ?", slot.number)
            if known is None or known.round_key != slot.round_key or not known.void:
                raise LedgerError(f"{self.path} changed while a release was made; do not release from it.")
            seal = digest_of(known.digest, "payload", slot.payload)
            self._connection.execute(
                "UPDATE releases SET payload = ?, seal = ? WHERE number = ?", (slot.payload, seal, slot.number)
            )
            self._connection.execute("UPDATE head SET filled = filled + 1")
            self._write_state(slot.state)

    def confirm(self, round_key: str) -> None:
        """Note that the server used this round's release. Twice is as good as once."""
        with self._transaction():
            self._mark_accepted(round_key)

    # Checking --------------------------------------------------------------------------------------------------------

    def verify(self) -> None:
        """Recompute every row; raise `LedgerError` at the first that is damaged, altered, missing or out of order.

        All of it is read as of one moment, so this works on a ledger whose client is releasing.
        """
        with self._one_thread, plain_errors(self.path), snapshot(self._connection):
            ledger_file.check_log(self._connection, self.path)
            problem = self._connection.execute("PRAGMA integrity_check").fetchone()[0]
            if problem != "ok":
                raise LedgerError(
                    f"{self.path} is damaged ({problem.splitlines()[-1]}); put back a whole copy that is not older."
                )
            client, policy, root = self._about()
            if (client, policy, root) != (self.client, self._policy_text, self._root):
                raise LedgerError(f"{self.path} was replaced while it was open; do not release from it.")
            digest, rho, number, filled, accepted = root, 0.0, 0, 0, 0
            for row in self._raw_rows():
                number += 1
                if row[0] != number:
                    raise LedgerError(f"{self.path}: release {number} is missing; do not release from it.")
                digest = digest_of(digest, *row[:7])
                if digest != row[7] or not sealed(*row[7:]) or not self._follows(release_of(row), rho):
                    raise LedgerError(f"{self.path}: release {number} was altered; do not release from it.")
                rho = row[3]
                filled += row[8] is not None
                accepted += row[10] is not None
            kept = self._connection.execute("SELECT key, value, digest FROM state").fetchall()
            for key, value, seal in kept:
                if seal != digest_of(root, key, value):
                    raise LedgerError(f"{self.path}: the stored {key} was altered; do not release from it.")
            if Head(number, filled, accepted, len(kept), digest) != self._head():
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

    def _check_anchor(self, noted: Anchor | None) -> None:
        """Refuse a ledger that is older than its anchor, or not the one that its anchor was made for."""
        if noted is None:
            raise LedgerError(
                f"{self.path} lacks its anchor, {self.path.name}{anchor.ENDING}, so it may be an older copy; put the "
                "anchor back beside it, or leave the federation."
            )
        if noted.releases > self.count:
            raise LedgerError(
                f"{self.path} has {self.count} releases, but its anchor says {noted.releases}: the last are missing, "
                "as in an older copy or with a log cut short; put back the newest ledger and log, or leave the "
                "federation."
            )
        row = self._row("number = ?", noted.releases)
        if noted.root != self._root or noted.digest != (self._root if row is None else row.digest):
            raise LedgerError(
                f"{self.path} and its anchor are not of one ledger, or release {noted.releases} is missing or altered; "
                "put back ledger and anchor together, or leave the federation."
            )

    def _advance_anchor(self) -> None:
        head = self._head()
        anchor.advance(self.path, Anchor(self._root, head.releases, head.digest))

    def _follows(self, row: Release, before: float) -> bool:
        """Whether a row is what the policy makes of its number and the ρ before it: its φ, ρ and σ, within budget."""
        if row.unprotected:
            return (row.rho, row.sensitivity, row.sigma) == (math.inf, math.inf, 0.0)
        if self.policy is None or not self._affords(row.number, before):
            return False
        phi, sigma = float(self.policy.budget.phi(row.number)), float(sigma_for(row.sensitivity, row.phi))
        whole = math.isclose(row.phi, phi, rel_tol=_SUM_TOLERANCE)
        shared = row.trust in ("site", "masked") and row.phi <= phi * (1.0 + _SUM_TOLERANCE)
        noised = math.isclose(row.sigma, sigma, rel_tol=_SUM_TOLERANCE)
        return row.rho == before + row.phi and ((whole and row.entrusted) or ((whole or shared) and noised))

    # Inside ----------------------------------------------------------------------------------------------------------

    def _next(self, round_key: str, sensitivity: float, trust: Level, sigma: float | None = None) -> Slot:
        made, before = self._count_and_rho()
        number = made + 1
        if self.policy is None or not self._affords(number, before):
            raise BudgetSpent(BUDGET_SPENT)
        accounting.check_schedule(self.policy.phi0, self.policy.zeta, number)
        phi = float(self.policy.budget.phi(number))
        least = float(sigma_for(sensitivity, phi))
        if sigma is None:
            return Slot(number, round_key, phi, before + phi, sensitivity, least, trust)
        if not sigma >= least * (1.0 - _SUM_TOLERANCE):
            raise PrivacyError(f"Noise of {sigma:.6g} is less than the {least:.6g} of this client's schedule.")
        phi = float(charge(sensitivity, sigma))
        return Slot(number, round_key, phi, before + phi, sensitivity, float(sigma), trust)

    def _next_unprotected(self, round_key: str) -> Slot:
        return Slot(self.count + 1, round_key, phi=math.inf, rho=math.inf, sensitivity=math.inf, sigma=0.0)

    def _affords(self, number: int, spent: float) -> bool:
        """Whether private release `number` can be paid for."""
        if self.policy is None or math.isinf(spent):
            return False
        return bool(self.policy.budget.affordable(spent, number - 1))

    def _about(self) -> tuple[str, str, bytes]:
        """The client, its policy, and the digest over both that the chain starts from."""
        rows = self._connection.execute("SELECT format, client, policy, digest FROM about").fetchall()
        if len(rows) != 1 or digest_of(b"pgfl ledger", *rows[0][:3]) != rows[0][3]:
            raise LedgerError(f"{self.path}: the client's name or policy was altered; do not release from it.")
        _, client, policy, root = rows[0]
        return client, policy, root

    def _head(self) -> Head:
        with plain_errors(self.path):
            rows = self._connection.execute("SELECT releases, filled, accepted, kept, digest FROM head").fetchall()
        if len(rows) != 1 or not all(isinstance(count, int) for count in rows[0][:-1]):
            raise LedgerError(f"{self.path}: the count of releases was altered; do not release from it.")
        return Head(*rows[0])

    def _count_and_rho(self) -> tuple[int, float]:
        """How many releases were charged, and what they spent."""
        made = self.count
        last = self._row("number = ?", made)
        return made, 0.0 if last is None else last.rho

    def _count(self, which: str) -> int:
        with plain_errors(self.path):
            return int(self._connection.execute(f"SELECT count(*) FROM releases WHERE {which}").fetchone()[0])

    def _raw_rows(self) -> list[tuple[Any, ...]]:
        with plain_errors(self.path):
            return self._connection.execute(f"SELECT {COLUMNS} FROM releases ORDER BY number").fetchall()

    @contextmanager
    def _transaction(self, *, synced: bool = True) -> Iterator[None]:
        """One writing transaction at a time, with errors as sentences."""
        if self._lock is None:
            raise LedgerError(f"{self.path} was opened to be read; open it as its client to release.")
        with self._one_thread, plain_errors(self.path), writing(self._connection, synced=synced):
            yield

    def _mark_accepted(self, round_key: str) -> None:
        known = self._row("round_key = ?", round_key)
        if known is None:
            raise LedgerError(f"{self.path} has no release for round {round_key}, so none can have been accepted.")
        if not known.accepted:
            mark = digest_of(known.digest, "accepted")
            self._connection.execute("UPDATE releases SET accepted = ? WHERE number = ?", (mark, known.number))
            self._connection.execute("UPDATE head SET accepted = accepted + 1")

    def _write_state(self, state: Mapping[str, bytes]) -> None:
        for key, value in state.items():
            if not isinstance(value, bytes):
                raise LedgerError(f"The state of a release must be bytes, and {key} is not; it is charged, and void.")
            sealed = (key, value, digest_of(self._root, key, value))
            self._connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?, ?)", sealed)
        if state:
            self._connection.execute("UPDATE head SET kept = (SELECT count(*) FROM state)")

    def _row(self, where: str, value: object) -> Release | None:
        with plain_errors(self.path):
            row = self._connection.execute(f"SELECT {COLUMNS} FROM releases WHERE {where}", (value,)).fetchone()
        return None if row is None else release_of(row)


def _check_sensitivity(sensitivity: float) -> None:
    if not (sensitivity > 0.0 and math.isfinite(sensitivity)):
        raise PrivacyError(f"The sensitivity of a release must be a positive number, not {sensitivity!r}.")


def _begin(path: Path, client: str, policy: Policy | None) -> None:
    """Make a new ledger; its anchor is there first, so that none is ever without."""
    text = NO_POLICY if policy is None else policy.text()
    root = digest_of(b"pgfl ledger", FORMAT, client, text)

    def fill(connection: sqlite3.Connection) -> None:
        for statement in TABLES.split(";\n"):
            if statement.strip():
                connection.execute(statement)
        connection.execute("INSERT INTO about VALUES (?, ?, ?, ?)", (FORMAT, client, text, root))
        connection.execute("INSERT INTO head VALUES (0, 0, 0, 0, ?)", (root,))
        connection.execute(f"PRAGMA application_id = {ledger_file.APPLICATION}")

    if path.exists():
        raise LedgerError(f"{path} exists already; open it, or choose another place for a new ledger.")
    noted = anchor.read(path)
    if (noted is not None and noted.releases) or ledger_file.log_size(path):
        raise LedgerError(
            f"{path} is missing, but its anchor or log is there: it had releases; put it back, or leave the federation."
        )
    anchor.begin(path, Anchor(root, 0, root))
    ledger_file.create(path, fill)


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application != ledger_file.APPLICATION or not {"about", "head", "releases", "state"} <= tables:
        raise LedgerError(f"{path} is a database, but not a pgfl ledger; name the right file.")
    for (form,) in connection.execute("SELECT format FROM about"):
        if not isinstance(form, int):
            raise LedgerError(f"{path} is damaged: it has no format; put back a whole copy that is not older.")
        if form != FORMAT:
            advice = "use a newer one" if form > FORMAT else "go on with the pgfl that made it, or begin a new ledger"
            raise LedgerError(f"{path} has ledger format {form} and this pgfl knows only {FORMAT}; {advice}.")


def _check_present(path: Path) -> None:
    if not path.is_file():
        raise LedgerError(f"There is no ledger at {path}; create it, or check the name.")
    if not path.stat().st_size:
        raise LedgerError(
            f"{path} is empty, which a ledger never is: its content was lost; put back the newest copy and its "
            "anchor, or, if nothing was ever released from it, remove it."
        )
