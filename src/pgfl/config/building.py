"""Build what settings describe (an algorithm, objectives, privacy), and warn about what is probably not meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pgfl.algorithms.algorithms import KINDS as ALGORITHMS
from pgfl.algorithms.algorithms import Algorithm, ExactMixing, FedAvg
from pgfl.algorithms.schedules import Decaying
from pgfl.config.schema import AlgorithmSettings, Config, Decay, ObjectiveSettings, idle_keys
from pgfl.errors import ConfigError
from pgfl.federation.graphs import Mixing
from pgfl.objectives import KINDS as OBJECTIVES
from pgfl.objectives import BatchedObjective, Huber, Softmax
from pgfl.privacy import rules
from pgfl.privacy.request import Privacy


def warnings(config: Config) -> list[str]:
    """That privacy is off although it is written, and keys that were given but do nothing: one sentence each."""
    off = rules.off_although_written(dict(config.privacy))
    return ([off] if off else []) + [
        f'`{section}.{key}` has no effect with kind = "{getattr(config, section).kind}".'
        for section, key in idle_keys(config)
        if key in getattr(config, section).model_fields_set
    ]


def build_algorithm(settings: AlgorithmSettings, mixing: Mixing) -> Algorithm:
    """The algorithm that the settings name; exact mixing needs Metropolis weights, whatever is asked for."""
    kind = ALGORITHMS[settings.kind]
    if kind is FedAvg:
        return FedAvg(settings.step, settings.local_steps, mixing)
    tau = Decaying(settings.tau.start, settings.tau.decay) if isinstance(settings.tau, Decay) else settings.tau
    weights: Mixing = "metropolis" if kind is ExactMixing else mixing
    own = {"rho": settings.rho, "client": settings.client, "full_records": settings.full_records}
    return kind(tau=tau, mixing=weights, **own)  # type: ignore[call-arg]


def build_objective(settings: ObjectiveSettings) -> BatchedObjective:
    """The objective that the settings name."""
    kind = OBJECTIVES[settings.kind]
    own: dict[type[BatchedObjective], dict[str, Any]] = {
        Huber: {"kappa": settings.kappa},
        Softmax: {"classes": settings.classes},
    }
    return kind(lam=settings.lam, tolerance=settings.tolerance, **own.get(kind, {}))


def build_objectives(
    settings: ObjectiveSettings, cluster_ids: Sequence[str]
) -> BatchedObjective | dict[str, BatchedObjective]:
    """One objective for all clusters, or one per cluster; a cluster that does not exist is an error."""
    if not settings.clusters:
        return build_objective(settings)
    for name in settings.clusters:
        if name not in cluster_ids:
            known = ", ".join(cluster_ids[:10])
            raise ConfigError(f"[objective.clusters.{name}] names no cluster of the data; the clusters are {known}.")
    return {name: build_objective(settings.of(name)) for name in cluster_ids}


def build_privacy(config: Config) -> Privacy | None:
    """The privacy that the config asks for; None where it is off."""
    return Privacy(**config.privacy.model_dump(exclude={"enabled"})) if config.privacy.enabled else None
