"""What a schedule of releases means in words, and whether anything can be learned with it.

Noise is compared with the sensitivity: how far one record can move what is released. All of this is public, so it is
known before anything is spent.
"""

from __future__ import annotations

import math

from pgfl.privacy import accounting
from pgfl.privacy.budget import Budget

MOST_SPREAD = 1000.0  # times the noise of the last release that the first one may have
LEAST_SHARE = 0.01  # of the budget that a training must be able to use
_GOOD_SPREAD = 10.0


def noise_in_words(budget: Budget, rounds: int | None = None) -> str:
    """The noise of the first and the last release; `rounds` are those of the training, if it is known."""
    last = _last(budget, rounds)
    first, least = (float(budget.sigma(1.0, n)) for n in (1, last))
    return (
        f"the noise of the first release is {first:.3g} times what one record can change, "
        f"that of the last of {last} is {least:.3g} times it"
    )


def unusable(budget: Budget, rounds: int | None = None) -> str | None:
    """Why nothing can be learned with a budget, and what to change, in one sentence; None if it is sound."""
    last, zeta = _last(budget, rounds), budget.zeta
    spread = math.sqrt(float(budget.phi(last)) / float(budget.phi(1)))
    if spread > MOST_SPREAD:
        better = sound_zeta(last)
        fewer = int(1 + 2.0 * math.log(_GOOD_SPREAD) / -math.log(zeta))
        return (
            f"With privacy.zeta = {zeta:g} the first of {last} releases has {spread:.2g} times the noise of the last: "
            f"most rounds train on noise; set zeta = {better:g} or more, or max_releases = {fewer} or fewer."
        )
    most = budget.dearest
    used = float(accounting.rho_total(budget.phi0, zeta, last) / accounting.rho_total(budget.phi0, zeta, most))
    if used < LEAST_SHARE:
        return (
            f"privacy.max_releases = {most} spreads the budget over many more releases than the {last} rounds of this "
            f"training, which use {used:.2g} of it, with the largest noise; set max_releases = {last}."
        )
    return None


def sound_zeta(releases: int) -> float:
    """The least ζ, rounded up, with which the first of so many releases has ten times the noise of the last."""
    return 1.0 if releases < 2 else math.ceil(1e5 * _GOOD_SPREAD ** (-2.0 / (releases - 1))) / 1e5


def _last(budget: Budget, rounds: int | None) -> int:
    return budget.dearest if rounds is None else min(budget.dearest, rounds)
