"""`pgfl run --resume` of a float-safe run: its rounds are released once, wherever copies of its folder are."""

import fcntl
import shutil
import signal
import threading

import numpy as np
import pytest

from pgfl import Result
from pgfl.errors import PrivacyError
from pgfl.results import state as continued_once
from pgfl.results import state as resumed_once
from pgfl.results.state import NOTE, STATE, Owner, claim, note_checkpoint, user_folder
from pgfl.simulate.simulator import Simulator
from tests.cli.test_continue import CONFIG, PRIVATE, ran, write_table
from tests.command_line import refused, run

EVERY = ("--set", "checkpoint_every=2", "--set", "algorithm.participants=all")
SECURE = ("--set", "privacy.noise=secure")


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    write_table(tmp_path / "clients.csv")
    (tmp_path / "private.toml").write_text(CONFIG + PRIVATE)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what is started in the background
    yield tmp_path
    signal.signal(signal.SIGINT, before)


class Killed(BaseException):
    """The end of a process that leaves no time for a checkpoint."""


def begin(place, stop, *options, killed=False):
    """Start or resume a run in `first` that is interrupted in round `stop`, or killed after it."""

    def interrupted(self):
        if killed and self.state.round == stop:
            raise Killed
        if not killed and self.state.round == stop - 1:
            signal.raise_signal(signal.SIGINT)
        return play(self)

    play = Simulator.run_round
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Simulator, "run_round", interrupted)
        if killed:
            with pytest.raises(Killed):
                run("run", *options, "--out", place / "first")
        else:
            assert run("run", *options, "--out", place / "first").code == 130


def copy(place, name):
    shutil.copytree(place / "first", place / name)
    return place / name


def test_a_copy_of_an_interrupted_run_is_not_resumed_beside_it(place):
    """Two models of the same rounds, and each said ε = 2.0."""
    begin(place, 3, place / "private.toml", *EVERY, *SECURE)
    copied = copy(place, "copy")
    summary = ran("--resume", "--out", place / "first")
    assert summary["privacy"]["epsilon"]["worst"] <= 2.0 * (1 + 1e-9)
    sentence = refused("run", "--resume", "--out", copied)
    assert f"already resumed in {(place / 'first').resolve()}" in sentence
    shutil.rmtree(place / "first")
    shutil.move(copied, place / "first")  # the older state, put back in its place
    assert "was already resumed" in refused("run", "--resume", "--out", place / "first")


def test_a_copy_made_while_a_run_goes_on_is_not_resumed(place):
    """The run itself was never resumed; after a kill it has gone on from its last checkpoint, too."""
    begin(place, 3, place / "private.toml", *EVERY, *SECURE, killed=True)
    copied = copy(place, "copy")
    assert f"already resumed in {(place / 'first').resolve()}" in refused("run", "--resume", "--out", copied)
    ran("--resume", "--out", place / "first")  # what was lost between two checkpoints is played again where it was


def test_a_run_is_interrupted_and_resumed_as_often_as_one_likes(place):
    begin(place, 1, place / "private.toml", *EVERY, *SECURE)
    for stop in (2, 4):
        begin(place, stop, "--resume")
    ran("--resume", "--out", place / "first")
    assert Result.load(place / "first").privacy[0]["releases"].tolist() == [6] * 4


def test_an_interrupted_run_may_be_moved(place):
    begin(place, 3, place / "private.toml", *EVERY, *SECURE)
    shutil.move(place / "first", place / "moved")
    ran("--resume", "--out", place / "moved")


def test_an_older_checkpoint_is_not_put_back_under_a_newer_one(place):
    begin(place, 2, place / "private.toml", *EVERY, *SECURE)
    copied = copy(place, "copy")
    begin(place, 4, "--resume")
    shutil.rmtree(place / "first")
    shutil.move(copied, place / "first")
    assert "was already resumed" in refused("run", "--resume", "--out", place / "first")


