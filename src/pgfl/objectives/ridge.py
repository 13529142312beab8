"""Ridge regression, with or without a constraint on the norm of the model.

Solvers for ridge regression: a closed form, and the root of one scalar equation where ‖w‖ ≤ W.

If a client has fewer samples than features the work is done in sample space: with w = c + Xᵀz everything follows from
the D × D Gram matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from pgfl.arrays import Array, Namespace, iterate, own_rows, rows_times, times_rows
from pgfl.errors import ConfigError
from pgfl.objectives.interface import (
    NEWTON_STEPS,
    Batch,
    Bounds,
    LabelKind,
    Objective,
    Prepared,
    gram,
    norm,
    tolerance_for,
)
from pgfl.objectives.margins import MarginObjective
from pgfl.registry import setting


def closed_form(features: Array, targets: Array, counts: Array, modulus: Array, tolerance: float) -> Prepared:
    """Factor in sample space if there are fewer rows than features, else in feature space."""
    xp = features.__array_namespace__()
    rows, dimension = features.shape[-2:]
    if rows <= dimension:
        return _whitened(features, targets, counts, modulus, tolerance, xp)
    curvature = xp.matmul(xp.matrix_transpose(features), features) * (2.0 / counts)[:, None, None]
    hessian = curvature + modulus[:, None, None] * xp.eye(dimension, dtype=features.dtype)
    inverse, excess = _inverse(hessian, xp)
    target_term = times_rows(targets * (2.0 / counts)[:, None], features)
    return RidgeInFeatures(inverse, target_term, modulus, excess / modulus)


def _whitened(
    features: Array, targets: Array, counts: Array, modulus: Array, tolerance: float, xp: Namespace
) -> Prepared:
    """κ(I + κXXᵀ)⁻¹ = TᵀT with T = √κ·C⁻¹ and CCᵀ = I + κXXᵀ, so only TX and Ty are stored.

    With F = (TᵀT)(I/κ + XXᵀ) − I, ‖XᵀκCCᵀ⁻¹‖ ≤ √κ/2 and Xc − y = T⁻¹(TXc − Ty), the error of T moves the
    argmin by at most ½‖F‖‖C‖‖TXc − Ty‖.
    """
    scale = 2.0 / (counts * modulus)
    shifted = xp.eye(features.shape[-2], dtype=features.dtype) + scale[:, None, None] * gram(features, xp)
    root = xp.linalg.cholesky(shifted)
    turn = xp.linalg.inv(root)
    excess = xp.matmul(xp.matmul(xp.matrix_transpose(turn), turn), shifted) - xp.eye(
        shifted.shape[-1], dtype=turn.dtype
    )
    slack = 0.5 * (xp.sum(excess**2, axis=(-2, -1)) * xp.sum(root**2, axis=(-2, -1))) ** 0.5
    turn = scale[:, None, None] ** 0.5 * turn
    return RidgeInSamples(own_rows(xp.matmul(turn, features), counts), rows_times(turn, targets), slack, tolerance)


@dataclass(frozen=True)
class RidgeInSamples(Batch):
    """w = c + XᵀTᵀT(y − Xc) with TᵀT = κ(I + κXXᵀ)⁻¹ and κ = 2/(D m); `features` is TX and `targets` Ty."""

    features: Array
    targets: Array
    slack: Array
    tolerance: float

    def solve(self, centre: Array, index: Array | None = None) -> tuple[Array, Array]:
        """One product with TX, one with its transpose; `slack` bounds the error of T."""
        own = self.but_features(index)
        moves = own.targets - rows_times(self.features, centre, index)
        model = times_rows(moves, self.features, index)
        model += centre
        if isinstance(moves, np.ndarray):
            together = self._most_slack * np.vdot(moves, moves) ** 0.5
            if together <= self.tolerance:
                return model, np.array([together])
        return model, own.slack * norm(moves)

    @cached_property
    def _most_slack(self) -> float:
        return float(self.slack.max())


@dataclass(frozen=True)
class RidgeInFeatures(Batch):
    """w = H⁻¹ (m c + (2/D) Xᵀy) with H = m I + (2/D) XᵀX."""

    inverse: Array
    target_term: Array
    modulus: Array
    slack: Array

    def solve(self, centre: Array, index: Array | None = None) -> tuple[Array, Array]:
        """One product with the stored inverse."""
        own = self.but_features(index)
        right = own.modulus[:, None] * centre + own.target_term
        return rows_times(own.inverse, right), own.slack * norm(right)


def constrained(features: Array, targets: Array, counts: Array, modulus: Array, radius: float) -> Prepared:
    """Diagonalise XXᵀ (or XᵀX) once; each round is then one scalar equation per client."""
    xp = features.__array_namespace__()
    target_term = times_rows(targets * (2.0 / counts)[:, None], features)
    small = (
        gram(features, xp)
        if features.shape[-2] <= features.shape[-1]
        else xp.matmul(xp.matrix_transpose(features), features)
    )
    values, vectors = xp.linalg.eigh(small)
    values = xp.clip(values, 0.0, None) * (2.0 / counts)[:, None]
    return ConstrainedRidge(own_rows(features, counts), target_term, counts, modulus, values, vectors, radius)


@dataclass(frozen=True)
class ConstrainedRidge(Batch):
    """argmin over ‖w‖ ≤ W: w(μ) = (μ I + (2/D)XᵀX)⁻¹ (m c + (2/D)Xᵀy), with the μ ≥ m that brings the norm to W.

    This is the constrained argmin. Projecting the free argmin onto the ball gives another point, which is not private.
    """

    features: Array
    target_term: Array
    counts: Array
    modulus: Array
    shifts: Array
    vectors: Array
    radius: float

    def solve(self, centre: Array, index: Array | None = None) -> tuple[Array, Array]:
        """Newton's method on 1/‖w(μ)‖, nearly linear in μ, then a certificate from the optimality conditions."""
        xp = centre.__array_namespace__()
        own = self.but_features(index)
        right = own.modulus[:, None] * centre + own.target_term
        in_samples = self.features.shape[-2] <= self.features.shape[-1]
        turned = xp.matrix_transpose(own.vectors)
        if in_samples:
            image = rows_times(turned, rows_times(self.features, right, index))
            squared = own.shifts * (0.5 * own.counts[:, None])
            positive = squared > 1e-300
            parts = xp.where(
                positive, image**2 / xp.where(positive, squared, xp.ones_like(squared)), xp.zeros_like(image)
            )
        else:
            image = rows_times(turned, right)
            parts = image**2
        rest = xp.clip(xp.sum(right * right, axis=-1) - xp.sum(parts, axis=-1), 0.0, None)

        def body(state: tuple[Array, ...]) -> tuple[Array, ...]:
            _, mu = state
            near = mu[:, None] + own.shifts
            size = (rest / mu**2 + xp.sum(parts / near**2, axis=-1)) ** 0.5
            outside = size > self.radius * (1.0 + 4.0 * xp.finfo(mu.dtype).eps)
            bend = xp.where(outside, rest / mu**3 + xp.sum(parts / near**3, axis=-1), xp.ones_like(size))
            move = size**2 * (size - self.radius) / (bend * self.radius)
            return outside, xp.where(outside, mu + move, mu)

        _, mu = iterate(body, (own.modulus > 0, own.modulus + 0.0 * right[:, 0]), NEWTON_STEPS, xp)
        near = mu[:, None] + own.shifts
        if in_samples:
            moves = rows_times(own.vectors, (2.0 / own.counts)[:, None] * image / near)
            w = (right - times_rows(moves, self.features, index)) / mu[:, None]
        else:
            w = rows_times(own.vectors, image / near)
        size = norm(w)
        w = (
            w
            * xp.where(
                size > self.radius, self.radius / xp.where(size > 0, size, xp.ones_like(size)), xp.ones_like(size)
            )[:, None]
        )
        return w, self._error(own, w, mu, right, index)

    def _error(self, own: Self, w: Array, mu: Array, right: Array, index: Array | None) -> Array:
        xp = w.__array_namespace__()
        curved = times_rows(rows_times(self.features, w, index), self.features, index) * (2.0 / own.counts)[:, None]
        off = norm(mu[:, None] * w + curved - right) / own.modulus
        short = xp.where(mu > own.modulus, xp.abs(self.radius - norm(w)), xp.zeros_like(mu))
        return off + short * (1.0 + mu / own.modulus + xp.max(own.shifts, axis=-1) / own.modulus)


