"""Settings that change from round to round (τ⁽ⁿ⁾, who takes part), and the defaults of a training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Final, Literal

import numpy as np

from pgfl.arrays import AnyInts, Bools, Floats, Ints
from pgfl.errors import ConfigError
from pgfl.metrics import DEFAULT_METRICS
from pgfl.registry import Registry
from pgfl.streams import Purpose, stream
from pgfl.suggestions import shown

Participants = Literal["all"] | int
DRAWN_AHEAD = 64  # rounds of participants drawn with one generator
LATE_ROUNDS = 16  # in which a late answer counts at most: gradients of long ago no longer point to the optimum


@dataclass(frozen=True)
class Adaptive:
    """`tau = "auto"`: weights between clusters are estimated from released models, given the losses' mean curvature.

    `train` finds the curvature (see `simulate.curvature`); until then it is None. `noised`: releases carry noise.
    """

    curvature: float | None = None
    noised: bool = False

    def __post_init__(self) -> None:
        if self.curvature is not None and not (np.isfinite(self.curvature) and self.curvature > 0):
            raise ConfigError(f"The mean curvature must be a number above 0; got {shown(self.curvature)}.")


@dataclass(frozen=True)
class Decaying:
    """τ⁽ⁿ⁾ = start · decayⁿ with n from 1, as in Fig. 5.

    >>> Decaying(0.4, 0.98)(1)
    0.392
    """

    start: float
    decay: float

    def __post_init__(self) -> None:
        check_tau(self.start)
        if not isinstance(self.decay, Real) or not 0 < self.decay <= 1:
            raise ConfigError(f"algorithm.tau.decay must lie in (0, 1]; got {self.decay}.")

    def __call__(self, round: int) -> float:
        """τ⁽ⁿ⁾ for n = round."""
        return self.start * self.decay**round


Tau = float | Callable[[int], float] | Adaptive


def check_tau(value: float) -> float:
    """τ, if it lies in [0, 1)."""
    if not isinstance(value, Real) or not 0 <= value < 1:
        raise ConfigError(f"algorithm.tau must lie in [0, 1); got {shown(value)}.")
    return float(value)


def tau_at(tau: Tau, round: int) -> float:
    """τ⁽ⁿ⁾ of a fixed value or of any function of the round; 0 where weights are estimated, which take its place."""
    if isinstance(tau, Adaptive):
        return 0.0
    return check_tau(tau(round)) if callable(tau) else float(tau)


def check_participants(participants: Participants) -> None:
    """Raise unless it is "all" or a whole number from 1 up."""
    if participants != "all" and (
        isinstance(participants, bool) or not isinstance(participants, Integral) or participants < 1
    ):
        raise ConfigError(
            f'algorithm.participants must be "all" or a whole number from 1 up; got {shown(participants)}.'
        )


def rounds_counted(age: int, planned: int) -> int:
    """Return in how many rounds an answer counts that comes `age` rounds late.

    They are those that its client was busy for: until its next answer comes, if that takes as long. But no more than
    its noise was `planned` for: the same noise in many rounds does not average out.
    """
    return min(1 + age, planned, LATE_ROUNDS)


def late_weight(fresh: AnyInts | int, late: AnyInts | int) -> Floats:
    """Return the weight of each of `late` updates that share an aggregate with `fresh` answers in time.

    All of them together weigh no more than the answers in time: old gradients then cannot outweigh the present ones,
    which keeps training stable at any delay. Where nobody is in time, they count in full.
    """
    in_time, old = np.asarray(fresh, dtype=np.float64), np.maximum(late, 1)
    return np.where(in_time > 0, np.minimum(1.0, in_time / old), 1.0)


@dataclass(frozen=True)
class Delays:
    """Slow clients: a share of every server's, whose answer to round n is first counted in round n + `rounds`.

    As at a site that closes its rounds without them, they are asked, and charged, again once their answer has counted.
    With privacy they plan for that: they release less often, with less noise, and spend as much as the others.

    >>> Delays(clients=0.3, rounds=9)
    Delays(clients=0.3, rounds=9)
    """

    clients: float
    rounds: int

    def __post_init__(self) -> None:
        if not isinstance(self.clients, Real) or not 0 < self.clients <= 1:
            raise ConfigError(f"algorithm.delays.clients must lie in (0, 1]; got {shown(self.clients)}.")
        if isinstance(self.rounds, bool) or not isinstance(self.rounds, Integral) or self.rounds < 1:
            raise ConfigError(f"algorithm.delays.rounds must be a whole number from 1 up; got {shown(self.rounds)}.")

    def slow(self, members: list[Ints], keys: list[tuple[int, int]], seed: int) -> Bools:
        """Return which of all servers' clients are slow: of every server the same share, drawn from its own stream."""
        slow = np.zeros(sum(map(len, members)), dtype=bool)
        for own, (run, server) in zip(members, keys, strict=True):
            drawn = stream(seed, run, Purpose.DELAYS, server).permutation(len(own))
            slow[own[drawn[: round(self.clients * len(own))]]] = True
        return slow


