"""Clopper and Pearson's bounds on a rate, and the lower bound on μ that an attack's mistakes give.

`scipy.stats.binomtest` finds the same bounds by root finding, to nine digits; the quantiles of the beta distribution
are exact.
"""

from __future__ import annotations

import numpy as np
from scipy.special import betaincinv, ndtri


def rate_upper(mistakes: int, trials: int, alpha: float) -> float:
    """The upper bound on a rate, wrong with probability at most `alpha`.

    >>> round(rate_upper(0, 100, 0.05), 6), round(1 - 0.05 ** 0.01, 6), rate_upper(100, 100, 0.05)
    (0.029513, 0.029513, 1.0)
    """
    if mistakes >= trials:
        return 1.0
    return float(betaincinv(mistakes + 1, trials - mistakes, 1.0 - alpha))


def rate_lower(mistakes: int, trials: int, alpha: float) -> float:
    """The lower bound on a rate, wrong with probability at most `alpha`."""
    return float(betaincinv(mistakes, trials - mistakes + 1, alpha)) if mistakes else 0.0


def mu_lower(false_alarms: int, misses: int, trials: int, alpha: float) -> float:
    """−Φ⁻¹(FPR) − Φ⁻¹(FNR) with both rates at their upper bounds: a μ that the mechanism cannot be below.

    No test of a μ-Gaussian private mechanism has error rates below the curve FNR = Φ(Φ⁻¹(1 − FPR) − μ). Wrong with
    probability at most `alpha`; 0 if the attack shows nothing.
    """
    rates = [rate_upper(mistakes, trials, alpha / 2.0) for mistakes in (false_alarms, misses)]
    if max(rates) >= 1.0:
        return 0.0
    return max(0.0, float(-np.sum(ndtri(rates))))
