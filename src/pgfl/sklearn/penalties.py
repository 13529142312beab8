"""The ADMM penalty ρ that an estimator takes where none is given."""

from __future__ import annotations

import numpy as np

from pgfl.core.federation import Federation
from pgfl.objectives import MarginObjective, Objective

PUBLIC_RHO = 1.0
"""Under privacy ρ must not depend on records."""

ALONE_SHARE = 0.1
LEAST_SHARE = 1e-4
"""ρ is at least this share of L, or the primal problems of columns that depend on each other are hard to solve."""


def penalty(objective: Objective, federation: Federation, private: bool) -> float:
    """ρ = √(m·L) for the extreme curvatures m and L of the pooled rows; far below m where every cluster is one client.

    A single client's rounds are proximal steps, which converge the faster the smaller ρ is.
    """
    if private:
        return PUBLIC_RHO
    bound = objective.curvature_bound if isinstance(objective, MarginObjective) else None
    curvature = 1.0 if bound is None else bound
    rows = federation.features.astype(np.float64)
    values = np.linalg.eigvalsh(rows.T @ rows / len(rows))
    least, most = curvature * max(float(values[0]), 0.0) + 2.0 * objective.lam, curvature * float(values[-1])
    alone = len(np.unique(federation.client_cluster)) == federation.size
    return max(LEAST_SHARE * most, ALONE_SHARE * least if alone else float(np.sqrt(least * most)))
