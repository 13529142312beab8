"""Build what settings describe (objectives, privacy), and warn about what is probably not meant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pgfl.config.schema import Config, ObjectiveSettings, idle_keys
from pgfl.errors import ConfigError
from pgfl.objectives import BatchedObjective, Bounds
from pgfl.privacy import rules
from pgfl.privacy.request import Privacy


def warnings(config: Config) -> list[str]:
    """That privacy is off although it is written, and keys that were given but do nothing: one sentence each."""
    off = rules.off_although_written(dict(config.privacy))
    said = [one for one in (off, _overshoots(config)) if one]
    return said + [
        f'`{section}.{key}` has no effect with kind = "{getattr(config, section).kind}".'
        for section, key in idle_keys(config)
        if key in getattr(config, section).model_fields_set
    ]


def _overshoots(config: Config) -> str | None:
    """Return that steps may be too long for mapped rows, which often share a direction as columns seldom do.

    A step leaves 1 − c/ρ of an error along a direction of curvature c, and no direction has more than the loss's
    smoothness L of it: with ρ below L/2 errors can grow.
    """
    rho, objective = config.algorithm.rho, config.objective
    steps = config.algorithm.client == "gradient" and isinstance(rho, float | int) and not objective.clusters
    if not steps or not config.data.chosen_map:
        return None
    encoding = config.data.public_encoding()
    x_norm = config.privacy.x_norm or (encoding and encoding.x_norm)
    smoothness = objective.build().smoothness(Bounds(x_norm=x_norm)) if x_norm else None
    if smoothness is None or float(rho) >= 0.5 * smoothness:
        return None
    return (
        f"`algorithm.rho` = {rho:g} is below {0.5 * smoothness:.3g}: where mapped rows share a direction, steps may "
        'overshoot; raise it, take "auto", or let `pgfl plan` choose.'
    )


def build_objectives(
    settings: ObjectiveSettings, cluster_ids: Sequence[str]
) -> BatchedObjective | dict[str, BatchedObjective]:
    """One objective for all clusters, or one per cluster; a cluster that does not exist is an error."""
    if not settings.clusters:
        return settings.build()
    for name in settings.clusters:
        if name not in cluster_ids:
            known = ", ".join(cluster_ids[:10])
            raise ConfigError(f"[objective.clusters.{name}] names no cluster of the data; the clusters are {known}.")
    return {name: settings.of(name).build() for name in cluster_ids}


def build_privacy(config: Config) -> Privacy | None:
    """The privacy that the config asks for; None where it is off."""
    if not config.privacy.enabled:
        return None
    asked = config.privacy.request()
    return asked if asked.weight_cap else replace(asked, weight_cap=config.data.public_weight_cap)
