"""Ridge regression, with or without a constraint on the norm of the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pgfl.array_types import Array
from pgfl.errors import ConfigError
from pgfl.objectives.interface import Bounds
from pgfl.objectives.margin_losses import MarginObjective
from pgfl.objectives.ridge_solver import closed_form, constrained
from pgfl.objectives.solving import Prepared, tolerance_for


@dataclass(frozen=True)
class Ridge(MarginObjective):
    """ℓ = (y − xᵀw)², as in the paper. Its gradient is unbounded, so without a constraint noise gives no guarantee.

    With `w_norm` the argmin is constrained to ‖w‖ ≤ w_norm (solved exactly); with bounded labels that is private.
    """

    kind: ClassVar[str] = "ridge"
    w_norm: float | None = None

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

    def prepare(self, features: Array, targets: Array, counts: Array, modulus: Array) -> Prepared:
        """A closed form with one small inverse per client, or, if constrained, the root of one scalar equation."""
        if self.w_norm is not None:
            return constrained(features, targets, counts, modulus, self.w_norm)
        tolerance = tolerance_for(self, features.dtype, features.__array_namespace__())
        return closed_form(features, targets, counts, modulus, tolerance)
