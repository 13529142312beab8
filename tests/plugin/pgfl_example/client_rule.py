"""A gradient step that is shortened by a factor."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pgfl import ClientRule
from pgfl import equations as eq
from pgfl.algorithms.accuracy import LinearisedPromise
from pgfl.algorithms.client_rules import ClientStep, check_records_and_error, gradient_change
from pgfl.registry import setting


@dataclass(frozen=True)
class DampedStep(ClientRule):
    """w − (damping/ρ)∇f(w), from the server's model w."""

    rho: float = setting(5.0, gt=0)
    damping: float = setting(0.5, gt=0, le=1)

    has_rho: ClassVar[bool] = True
    linearised: ClassVar[bool] = True

    def step(self, problem, server_model, dual, release):
        centre = problem.projected(server_model)
        model = eq.linearised_client_step(centre, problem.gradient(centre), self.rho / self.damping)
        model = eq.clip_update(model, centre, problem.update_norm)
        return ClientStep(model, release(model), 0.0 * model[..., 0])

    def reach(self, modulus):
        return self.damping / self.rho

    def sensitivity(self, objective, bounds, counts, modulus, tolerance):
        records, error = np.broadcast_arrays(np.asarray(counts, dtype=float), np.asarray(tolerance, dtype=float))
        check_records_and_error(records, error)
        return self.reach(modulus) * gradient_change(objective, bounds) / records + 2.0 * error

    def promise(self, sizes, lam, server_clients, tolerance, most_steps):
        return LinearisedPromise(sizes, self.rho / self.damping, eq.ridge_penalty(lam, server_clients), tolerance)
