"""Run experiments on a few processes, each once, and keep what was measured."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Self

import numpy as np

from pgfl.files import make_folder, write_atomically
from pgfl.lab.paper.experiments import Experiment, Measured


@dataclass(frozen=True)
class Kept:
    """A folder of measurements, named after the experiment, its seed and runs, and the version of pgfl.

    A file holds whatever was measured under that name: use another folder after a change to the code.
    """

    folder: Path

    def read(self, experiment: Experiment, seed: int, runs: int) -> Measured | None:
        """What was kept, or None; a file that cannot be read counts as none."""
        try:
            with np.load(self._path(experiment, seed, runs), allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile):
            return None

    def write(self, experiment: Experiment, seed: int, runs: int, found: Measured) -> None:
        """Keep it; the file appears when it is complete."""
        make_folder(self.folder)
        write_atomically(self._path(experiment, seed, runs), lambda stream: np.savez(stream, **found))  # type: ignore[arg-type]

    def _path(self, experiment: Experiment, seed: int, runs: int) -> Path:
        name = f"{version('pgfl')} {experiment!r} {seed} {runs}"
        return self.folder / f"{hashlib.blake2b(name.encode(), digest_size=16).hexdigest()}.npz"


RUNS_TOGETHER = 10
BLAS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
Advance = Callable[[float], None]


class Runner:
    """Runs experiments on several processes, a few runs at a time, and collects what they measured.

    Piece i has seed i, whatever the experiment, so that runs stay paired. With one worker nothing leaves this process.
    What is in `kept` already is not measured again.
    """

    def __init__(
        self,
        wanted: Mapping[Experiment, int],
        workers: int = 2,
        advance: Advance | None = None,
        kept: Kept | None = None,
    ) -> None:
        self._wanted, self._workers, self._advance, self._kept = wanted, workers, advance, kept
        self._pieces: dict[Experiment, list[Future[Measured]]] = {}
        self._pool: ProcessPoolExecutor | None = None

    @property
    def cost(self) -> float:
        """The cost of all experiments, in the unit that `advance` receives."""
        return sum(experiment.cost * runs for experiment, runs in self._wanted.items())

    def __enter__(self) -> Self:
        if self._workers > 1:
            with _one_thread_each():
                self._pool = ProcessPoolExecutor(
                    self._workers, mp_context=get_context("spawn"), initializer=_leave_with_parent
                )
                for experiment, seed, runs in self._in_order():
                    self._pieces.setdefault(experiment, []).append(self._submit(experiment, seed, runs))
        return self

    def __exit__(self, *exception: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=exception[0] is None, cancel_futures=True)

    def measured(self, experiment: Experiment) -> Measured:
        """All runs of an experiment, waiting for them if need be."""
        if experiment not in self._pieces:
            self._pieces[experiment] = [self._do(experiment, *piece) for piece in self._split(experiment)]
        found = [piece.result() for piece in self._pieces[experiment]]
        return {name: np.concatenate([part[name] for part in found]) for name in found[0]}

    def _in_order(self) -> list[tuple[Experiment, int, int]]:
        """All pieces: those on the same data together, seed by seed, so that a worker makes data once for many."""
        pieces = [(experiment, *piece) for experiment in self._wanted for piece in self._split(experiment)]
        kinds = list(dict.fromkeys(_data_of(experiment) for experiment in self._wanted))
        return sorted(pieces, key=lambda piece: (kinds.index(_data_of(piece[0])), piece[1]))

    def _split(self, experiment: Experiment) -> Iterator[tuple[int, int]]:
        runs = self._wanted[experiment]
        for seed, first in enumerate(range(0, runs, RUNS_TOGETHER)):
            yield seed, min(RUNS_TOGETHER, runs - first)

    def _submit(self, experiment: Experiment, seed: int, runs: int) -> Future[Measured]:
        assert self._pool is not None
        future = self._pool.submit(_carry_out, experiment, seed, runs, self._kept)
        future.add_done_callback(lambda _: self._report(experiment.cost * runs))
        return future

    def _do(self, experiment: Experiment, seed: int, runs: int) -> Future[Measured]:
        future: Future[Measured] = Future()
        future.set_result(_carry_out(experiment, seed, runs, self._kept))
        self._report(experiment.cost * runs)
        return future

    def _report(self, cost: float) -> None:
        if self._advance is not None:
            self._advance(cost)


def _data_of(experiment: Experiment) -> object:
    """What an experiment makes its federations from; itself, if nothing else says so."""
    return getattr(getattr(experiment, "trial", experiment), "data", experiment)


def _carry_out(experiment: Experiment, seed: int, runs: int, kept: Kept | None) -> Measured:
    if kept is None:
        return experiment.run(seed, runs)
    found = kept.read(experiment, seed, runs)
    if found is None:
        found = experiment.run(seed, runs)
        kept.write(experiment, seed, runs, found)
    return found


def _leave_with_parent() -> None:
    """End a worker whose parent was killed, instead of waiting for work for ever."""
    parent = parent_process()

    def wait() -> None:
        assert parent is not None
        parent.join()
        os._exit(1)

    if parent is not None:
        Thread(target=wait, daemon=True).start()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Workers inherit one BLAS thread; this process keeps its own setting."""
    before = {name: os.environ.get(name) for name in BLAS}
    os.environ.update(dict.fromkeys(BLAS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
