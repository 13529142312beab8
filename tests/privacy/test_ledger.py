import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

from pgfl.errors import BudgetSpent, LedgerError, PrivacyError
from pgfl.privacy import accounting
from pgfl.privacy.ledger import Ledger, Next, Policy, _digest

POLICY = Policy(phi0=1e-3, zeta=0.9, delta=1e-5, max_releases=5, bounds={"x_norm": 1.0, "y_bound": None})


def payload(upcoming: Next) -> bytes:
    upcoming.state["dual"] = f"dual after {upcoming.number}".encode()
    return f"bytes of {upcoming.round_key}".encode()


def never(upcoming: Next) -> bytes:
    raise AssertionError("noise was drawn")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ann.ledger"


@pytest.fixture
def filled(path):
    """Four releases, two of them accepted, and the dual."""
    with Ledger.create(path, "ann", POLICY) as ledger:
        for round in range(4):
            ledger.release(f"r{round}", 0.2, payload)
        ledger.confirm("r0")
        ledger.confirm("r2")
    return path


def test_a_release_follows_the_policy_by_release_number(path):
    with Ledger.create(path, "ann", POLICY) as ledger:
        seen = []
        for round in (900, 17):  # the server's round does not matter: only the client's own count does
            ledger.release(f"r{round}", 0.2, lambda upcoming: (seen.append(upcoming), b"x")[1])
        assert [upcoming.number for upcoming in seen] == [1, 2]
        assert [upcoming.phi for upcoming in seen] == pytest.approx([1e-3 / 0.9, 1e-3 / 0.81])
        assert seen[1].sigma == pytest.approx(0.2 / np.sqrt(2 * seen[1].phi))
        assert ledger.rho == pytest.approx(float(accounting.rho_total(1e-3, 0.9, 2)), rel=1e-14)
        assert ledger.epsilon() == pytest.approx(float(accounting.exact_epsilon(ledger.rho, 1e-5)))
        assert ledger.epsilon(1e-3) < ledger.epsilon()
        ledger.verify()


def test_a_retry_returns_the_same_bytes_and_spends_nothing(path):
    with Ledger.create(path, "ann", POLICY) as ledger:
        first = ledger.release("r1", 0.2, payload)
        again = ledger.release("r1", 99.0, never)
    with Ledger.open(path, "ann") as ledger:
        later = ledger.release("r1", -1.0, never)
        assert ledger.count == 1
    assert first.payload == again.payload == later.payload
    assert first.rho == again.rho == later.rho
    assert (first.repeated, again.repeated, later.repeated) == (False, True, True)


def test_past_the_budget_nothing_is_drawn_and_retries_still_work(path):
    with Ledger.create(path, "ann", POLICY) as ledger:
        for round in range(5):
            ledger.release(f"r{round}", 0.2, payload)
        with pytest.raises(BudgetSpent, match=r"all 5 releases"):
            ledger.release("r5", 0.2, never)
        assert ledger.release("r4", 0.2, never).payload == b"bytes of r4"
        assert ledger.count == 5
        assert ledger.summary()["spent"]


def test_a_budget_in_rho_stops_before_it_is_passed(path):
    policy = Policy(phi0=1e-3, zeta=0.9, delta=1e-5, rho_budget=4e-3)
    with Ledger.create(path, "ann", policy) as ledger:
        for round in range(3):
            ledger.release(f"r{round}", 0.2, payload)
        with pytest.raises(BudgetSpent, match="rho is"):
            ledger.release("r3", 0.2, never)
        assert ledger.rho <= 4e-3 < ledger.rho + 1e-3 / 0.9**4


@pytest.mark.parametrize("zeta", [1.0, 0.99])
def test_a_target_allows_all_its_releases_and_holds(path, zeta):
    policy = Policy.from_target(epsilon=1.0, delta=1e-6, max_releases=30, zeta=zeta)
    with Ledger.create(path, "ann", policy) as ledger:
        for round in range(30):
            ledger.release(f"r{round}", 0.2, payload)
        assert 1 - 1e-8 < ledger.epsilon(1e-6) <= 1.0
        with pytest.raises(BudgetSpent):
            ledger.release("r30", 0.2, never)


