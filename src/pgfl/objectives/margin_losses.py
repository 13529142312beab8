"""Losses of the margin xᵀw: the base class, Huber, logistic regression and the smooth hinge."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pgfl.array_types import AnyFloats, Array, Bools
from pgfl.errors import ConfigError
from pgfl.objectives.interface import BatchedObjective, Bounds, Task
from pgfl.objectives.margin_solver import on_margins
from pgfl.objectives.solving import Prepared, within


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

    def prepare(self, features: Array, targets: Array, counts: Array, modulus: Array) -> Prepared:
        """A Newton method in the smaller of sample and feature space."""
        return on_margins(self, features, targets, counts, modulus)


@dataclass(frozen=True)
class Huber(MarginObjective):
    """ℓ(r) = r² for |r| ≤ κ, else 2κ|r| − κ². Its gradient is at most 2κ‖x‖ whatever the label and the model."""

    kind: ClassVar[str] = "huber"
    kappa: float = 1.0

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

    def smoothness(self, bounds: Bounds) -> float | None:
        """2B²."""
        return None if bounds.x_norm is None else 2.0 * bounds.x_norm**2


@dataclass(frozen=True)
class Logistic(MarginObjective):
    """Mean cross-entropy with labels 0 and 1."""

    kind: ClassVar[str] = "logistic"
    task: ClassVar[Task] = "classification"
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


@dataclass(frozen=True)
class Hinge(MarginObjective):
    """The smooth hinge of Rennie and Srebro, with labels 0 and 1, which count as t = ±1.

    ℓ(m) = 0 for m = tu ≥ 1, (1 − m)²/2 for 0 < m < 1, else 1/2 − m. Its slope at a margin of 0 is its largest one,
    that of logistic regression half of it: with little privacy budget, where margins stay small, the same noise hides
    twice the signal. Its margins are scores; read as probabilities they are not calibrated.
    """

    kind: ClassVar[str] = "hinge"
    task: ClassVar[Task] = "classification"
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


def _inside(w: Array, features: Array, counts: Array) -> Array:
    """1 for a client's own rows, 0 for padding."""
    return within(features.shape[-2], counts, w.__array_namespace__())