def test_a_run_that_is_resumed_without_further_checkpoints_is_over_all_the_same(place):
    begin(place, 3, place / "private.toml", *EVERY, *SECURE)
    copied = copy(place, "copy")
    ran("--resume", "--set", "checkpoint_every=0", "--out", place / "first")
    shutil.rmtree(place / "first")
    shutil.move(copied, place / "first")
    assert "was already resumed" in refused("run", "--resume", "--out", place / "first")


def test_a_run_that_goes_on_is_not_resumed_beside_itself(place, monkeypatch):
    """Two processes in one folder: each would release other models of the same rounds."""
    said, play = [], Simulator.run_round

    def resumed_meanwhile(self):
        if self.state.round == 3:
            monkeypatch.setattr(Simulator, "run_round", play)
            said.append(run("run", "--resume", "--out", place / "first"))
        return play(self)

    monkeypatch.setattr(Simulator, "run_round", resumed_meanwhile)
    ran(place / "private.toml", *EVERY, *SECURE, "--out", place / "first")
    assert said[0].code == 2 and "goes on in another process" in said[0].err


def test_a_continuation_is_not_begun_again_where_it_was_once_anything_of_it_is_kept(place):
    """Its folder is moved away; begun anew, it would release other models of the same rounds."""
    ran(place / "private.toml", *EVERY, *SECURE, "--rounds", 2, "--out", place / "start")
    again = ("--continue", place / "start", "--set", "privacy.epsilon=4.0", "--rounds", 4)
    begin(place, 3, *again, killed=True)  # after a round, and before its first checkpoint
    assert not (place / "first").exists()
    begin(place, 4, *again)
    for kept in ("interrupted", "ended"):
        shutil.move(place / "first", place / kept)
        sentence = refused("run", *again, "--out", place / "first")
        assert f"already continued in {(place / 'first').resolve()}" in sentence
        shutil.move(place / kept, place / "first")
        assert ran("--resume", "--out", place / "first")["rounds"] == 6


def test_a_continuation_is_not_begun_twice_at_once_in_one_place(place, monkeypatch):
    ran(place / "private.toml", *EVERY, *SECURE, "--rounds", 2, "--out", place / "start")
    again = ("--continue", place / "start", "--set", "privacy.epsilon=4.0", "--rounds", 4, "--out", place / "first")
    said, play = [], Simulator.run_round

    def begun_meanwhile(self):
        if self.state.round == 3:
            monkeypatch.setattr(Simulator, "run_round", play)
            shutil.move(place / "first", place / "aside")
            said.append(run("run", *again))
            shutil.move(place / "aside", place / "first")
        return play(self)

    monkeypatch.setattr(Simulator, "run_round", begun_meanwhile)
    ran(*again)
    assert said[0].code == 2 and "goes on in another process" in said[0].err


def test_seeded_runs_repeat_themselves_and_are_resumed_anywhere(place):
    begin(place, 3, place / "private.toml", *EVERY)
    copied = copy(place, "copy")
    ran("--resume", "--out", place / "first")
    ran("--resume", "--out", copied)
    one, other = Result.load(place / "first"), Result.load(copied)
    np.testing.assert_array_equal(one.models[0].servers, other.models[0].servers)


def test_where_it_cannot_be_noted_a_run_does_not_go_on(place, monkeypatch):
    begin(place, 3, place / "private.toml", *EVERY, *SECURE)
    (place / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "file"))
    assert "set XDG_STATE_HOME" in refused("run", "--resume", "--out", place / "first")


# ------------------------------------------------------------------------------------------------------------- the note


