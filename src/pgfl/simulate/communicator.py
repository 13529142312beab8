"""The processes that share one simulation: the protocol, and the null object for a simulation in one process.

`simulate/mpi` has the implementation for many machines. Everything that differs between one process and many is
reached through a communicator, so that there is one code path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from pgfl.arrays import AnyArray, Bools, DTypeLike, Ints

if TYPE_CHECKING:
    from pgfl.federation.federation import Federation
    from pgfl.simulate.layout import Layout
    from pgfl.simulate.neighbourhoods import Network


T = TypeVar("T")
Arrays = dict[str, AnyArray]


class Halo(Protocol):
    """The rows of neighbouring servers that other processes own."""

    def exchange(self, published: AnyArray, network: Network, contributing: Bools) -> None:
        """Fill in the borrowed rows of what is published, and note their status in the network."""
        ...

    def close(self) -> None:
        """Free what the exchange holds."""
        ...


class Gathering(Protocol):
    """Brings the rows of all processes together on the first one, in the order of the whole federation."""

    @property
    def client_ids(self) -> Sequence[str]:
        """The ids of all clients, on the first process."""
        ...

    def clients(self, rows: AnyArray) -> AnyArray:
        """Return all clients' rows, from those of the clients here."""
        ...

    def pairs(self, server: Ints, cluster: Ints, *rows: AnyArray) -> tuple[AnyArray, ...]:
        """Return all processes' pairs: server, cluster, and each of `rows`."""
        ...


class CheckpointFiles(Protocol):
    """Where the arrays of a checkpoint are stored."""

    def save(self, layout: Layout, round: int, arrays: Arrays) -> None:
        """Store the arrays of a round in place of an older checkpoint."""
        ...

    def restore(
        self,
        layout: Layout,
        current: Callable[[], Arrays],
        check: Callable[[Path, Mapping[str, AnyArray]], None],
        fill: Callable[[Arrays], None],
    ) -> bool:
        """Hand the newest checkpoint to `fill`, if there is one; `check` sees every file that is read."""
        ...


class Communicator(Protocol):
    """The processes of a simulation, as one of them sees it.

    `collective` and `broadcast` agree on errors. `work` must not communicate.
    """

    @property
    def rank(self) -> int:
        """The number of this process."""
        ...

    @property
    def size(self) -> int:
        """The number of processes."""
        ...

    @property
    def first(self) -> bool:
        """Whether this process prints and writes the result."""
        ...

    @property
    def launched(self) -> bool:
        """Whether an MPI launcher started the processes."""
        ...

    @property
    def local_size(self) -> int:
        """The number of processes on this machine, this one included."""
        ...

    def collective(self, work: Callable[[], T]) -> T:
        """Return the value of `work` here; an error of any process is raised on all."""
        ...

    def broadcast(self, work: Callable[[], T]) -> T:
        """Return the value of `work` on the first process, on every process."""
        ...

    def maximum(self, values: ArrayLike) -> AnyArray:
        """Return the elementwise maximum over all processes."""
        ...

    def sum(self, values: ArrayLike) -> AnyArray:
        """Return the elementwise sum over all processes; exact if the numbers are whole or lie on a common grid."""
        ...

    def unique_rows(self, rows: AnyArray) -> AnyArray:
        """Return the distinct rows of all processes, sorted."""
        ...

    def gathering(self, federation: Federation, folder: Path | None) -> Gathering:
        """Prepare to bring results together; arrays too large for memory are put in files in `folder`."""
        ...

    def halo(self, layout: Layout, dimension: int, dtype: DTypeLike) -> Halo:
        """Return the exchange with neighbouring processes."""
        ...

    def checkpoint_files(self, folder: Path) -> CheckpointFiles:
        """Return the files of checkpoints in a folder."""
        ...

    def command(self, engine: str) -> str:
        """Return the command line that starts such a run."""
        ...

    def abort_on_error(self) -> AbstractContextManager[None]:
        """Within, an error of one process ends all of them."""
        ...

    def report_lost_process(self, checkpoints: Path, advice: str) -> AbstractContextManager[None]:
        """Within, a killed process is reported; `advice` is the command that continues the run."""
        ...


class SingleProcess:
    """One process: nothing is sent, and every result is its own."""

    rank, size, local_size = 0, 1, 1
    first, launched = True, False

    def collective(self, work: Callable[[], T]) -> T:
        """Return the value of `work`."""
        return work()

    def broadcast(self, work: Callable[[], T]) -> T:
        """Return the value of `work`."""
        return work()

    def maximum(self, values: ArrayLike) -> AnyArray:
        """Return the values themselves."""
        return np.asarray(values)

    def sum(self, values: ArrayLike) -> AnyArray:
        """Return the values themselves."""
        return np.asarray(values)

    def unique_rows(self, rows: AnyArray) -> AnyArray:
        """Return the distinct rows, sorted."""
        return np.unique(rows, axis=0)

    def gathering(self, federation: Federation, folder: Path | None) -> Gathering:
        """Return rows as they are: all of them are here."""
        return _AllHere(federation)

    def halo(self, layout: Layout, dimension: int, dtype: DTypeLike) -> Halo:
        """No server is borrowed."""
        return _NoHalo()

    def checkpoint_files(self, folder: Path) -> CheckpointFiles:
        """Return one file for each batch of runs."""
        from pgfl.simulate.checkpoint import BatchFiles

        return BatchFiles(folder)

    def command(self, engine: str) -> str:
        """`pgfl run`."""
        return "pgfl run"

    def abort_on_error(self) -> AbstractContextManager[None]:
        """Errors are raised as they are."""
        return nullcontext()

    def report_lost_process(self, checkpoints: Path, advice: str) -> AbstractContextManager[None]:
        """Report nothing: a killed process is the only one."""
        return nullcontext()


class _NoHalo:
    def exchange(self, published: AnyArray, network: Network, contributing: Bools) -> None:
        pass

    def close(self) -> None:
        pass


class _AllHere:
    def __init__(self, federation: Federation) -> None:
        self._federation = federation

    @property
    def client_ids(self) -> Sequence[str]:
        return self._federation.client_ids

    def clients(self, rows: AnyArray) -> AnyArray:
        return rows

    def pairs(self, server: Ints, cluster: Ints, *rows: AnyArray) -> tuple[AnyArray, ...]:
        return (server, cluster, *rows)


SINGLE_PROCESS: Communicator = SingleProcess()
