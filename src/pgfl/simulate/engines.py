"""Engines: the contract between a simulation and what computes its rounds, the table of engines, and `engine = "auto"`.

An engine is one file with an `EngineKind`, and one line in `schedules.ENGINES` or an entry point of `pgfl.engines`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from pgfl.algorithms.algorithms import Algorithm
from pgfl.algorithms.schedules import ENGINES, Participants
from pgfl.arrays import AnyFloats, Array, DTypeLike, Ints, Namespace
from pgfl.errors import ConfigError
from pgfl.federation.federation import Federation
from pgfl.simulate.communicator import SINGLE_PROCESS, Communicator
from pgfl.simulate.options import TrainingOptions
from pgfl.simulate.problems import Objectives

if TYPE_CHECKING:
    from pgfl.simulate.engine import AnyBlock, Engine
    from pgfl.simulate.layout import Layout
    from pgfl.simulate.memory import Shape


FillRows = Callable[[Ints, Ints, int, AnyFloats], None]
"""Fill out[bounds[i] : bounds[i + 1]] with the first normal numbers of the i-th server's stream of a round."""


@dataclass(frozen=True)
class Training:
    """What an engine must know to say whether it can compute a training, and what that saves."""

    algorithm: Algorithm
    objectives: Objectives
    first: Federation  # of run 0; on several processes, this process's part
    options: TrainingOptions
    rows: int  # of the first run, in all processes
    clients: int

    @property
    def participating_rows(self) -> float:
        """The rows of those who take part in a round, about."""
        participants: Participants = self.options.participants
        if participants == "all":
            return self.rows
        return min(1.0, participants * len(self.first.server_ids) / max(self.clients, 1)) * self.rows


@dataclass(frozen=True)
class Setup:
    """What an engine lays out and factors the clients' problems from."""

    layout: Layout
    objectives: Objectives
    algorithm: Algorithm
    options: TrainingOptions
    xp: Namespace  # the array library: the engine's own, but for tests that replace it
    threads: int

    @property
    def update_norm(self) -> float | None:
        """How far a model may move from its public centre; None if there is no limit."""
        return self.options.privacy.update_norm if self.options.privacy else None


class EngineKind(ABC):
    """What a simulation asks of an engine before its first round.

    The file of a kind is imported to answer these questions, so it imports the engine's libraries in methods only.
    """

    distributed: ClassVar[bool] = True  # whether several processes can share a training
    start_seconds: ClassVar[float] = 0.0  # that loading the engine takes: "auto" must save more
    fixed_bytes: ClassVar[int] = 0  # that the engine's libraries take while they work

    @abstractmethod
    def namespace(self) -> Namespace:
        """Return the array library of rounds; raise `MissingExtra` or `KernelError` if the engine cannot be used."""

    @abstractmethod
    def prepare(self, setup: Setup) -> tuple[type[Engine], Sequence[AnyBlock]]:
        """Return the engine's class and all clients' problems, factored, as its first two arguments want them.

        What the engine does not support it must compute anyway, for example as the NumPy engine does.
        """

    def supports(self, training: Training) -> bool:
        """Return whether the engine computes nearly all clients of a training in its own way."""
        return True

    def supports_objective(self, kind: str) -> bool:
        """Return whether that may be so for a kind of objective, when nothing else is known yet."""
        return True

    def seconds_saved(self, training: Training) -> float:
        """Return about how many seconds a whole training takes less than with NumPy."""
        return 0.0

    def installed(self) -> bool:
        """Return whether the engine's libraries are installed, without importing them."""
        return True

    def failure(self) -> str | None:
        """Return why the engine cannot be used though it is installed; None if it can."""
        return None

    def useful_threads(self, numbers: int) -> int:
        """Return how many threads pay off for rows of so many numbers in all."""
        return 1

    def fill_rows(self, layout: Layout, seed: int, dtype: DTypeLike) -> FillRows | None:
        """Return a faster way to draw the same normal numbers; None if NumPy is to draw them."""
        return None

    def row_copies(self, compressed: float) -> float:
        """Return how many copies of the rows are in memory, given the share that a copy without zeros takes."""
        return 2.0 + compressed

    def kernel_bytes(self, shape: Shape) -> int:
        """Return the bytes that the engine keeps of each run besides rows, factors, models and duals."""
        return 0

    def sparse_share(self, features: Array, dtype: DTypeLike) -> float:
        """Return the largest share of the rows that the engine may keep without zeros, judged by the first rows."""
        return 0.0


AUTOMATIC = "numba"  # what "auto" may choose instead of NumPy


@cache
def engine_kind(name: str) -> EngineKind:
    """Return the kind of an engine; where "auto" was not decided, NumPy's."""
    kind: EngineKind = ENGINES["numpy" if name == "auto" else name]()
    return kind


def choose_engine(
    options: TrainingOptions,
    algorithm: Algorithm,
    objectives: Objectives,
    first: Federation,
    communicator: Communicator = SINGLE_PROCESS,
    notices: list[str] | None = None,
) -> TrainingOptions:
    """Return the options with an engine that is named: compiled where that works and pays off, NumPy otherwise.

    Late answers are counted by NumPy alone.

    The choice follows from the training and from what is installed, never from a clock: the same config on the same
    machine has the same engine, and so the same bits. Where kernels pay off but fail, `notices` gets a sentence.
    """
    if options.performance.engine != "auto":
        return options
    if options.delays is not None:
        return replace(options, performance=replace(options.performance, engine="numpy"))
    rows, clients = communicator.sum([len(first.features), first.size]).tolist()
    training = Training(algorithm, objectives, first, options, rows, clients)
    kind, chosen = engine_kind(AUTOMATIC), "numpy"
    start = 0.0 if options.performance.kernels_loaded else kind.start_seconds
    if kind.installed() and kind.supports(training) and kind.seconds_saved(training) > start:
        chosen = AUTOMATIC
    if (
        chosen == AUTOMATIC and communicator.maximum([kind.failure() is not None])[0]
    ):  # on several processes, all or none
        chosen, reason = "numpy", kind.failure() or "on another rank"
        if notices is not None:
            notices.append(f"The compiled kernels cannot be used ({reason}), so NumPy computes, more slowly.")
    return replace(options, performance=replace(options.performance, engine=chosen))


def likely_engine(engine: str, objective: str) -> str:
    """Return the engine that a large training with this kind of objective will have, before its data are known."""
    if engine != "auto":
        return engine
    kind = engine_kind(AUTOMATIC)
    return AUTOMATIC if kind.installed() and kind.supports_objective(objective) else "numpy"


def check_engine(options: TrainingOptions, processes: int) -> None:
    """Raise for an engine that is not installed, and for what several processes cannot do."""
    name = options.performance.engine
    kind = engine_kind(name)
    kind.namespace()
    if processes > 1 and not kind.distributed:
        raise ConfigError(
            f"{processes} ranks were started, but the {name} engine runs in one process; add --engine numba, or start "
            "pgfl without a launcher."
        )
    if processes > 1 and "distance" in options.metrics:
        raise ConfigError(
            'The metric "distance" needs all data in one place; take it out of `metrics` with several ranks.'
        )
