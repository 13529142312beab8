"""A client is killed at a few hundred points of its work with the ledger, and the account stays true.

Two ways to be killed. By SIGKILL before or after any system call, which a parent counts with ptrace (Linux): that is
between any two writes, syncs and unlinks of opening, commit and closing. And by `os._exit` in the middle of an SQL
statement, at any step of SQLite's virtual machine (everywhere).
"""

import ctypes
import os
import shutil
import signal
import sys

import pytest

from pgfl.errors import LedgerError
from pgfl.privacy import accounting
from pgfl.privacy.ledger import Ledger, Policy

POLICY = Policy(phi0=1e-3, zeta=0.9, delta=1e-5, max_releases=9)
ROUNDS = ("r1", "r2")


def draw(upcoming):
    """Fresh randomness each time it is called, so that a second draw for the same round cannot go unnoticed."""
    released = os.urandom(480)
    upcoming.state["last"] = released
    return released


def work(path, wire, prepare=lambda ledger: None):
    """Release and send each round, as a client does: what is on the wire was sent."""
    with Ledger.open_or_create(path, "ann", POLICY) as ledger:
        prepare(ledger)
        for key in ROUNDS:
            release = ledger.release(key, 0.2, draw)
            os.write(wire, key.encode() + release.payload)
            ledger.confirm(key)


def check(path, wire):
    """What must hold after a kill, and after the client has come back and finished."""
    sent = read_wire(wire)
    look(path)
    with Ledger.open_or_create(path, "ann", POLICY) as ledger:
        rows = {row.round_key: row.payload for row in ledger.rows()}
        assert len(sent) <= ledger.count <= len(sent) + 1, "a release is lost, or counted twice"
        assert sent.items() <= rows.items(), "a release that was sent is not in the ledger as it was sent"
        assert ledger.rho == pytest.approx(
            float(accounting.rho_total(POLICY.phi0, POLICY.zeta, ledger.count)), rel=1e-12
        )
        assert ledger.state("last") == (rows[ROUNDS[ledger.count - 1]] if rows else None), "half a transaction"
        assert ledger.accepted in (ledger.count, ledger.count - 1)
    descriptor = os.open(wire, os.O_WRONLY | os.O_APPEND)
    work(path, descriptor)
    os.close(descriptor)
    for key, payload in rows.items():
        assert read_wire(wire)[key] == payload, "a retry sent other bytes"
    with Ledger.read(path) as ledger:
        assert ledger.count == len(ROUNDS)
        ledger.verify()


def look(path):
    """Somebody reads the ledger before its client is back, which must work and change nothing."""
    try:
        ledger = Ledger.read(path)
    except LedgerError as refusal:
        if "no ledger" not in str(refusal):
            raise
    else:
        with ledger:
            ledger.verify()


def read_wire(wire):
    """The first message sent for each round; a later one must be the same bytes."""
    raw, size, sent = wire.read_bytes(), 482, {}
    assert len(raw) % size == 0
    for start in range(0, len(raw), size):
        key, payload = raw[start : start + 2].decode(), raw[start + 2 : start + size]
        assert sent.setdefault(key, payload) == payload, "two different releases for one round"
    return sent


def spaced(points, among):
    """`points` numbers from 0 to `among`, evenly spread."""
    return sorted({round(i * among / (points - 1)) for i in range(points)})


@pytest.fixture
def scene(tmp_path):
    """A fresh place a time: a path without a ledger, and an empty wire."""

    def fresh():
        shutil.rmtree(tmp_path / "scene", ignore_errors=True)
        (tmp_path / "scene").mkdir()
        (tmp_path / "scene" / "wire").touch()
        return tmp_path / "scene" / "ann.ledger", tmp_path / "scene" / "wire"

    return fresh


# By system call ------------------------------------------------------------------------------------------------------

PTRACE_TRACEME, PTRACE_SYSCALL = 0, 24


LIBRARY = ctypes.CDLL(None, use_errno=True)


def ptrace(request, pid):
    words = ctypes.c_long(request), ctypes.c_int(pid), ctypes.c_void_p(), ctypes.c_void_p()
    if LIBRARY.ptrace(*words) != 0:
        raise OSError(ctypes.get_errno(), "ptrace is not allowed here, so the ledger cannot be tested")


def killed_at_call(path, wire, stops):
    """Run the client, kill it at its `stops`-th stop; return how many there were if it ended before that."""
    child = os.fork()
    if child == 0:
        try:
            descriptor = os.open(wire, os.O_WRONLY | os.O_APPEND)
            ptrace(PTRACE_TRACEME, 0)
            os.kill(os.getpid(), signal.SIGSTOP)
            work(path, descriptor)
        except BaseException:
            os._exit(1)
        os._exit(0)
    os.waitpid(child, 0)
    seen = 0
    while seen != stops:
        ptrace(PTRACE_SYSCALL, child)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            return seen
        seen += 1
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


if sys.platform == "linux":

    def test_killed_at_any_system_call(scene):
        total = killed_at_call(*scene(), stops=None)
        assert total > 300
        moments, unhurt = set(), 0
        for stops in spaced(160, total - 1):
            path, wire = scene()
            unhurt += killed_at_call(path, wire, stops) is not None  # a call for memory more or less
            moments.add((len(read_wire(wire)), os.path.exists(f"{path}-wal")))
            check(path, wire)
        assert moments == {(0, False), (0, True), (1, True), (2, True), (2, False)}
        assert unhurt <= 3


# By step of SQLite's virtual machine ---------------------------------------------------------------------------------


def killed_at_step(path, wire, steps):
    """Run the client, end it after so many steps of SQL; return how many there were if it ended before that."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        seen = 0

        def step():
            nonlocal seen
            if seen == steps:
                os._exit(9)
            seen += 1

        try:
            work(
                path,
                os.open(wire, os.O_WRONLY | os.O_APPEND),
                lambda led: led._connection.set_progress_handler(step, 1),
            )
            os.write(writer, str(seen).encode())
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    os.close(writer)
    answer = os.read(reader, 100)
    os.close(reader)
    assert os.WEXITSTATUS(status) == (0 if answer else 9)
    return int(answer) if answer else None


def test_killed_in_the_middle_of_a_statement(scene):
    total = killed_at_step(*scene(), steps=None)
    assert total > 200
    for steps in spaced(140, total - 1):
        path, wire = scene()
        assert killed_at_step(path, wire, steps) is None
        check(path, wire)


# The check can fail --------------------------------------------------------------------------------------------------


class Forgetful(Ledger):
    """Sends before it writes down: what a ledger must not do."""

    def release(self, round_key, sensitivity, make):
        release = super().release(round_key, sensitivity, make)
        self._connection.execute("DELETE FROM releases WHERE number = ?", (release.number,))
        self._connection.execute("UPDATE head SET releases = releases - 1, kept = 0, digest = ?", (self._root,))
        self._connection.execute("DELETE FROM state")
        return release


def test_the_check_finds_a_ledger_that_forgets(scene):
    path, wire = scene()
    with Forgetful.create(path, "ann", POLICY) as ledger:
        wire.write_bytes(b"r1" + ledger.release("r1", 0.2, draw).payload)
    with pytest.raises(AssertionError, match="lost"):
        check(path, wire)


def test_the_check_finds_a_retry_that_draws_again(scene):
    path, wire = scene()
    with Ledger.create(path, "ann", POLICY) as ledger:
        ledger.release("r1", 0.2, draw)
        wire.write_bytes(b"r1" + os.urandom(480))
    with pytest.raises(AssertionError, match="as it was sent"):
        check(path, wire)
