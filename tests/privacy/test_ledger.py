import json
import math
import os
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pgfl.errors import BudgetSpent, LedgerError, PrivacyError
from pgfl.privacy import accounting
from pgfl.privacy.budget import Budget
from pgfl.privacy.ledger import anchor
from pgfl.privacy.ledger.anchor import Anchor
from pgfl.privacy.ledger.ledger import BUDGET_SPENT, Ledger
from pgfl.privacy.ledger.rows import Policy, digest_of
from tests.contest import Contest

POLICY = Policy(phi0=1e-3, zeta=0.9, delta=1e-5, max_releases=5, bounds={"x_norm": 1.0, "y_bound": None})
OPENINGS = (Ledger.open, Ledger.open_or_create, lambda path, *_: Ledger.read(path))


def release(ledger, round_key, sensitivity=0.2, accepted=()):
    """Make a release with its state, as a client does."""
    with ledger.reserve(round_key, sensitivity, accepted) as slot:
        slot.state["dual"] = f"dual after {slot.number}".encode()
        slot.payload = f"bytes of {round_key}".encode()
    return slot


def void(ledger, round_key, failure=RuntimeError):
    """A release that fails after it was paid for."""
    with suppress(failure), ledger.reserve(round_key, 0.2) as slot:
        slot.payload, slot.state["dual"] = b"half made", b"half done"
        raise failure
    return slot


def unprotected(ledger, round_key):
    with ledger.reserve_unprotected(round_key) as slot:
        slot.payload = b"clean bytes"
    return slot


def copied(path, folder, *endings):
    """A copy of a ledger with some of the files that belong to it."""
    folder.mkdir()
    for ending in ("", *endings):
        shutil.copy(f"{path}{ending}", f"{folder / path.name}{ending}")
    return folder / path.name


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ann.ledger"


@pytest.fixture
def filled(path):
    """Four releases, two of them accepted, and the dual."""
    with Ledger.create(path, "ann", POLICY) as ledger:
        for round in range(4):
            release(ledger, f"r{round}")
        ledger.confirm("r0")
        ledger.confirm("r2")
    return path


def test_a_release_follows_the_policy_by_release_number(path):
    with Ledger.create(path, "ann", POLICY) as ledger:
        # the server's round does not matter: only the client's own count does
        seen = [release(ledger, f"r{round}") for round in (900, 17)]
        assert [slot.number for slot in seen] == [1, 2]
        assert [slot.phi for slot in seen] == pytest.approx([1e-3 / 0.9, 1e-3 / 0.81])
        assert seen[1].sigma == pytest.approx(0.2 / np.sqrt(2 * seen[1].phi))
        assert ledger.rho == pytest.approx(float(accounting.rho_total(1e-3, 0.9, 2)), rel=1e-14)
        assert ledger.epsilon() == pytest.approx(float(accounting.exact_epsilon(ledger.rho, 1e-5)))
        assert ledger.epsilon(1e-3) < ledger.epsilon()
        ledger.verify()


def test_a_retry_returns_the_same_bytes_and_spends_nothing(path):
    with Ledger.create(path, "ann", POLICY) as ledger:
        first = release(ledger, "r1")
        with pytest.raises(LedgerError, match="r1 already"), ledger.reserve("r1", 0.2):
            pytest.fail("noise was drawn")
        again = ledger.find("r1")
    with Ledger.open(path, "ann") as ledger:
        later = ledger.find("r1")
        assert ledger.count == 1
    assert first.payload == again.payload == later.payload
    assert first.rho == again.rho == later.rho


def test_a_charge_is_there_before_the_body_runs(path):
    with Ledger.create(path, "ann", POLICY) as ledger, ledger.reserve("r1", 0.2) as slot:
        with Ledger.read(path) as reader:
            assert (reader.count, reader.rho, reader.find("r1").void) == (1, slot.rho, True)
            reader.verify()
        slot.payload = b"bytes"


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, SystemExit, GeneratorExit, BudgetSpent])
def test_nothing_gives_a_charge_back(path, failure):
    with Ledger.create(path, "ann", POLICY) as ledger:
        release(ledger, "r1")
        slot = void(ledger, "r2", failure)
    for _ in range(2):
        with Ledger.open(path, "ann") as ledger:
            lost = ledger.find("r2")
            assert (lost.void, lost.payload, ledger.count, ledger.rho) == (True, b"", 2, slot.rho)
            assert ledger.state("dual") == b"dual after 1"
            assert ledger.summary()["void"] == 1
            with pytest.raises(LedgerError, match="already"), ledger.reserve("r2", 0.2):
                pytest.fail("a void round was made anew")
    with Ledger.open(path, "ann") as ledger:
        assert release(ledger, "r3").number == 3
        ledger.verify()


def test_a_release_without_a_payload_is_void(path):
    with Ledger.create(path, "ann", POLICY) as ledger:
        with ledger.reserve("r1", 0.2):
            pass
        assert ledger.find("r1").void
        ledger.verify()


def test_void_releases_count_towards_the_budget(path):
    with Ledger.create(path, "ann", POLICY) as ledger:
        for round in range(5):
            void(ledger, f"r{round}")
        with pytest.raises(BudgetSpent), ledger.reserve("r5", 0.2):
            pytest.fail("noise was drawn")
        assert ledger.rho == pytest.approx(float(accounting.rho_total(1e-3, 0.9, 5)))


