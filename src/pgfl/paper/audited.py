"""Theorem III put to the test: the privacy loss that a lying server measures, by the project's own audit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgfl.audit.cases import paper_cases
from pgfl.audit.findings import FALSE_ALARM, attack
from pgfl.paper.experiments import Measured

CASES = {case.name: case for case in paper_cases()}
__all__ = ["CASES", "FALSE_ALARM", "Audited"]


@dataclass(frozen=True)
class Audited:
    """One shipped mechanism attacked in the simulator, with that many trials in each of two worlds."""

    case: str
    trials: int

    @property
    def cost(self) -> float:
        """Measured once on one core."""
        return 1.5e-4 * self.trials

    def run(self, seed: int, runs: int) -> Measured:
        """Claimed μ and the lower bound on the true one."""
        alpha = FALSE_ALARM / len(CASES)
        found = [attack(CASES[self.case], "simulator", self.trials, alpha, seed=seed + run) for run in range(runs)]
        return {
            "claimed": np.array([one.claimed_mu for one in found]),
            "audited": np.array([one.mu_lower for one in found]),
            "trials": np.array([one.trials for one in found]),
        }
