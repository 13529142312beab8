"""What several threads use at a time: each lock, held apart from the others until it matters."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest

from pgfl.network.site.store import SiteStore
from pgfl.simulate.draws import ServerNormals
from pgfl.studio import workers as kernels
from pgfl.studio.workers import PAGES, Workers
from tests.contest import Contest

THREADS = 4
PATIENCE = 20.0
MOMENT = 0.1  # for a thread that nothing keeps from doing wrong


@pytest.fixture
def eager():
    """Threads take turns as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(work):
    """Call it with 0, 1, … in threads; the first error is raised."""
    with ThreadPoolExecutor(THREADS) as pool:
        return [done.result() for done in [pool.submit(work, number) for number in range(THREADS)]]


class Watched:
    """Says when two threads are in it at a time."""

    def __init__(self):
        self._inside = threading.Lock()

    def alone(self, work):
        assert self._inside.acquire(blocking=False), "two threads at a time"
        try:
            time.sleep(0.0)  # let others try
            return work()
        finally:
            self._inside.release()


def test_a_thread_of_a_site_waits_for_another_ones_transaction(tmp_path):
    """The inviter's thread gives out tokens while the loop saves rounds; a failure takes back its own changes only."""
    with closing(SiteStore(tmp_path / "site.db")) as store:
        inside, other = threading.Event(), []

        def fail_after_writing():
            with store._transaction():
                store._db.execute("INSERT INTO facts (name, value) VALUES ('first', 'undone')")
                inside.set()
                thread.join(MOMENT)
                raise KeyError("planted")

        def remember():
            inside.wait(PATIENCE)
            try:
                store.remember("second", "kept")
            except BaseException as error:
                other.append(error)

        thread = threading.Thread(target=remember)
        thread.start()
        with pytest.raises(KeyError):
            fail_after_writing()
        thread.join(PATIENCE)
        assert not other
        assert (store.fact("first"), store.fact("second")) == (None, "kept")


def test_a_site_remembers_what_many_threads_tell_it(tmp_path, eager):
    with closing(SiteStore(tmp_path / "site.db")) as store:

        def remember(number):
            for each in range(10):
                store.remember(f"{number} {each}", "kept")
                assert store.fact(f"{number} {each}") == "kept"

        in_threads(remember)
        assert all(store.fact(f"{number} {each}") == "kept" for number in range(THREADS) for each in range(10))


class Hesitant(ServerNormals):
    """Draws small blocks, and lets other threads go first whenever it looks at what it has kept."""

    @property
    def _cached(self):
        time.sleep(0.0002)
        return self._kept

    @_cached.setter
    def _cached(self, value):
        self._kept = value


def test_threads_that_draw_different_rounds_get_the_numbers_of_their_own(eager):
    layout = SimpleNamespace(client_server=np.repeat(np.arange(2), 2), server_keys=[(0, 0), (0, 1)], servers=2)
    clients = np.array([0, 2])

    def make(kind):
        normals = kind(layout, 1, seed=5)
        normals._rounds = 2
        return normals

    alone, shared = make(ServerNormals), make(Hesitant)
    expected = {round: alone(clients, round, 3).copy() for round in range(1, 2 * THREADS + 1)}

    def draw(number):
        for _ in range(5):
            for round in (2 * number + 1, 2 * number + 2):
                assert np.array_equal(shared(clients, round, 3), expected[round])

    in_threads(draw)


def test_requests_of_a_page_from_two_threads_get_numbers_of_their_own():
    class Numbers(list):
        """Starts the second thread between a look at a number and its change."""

        def __getitem__(self, page):
            number = super().__getitem__(page)
            contest.begin()
            return number

        def get_lock(self):
            return contest

    workers, given = Workers.__new__(Workers), []  # without its processes
    contest = Contest(threading.RLock(), lambda: given.append(workers.supersede(3)))
    workers._newest = Numbers([0] * PAGES)
    given.append(workers.supersede(3))
    contest.finish()
    assert sorted(given) == [1, 2]


def test_kernels_are_compiled_by_one_at_a_time(monkeypatch, eager):
    watched, lock = Watched(), threading.Lock()
    monkeypatch.setattr("pgfl.experiment.run", lambda config: watched.alone(lambda: time.sleep(0.0005)))
    monkeypatch.setattr(kernels, "_loaded", threading.Event())
    in_threads(lambda _: kernels.load(lock))
    assert kernels.loaded()