def test_past_the_budget_nothing_is_drawn_or_written_and_retries_still_work(path):
    with Ledger.create(path, "ann", POLICY) as ledger:
        for round in range(5):
            release(ledger, f"r{round}")
        with pytest.raises(BudgetSpent) as refusal, ledger.reserve("r5", 0.2, accepted=["r1"]):
            pytest.fail("noise was drawn")
        assert str(refusal.value) == BUDGET_SPENT
        assert not any(letter.isdigit() for letter in BUDGET_SPENT)
        assert ledger.find("r4").payload == b"bytes of r4"
        assert (ledger.count, ledger.accepted) == (5, 0)
        assert ledger.summary()["spent"]


def test_a_budget_in_rho_stops_before_it_is_passed(path):
    policy = Policy(phi0=1e-3, zeta=0.9, delta=1e-5, rho_budget=4e-3)
    with Ledger.create(path, "ann", policy) as ledger:
        for round in range(3):
            release(ledger, f"r{round}")
        with pytest.raises(BudgetSpent, match=BUDGET_SPENT), ledger.reserve("r3", 0.2):
            pytest.fail("noise was drawn")
        assert ledger.rho <= 4e-3 < ledger.rho + 1e-3 / 0.9**4


@pytest.mark.parametrize("zeta", [1.0, 0.99])
def test_a_target_allows_all_its_releases_and_holds(path, zeta):
    policy = Policy.of(Budget.from_target(epsilon=1.0, delta=1e-6, max_releases=30, zeta=zeta))
    with Ledger.create(path, "ann", policy) as ledger:
        for round in range(30):
            release(ledger, f"r{round}")
        assert 1 - 1e-8 < ledger.epsilon(1e-6) <= 1.0
        with pytest.raises(BudgetSpent), ledger.reserve("r30", 0.2):
            pytest.fail("noise was drawn")


def test_state_is_stored_with_the_bytes_or_not_at_all(path):
    with Ledger.create(path, "ann", POLICY) as ledger:
        release(ledger, "r1")
        void(ledger, "r2")
        assert (ledger.count, ledger.state("dual")) == (2, b"dual after 1")
        with pytest.raises(LedgerError, match="bytes"), ledger.reserve("r3", 0.2) as slot:
            slot.payload, slot.state = b"sent", {"warm": b"w", "dual": "text"}
        assert (ledger.count, ledger.state("dual"), ledger.state("warm")) == (3, b"dual after 1", None)
        with ledger.reserve("r4", 0.2) as slot:
            slot.payload, slot.state = b"sent", {"warm": b"w", "dual": b"settled"}
        ledger.confirm("r1")
        ledger.confirm("r1")
        assert ledger.accepted == 1
        assert [row.accepted for row in ledger.rows()] == [True, False, False, False]
        assert [row.void for row in ledger.rows()] == [False, True, True, False]
    with Ledger.open(path, "ann") as ledger:
        assert (ledger.state("dual"), ledger.state("warm")) == (b"settled", b"w")
        with pytest.raises(LedgerError, match="no release"):
            ledger.confirm("r9")


@pytest.mark.parametrize("bad", ["text", b"", np.zeros(3)])
def test_a_release_must_be_bytes(path, bad):
    with Ledger.create(path, "ann", POLICY) as ledger:
        with pytest.raises(PrivacyError, match="bytes"), ledger.reserve("r1", 0.2) as slot:
            slot.payload = bad
        assert ledger.find("r1").void


def test_state_that_cannot_be_stored_voids_the_release(path):
    with Ledger.create(path, "ann", POLICY) as ledger:
        with pytest.raises(LedgerError, match="bytes"), ledger.reserve("r1", 0.2) as slot:
            slot.payload, slot.state["dual"] = b"bytes", "text"
        assert ledger.find("r1").void
        ledger.verify()


@pytest.mark.parametrize("sensitivity", [0.0, -1.0, np.nan, np.inf])
def test_no_release_without_a_sensitivity(path, sensitivity):
    with Ledger.create(path, "ann", POLICY) as ledger:
        with pytest.raises(PrivacyError, match="sensitivity"), ledger.reserve("r1", sensitivity):
            pytest.fail("noise was drawn")
        assert ledger.count == 0


def test_numpy_numbers_and_integers_are_as_good_as_floats(path):
    with Ledger.create(path, "ann", POLICY) as ledger:
        release(ledger, "r1", np.float32(0.5))
        release(ledger, "r2", 1)
        ledger.verify()


# Without noise -------------------------------------------------------------------------------------------------------


def infinite(ledger):
    summary = ledger.summary()
    figures = [ledger.rho, ledger.epsilon(), ledger.epsilon(1e-3)]
    figures += [summary[name] for name in ("rho", "epsilon", "epsilon_paper")]
    return figures == [math.inf] * 6 and summary["spent"]


def test_a_release_without_noise_makes_it_infinite_for_good(path):
    """Privacy on, off, on again: three clean models had left, and the ledger said 0.28."""
    with Ledger.open_or_create(path, "ann", POLICY) as ledger:
        release(ledger, "r1")
    with Ledger.open_or_create(path, "ann", None) as ledger:
        assert ledger.epsilon() < 1.0
        assert unprotected(ledger, "c1").number == 2
        assert ledger.find("c1").payload == b"clean bytes"
        assert infinite(ledger)
    with Ledger.open_or_create(path, "ann", POLICY) as ledger:
        assert infinite(ledger)
        with pytest.raises(BudgetSpent, match=BUDGET_SPENT), ledger.reserve("r2", 0.2):
            pytest.fail("noise was drawn")
        for number in range(3, 8):  # past max_releases too: there is nothing left to protect
            assert unprotected(ledger, f"c{number}").number == number
    with Ledger.read(path) as ledger:
        ledger.verify()
        assert infinite(ledger)
        assert [row.unprotected for row in ledger.rows()] == [False] + [True] * 6
        assert ledger.summary()["unprotected"] == 6


