"""Losses of the margin xᵀw: their base class, and the solver of their primal problems.

Primal problems of losses h(xᵀw, y): argmin_w (1/D) Σ h(x_iᵀw, y_i) + (m/2)‖w − c‖².

If h bends little compared with m, Newton's method with one fixed curvature b̄ for every row is enough: its matrix is
inverted once and a step is one product. Otherwise Newton's method factors a matrix in every step. A client that has
converged no longer moves, so a result does not depend on its batch.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol

from pgfl.arrays import Array, Namespace, iterate, own_rows, pick, rows_times, times_rows
from pgfl.objectives.interface import (
    GOAL,
    NEWTON_STEPS,
    ROUNDING,
    SUFFICIENT_DECREASE,
    Batch,
    BatchedObjective,
    Bounds,
    HasTolerance,
    Prepared,
    backtracked,
    gram,
    norm,
    tolerance_for,
    within,
)

STEADY = 0.5  # steps with fixed curvature are taken if each at least halves the distance
FIXED_STEPS = 60


class MarginLoss(HasTolerance, Protocol):
    """What this solver needs to know about a loss h(u, y)."""

    @property
    def curvature_bound(self) -> float | None:
        """sup ∂²h/∂u², if it is known."""
        ...

    @property
    def fixed_curvature(self) -> float | None:
        """One ∂²h/∂u² for all margins, if steps with fixed curvature may be taken."""
        ...

    def scalar_loss(self, margin: Array, target: Array) -> Array:
        """h(u, y)."""
        ...

    def slope(self, margin: Array, target: Array) -> Array:
        """∂h/∂u."""
        ...

    def curvature(self, margin: Array, target: Array) -> Array:
        """∂²h/∂u²."""
        ...


def on_margins(objective: MarginLoss, features: Array, targets: Array, counts: Array, modulus: Array) -> Prepared:
    """Prepare in sample space if there are fewer rows than features, else in feature space.

    With 0 ≤ h″ ≤ b and λ = ‖XXᵀ‖, a step with fixed curvature b̄ multiplies the distance by at most
    max(b̄, b − b̄)λ/(mD + b̄λ).
    """
    xp = features.__array_namespace__()
    rows, dimension = features.shape[-2:]
    total = modulus * counts
    if rows > dimension:
        nothing = xp.zeros((features.shape[0], 0, 0), dtype=features.dtype)
        return OnMargins(features, nothing, targets, counts, modulus, 0.0 * total, objective, True)
    matrix = gram(features, xp)
    size = xp.sum(matrix * matrix, axis=(-2, -1)) ** 0.5
    bound, fixed = objective.curvature_bound, objective.fixed_curvature
    steady = size < 0
    if bound is not None and fixed is not None:
        steady = max(fixed, bound - fixed) * size <= STEADY * (total + fixed * size)
        shifted = xp.eye(rows, dtype=matrix.dtype) + (fixed / total)[:, None, None] * matrix
        matrix = xp.where(steady[:, None, None], xp.linalg.inv(shifted), matrix)
    reach = xp.where(steady, size**0.5 / total, 0.0 * size)
    uses_newton, features = not bool(xp.all(steady)), own_rows(features, counts)
    return OnMargins(features, matrix, targets, counts, modulus, reach, objective, uses_newton)


@dataclass(frozen=True)
class OnMargins(Batch):
    """Unknowns z with w = c + Xᵀz (sample space) or w = c + z; a solution carries the certificate ‖∇‖/m ≥ ‖w − argmin‖.

    `matrix` is (I + (b̄/mD) XXᵀ)⁻¹ where steps with fixed curvature b̄ are taken and XXᵀ elsewhere. `reach` is
    ‖XXᵀ‖½/mD there and 0 elsewhere: since ∇ = Xᵀe/D, `reach`·‖e‖ bounds the error.
    """

    features: Array
    matrix: Array
    targets: Array
    counts: Array
    modulus: Array
    reach: Array
    objective: MarginLoss
    uses_newton: bool  # whether any client does

    def solve(self, centre: Array, index: Array | None = None) -> tuple[Array, Array]:
        """Iterate until every error is below half of the tolerance, or no step helps."""
        xp = centre.__array_namespace__()
        own = self.but_features(index)
        in_samples = self.features.shape[-2] <= self.features.shape[-1]
        base = rows_times(self.features, centre, index)
        goal = GOAL * tolerance_for(self.objective, centre.dtype, xp)
        if in_samples:
            z, error = own.fixed_steps(base, goal, xp)
            if self.uses_newton:
                moves, found = _Newton(own, None, base, xp).solve(own.reach <= 0, goal)
                z, error = z + moves, error + found
            model = times_rows(z, self.features, index)
            model += centre
            return model, error
        moves, error = _Newton(own, pick(self.features, index), base, xp).solve(own.reach <= 0, goal)
        return centre + moves, error

    def fixed_steps(self, base: Array, goal: float, xp: Namespace) -> tuple[Array, Array]:
        """(z, error) of the clients with fixed curvature, 0 for the others.

        With u = Xw, s = mDz and ∇ = Xᵀe/D for e = h′(u) + s, a step is v = (I + (b̄/mD)XXᵀ)⁻¹e, s −= v and
        u −= (e − v)/b̄; s is `scaled` below. Rows of padding are solved by the first step and change nothing.
        """
        slope, per_bend = self.objective.slope, 1.0 / (self.objective.fixed_curvature or 1.0)

        def looked_at(scaled: Array, margin: Array) -> tuple[Array, Array]:
            e = slope(margin, self.targets)
            e += scaled
            return e, self.reach * norm(e)

        def body(state: tuple[Array, ...]) -> tuple[Array, ...]:
            running, scaled, margin, e, _ = state
            e = e * xp.astype(running, e.dtype)[:, None]
            v = rows_times(self.matrix, e)
            e -= v
            e *= per_bend
            scaled, margin = scaled - v, margin - e
            e, error = looked_at(scaled, margin)
            return running & (error > goal), scaled, margin, e, error

        nothing = xp.zeros_like(base)
        e, error = looked_at(nothing, base)
        _, scaled, _, _, error = iterate(body, (error > goal, nothing, base, e, error), FIXED_STEPS, xp)
        return scaled / (self.modulus * self.counts)[:, None], error


class _Newton:
    """Damped Newton on the reduced problem of one solve: margins Xc at z = 0; `columns` is X in feature space."""

    def __init__(self, own: OnMargins, columns: Array | None, base: Array, xp: Namespace) -> None:
        self.own, self.columns, self.base, self.xp = own, columns, base, xp
        self.objective = own.objective
        self.share = within(base.shape[-1], own.counts, xp) / own.counts[:, None]

    def solve(self, running: Array, goal: float) -> tuple[Array, Array]:
        """(z, error) of the `running` clients, 0 for the others."""
        xp, modulus = self.xp, self.own.modulus

        def looked_at(z: Array, margin: Array) -> tuple[Array, Array, Array]:
            gradient = self.gradient(z, margin)
            turned = self.turned(gradient)
            return gradient, turned, xp.clip(xp.vecdot(gradient, turned), 0.0, None) ** 0.5 / modulus

        def body(state: tuple[Array, ...]) -> tuple[Array, ...]:
            running, z, margin, gradient, turned, _ = state
            direction = self.direction(margin, gradient)
            image = self.image(direction)
            length = self.line_search(z, margin, direction, image, xp.vecdot(direction, turned), running)
            z, margin = z + length[:, None] * direction, margin + length[:, None] * image
            gradient, turned, error = looked_at(z, margin)
            return running & (length > 0) & (error > goal), z, margin, gradient, turned, error

        z = xp.zeros_like(self.base) if self.columns is None else xp.zeros_like(self.columns[:, 0, :])
        gradient, turned, error = looked_at(z, self.base)
        start = (running & (error > goal), z, self.base, gradient, turned, error)
        _, z, _, _, _, error = iterate(body, start, NEWTON_STEPS, xp)
        return z, xp.where(running, error, xp.zeros_like(error))

    def image(self, z: Array) -> Array:
        """The change of the margins by z."""
        return rows_times(self.own.matrix if self.columns is None else self.columns, z)

    def turned(self, z: Array) -> Array:
        """The vector whose inner products with coordinates equal those of the models of z."""
        return self.image(z) if self.columns is None else z

    def gradient(self, z: Array, margin: Array) -> Array:
        """In sample space e with ∇ = Xᵀe; in feature space ∇ itself."""
        slope = self.objective.slope(margin, self.own.targets) * self.share
        return (slope if self.columns is None else times_rows(slope, self.columns)) + self.own.modulus[:, None] * z

    def loss(self, margin: Array) -> Array:
        return self.xp.vecdot(self.objective.scalar_loss(margin, self.own.targets), self.share)

    def direction(self, margin: Array, gradient: Array) -> Array:
        own, xp = self.own, self.xp
        bend = self.objective.curvature(margin, own.targets) * self.share
        if self.columns is None:
            curved = bend[..., None] * own.matrix
        else:
            curved = xp.matmul(xp.matrix_transpose(self.columns), bend[..., None] * self.columns)
        hessian = curved + own.modulus[:, None, None] * xp.eye(curved.shape[-1], dtype=curved.dtype)
        return -xp.linalg.solve(hessian, gradient[..., None])[..., 0]

    def line_search(
        self, z: Array, margin: Array, direction: Array, image: Array, descent: Array, running: Array
    ) -> Array:
        """Halve the step until the objective falls enough; 0 if it never does, and for clients that are not running."""
        xp, modulus = self.xp, self.own.modulus
        across = image if self.columns is None else direction
        lean, bend = xp.vecdot(z, across), xp.vecdot(direction, across)
        value, size = self.loss(margin), xp.vecdot(z, margin - self.base if self.columns is None else z)
        slack = ROUNDING * xp.finfo(z.dtype).eps * (xp.abs(value) + 0.5 * modulus * xp.abs(size) + 1.0)

        def enough(step: Array) -> Array:
            risen = self.loss(margin + step[:, None] * image) - value + modulus * step * (lean + 0.5 * step * bend)
            return risen <= SUFFICIENT_DECREASE * step * descent + slack

        return backtracked(enough, running, xp.ones_like(value), xp)


@dataclass(frozen=True)
class MarginObjective(BatchedObjective):
    """A loss of the margin u = xᵀw alone: ℓ(x, y; w) = h(u, y)."""

    @abstractmethod
    def scalar_loss(self, margin: Array, target: Array) -> Array:
        """h(u, y)."""

    @abstractmethod
    def slope(self, margin: Array, target: Array) -> Array:
        """∂h/∂u."""

    @abstractmethod
    def curvature(self, margin: Array, target: Array) -> Array:
        """∂²h/∂u², a generalised one where h has kinks."""

    @property
    def curvature_bound(self) -> float | None:
        """sup ∂²h/∂u², if it is known."""
        return self.smoothness(Bounds(x_norm=1.0))

    @property
    def fixed_curvature(self) -> float | None:
        """One curvature for all margins, to factor once; half of the bound keeps the error within that half."""
        return None if self.curvature_bound is None else 0.5 * self.curvature_bound

    def value_and_gradient(self, w: Array, features: Array, targets: Array, counts: Array) -> tuple[Array, Array]:
        """The mean loss and its gradient, from the margins."""
        return self.loss(w, features, targets, counts), self.gradient(w, features, targets, counts)

    def loss(self, w: Array, features: Array, targets: Array, counts: Array) -> Array:
        """The mean of h over a client's own rows."""
        margin, inside = self.margins(w, features), _inside(w, features, counts)
        return w.__array_namespace__().sum(self.scalar_loss(margin, targets) * inside, axis=-1) / counts

    def gradient(self, w: Array, features: Array, targets: Array, counts: Array) -> Array:
        """The mean of h′(u, y)·x over a client's own rows."""
        slope = self.slope(self.margins(w, features), targets) * _inside(w, features, counts)
        return w.__array_namespace__().matmul(slope[..., None, :], features)[..., 0, :] / counts[..., None]

    def scaled(self, features: Array, targets: Array, weights: Array) -> tuple[Array, Array] | None:
        """Return rows and targets whose plain loss is the weighted one; None where scaling rows does not do that."""
        return None

    def prepare(self, features: Array, targets: Array, counts: Array, modulus: Array) -> Prepared:
        """A Newton method in the smaller of sample and feature space."""
        return on_margins(self, features, targets, counts, modulus)


def _inside(w: Array, features: Array, counts: Array) -> Array:
    """1 for a client's own rows, 0 for padding."""
    return within(features.shape[-2], counts, w.__array_namespace__())
