"""Logistic regression of two labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pgfl.arrays import AnyFloats, Array, Bools
from pgfl.objectives.interface import Bounds, LabelKind, Task
from pgfl.objectives.margins import MarginObjective


@dataclass(frozen=True)
class Logistic(MarginObjective):
    """Mean cross-entropy with labels 0 and 1."""

    kind: ClassVar[str] = "logistic"
    task: ClassVar[Task] = "classification"
    label_kind: ClassVar[LabelKind | None] = "two labels"
    compiled_form: ClassVar[str | None] = "logistic"
    suitable_targets: ClassVar[str] = "labels 0 and 1"

    def scalar_loss(self, margin: Array, target: Array) -> Array:
        """log(1 + eᵘ) − yu, without overflow."""
        xp = margin.__array_namespace__()
        return xp.clip(margin, 0.0, None) + xp.log1p(xp.exp(-xp.abs(margin))) - target * margin

    def slope(self, margin: Array, target: Array) -> Array:
        """σ(u) − y with σ(u) = ½ + ½ tanh(u/2), which never overflows."""
        slope = 0.5 * margin
        slope = slope.__array_namespace__().tanh(slope)
        slope *= 0.5
        slope += 0.5
        slope -= target
        return slope

    def curvature(self, margin: Array, target: Array) -> Array:
        """σ(u)(1 − σ(u))."""
        chance = self.predict(margin)
        return chance * (1.0 - chance)

    @property
    def fixed_curvature(self) -> float | None:
        """Slightly below the 1/4 at u = 0, near which regularised models stay."""
        return 0.225

    def gradient_bound(self, bounds: Bounds) -> float | None:
        """B, because |σ(u) − y| < 1."""
        return None if bounds.x_norm is None else bounds.x_norm

    def smoothness(self, bounds: Bounds) -> float | None:
        """B²/4."""
        return None if bounds.x_norm is None else 0.25 * bounds.x_norm**2

    def suitable(self, targets: AnyFloats) -> Bools:
        """Labels are 0 or 1."""
        return np.asarray((targets == 0) | (targets == 1))

    def predict(self, margins: Array) -> Array:
        """The probability of label 1."""
        xp = margins.__array_namespace__()
        shrunk = xp.exp(-xp.abs(margins))
        return xp.where(margins >= 0, 1.0 / (1.0 + shrunk), shrunk / (1.0 + shrunk))