def test_a_release_without_noise_that_failed_counts_as_one(filled):
    with Ledger.open(filled, "ann") as ledger:
        with pytest.raises(RuntimeError), ledger.reserve_unprotected("c1"):
            raise RuntimeError
        assert infinite(ledger)
        assert ledger.find("c1").void


def test_a_ledger_begun_with_privacy_off_promises_nothing(path):
    with Ledger.open_or_create(path, "ann", None) as ledger:
        assert (ledger.rho, ledger.epsilon(), ledger.summary()["policy"]) == (0.0, 0.0, None)
        with pytest.raises(BudgetSpent), ledger.reserve("r1", 0.2):
            pytest.fail("there is no budget")
        unprotected(ledger, "c1")
        assert infinite(ledger)
    for attempt in (Ledger.open, Ledger.open_or_create):
        with pytest.raises(LedgerError, match="begun with privacy off"):
            attempt(path, "ann", POLICY)
    with Ledger.open_or_create(path, "ann", None) as ledger:
        assert infinite(ledger)


# Whose and which -----------------------------------------------------------------------------------------------------


def test_another_clients_ledger_and_another_policy_are_refused(filled):
    with pytest.raises(LedgerError, match="client ann, not of bob"):
        Ledger.open(filled, "bob")
    with pytest.raises(LedgerError, match="another policy"):
        Ledger.open(filled, "ann", Policy(phi0=2e-3, zeta=0.9, delta=1e-5, max_releases=5))
    Ledger.open(filled, "ann", POLICY).close()


def test_a_new_ledger_never_replaces_one(filled):
    with pytest.raises(LedgerError, match="exists already"):
        Ledger.create(filled, "ann", POLICY)
    with Ledger.open_or_create(filled, "ann", POLICY) as ledger:
        assert ledger.count == 4


def test_an_acceptance_is_noted_with_the_next_release_or_not_at_all(path):
    with Ledger.create(path, "ann", POLICY) as ledger:
        release(ledger, "r1")
        release(ledger, "r2", accepted=["r1"])
        with pytest.raises(LedgerError, match="no release for round r7"):
            release(ledger, "r3", accepted=["r2", "r7"])
        assert [row.accepted for row in ledger.rows()] == [True, False]
        ledger.verify()


def test_open_or_create_begins_one(path):
    with Ledger.open_or_create(path, "ann", POLICY) as ledger:
        assert ledger.count == 0


def test_no_ledger(path):
    for call in (lambda: Ledger.open(path, "ann"), lambda: Ledger.read(path)):
        with pytest.raises(LedgerError, match="no ledger"):
            call()


@pytest.mark.parametrize("anchored", [False, True])
def test_an_empty_file_is_no_new_ledger(filled, anchored):
    filled.write_bytes(b"")
    if not anchored:
        os.unlink(f"{filled}.anchor")
    for call in OPENINGS:
        with pytest.raises(LedgerError, match=r"is empty.*put back"):
            call(filled, "ann", POLICY)
    with pytest.raises(LedgerError, match="exists already"):
        Ledger.create(filled, "ann", POLICY)
    assert filled.read_bytes() == b""


@pytest.mark.parametrize("left", [".anchor", "-wal"])
def test_a_ledger_that_is_gone_is_not_begun_anew(filled, tmp_path, left):
    """What is beside it says that there were releases."""
    killed(filled, "last")
    folder = tmp_path / "left"
    folder.mkdir()
    shutil.copy(f"{filled}{left}", f"{folder / filled.name}{left}")
    for begin in (Ledger.create, Ledger.open_or_create):
        with pytest.raises(LedgerError, match=r"is missing.*put it back"):
            begin(folder / filled.name, "ann", POLICY)
    assert [file.name for file in folder.iterdir() if not file.name.endswith(".lock")] == [filled.name + left]


def test_files_are_the_owners_alone(path):
    ledger = Ledger.create(path, "ann", POLICY)
    release(ledger, "r1")
    files = list(path.parent.iterdir())
    assert {file.name.removeprefix(path.name) for file in files} >= {"", ".anchor", ".lock", "-wal"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    ledger.close()


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(LedgerError, match="folder"):
        Ledger.create(tmp_path / "none" / "ann.ledger", "ann", POLICY)


def test_other_files_are_refused(tmp_path):
    text, database = tmp_path / "text", tmp_path / "database"
    text.write_text("not a database, but long enough to look at; " * 20)
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE about (x)")
    for path in (text, database):
        before = path.read_bytes()
        for call in (Ledger.read, lambda p: Ledger.open(p, "ann"), lambda p: Ledger.open_or_create(p, "ann", POLICY)):
            with pytest.raises(LedgerError, match="pgfl ledger"):
                call(path)
        with pytest.raises(LedgerError, match="exists already"):
            Ledger.create(path, "ann", POLICY)
        assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("form", "advice"), [(1, "go on with the pgfl that made it"), (2, "go on with"), (4, "use a newer one")]
)
def test_another_format_is_refused(filled, form, advice):
    _edit(filled, f"UPDATE about SET format = {form}")
    os.unlink(f"{filled}.anchor")  # format 1 had none
    for call in OPENINGS:
        with pytest.raises(LedgerError, match=rf"format {form} .*{advice}"):
            call(filled, "ann", POLICY)


def _edit(path, *statements):
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def _anchor_at(path):
    """Make the anchor agree with what the ledger says of itself, as somebody would who knows of anchors."""
    connection = sqlite3.connect(path)
    with suppress(sqlite3.Error, TypeError, IndexError):
        (root,) = connection.execute("SELECT digest FROM about").fetchone()
        (count,) = connection.execute("SELECT releases FROM head").fetchone()
        (digest,) = connection.execute("SELECT digest FROM releases WHERE number = ?", (count,)).fetchone()
        anchor.begin(path, Anchor(root, count, digest))
    connection.close()


