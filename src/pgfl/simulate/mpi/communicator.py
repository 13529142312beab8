"""The processes of an MPI job: starting them, agreeing on errors, bringing arrays together."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from pgfl.errors import ConfigError, MissingExtra, PgflError
from pgfl.simulate.mpi.launcher import launched_rank, launched_size

T = TypeVar("T")
Ints = NDArray[np.int64]
INSTALL = "pip install 'pgfl[mpi]'"
CHUNK_BYTES = 1 << 26  # what travels to the first rank at a time
IN_MEMORY_BYTES = 1 << 30  # a larger array is brought together in a file


def world() -> Ranks:
    """All processes that one launcher started together."""
    if find_spec("mpi4py") is None:
        raise MissingExtra(f"The mpi engine needs mpi4py and an MPI library; install them with {INSTALL}.")
    if launched_rank() is None:
        launcher = find_launcher()
        missing = "" if launcher else f", and none is found: {INSTALL} brings one"
        raise ConfigError(
            f"The mpi engine is started by an MPI launcher{missing}; run {launcher or 'mpiexec'} -n 2 pgfl run … "
            "--engine mpi."
        )
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise MissingExtra(f"The MPI library cannot be loaded ({error}); install one with {INSTALL}.") from error
    told = launched_size()
    if told is not None and told != MPI.COMM_WORLD.size:
        raise ConfigError(
            f"The launcher started {told} ranks, but the MPI library knows of {MPI.COMM_WORLD.size}: they are of "
            "different MPIs; use the mpiexec that came with the library."
        )
    return Ranks(MPI.COMM_WORLD)


def find_launcher() -> str | None:
    """mpiexec, by its name if it is on the path, or beside the Python that runs."""
    if shutil.which("mpiexec"):
        return "mpiexec"
    return shutil.which("mpiexec", path=str(Path(sys.executable).parent))


class Agreed(Exception):
    """An error that every rank knows of, so that all may end in an orderly way; the first rank speaks."""

    def __init__(self, error: PgflError) -> None:
        super().__init__(str(error))
        self.error = error


class Ranks:
    """The ranks of a job, as one of them sees it."""

    def __init__(self, comm: Any) -> None:
        self.comm, self.rank, self.size = comm, int(comm.rank), int(comm.size)

    @property
    def first(self) -> bool:
        """Whether this rank is the one that speaks and writes."""
        return self.rank == 0

    @cached_property
    def beside(self) -> int:
        """How many ranks share this one's machine, itself included."""
        from mpi4py import MPI

        here = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        size = int(here.size)
        here.Free()
        return size

    def together(self, work: Callable[[], T]) -> T:
        """What `work` gives on this rank; if it fails on any, all raise the error of the lowest that failed.

        `work` must not communicate.
        """
        value, failure = None, None
        try:
            value = work()
        except PgflError as error:
            failure = error
        for known in self.comm.allgather(failure):
            if known is not None:
                raise Agreed(known)
        return value  # type: ignore[return-value]

    def from_first(self, work: Callable[[], T]) -> T:
        """What `work` gives on the first rank, on every rank."""
        value = self.together(lambda: work() if self.first else None)
        return self.comm.bcast(value)  # type: ignore[no-any-return]

    def largest(self, values: Any) -> NDArray[Any]:
        """The elementwise maximum over all ranks."""
        return self._reduced(values, "MAX")

    def added(self, values: Any) -> NDArray[Any]:
        """The elementwise sum over all ranks; exact if the numbers are whole or lie on a common grid."""
        return self._reduced(values, "SUM")

    def _reduced(self, values: Any, operation: str) -> NDArray[Any]:
        from mpi4py import MPI

        own = np.ascontiguousarray(values)
        out = np.empty_like(own)
        self.comm.Allreduce(own, out, op=getattr(MPI, operation))
        return out

    def collected(self, values: NDArray[Any], places: Sequence[Ints] | None, folder: Path | None) -> Any:
        """On the first rank all ranks' rows, each at its place (`places`, known there alone); elsewhere the own ones.

        Rows travel rank by rank in chunks. A large array is put together in a file (in `folder`), not in memory.
        """
        own = np.ascontiguousarray(values)
        rows = max(1, CHUNK_BYTES // max(own[:1].nbytes, 1))
        if not self.first:
            for start in range(0, len(own), rows):
                self.comm.Send(_bytes(own[start : start + rows]), 0)
            return own
        assert places is not None
        whole = _room((sum(map(len, places)), *own.shape[1:]), own.dtype, folder)
        whole[places[0]] = own
        for source, place in enumerate(places[1:], start=1):
            for start in range(0, len(place), rows):
                there = place[start : start + rows]
                chunk = np.empty((len(there), *own.shape[1:]), own.dtype)
                self.comm.Recv(_bytes(chunk), source)
                whole[there] = chunk
        return whole

    def abort(self, error: BaseException) -> NoReturn:
        """End all ranks because of an error that only this one knows of; of several that fail, the lowest speaks."""
        time.sleep(min(0.1 * self.rank, 2.0))
        if not isinstance(error, PgflError | OSError | MemoryError | KeyboardInterrupt):
            traceback.print_exception(error)
        sentence = " ".join(str(error).split()) or type(error).__name__
        print(f"pgfl: Rank {self.rank} of {self.size}: {sentence}", file=sys.stderr, flush=True)
        self.comm.Abort(error.exit_code if isinstance(error, PgflError) else 1)
        raise SystemExit(1)


class Watch:
    """A small process beside the first rank that speaks up if the job is killed, which leaves no rank to do so."""

    SCRIPT = (
        'read -r word; [ "$word" = over ] && exit; '
        'if ls -d "$1"/run-*/round-* >/dev/null 2>&1; then then="go on with $2"; else then="nothing was kept"; fi; '
        'echo "pgfl: A rank died before the end, which stopped the others; $then." >&2'
    )

    def __init__(self, checkpoints: Path, advice: str) -> None:
        shell = shutil.which("sh")
        self._process = shell and subprocess.Popen(
            [shell, "-c", self.SCRIPT, "pgfl", str(checkpoints), advice], stdin=subprocess.PIPE, start_new_session=True
        )

    def over(self) -> None:
        """The job ends as it should."""
        if self._process:
            self._process.communicate(b"over\n")


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    return array.reshape(-1).view(np.uint8)


def _room(shape: tuple[int, ...], dtype: np.dtype[Any], folder: Path | None) -> NDArray[Any]:
    if folder is None or int(np.prod(shape)) * dtype.itemsize <= IN_MEMORY_BYTES:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(dir=folder) as file:
        return np.memmap(file, dtype, "w+", shape=shape)
