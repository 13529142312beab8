"""Softmax regression: mean cross-entropy over C classes, one model of C × d numbers.

Primal problems of softmax regression: argmin_W (1/D) Σ ℓ(Wx_i, y_i) + (m/2)‖W − c‖².

The Hessian of ℓ in the margins is at most ½(I − 11ᵀ/C) (Böhning). Gradients add up to zero over the classes, and there
this bound is ½ for every class alike. So one matrix per client, ½XᵀX/D + mI, majorises the problem: a step with its
inverse never raises the objective, from anywhere. The same inverse preconditions the conjugate gradients that solve for
Newton's step, which is taken, shortened if need be, where it lowers the objective; elsewhere the majoriser's is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np

from pgfl.arrays import AnyFloats, Array, Bools, Namespace, iterate, pick
from pgfl.errors import ConfigError
from pgfl.objectives.interface import (
    GOAL,
    ROUNDING,
    SUFFICIENT_DECREASE,
    Batch,
    BatchedObjective,
    Bounds,
    HasTolerance,
    LabelKind,
    Objective,
    Prepared,
    Task,
    backtracked,
    gram,
    parted,
    tolerance_for,
    within,
)
from pgfl.registry import setting

CURVATURE = 0.5  # of the loss in the margins, at most
STEPS = 200
INNER_STEPS = 60
FORCING = 0.01  # how exactly Newton's equation is solved, relative to its right-hand side


class SoftmaxLoss(HasTolerance, Protocol):
    """What this solver needs to know about the objective."""

    @property
    def width(self) -> int:
        """C, the number of classes."""
        ...


def chances(margins: Array) -> Array:
    """The softmax of margins (…, C), without overflow."""
    xp = margins.__array_namespace__()
    powers = xp.exp(margins - xp.max(margins, axis=-1, keepdims=True))
    return powers / xp.sum(powers, axis=-1, keepdims=True)


def log_total(margins: Array) -> Array:
    """log Σ_c exp(u_c), without overflow."""
    xp = margins.__array_namespace__()
    most = xp.max(margins, axis=-1, keepdims=True)
    return most[..., 0] + xp.log(xp.sum(xp.exp(margins - most), axis=-1))


def one_hot(targets: Array, classes: int) -> Array:
    """e_y of every label."""
    xp = targets.__array_namespace__()
    return xp.astype(targets[..., None] == xp.arange(classes, dtype=targets.dtype), targets.dtype)


def prepare_softmax(objective: SoftmaxLoss, features: Array, targets: Array, counts: Array, modulus: Array) -> Prepared:
    """Factor the majoriser, where there are fewer rows than features in an orthonormal basis of what the rows span.

    XXᵀ would be cheaper than a basis, but rows that repeat make it singular, and conjugate gradients grow without limit
    in directions that its inner products do not see.
    """
    xp = features.__array_namespace__()
    rows, basis = features, xp.zeros((features.shape[0], 0, 0), dtype=features.dtype)
    if features.shape[-2] < features.shape[-1]:
        basis, upper = xp.linalg.qr(xp.matrix_transpose(features))
        rows = xp.matrix_transpose(upper)
    turned, weights = xp.matrix_transpose(rows), parted(targets, features.ndim - 1)[1]
    bend = gram(turned, xp) if weights is None else xp.matmul(turned, weights[..., None] * rows)
    bound = (CURVATURE / counts)[:, None, None] * bend + modulus[:, None, None] * xp.eye(
        bend.shape[-1], dtype=bend.dtype
    )
    return OnClasses(features, rows, basis, xp.linalg.inv(bound), targets, counts, modulus, objective)


@dataclass(frozen=True)
class OnClasses(Batch):
    """Unknowns z with W = c + zᵀQᵀ for a `basis` Q, or W = c + zᵀ without; the certificate is ‖∇‖/m.

    `rows` are XQ, or X, and `majoriser` is the inverse of half their Gram matrix / D + mI.
    """

    features: Array
    rows: Array
    basis: Array
    majoriser: Array
    targets: Array
    counts: Array
    modulus: Array
    objective: SoftmaxLoss

    def solve(self, centre: Array, index: Array | None = None) -> tuple[Array, Array]:
        """Iterate until every error is below half of the tolerance, or no step helps."""
        xp = centre.__array_namespace__()
        own, features = self.but_features(index), pick(self.features, index)
        shape = (centre.shape[0], self.objective.width, features.shape[-1])
        base = xp.matmul(features, xp.matrix_transpose(xp.reshape(centre, shape)))
        goal = GOAL * tolerance_for(self.objective, centre.dtype, xp)
        z, error = _Descent(own, base, xp).solve(goal)
        moves = xp.matrix_transpose(z)
        if own.basis.shape[-1]:
            moves = xp.matmul(moves, xp.matrix_transpose(own.basis))
        return centre + xp.reshape(moves, centre.shape), error


class _Descent:
    """One solve: margins Xc at z = 0. Arrays are (clients, rows or coordinates, C)."""

    def __init__(self, own: OnClasses, base: Array, xp: Namespace) -> None:
        self.own, self.base, self.xp = own, base, xp
        targets, weights = parted(own.targets, 2)
        self.labels = one_hot(targets, base.shape[-1])
        inside = within(base.shape[-2], own.counts, xp)
        self.share = ((inside if weights is None else inside * weights) / own.counts[:, None])[..., None]
        self.modulus = own.modulus[:, None, None]

    def solve(self, goal: float) -> tuple[Array, Array]:
        """(z, error) of every client. One that has converged no longer moves, so its batch does not matter."""
        xp = self.xp

        def looked_at(z: Array, margin: Array) -> tuple[Array, Array, Array]:
            chance = chances(margin)
            gradient = self.pulled((chance - self.labels) * self.share) + self.modulus * z
            return chance, gradient, _dot(gradient, gradient) ** 0.5 / self.own.modulus

        def body(state: tuple[Array, ...]) -> tuple[Array, ...]:
            running, z, margin, chance, gradient, _ = state
            z = z + xp.astype(running, z.dtype)[:, None, None] * self.step(running, z, margin, chance, gradient)
            margin = self.base + self.image(z)  # anew, because a sum of changes would drift away from it
            chance, gradient, error = looked_at(z, margin)
            return running & (error > goal), z, margin, chance, gradient, error

        z = self.pulled(xp.zeros_like(self.base))
        chance, gradient, error = looked_at(z, self.base)
        found = iterate(body, (error > goal, z, self.base, chance, gradient, error), STEPS, xp)
        return found[1], found[5]

    def step(self, running: Array, z: Array, margin: Array, chance: Array, gradient: Array) -> Array:
        """Newton's step, shortened until it lowers the objective, or the majoriser's."""
        xp = self.xp
        safe = -xp.matmul(self.own.majoriser, gradient)
        newton, image = self.newton(running, chance, gradient, safe, self.image(safe))
        lean, bend = _dot(z, newton), _dot(newton, newton)
        value, terms = self.loss(margin), self.terms(margin)
        slack = ROUNDING * xp.finfo(z.dtype).eps * (terms + 0.5 * self.own.modulus * _dot(z, z) + 1.0)
        descent = SUFFICIENT_DECREASE * _dot(gradient, newton)

        def enough(step: Array) -> Array:
            risen = self.loss(margin + step[:, None, None] * image) - value
            return risen + self.own.modulus * step * (lean + 0.5 * step * bend) <= step * descent + slack

        step = backtracked(enough, running, xp.ones_like(value), xp)[:, None, None]
        return xp.where(step > 0, step * newton, safe)

    def newton(
        self, running: Array, chance: Array, gradient: Array, first: Array, first_image: Array
    ) -> tuple[Array, Array]:
        """Newton's step by preconditioned conjugate gradients, and its change of the margins."""
        xp = self.xp

        def body(state: tuple[Array, ...]) -> tuple[Array, ...]:
            active, move, image, rest, direction, direction_image, size = state
            weighted = chance * direction_image
            weighted = weighted - chance * xp.sum(weighted, axis=-1, keepdims=True)
            bent = self.pulled(weighted * self.share) + self.modulus * direction
            length = xp.where(active, size / _positive(_dot(bent, direction)), 0.0 * size)
            length = length[:, None, None]
            move, image, rest = move + length * direction, image + length * direction_image, rest - length * bent
            turned = xp.matmul(self.own.majoriser, rest)
            turned_image = self.image(turned)
            left = _dot(rest, turned)
            onward = (left / _positive(size))[:, None, None]
            direction, direction_image = turned + onward * direction, turned_image + onward * direction_image
            return active & (left > enough), move, image, rest, direction, direction_image, left

        nothing, size = xp.zeros_like(first), -_dot(gradient, first)
        enough = FORCING**2 * size
        start = (running & (size > 0), nothing, xp.zeros_like(first_image), -gradient, first, first_image, size)
        _, move, image, *_ = iterate(body, start, INNER_STEPS, xp)
        return move, image

    def image(self, z: Array) -> Array:
        """The change of the margins by z."""
        return self.xp.matmul(self.own.rows, z)

    def pulled(self, slopes: Array) -> Array:
        """From slopes in the margins to a gradient."""
        return self.xp.matmul(self.xp.matrix_transpose(self.own.rows), slopes)

    def loss(self, margin: Array) -> Array:
        """The mean loss of every client."""
        xp = self.xp
        chosen = xp.sum(margin * self.labels, axis=-1)
        return xp.sum((log_total(margin) - chosen) * self.share[..., 0], axis=-1)

    def terms(self, margin: Array) -> Array:
        """The size of what adds up to the loss and cancels there, which its rounding error is relative to."""
        xp = self.xp
        chosen = xp.sum(margin * self.labels, axis=-1)
        return xp.sum((xp.abs(log_total(margin)) + xp.abs(chosen)) * self.share[..., 0], axis=-1)


