"""What a client has agreed to spend, as its ledger stores it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Self

from pgfl.errors import PrivacyError
from pgfl.privacy.budget import Budget


@dataclass(frozen=True)
class Policy:
    """What a client has agreed to, for good: its budget, by release, and its data bounds, as they are stored.

    At least one of `max_releases` and `rho_budget` caps what can be spent.
    """

    phi0: float
    zeta: float
    delta: float
    max_releases: int | None = None
    rho_budget: float | None = None
    bounds: Mapping[str, float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.max_releases is None and self.rho_budget is None:
            raise PrivacyError("A ledger needs a budget: set max_releases or a target epsilon.")
        object.__setattr__(self, "bounds", dict(self.bounds))
        _ = self.budget  # which refuses what is no budget

    @classmethod
    def of(cls, budget: Budget, bounds: Mapping[str, float | None] | None = None) -> Self:
        """The policy that keeps to a budget by release."""
        if budget.index != "release":
            raise PrivacyError("A ledger counts releases, so its noise schedule must be by release.")
        return cls(budget.phi0, budget.zeta, budget.delta, budget.max_releases, budget.rho_budget, dict(bounds or {}))

    @cached_property
    def budget(self) -> Budget:
        """The schedule and what may be spent of it."""
        return Budget(self.phi0, self.zeta, self.delta, self.max_releases, self.rho_budget)

    def text(self) -> str:
        """One spelling of the policy, as it is stored and hashed."""
        return json.dumps(asdict(self), sort_keys=True)


NO_POLICY = json.dumps(None)  # of a ledger that was begun with privacy off
