"""Privacy accounting in zCDP: the paper's schedule summed, and exactly converted to (ε, δ).

Release n has φ(n) = φ(0)/ζⁿ and n counts from 1, so that the first release spends φ(1) = φ(0)/ζ. Releases of a Gaussian
mechanism compose, adaptively too, to one Gaussian mechanism with μ = √(2ρ), ρ = Σ φ(n). Its privacy curve is exact:
δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from pgfl.arrays import Floats
from pgfl.errors import PrivacyError, require_extra
from pgfl.privacy.rules import MOST_RELEASES

if TYPE_CHECKING:
    from dp_accounting import DpEvent

_SQRT2 = math.sqrt(2.0)
_LOG_HALF = -math.log(2.0)
_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_SMALL_MU = 2e-3  # below it the two terms of δ(ε) cancel, and a Taylor series of their difference takes over
_HUGE_MU = 1e10  # above it the paper's formula, which bounds ε, is within 1e-9 of it
_BLOCK = 1 << 16  # values solved for at once, which keeps the temporaries in cache
_LOG_TINY = math.log(np.finfo(float).tiny)
_LOG_HUGE = math.log(np.finfo(float).max)
MARGIN = 1e-10  # taken off a target, so that rounding never carries the sum past it


# The schedule, and its sums ------------------------------------------------------------------------------------------


def check_schedule(phi0: float, zeta: float, last: int) -> None:
    """Refuse a schedule that is no schedule, or that leaves the floating-point numbers before index `last`.

    >>> check_schedule(1e-3, 0.5, 2000)
    Traceback (most recent call last):
    ...
    pgfl.errors.PrivacyError: zeta = 0.5 to the power 2000 underflows, ...; use fewer releases or a zeta nearer to 1.
    """
    check_positive("phi0", phi0)
    check_zeta(zeta)
    if not isinstance(last, int | np.integer) or last < 1:
        raise PrivacyError(f"The number of releases must be a whole number of at least 1, not {last!r}.")
    if last > MOST_RELEASES:
        raise PrivacyError(f"The number of releases must be at most {MOST_RELEASES}.")
    decay = last * math.log(zeta)
    total = math.log(phi0) - decay + math.log(last)
    if decay <= _LOG_TINY or total >= _LOG_HUGE:
        raise PrivacyError(
            f"zeta = {zeta:g} to the power {last} underflows, so the last releases would carry no noise; "
            "use fewer releases or a zeta nearer to 1."
        )


def check_positive(name: str, value: float) -> None:
    """Refuse what is not a finite number above 0."""
    if not (value > 0.0 and math.isfinite(value)):
        raise PrivacyError(f"{name} must be a positive number, not {value!r}.")


def check_zeta(zeta: float) -> None:
    """Refuse a decay factor outside (0, 1]."""
    if not 0.0 < zeta <= 1.0:
        raise PrivacyError(f"zeta must be in (0, 1], not {zeta!r}.")


def check_delta(delta: float) -> None:
    """Refuse a failure probability outside (0, 1)."""
    if not 0.0 < delta < 1.0:
        raise PrivacyError(f"delta must be between 0 and 1, both excluded, not {delta!r}.")


def phi(phi0: float, zeta: float, index: ArrayLike) -> Floats:
    """φ(n) = φ(0)/ζⁿ, what release (or round) n spends: the variance is multiplied by ζ, so the leak by 1/ζ."""
    n = np.asarray(index, dtype=np.float64)
    with np.errstate(over="ignore"):
        return np.asarray(phi0 * np.exp(-n * math.log(zeta)), dtype=np.float64)


def growth(zeta: float, first: ArrayLike, last: ArrayLike) -> Floats:
    """Σ_{n = first}^{last} ζ⁻ⁿ, stable up to and at ζ = 1, where the geometric formula is 0/0.

    >>> float(growth(1.0, 1, 300)), round(float(growth(0.5, 2, 3)), 12)
    (300.0, 12.0)
    """
    start, stop = np.asarray(first, dtype=np.float64), np.asarray(last, dtype=np.float64)
    terms = np.maximum(stop - start + 1.0, 0.0)
    if zeta == 1.0:
        return terms
    rate = -math.log(zeta)
    return np.asarray(np.exp(start * rate) * (np.expm1(terms * rate) / math.expm1(rate)), dtype=np.float64)


def rho_total(phi0: float, zeta: float, releases: ArrayLike, first: int = 1) -> Floats:
    """ρ = Σ φ(n): what so many releases spend together, from index `first` on."""
    return np.asarray(phi0 * growth(zeta, first, np.asarray(releases) + (first - 1)), dtype=np.float64)


# From ρ to (ε, δ) and back -------------------------------------------------------------------------------------------


def exact_epsilon(rho: ArrayLike, delta: float) -> Floats:
    """The least ε for which Gaussian releases of total ρ are (ε, δ)-private, to about twelve digits.

    >>> [round(float(e), 3) for e in exact_epsilon([0.0, 0.1715, 1.92], 1e-5)]
    [0.0, 2.379, 9.749]
    """
    check_delta(delta)
    spent = _check_rho(rho)
    distinct, place = np.unique(spent, return_inverse=True)
    mu = _SQRT2 * np.sqrt(distinct)
    solved = np.empty_like(distinct)
    for start in range(0, len(distinct), _BLOCK):
        block = slice(start, start + _BLOCK)
        solved[block] = _solve_epsilon(mu[block], math.log(delta))
    return np.asarray(solved[place].reshape(spent.shape), dtype=np.float64)


def paper_epsilon(rho: ArrayLike, delta: float) -> Floats:
    """ρ + 2√(ρ ln 1/δ): the total loss that the paper states after Theorem III. Valid, but larger than need be."""
    check_delta(delta)
    spent = _check_rho(rho)
    with np.errstate(over="ignore"):
        return np.asarray(spent + 2.0 * np.sqrt(spent) * math.sqrt(-math.log(delta)), dtype=np.float64)


def exact_rho(epsilon: float, delta: float) -> float:
    """The largest ρ whose exact ε at δ stays within the target.

    >>> round(exact_rho(2.379, 1e-5), 4)
    0.1715
    """
    check_positive("epsilon", epsilon)
    check_delta(delta)
    goal, bound = math.log(delta), np.asarray([epsilon])

    def within(mu: float) -> bool:
        return bool(_log_delta(np.asarray([mu]), bound)[0][0] <= goal)

    low, high = 0.0, _SQRT2 * (math.sqrt(epsilon) + 1.0)
    while within(high):
        low, high = high, 2.0 * high
    while low < (middle := 0.5 * (low + high)) < high and high - low > 1e-15 * high:
        low, high = (middle, high) if within(middle) else (low, middle)
    rho = 0.5 * low * low * (1.0 - MARGIN)
    if not rho > 0.0:
        raise PrivacyError(f"epsilon = {epsilon:g} at delta = {delta:g} leaves nothing to spend; raise one of them.")
    return rho


def group_rho(rho: ArrayLike, size: ArrayLike) -> Floats:
    """ρ for `size` records replaced together, a whole client with its D records: μ grows by D, so ρ by D².

    The guarantee that everything else here states is for one record. This is another, weaker one, and kept apart.
    Beyond the floating-point numbers it is infinite.
    """
    spent = _check_rho(rho)
    try:
        members = np.asarray(size, dtype=np.float64)
    except OverflowError:  # a whole number that no float holds
        members = np.asarray(np.inf)
    if not (members >= 1.0).all():
        raise PrivacyError("A group has at least one record.")
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(spent > 0.0, spent * members * members, 0.0)


def group_epsilon(rho: ArrayLike, delta: float, size: ArrayLike) -> Floats:
    """ε at δ for `size` records replaced together; see `group_rho`."""
    return exact_epsilon(group_rho(rho, size), delta)


# The exact curve, in logarithms --------------------------------------------------------------------------------------


# For other accountants -----------------------------------------------------------------------------------------------


def to_dp_event(costs: ArrayLike) -> DpEvent:
    """Return the composition of Gaussian releases with these zCDP costs φ as a `dp_accounting.DpEvent`.

    A noise multiplier is σ/Δ = 1/√(2φ). Δ is the sensitivity to replacing one record, so read the event with the
    accountant's default relation, and do not double Δ for a replacement again. An infinite cost is a
    `NonPrivateDpEvent`. Without the extra `accounting`, `MissingExtra` is raised.
    """
    require_extra("to_dp_event needs dp-accounting", "accounting", "dp_accounting")
    import dp_accounting

    spent = [float(cost) for cost in np.atleast_1d(_check_rho(costs)) if cost > 0.0]
    if not all(map(math.isfinite, spent)):
        return dp_accounting.NonPrivateDpEvent()
    releases = [dp_accounting.GaussianDpEvent(1.0 / math.sqrt(2.0 * cost)) for cost in spent]
    return dp_accounting.ComposedDpEvent(releases) if releases else dp_accounting.NoOpDpEvent()


def _log_delta(mu: Floats, epsilon: Floats) -> tuple[Floats, Floats]:
    """ln δ(ε) of a Gaussian mechanism with μ > 0, and its derivative in ε.

    With a = μ/2 − ε/μ and b = −μ/2 − ε/μ, e^ε times the density at b is the density at a. So the subtrahend is the
    density at a times a Mills ratio, and nothing over- or underflows.
    """
    from scipy.special import erfcx, log_ndtr  # which takes a while to load, and a config needs none of it

    at, half = epsilon / mu, 0.5 * mu
    a, b = half - at, -half - at
    left = a <= 0.0
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        log_density = _LOG_HALF - 0.5 * a * a
        log_mills_b = np.log(erfcx(-b / _SQRT2))
        log_mills_a = np.where(left, np.log(erfcx(np.maximum(-a, 0.0) / _SQRT2)), log_ndtr(a) - log_density)
        value = log_density + log_mills_a + np.log(-np.expm1(np.minimum(log_mills_b - log_mills_a, 0.0)))
        small = mu < _SMALL_MU
        value[small] = _log_delta_small(at[small], half[small])
        slope = -np.exp(log_density + log_mills_b - value)
    return value, slope


def _log_delta_small(at: Floats, half: Floats) -> Floats:
    """ln δ for μ → 0: the density at x − h times the difference M(x − h) − M(x + h) of Mills ratios, by Taylor.

    M' = xM − 1, M'' = M + xM', M''' = 2M' + xM''. The error is of order h⁴ relative, below rounding for h < 1e-3.
    """
    from scipy.special import erfcx

    mills = math.sqrt(0.5 * math.pi) * erfcx(at / _SQRT2)
    first = at * mills - 1.0
    second = mills + at * first
    third = 2.0 * first + at * second
    difference = -2.0 * half * (first + half * half * third / 6.0)
    return np.asarray(-0.5 * (at - half) ** 2 - _LOG_SQRT_2PI + np.log(difference), dtype=np.float64)


def _solve_epsilon(mu: Floats, log_delta: float) -> Floats:
    """The root in ε of ln δ(ε) = log_delta, by Newton's method kept inside a bracket, for many μ at once."""
    with np.errstate(over="ignore"):
        bound = 0.5 * mu * mu + mu * math.sqrt(-2.0 * log_delta)
    answer = np.where(mu < _HUGE_MU, 0.0, bound)
    open_ = np.flatnonzero((mu > 0.0) & (mu < _HUGE_MU))
    open_ = open_[_log_delta(mu[open_], np.zeros(len(open_)))[0] > log_delta]
    m = mu[open_]
    low, high = np.zeros(len(m)), bound[open_]
    guess = high.copy()
    for _ in range(200):
        if not len(open_):
            break
        value, slope = _log_delta(m, guess)
        above = value > log_delta
        low, high = np.where(above, guess, low), np.where(above, high, guess)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            step = guess - (value - log_delta) / slope
        inside = (step > low) & (step < high)
        step = np.where(inside, step, 0.5 * (low + high))
        done = (np.abs(step - guess) <= 1e-14 * high) | (high - low <= 1e-15 * high)
        answer[open_[done]] = step[done]
        keep = ~done
        open_, m, low, high, guess = open_[keep], m[keep], low[keep], high[keep], step[keep]
    answer[open_] = high
    return answer


def _check_rho(rho: ArrayLike) -> Floats:
    spent = np.asarray(rho, dtype=np.float64)
    if not (spent >= 0.0).all():
        raise PrivacyError("rho must be a number that is not negative.")
    return spent
