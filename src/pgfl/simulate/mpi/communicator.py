"""The communicator of an MPI job: agreeing on errors, adding up, bringing rows together on the first rank."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from pgfl.arrays import AnyArray, DTypeLike, Ints
from pgfl.errors import ConfigError, MissingExtra, PgflError
from pgfl.federation.federation import Federation
from pgfl.simulate.communicator import CheckpointFiles, Gathering, Halo
from pgfl.simulate.mpi.launcher import launched_rank, launched_size

if TYPE_CHECKING:
    from mpi4py import MPI

    from pgfl.simulate.layout import Layout


T = TypeVar("T")
INSTALL = "pip install 'pgfl[mpi]'"
CHUNK_BYTES = 1 << 26  # what travels to the first rank at a time
IN_MEMORY_BYTES = 1 << 30  # a larger array is brought together in a file


def world() -> MpiCommunicator:
    """Return the communicator of all processes that a launcher started together."""
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
    started = launched_size()
    if started is not None and started != MPI.COMM_WORLD.size:
        raise ConfigError(
            f"The launcher started {started} ranks, but the MPI library knows of {MPI.COMM_WORLD.size}: they are of "
            "different MPIs; use the mpiexec that came with the library."
        )
    return MpiCommunicator(MPI.COMM_WORLD)


def find_launcher() -> str | None:
    """mpiexec, by its name if it is on the path, or beside the Python that runs."""
    if shutil.which("mpiexec"):
        return "mpiexec"
    return shutil.which("mpiexec", path=str(Path(sys.executable).parent))


class Agreed(Exception):
    """An error that every rank knows of, so that all end in an orderly way; the first rank prints it."""

    def __init__(self, error: PgflError) -> None:
        super().__init__(str(error))
        self.error = error


class MpiCommunicator:
    """The ranks of an MPI job, as one of them sees it. Runs are run one at a time."""

    launched = True

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm, self.rank, self.size = comm, int(comm.rank), int(comm.size)

    @property
    def first(self) -> bool:
        """Whether this rank prints and writes the result."""
        return self.rank == 0

    @cached_property
    def local_size(self) -> int:
        """The number of ranks on this machine, this one included."""
        from mpi4py import MPI

        here = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        size = int(here.size)
        here.Free()
        return size

    def collective(self, work: Callable[[], T]) -> T:
        """Return the value of `work` on this rank; if it fails on any, all raise the error of the lowest one."""
        value, failure = None, None
        try:
            value = work()
        except PgflError as error:
            failure = error
        for known in self.comm.allgather(failure):
            if known is not None:
                raise Agreed(known)
        return value  # type: ignore[return-value]

    def broadcast(self, work: Callable[[], T]) -> T:
        """Return the value of `work` on the first rank, on every rank."""
        value = self.collective(lambda: work() if self.first else None)
        return self.comm.bcast(value)  # type: ignore[no-any-return]

    def maximum(self, values: ArrayLike) -> AnyArray:
        """Return the elementwise maximum over all ranks."""
        return self._reduced(values, "MAX")

    def sum(self, values: ArrayLike) -> AnyArray:
        """Return the elementwise sum over all ranks; exact if the numbers are whole or lie on a common grid."""
        return self._reduced(values, "SUM")

    def _reduced(self, values: ArrayLike, operation: str) -> AnyArray:
        from mpi4py import MPI

        own = np.ascontiguousarray(values)
        out = np.empty_like(own)
        self.comm.Allreduce(own, out, op=getattr(MPI, operation))
        return out

    def unique_rows(self, rows: AnyArray) -> AnyArray:
        """Return the distinct rows of all ranks, sorted."""
        return np.unique(np.concatenate(self.comm.allgather(np.unique(rows, axis=0))), axis=0)

    def gathered(self, value: T) -> list[T] | None:
        """Return the values of all ranks, on the first one."""
        return self.comm.gather(value)

    def collected(self, rows: AnyArray, places: Sequence[Ints] | None, folder: Path | None) -> AnyArray:
        """On the first rank all ranks' rows, each at its place (`places`, known there alone); elsewhere the own ones.

        Rows travel rank by rank in chunks. A large array is put together in a file (in `folder`), not in memory.
        """
        own = np.ascontiguousarray(rows)
        at_once = max(1, CHUNK_BYTES // max(own[:1].nbytes, 1))
        if not self.first:
            for start in range(0, len(own), at_once):
                self.comm.Send(_bytes(own[start : start + at_once]), 0)
            return own
        assert places is not None
        whole = _room((sum(map(len, places)), *own.shape[1:]), own.dtype, folder)
        whole[places[0]] = own
        for source, place in enumerate(places[1:], start=1):
            for start in range(0, len(place), at_once):
                there = place[start : start + at_once]
                chunk = np.empty((len(there), *own.shape[1:]), own.dtype)
                self.comm.Recv(_bytes(chunk), source)
                whole[there] = chunk
        return whole

    def gathering(self, federation: Federation, folder: Path | None) -> Gathering:
        """Learn where every rank's clients belong."""
        from pgfl.simulate.mpi.partition import RankGathering

        return RankGathering(self, federation, folder)

    def halo(self, layout: Layout, dimension: int, dtype: DTypeLike) -> Halo:
        """Return the exchange with neighbouring ranks."""
        from pgfl.simulate.mpi.partition import RankHalo

        return RankHalo(layout, self, dimension, dtype)

    def checkpoint_files(self, folder: Path) -> CheckpointFiles:
        """Return one folder for each round, with one file for each rank."""
        from pgfl.simulate.mpi.files import RankFiles

        return RankFiles(folder, self)

    def command(self, engine: str) -> str:
        """`mpiexec … pgfl run`."""
        return f"mpiexec -n {self.size} pgfl run --engine {engine}"

    @contextmanager
    def abort_on_error(self) -> Iterator[None]:
        """Within, an agreed error is raised as itself; any other ends all ranks, which may be waiting for this one."""
        try:
            yield
        except Agreed as agreed:
            raise agreed.error from None
        except BaseException as error:
            self.abort(error)

    def report_lost_process(self, checkpoints: Path, advice: str) -> AbstractContextManager[None]:
        """Beside the first rank a small process reports that the job was killed."""
        return _watch(checkpoints, advice) if self.first else nullcontext()

    def abort(self, error: BaseException) -> NoReturn:
        """End all ranks because of an error of this one; of several that fail, the lowest prints first."""
        time.sleep(min(0.1 * self.rank, 2.0))
        if not isinstance(error, PgflError | OSError | MemoryError | KeyboardInterrupt):
            traceback.print_exception(error)
        sentence = " ".join(str(error).split()) or type(error).__name__
        print(f"pgfl: Rank {self.rank} of {self.size}: {sentence}", file=sys.stderr, flush=True)
        self.comm.Abort(error.exit_code if isinstance(error, PgflError) else 1)
        raise SystemExit(1)


WATCH = (
    'read -r word; [ "$word" = over ] && exit; '
    'if ls -d "$1"/run-*/round-* >/dev/null 2>&1; then then="go on with $2"; else then="nothing was kept"; fi; '
    'echo "pgfl: A rank died before the end, which stopped the others; $then." >&2'
)


@contextmanager
def _watch(checkpoints: Path, advice: str) -> Iterator[None]:
    """Return a process that prints a message if the job is killed, which leaves no rank to do so."""
    shell = shutil.which("sh")
    process = shell and subprocess.Popen(
        [shell, "-c", WATCH, "pgfl", str(checkpoints), advice], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        yield
    finally:
        if process:
            process.communicate(b"over\n")


def _bytes(array: AnyArray) -> AnyArray:
    return array.reshape(-1).view(np.uint8)


def _room(shape: tuple[int, ...], dtype: np.dtype[Any], folder: Path | None) -> AnyArray:
    if folder is None or int(np.prod(shape)) * dtype.itemsize <= IN_MEMORY_BYTES:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(dir=folder) as file:
        return np.memmap(file, dtype, "w+", shape=shape)
