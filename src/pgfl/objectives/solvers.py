"""Primal problems, factored once and solved every round: argmin_w (1/D) Σ h(x_iᵀw, y_i) + (m/2)‖w − c‖².

Where a client has fewer samples than features the work is done in sample space: with w = c + Xᵀz everything follows
from the D × D Gram matrix. Every solver returns a bound on its own distance to the exact argmin, so that a tolerance
is checked and not assumed. A solver handles a batch of clients with equally many (possibly zero-padded) rows.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from pgfl.arrays import iterate, own_rows, pick, rows_times, times_rows

if TYPE_CHECKING:
    from pgfl.objectives import Objective

Array = Any
NEWTON_STEPS = 60
GOAL = 0.5  # of the tolerance; the rest is left to rounding


class Prepared(Protocol):
    """A batch of factored primal problems."""

    def solve(self, centre: Array, index: Array | None = None) -> tuple[Array, Array]:
        """(w, error): the argmin for every centre, and a bound on ‖w − argmin‖; `index` picks clients of the batch.

        The bound is one a client, or a single one for all where that is within the tolerance, because it costs less.
        """
        ...


def within(rows: int, counts: Array, xp: Any) -> Array:
    """1 for a client's own rows, 0 for padding."""
    return xp.astype(xp.arange(rows, dtype=counts.dtype) < counts[..., None], counts.dtype)


def norm(x: Array) -> Array:
    """‖x‖ along the last axis."""
    return x.__array_namespace__().vecdot(x, x) ** 0.5


def tolerance_for(objective: Objective, dtype: Any, xp: Any) -> float:
    """The stated tolerance, or what single precision can reach."""
    return max(objective.tolerance, 1e-4) if xp.finfo(dtype).eps > 1e-10 else objective.tolerance


class Batch:
    """Clients along the first axis of every array field; `features`, the one large array, is never copied."""

    def but_features(self, index: Array | None) -> Self:
        """The same problems for some of the clients, with all features."""
        if index is None:
            return self
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "features"}  # type: ignore[arg-type]
        picked = {name: pick(value, index) for name, value in values.items() if hasattr(value, "shape")}
        return replace(self, **picked)  # type: ignore[type-var]


def _inverse(matrix: Array, xp: Any) -> tuple[Array, Array]:
    """An inverse and ‖I − A·A⁻¹‖, which bounds what it gets wrong for any right-hand side."""
    inverse = xp.linalg.inv(matrix)
    excess = xp.matmul(matrix, inverse) - xp.eye(matrix.shape[-1], dtype=matrix.dtype)
    return inverse, xp.sum(excess * excess, axis=(-2, -1)) ** 0.5


def _ratio(top: Array, bottom: Array, xp: Any) -> Array:
    """top/bottom, and 0 where bottom is not positive."""
    positive = bottom > 1e-300
    return xp.where(positive, top / xp.where(positive, bottom, xp.ones_like(bottom)), xp.zeros_like(top))


def gram(features: Array, xp: Any) -> Array:
    """XXᵀ of every client."""
    return xp.matmul(features, xp.matrix_transpose(features))


# --- ridge: a closed form --------------------------------------------------------------------------------------------


def ridge(features: Array, targets: Array, counts: Array, modulus: Array, tolerance: float) -> Prepared:
    """Factor in sample space if there are fewer rows than features, else in feature space."""
    xp = features.__array_namespace__()
    rows, dimension = features.shape[-2:]
    if rows <= dimension:
        return _whitened(features, targets, counts, modulus, tolerance, xp)
    curvature = xp.matmul(xp.matrix_transpose(features), features) * (2.0 / counts)[:, None, None]
    hessian = curvature + modulus[:, None, None] * xp.eye(dimension, dtype=features.dtype)
    inverse, excess = _inverse(hessian, xp)
    pull = times_rows(targets * (2.0 / counts)[:, None], features)
    return RidgeInFeatures(inverse, pull, modulus, excess / modulus)