def _counted(features: Array, targets: Array, counts: Array) -> tuple[Array, Array]:
    """Return labels, and how much every row counts: 0 for padding, else 1 or its weight."""
    plain, weights = parted(targets, features.ndim - 1)
    inside = within(features.shape[-2], counts, features.__array_namespace__())
    return plain, inside if weights is None else inside * weights


def _dot(a: Array, b: Array) -> Array:
    return a.__array_namespace__().sum(a * b, axis=(-2, -1))


def _positive(values: Array) -> Array:
    """The values, and 1 where they are not above 0."""
    xp = values.__array_namespace__()
    return xp.where(values > 0, values, xp.ones_like(values))


@dataclass(frozen=True)
class Softmax(BatchedObjective):
    """ℓ = log Σ_c exp(u_c) − u_y with margins u = Wx and labels y of 0 … C − 1.

    A model is W (C × d), stored row after row as one vector of C·d numbers. `classes` is C; without it, `train` takes
    the largest label + 1, but never under privacy.

    >>> Softmax(classes=3).model_length(4)
    12
    """

    kind: ClassVar[str] = "softmax"
    compiled_form: ClassVar[str | None] = "softmax"
    takes_weights: ClassVar[bool] = True
    task: ClassVar[Task] = "multiclass"
    label_kind: ClassVar[LabelKind | None] = "labels"
    suitable_targets: ClassVar[str] = "whole labels from 0 to `classes` − 1"
    classes: int | None = setting(None, ge=2, le=10_000)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classes is not None and not (isinstance(self.classes, int) and self.classes >= 2):
            raise ConfigError(f"objective.classes must be a whole number from 2 up; got {self.classes}.")

    @property
    def width(self) -> int:
        """C, once it is known."""
        if self.classes is None:
            raise ConfigError("objective.classes is not known; state the number of classes.")
        return self.classes

    @property
    def label_count(self) -> int | None:
        """C, or None while it is unknown."""
        return self.classes

    @property
    def lacks_labels(self) -> bool:
        """Whether C is unknown."""
        return self.classes is None

    def with_labels(self, count: int) -> Objective:
        """The same loss with C = `count`, unless C is known already."""
        return replace(self, classes=count) if self.classes is None else self

    def model_length(self, features: int) -> int:
        """C·d."""
        return self.width * features

    def margins(self, w: Array, features: Array) -> Array:
        """Wx of every row: (…, D, C)."""
        xp = w.__array_namespace__()
        matrix = xp.reshape(w, (*w.shape[:-1], self.width, features.shape[-1]))
        return xp.matmul(features, xp.matrix_transpose(matrix))

    def value_and_gradient(self, w: Array, features: Array, targets: Array, counts: Array) -> tuple[Array, Array]:
        """The mean loss and its gradient."""
        return self.loss(w, features, targets, counts), self.gradient(w, features, targets, counts)

    def loss(self, w: Array, features: Array, targets: Array, counts: Array) -> Array:
        """The mean cross-entropy over a client's own rows."""
        xp, margins = w.__array_namespace__(), self.margins(w, features)
        plain, inside = _counted(features, targets, counts)
        chosen = xp.sum(margins * one_hot(plain, self.width), axis=-1)
        return xp.sum((log_total(margins) - chosen) * inside, axis=-1) / counts

    def gradient(self, w: Array, features: Array, targets: Array, counts: Array) -> Array:
        """The mean of (p − e_y)xᵀ over a client's own rows, flattened as a model is."""
        xp = w.__array_namespace__()
        plain, inside = _counted(features, targets, counts)
        slope = (chances(self.margins(w, features)) - one_hot(plain, self.width)) * inside[..., None]
        gradient = xp.matmul(xp.matrix_transpose(slope), features)
        return xp.reshape(gradient, w.shape) / counts[..., None]

    def gradient_bound(self, bounds: Bounds) -> float | None:
        """√2·B: with q = 1 − p_y, ‖p − e_y‖² ≤ q² + q² < 2, because the other p_c are not negative and add up to q."""
        return None if bounds.x_norm is None else 2.0**0.5 * bounds.x_norm

    def gradient_change(self, bounds: Bounds) -> float | None:
        """2√2·B, twice the gradient bound; with two or more features nothing less holds for every W.

        Two rows nearly alike on either side of a huge W get p ≈ e_1 and p' ≈ e_2. With the labels y = 2 and y' = 1 that
        W denies, p − e_y ≈ e_1 − e_2 ≈ −(p' − e_y'), so the two gradients are nearly opposite and of full length.
        """
        return super().gradient_change(bounds)

    def smoothness(self, bounds: Bounds) -> float | None:
        """B²/2: vᵀ(diag p − ppᵀ)v is the variance of v under p, at most (max v − min v)²/4 ≤ ‖v‖²/2."""
        return None if bounds.x_norm is None else 0.5 * bounds.x_norm**2

    def suitable(self, targets: AnyFloats) -> Bools:
        """Labels are 0 … C − 1."""
        return np.asarray((targets == np.floor(targets)) & (targets >= 0) & (targets < self.width))

    def predict(self, margins: Array) -> Array:
        """The probability of every class: (…, C)."""
        return chances(margins)

    def prepare(self, features: Array, targets: Array, counts: Array, modulus: Array) -> Prepared:
        """A Newton method in the smaller of sample and feature space, guarded by a majoriser that is factored once."""
        return prepare_softmax(self, features, targets, counts, modulus)