TAMPERINGS = {
    "phi": ["UPDATE releases SET phi = phi / 2 WHERE number = 2"],
    "rho": ["UPDATE releases SET rho = rho / 2 WHERE number = 2"],
    "sigma": ["UPDATE releases SET sigma = sigma * 2 WHERE number = 2"],
    "sensitivity": ["UPDATE releases SET sensitivity = 0.1 WHERE number = 2"],
    "type": ["UPDATE releases SET phi = 'much' WHERE number = 2"],
    "payload": ["UPDATE releases SET payload = x'00' WHERE number = 2"],
    "round key": ["UPDATE releases SET round_key = 'r77' WHERE number = 2"],
    "digest": ["UPDATE releases SET digest = x'00' WHERE number = 2"],
    "last digest": ["UPDATE releases SET digest = x'00' WHERE number = 4"],
    "acceptance": ["UPDATE releases SET accepted = NULL WHERE number = 3"],
    "false acceptance": ["UPDATE releases SET accepted = x'01' WHERE number = 2"],
    "copied acceptance": [
        "UPDATE releases SET accepted = (SELECT accepted FROM releases WHERE number = 1) WHERE number = 2"
    ],
    "removed": ["DELETE FROM releases WHERE number = 2"],
    "removed last": ["DELETE FROM releases WHERE number = 4"],
    "removed last and count": ["DELETE FROM releases WHERE number = 4", "UPDATE head SET releases = 3"],
    "removed all": ["DELETE FROM releases"],
    "renumbered": ["DELETE FROM releases WHERE number = 2", "UPDATE releases SET number = number - 1 WHERE number > 2"],
    "reordered": [
        "UPDATE releases SET number = 9 WHERE number = 2",
        "UPDATE releases SET number = 2 WHERE number = 3",
        "UPDATE releases SET number = 3 WHERE number = 9",
    ],
    "count": ["UPDATE head SET releases = 3"],
    "no head": ["DELETE FROM head"],
    "client": ["UPDATE about SET client = 'bob'"],
    "policy": ["UPDATE about SET policy = replace(policy, '\"max_releases\": 5', '\"max_releases\": 50')"],
    "no policy": ["DELETE FROM about"],
    "state": ["UPDATE state SET value = x'00'"],
    "no state": ["DELETE FROM state"],
    "no table": ["DROP TABLE state"],
    "voided": ["UPDATE releases SET payload = NULL, seal = NULL WHERE number = 2"],
    "voided without its seal": ["UPDATE releases SET payload = NULL WHERE number = 2"],
    "filled": ["UPDATE releases SET payload = x'00' WHERE number = 5"],
    "filled with a seal": ["UPDATE releases SET payload = x'00', seal = x'01' WHERE number = 5"],
    "seal": ["UPDATE releases SET seal = x'00' WHERE number = 2"],
    "protected": ["UPDATE releases SET phi = 1e-3, sigma = 1.0, sensitivity = 0.2 WHERE number = 6"],
    "spent less": ["UPDATE releases SET rho = 1.0 WHERE number = 6"],
    "count of bytes": ["UPDATE head SET filled = 6"],
    "count that is text": ["UPDATE head SET releases = 'four'"],
    "format that is text": ["UPDATE about SET format = 'three'"],
    "client that is no text": ["UPDATE about SET client = CAST(x'ff' AS TEXT)"],
}


@pytest.fixture
def mixed(filled):
    """The four releases, a void one, and one without noise."""
    with Ledger.open(filled, "ann") as ledger:
        void(ledger, "r4")
        unprotected(ledger, "r5")
    return filled


@pytest.mark.parametrize("reanchored", [False, True])
@pytest.mark.parametrize("statements", TAMPERINGS.values(), ids=TAMPERINGS.keys())
def test_tampering_is_found(mixed, statements, reanchored):
    with Ledger.read(mixed) as ledger:
        ledger.verify()
    _edit(mixed, *statements)
    if reanchored:
        _anchor_at(mixed)
    with pytest.raises(LedgerError) as refusal:
        Ledger.read(mixed).verify()
    assert "\n" not in str(refusal.value)
    with pytest.raises(LedgerError):
        Ledger.open(mixed, "ann")


CHARGED = ("number", "round_key", "phi", "rho", "sensitivity", "sigma", "trust")


def _rewritten(path, change):
    """Every digest and seal recomputed over rows that `change` has changed: the chain is whole."""
    with Ledger.read(path) as ledger:
        digest, rows = ledger._root, ledger.rows()
    connection = sqlite3.connect(path, isolation_level=None)
    for row in map(vars, rows):
        row = row | change(row)
        digest = digest_of(digest, *(row[name] for name in CHARGED))
        seal = digest_of(digest, "payload", row["payload"]) if row["payload"] else None
        mark = digest_of(digest, "accepted") if row["accepted"] else None
        connection.execute(
            "UPDATE releases SET phi = ?, rho = ?, sensitivity = ?, sigma = ?, trust = ?, digest = ?, seal = ?, "
            "accepted = ? WHERE number = ?",
            (*(row[name] for name in CHARGED[2:]), digest, seal, mark, row["number"]),
        )
    connection.execute("UPDATE head SET digest = ?", (digest,))
    connection.close()
    _anchor_at(path)


def _halved(row):
    return {"phi": row["phi"] / 2, "rho": row["rho"] - row["phi"] / 2} if row["number"] == 4 else {}


