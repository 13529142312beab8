"""The solver for any smooth objective that gives only its value and its gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pgfl.array_types import Array
from pgfl.objectives.solving import GOAL, HasTolerance


class SmoothLoss(HasTolerance, Protocol):
    """What this solver needs to know about an objective."""

    def value_and_gradient(self, w: Array, features: Array, targets: Array, counts: Array) -> tuple[Array, Array]:
        """The mean loss (1/D_k) Σ ℓ and its gradient in w."""
        ...


@dataclass(frozen=True)
class Smooth:
    """L-BFGS, one client at a time."""

    objective: SmoothLoss
    features: Array
    targets: Array
    counts: Array
    modulus: Array

    def solve(self, centre: Array, index: Array | None = None) -> tuple[Array, Array]:
        """Minimise from the centre; the error is ‖∇G(w)‖/m, a distance bound where the objective is convex."""
        xp = centre.__array_namespace__()
        chosen = range(centre.shape[0]) if index is None else index
        solved = [self._one(int(k), centre[i, :]) for i, k in enumerate(chosen)]
        return xp.asarray([w for w, _ in solved]), xp.asarray([error for _, error in solved])

    def _one(self, client: int, centre: Array) -> tuple[Array, float]:
        from scipy.optimize import minimize

        rows, modulus = int(self.counts[client]), float(self.modulus[client])
        middle = np.asarray(centre, dtype=float)
        data = (self.features[client, :rows, :], self.targets[client, :rows], self.counts[client])

        def penalised(w: Array) -> tuple[float, Array]:
            value, gradient = self.objective.value_and_gradient(w, *data)
            away = w - middle
            return float(value) + 0.5 * modulus * float(away @ away), np.asarray(gradient, dtype=float) + modulus * away

        goal = GOAL * modulus * self.objective.tolerance
        options = {"maxiter": 10_000, "maxfun": 50_000, "ftol": 0.0, "gtol": goal / len(middle) ** 0.5, "maxcor": 30}
        w = minimize(penalised, middle, jac=True, method="L-BFGS-B", options=options).x  # type: ignore[call-overload]
        return w, float(np.linalg.norm(penalised(w)[1])) / modulus
