"""The lying server, and what it records."""

from __future__ import annotations

import numpy as np

from pgfl.array_types import Floats
from pgfl.audit.cases import Case
from pgfl.core import equations as eq


class LyingServer:
    """Plays against many clients at once, one row per client. Every round it sends what puts the centre where it wants.

    With c = (model + dual)·ρ/m and a dual that it knows, that model is c·m/ρ − dual.
    """

    def __init__(self, case: Case, trials: int, server_clients: int) -> None:
        self.case = case
        self.dual: Floats = np.zeros((trials, len(case.centre)))
        self.released: list[Floats] = []
        self.implied: list[Floats] = []
        self.answers: Floats | None = None  # (trials, answers, d): everything received, NaN where nothing was
        self._weight = eq.strong_convexity(case.algorithm.rho, case.objective.lam, server_clients)

    def message(self) -> Floats:
        """The models to send."""
        if not self.case.algorithm.has_dual:
            return np.tile(self.case.centre, (len(self.dual), 1))
        return np.asarray(self._weight / self.case.algorithm.rho * self.case.centre - self.dual)

    def receive(self, released: Floats) -> None:
        """Record what the clients released in a round."""
        self.released.append(released.copy())

    def expect_dual(self, accepted: Floats) -> None:
        """The dual that the clients should have once they receive the models of the round."""
        self._before, self._accepted = self.dual, accepted
        if self.case.algorithm.has_dual:
            self.dual = eq.client_dual_update(self.dual, accepted, self.released[-1])

    def see_dual(self, dual: Floats) -> None:
        """The dual that they do have reveals the model that it was built from."""
        if self.case.algorithm.has_dual:
            self.implied.append(self._accepted - (dual - self._before))
            self.dual = dual.copy()
