"""The interface of an objective: a client's loss, its bounds, and the solver of its primal problem.

A loss is averaged over a client's D_k samples and has no regulariser; λ/|C_s|·‖w‖² is added to every objective.
Arrays are batched: `w` (…, d), `features` (…, D, d), `targets` (…, D), `counts` (…). Rows past a client's own D_k are
zero and do not count.

What the solvers of primal problems share.

A primal problem argmin_w (1/D) Σ ℓ(x_i, y_i; w) + (m/2)‖w − c‖² is factored once and solved every round for another
centre c. Every solver returns a bound on its own distance to the exact argmin, so a tolerance is checked rather than
assumed. A solver handles a batch of clients with equally many (possibly zero-padded) rows.

The solver for any smooth objective that gives only its value and its gradient.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np

from pgfl.arrays import AnyFloats, Array, Bools, DTypeLike, Namespace, iterate, pick
from pgfl.errors import ConfigError, DataError
from pgfl.registry import config_keys

NEWTON_STEPS = 60
GOAL = 0.5  # of the tolerance; the rest is left to rounding
HALVINGS = 40
SUFFICIENT_DECREASE = 1e-4
ROUNDING = 16.0  # multiples of machine epsilon by which an objective may seem to rise


class Prepared(Protocol):
    """A batch of factored primal problems."""

    def solve(self, centre: Array, index: Array | None = None) -> tuple[Array, Array]:
        """(w, error): the argmin for every centre, and a bound on ‖w − argmin‖; `index` picks clients of the batch.

        There is one bound per client, or a single one for all if that is within the tolerance, because it costs less.
        """
        ...


class HasTolerance(Protocol):
    """Anything that states how exactly it must be solved."""

    @property
    def tolerance(self) -> float:
        """The largest allowed distance to the argmin."""
        ...


def tolerance_for(objective: HasTolerance, dtype: DTypeLike, xp: Namespace) -> float:
    """The stated tolerance, or what single precision can reach."""
    return max(objective.tolerance, 1e-4) if xp.finfo(dtype).eps > 1e-10 else objective.tolerance


def within(rows: int, counts: Array, xp: Namespace) -> Array:
    """1 for a client's own rows, 0 for padding."""
    return xp.astype(xp.arange(rows, dtype=counts.dtype) < counts[..., None], counts.dtype)


def parted(targets: Array, dimensions: int) -> tuple[Array, Array | None]:
    """Return targets and their weights, None where they have none; targets alone have so many dimensions."""
    return (targets, None) if targets.ndim == dimensions else (targets[..., 0], targets[..., 1])


def norm(x: Array) -> Array:
    """‖x‖ along the last axis."""
    return x.__array_namespace__().vecdot(x, x) ** 0.5


def gram(features: Array, xp: Namespace) -> Array:
    """XXᵀ of every client."""
    return xp.matmul(features, xp.matrix_transpose(features))


def backtracked(enough: Callable[[Array], Array], running: Array, step: Array, xp: Namespace) -> Array:
    """`step`, halved until it is `enough`; 0 if it never is, and for clients that are not running."""

    def body(state: tuple[Array, ...]) -> tuple[Array, ...]:
        too_long, step = state
        step = xp.where(too_long, 0.5 * step, step)
        return too_long & ~enough(step), step

    too_long, step = iterate(body, (running & ~enough(step), step), HALVINGS, xp)
    return step * xp.astype(running & ~too_long, step.dtype)


class Batch:
    """Clients along the first axis of every array field; `features`, the one large array, is never copied."""

    def but_features(self, index: Array | None) -> Self:
        """The same problems for some of the clients, with all features."""
        if index is None:
            return self
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}  # type: ignore[attr-defined]
        return type(self)(
            **{
                name: pick(value, index) if name != "features" and hasattr(value, "shape") else value
                for name, value in values.items()
            }
        )


class SmoothLoss(HasTolerance, Protocol):
    """What this solver needs to know about an objective."""

    def value_and_gradient(self, w: Array, features: Array, targets: Array, counts: Array) -> tuple[Array, Array]:
        """The mean loss (1/D_k) Σ ℓ and its gradient in w."""
        ...