def _forgiven(row):
    """A release without noise, written as a private one that would have been allowed."""
    phi = 1e-3 / 0.9**6
    return {"phi": phi, "rho": 0.1, "sensitivity": 0.2, "sigma": 0.2 / math.sqrt(2 * phi)} if row["number"] == 6 else {}


def _discounted(row):
    return {"rho": 0.1} if row["number"] == 6 else {}


def test_a_ledger_can_be_rewritten_so_that_only_a_site_would_know(mixed):
    """The next test means something: what it rewrites is refused for what it says, not for how."""
    _rewritten(mixed, lambda row: {})
    Ledger.open(mixed, "ann").close()


@pytest.mark.parametrize(("change", "number"), [(_halved, 4), (_forgiven, 6), (_discounted, 6)])
def test_a_row_that_breaks_the_policy_is_found_even_with_its_digest_right(mixed, change, number):
    _rewritten(mixed, change)
    with pytest.raises(LedgerError, match=f"release {number} was altered"):
        Ledger.open(mixed, "ann")


def test_damage_anywhere_in_the_file_is_found_or_harms_nothing(filled, tmp_path):
    """Bytes overwritten in every part of the file: refused in one sentence, or every figure still as it was."""
    whole = filled.read_bytes()
    with Ledger.open(filled, "ann") as ledger:
        rows, rho = ledger.rows(), ledger.rho
    damaged = copied(filled, tmp_path / "damaged", ".anchor")
    refusals = []
    for start in range(0, len(whole), 61):
        damaged.write_bytes(whole[:start] + bytes(b ^ 0x5A for b in whole[start : start + 8]) + whole[start + 8 :])
        try:
            with Ledger.open(damaged, "ann") as ledger:
                assert (ledger.rows(), ledger.rho) == (rows, rho)
        except LedgerError as refusal:
            refusals.append(str(refusal))
    assert len(refusals) > 20
    assert not any("\n" in refusal for refusal in refusals)


def test_a_byte_that_no_text_has_is_damage_wherever_it_stands(filled, tmp_path):
    """In the name of a table, in a column, in a number: one sentence, or every figure still as it was."""
    whole = filled.read_bytes()
    damaged = copied(filled, tmp_path / "damaged", ".anchor")
    with Ledger.read(damaged) as ledger:
        summary, rows = ledger.summary(), ledger.rows()
    refusals = []
    for place in [place for place, byte in enumerate(whole) if byte not in (0, 0xFF)][::7]:
        damaged.write_bytes(whole[:place] + b"\xff" + whole[place + 1 :])
        try:
            with Ledger.read(damaged) as ledger:
                ledger.verify()
                assert (ledger.summary(), ledger.rows()) == (summary, rows)
        except LedgerError as refusal:
            refusals.append(str(refusal))
    assert len(refusals) > 20
    assert not any("\n" in refusal for refusal in refusals)


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.95])
def test_a_truncated_file_is_refused(filled, keep):
    whole = filled.read_bytes()
    filled.write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(LedgerError):
        Ledger.open(filled, "ann")


# Going back ----------------------------------------------------------------------------------------------------------


def put_back(copy, path):
    """Put a copy in the place of a ledger, with exactly the files that it has."""
    for ending in ("", "-wal", "-shm", ".anchor"):
        Path(f"{path}{ending}").unlink(missing_ok=True)
        if os.path.exists(f"{copy}{ending}"):
            shutil.copy(f"{copy}{ending}", f"{path}{ending}")


def test_an_older_copy_is_found_by_the_anchor(path, tmp_path):
    with Ledger.create(path, "ann", POLICY) as ledger:
        release(ledger, "r1")
    older = copied(path, tmp_path / "older")
    with Ledger.open(path, "ann") as ledger:
        release(ledger, "r2")
    newer = copied(path, tmp_path / "newer")
    shutil.copy(older, path)
    for _ in range(2):
        for call in OPENINGS:
            with pytest.raises(LedgerError, match=r"has 1 releases, but its anchor says 2.*put back the newest"):
                call(path, "ann", POLICY)
    shutil.copy(newer, path)
    with Ledger.open(path, "ann") as ledger:
        assert ledger.count == 2


def test_an_older_copy_with_its_older_anchor_is_found_by_the_site(path, tmp_path):
    with Ledger.create(path, "ann", POLICY) as ledger:
        release(ledger, "r1")
    older = copied(path, tmp_path / "older", ".anchor")
    with Ledger.open(path, "ann") as ledger:
        release(ledger, "r2")
        known_by_the_site = ledger.count
        ledger.check_known(known_by_the_site)
    put_back(older, path)
    with Ledger.open(path, "ann") as ledger:
        ledger.check_known(1)
        with pytest.raises(LedgerError, match="backup"):
            ledger.check_known(known_by_the_site)


def test_an_older_copy_of_a_killed_ledger_and_its_log_is_found(path, tmp_path):
    Ledger.create(path, "ann", POLICY).close()
    killed(path, "r1")
    older = copied(path, tmp_path / "older", "-wal")
    killed(path, "r2", "r3")
    newer = copied(path, tmp_path / "newer", "-wal", ".anchor")
    shutil.copy(f"{path}.anchor", f"{older}.anchor")
    put_back(older, path)
    with pytest.raises(LedgerError, match="has 1 releases, but its anchor says 3"):
        Ledger.open(path, "ann")
    put_back(newer, path)
    with Ledger.open(path, "ann") as ledger:
        assert ledger.count == 3


