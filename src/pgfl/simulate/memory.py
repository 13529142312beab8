"""How much memory a simulation will take, asked before it takes it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pgfl.arrays import GATHER_LIMIT, SPARSE
from pgfl.errors import ConfigError

INTERPRETER = 2**28  # Python and the libraries
PER_CLIENT = 150  # indices, names, accounts
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Shape:
    """What decides how much memory a simulation takes. `rows` are all clients' samples of a run."""

    clients: int
    rows: int
    dimension: int
    pairs: int
    runs_together: int = 1
    dtype: str = "float64"
    engine: str = "numpy"
    private: bool = False

    @property
    def data(self) -> int:
        """Bytes of the features of the runs that are played together."""
        return self.runs_together * self.rows * self.dimension * np.dtype(self.dtype).itemsize

    @property
    def total(self) -> int:
        """Bytes at the highest point: data, factors, models, duals, results and the interpreter."""
        item, mean = np.dtype(self.dtype).itemsize, self.rows / max(self.clients, 1)
        compressed = 1.5 * SPARSE if mean * self.dimension > GATHER_LIMIT else 0.0
        copies = 1.0 if self.engine == "numba" else 2.0 + compressed
        factors = int(self.rows * min(1.3 * mean, self.dimension)) * item
        vectors = self.clients * (4 if self.private else 3) + 8 * self.pairs
        each = factors + vectors * self.dimension * item + PER_CLIENT * self.clients
        return INTERPRETER + int(copies * self.data) + self.runs_together * each


def check(shape: Shape, held: int = 0, lower: Sequence[str] = ("the number of clients", "their samples")) -> None:
    """Refuse, with the figure and what to lower, a simulation that would not fit; `held` bytes of it exist already."""
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
    """Bytes that can be had without swapping, within the limits of a container; None where nobody can tell."""
    found = [limit for limit in (_free_by_kernel(), _left_in_cgroup()) if limit is not None]
    return min(found) if found else None


def resident() -> int | None:
    """Bytes this process holds now, where the system tells."""
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
