"""A client is killed at a few hundred points of its work with the ledger, and the account stays true.

Two ways to be killed. By SIGKILL before or after any system call, which a parent counts with ptrace (Linux): that is
between any two writes, syncs and unlinks of creation, opening, charge, anchor, payload and closing. And by `os._exit`
in the middle of an SQL statement, at any step of SQLite's virtual machine (everywhere).

Clients are forked from a process that does nothing else: one that has run other tests is large, and has threads.
"""

import ctypes
import os
import shutil
import signal
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from pgfl.errors import LedgerError
from pgfl.privacy import accounting
from pgfl.privacy.ledger import anchor
from pgfl.privacy.ledger.ledger import Ledger
from pgfl.privacy.ledger.rows import Policy
from tests.command_line import finish, start

POLICY = Policy(phi0=1e-3, zeta=0.9, delta=1e-5, max_releases=9)
ROUNDS = ("r1", "r2")
AT_REST = {"ann.ledger", "ann.ledger.anchor", "ann.ledger.lock", "wire"}
# Releases sent, charged and filled when it was killed: every state that there is, and nothing else.
STATES = {(0, 0, 0), (0, 1, 0), (0, 1, 1), (1, 1, 1), (1, 2, 1), (1, 2, 2), (2, 2, 2)}


def drawn():
    """Fresh randomness each time it is called, so that a second draw for the same round cannot go unnoticed."""
    return os.urandom(480)


def release(ledger, key):
    """The bytes for a round, as a client has them: the stored ones, or new ones that are paid for first.

    None for a void round, which is never made anew.
    """
    known = ledger.find(key)
    if known is not None:
        return known.payload or None
    with ledger.reserve(key, 0.2) as slot:
        slot.payload = slot.state["last"] = drawn()
    return slot.payload


def work(path, wire, prepare=lambda ledger: None):
    """Release and send each round, as a client does: what is on the wire was sent."""
    with Ledger.open_or_create(path, "ann", POLICY) as ledger:
        prepare(ledger)
        for key in ROUNDS:
            payload = release(ledger, key)
            if payload is not None:
                os.write(wire, key.encode() + payload)
                ledger.confirm(key)


def check(path, wire):
    """What must hold after a kill, and after the client has come back and finished; tells what it found."""
    sent = read_wire(wire)
    look(path)
    with Ledger.open_or_create(path, "ann", POLICY) as ledger:
        rows = {row.round_key: row.payload for row in ledger.rows()}
        filled = {key: payload for key, payload in rows.items() if payload}
        assert len(sent) <= ledger.count <= len(sent) + 1, "a release is lost, or counted twice"
        assert sent.items() <= filled.items(), "a release that was sent is not in the ledger as it was sent"
        assert ledger.rho == pytest.approx(
            float(accounting.rho_total(POLICY.phi0, POLICY.zeta, ledger.count)), rel=1e-12
        )
        assert ledger.state("last") == (list(filled.values())[-1] if filled else None), "half a transaction"
        assert ledger.accepted in (len(filled), len(filled) - 1)
        assert anchor.read(path).releases == ledger.count, "the anchor does not follow"
    descriptor = os.open(wire, os.O_WRONLY | os.O_APPEND)
    work(path, descriptor)
    os.close(descriptor)
    for key, payload in rows.items():
        assert read_wire(wire).get(key, b"") == payload, "a retry sent other bytes, or a void round was made anew"
    with Ledger.read(path) as ledger:
        assert ledger.count == len(ROUNDS)
        assert ledger.summary()["void"] == len(rows) - len(filled)
        ledger.verify()
    assert {file.name for file in path.parent.iterdir()} <= AT_REST, "something is left lying about"
    return len(sent), len(rows), len(filled)


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
    for place in range(0, len(raw), size):
        key, payload = raw[place : place + 2].decode(), raw[place + 2 : place + size]
        assert sent.setdefault(key, payload) == payload, "two different releases for one round"
    return sent


def spaced(points, among):
    """`points` numbers from 0 to `among`, evenly spread."""
    return sorted({round(i * among / (points - 1)) for i in range(points)})


