"""The accuracy that a client can promise from public quantities alone.

A site chooses the training, the model and |C_s|, and sees whether it gets an answer. So that this reveals nothing about
the data, a request is judged by public magnitudes: the client's bounds, its number of records, the training and the
centre. An accepted request is answered with an error below the promised tolerance for *all* data within the bounds.

The promise rests on one map, T(w) = P(w − ∇G(w)/(L + m)), where P projects onto ‖w‖ ≤ W if the objective has such a
constraint. T multiplies the distance to the argmin by at most q = L/(L + m). So ‖w − T(w)‖/(1 − q) certifies a fast
solver's answer; if it does not, T is applied as often as the worst data needs. Half of the tolerance is for the
remaining distance, half for rounding errors, which are bounded here too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from pgfl.arrays import Floats
from pgfl.objectives import Bounds, Objective

EPS = float(np.finfo(float).eps)
RELATIVE_TOLERANCE = 1e-6  # of the sensitivity, which it widens by twice that
LEAST_TOLERANCE = 1e-10
MOST_STEPS = 10_000
LARGEST = 1e100  # of any number that is squared
CERTIFIED = 0.49  # of the tolerance: half, less the rounding of a norm
SHORTER = 1.0 - 4.0 * EPS  # a step of 1/(L + m) must not be rounded up


class Refusal(StrEnum):
    """Why a client does not answer: constant texts, so they reveal nothing about its data."""

    TOO_LONG = "the model or the dual is too long to be computed with as accurately as the guarantee needs"
    TOO_MANY_STEPS = "this training may need more solver steps than this client allows"
    UNBOUNDED = "this training has no bounded sensitivity under this client's bounds"
    TOO_LITTLE_NOISE = "the noise would be finer than the lattice of float-safe noise allows"
    BEYOND = "the round is beyond the last one of this training"
    OLD_ROUND = "a later round was answered already"
    LOST_ROUND = "the answer to this round was lost after it was paid for"
    SPENT = "this client's privacy budget is spent"
    UNSOLVED = "the primal problem could not be solved"


@dataclass(frozen=True)
class Terms:
    """The owner's terms: bounds on the data, the accuracy of a solution, and the largest number of solver steps.

    The default tolerance is a millionth of the exact sensitivity, so it hardly widens the noise at any scale.
    """

    bounds: Bounds
    tolerance: float | None = None
    most_steps: int = MOST_STEPS

    def tolerance_for(self, objective: Objective, reach: float, records: int) -> float:
        """The promised error, which the sensitivity includes; `reach` is the algorithm's."""
        if self.tolerance is not None:
            return self.tolerance
        change = objective.gradient_change(self.bounds)
        exact = 0.0 if change is None else change * reach / records
        return max(LEAST_TOLERANCE, RELATIVE_TOLERANCE * exact)


@dataclass(frozen=True)
class Magnitudes:
    """Public bounds on a client's problem: its size, and the slope and curvature of its mean loss."""

    records: int
    dimension: int
    gradient: float  # C ≥ ‖∇ℓ‖ of one record
    smoothness: float  # L
    domain: float | None  # W, if models are constrained to it
    slope_roundings: int = 9  # roundings of one record's gradient after its margins: 7, its weight's, one per margin

    @classmethod
    def of(cls, objective: Objective, bounds: Bounds, records: int, dimension: int) -> Magnitudes | None:
        """None if the objective does not state what is needed."""
        gradient, smoothness = objective.gradient_bound(bounds), objective.smoothness(bounds)
        if gradient is None or smoothness is None or not (math.isfinite(gradient) and math.isfinite(smoothness)):
            return None
        return cls(records, dimension, gradient, smoothness, objective.domain, 8 + objective.model_length(1))

    def gradient_rounding(self, size: float) -> float:
        """The rounding error of the mean gradient at ‖w‖ ≤ size; infinite if it may overflow."""
        if not max(size, self.gradient, self.smoothness * size) <= LARGEST:
            return math.inf
        of_margins, of_slopes = self.dimension + 4, self.records + self.slope_roundings
        return EPS * (of_margins * self.smoothness * size + of_slopes * self.gradient)