def test_state_is_stored_with_the_release_or_not_at_all(path):
    with Ledger.create(path, "ann", POLICY) as ledger:
        ledger.release("r1", 0.2, payload)

        def fails(upcoming):
            upcoming.state["dual"] = b"half done"
            raise RuntimeError("the solver gave up")

        with pytest.raises(RuntimeError):
            ledger.release("r2", 0.2, fails)
        assert (ledger.count, ledger.state("dual")) == (1, b"dual after 1")
        with pytest.raises(LedgerError, match="bytes"):
            ledger.keep({"warm": b"w", "dual": "text"})
        assert ledger.state("warm") is None
        ledger.keep({"warm": b"w"})
        ledger.confirm("r1", {"dual": b"settled"})
        ledger.confirm("r1")
        assert ledger.accepted == 1
        assert [row.accepted for row in ledger.rows()] == [True]
    with Ledger.open(path, "ann") as ledger:
        assert (ledger.state("dual"), ledger.state("warm")) == (b"settled", b"w")
        with pytest.raises(LedgerError, match="no release"):
            ledger.confirm("r9")


@pytest.mark.parametrize("bad", [None, "text", b"", np.zeros(3)])
def test_a_release_must_be_bytes(path, bad):
    with Ledger.create(path, "ann", POLICY) as ledger:
        with pytest.raises(PrivacyError, match="bytes"):
            ledger.release("r1", 0.2, lambda upcoming: bad)
        assert ledger.count == 0


@pytest.mark.parametrize("sensitivity", [0.0, -1.0, np.nan, np.inf])
def test_no_release_without_a_sensitivity(path, sensitivity):
    with Ledger.create(path, "ann", POLICY) as ledger, pytest.raises(PrivacyError, match="sensitivity"):
        ledger.release("r1", sensitivity, never)


def test_numpy_numbers_and_integers_are_as_good_as_floats(path):
    with Ledger.create(path, "ann", POLICY) as ledger:
        ledger.release("r1", np.float32(0.5), payload)
        ledger.release("r2", 1, payload)
        ledger.verify()


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
        ledger.release("r1", 0.2, payload)
        ledger.release("r2", 0.2, payload, accepted=["r1"])
        with pytest.raises(LedgerError, match="no release for round r7"):
            ledger.release("r3", 0.2, payload, accepted=["r2", "r7"])
        assert [row.accepted for row in ledger.rows()] == [True, False]
        ledger.verify()


def test_open_or_create_begins_one(path):
    path.touch()
    with Ledger.open_or_create(path, "ann", POLICY) as ledger:
        assert ledger.count == 0


@pytest.mark.parametrize("content", [None, b""])
def test_no_ledger(path, content):
    if content is not None:
        path.write_bytes(content)
    for call in (lambda: Ledger.open(path, "ann"), lambda: Ledger.read(path)):
        with pytest.raises(LedgerError, match="no ledger"):
            call()


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
        for call in (Ledger.read, lambda p: Ledger.open(p, "ann"), lambda p: Ledger.create(p, "ann", POLICY)):
            with pytest.raises(LedgerError, match="pgfl ledger"):
                call(path)
        assert path.read_bytes() == before


def test_a_newer_format_is_refused(filled):
    _edit(filled, "UPDATE about SET format = 2")
    with pytest.raises(LedgerError, match="newer one"):
        Ledger.open(filled, "ann")


def _edit(path, *statements):
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
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
}


@pytest.mark.parametrize("statements", TAMPERINGS.values(), ids=TAMPERINGS.keys())
def test_tampering_is_found(filled, statements):
    with Ledger.read(filled) as ledger:
        ledger.verify()
    _edit(filled, *statements)
    with pytest.raises(LedgerError) as refusal:
        Ledger.read(filled).verify()
    assert "\n" not in str(refusal.value)
    with pytest.raises(LedgerError):
        Ledger.open(filled, "ann")