@dataclass(frozen=True)
class Smooth:
    """L-BFGS, one client at a time."""

    objective: SmoothLoss
    features: Array
    targets: Array
    counts: Array
    modulus: Array

    def solve(self, centre: Array, index: Array | None = None) -> tuple[Array, Array]:
        """Minimise from the centre; the error is ‖∇G(w)‖/m, a distance bound where the objective is convex."""
        xp = centre.__array_namespace__()
        chosen = range(centre.shape[0]) if index is None else index
        solved = [self._one(int(k), centre[i, :]) for i, k in enumerate(chosen)]
        return xp.asarray([w for w, _ in solved]), xp.asarray([error for _, error in solved])

    def _one(self, client: int, centre: Array) -> tuple[Array, float]:
        from scipy.optimize import minimize

        rows, modulus = int(self.counts[client]), float(self.modulus[client])
        middle = np.asarray(centre, dtype=float)
        data = (self.features[client, :rows, :], self.targets[client, :rows], self.counts[client])

        def penalised(w: Array) -> tuple[float, Array]:
            value, gradient = self.objective.value_and_gradient(w, *data)
            away = w - middle
            return float(value) + 0.5 * modulus * float(away @ away), np.asarray(gradient, dtype=float) + modulus * away

        goal = GOAL * modulus * self.objective.tolerance
        options = {"maxiter": 10_000, "maxfun": 50_000, "ftol": 0.0, "gtol": goal / len(middle) ** 0.5, "maxcor": 30}
        w = minimize(penalised, middle, jac=True, method="L-BFGS-B", options=options).x  # type: ignore[call-overload]
        return w, float(np.linalg.norm(penalised(w)[1])) / modulus


Task = Literal["regression", "classification", "multiclass"]
LabelKind = Literal["numbers", "two labels", "labels"]
"""The declared targets that a loss can learn: numbers within bounds, two labels, or any number of labels."""


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
    "multiclass" (labels 0 … C − 1). `label_kind` is what a declared target must be; None accepts any declaration.
    `needs_bounds` are the keys of [privacy] without which no gradient is bounded. `compiled_form` names the kernels
    that compute the same loss. With `takes_weights` targets may be (…, D, 2), with a weight for every record. The
    fields of a dataclass are keys of [objective] (see `setting`).
    """

    kind: ClassVar[str] = "custom"
    task: ClassVar[Task] = "regression"
    label_kind: ClassVar[LabelKind | None] = None
    suitable_targets: ClassVar[str] = "finite numbers"
    needs_bounds: ClassVar[tuple[str, ...]] = ()
    compiled_form: ClassVar[str | None] = None
    takes_weights: ClassVar[bool] = False
    lam: float = 0.0
    tolerance: float = 1e-10
    convex: bool = True

    @abstractmethod
    def value_and_gradient(self, w: Array, features: Array, targets: Array, counts: Array) -> tuple[Array, Array]:
        """Return the mean loss (1/D_k) Σ ℓ, shape (…), and its gradient in w, shape (…, d).

        `w` (…, d) are models, `features` (…, D, d) rows, `targets` (…, D) labels or numbers, `counts` (…) the D_k; rows
        past D_k are zero and must not count.
        """

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

    def constrained(self, w_norm: float) -> Objective:
        """The same loss with solutions of at most this norm, if its guarantee needs that; else the loss itself."""
        return self

    @property
    def residual_scale(self) -> float | None:
        """The residual beyond which the loss is linear, if there is one."""
        return None

    @property
    def label_count(self) -> int | None:
        """C of a loss with one margin for each of C labels, once it is known; None for the others."""
        return None

    @property
    def lacks_labels(self) -> bool:
        """Whether the number of labels is needed and not known yet; `with_labels` gives it."""
        return False

    def with_labels(self, count: int) -> Objective:
        """The same loss for so many labels, if it needs their number."""
        return self

    def own_settings(self) -> dict[str, Any]:
        """The values of its own config keys: those besides `lam` and `tolerance`."""
        names = config_keys(type(self)).keys() - {one.name for one in fields(BatchedObjective)}
        return {name: getattr(self, name) for name in config_keys(type(self)) if name in names}

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
