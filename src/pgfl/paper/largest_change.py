"""Lemma 1 put to the test: a search for the two neighbouring data sets whose models differ most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgfl.array_types import Floats
from pgfl.core.algorithms import PGFL
from pgfl.core.streams import Purpose, stream
from pgfl.objectives import Bounds, Huber, Logistic, MarginObjective, Ridge
from pgfl.paper.experiments import Measured
from pgfl.privacy.sensitivity import release_sensitivity

RECORDS, DIMENSION, WEIGHT = 3, 4, 10.0
X_NORM, Y_BOUND, W_NORM = 1.0, 1.0, 1.0
POPULATION, PARENTS, GENERATIONS = 96, 16, 250
FAR = 1e4  # the largest label and the largest model that an adversary sends

OBJECTIVES: dict[str, tuple[MarginObjective, Bounds]] = {
    "Huber": (Huber(lam=0.0), Bounds(x_norm=X_NORM)),
    "logistic": (Logistic(lam=0.0), Bounds(x_norm=X_NORM)),
    "bounded ridge": (Ridge(lam=0.0, w_norm=W_NORM), Bounds(x_norm=X_NORM, y_bound=Y_BOUND, w_norm=W_NORM)),
    "raw ridge": (Ridge(lam=0.0), Bounds(x_norm=X_NORM, y_bound=Y_BOUND)),
}


@dataclass(frozen=True)
class LargestChange:
    """One search per run, over all records, both versions of the replaced one, and the server's message.

    Rows lie in ‖x‖ ≤ 1. Labels lie within ±1 for ridge, are 0 or 1 for logistic regression, and anything for Huber. The
    centre that the server sends has at most the given norm.
    """

    objective: str
    centre_norm: float = FAR
    cost: float = 0.3

    def run(self, seed: int, runs: int) -> Measured:
        """The largest change of each search, and the bound (NaN where there is none)."""
        objective, bounds = OBJECTIVES[self.objective]
        found = [self._search(objective, stream(seed, run, Purpose.PAPER)) for run in range(runs)]
        bounded = objective.gradient_change(bounds) is not None
        bound = float(release_sensitivity(objective, PGFL(), bounds, RECORDS, WEIGHT)) if bounded else np.nan
        return {"change": np.array(found), "bound": np.full(runs, bound)}

    def _search(self, objective: MarginObjective, rng: np.random.Generator) -> float:
        """Evolution: the best few are kept, and the rest are mutations of them at all scales."""
        genes = RECORDS * (DIMENSION + 1) + 2 * (DIMENSION + 1)
        pool = rng.standard_normal((POPULATION, genes))
        best = 0.0
        for _ in range(GENERATIONS):
            change = self._changes(objective, pool)
            order = np.argsort(-change)
            best = max(best, float(change[order[0]]))
            parents = pool[order[:PARENTS]]
            children = np.repeat(parents, POPULATION // PARENTS - 1, axis=0)
            step = 10.0 ** rng.uniform(-4.0, 0.5, size=(len(children), 1))
            hit = rng.random(children.shape) < rng.choice([0.15, 0.5, 1.0], size=(len(children), 1))
            pool = np.concatenate([parents, children + step * hit * rng.standard_normal(children.shape)])
        return best

    def _changes(self, objective: MarginObjective, genes: Floats) -> Floats:
        rows, other, centre = np.split(genes, [RECORDS * (DIMENSION + 1), (RECORDS + 1) * (DIMENSION + 1)], axis=1)
        features, targets = self._record(objective, rows.reshape(-1, RECORDS, DIMENSION + 1))
        replaced, label = self._record(objective, other[:, None])
        direction, size = centre[:, :-1], np.abs(np.tanh(centre[:, -1:]))
        sent = self.centre_norm * size * direction / np.linalg.norm(direction, axis=1, keepdims=True)
        neighbour, theirs = features.copy(), targets.copy()
        neighbour[:, -1], theirs[:, -1] = replaced[:, 0], label[:, 0]
        moved = self._solved(objective, features, targets, sent) - self._solved(objective, neighbour, theirs, sent)
        return np.asarray(np.linalg.norm(moved, axis=1))

    @staticmethod
    def _record(objective: MarginObjective, genes: Floats) -> tuple[Floats, Floats]:
        """A row in the unit ball and a label that the objective admits."""
        row, label = genes[..., :-1], genes[..., -1]
        row = X_NORM * row / np.maximum(1.0, np.linalg.norm(row, axis=-1, keepdims=True))
        if isinstance(objective, Logistic):
            return row, (label > 0).astype(float)
        return row, np.sign(label) * np.expm1(9.2 * np.abs(np.tanh(label))) if isinstance(
            objective, Huber
        ) else np.clip(label, -Y_BOUND, Y_BOUND)

    @staticmethod
    def _solved(objective: MarginObjective, features: Floats, targets: Floats, centre: Floats) -> Floats:
        counts, weight = np.full(len(features), RECORDS), np.full(len(features), WEIGHT)
        model, _ = objective.prepare(features, targets, counts, weight).solve(centre)
        return np.asarray(model)