class Scheduler:
    """Draws m clients of each server every round from the server's own stream; all of them if it has fewer.

    `members` holds the indices of every server's clients, ascending. `keys` are the (run, server) of its streams, so a
    draw does not depend on which servers are simulated together.
    """

    def __init__(self, participants: Participants, members: list[Ints], keys: list[tuple[int, int]], seed: int) -> None:
        check_participants(participants)
        self._everyone = np.sort(np.concatenate([*members, np.empty(0, dtype=np.int64)]))
        self._count, self._members, self._keys, self._seed = participants, members, keys, seed
        self._drawn: tuple[int, Ints] | None = None
        self.everyone_always = participants == "all" or all(len(m) <= participants for m in members)

    def draw(self, round: int) -> Ints:
        """The clients that take part in a round (from 1), ascending."""
        if self.everyone_always:
            return self._everyone
        block, within_block = divmod(round - 1, DRAWN_AHEAD)
        if self._drawn is None or self._drawn[0] != block:
            self._drawn = (block, self._draw_block(block))
        return np.asarray(self._drawn[1][within_block])

    def _draw_block(self, block: int) -> Ints:
        chosen = []
        for members, (run, server) in zip(self._members, self._keys, strict=True):
            if not len(members):
                continue
            if self._count == "all" or len(members) <= self._count:
                chosen.append(np.broadcast_to(members, (DRAWN_AHEAD, len(members))))
                continue
            lots = stream(self._seed, run, Purpose.PARTICIPANTS, server, block).random((DRAWN_AHEAD, len(members)))
            chosen.append(members[np.argpartition(lots, self._count - 1, axis=1)[:, : self._count]])
        return np.sort(np.concatenate(chosen, axis=1), axis=1)


ENGINES = Registry[Any](
    "engines",
    "engine",
    {
        "numpy": "pgfl.simulate.array_engines:NumpyKind",
        "numba": "pgfl.simulate.compiled.kind:CompiledKind",
        "jax": "pgfl.simulate.array_engines:JaxKind",
        "debug": "pgfl.simulate.debug_engine:DebugKind",
    },
)
"""Subclasses of `pgfl.simulate.engines.EngineKind` by name. Configs name them, so the table stands below both."""

ALIASES = {"mpi": "numpy", "mpi-numba": "numba"}
"""Engines that insist on a launcher, and the engine that computes their rounds."""

Library = str  # the name of an engine: "auto" or one of `ENGINES`
Stop = Literal["converged", "never"]

ROUNDS: Final = 300
PARTICIPANTS: Final = "all"
DELAYS: Final = None
SEED: Final = 0
RUNS: Final = 1
RECORD_EVERY: Final = 1
METRICS: Final = DEFAULT_METRICS
ENGINE: Final = "auto"
THREADS: Final = None
STOP: Final = "never"
