"""What clients minimise: ridge, Huber and logistic regression, and the interface for an objective of one's own.

A loss is averaged over a client's D_k samples and has no regulariser of its own; λ/|C_s|·‖w‖² is added by all.
Arrays are batched: `w` (…, d), `features` (…, D, d), `targets` (…, D), `counts` (…). Rows past a client's own D_k are
zero and count for nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pgfl.errors import ConfigError, DataError
from pgfl.objectives import margins, solvers

Array = Any


@dataclass(frozen=True)
class Bounds:
    """What the package enforces on a client's data before anything is computed from it.

    `x_norm` bounds ‖x‖ of every row, `y_bound` |y|, `w_norm` the norm of a constrained ridge solution, and
    `update_norm` the distance ‖w − centre‖ that a non-convex objective may move.
    """

    x_norm: float | None = None
    y_bound: float | None = None
    w_norm: float | None = None
    update_norm: float | None = None


class Objective(ABC):
    """A client's loss. Subclass it with `value_and_gradient` for an objective of your own (see examples/).

    State `gradient_bound` if ‖∇ℓ‖ of one record is bounded whatever the model is: without it privacy is refused.
    A non-convex objective sets `convex = False`; its private update is clipped around the public centre.
    """

    kind: ClassVar[str] = "custom"
    suitable_targets: ClassVar[str] = "finite numbers"
    lam: float = 0.0
    tolerance: float = 1e-10
    convex: bool = True

    @abstractmethod
    def value_and_gradient(self, w: Array, features: Array, targets: Array, counts: Array) -> tuple[Array, Array]:
        """The mean loss (1/D_k) Σ ℓ and its gradient in w."""

    def loss(self, w: Array, features: Array, targets: Array, counts: Array) -> Array:
        """(1/D_k) Σ ℓ(x_i, y_i; w)."""
        return self.value_and_gradient(w, features, targets, counts)[0]

    def gradient(self, w: Array, features: Array, targets: Array, counts: Array) -> Array:
        """∇ of the mean loss."""
        return self.value_and_gradient(w, features, targets, counts)[1]

    @property
    def domain(self) -> float | None:
        """The norm that solutions are constrained to; bounds on the gradient hold within it. None is everywhere."""
        return None

    def gradient_bound(self, bounds: Bounds) -> float | None:
        """C_k of Assumption 3: sup ‖∇ℓ(z; w)‖ over records within the bounds and w in the domain, if there is one."""
        return None

    def gradient_change(self, bounds: Bounds) -> float | None:
        """sup ‖∇ℓ(z; w) − ∇ℓ(z'; w)‖ over two records within the bounds; at most twice the gradient bound."""
        bound = self.gradient_bound(bounds)
        return None if bound is None else 2.0 * bound

    def smoothness(self, bounds: Bounds) -> float | None:
        """L with ‖∇ℓ(z; w) − ∇ℓ(z; w')‖ ≤ L‖w − w'‖ for a record within the bounds; None if unknown."""
        return None

    def check_targets(self, targets: NDArray[np.floating], owner: str = "") -> None:
        """Raise `DataError` if the targets do not suit this loss; `owner` says whose they are."""
        wrong = ~self.suitable(targets)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DataError(
                f"{owner}sample {row + 1} has target {targets[row]:g}, but {self.kind} regression needs "
                f"{self.suitable_targets}; recode the target."
            )

    def suitable(self, targets: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Which targets this loss can be used with: any finite number, for most."""
        return np.asarray(np.isfinite(targets))

    def predict(self, margins: Array) -> Array:
        """What a model predicts where xᵀw = margins."""
        return margins

    def prepare(self, features: Array, targets: Array, counts: Array, modulus: Array) -> solvers.Prepared:
        """Factor argmin (1/D)Σℓ + (m/2)‖w − c‖² once; `modulus` is m, one a client."""
        return solvers.Smooth(self, features, targets, counts, modulus)


@dataclass(frozen=True)
class MarginObjective(Objective):
    """A loss of the margin u = xᵀw alone: ℓ(x, y; w) = h(u, y)."""

    lam: float = 0.01
    tolerance: float = 1e-10

    def __post_init__(self) -> None:
        if not (np.isfinite(self.lam) and self.lam >= 0):
            raise ConfigError(f"objective.lam must be a finite number, 0 or more; got {self.lam}.")
        if not (np.isfinite(self.tolerance) and self.tolerance > 0):
            raise ConfigError(f"objective.tolerance must be a number above 0; got {self.tolerance}.")

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
        """One ∂²h/∂u² for all margins, to prepare for: half of the bound is never further off than that half."""
        return None if self.curvature_bound is None else 0.5 * self.curvature_bound

    def value_and_gradient(self, w: Array, features: Array, targets: Array, counts: Array) -> tuple[Array, Array]:
        """The mean loss and its gradient, from the margins."""
        return self.loss(w, features, targets, counts), self.gradient(w, features, targets, counts)

    def loss(self, w: Array, features: Array, targets: Array, counts: Array) -> Array:
        """The mean of h over a client's own rows."""
        margin, inside = _margins(w, features, counts)
        return w.__array_namespace__().sum(self.scalar_loss(margin, targets) * inside, axis=-1) / counts

    def gradient(self, w: Array, features: Array, targets: Array, counts: Array) -> Array:
        """The mean of h′(u, y)·x over a client's own rows."""
        margin, inside = _margins(w, features, counts)
        slope = self.slope(margin, targets) * inside
        return w.__array_namespace__().matmul(slope[..., None, :], features)[..., 0, :] / counts[..., None]

    def prepare(self, features: Array, targets: Array, counts: Array, modulus: Array) -> solvers.Prepared:
        """A Newton method in the smaller of sample and feature space."""
        return margins.on_margins(self, features, targets, counts, modulus)


def _margins(w: Array, features: Array, counts: Array) -> tuple[Array, Array]:
    """Xw, and 1 for a client's own rows."""
    xp = w.__array_namespace__()
    return xp.matmul(features, w[..., None])[..., 0], solvers.within(features.shape[-2], counts, xp)


@dataclass(frozen=True)
class Ridge(MarginObjective):
    """ℓ = (y − xᵀw)², as the paper writes it. Its gradient is unbounded, so as it stands noise gives no guarantee.

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

    def prepare(self, features: Array, targets: Array, counts: Array, modulus: Array) -> solvers.Prepared:
        """A closed form: one small inverse a client; constrained, the root of one scalar equation."""
        if self.w_norm is not None:
            return solvers.constrained_ridge(features, targets, counts, modulus, self.w_norm)
        tolerance = solvers.tolerance_for(self, features.dtype, features.__array_namespace__())
        return solvers.ridge(features, targets, counts, modulus, tolerance)


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
    suitable_targets: ClassVar[str] = "labels 0 and 1"

    def scalar_loss(self, margin: Array, target: Array) -> Array:
        """log(1 + eᵘ) − yu, without overflow."""
        xp = margin.__array_namespace__()
        return xp.clip(margin, 0.0, None) + xp.log1p(xp.exp(-xp.abs(margin))) - target * margin

    def slope(self, margin: Array, target: Array) -> Array:
        """σ(u) − y with σ(u) = ½ + ½ tanh(u/2), which overflows nowhere."""
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
        """A little under the 1/4 at u = 0, which regularised models stay near."""
        return 0.225

    def gradient_bound(self, bounds: Bounds) -> float | None:
        """B, because |σ(u) − y| < 1."""
        return None if bounds.x_norm is None else bounds.x_norm

    def smoothness(self, bounds: Bounds) -> float | None:
        """B²/4."""
        return None if bounds.x_norm is None else 0.25 * bounds.x_norm**2

    def suitable(self, targets: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Labels are 0 or 1."""
        return np.asarray((targets == 0) | (targets == 1))

    def predict(self, margins: Array) -> Array:
        """The probability of label 1."""
        xp = margins.__array_namespace__()
        shrunk = xp.exp(-xp.abs(margins))
        return xp.where(margins >= 0, 1.0 / (1.0 + shrunk), shrunk / (1.0 + shrunk))


KINDS: dict[str, type[MarginObjective]] = {cls.kind: cls for cls in (Ridge, Huber, Logistic)}
