"""Logistic regression on digits, triplets, d = 784, 3 of 15 clients a round, beside scipy's solver client by client."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from scipy.optimize import minimize

from harness import Row, seconds, take_turns
from pgfl import Logistic, mnist_federation
from rounds import RHO, engine

LAM = 0.01


class ScipyClients:
    """The same round, with L-BFGS for every client that takes part, to the same tolerance."""

    def __init__(self, ours) -> None:
        self.ours, self.run = ours, ours.layout.runs[0]
        self.objective, self.round = Logistic(LAM), 0

    def run_round(self) -> np.ndarray:
        """The primal problems of one round, from the engine's current state."""
        layout, state = self.ours.layout, self.ours.state
        self.round += 1
        return np.array([self._solve(k, layout, state) for k in self.ours.engine.scheduler.draw(self.round)])

    def _solve(self, position: int, layout, state) -> np.ndarray:
        features, targets = self.run.federation.rows(int(self.run.order[position]))
        weight = RHO + 2 * LAM / layout.server_clients[position]
        centre = RHO / weight * (state.server_models[layout.client_pair[position]] + state.dual[position])

        def value_and_gradient(w: np.ndarray) -> tuple[float, np.ndarray]:
            margin = features @ w
            loss = np.mean(np.logaddexp(0.0, margin) - targets * margin)
            slope = (1.0 / (1.0 + np.exp(-margin)) - targets) / len(targets)
            away = w - centre
            return loss + 0.5 * weight * away @ away, features.T @ slope + weight * away

        options = {"gtol": weight * 1e-10 / 28, "ftol": 0.0, "maxiter": 1000}
        return minimize(value_and_gradient, centre, jac=True, method="L-BFGS-B", options=options).x


def logistic_round() -> Iterator[Row]:
    data = mnist_federation(tasks="triplets", servers=10, clients_per_server=15, seed=0)
    for library, goal in (("numpy", "≥ 20×"), ("numba", "≥ 50×")):
        ours = engine([data], Logistic(LAM), library=library, participants=3)
        theirs = ScipyClients(ours)
        expected = theirs.run_round()
        ours.run_round()
        assert np.abs(ours.state.model[ours.engine.taking_part] - expected).max() < 1e-8
        turns = take_turns(ours.run_round, theirs.run_round, 15, (20, 1), time.process_time)
        yield Row(f"digits-{library}", f"logistic, digit triplets, d = 784, 3 of 15, {library}: the whole round",
                  "scipy's L-BFGS for its clients alone", goal, *turns.faster(), seconds(np.median(turns.ours)),
                  seconds(np.median(turns.theirs)), clock="CPU")  # fmt: skip
