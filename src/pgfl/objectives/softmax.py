"""Softmax regression: mean cross-entropy over C classes, one model of C × d numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pgfl.array_types import AnyFloats, Array, Bools
from pgfl.errors import ConfigError
from pgfl.objectives.interface import BatchedObjective, Bounds, Task
from pgfl.objectives.softmax_solver import chances, log_total, one_hot, prepare_softmax
from pgfl.objectives.solving import Prepared, within


@dataclass(frozen=True)
class Softmax(BatchedObjective):
    """ℓ = log Σ_c exp(u_c) − u_y with margins u = Wx and labels y of 0 … C − 1.

    A model is W (C × d), stored row after row as one vector of C·d numbers. `classes` is C; without it, `train` takes
    the largest label + 1, but never under privacy.

    >>> Softmax(classes=3).model_length(4)
    12
    """

    kind: ClassVar[str] = "softmax"
    task: ClassVar[Task] = "multiclass"
    suitable_targets: ClassVar[str] = "whole labels from 0 to `classes` − 1"
    classes: int | None = None

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
        chosen = xp.sum(margins * one_hot(targets, self.width), axis=-1)
        inside = within(features.shape[-2], counts, xp)
        return xp.sum((log_total(margins) - chosen) * inside, axis=-1) / counts

    def gradient(self, w: Array, features: Array, targets: Array, counts: Array) -> Array:
        """The mean of (p − e_y)xᵀ over a client's own rows, flattened as a model is."""
        xp = w.__array_namespace__()
        slope = chances(self.margins(w, features)) - one_hot(targets, self.width)
        slope = slope * within(features.shape[-2], counts, xp)[..., None]
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
