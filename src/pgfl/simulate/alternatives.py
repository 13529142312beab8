"""Simpler models than those of a run, fitted to the same records and measured on the same held-out rows.

One model for all, the same with a term per cluster, one per cluster and one per client, each with the penalty of the
run; all records count alike. Without privacy only: each of them is a function of the records.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pgfl import equations as eq
from pgfl import metrics
from pgfl.arrays import AnyFloats, Floats, Ints
from pgfl.federation.federation import Federation, TestSet
from pgfl.objectives import Logistic, Objective
from pgfl.results.alternatives import APART, LOCAL, POOLED, TERM, TRAINED, Alternatives, Contest
from pgfl.results.calibration import Calibration, calibrate
from pgfl.results.model import Model
from pgfl.simulate.problems import Objectives, objective_of
from pgfl.streams import Purpose, stream

MOST_WORK = 1e8  # multiplications for one step of a solver: about a second in all
MOST_CLIENTS = 300  # that are fitted one by one
RESAMPLES = 60
LEAST_ROWS = 20  # held-out rows
LEAST_PENALTY = 1e-9
PROBABILITIES = Logistic.kind  # the loss of two labels whose predictions are probabilities
Predictor = Callable[[int, TestSet], Floats]
"""The margins of a cluster's held-out rows."""


def alternatives(model: Model, federation: Federation, objectives: Objectives, seed: int) -> Alternatives | None:
    """Return the comparison; None without held-out rows, or where it would take long."""
    held_out = federation.tests or {}
    tests = {q: held_out[name] for q, name in enumerate(federation.cluster_ids) if name in held_out}
    kinds = {objective_of(objectives, name) for name in federation.cluster_ids}
    objective = next(iter(kinds))
    work = federation.features.size * objective.model_length(federation.dimension)
    rows = sum(len(test.targets) for test in tests.values())
    if len(kinds) > 1 or rows < LEAST_ROWS or work > MOST_WORK or not objective.convex:
        return None
    fits = _Fits(model, federation, objective)
    ways = fits.ways(tests)
    return None if len(ways) < 2 else _contest(ways, tests, federation, objective, seed)


def calibration(model: Model, federation: Federation) -> Calibration | None:
    """Return how far the probabilities of two labels are to be trusted; None for other tasks, or too few rows."""
    tests = federation.tests or {}
    if set(model.objectives) != {PROBABILITIES}:
        return None
    known = {name: own for name, own in zip(federation.cluster_ids, model.clusters, strict=True) if name in tests}
    margins = {name: tests[name].features.astype(np.float64) @ own.astype(np.float64) for name, own in known.items()}
    return calibrate(margins, {name: tests[name].targets.astype(np.float64) for name in known})