@pytest.mark.parametrize("left", [0.0, 0.0001, 0.2, 0.4, 0.6, 0.8])
def test_a_log_that_was_cut_short_is_found_and_can_be_put_back(path, tmp_path, left):
    """Killed while open, then truncated to nothing, to its header, or to fewer whole commits."""
    Ledger.create(path, "ann", POLICY).close()
    killed(path, "r1", "r2", "r3")
    whole = copied(path, tmp_path / "whole", "-wal", ".anchor")
    log = Path(f"{path}-wal")
    log.write_bytes(log.read_bytes()[: 32 if left == 0.0001 else int(len(log.read_bytes()) * left)])
    for _ in range(2):
        for call in OPENINGS:
            with pytest.raises(LedgerError, match=r"lacks its log|cut short"):
                call(path, "ann", POLICY)
    shutil.copy(f"{whole}-wal", log)
    with Ledger.open(path, "ann") as ledger:
        assert ledger.count == 3


def test_a_copy_takes_both_ledger_and_anchor(mixed, tmp_path):
    moved = copied(mixed, tmp_path / "moved")
    for call in OPENINGS:
        with pytest.raises(LedgerError, match=r"lacks its anchor, ann.ledger.anchor.*put the anchor back"):
            call(moved, "ann", POLICY)
    shutil.copy(f"{mixed}.anchor", f"{moved}.anchor")
    Ledger.open(moved, "ann").close()


def test_the_anchor_of_another_ledger_is_refused(filled, tmp_path):
    with Ledger.create(tmp_path / "other", "ann", POLICY) as other:
        for round in range(4):
            release(other, f"q{round}")
    with Ledger.create(tmp_path / "bobs", "bob", POLICY):
        pass
    for foreign in ("other", "bobs"):
        shutil.copy(tmp_path / f"{foreign}.anchor", f"{filled}.anchor")
        with pytest.raises(LedgerError, match="not of one ledger"):
            Ledger.open(filled, "ann")


def test_a_ledger_may_be_ahead_of_its_anchor_and_the_anchor_follows(filled, tmp_path):
    """Killed between the two writes."""
    shutil.copy(f"{filled}.anchor", tmp_path / "before")
    with Ledger.open(filled, "ann") as ledger:
        release(ledger, "r9")
    after = anchor.read(filled)
    shutil.copy(tmp_path / "before", f"{filled}.anchor")
    Ledger.read(filled).close()
    assert anchor.read(filled).releases == 4
    Ledger.open(filled, "ann").close()
    assert anchor.read(filled) == after


@pytest.mark.parametrize("record", [0, 1])
def test_a_torn_record_leaves_the_other(filled, record):
    raw = bytearray(Path(f"{filled}.anchor").read_bytes())
    digits = len(raw) // 2 * record + 75
    raw[digits : digits + 10] = b"9" * 10  # of the number of releases
    Path(f"{filled}.anchor").write_bytes(raw)
    assert anchor.read(filled).releases == (3 if record == 0 else 4)
    Ledger.open(filled, "ann").close()
    for content in (b"", b"nothing of the kind\n", bytes(432)):
        Path(f"{filled}.anchor").write_bytes(content)
        with pytest.raises(LedgerError, match=r"anchor is damaged.*put back"):
            Ledger.open(filled, "ann")


def test_an_anchor_that_cannot_be_written_stops_before_anything_is_made(filled):
    with Ledger.open(filled, "ann") as ledger:
        os.rename(f"{filled}.anchor", f"{filled}.elsewhere")
        with pytest.raises(LedgerError, match="charged but nothing was sent"), ledger.reserve("r9", 0.2):
            pytest.fail("noise was drawn")
        os.rename(f"{filled}.elsewhere", f"{filled}.anchor")
        assert ledger.find("r9").void


# The file ------------------------------------------------------------------------------------------------------------


def test_a_charge_is_synced_before_the_body_runs_and_its_bytes_cost_no_sync(filled):
    """A log (WAL) and FULL = 2 for the charge; with NORMAL = 1 a power cut could undo what a sent release cost."""

    def level():
        return ledger._connection.execute("PRAGMA synchronous").fetchone()[0]

    with Ledger.open(filled, "ann") as ledger:
        assert ledger._connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        said, levels = [], [level()]
        ledger._connection.set_trace_callback(said.append)
        with ledger.reserve("r9", 0.2) as slot:
            charging, slot.payload = list(said), b"bytes"
            ledger._connection.set_trace_callback(None)
            levels.append(level())
            said.clear()
            ledger._connection.set_trace_callback(said.append)
        ledger._connection.set_trace_callback(None)
        levels.append(level())
    assert levels == [2, 2, 2]
    assert not any("synchronous" in statement for statement in charging)
    assert charging.count("COMMIT") == said.count("COMMIT") == 1
    assert (said[0], said[-1]) == ("PRAGMA synchronous = NORMAL", "PRAGMA synchronous = FULL")


def test_at_rest_a_ledger_is_one_file_and_its_anchor(filled):
    assert {file.name for file in filled.parent.iterdir()} == {"ann.ledger", "ann.ledger.anchor", "ann.ledger.lock"}


def test_a_copy_without_its_log_is_refused_and_again(filled, tmp_path):
    """Killed, then moved without the log: the last release would be forgotten."""
    killed(filled, "last")
    moved = copied(filled, tmp_path / "moved", ".anchor")
    for _ in range(2):
        for call in OPENINGS:
            with pytest.raises(LedgerError, match="lacks its log"):
                call(moved, "ann", POLICY)
    shutil.copy(f"{filled}-wal", f"{moved}-wal")
    for ledger in (Ledger.read(filled), Ledger.open(filled, "ann"), Ledger.open(moved, "ann")):
        with ledger:
            assert ledger.count == 5


