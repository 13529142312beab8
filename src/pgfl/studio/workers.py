"""Processes that train for the page, so that it never waits; what is not wanted any more is given up."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from itertools import count
from multiprocessing.sharedctypes import SynchronizedArray
from typing import TYPE_CHECKING, Any

from pgfl.studio.kernels import load_behind

if TYPE_CHECKING:
    from pgfl.config import Config
    from pgfl.studio.played import Played

WORKERS = 2
PAGES = 256
"""As many open pages have a number of their own; with more, two pages may give up each other's trainings."""
_newest: Any = None


class Workers:
    """A few warm processes. A page takes a number, and a newer request of a page makes its older ones unwanted."""

    def __init__(self, workers: int = WORKERS) -> None:
        context = multiprocessing.get_context("spawn")
        self._newest: SynchronizedArray[int] = context.Array("Q", PAGES)
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the matrices are small, and there are several processes
        self._pool = ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(self._newest, context.Lock()))
        self._pages = count()
        for _ in range(workers):
            self._pool.submit(os.getpid)  # starts a process, which warms up

    def page(self) -> int:
        """A number for a new page."""
        return next(self._pages) % PAGES

    def supersede(self, page: int) -> int:
        """Make all earlier requests of a page unwanted; returns the number of the new ones."""
        with self._newest.get_lock():
            self._newest[page] += 1
            return int(self._newest[page])

    def current(self, page: int) -> int:
        """The number of the newest requests of a page."""
        return int(self._newest[page])

    async def play(self, page: int, number: int, config: Config, *, details: bool) -> Played | None:
        """A training; None if something newer was asked for meanwhile."""
        return await asyncio.wrap_future(self._pool.submit(_play, page, number, config, details))

    def close(self) -> None:
        """End the processes."""
        with self._newest.get_lock():
            for page in range(PAGES):
                self._newest[page] += 1
        self._pool.shutdown(wait=False, cancel_futures=True)


class NewestOnly:
    """Does one thing at a time; of what is asked for meanwhile, only the newest is done afterwards."""

    def __init__(self) -> None:
        self._waiting: Callable[[], Awaitable[None]] | None = None
        self._running = False

    async def ask(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do this as soon as what is being done has ended, unless something newer is asked for until then."""
        self._waiting = work
        if self._running:
            return
        self._running = True
        try:
            while self._waiting is not None:
                newest, self._waiting = self._waiting, None
                await newest()
        finally:
            self._running = False


def _begin(newest: SynchronizedArray[int], one_at_a_time: AbstractContextManager[Any]) -> None:
    """In a worker: remember what is wanted, leave Ctrl-C to the page's process, and load what every training needs."""
    import signal

    global _newest
    _newest = newest
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _warm()
    load_behind(one_at_a_time)


def _end_with_parent() -> None:
    """End when the page's process has ended, however it did: a pool whose owner was killed would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)


def _warm() -> None:
    """A training as small as possible, so that the first one of a user is not slowed down by imports."""
    from pgfl.config import parse
    from pgfl.studio.played import play

    tiny = {"servers": 2, "clients_per_server": 2, "dimension": 2, "clusters": 2}
    play(parse({"rounds": 2, "metrics": ["nmsd"], "data": tiny}))


def _play(page: int, number: int, config: Config, details: bool) -> Played | None:
    from pgfl.studio.played import Superseded, play

    if _newest[page] > number:
        return None
    try:
        return play(config, details=details, wanted=lambda: _newest[page] == number)
    except Superseded:
        return None
