"""Metrics: how far training has come, and how well predictions fit held-out targets, with trivial baselines.

Histories are in linear units, one number per run. Measures on held-out rows are defined as in scikit-learn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pgfl.arrays import AnyArray, AnyFloats, Array, Bools, Floats, Ints
from pgfl.errors import ConfigError
from pgfl.objectives.interface import Objective, Task
from pgfl.registry import Registry


@dataclass(frozen=True)
class Measure:
    """How well predictions fit the targets of held-out rows: a metric of models that other packages can register.

    `of` makes one number per model of predictions (rows, models), or of the probabilities (rows, models, C) of C
    labels, and targets (rows); `trivial` is the same of the best constant prediction. `tasks` are those it is for.
    `defined` says whether the targets of some rows define it. `of_margins`, where it is given, takes margins in place
    of predictions, or returns None to leave them to `of`. `label` is what reports call it.
    """

    of: Callable[[AnyFloats, AnyFloats], Floats]
    trivial: Callable[[AnyFloats], float]
    tasks: tuple[Task, ...] = ("regression",)
    lower_is_better: bool = False
    in_target_unit: bool = False
    defined: Callable[[AnyFloats], bool] = lambda targets: len(targets) >= 1
    of_margins: Callable[[AnyFloats, AnyFloats], Floats | None] | None = None
    label: str = ""


CLASSES: tuple[Task, ...] = ("classification", "multiclass")


def margins(models: AnyFloats, features: AnyFloats) -> AnyFloats:
    """xᵀw of every row and model, (N, k); for models of C × d numbers (N, k, C)."""
    rows, dimension = features.shape
    classes = models.shape[1] // dimension
    found = features @ models.astype(features.dtype, copy=False).reshape(-1, dimension).T
    return found if classes == 1 else found.reshape(rows, -1, classes)


def r2(predictions: AnyFloats, targets: AnyFloats) -> Floats:
    """R² = 1 − Σ(y − ŷ)²/Σ(y − ȳ)²; for constant targets 1 if they are met exactly and 0 otherwise."""
    left = ((targets[:, None] - predictions) ** 2).sum(axis=0, dtype=np.float64)
    total = 0.0 if _constant(targets) else ((targets - targets.mean(dtype=np.float64)) ** 2).sum(dtype=np.float64)
    return np.asarray(1.0 - left / total if total > 0 else np.where(left == 0.0, 1.0, np.where(left >= 0, 0.0, np.nan)))


def _constant(targets: AnyFloats) -> bool:
    """Return whether all targets are the same; their mean may differ from them by a rounding error."""
    return bool((targets == targets[0]).all())


def mae(predictions: AnyFloats, targets: AnyFloats) -> Floats:
    """The mean absolute error."""
    return np.asarray(np.abs(targets[:, None] - predictions).mean(axis=0, dtype=np.float64))


def rmse(predictions: AnyFloats, targets: AnyFloats) -> Floats:
    """The root of the mean squared error."""
    return np.asarray(np.sqrt(((targets[:, None] - predictions) ** 2).mean(axis=0, dtype=np.float64)))


def hits(margins: AnyFloats, targets: AnyFloats) -> Ints:
    """How many rows each model classifies correctly: by the sign of a margin, or by the largest of C."""
    if margins.ndim == 2:
        right = (margins > 0) == (targets[:, None] > 0.5)
    else:
        right = margins.argmax(axis=2) == targets[:, None]
    return np.asarray(np.count_nonzero(right, axis=0))


def auc(scores: AnyFloats, targets: AnyFloats) -> Floats:
    """The area under the ROC curve; of C classes the mean over classes, each against all others.

    A class that none or all of the rows belong to is left out.
    """
    if scores.ndim == 2:
        return _binary_auc(scores, targets > 0.5)
    found = [_binary_auc(scores[:, :, label], targets == label) for label in np.unique(targets).astype(np.int64)]
    return np.asarray(np.mean(found, axis=0))


def _binary_auc(scores: AnyFloats, positive: Bools) -> Floats:
    """The share of pairs of a positive and a negative row in the right order; a tie counts half."""
    pairs = int(np.count_nonzero(positive)) * int(np.count_nonzero(~positive))
    found = np.full(scores.shape[1], np.nan)
    for model in np.flatnonzero(np.isfinite(scores).all(axis=0)) if pairs else ():
        above, below = scores[positive, model], np.sort(scores[~positive, model])
        found[model] = below.searchsorted(above, "left").sum() + below.searchsorted(above, "right").sum()
    return np.asarray(found / (2 * max(pairs, 1)))


def log_loss(probabilities: AnyFloats, targets: AnyFloats) -> Floats:
    """The mean of −log p of the true class; p is clipped by the machine precision, as scikit-learn does."""
    if probabilities.ndim == 2:
        chance = np.where(targets[:, None] > 0.5, probabilities, 1.0 - probabilities)
    else:
        chance = np.take_along_axis(probabilities, targets.astype(np.int64)[:, None, None], axis=2)[:, :, 0]
    eps = np.finfo(probabilities.dtype).eps
    return np.asarray(-np.log(np.clip(chance, eps, 1.0 - eps)).mean(axis=0, dtype=np.float64))


def _shares(targets: AnyFloats) -> Floats:
    return np.asarray(np.unique(targets, return_counts=True)[1] / len(targets))


def _of_mean(measure: Callable[[AnyFloats, AnyFloats], Floats]) -> Callable[[AnyFloats], float]:
    """The measure of the rows' own mean, which rounding keeps from being that of rows that are all the same."""

    def baseline(targets: AnyFloats) -> float:
        middle = targets[0] if _constant(targets) else targets.mean(dtype=np.float64)
        return float(measure(np.full((len(targets), 1), middle), targets)[0])

    return baseline