@dataclass(frozen=True)
class PrimalPromise:
    """The promise for argmin F(w) + (m/2)‖w − c‖² over ‖w‖ ≤ W (if there is a W)."""

    sizes: Magnitudes
    modulus: float  # m
    tolerance: float
    most_steps: int

    @property
    def steepest(self) -> float:
        """L + m, the smoothness of the whole problem."""
        return self.sizes.smoothness + self.modulus

    @property
    def steps(self) -> float:
        """How often T must be applied for any data; infinite if no number is enough."""
        rate = -math.log1p(-SHORTER * self.modulus / self.steepest) if math.isfinite(self.steepest) else 0.0
        start = 2.0 * self._start_distance / self.tolerance
        if start <= 1.0:
            return 0.0
        steps = math.log(start) / rate if rate > 0.0 and math.isfinite(start) else math.inf
        return float(math.ceil(steps)) if math.isfinite(steps) else math.inf

    def rounding(self, centre: float) -> float:
        """The rounding error of a solution or its certificate, for ‖c‖ = centre."""
        sizes, away = self.sizes, self.reach(centre)
        size = centre + away if sizes.domain is None else sizes.domain
        gradient = sizes.gradient_rounding(size) + EPS * (4.0 * sizes.gradient + 6.0 * self.modulus * away)
        return gradient / self.modulus + 4.0 * EPS * size * (self.steepest / self.modulus)

    def reach(self, centre: float) -> float:
        """How far from the centre any iterate can be."""
        return 2.0 * self._start_distance if self.sizes.domain is None else self.sizes.domain + centre

    def refusal(self, centre: float) -> Refusal | None:
        """Why a request with ‖c‖ = centre cannot be answered as promised for all data."""
        if not self.steps <= self.most_steps:
            return Refusal.TOO_MANY_STEPS
        return None if _below(self.rounding(centre), 0.5 * self.tolerance) else Refusal.TOO_LONG

    @property
    def _start_distance(self) -> float:
        """From the start to the argmin: at most C/m from the centre, or across the ball."""
        return self.sizes.gradient / self.modulus if self.sizes.domain is None else 2.0 * self.sizes.domain

    def solve(self, centre: Floats, gradient: Callable[[Floats], Floats], fast: Callable[[], Floats]) -> Floats:
        """The argmin within the tolerance; `gradient` is that of F. No data within the bounds makes it fail."""
        quick = finite_or_none(fast)
        if quick is not None and self._certified(quick, centre, gradient):
            return quick
        return self.slow_but_sure(centre, gradient)

    def slow_but_sure(self, centre: Floats, gradient: Callable[[Floats], Floats]) -> Floats:
        """T, as often as the worst data needs."""
        model = self._projected(centre)
        for _ in range(int(self.steps)):
            model = self._nearer(model, centre, gradient)
        return model

    def _certified(self, model: Floats, centre: Floats, gradient: Callable[[Floats], Floats]) -> bool:
        size = float(np.linalg.norm(centre))
        if not np.linalg.norm(model - centre) <= self.reach(size):
            return False
        left = float(np.linalg.norm(model - self._nearer(model, centre, gradient)))
        return left * self.steepest <= CERTIFIED * self.tolerance * self.modulus

    def _nearer(self, model: Floats, centre: Floats, gradient: Callable[[Floats], Floats]) -> Floats:
        whole = gradient(model) + self.modulus * (model - centre)
        return self._projected(model - (SHORTER / self.steepest) * whole)

    def _projected(self, model: Floats) -> Floats:
        radius = self.sizes.domain
        length = float(np.linalg.norm(model))
        return model if radius is None or length <= radius else model * (radius / length)


@dataclass(frozen=True)
class DescentPromise:
    """The promise for `steps` gradient steps of length `step` on F(w) + (λ/|C_s|)‖w‖²: only rounding differs.

    Such steps do not move two models further apart, so the errors of the steps just add up.
    """

    sizes: Magnitudes
    step: float
    steps: int
    penalty: float  # 2λ/|C_s|
    tolerance: float

    def rounding(self, start: float) -> float:
        """The rounding error of the last model, from a first one with ‖w‖ = start."""
        size = start + self.steps * self.step * self.sizes.gradient
        gradient = self.sizes.gradient_rounding(size) + EPS * (4.0 * self.sizes.gradient + 6.0 * self.penalty * size)
        return self.steps * (self.step * gradient + 4.0 * EPS * size)

    def refusal(self, start: float) -> Refusal | None:
        """Why a request from a model with ‖w‖ = start cannot be answered as promised."""
        if not self.step * (self.sizes.smoothness + self.penalty) <= 2.0:
            return Refusal.UNBOUNDED
        return None if _below(self.rounding(start), self.tolerance) else Refusal.TOO_LONG


@dataclass(frozen=True)
class LinearisedPromise:
    """The promise for one step w − (∇F(w) + 2λ/|C_s|·w)/ρ from a public w, projected onto the domain if there is one.

    There is nothing to solve, so only rounding differs from exact arithmetic.
    """

    sizes: Magnitudes
    rho: float
    penalty: float  # 2λ/|C_s|
    tolerance: float

    def rounding(self, start: float) -> float:
        """The rounding error of the step from a model with ‖w‖ = start."""
        sizes = self.sizes
        size = start if sizes.domain is None else min(start, sizes.domain)
        gradient = sizes.gradient_rounding(size) + EPS * (4.0 * sizes.gradient + 6.0 * self.penalty * size)
        return gradient / self.rho + 4.0 * EPS * (size + (sizes.gradient + self.penalty * size) / self.rho)

    def refusal(self, start: float) -> Refusal | None:
        """Why a request from a model with ‖w‖ = start cannot be answered as promised."""
        fits = start <= LARGEST and _below(self.rounding(start), self.tolerance)
        return None if fits else Refusal.TOO_LONG


Promise = PrimalPromise | DescentPromise | LinearisedPromise


def _below(value: float, limit: float) -> bool:
    """Whether a value is finite and within the limit."""
    return math.isfinite(value) and value <= limit


def finite_or_none(fast: Callable[[], Floats]) -> Floats | None:
    """A fast solver's result, or None; a failure would depend on the data and so must not be visible."""
    try:
        with np.errstate(all="ignore"):
            found = fast()
    except (ArithmeticError, ValueError, np.linalg.LinAlgError):
        return None
    return found if np.isfinite(found).all() else None
