"""How far training has come: one number per run, in linear units. Measures on held-out rows are in `measures`."""

from __future__ import annotations

import numpy as np

from pgfl.array_types import AnyFloats, Array, Ints
from pgfl.core.measures import MEASURES

DEFAULT_METRICS = ("nmsd", *MEASURES, "objective", "residuals", "disagreement")
"""The metrics that `train` and a config record unless others are named, where the data and the task define them."""
METRICS = (*DEFAULT_METRICS, "distance")


def squared_norm(x: AnyFloats) -> AnyFloats:
    """‖x‖² along the last axis."""
    return np.asarray(np.einsum("...i,...i->...", x, x))


def squared_distance(x: AnyFloats, y: AnyFloats) -> AnyFloats:
    """‖x − y‖² along the last axis."""
    return squared_norm(x - y)


def squared_dual_residual(rho: float, models: AnyFloats, previous: AnyFloats) -> AnyFloats:
    """‖ρ (w − w_previous)‖² of every server model."""
    return squared_norm(rho * (models - previous))


def mean_per_group(sums: AnyFloats, members: Ints) -> AnyFloats:
    """The means of groups, given their sums and sizes; 0 for an empty group."""
    return np.asarray(sums / np.maximum(members, 1))


def deviation(models: AnyFloats, truth: AnyFloats, size: AnyFloats | None = None) -> AnyFloats:
    r"""‖w_k − w_q*‖²/‖w_q*‖² of every client; its mean over clients is the NMSD, \label{MSE} (53).

    `size` is ‖w_q*‖², where it is known already.
    """
    return squared_distance(models, truth) / (squared_norm(truth) if size is None else size)


def disagreement(models: AnyFloats, clusters: Ints) -> float:
    """Σ‖w_{q,s} − w̄_q‖² / Σ‖w̄_q‖² over all servers that have a model, w̄_q their mean."""
    if not len(models):
        return 0.0
    _, group, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    means = np.zeros((len(sizes), models.shape[1]))
    np.add.at(means, group, models)
    centred = means[group] / sizes[group, None]
    scale = squared_norm(centred).sum()
    return float(squared_norm(models - centred).sum() / scale) if scale > 0 else 0.0


def decibels(ratio: Array) -> Array:
    """10 log₁₀, with −∞ for 0."""
    with np.errstate(divide="ignore"):
        return 10.0 * np.log10(ratio)