def _entropy(targets: AnyFloats) -> float:
    """The log loss of the shares of the classes."""
    shares = _shares(targets)
    return float(-(shares * np.log(shares)).sum())


def _accuracy(scores: AnyFloats, targets: AnyFloats) -> Floats:
    return np.asarray(hits(scores, targets) / len(targets))


MEASURES = Registry[Measure](
    "metrics",
    "metric",
    {
        "r2": Measure(r2, lambda targets: float(_constant(targets)), defined=lambda targets: len(targets) >= 2),
        "mae": Measure(mae, _of_mean(mae), lower_is_better=True, in_target_unit=True),
        "rmse": Measure(rmse, _of_mean(rmse), lower_is_better=True, in_target_unit=True),
        "accuracy": Measure(
            lambda chances, targets: _accuracy(chances - 0.5 if chances.ndim == 2 else chances, targets),
            lambda targets: float(_shares(targets).max()),
            CLASSES,
            of_margins=_accuracy,
        ),
        "auc": Measure(
            auc,
            lambda targets: 0.5,
            CLASSES,
            defined=lambda targets: len(np.unique(targets)) > 1,
            of_margins=lambda margins, targets: auc(margins, targets) if margins.ndim == 2 else None,
        ),
        "log_loss": Measure(log_loss, _entropy, CLASSES, lower_is_better=True),
    },
)
"""The measures of predictions, the most important of a task first."""

OF_CLASSES = ("accuracy", "auc", "log_loss")


def of_task(task: Task) -> tuple[str, ...]:
    """The measures of a task, the most important first.

    >>> of_task("regression")[:3], of_task("multiclass")[:3]
    (('r2', 'mae', 'rmse'), ('accuracy', 'auc', 'log_loss'))
    """
    return tuple(name for name in MEASURES if task in MEASURES[name].tasks)


def measured(name: str, objective: Objective, margins: AnyFloats, targets: AnyFloats) -> Floats:
    """One measure of every model, from the margins of the rows."""
    measure = MEASURES[name]
    if not measure.defined(targets):
        return np.full(margins.shape[1], np.nan)
    found = None if measure.of_margins is None else measure.of_margins(margins, targets)
    if found is not None:
        return found
    with np.errstate(over="ignore", invalid="ignore"):
        return measure.of(np.asarray(objective.predict(margins)), targets)


def baseline(name: str, targets: AnyFloats) -> float:
    """A measure of the trivial prediction; not a number where the targets do not define it."""
    return MEASURES[name].trivial(targets) if MEASURES[name].defined(targets) else np.nan


def check_wanted(wanted: Iterable[str], objectives: Sequence[Objective]) -> None:
    """Raise if a measure is named that belongs to none of the objectives' tasks; all of them mean those of the task."""
    named = [name for name in wanted if name in MEASURES]
    possible = {name for objective in objectives for name in of_task(objective.task)}
    if set(MEASURES.built_in) <= set(named):
        return
    if wrong := [name for name in named if name not in possible]:
        kinds = " and ".join(sorted({objective.kind for objective in objectives}))
        task = MEASURES[wrong[0]].tasks[0]
        raise ConfigError(
            f"The metric {wrong[0]} measures {task}, which {kinds} is not; take it out of `metrics`, or choose from "
            f"{', '.join(name for name in MEASURES if name in possible)}."
        )


DEFAULT_METRICS = ("nmsd", *MEASURES.built_in, "objective", "residuals", "disagreement")
"""The metrics that `train` and a config record unless others are named, where the data and the task define them."""
OF_MODELS = ("nmsd", "objective", "residuals", "disagreement", "distance")
"""Metrics that need no held-out rows."""


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


def adjusted_rand_index(first: AnyArray, second: AnyArray) -> float:
    """How well two ways to cluster the same things agree: 1 is the same clusters, 0 what chance would give.

    >>> adjusted_rand_index(np.array(["a", "a", "b"]), np.array([1, 1, 0]))
    1.0
    """
    table = np.zeros((len(np.unique(first)), len(np.unique(second))))
    np.add.at(table, (np.unique(first, return_inverse=True)[1], np.unique(second, return_inverse=True)[1]), 1.0)
    same, rows, columns, every = (
        float((counts * (counts - 1.0) / 2.0).sum())
        for counts in (table, table.sum(axis=1), table.sum(axis=0), table.sum(keepdims=True))
    )
    expected, most = rows * columns / max(every, 1.0), (rows + columns) / 2.0
    return 1.0 if most == expected else (same - expected) / (most - expected)


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