@contextmanager
def scenes():
    """A fresh place a time: a path without a ledger, and an empty wire. In memory: a process dies here, not a disk."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        place = Path(folder) / "scene"

        def fresh():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            (place / "wire").touch()
            return place / "ann.ledger", place / "wire"

        yield fresh


@pytest.fixture
def scene():
    with scenes() as fresh:
        yield fresh


def alone(killing):
    """Call a function of this file in a process of its own."""
    done = finish(start(sys.executable, "-c", f"from {__name__} import {killing.__name__} as killing; killing()"))
    assert done.returncode == 0, done.stderr


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


def kill_at_system_calls():
    moments, states, unhurt = set(), set(), 0
    with scenes() as scene:
        total = killed_at_call(*scene(), stops=None)
        assert total > 300
        for stops in spaced(200, total - 1):
            path, wire = scene()
            unhurt += killed_at_call(path, wire, stops) is not None  # a call for memory more or less
            moments.add((len(read_wire(wire)), os.path.exists(f"{path}-wal")))
            behind = anchored(path)
            states.add((*check(path, wire), behind))
    assert moments == {(0, False), (0, True), (1, True), (2, True), (2, False)}, moments
    assert {state[:3] for state in states} == STATES, states
    assert {(0, 1, 0, 0), (1, 2, 1, 1)} & states, "none was killed between a charge and its anchor"
    assert unhurt <= 3, unhurt


if sys.platform == "linux":

    @pytest.mark.forks
    def test_killed_at_any_system_call():
        alone(kill_at_system_calls)


def anchored(path):
    """How many releases the anchor knows of at this moment."""
    noted = anchor.read(path)
    return 0 if noted is None else noted.releases


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


def kill_in_statements():
    states = set()
    with scenes() as scene:
        total = killed_at_step(*scene(), steps=None)
        assert total > 200
        for steps in spaced(140, total - 1):
            path, wire = scene()
            assert killed_at_step(path, wire, steps) is None
            states.add(check(path, wire))
    assert states >= {(0, 0, 0), (0, 1, 0), (1, 1, 1), (1, 2, 1), (2, 2, 2)}, states


@pytest.mark.proof
@pytest.mark.forks
def test_killed_in_the_middle_of_a_statement():
    alone(kill_in_statements)


# The check can fail --------------------------------------------------------------------------------------------------


def sent_and(path, wire, mischief):
    """One release on the wire, and then somebody does this to the ledger."""
    with Ledger.create(path, "ann", POLICY) as ledger:
        wire.write_bytes(b"r1" + release(ledger, "r1"))
        mischief(ledger)


def forget(ledger):
    """A charge that is given back."""
    ledger._connection.execute("DELETE FROM releases")
    ledger._connection.execute("UPDATE head SET releases = 0, filled = 0, kept = 0, digest = ?", (ledger._root,))
    ledger._connection.execute("DELETE FROM state")
    anchor.begin(ledger.path, anchor.Anchor(ledger._root, 0, ledger._root))


def empty(ledger):
    """A charge without the bytes that were sent."""
    ledger._connection.execute("UPDATE releases SET payload = NULL, seal = NULL")
    ledger._connection.execute("UPDATE head SET filled = 0")


@pytest.mark.parametrize(("mischief", "found"), [(forget, "lost"), (empty, "as it was sent")])
def test_the_check_finds_a_ledger_that_forgets(scene, mischief, found):
    path, wire = scene()
    sent_and(path, wire, mischief)
    with pytest.raises(AssertionError, match=found):
        check(path, wire)


def test_the_check_finds_a_retry_that_draws_again(scene, monkeypatch):
    path, wire = scene()
    with Ledger.create(path, "ann", POLICY) as ledger:
        release(ledger, "r1")
        wire.write_bytes(b"r1" + drawn())
    with pytest.raises(AssertionError, match="as it was sent"):
        check(path, wire)


def test_the_check_finds_a_void_round_made_anew(scene, monkeypatch):
    path, wire = scene()
    with Ledger.create(path, "ann", POLICY) as ledger, ledger.reserve("r1", 0.2):
        pass
    again = release
    monkeypatch.setitem(globals(), "release", lambda ledger, key: again(ledger, key) or drawn())
    with pytest.raises(AssertionError, match="made anew"):
        check(path, wire)