class _Fits:
    """The ways to split a federation's records, each as a predictor of held-out rows."""

    def __init__(self, model: Model, federation: Federation, objective: Objective) -> None:
        self.model, self.federation, self.objective = model, federation, objective
        server_clients = np.bincount(federation.client_server)[federation.client_server]
        self._penalty = eq.ridge_penalty(objective.lam, server_clients)

    def ways(self, tests: dict[int, TestSet]) -> dict[str, Predictor]:
        """Return every way that can be compared."""
        federation = self.federation
        found: dict[str, Predictor] = {TRAINED: lambda q, test: self._margins(self.model.clusters[q], test.features)}
        everyone, clusters = np.arange(federation.size), len(federation.cluster_ids)
        if clusters > 1:
            pooled = self._fitted(everyone)
            found[POOLED] = lambda q, test: self._margins(pooled, test.features)
            mine = np.repeat(federation.client_cluster, federation.counts)
            with_term = self._fitted(everyone, _terms(mine, clusters))
            found[TERM] = lambda q, test: self._margins(
                with_term, np.hstack([test.features, _terms(np.full(len(test.targets), q), clusters)])
            )
            apart = [self._fitted(np.flatnonzero(federation.client_cluster == q)) for q in range(clusters)]
            found[APART] = lambda q, test: self._margins(apart[q], test.features)
        known = all(test.clients is not None and (test.clients >= 0).all() for test in tests.values())
        if known and federation.size <= MOST_CLIENTS and federation.size > clusters:
            local = [self._fitted(np.array([client])) for client in range(federation.size)]
            found[LOCAL] = lambda q, test: self._own(np.array(local), test)
        return found

    def _own(self, local: Floats, test: TestSet) -> Floats:
        """Return the margins of rows, each by the model of its client."""
        assert test.clients is not None
        rows = test.features.astype(np.float64)
        own = local[test.clients].reshape(len(rows), -1, rows.shape[1])
        return np.asarray(np.einsum("nd,ncd->nc", rows, own).reshape(self._shape(len(rows))))

    def _margins(self, w: AnyFloats, rows: AnyFloats) -> Floats:
        found = rows.astype(np.float64) @ w.astype(np.float64).reshape(-1, rows.shape[1]).T
        return np.asarray(found.reshape(self._shape(len(rows))))

    def _shape(self, rows: int) -> tuple[int, ...]:
        """Margins of one model, as metrics take them."""
        return (rows, 1) if self.objective.label_count is None else (rows, 1, self.objective.label_count)

    def _fitted(self, clients: Ints, more: Floats | None = None) -> Floats:
        """Return the model of some clients' records, with further features if there are any."""
        federation = self.federation
        rows = np.concatenate([np.arange(*federation.offsets[k : k + 2]) for k in clients.tolist()])
        features = federation.features[rows].astype(np.float64)
        features = features if more is None else np.hstack([features, more[rows]])
        penalty = float(np.average(self._penalty[clients], weights=federation.counts[clients]))
        return minimum(self.objective, features, federation.weighted_targets(rows).astype(np.float64), penalty)


def minimum(objective: Objective, features: Floats, targets: Floats, penalty: float) -> Floats:
    """argmin (1/D) Σ ℓ + (penalty/2)‖w‖²."""
    modulus = max(penalty, LEAST_PENALTY)
    length, count = objective.model_length(features.shape[1]), np.array([float(len(targets))])
    if objective.label_count is None:
        problem = objective.prepare(features[None], targets[None], count, np.array([modulus]))
        return np.asarray(problem.solve(np.zeros((1, length)))[0][0], dtype=np.float64)

    def penalised(w: Floats) -> tuple[float, Floats]:
        value, gradient = objective.value_and_gradient(w[None], features[None], targets[None], count)
        return float(value[0]) + 0.5 * modulus * float(w @ w), np.asarray(gradient)[0] + modulus * w

    from scipy.optimize import minimize

    start = np.zeros(length)
    found = minimize(penalised, start, jac=True, method="L-BFGS-B", options={"maxiter": 100, "gtol": 1e-5})
    return np.asarray(found.x, dtype=np.float64)


def _terms(cluster: Ints, clusters: int) -> Floats:
    """Return one feature per cluster but the first."""
    return np.asarray(cluster[:, None] == np.arange(1, clusters), dtype=np.float64)


def _contest(
    ways: dict[str, Predictor], tests: dict[int, TestSet], federation: Federation, objective: Objective, seed: int
) -> Alternatives | None:
    """Measure every way in every cluster, also on resampled rows, which tells chance from a difference."""
    name = "r2" if objective.task == "regression" else "auc"
    rng = stream(seed, 0, Purpose.ALTERNATIVES)
    clusters = len(federation.cluster_ids)
    figures = np.full((len(ways), clusters), np.nan)
    resampled = np.full((RESAMPLES, len(ways), clusters), np.nan)
    for q, test in tests.items():
        margins = np.concatenate([predict(q, test) for predict in ways.values()], axis=1)
        figures[:, q] = metrics.measured(name, objective, margins, test.targets)
        for draw in range(RESAMPLES):
            drawn = rng.integers(0, len(test.targets), len(test.targets))
            resampled[draw, :, q] = metrics.measured(name, objective, margins[drawn], test.targets[drawn])
    defined = np.isfinite(figures).all(axis=0)
    weights = np.where(defined, np.bincount(federation.client_cluster, minlength=clusters), 0.0)
    if not defined.any():
        return None
    rows = sum(len(test.targets) for test in tests.values())
    kept = np.where(np.isfinite(resampled), resampled, figures)
    return Contest(name, rows, list(ways), federation.cluster_ids, figures, kept, weights).outcome()
