"""The interface of an objective: a client's loss, its bounds, and the solver of its primal problem.

A loss is averaged over a client's D_k samples and has no regulariser; λ/|C_s|·‖w‖² is added to every objective.
Arrays are batched: `w` (…, d), `features` (…, D, d), `targets` (…, D), `counts` (…). Rows past a client's own D_k are
zero and do not count.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from pgfl.array_types import AnyFloats, Array, Bools
from pgfl.errors import ConfigError, DataError
from pgfl.objectives.smooth_solver import Smooth
from pgfl.objectives.solving import Prepared

Task = Literal["regression", "classification", "multiclass"]


@dataclass(frozen=True)
class Bounds:
    """Bounds that the package enforces on a client's data before it computes anything.

    `x_norm` bounds ‖x‖ of every row, `y_bound` |y|, `w_norm` the norm of a constrained ridge solution, and
    `update_norm` the distance ‖w − centre‖ of an update.
    """

    x_norm: float | None = None
    y_bound: float | None = None
    w_norm: float | None = None
    update_norm: float | None = None


class Objective(ABC):
    """A client's loss. Subclass it with `value_and_gradient` for an objective of your own (see examples/).

    Privacy needs `gradient_bound`, a bound on ‖∇ℓ‖ of one record that holds for every model. A non-convex objective
    sets `convex = False`; its private update is clipped around the public centre.

    `task` decides how predictions are measured: "regression" (values), "classification" (labels 0 and 1) or
    "multiclass" (labels 0 … C − 1).
    """

    kind: ClassVar[str] = "custom"
    task: ClassVar[Task] = "regression"
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

    def model_length(self, features: int) -> int:
        """How many numbers a model has for so many features; by default one per feature."""
        return features

    def margins(self, w: Array, features: Array) -> Array:
        """What a model makes of rows before `predict`: xᵀw of every row, (…, D)."""
        return w.__array_namespace__().matmul(features, w[..., None])[..., 0]

    @property
    def domain(self) -> float | None:
        """The largest norm of a solution, within which the gradient bounds hold; None if there is no limit."""
        return None

    def gradient_bound(self, bounds: Bounds) -> float | None:
        """C_k of Assumption 3: sup ‖∇ℓ(z; w)‖ over records within the bounds and w in the domain; None if unbounded."""
        return None

    def gradient_change(self, bounds: Bounds) -> float | None:
        """sup ‖∇ℓ(z; w) − ∇ℓ(z'; w)‖ over two records within the bounds; at most twice the gradient bound."""
        bound = self.gradient_bound(bounds)
        return None if bound is None else 2.0 * bound

    def smoothness(self, bounds: Bounds) -> float | None:
        """L with ‖∇ℓ(z; w) − ∇ℓ(z; w')‖ ≤ L‖w − w'‖ for a record within the bounds; None if unknown."""
        return None

    def check_targets(self, targets: AnyFloats, owner: str = "") -> None:
        """Raise `DataError` if the targets do not suit this loss; `owner` names their owner in the message."""
        wrong = ~self.suitable(targets)
        if wrong.any():
            row = int(np.argmax(wrong))
            labels = "" if self.task == "regression" else ", or declare its labels"
            raise DataError(
                f"{owner}sample {row + 1} has target {targets[row]:g}, but {self.kind} regression needs "
                f"{self.suitable_targets}; recode the target{labels}."
            )

    def suitable(self, targets: AnyFloats) -> Bools:
        """Which targets this loss accepts; by default all finite numbers."""
        return np.asarray(np.isfinite(targets))

    def predict(self, margins: Array) -> Array:
        """The prediction from `margins`."""
        return margins

    def prepare(self, features: Array, targets: Array, counts: Array, modulus: Array) -> Prepared:
        """Factor argmin (1/D)Σℓ + (m/2)‖w − c‖² once; `modulus` is m of every client."""
        return Smooth(self, features, targets, counts, modulus)


@dataclass(frozen=True)
class BatchedObjective(Objective):
    """An objective with validated λ and tolerance whose methods take all clients of a batch at once."""

    lam: float = 0.01
    tolerance: float = 1e-10

    def __post_init__(self) -> None:
        if not (np.isfinite(self.lam) and self.lam >= 0):
            raise ConfigError(f"objective.lam must be a finite number, 0 or more; got {self.lam}.")
        if not (np.isfinite(self.tolerance) and self.tolerance > 0):
            raise ConfigError(f"objective.tolerance must be a number above 0; got {self.tolerance}.")
