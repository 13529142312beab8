"""Standard errors of a cluster's coefficients, from the records that it was trained on (without privacy only).

A cluster's model minimises Σ_i c_i ℓ_i(w) over its records, up to the penalty, to what it learned from other clusters
and to rounds that are missing; c_i is the weight of a record in training. Newton's method goes on from the model to
the minimum ŵ itself, and the sandwich H⁻¹ (Σ c_i² g_i g_iᵀ) H⁻¹ · n/(n − rank), with curvature H and gradients g_i at
ŵ, is the covariance of its error if records are independent, whether the loss is that of a true model or not (HC1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pgfl.arrays import AnyFloats, Floats, Ints
from pgfl.errors import ResultError
from pgfl.federation.federation import Federation
from pgfl.objectives import Objective
from pgfl.results.coefficients import FITS, Fit, Terms
from pgfl.results.model import Model
from pgfl.results.result import Columns
from pgfl.simulate.problems import Objectives, evaluated, objective_of

MOST_WORK = 1e8  # multiplications for one curvature, of which a fit takes a handful: about a second in all
RECORDS_AT_A_TIME = 4096
DIFFERENCE = 1e-4  # how far a typical margin moves for a difference of gradients
RANK = 1e-9  # eigenvalues below this part of the largest count as 0
STEPS, NEAR = 25, 0.02  # the most steps of Newton's method; the last one, in standard errors
TOO_LARGE = "Standard errors were left out: the table has too many rows and features to compute them in passing."
SEARCHED = "Standard errors take the clusters as given: that they were found from the same records is not part of them."
SEVERAL_PROCESSES = "Standard errors were left out: the records are spread over several processes."
NOT_FOUND = "Standard errors are missing where records do not determine a coefficient."


@dataclass(frozen=True, eq=False)
class WeightedLoss:
    """Σ_i c_i ℓ_i(w) over some records, with Σ_i c_i = 1."""

    objective: Objective
    features: AnyFloats
    targets: AnyFloats
    weights: Floats

    @classmethod
    def of(cls, federation: Federation, objective: Objective, clients: Ints, full_records: int) -> WeightedLoss:
        """Return the loss of some clients, whose records weigh as in training: 1/max(D_k, R) each."""
        rows = np.concatenate([np.arange(*federation.offsets[k : k + 2]) for k in clients.tolist()])
        counts = federation.counts[clients]
        weights = np.repeat(1.0 / np.maximum(counts, full_records), counts)
        return cls(objective, federation.features[rows], federation.weighted_targets(rows), weights / weights.sum())

    @property
    def work(self) -> float:
        """Multiplications for one curvature."""
        return 2.0 * self.features.size * self.objective.model_length(self.features.shape[1])

    def gradients(self, w: Floats) -> Iterator[tuple[Floats, Floats]]:
        """Return the gradient of every record and its weight, some records at a time."""
        for start in range(0, len(self.targets), RECORDS_AT_A_TIME):
            here = slice(start, start + RECORDS_AT_A_TIME)
            rows, targets = self.features[here].astype(np.float64), self.targets[here].astype(np.float64)
            models = np.repeat(w[None], len(rows), axis=0)
            ones = np.ones(len(rows))
            found = evaluated(self.objective, "gradient", models, rows[:, None], targets[:, None], ones)
            yield np.asarray(found), self.weights[here]

    def meat(self, w: Floats) -> Floats:
        """Σ c_i² g_i g_iᵀ."""
        return np.asarray(sum((part * weight[:, None] ** 2).T @ part for part, weight in self.gradients(w)))

    def gradient(self, w: Floats) -> Floats:
        """Σ c_i g_i, records of one weight at a time."""
        total = np.zeros_like(w)
        for weight, rows, targets in self._groups():
            count = np.array([float(len(targets))])
            mean = evaluated(self.objective, "gradient", w[None], rows[None], targets[None], count)
            total += weight * len(targets) * np.asarray(mean)[0]
        return total

    def curvature(self, w: Floats) -> Floats:
        """Return the Hessian by central differences, which are exact for a squared loss."""
        size = np.sqrt(np.mean(np.square(self.features, dtype=np.float64), axis=0))
        steps = np.tile(DIFFERENCE / np.where(size > 0, size, 1.0), len(w) // len(size))
        rows = [
            (self.gradient(w + step * unit) - self.gradient(w - step * unit)) / (2.0 * step)
            for step, unit in zip(steps.tolist(), np.eye(len(w)), strict=True)
        ]
        found = np.array(rows, dtype=np.float64)
        return np.asarray(0.5 * (found + found.T))

    def _groups(self) -> Iterator[tuple[float, Floats, Floats]]:
        weights, place = np.unique(self.weights, return_inverse=True)
        for number, weight in enumerate(weights.tolist()):
            mine = slice(None) if len(weights) == 1 else np.flatnonzero(place == number)
            yield weight, self.features[mine].astype(np.float64), self.targets[mine].astype(np.float64)


def inverse(curvature: Floats) -> tuple[Floats, Floats]:
    """Return the pseudo-inverse of a curvature, and an orthonormal basis of the directions without any.

    Features are scaled to unit curvature first, so that the rank does not depend on their units.
    """
    diagonal = np.diag(curvature)
    scale = np.where(diagonal > 0, 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0)), 0.0)
    values, vectors = np.linalg.eigh(scale[:, None] * curvature * scale)
    kept = values > RANK * max(float(values[-1]), 0.0)
    turned = scale[:, None] * vectors[:, kept]
    flat, _ = np.linalg.qr(vectors[:, ~kept] * np.where(scale > 0, scale, 1.0)[:, None])
    return turned / values[kept] @ turned.T, flat


def fit(loss: WeightedLoss, start: Floats) -> Fit | None:
    """Return the minimum near a model and the covariance of its error; None if there is no minimum."""
    w = start
    for _ in range(STEPS):
        bread, flat = inverse(loss.curvature(w))
        step = bread @ loss.gradient(w)
        w = w - step
        df = len(loss.targets) - (len(w) - flat.shape[1])
        if df <= 0 or not np.isfinite(w).all():
            return None
        covariance = bread @ loss.meat(w) @ bread * (len(loss.targets) / df)
        if (np.abs(step) <= NEAR * np.sqrt(np.diag(covariance)) + 1e-12).all():
            return Fit(w, covariance, df, flat)
    return None


def fits(
    model: Model, federation: Federation, objectives: Objectives, full_records: int, personalised: bool
) -> tuple[Columns | None, str]:
    """Return estimates, standard errors and degrees of freedom of all coefficients, and a note on what is missing."""
    losses = [
        WeightedLoss.of(federation, objective_of(objectives, name), clients, full_records)
        for name, clients in zip(federation.cluster_ids, _clients(federation, personalised), strict=True)
    ]
    if sum(loss.work for loss in losses) > MOST_WORK:
        return None, TOO_LARGE
    found = []
    for loss, own in zip(losses, model.clusters, strict=True):
        known = np.isfinite(own).all() and loss.objective.convex
        found.append(fit(loss, own.astype(np.float64)) if known else None)
    return tabled(model, found)


def tabled(model: Model, found: Sequence[Fit | None]) -> tuple[Columns | None, str]:
    """Return the clusters' fits as columns of the table of coefficients, and a note where some are missing."""
    try:
        terms = Terms.of(model)
    except ResultError:
        return None, ""
    parts = [terms.of_fit(one) for one in found]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in FITS}
    return columns, NOT_FOUND if np.isnan(columns["std_error"]).any() else ""


def _clients(federation: Federation, personalised: bool) -> Sequence[Ints]:
    """Return whose records each cluster's model was trained on."""
    everyone = np.arange(federation.size)
    clusters = range(len(federation.cluster_ids))
    return [np.flatnonzero(federation.client_cluster == q) if personalised else everyone for q in clusters]
