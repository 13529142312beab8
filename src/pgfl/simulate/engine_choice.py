"""`engine = "auto"`: compiled where Numba is installed, works and pays off, NumPy otherwise.

The choice follows from the training and from what is installed, never from a clock: the same config on the same machine
has the same engine, and so the same bits. What a round costs was measured once; only its order of magnitude matters.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.util import find_spec

from pgfl.algorithms.algorithms import Algorithm
from pgfl.algorithms.client_rules import GradientSteps, LinearisedStep, ProximalStep
from pgfl.algorithms.schedules import Library, Participants
from pgfl.federation.federation import Federation
from pgfl.objectives import Hinge, Huber, Logistic, Objective, Ridge
from pgfl.simulate.communicator import SINGLE_PROCESS, Communicator
from pgfl.simulate.options import TrainingOptions
from pgfl.simulate.problems import Objectives, objective_of

KNOWN: tuple[type[Objective], ...] = (Ridge, Huber, Logistic, Hinge)
KNOWN_RULES = (ProximalStep, LinearisedStep, GradientSteps)
ROWS_PER_FEATURE = 2  # with more rows per feature, sample space is the wrong space
START = 1.0  # seconds that must be saved: loading Numba and its kernels takes 0.4 with bytecode, 1.1 without
SAVED = {"steps": (3e-5, 2e-10), "ridge": (3e-5, 1.5e-9), "others": (2.5e-4, 4e-10)}
"""Seconds that compiled rounds save, per round and per number of the participants' rows."""


def installed() -> bool:
    """Return whether Numba is installed; nothing is imported."""
    return find_spec("numba") is not None


@cache
def failure() -> str | None:
    """Why kernels cannot be imported, compiled or loaded though Numba is installed; None if they can."""
    try:
        from pgfl.simulate.compiled import engine as numba_engine  # noqa: F401
        from pgfl.simulate.compiled import kernels as numba_kernels

        numba_kernels.try_out()
    except Exception as error:  # kernels use private parts of Numba, which may fail in any way
        return f"{type(error).__name__}: {error}".splitlines()[0].rstrip(".")
    return None


def with_engine(
    options: TrainingOptions,
    algorithm: Algorithm,
    objectives: Objectives,
    first: Federation,
    communicator: Communicator = SINGLE_PROCESS,
    notices: list[str] | None = None,
) -> TrainingOptions:
    """Return the options with an engine that is named, chosen from the first run's federation (or this process's part).

    Where kernels pay off but fail, NumPy is chosen, and `notices` gets a sentence.
    """
    if options.engine != "auto":
        return options
    rows, clients = communicator.sum([len(first.features), first.size]).tolist()
    known = installed() and kernels_know(algorithm, objectives, first, options, rows / max(clients, 1))
    taking_part = _share(options.participants, clients, len(first.server_ids))
    per_round, per_number = SAVED[_work(algorithm, objectives, first)]
    saved = options.rounds * options.runs * (per_round + per_number * taking_part * rows * first.dimension)
    engine: Library = "numba" if known and saved > (0.0 if options.kernels_loaded else START) else "numpy"
    if engine == "numba" and communicator.maximum([failure() is not None])[0]:  # on several processes, all or none
        engine, reason = "numpy", failure() or "on another rank"
        if notices is not None:
            notices.append(f"The compiled kernels cannot be used ({reason}), so NumPy computes, more slowly.")
    return replace(options, engine=engine)


def kernels_know(
    algorithm: Algorithm, objectives: Objectives, first: Federation, options: TrainingOptions, mean_rows: float
) -> bool:
    """Return whether the compiled kernels cover a training's clients, or nearly all of them."""
    rule, bounded = algorithm.client_rule, options.privacy is not None and options.privacy.update_norm is not None
    if not isinstance(rule, KNOWN_RULES) or bounded:
        return False
    wide = not rule.solves or mean_rows <= ROWS_PER_FEATURE * first.dimension
    chosen = (objective_of(objectives, name) for name in first.cluster_ids)
    return wide and all(type(one) in KNOWN and getattr(one, "w_norm", None) is None for one in chosen)


def _work(algorithm: Algorithm, objectives: Objectives, first: Federation) -> str:
    """Return what the clients do in a round, as `SAVED` names it."""
    if not algorithm.client_rule.solves:
        return "steps"
    ridge = all(isinstance(objective_of(objectives, name), Ridge) for name in first.cluster_ids)
    return "ridge" if ridge else "others"


def _share(participants: Participants, clients: int, servers: int) -> float:
    """Return the part of all clients that takes part in a round, roughly."""
    return 1.0 if participants == "all" else min(1.0, participants * servers / max(clients, 1))