def test_a_refusal_after_a_crash_takes_nothing_away(filled):
    killed(filled, "last")
    with pytest.raises(LedgerError, match="not of bob"):
        Ledger.open(filled, "bob")
    with Ledger.open(filled, "ann") as ledger:
        assert ledger.count == 5


def test_a_reader_that_closes_last_leaves_a_ledger_that_opens(filled):
    ledger = Ledger.open(filled, "ann")
    with Ledger.read(filled) as reader:
        release(ledger, "r9")
        assert reader.count == 5
        ledger.close()
        assert reader.count == 5
    with Ledger.open(filled, "ann") as ledger:
        assert ledger.count == 5
    test_at_rest_a_ledger_is_one_file_and_its_anchor(filled)


def test_no_room_to_close_leaves_a_ledger_that_opens(filled):
    ledger = Ledger.open(filled, "ann")
    release(ledger, "r9")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        ledger.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with Ledger.open(filled, "ann") as ledger:
        assert ledger.count == 5


def test_another_database_is_left_as_it_is(tmp_path):
    other = tmp_path / "other"
    _edit(other, "PRAGMA user_version = 7", "CREATE TABLE mine (x)")
    before = other.read_bytes()
    for attempt in (Ledger.create, Ledger.open, Ledger.open_or_create):
        with pytest.raises(LedgerError):
            attempt(other, "ann", POLICY)
    assert other.read_bytes() == before


def test_one_process_at_a_time_and_readers_beside_it(filled):
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(filled)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(LedgerError, match="in use"):
            Ledger.open(filled, "ann")
        with Ledger.read(filled) as reader:
            assert reader.count == 5
            reader.verify()
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        holder.stdin.close()
        holder.stdout.close()
    with Ledger.open(filled, "ann") as ledger:
        assert ledger.count == 5


_HOLD = textwrap.dedent("""
    import sys
    from pgfl.privacy.ledger.ledger import Ledger
    ledger = Ledger.open(sys.argv[1], "ann")
    with ledger.reserve("held", 0.2) as slot:
        slot.payload = b"held"
    print("open", flush=True)
    sys.stdin.read()
""")


_KILLED = textwrap.dedent("""
    import os, signal, sys
    from pgfl.privacy.ledger.ledger import Ledger
    ledger = Ledger.open(sys.argv[1], "ann")
    for key in sys.argv[2:]:
        with ledger.reserve(key, 0.2) as slot:
            slot.payload = key.encode()
    os.kill(os.getpid(), signal.SIGKILL)
""")


def killed(path, *keys):
    """Another process releases these rounds and is killed with the ledger open."""
    ended = subprocess.run([sys.executable, "-c", _KILLED, str(path), *keys], check=False)
    assert ended.returncode == -signal.SIGKILL


def test_the_same_process_cannot_open_it_twice_either(filled):
    with Ledger.open(filled, "ann"):
        with pytest.raises(LedgerError, match="in use"):
            Ledger.open(filled, "ann")
        with pytest.raises(LedgerError, match="in use"):
            Ledger.open_or_create(filled, "ann", POLICY)
    Ledger.open(filled, "ann").close()


def test_a_link_to_a_ledger_is_the_same_ledger(filled, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(filled)
    with Ledger.open(filled, "ann"), pytest.raises(LedgerError, match="in use"):
        Ledger.open(link, "ann")


def test_a_reader_cannot_release(filled):
    with Ledger.read(filled) as reader:
        for call in (
            lambda: release(reader, "r9"),
            lambda: unprotected(reader, "r9"),
            lambda: reader.confirm("r1"),
        ):
            with pytest.raises(LedgerError, match="read"):
                call()


def test_a_slow_reader_does_not_stop_the_client(filled):
    with Ledger.open(filled, "ann") as ledger, Ledger.read(filled) as reader:
        rows = iter(reader.rows())
        next(rows)
        release(ledger, "r9")
        assert reader.count == 5


def test_a_ledger_is_verified_as_of_one_moment_while_its_client_releases(filled):
    with Ledger.open(filled, "ann") as ledger, Ledger.read(filled) as reader:
        reader._connection.set_trace_callback(
            lambda statement: release(ledger, "meanwhile") if "FROM state" in statement else None
        )
        reader.verify()
        assert ledger.count == 5


def test_threads_of_one_process_release_one_after_the_other(path):
    policy = Policy(phi0=1e-3, zeta=1.0, delta=1e-5, max_releases=40)
    with Ledger.create(path, "ann", policy) as ledger:
        work = [threading.Thread(target=release, args=(ledger, f"r{i}")) for i in range(20)]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
        assert (ledger.count, ledger.summary()["void"]) == (20, 0)
        ledger.verify()
        assert anchor.read(path).releases == 20


@pytest.mark.parametrize("at", ["_head", "_write_state"], ids=["charged", "filled"])
def test_a_release_waits_while_another_is_being_written(path, at):
    """Both write through one connection: a second thread does not get into the first one's transaction."""
    policy = Policy(phi0=1e-3, zeta=1.0, delta=1e-5, max_releases=40)
    with Ledger.create(path, "ann", policy) as ledger:
        contest = Contest(ledger._one_thread, lambda: release(ledger, "second"))
        ledger._one_thread = contest
        inside = getattr(ledger, at)
        setattr(ledger, at, lambda *given: (contest.begin(), inside(*given))[1])
        release(ledger, "first")
        contest.finish()
        assert (ledger.count, ledger.summary()["void"]) == (2, 0)
        ledger.verify()
        assert anchor.read(path).releases == 2


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.lists(st.tuples(st.sets(st.integers(0, 5), min_size=1), st.integers(0, 3)), min_size=1, max_size=4))
def test_no_record_of_a_device_has_lost_more_than_its_ledger_says(tmp_path_factory, trainings):
    """The table changes between trainings: records come, go and come back, and the ledger stays."""
    path, lost = tmp_path_factory.mktemp("device") / "ledger.db", dict.fromkeys(range(6), 0.0)
    policy = Policy(phi0=1e-3, zeta=0.9, delta=1e-5, max_releases=40)
    number = 0
    for table, rounds in trainings:
        with Ledger.open_or_create(path, "ann", policy) as ledger:
            for _ in range(rounds):
                number += 1
                release(ledger, f"r{number}")
                for record in table:
                    lost[record] += 1e-3 / 0.9**number
            assert max(lost.values()) <= ledger.summary()["rho"] * (1 + 1e-9)


