"""How much memory a simulation will take, estimated before it starts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pgfl.arrays import GATHER_LIMIT, SPARSE
from pgfl.config.data import expected_extent
from pgfl.config.schema import Config, TableData
from pgfl.errors import ConfigError
from pgfl.simulate.engine_choice import KNOWN, installed
from pgfl.simulate.mpi.launcher import ALIASES

INTERPRETER = 2**28  # Python and the libraries
COMPILER = 2**26  # Numba while it compiles
PER_CLIENT = 150  # indices, names, accounts
COPIED = 2**28  # bytes up to which the kernels keep a orthogonalised copy of a run's rows (`compiled.orthogonal`)
MOST_REGISTERS = 16  # of such a row: longer ones do not stay in registers
REGISTER = 64  # bytes; those of `compiled.lanes`, which only Numba can import
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Shape:
    """What the memory of a simulation depends on. `rows` are all clients' samples of a run."""

    clients: int
    rows: int
    dimension: int
    pairs: int
    runs_together: int = 1
    dtype: str = "float64"
    engine: str = "numpy"
    private: bool = False
    classes: int = 1  # a model has so many numbers per feature
    kept: float = 0.0  # the most that may be kept of the rows' registers where zeros are left out (`compiled.sparse`)

    @property
    def data(self) -> int:
        """Bytes of the features of the runs that are run together."""
        return self.runs_together * self.rows * self.dimension * np.dtype(self.dtype).itemsize

    @property
    def kernel_bytes(self) -> int:
        """Bytes that the kernels keep beside a run's rows: coordinates of clients and pairs, and rows without zeros."""
        if self.engine != "numba":
            return 0
        item, index = np.dtype(self.dtype).itemsize, 4 if self.rows < 2**31 else 8
        registers, width = -(-self.dimension * item // REGISTER), orthogonal_width(self.rows, self.dimension, item)
        row = (6 + width) * item if width else 4 * item + index
        coordinates = self.rows * row + self.clients * (8 + item) + 6 * REGISTER
        pairs = self.pairs * ((2 * self.dimension + 1) * item + 8)
        sparse_rows = (self.rows + 1) * (8 + self.kept * registers * (REGISTER + 4)) if self.kept else 0.0
        return coordinates + pairs + int(sparse_rows)

    @property
    def total(self) -> int:
        """Bytes at the peak: data, factors, models, duals, results and the interpreter."""
        item, mean = np.dtype(self.dtype).itemsize, self.rows / max(self.clients, 1)
        compressed = 1.5 * SPARSE if mean * self.dimension > GATHER_LIMIT else 0.0
        copies = 1.0 if self.engine == "numba" else 2.0 + compressed
        factors = int(self.rows * min(1.3 * mean, self.dimension)) * item
        vectors = self.clients * (4 if self.private else 3) + 8 * self.pairs
        each = factors + vectors * self.classes * self.dimension * item + PER_CLIENT * self.clients + self.kernel_bytes
        fixed = INTERPRETER + (COMPILER if self.engine == "numba" else 0)
        return fixed + int(copies * self.data) + self.runs_together * each


def orthogonal_width(rows: int, dimension: int, item: int) -> int:
    """Return the padded length of an orthogonalised row of numbers of `item` bytes; 0 if no copy is kept."""
    registers = 1
    while registers * REGISTER < dimension * item:
        registers *= 2
    return registers * REGISTER // item if registers <= MOST_REGISTERS and rows * registers * REGISTER <= COPIED else 0


def expected_shape(config: Config) -> Shape:
    """Return the shape of a config's simulation before any data is generated or read."""
    engine = ALIASES.get(config.engine, config.engine)
    if engine == "auto":  # a run that strains memory pays off, if the kernels know its objective
        engine = "numba" if installed() and config.objective.kind in {known.kind for known in KNOWN} else "numpy"
    extent = expected_extent(config)
    private, classes = config.privacy.enabled, config.objective.classes or 1
    return Shape(**extent._asdict(), dtype=config.dtype, engine=engine, private=private, classes=classes)


def check_config(config: Config, processes: int = 1, local_size: int = 1) -> None:
    """Refuse a run that would not fit; of one on several processes, the part of those on this machine."""
    whole = expected_shape(config)
    held = {name: -(-getattr(whole, name) // processes) for name in ("clients", "rows", "pairs")}
    keys = ("data.clients_per_server", "data.servers", "data.samples")
    lower = ("the rows of data.table",) if isinstance(config.data, TableData) else keys
    check(replace(whole, beside=runs_together=local_size=beside, **held), lower=lower)


def check(shape: Shape, held: int = 0, lower: Sequence[str] = ("the number of clients", "their samples")) -> None:
    """Refuse a simulation that would not fit, and name what to lower; `held` bytes of it are in memory already."""
    free = available_memory()
    if free is None or shape.total <= free + held:
        return
    free += held
    advice = list(lower)
    if shape.dtype == "float64":
        advice.insert(0, "dtype (to float32)")
    if shape.engine != "numba":
        advice.append("the copies that the numpy engine makes (--engine numba makes none)")
    *more, last = advice
    raise ConfigError(
        f"This run needs about {shape.total / 2**30:.1f} GiB of memory and {free / 2**30:.1f} GiB are free; lower "
        f"{', '.join(more) + ' or ' if more else ''}{last}."
    )


def available_memory() -> int | None:
    """Return bytes available without swapping, within the limits of a container; None where they are unknown."""
    found = [limit for limit in (_free_by_kernel(), _left_in_cgroup()) if limit is not None]
    return min(found) if found else None


def resident() -> int | None:
    """Return bytes that this process holds now; None where they are unknown."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _free_by_kernel() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None


def _left_in_cgroup() -> int | None:
    for name in CGROUP_LIMITS:
        try:
            limit = int(Path(name).read_text())
        except (OSError, ValueError):
            continue
        used = resident() or 0
        return max(limit - used, 0) if limit < 2**60 else None
    return None
