"""The settings that a plan chooses."""

from __future__ import annotations

from dataclasses import dataclass

from pgfl.core.algorithms import PGFL
from pgfl.core.schedules import Decaying
from pgfl.core.topology import Mixing
from pgfl.objectives import Huber, Logistic

LAM = 0.001
MIXING: Mixing = "clients"


@dataclass(frozen=True)
class Settings:
    """What a plan chooses; `tau_decay` is per round, `x_norm` a length to which rows are clipped."""

    rho: float
    zeta: float
    releases: int
    tau: float
    tau_decay: float = 1.0
    kappa: float | None = None  # regression only
    x_norm: float | None = None  # None: that of the facts
    full_records: int = 1

    @property
    def rounds(self) -> int:
        """Everyone takes part in every round, so there is one for every release."""
        return self.releases

    @property
    def algorithm(self) -> PGFL:
        """PGFL with linearised steps."""
        tau = self.tau if self.tau_decay == 1.0 or self.tau == 0.0 else Decaying(self.tau, self.tau_decay)
        return PGFL(self.rho, tau, MIXING, "gradient", self.full_records)

    @property
    def objective(self) -> Huber | Logistic:
        """Huber regression or logistic regression."""
        return Logistic(LAM) if self.kappa is None else Huber(LAM, kappa=self.kappa)
