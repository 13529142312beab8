"""What the solvers of primal problems share.

A primal problem argmin_w (1/D) Σ ℓ(x_i, y_i; w) + (m/2)‖w − c‖² is factored once and solved every round for another
centre c. Every solver returns a bound on its own distance to the exact argmin, so a tolerance is checked rather than
assumed. A solver handles a batch of clients with equally many (possibly zero-padded) rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self

from pgfl.array_types import Array, DTypeLike, Namespace
from pgfl.arrays import iterate, pick

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
