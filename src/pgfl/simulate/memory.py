"""How much memory a simulation will take, estimated before it starts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pgfl.algorithms.schedules import ALIASES
from pgfl.arrays import GATHER_LIMIT, SPARSE
from pgfl.config.schema import Config
from pgfl.errors import ConfigError
from pgfl.simulate.engines import engine_kind, likely_engine

INTERPRETER = 2**28  # Python and the libraries
PER_CLIENT = 150  # indices, names, accounts
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
    sparse_share: float = 0.0  # of the rows that the engine may keep without zeros, at most

    @property
    def data(self) -> int:
        """Bytes of the features of the runs that are run together."""
        return self.runs_together * self.rows * self.dimension * np.dtype(self.dtype).itemsize

    @property
    def kernel_bytes(self) -> int:
        """Bytes that the engine keeps of each run besides what all engines have."""
        return engine_kind(self.engine).kernel_bytes(self)

    @property
    def total(self) -> int:
        """Bytes at the peak: data, factors, models, duals, results and the interpreter."""
        item, mean = np.dtype(self.dtype).itemsize, self.rows / max(self.clients, 1)
        compressed = 1.5 * SPARSE if mean * self.dimension > GATHER_LIMIT else 0.0
        kind = engine_kind(self.engine)
        factors = int(self.rows * min(1.3 * mean, self.dimension)) * item
        vectors = self.clients * (4 if self.private else 3) + 8 * self.pairs
        each = factors + vectors * self.classes * self.dimension * item + PER_CLIENT * self.clients + self.kernel_bytes
        fixed = INTERPRETER + kind.fixed_bytes
        return fixed + int(kind.row_copies(compressed) * self.data) + self.runs_together * each


def expected_shape(config: Config) -> Shape:
    """Return the shape of a config's simulation before any data is generated or read."""
    engine = likely_engine(ALIASES.get(config.engine, config.engine), config.objective.kind)
    extent = config.data.expected_extent()
    private, classes = config.privacy.enabled, config.objective.build().label_count or 1
    return Shape(**extent._asdict(), dtype=config.dtype, engine=engine, private=private, classes=classes)


def check_config(config: Config, processes: int = 1, local_size: int = 1) -> None:
    """Refuse a run that would not fit; of one on several processes, the part of those on this machine."""
    whole = expected_shape(config)
    held = {name: -(-getattr(whole, name) // processes) for name in ("clients", "rows", "pairs")}
    check(replace(whole, runs_together=local_size, **held), lower=config.data.lower_for_memory)


def check(shape: Shape, held: int = 0, lower: Sequence[str] = ("the number of clients", "their samples")) -> None:
    """Refuse a simulation that would not fit, and name what to lower; `held` bytes of it are in memory already."""
    free = available_memory()
    if free is None or shape.total <= free + held:
        return
    free += held
    advice = list(lower)
    if shape.dtype == "float64":
        advice.insert(0, "dtype (to float32)")
    if engine_kind(shape.engine).row_copies(0.0) > 1.0:
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