def _inverse(matrix: Array, xp: Namespace) -> tuple[Array, Array]:
    """An inverse and ‖I − A·A⁻¹‖, which bounds its relative error for any right-hand side."""
    inverse = xp.linalg.inv(matrix)
    excess = xp.matmul(matrix, inverse) - xp.eye(matrix.shape[-1], dtype=matrix.dtype)
    return inverse, xp.sum(excess * excess, axis=(-2, -1)) ** 0.5


@dataclass(frozen=True)
class Ridge(MarginObjective):
    """ℓ = (y − xᵀw)², as in the paper. Its gradient is unbounded, so without a constraint noise gives no guarantee.

    With `w_norm` the argmin is constrained to ‖w‖ ≤ w_norm (solved exactly); with bounded labels that is private.
    """

    kind: ClassVar[str] = "ridge"
    label_kind: ClassVar[LabelKind | None] = "numbers"
    needs_bounds: ClassVar[tuple[str, ...]] = ("y_bound", "w_norm")
    compiled_form: ClassVar[str | None] = "ridge"
    w_norm: float | None = setting(None, config=False)  # a key of [privacy]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.w_norm is not None and not (np.isfinite(self.w_norm) and self.w_norm > 0):
            raise ConfigError(f"privacy.w_norm must be a number above 0; got {self.w_norm}.")

    def scalar_loss(self, margin: Array, target: Array) -> Array:
        """(u − y)²."""
        return (margin - target) ** 2

    def slope(self, margin: Array, target: Array) -> Array:
        """2(u − y)."""
        return 2.0 * (margin - target)

    def curvature(self, margin: Array, target: Array) -> Array:
        """2 everywhere."""
        return 2.0 + 0.0 * margin

    @property
    def domain(self) -> float | None:
        """W: beyond it the gradient has no bound."""
        return self.w_norm

    def constrained(self, w_norm: float) -> Objective:
        """The same loss with ‖w‖ ≤ w_norm."""
        return replace(self, w_norm=w_norm)

    def gradient_bound(self, bounds: Bounds) -> float | None:
        """2B(BW + Y)."""
        if bounds.x_norm is None or bounds.y_bound is None or self.w_norm is None:
            return None
        return 2.0 * bounds.x_norm * (bounds.x_norm * self.w_norm + bounds.y_bound)

    def smoothness(self, bounds: Bounds) -> float | None:
        """2B²."""
        return None if bounds.x_norm is None else 2.0 * bounds.x_norm**2

    def gradient_change(self, bounds: Bounds) -> float | None:
        """2B(BW + 2Y): ‖xxᵀ − x'x'ᵀ‖ ≤ B² for two rows, and ‖w‖ ≤ W by the constraint."""
        if bounds.x_norm is None or bounds.y_bound is None or self.w_norm is None:
            return None
        return 2.0 * bounds.x_norm * (bounds.x_norm * self.w_norm + 2.0 * bounds.y_bound)

    def scaled(self, features: Array, targets: Array, weights: Array) -> tuple[Array, Array]:
        """√c·x and √c·y: c(y − xᵀw)² is their squared error."""
        root = weights**0.5
        return features * root[..., None], targets * root

    def prepare(self, features: Array, targets: Array, counts: Array, modulus: Array) -> Prepared:
        """A closed form with one small inverse per client, or, if constrained, the root of one scalar equation."""
        if self.w_norm is not None:
            return constrained(features, targets, counts, modulus, self.w_norm)
        tolerance = tolerance_for(self, features.dtype, features.__array_namespace__())
        return closed_form(features, targets, counts, modulus, tolerance)
