"""Training options: everything that a training needs besides the data, the algorithm and the objectives."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import numpy as np

from pgfl.array_types import DTypeLike
from pgfl.core import training_defaults as default
from pgfl.core.metrics import METRICS
from pgfl.core.schedules import Participants
from pgfl.core.training_defaults import Library, Stop
from pgfl.errors import ConfigError

if TYPE_CHECKING:
    from pgfl.privacy.request import Privacy

THREADS_PER_CORE = 8


@dataclass(frozen=True)
class TrainingOptions:
    """Training options: everything but the data, the algorithm and the objectives."""

    rounds: int = default.ROUNDS
    participants: Participants = default.PARTICIPANTS
    privacy: Privacy | None = None
    seed: int = default.SEED
    runs: int = default.RUNS
    record_every: int = default.RECORD_EVERY
    metrics: tuple[str, ...] = default.METRICS
    dtype: DTypeLike = np.float64
    threads: int | None = default.THREADS
    engine: Library = default.ENGINE
    stop: Stop = default.STOP

    def __post_init__(self) -> None:
        for name in ("rounds", "runs", "record_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1; got {getattr(self, name)}.")
        check_threads(self.threads)
        if self.stop not in get_args(Stop):
            raise ConfigError(f'stop must be "converged" or "never"; got {self.stop!r}.')
        if unknown := sorted(set(self.metrics) - set(METRICS)):
            raise ConfigError(f"Unknown metric {unknown[0]}; choose from {', '.join(METRICS)}.")


def check_threads(threads: int | None) -> None:
    """Raise for a number of threads that makes no sense on this machine."""
    most = THREADS_PER_CORE * cores()
    if threads is not None and not 1 <= threads <= most:
        raise ConfigError(
            f"threads = {threads} makes no sense on a machine with {cores()} cores; give 1 to {most}, or leave it out."
        )


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
