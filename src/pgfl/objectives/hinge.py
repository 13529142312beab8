"""The smooth hinge of two labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pgfl.arrays import AnyFloats, Array, Bools
from pgfl.objectives.interface import Bounds, LabelKind, Task
from pgfl.objectives.logistic import Logistic
from pgfl.objectives.margins import MarginObjective


@dataclass(frozen=True)
class Hinge(MarginObjective):
    """The smooth hinge of Rennie and Srebro, with labels 0 and 1, which count as t = ±1.

    ℓ(m) = 0 for m = tu ≥ 1, (1 − m)²/2 for 0 < m < 1, else 1/2 − m. Its slope at a margin of 0 is its largest one,
    that of logistic regression half of it: with little privacy budget, where margins stay small, the same noise hides
    twice the signal. Its margins are scores; read as probabilities they are not calibrated.
    """

    kind: ClassVar[str] = "hinge"
    task: ClassVar[Task] = "classification"
    label_kind: ClassVar[LabelKind | None] = "two labels"
    compiled_form: ClassVar[str | None] = "hinge"
    suitable_targets: ClassVar[str] = "labels 0 and 1"

    def scalar_loss(self, margin: Array, target: Array) -> Array:
        """Quadratic between the margins 0 and 1, linear below."""
        short, xp = self._short(margin, target), margin.__array_namespace__()
        inner = xp.clip(short, 0.0, 1.0)
        return inner * (xp.clip(short, 0.0, None) - 0.5 * inner)

    def slope(self, margin: Array, target: Array) -> Array:
        """−t times 1 − m, clipped to 0 … 1."""
        return (1.0 - 2.0 * target) * margin.__array_namespace__().clip(self._short(margin, target), 0.0, 1.0)

    def curvature(self, margin: Array, target: Array) -> Array:
        """1 between the margins 0 and 1, else 0."""
        short, xp = self._short(margin, target), margin.__array_namespace__()
        return xp.where((short > 0.0) & (short < 1.0), xp.ones_like(short), xp.zeros_like(short))

    def gradient_bound(self, bounds: Bounds) -> float | None:
        """B."""
        return bounds.x_norm

    def smoothness(self, bounds: Bounds) -> float | None:
        """B²."""
        return None if bounds.x_norm is None else bounds.x_norm**2

    def suitable(self, targets: AnyFloats) -> Bools:
        """Labels are 0 or 1."""
        return np.asarray((targets == 0) | (targets == 1))

    def predict(self, margins: Array) -> Array:
        """A score between 0 and 1: the logistic function of the margin."""
        return Logistic().predict(margins)

    @staticmethod
    def _short(margin: Array, target: Array) -> Array:
        """1 − tu: how much a margin lacks."""
        return 1.0 - (2.0 * target - 1.0) * margin
