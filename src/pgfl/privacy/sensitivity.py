"""How far one record can move what a client releases: as far as its client rule says, or as clipping lets.

See `pgfl.algorithms.client_rules` for the rules' own bounds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pgfl.algorithms.algorithms import Algorithm
from pgfl.arrays import Floats
from pgfl.errors import PrivacyError
from pgfl.federation.clipping import check_norm
from pgfl.objectives import Bounds, Objective


def release_sensitivity(
    objective: Objective,
    algorithm: Algorithm,
    bounds: Bounds,
    counts: ArrayLike,
    modulus: ArrayLike,
    tolerance: ArrayLike = 0.0,
) -> Floats:
    """Δ_k of what a client releases, one per client, for D_k = `counts` rows and m_k = `modulus`.

    An update clipped to ‖w − centre‖ ≤ R has Δ = 2R, whatever the solver does; the client rule may have less.
    `tolerance` bounds the error of the solver or, where nothing is solved, of rounding.
    """
    rule = algorithm.client_rule
    if bounds.update_norm is None:
        return rule.sensitivity(objective, bounds, counts, modulus, tolerance)
    check_norm("update_norm", bounds.update_norm)
    clipped = np.full(np.broadcast_shapes(*map(np.shape, (counts, modulus))), 2.0 * bounds.update_norm)
    try:
        unclipped = rule.sensitivity(objective, bounds, counts, modulus, tolerance)
    except PrivacyError:
        return clipped
    return np.asarray(np.minimum(clipped, unclipped))


def nominal_sensitivity(gradient: float, algorithm: Algorithm, counts: ArrayLike, modulus: ArrayLike) -> Floats:
    """Δ_k if every gradient were at most `gradient`: the paper's calibration, which promises nothing for ridge."""
    return np.asarray(2.0 * gradient * algorithm.client_rule.reach(np.asarray(modulus)) / np.asarray(counts))
