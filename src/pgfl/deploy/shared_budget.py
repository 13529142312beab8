"""A client's privacy budget as it tells its site, so that the operator sees who will soon take no more part.

It depends on the owner's policy alone, never on data. `share_budget = false` in `client.toml` keeps it back. The site
only displays it: noise and charges are the client's own.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pgfl.privacy import accounting
from pgfl.privacy.ledger_policy import Policy

_Small = Annotated[float, Field(gt=0.0, lt=1e6, allow_inf_nan=False)]


class SharedBudget(BaseModel):
    """The schedule of a client's releases, and how many it may make."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    phi0: _Small
    zeta: Annotated[float, Field(gt=0.0, le=1.0)]
    delta: Annotated[float, Field(gt=0.0, lt=1.0)]
    max_releases: Annotated[int, Field(ge=1, le=10**9)]

    def epsilon_left(self, releases: int) -> float:
        """ε of all releases less ε of those that were made."""
        return max(0.0, self._epsilon(self.max_releases) - self._epsilon(min(releases, self.max_releases)))

    def _epsilon(self, releases: int) -> float:
        return _epsilon(self.phi0, self.zeta, self.delta, releases)


def told(policy: Policy | None) -> str | None:
    """What a client tells of its policy; None without one, or if it has no last release."""
    if policy is None or policy.max_releases is None:
        return None
    budget = SharedBudget(phi0=policy.phi0, zeta=policy.zeta, delta=policy.delta, max_releases=policy.max_releases)
    return budget.model_dump_json()


def heard(text: str | None) -> SharedBudget | None:
    """What a site makes of it; None if it was not told, or is nonsense."""
    try:
        return None if text is None else SharedBudget.model_validate_json(text)
    except ValidationError:
        return None


@lru_cache(maxsize=4096)
def _epsilon(phi0: float, zeta: float, delta: float, releases: int) -> float:
    if not releases:
        return 0.0
    return float(accounting.exact_epsilon(accounting.rho_total(phi0, zeta, releases), delta))