def test_of_many_that_resume_at_once_one_does(place):
    """Copies of one run, resumed by as many threads."""
    folders, outcomes, start = [place / f"copy-{n}" for n in range(8)], [], threading.Barrier(8)

    def resume(folder):
        start.wait()
        try:
            note_checkpoint("run", 3, folder)
            outcomes.append(folder)
        except PrivacyError:
            pass

    threads = [threading.Thread(target=resume, args=(folder,)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 1


def test_a_note_is_read_and_written_under_one_lock(place, monkeypatch):
    """While one has read the note, another waits; without the lock it would have finished."""
    waiting, second, refused_second = threading.Event(), [], []

    def resume_second():
        try:
            note_checkpoint("run", 3, place / "second")
        except PrivacyError:
            refused_second.append(True)

    def locked(file, how):
        if threading.current_thread() in second:
            waiting.set()
        return flock(file, how)

    def read(text):
        if not second:
            second.append(threading.Thread(target=resume_second))
            second[0].start()
            while second[0].is_alive() and not waiting.is_set():
                second[0].join(0.001)
        return last(text)

    flock, last = fcntl.flock, resumed_once._last
    monkeypatch.setattr(resumed_once.fcntl, "flock", locked)
    monkeypatch.setattr(resumed_once, "_last", read)
    note_checkpoint("run", 3, place / "first")
    second[0].join()
    assert refused_second == [True]


def test_a_claim_is_read_and_written_under_one_lock(place, monkeypatch):
    """Of two that continue a run at once, the second waits, and is refused."""
    waiting, second, refused_second = threading.Event(), [], []
    (place / "start").mkdir()
    (place / "start" / STATE).write_bytes(b"state")

    def claim_second():
        try:
            claim(place / "start", Owner("second", "2"))
        except PrivacyError as error:
            refused_second.append(str(error))

    def locked(file, how):
        if threading.current_thread() in second:
            waiting.set()
            return flock(file, how)
        flock(file, how)
        if not second:
            second.append(threading.Thread(target=claim_second))
            second[0].start()
            while second[0].is_alive() and not waiting.is_set():
                second[0].join(0.001)

    flock = fcntl.flock
    monkeypatch.setattr(continued_once.fcntl, "flock", locked)
    claim(place / "start", Owner("first", "1"))
    second[0].join()
    assert "already continued in first" in refused_second[0]
    for note in (place / "start" / NOTE, *user_folder("continued").iterdir()):
        assert note.read_text() == "first\n1\n"


def test_a_line_that_a_kill_cut_short_was_not_followed_by_a_release(place):
    note_checkpoint("run", 2, place)
    with open(user_folder("resumed") / "run", "a") as note:
        note.write("4 /else")
    note_checkpoint("run", 2, place)


def test_a_second_run_on_a_table_is_told_of_the_first_and_that_what_they_spend_adds_up(place):
    """Neither knows of the other's account; whoever continues or resumes the first one has one account of all."""

    def said(*arguments, options=SECURE):
        found = run("run", *arguments, *options)
        assert found.code == 0, found.err
        return [line for line in found.err.splitlines() if "adds up" in line]

    begin(place, 3, place / "private.toml", *EVERY, *SECURE)
    assert said("--resume", "--out", place / "first", options=()) == []
    assert said(place / "private.toml", "--out", place / "simulated", options=()) == []  # noise = "seeded"
    (line,) = said(place / "private.toml", "--out", place / "second")
    assert f"clients.csv was trained on before, in {place / 'first'}, and what every run spends" in line
    more = ("--set", "privacy.epsilon=3.0", "--rounds", "2")
    assert said("--continue", place / "second", "--out", place / "third", options=more) == []
    (line,) = said(place / "private.toml", "--out", place / "fourth")
    assert f"3 times, last in {place / 'third'}" in line
    shutil.copy(place / "clients.csv", place / "other.csv")  # notes go by the place of a table, not by its records
    other = (place / "private.toml", "--set", f"data.table={place / 'other.csv'}")
    refused(
        "run", *other, "--set", "data.target=nothing", *SECURE, "--out", place / "fifth"
    )  # and so has spent nothing
    assert said(*other, "--out", place / "fifth") == []
