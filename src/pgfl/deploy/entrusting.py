"""What a client tells the site that it trusts: the public facts from which the site calibrates the noise for it.

With `trust = "site"` under [privacy] in its client.toml, a client sends contributions without noise to its own site, in
trainings that say so (`[training.privacy]`). The site adds the noise to the sum over a cluster's contributors. It
charges every contributor by the client's own schedule, in an account that it keeps for the client.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from pgfl.core import equations as eq
from pgfl.core.algorithms import Algorithm
from pgfl.core.assured import Terms
from pgfl.errors import PgflError, PrivacyError
from pgfl.objectives import Bounds, Objective
from pgfl.privacy import lattice
from pgfl.privacy.ledger_policy import Policy
from pgfl.privacy.sensitivity import release_sensitivity


@dataclass(frozen=True)
class SiteTerms:
    """How many records a client has, its bounds and budget, and the solver tolerance that its owner stated, if any."""

    records: int
    policy: Policy
    tolerance: float | None = None
    used: int = field(default=0, compare=False)  # contributions that the client knows to have been used, and charged

    @property
    def bounds(self) -> Bounds:
        """The bounds that the client's rows, labels and models keep to."""
        return Bounds(**{name: self.policy.bounds.get(name) for name in ("x_norm", "y_bound", "w_norm")})

    @property
    def text(self) -> str:
        """As it is sent."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> SiteTerms:
        """From the text that a client sent; whatever is wrong with it is one `PrivacyError`."""
        try:
            stated: dict[str, Any] = json.loads(text)
            terms = cls(stated["records"], Policy(**stated["policy"]), stated["tolerance"], stated["used"])
            limits = [terms.records, *(bound for bound in terms.policy.bounds.values() if bound is not None)]
            limits += [] if terms.tolerance is None else [terms.tolerance]
            whole = type(terms.records) is int and type(terms.used) is int and terms.used >= 0
            sound = whole and all(np.isfinite(limit) and limit > 0 for limit in limits)
        except (ValueError, KeyError, TypeError, PgflError):
            sound = False
        if not sound:
            raise PrivacyError("The client's terms cannot be read.")
        return terms

    def sensitivity(self, objective: Objective, algorithm: Algorithm, server_clients: int, dimension: int) -> float:
        """How far one record of the client moves what it adds to a sum on the lattice."""
        modulus = float(eq.strong_convexity(algorithm.rho, objective.lam, server_clients))
        reach = float(algorithm.reach(modulus))
        tolerance = Terms(self.bounds, self.tolerance).tolerance_for(objective, reach, self.records)
        plain = release_sensitivity(objective, algorithm, self.bounds, [self.records], [modulus], tolerance)
        return float(lattice.widened(plain, dimension)[0])
