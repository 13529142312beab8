"""Checkpoints of many ranks: a folder a round, that appears when all ranks have written their file of it.

Rows are kept with the number of their server in the whole federation, so that a run may go on with any number of ranks.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgfl.atomic_files import make_folder, synchronise, write_atomically
from pgfl.errors import ResultError
from pgfl.privacy.mechanism import Plan
from pgfl.simulate.checkpoint import Checkpoints
from pgfl.simulate.engine import Engine
from pgfl.simulate.mpi.communicator import Ranks
from pgfl.simulate.mpi.halo import RankLayout
from pgfl.simulate.recorder import Recorder

OF_PAIRS = ("previous_servers", "known", "servers/")
OF_ALL = ("fingerprint", "round", "shown", "clean")
PAIR_SERVER, CLIENT_SERVER = "pair_server", "client_server"


class RankCheckpoints(Checkpoints):
    """`checkpoint/run-R/round-N/rank-r-of-n.npz`; only the newest round of a run is kept."""

    def __init__(self, ranks: Ranks, folder: Path, fingerprint: str, every: int, keep_clean: bool = True) -> None:
        super().__init__(folder, fingerprint, every, keep_clean)
        self.ranks = ranks

    @contextmanager
    def patient(self) -> Iterator[None]:
        """An interrupt ends all ranks at once: the launcher tells each of them, and not in the same round."""
        yield

    def save(self, engine: Engine, recorder: Recorder, plan: Plan | None) -> None:
        """All ranks write; when all have, the round's folder is put in its place and older ones are removed."""
        runs, ranks = self._path(engine), self.ranks
        draft, final = runs / ".round.part", runs / f"round-{engine.state.round}"
        ranks.together(lambda: _fresh(draft) if ranks.first else None)
        ranks.together(lambda: self._write(draft, engine, recorder, plan))
        ranks.together(lambda: _put_in_place(draft, final) if ranks.first else None)

    def restore(self, engine: Engine, recorder: Recorder, plan: Plan | None) -> bool:
        """Take up the newest round that is whole, if there is one."""
        newest = self.ranks.from_first(lambda: _newest(self._path(engine)))
        if newest is None:
            return False
        self.ranks.together(lambda: self._read(newest, engine, recorder, plan))
        return True

    def _write(self, folder: Path, engine: Engine, recorder: Recorder, plan: Plan | None) -> None:
        layout = _layout(engine)
        packed = self._packed(engine, recorder, plan)
        arrays = {name: v[layout.own_pairs] if name.startswith(OF_PAIRS) else v for name, v in packed.items()}
        arrays[PAIR_SERVER] = layout.numbers[layout.pair_server[layout.own_pairs]]
        arrays[CLIENT_SERVER] = layout.numbers[layout.client_server]
        name = f"rank-{self.ranks.rank}-of-{self.ranks.size}.npz"
        write_atomically(folder / name, lambda stream: np.savez(stream, **arrays))

    def _read(self, folder: Path, engine: Engine, recorder: Recorder, plan: Plan | None) -> None:
        """Gather this rank's rows from the files of all ranks that wrote."""
        layout = _layout(engine)
        arrays = dict(self._packed(engine, recorder, plan))
        client_server, pair_server = layout.numbers[layout.client_server], layout.numbers[layout.pair_server]
        own_pair = np.zeros(layout.pairs, dtype=bool)
        own_pair[layout.own_pairs] = True
        filled = 0
        with self._reading(folder):
            for path in sorted(folder.glob("rank-*.npz")):
                with np.load(path, allow_pickle=False) as archive:
                    self._check(path, archive)
                    arrays |= {name: archive[name] for name in OF_ALL if name in archive}
                    written = archive[CLIENT_SERVER], archive[PAIR_SERVER]
                    clients = _Rows(client_server, written[0])
                    pairs = _Rows(pair_server, written[1], own_pair)
                    filled += len(clients.here) + len(pairs.here)
                    for name in archive.files if len(pairs.here) else ():
                        if name not in (*OF_ALL, CLIENT_SERVER, PAIR_SERVER):
                            rows = pairs if name.startswith(OF_PAIRS) else clients
                            arrays[name] = rows.filled(arrays.get(name), archive[name])
            if filled != len(client_server) + len(layout.own_pairs):
                raise ValueError("it lacks the rows of some servers")
            self._fill(engine, recorder, plan, arrays)

    def _path(self, engine: Engine) -> Path:
        return self.folder / f"run-{engine.layout.runs[0].number}"


class _Rows:
    """Which rows of a file belong to which rows here: both are in the order of servers, and the same within one."""

    def __init__(self, here: NDArray[Any], there: NDArray[Any], own: NDArray[np.bool_] | None = None) -> None:
        wanted = np.isin(here, there) & (True if own is None else own)
        self.here, self.there = np.flatnonzero(wanted), np.flatnonzero(np.isin(there, here[wanted]))
        self.height = len(here)

    def filled(self, into: NDArray[Any] | None, rows: NDArray[Any]) -> NDArray[Any]:
        out = np.zeros((self.height, *rows.shape[1:]), rows.dtype) if into is None else np.array(into)
        out[self.here] = rows[self.there]
        return out


def _layout(engine: Engine) -> RankLayout:
    assert isinstance(engine.layout, RankLayout)
    return engine.layout


def _fresh(draft: Path) -> None:
    shutil.rmtree(draft, ignore_errors=True)
    make_folder(draft)


def _put_in_place(draft: Path, final: Path) -> None:
    older = [path for path in draft.parent.glob("round-*") if path != final]
    shutil.rmtree(final, ignore_errors=True)
    try:
        os.replace(draft, final)
        synchronise(final.parent)
    except OSError as error:
        raise ResultError(f"{final} cannot be written: {error.strerror or error}; choose another --out.") from error
    for path in older:
        shutil.rmtree(path, ignore_errors=True)


def _newest(folder: Path) -> Path | None:
    """The folder of the last round whose files are all there."""
    rounds = sorted(folder.glob("round-*"), key=lambda path: int(path.name.removeprefix("round-")), reverse=True)
    for path in rounds:
        files = [file.name for file in path.glob("rank-*-of-*.npz")]
        if files and len(files) == int(files[0].removesuffix(".npz").rpartition("-")[2]):
            return path
    return None