def _whitened(features: Array, targets: Array, counts: Array, modulus: Array, tolerance: float, xp: Any) -> Prepared:
    """κ(I + κXXᵀ)⁻¹ = TᵀT with T = √κ·C⁻¹ and CCᵀ = I + κXXᵀ, so that X and y are needed as TX and Ty only.

    With F = (TᵀT)(I/κ + XXᵀ) − I, ‖XᵀκCCᵀ⁻¹‖ ≤ √κ/2 and Xc − y = T⁻¹(TXc − Ty), what T gets wrong moves the
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
        """One product with TX, one with its transpose; what T gets wrong is known from `slack`."""
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
    pull: Array
    modulus: Array
    slack: Array

    def solve(self, centre: Array, index: Array | None = None) -> tuple[Array, Array]:
        """One product with the stored inverse."""
        own = self.but_features(index)
        right = own.modulus[:, None] * centre + own.pull
        return rows_times(own.inverse, right), own.slack * norm(right)


# --- ridge with ‖w‖ ≤ W ----------------------------------------------------------------------------------------------


def constrained_ridge(features: Array, targets: Array, counts: Array, modulus: Array, radius: float) -> Prepared:
    """Diagonalise XXᵀ (or XᵀX) once; each round is then one scalar equation a client."""
    xp = features.__array_namespace__()
    pull = times_rows(targets * (2.0 / counts)[:, None], features)
    small = (
        gram(features, xp)
        if features.shape[-2] <= features.shape[-1]
        else xp.matmul(xp.matrix_transpose(features), features)
    )
    values, vectors = xp.linalg.eigh(small)
    values = xp.clip(values, 0.0, None) * (2.0 / counts)[:, None]
    return ConstrainedRidge(own_rows(features, counts), pull, counts, modulus, values, vectors, radius)


@dataclass(frozen=True)
class ConstrainedRidge(Batch):
    """argmin over ‖w‖ ≤ W: w(μ) = (μ I + (2/D)XᵀX)⁻¹ (m c + (2/D)Xᵀy), with the μ ≥ m that brings the norm to W.

    It is the constrained argmin; projecting the free one onto the ball is another point, and not private.
    """

    features: Array
    pull: Array
    counts: Array
    modulus: Array
    shifts: Array
    vectors: Array
    radius: float

    def solve(self, centre: Array, index: Array | None = None) -> tuple[Array, Array]:
        """Newton's method on 1/‖w(μ)‖, nearly linear in μ, then a certificate from the optimality conditions."""
        xp = centre.__array_namespace__()
        own = self.but_features(index)
        right = own.modulus[:, None] * centre + own.pull
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


# --- anything smooth: one client at a time ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Smooth:
    """L-BFGS client by client, for an objective that only gives value and gradient."""

    objective: Any
    features: Array
    targets: Array
    counts: Array
    modulus: Array

    def solve(self, centre: Array, index: Array | None = None) -> tuple[Array, Array]:
        """Minimise from the centre; the error is ‖∇G(w)‖/m, a distance bound where the objective is convex."""
        xp = centre.__array_namespace__()
        chosen = range(centre.shape[0]) if index is None else index
        solved = [self._one(int(k), centre[i, :]) for i, k in enumerate(chosen)]
        return xp.asarray([w for w, _ in solved]), xp.asarray([error for _, error in solved])

    def _one(self, client: int, centre: Array) -> tuple[Array, float]:
        import numpy as np
        from scipy.optimize import minimize

        rows, modulus = int(self.counts[client]), float(self.modulus[client])
        middle = np.asarray(centre, dtype=float)
        data = (self.features[client, :rows, :], self.targets[client, :rows], self.counts[client])

        def penalised(w: Array) -> tuple[float, Array]:
            value, gradient = self.objective.value_and_gradient(w, *data)
            away = w - middle
            return float(value) + 0.5 * modulus * float(away @ away), np.asarray(gradient, dtype=float) + modulus * away

        goal = GOAL * modulus * self.objective.tolerance
        options = {"maxiter": 10_000, "maxfun": 50_000, "ftol": 0.0, "gtol": goal / len(middle) ** 0.5, "maxcor": 30}
        w = minimize(penalised, middle, jac=True, method="L-BFGS-B", options=options).x  # type: ignore[call-overload]
        return w, float(np.linalg.norm(penalised(w)[1])) / modulus