def test_a_row_that_breaks_the_policy_is_found_even_with_its_digest_right(filled):
    """Every digest recomputed over a halved φ: the chain is whole, but the row is not what the policy makes of it."""
    with Ledger.read(filled) as ledger:
        digest, rho, changes = ledger._root, 0.0, []
        for row in ledger.rows():
            phi = row.phi / 2 if row.number == 2 else row.phi
            rho += phi
            digest = _digest(digest, row.number, row.round_key, phi, rho, row.sensitivity, row.sigma, row.payload)
            mark = _digest(digest, "accepted") if row.accepted else None
            changes.append((phi, rho, digest, mark, row.number))
    connection = sqlite3.connect(filled, isolation_level=None)
    connection.executemany("UPDATE releases SET phi = ?, rho = ?, digest = ?, accepted = ? WHERE number = ?", changes)
    connection.execute("UPDATE head SET digest = ?", (digest,))
    connection.close()
    with pytest.raises(LedgerError, match="release 2 was altered"):
        Ledger.open(filled, "ann")


def test_damage_anywhere_in_the_file_is_found_or_harms_nothing(filled, tmp_path):
    """Bytes overwritten in every part of the file: refused in one sentence, or every figure still as it was."""
    whole = filled.read_bytes()
    with Ledger.open(filled, "ann") as ledger:
        rows, rho = ledger.rows(), ledger.rho
    damaged = tmp_path / "damaged"
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


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.95])
def test_a_truncated_file_is_refused(filled, keep):
    whole = filled.read_bytes()
    filled.write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(LedgerError):
        Ledger.open(filled, "ann")


def test_a_ledger_put_back_from_a_backup_is_found(path, tmp_path):
    backup = tmp_path / "backup"
    with Ledger.create(path, "ann", POLICY) as ledger:
        ledger.release("r1", 0.2, payload)
    shutil.copy(path, backup)
    with Ledger.open(path, "ann") as ledger:
        ledger.release("r2", 0.2, payload)
        known_by_the_site = ledger.count
        ledger.check_known(known_by_the_site)
    shutil.copy(backup, path)
    with Ledger.open(path, "ann") as ledger:
        ledger.check_known(1)
        with pytest.raises(LedgerError, match="backup"):
            ledger.check_known(known_by_the_site)


