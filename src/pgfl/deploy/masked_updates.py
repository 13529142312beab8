"""What a site and its clients compute alike about a masked update: the public model it starts from, and its length."""

from __future__ import annotations

import numpy as np

from pgfl.array_types import Floats
from pgfl.core import equations as eq
from pgfl.core.algorithms import Algorithm
from pgfl.objectives import Objective, Ridge

MARGIN = 1e-6  # relative, of a stated σ or length over the least one, so that rounding never makes a client refuse


def centre_of(model: Floats | None, dimension: int) -> Floats:
    """The model that a request carries; zero while the site has none."""
    return np.zeros(dimension) if model is None else np.asarray(model, dtype=float)


def reach_of(algorithm: Algorithm, objective: Objective, gradient: float, server_clients: int) -> float:
    """How far a loss whose gradients are at most `gradient` moves an update."""
    modulus = np.float64(eq.strong_convexity(algorithm.rho, objective.lam, server_clients))
    return float(algorithm.reach(modulus)) * gradient


def update_bound(
    algorithm: Algorithm, objective: Objective, reach: float, centre: Floats, server_clients: int
) -> float:
    """A bound on the length of an update: what the loss, the regulariser and a projection can do to it."""
    penalty = float(eq.ridge_penalty(objective.lam, server_clients))
    of_model = reach_of(algorithm, objective, penalty, server_clients) + float(isinstance(objective, Ridge))
    return (reach + of_model * float(np.linalg.norm(centre))) * (1.0 + MARGIN)
