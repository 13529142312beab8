"""From settings to the things they name: an algorithm, an objective."""

from __future__ import annotations

from typing import Any

from pgfl.config.schema import AlgorithmSettings, Decay, ObjectiveSettings
from pgfl.core.algorithms import KINDS as ALGORITHMS
from pgfl.core.algorithms import Algorithm, ExactMixing, FedAvg
from pgfl.core.schedules import Decaying
from pgfl.core.topology import Mixing
from pgfl.objectives import KINDS as OBJECTIVES
from pgfl.objectives import Huber, MarginObjective


def build_algorithm(settings: AlgorithmSettings, mixing: Mixing) -> Algorithm:
    """The algorithm that the settings name; exact mixing needs Metropolis weights, whatever is asked for."""
    kind = ALGORITHMS[settings.kind]
    if kind is FedAvg:
        return FedAvg(settings.step, settings.local_steps, mixing)
    tau = Decaying(settings.tau.start, settings.tau.decay) if isinstance(settings.tau, Decay) else settings.tau
    weights: Mixing = "metropolis" if kind is ExactMixing else mixing
    return kind(rho=settings.rho, tau=tau, mixing=weights)  # type: ignore[call-arg]


def build_objective(settings: ObjectiveSettings) -> MarginObjective:
    """The objective that the settings name."""
    kind = OBJECTIVES[settings.kind]
    extra: dict[str, Any] = {"kappa": settings.kappa} if kind is Huber else {}
    return kind(lam=settings.lam, tolerance=settings.tolerance, **extra)
