"""Training options: everything that a training needs besides the data, the algorithm and the objectives."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING, get_args

import numpy as np

from pgfl.algorithms import schedules as default
from pgfl.algorithms.schedules import ENGINES, Delays, Library, Participants, Stop, check_participants
from pgfl.arrays import DTypeLike
from pgfl.errors import ConfigError, UsageError
from pgfl.metrics import MEASURES, OF_MODELS
from pgfl.streams import SEED_LIMIT
from pgfl.suggestions import kind_of, nearest

if TYPE_CHECKING:
    from pgfl.privacy.request import Privacy


THREADS_PER_CORE = 8
DELAYED_ENGINES = ("auto", "numpy")


@dataclass(frozen=True)
class Performance:
    """How rounds are computed; what they compute does not depend on it, but for rounding."""

    engine: Library = default.ENGINE
    threads: int | None = default.THREADS  # as many as pay off if None
    kernels_loaded: bool = False  # "auto" then need not save the time that loading Numba takes

    def __post_init__(self) -> None:
        check_threads(self.threads)
        if self.engine != "auto" and self.engine not in ENGINES:
            *more, last = names = ("auto", *ENGINES)
            advice = f"{nearest(self.engine, names)}; choose {', '.join(more)} or {last}."
            raise ConfigError(f"Unknown engine {kind_of(self.engine)}{advice}")


@dataclass(frozen=True)
class TrainingOptions:
    """What a training computes, but for the data, the algorithm and the objectives; and its `performance`."""

    rounds: int = default.ROUNDS
    participants: Participants = default.PARTICIPANTS
    privacy: Privacy | None = None
    seed: int = default.SEED
    runs: int = default.RUNS
    record_every: int = default.RECORD_EVERY
    metrics: tuple[str, ...] = default.METRICS
    dtype: DTypeLike = np.float64
    stop: Stop = default.STOP
    performance: Performance = field(default_factory=Performance)
    discover: bool = False
    delays: Delays | None = default.DELAYS

    def __post_init__(self) -> None:
        for name in ("rounds", "runs", "record_every"):
            if check_whole(name, getattr(self, name)) < 1:
                raise ConfigError(f"{name} must be at least 1; got {getattr(self, name)}.")
        if not 0 <= check_whole("seed", self.seed) < SEED_LIMIT:
            raise ConfigError(f"seed must be 0 or more, and below 2⁶³; got {self.seed}.")
        if not isinstance(self.discover, bool):
            raise UsageError(f"discover takes True or False; got {kind_of(self.discover)}.")
        check_participants(self.participants)
        if self.delays is not None:
            self._check_delays()
        check_precision(self.dtype)
        if self.stop not in get_args(Stop):
            raise ConfigError(f'stop must be "converged" or "never"; got {self.stop!r}.')
        as_metrics(self.metrics)

    def _check_delays(self) -> None:
        """Refuse what late answers cannot be counted with, here or at a site."""
        if not isinstance(self.delays, Delays):
            raise UsageError(f"delays takes Delays(clients, rounds); got {kind_of(self.delays)}.")
        if self.participants != "all":
            raise ConfigError('algorithm.delays needs all clients to take part; set algorithm.participants = "all".')
        if self.performance.engine not in DELAYED_ENGINES:
            raise ConfigError(
                f"algorithm.delays is computed by NumPy, not by the {self.performance.engine} engine; set engine = "
                '"auto" or "numpy".'
            )
        if self.privacy is not None and self.privacy.trusted.aggregates:
            raise ConfigError(
                'algorithm.delays needs privacy.trust = "local": a sum over clients waits for all of them, so that '
                "no answer to it can be late."
            )
        if self.discover:
            raise ConfigError("algorithm.delays is for given clusters; set clusters.discover = false, or leave it out.")


def as_metrics(metrics: Iterable[str]) -> tuple[str, ...]:
    """Return the names of metrics, if they are known."""
    if isinstance(metrics, str):
        raise UsageError(f'metrics takes several names; write metrics=["{metrics}"].')
    if not isinstance(metrics, Iterable):
        raise UsageError(f'metrics takes names such as ["nmsd", "objective"]; got {kind_of(metrics)}.')
    names = tuple(metrics)
    if unknown := [name for name in names if name not in OF_MODELS and name not in MEASURES]:
        known = ("nmsd", *MEASURES, *OF_MODELS[1:])
        raise ConfigError(f"Unknown metric {unknown[0]}{nearest(unknown[0], known)}; choose from {', '.join(known)}.")
    return names


def check_whole(name: str, value: object) -> int:
    """Return the value, if it is a whole number."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise UsageError(f"{name} takes a whole number; got {kind_of(value)}.")
    return int(value)


def check_precision(dtype: object) -> None:
    """Raise unless it is single or double precision."""
    try:
        name = np.dtype(dtype).name  # type: ignore[call-overload]
    except TypeError:
        name = None
    if name not in ("float32", "float64"):
        raise UsageError(f"dtype takes numpy.float64 or numpy.float32; got {kind_of(dtype)}.")


def check_threads(threads: int | None) -> None:
    """Raise for a number of threads that makes no sense on this machine."""
    most = THREADS_PER_CORE * cores()
    if threads is not None and not 1 <= check_whole("threads", threads) <= most:
        raise ConfigError(
            f"threads = {threads} makes no sense on a machine with {cores()} cores; give 1 to {most}, or leave it out."
        )


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
