"""The checkpoint files of many ranks: one folder per round, which appears when all ranks have written their file.

Rows are kept with the number of their server in the whole federation, so that a run may go on with any number of ranks.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from pgfl.arrays import AnyArray, Bools, Ints
from pgfl.errors import ResultError
from pgfl.files import make_folder, synchronise, write_atomically
from pgfl.simulate.checkpoint import reading
from pgfl.simulate.communicator import Arrays
from pgfl.simulate.layout import Layout
from pgfl.simulate.mpi.communicator import MpiCommunicator

OF_PAIRS = ("previous_servers", "known", "rested", "servers/", "engine/pairs_", "monitor/pairs_")
OF_ALL = ("fingerprint", "run_id", "round", "shown", "clean", "spent_at", "monitor/figures")
PAIR_SERVER, CLIENT_SERVER = "pair_server", "client_server"


class RankFiles:
    """`run-R/round-N/rank-r-of-n.npz`; only the newest round of a run is kept."""

    def __init__(self, folder: Path, ranks: MpiCommunicator) -> None:
        self._folder, self._ranks = folder, ranks

    def save(self, layout: Layout, round: int, arrays: Arrays) -> None:
        """All ranks write; when all have, the round's folder gets its name and older ones are removed."""
        runs, ranks = self._path(layout), self._ranks
        draft, final = runs / ".round.part", runs / f"round-{round}"
        ranks.broadcast(lambda: _fresh(draft))
        ranks.collective(lambda: self._write(draft, layout, arrays))
        ranks.broadcast(lambda: _put_in_place(draft, final))

    def restore(
        self,
        layout: Layout,
        current: Callable[[], Arrays],
        check: Callable[[Path, Mapping[str, AnyArray]], None],
        fill: Callable[[Arrays], None],
    ) -> bool:
        """Hand the newest complete round to `fill`, if there is one."""
        newest = self._ranks.broadcast(lambda: self._newest(layout))
        if newest is None:
            return False

        def read() -> None:
            with reading(newest):
                fill(_gathered(newest, layout, current(), check))

        self._ranks.collective(read)
        return True

    def _write(self, folder: Path, layout: Layout, packed: Arrays) -> None:
        own = layout.own_pairs
        arrays = {name: values[own] if name.startswith(OF_PAIRS) else values for name, values in packed.items()}
        arrays[PAIR_SERVER] = layout.server_number[layout.pair_server[own]]
        arrays[CLIENT_SERVER] = layout.server_number[layout.client_server]
        name = f"rank-{self._ranks.rank}-of-{self._ranks.size}.npz"
        write_atomically(folder / name, lambda stream: np.savez(stream, **arrays))  # type: ignore[arg-type]

    def _newest(self, layout: Layout) -> Path | None:
        """Return the folder of the last round whose files are all there."""
        folder = self._path(layout)
        rounds = sorted(folder.glob("round-*"), key=lambda path: int(path.name.removeprefix("round-")), reverse=True)
        for path in rounds:
            files = [file.name for file in path.glob("rank-*-of-*.npz")]
            if files and len(files) == int(files[0].removesuffix(".npz").rpartition("-")[2]):
                return path
        if any(self._folder.glob("runs-*.npz")):
            raise ResultError(f"{self._folder} was written by one process; go on without mpiexec.")
        return None

    def _path(self, layout: Layout) -> Path:
        return self._folder / f"run-{layout.runs[0].number}"


def _gathered(
    folder: Path, layout: Layout, arrays: Arrays, check: Callable[[Path, Mapping[str, AnyArray]], None]
) -> Arrays:
    """This rank's rows, from the files of all ranks that wrote."""
    client_server = layout.server_number[layout.client_server]
    pair_server, own_pair = layout.server_number[layout.pair_server], layout.own_server[layout.pair_server]
    filled = 0
    for path in sorted(folder.glob("rank-*.npz")):
        with np.load(path, allow_pickle=False) as archive:
            check(path, archive)
            arrays |= {name: archive[name] for name in OF_ALL if name in archive}
            clients = _Rows(client_server, archive[CLIENT_SERVER])
            pairs = _Rows(pair_server, archive[PAIR_SERVER], own_pair)
            filled += len(clients.here) + len(pairs.here)
            for name in archive.files if len(pairs.here) else ():
                if name not in (*OF_ALL, CLIENT_SERVER, PAIR_SERVER):
                    rows = pairs if name.startswith(OF_PAIRS) else clients
                    arrays[name] = rows.filled(arrays.get(name), archive[name])
    if filled != len(client_server) + np.count_nonzero(own_pair):
        raise ValueError("it lacks the rows of some servers")
    return arrays


class _Rows:
    """Which rows of a file belong to which rows here: both are in the order of servers, and the same within one."""

    def __init__(self, here: Ints, there: Ints, own: Bools | None = None) -> None:
        wanted = np.isin(here, there) & (True if own is None else own)
        self.here, self.there = np.flatnonzero(wanted), np.flatnonzero(np.isin(there, here[wanted]))
        self.height = len(here)

    def filled(self, into: AnyArray | None, rows: AnyArray) -> AnyArray:
        """`into`, or zeros, with the rows that belong here."""
        fresh = into is None or not into.size  # nothing here yet, or no round yet of what grows with rounds
        out = np.zeros((self.height, *rows.shape[1:]), rows.dtype) if fresh else np.array(into)
        out[self.here] = rows[self.there]
        return out


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
