"""Huber regression: quadratic within κ, linear beyond, so that its gradient is bounded without a constraint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pgfl.arrays import Array
from pgfl.errors import ConfigError
from pgfl.objectives.interface import Bounds, LabelKind
from pgfl.objectives.margins import MarginObjective
from pgfl.registry import setting


@dataclass(frozen=True)
class Huber(MarginObjective):
    """ℓ(r) = r² for |r| ≤ κ, else 2κ|r| − κ². Its gradient is at most 2κ‖x‖ whatever the label and the model."""

    kind: ClassVar[str] = "huber"
    label_kind: ClassVar[LabelKind | None] = "numbers"
    compiled_form: ClassVar[str | None] = "huber"
    kappa: float = setting(1.0, gt=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (np.isfinite(self.kappa) and self.kappa > 0):
            raise ConfigError(f"objective.kappa must be a number above 0; got {self.kappa}.")

    def scalar_loss(self, margin: Array, target: Array) -> Array:
        """r² inside, linear outside."""
        xp = margin.__array_namespace__()
        size = xp.abs(margin - target)
        inner = xp.where(size < self.kappa, size, xp.full_like(size, self.kappa))
        return inner * (2.0 * size - inner)

    def slope(self, margin: Array, target: Array) -> Array:
        """2r, clipped at ±2κ."""
        xp = margin.__array_namespace__()
        slope = margin - target
        slope *= 2.0
        return xp.minimum(xp.maximum(slope, -2.0 * self.kappa), 2.0 * self.kappa)

    def curvature(self, margin: Array, target: Array) -> Array:
        """2 inside, 0 outside."""
        xp = margin.__array_namespace__()
        inside = xp.abs(margin - target) <= self.kappa
        return xp.where(inside, xp.full_like(margin, 2.0), xp.zeros_like(margin))

    def gradient_bound(self, bounds: Bounds) -> float | None:
        """2κB."""
        return None if bounds.x_norm is None else 2.0 * self.kappa * bounds.x_norm

    @property
    def residual_scale(self) -> float | None:
        """κ."""
        return self.kappa

    def smoothness(self, bounds: Bounds) -> float | None:
        """2B²."""
        return None if bounds.x_norm is None else 2.0 * bounds.x_norm**2