def test_a_commit_is_synced_before_it_returns(filled):
    """One sync of a log (WAL, FULL = 2); with NORMAL a power cut could undo a release that was already sent."""
    with Ledger.open(filled, "ann") as ledger:
        told = [ledger._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    assert told == ["wal", 2]


def test_at_rest_a_ledger_is_one_file(filled):
    assert {file.name for file in filled.parent.iterdir()} <= {"ann.ledger", "ann.ledger.lock"}


@pytest.mark.parametrize("looked_at", [False, True])
def test_a_copy_without_its_log_is_refused_and_again(filled, tmp_path, looked_at):
    """Killed, then moved without the log: the last release would be forgotten."""
    subprocess.run([sys.executable, "-c", _KILLED, str(filled)], check=False)
    moved = tmp_path / "moved"
    shutil.copy(filled, moved)
    for _ in range(2):
        if looked_at:
            with Ledger.read(moved) as ledger, pytest.raises(LedgerError, match="lacks its log"):
                ledger.verify()
        with pytest.raises(LedgerError, match="lacks its log"):
            Ledger.open(moved, "ann")
        with pytest.raises(LedgerError, match="lacks its log"):
            Ledger.open_or_create(moved, "ann", POLICY)
    shutil.copy(f"{filled}-wal", f"{moved}-wal")
    for ledger in (Ledger.read(filled), Ledger.open(filled, "ann"), Ledger.open(moved, "ann")):
        with ledger:
            assert ledger.count == 5


def test_a_refusal_after_a_crash_takes_nothing_away(filled):
    subprocess.run([sys.executable, "-c", _KILLED, str(filled)], check=False)
    with pytest.raises(LedgerError, match="not of bob"):
        Ledger.open(filled, "bob")
    with Ledger.open(filled, "ann") as ledger:
        assert ledger.count == 5


def test_a_reader_that_closes_last_leaves_a_ledger_that_opens(filled):
    ledger = Ledger.open(filled, "ann")
    with Ledger.read(filled) as reader:
        ledger.release("r9", 0.2, payload)
        assert reader.count == 5
        ledger.close()
        assert reader.count == 5
    with Ledger.open(filled, "ann") as ledger:
        assert ledger.count == 5
    test_at_rest_a_ledger_is_one_file(filled)


def test_no_room_to_close_leaves_a_ledger_that_opens(filled):
    ledger = Ledger.open(filled, "ann")
    ledger.release("r9", 0.2, payload)
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
    from pgfl.privacy.ledger import Ledger
    ledger = Ledger.open(sys.argv[1], "ann")
    ledger.release("held", 0.2, lambda upcoming: b"held")
    print("open", flush=True)
    sys.stdin.read()
""")


_KILLED = textwrap.dedent("""
    import os, signal, sys
    from pgfl.privacy.ledger import Ledger
    Ledger.open(sys.argv[1], "ann").release("last", 0.2, lambda upcoming: b"last")
    os.kill(os.getpid(), signal.SIGKILL)
""")


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
            lambda: reader.release("r9", 0.2, never),
            lambda: reader.confirm("r1"),
            lambda: reader.keep({"dual": b""}),
        ):
            with pytest.raises(LedgerError, match="read"):
                call()


def test_a_slow_reader_does_not_stop_the_client(filled):
    with Ledger.open(filled, "ann") as ledger, Ledger.read(filled) as reader:
        rows = iter(reader.rows())
        next(rows)
        ledger.release("r9", 0.2, payload)
        assert reader.count == 5


def test_a_ledger_is_verified_as_of_one_moment_while_its_client_releases(filled):
    with Ledger.open(filled, "ann") as ledger, Ledger.read(filled) as reader:
        reader._connection.set_trace_callback(
            lambda statement: ledger.release("meanwhile", 0.2, payload) if "FROM state" in statement else None
        )
        reader.verify()
        assert ledger.count == 5


def test_threads_of_one_process_release_one_after_the_other(path):
    policy = Policy(phi0=1e-3, zeta=1.0, delta=1e-5, max_releases=40)
    with Ledger.create(path, "ann", policy) as ledger:
        work = [threading.Thread(target=ledger.release, args=(f"r{i % 20}", 0.2, payload)) for i in range(40)]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
        assert ledger.count == 20
        ledger.verify()


def test_a_full_disk_is_one_sentence_and_the_old_state(filled):
    with Ledger.open(filled, "ann") as ledger:
        before = ledger.rows()
        pages = ledger._connection.execute("PRAGMA page_count").fetchone()[0]
        ledger._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(LedgerError, match="nothing was released; make room"):
            ledger.release("r9", 0.2, lambda upcoming: os.urandom(100_000))
        assert ledger.rows() == before
        ledger._connection.execute("PRAGMA max_page_count = 1000000")
        assert ledger.release("r9", 0.2, payload).number == 5


@pytest.mark.parametrize("room", [0, 600, 5000, 40_000, 60_000])
def test_a_write_that_fails_at_any_size_leaves_the_old_state(filled, room):
    """The system refuses to let files grow past a limit: in the journal, in the ledger, in the commit."""
    with Ledger.open(filled, "ann") as ledger:
        before = ledger.rows()
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
        try:
            with pytest.raises(LedgerError, match="nothing was released"):
                ledger.release("r9", 0.2, lambda upcoming: bytes(100_000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert ledger.rows() == before
        ledger.verify()
        assert ledger.release("r9", 0.2, payload).number == 5


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
        told = json.loads(json.dumps(ledger.summary()))
        row = json.loads(json.dumps(ledger.rows()[2].described()))
    assert (told["client"], told["releases"], told["accepted"], told["spent"]) == ("ann", 4, 2, False)
    assert told["epsilon"] < told["epsilon_paper"]
    assert (row["number"], row["round_key"], row["accepted"], row["bytes"]) == (3, "r2", True, 11)