def test_a_full_disk_is_one_sentence_and_the_charge_stays(filled):
    with Ledger.open(filled, "ann") as ledger:
        before = ledger.rows()
        pages = ledger._connection.execute("PRAGMA page_count").fetchone()[0]
        ledger._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(LedgerError, match="nothing was sent; make room"), ledger.reserve("r9", 0.2) as slot:
            slot.payload = os.urandom(100_000)
        assert ledger.rows()[:-1] == before
        assert ledger.rows()[-1].void
        ledger.verify()
        assert ledger._connection.execute("PRAGMA synchronous").fetchone()[0] == 2


@pytest.mark.parametrize("room", [0, 600, 5000, 40_000, 60_000])
def test_a_write_that_fails_at_any_size_leaves_a_true_account(filled, room):
    """The system refuses to let files grow past a limit: in the log, in the ledger, in the commit, in the anchor."""
    with Ledger.open(filled, "ann") as ledger:
        before = ledger.rows()
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
        try:
            with pytest.raises(LedgerError, match="nothing was sent"), ledger.reserve("r9", 0.2) as slot:
                slot.payload = bytes(100_000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        charged = ledger.find("r9")
        assert charged is None or charged.void
        assert ledger.rows()[:4] == before
        ledger.verify()
        if charged is None:
            assert release(ledger, "r9").number == 5
        assert ledger.count == 5


@pytest.mark.parametrize(
    "parameters",
    [
        {"max_releases": None},
        {"max_releases": 0},
        {"rho_budget": 0.0},
        {"rho_budget": np.inf},
        {"phi0": 0.0},
        {"zeta": 1.5},
        {"delta": 0.0},
        {"zeta": 0.5, "max_releases": 5000},
    ],
)
def test_policies_refused(parameters):
    with pytest.raises(PrivacyError):
        Policy(**{"phi0": 1e-3, "zeta": 0.9, "delta": 1e-5, "max_releases": 5, **parameters})


def test_the_summary_is_for_json(filled):
    with Ledger.read(filled) as ledger:
        summary = json.loads(json.dumps(ledger.summary()))
        row = json.loads(json.dumps(ledger.rows()[2].describe()))
    assert (summary["client"], summary["releases"], summary["accepted"], summary["spent"]) == ("ann", 4, 2, False)
    assert summary["epsilon"] < summary["epsilon_paper"]
    assert (row["number"], row["round_key"], row["accepted"], row["bytes"]) == (3, "r2", True, 11)


# --- whom to trust ----------------------------------------------------------------------------------------------------


def test_what_is_entrusted_to_a_site_is_written_down_as_such_and_costs_what_the_schedule_says(tmp_path):
    with Ledger.create(tmp_path / "ledger.db", "ann", POLICY) as ledger:
        with ledger.reserve("n/1", 0.5) as slot:
            slot.payload = b"noised"
        with ledger.reserve_entrusted("n/2", 0.5) as slot:
            assert (slot.sigma, slot.trust, slot.phi) == (0.0, "site", pytest.approx(float(POLICY.budget.phi(2))))
            slot.payload = b"clean"
        ledger.verify()
        assert [(row.trust, row.entrusted, row.unprotected) for row in ledger.rows()] == [
            ("local", False, False),
            ("site", True, False),
        ]
        summary = ledger.summary()
        assert (summary["entrusted"], summary["unprotected"], summary["trust"]) == (1, 0, "site")
        assert summary["rho"] == pytest.approx(float(POLICY.budget.phi(1) + POLICY.budget.phi(2)))


def test_shared_noise_costs_by_its_own_deviation_and_never_less_noise_than_scheduled(tmp_path):
    with Ledger.create(tmp_path / "ledger.db", "ann", POLICY) as ledger:
        least = float(POLICY.budget.sigma(0.5, 1))
        with (
            pytest.raises(PrivacyError, match="less than"),
            ledger.reserve("n/1", 0.5, trust="site", sigma=0.99 * least),
        ):
            pass
        assert ledger.count == 0
        with ledger.reserve("n/1", 0.5, trust="site", sigma=2 * least) as slot:
            slot.payload = b"shared"
        ledger.verify()
        assert ledger.rho == pytest.approx(float(POLICY.budget.phi(1)) / 4)


@pytest.mark.parametrize(
    "change", [{"sigma": 0.0}, {"trust": "site", "sigma": 0.0, "phi": 1e-9}, {"trust": "site", "phi": 1e-9}]
)
def test_a_row_is_not_made_a_trusting_one_by_its_trust_alone(filled, change):
    """Even with every digest right: what is clean costs its whole φ, and what is shared has the σ that it paid for."""

    def changed(row):
        return change | {"rho": row["rho"] - row["phi"] + change.get("phi", row["phi"])} if row["number"] == 1 else {}

    _rewritten(filled, changed)
    with pytest.raises(LedgerError, match=r"release [12] was altered"):
        Ledger.open(filled, "ann")
