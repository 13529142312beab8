"""Losses whose records have weights: a record's loss counts as many times as its weight says.

A client minimises (1/D_k) Σ c_i ℓ(x_i, y_i; w) with c_i between 0 and a public cap C; D_k stays the number of records.
Targets (…, D) become (…, D, 2): what is to be predicted, and the weight. Targets without weights, such as held-out
ones, weigh 1.

A record's gradient c·∇ℓ is at most C times the loss's gradient bound. Of two records c·g and c'·g' the distance is
convex in (c, c'), so it is largest where each is 0 or C: C·max(‖g − g'‖, ‖g‖, ‖g'‖). The curvature is at most C times
the loss's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pgfl.arrays import AnyFloats, Array, Bools
from pgfl.errors import ConfigError
from pgfl.objectives.interface import BatchedObjective, Bounds, LabelKind, Objective, Prepared, Task, parted
from pgfl.objectives.margins import MarginObjective


def weighted(objective: Objective, cap: float) -> Objective:
    """Return the loss of records that weigh at most `cap`.

    >>> from pgfl.objectives import Huber
    >>> weighted(Huber(kappa=1.0), 3.0).gradient_bound(Bounds(x_norm=1.0))
    6.0
    """
    if isinstance(objective, _Weighted):
        return replace(objective, cap=max(cap, objective.cap))
    if isinstance(objective, MarginObjective):
        return WeightedMargins(objective.lam, objective.tolerance, objective, cap)
    if isinstance(objective, BatchedObjective) and objective.takes_weights:
        return WeightedClasses(objective.lam, objective.tolerance, objective, cap)
    raise ConfigError(
        "Records with weights need a loss that takes them (`takes_weights`); leave the weights out, or make "
        f"{objective.kind} a MarginObjective."
    )


def largest_weight(objective: Objective) -> float:
    """Return the cap on a record's weight; 1 of a loss without weights."""
    return objective.cap if isinstance(objective, _Weighted) else 1.0


@dataclass(frozen=True)
class _Weighted(BatchedObjective):
    """What a weighted loss takes from the loss itself, and what it multiplies by the cap."""

    base: Objective = None  # type: ignore[assignment]
    cap: float = 1.0

    @property
    def kind(self) -> str:  # type: ignore[override]
        """That of the loss itself: a model is the same with and without weights."""
        return self.base.kind

    @property
    def task(self) -> Task:  # type: ignore[override]
        """Regression or classification."""
        return self.base.task

    @property
    def label_kind(self) -> LabelKind | None:  # type: ignore[override]
        """What a declared target must be."""
        return self.base.label_kind

    @property
    def suitable_targets(self) -> str:  # type: ignore[override]
        """What its targets are, in words."""
        return self.base.suitable_targets

    @property
    def needs_bounds(self) -> tuple[str, ...]:  # type: ignore[override]
        """The keys of [privacy] without which no gradient is bounded."""
        return self.base.needs_bounds

    @property
    def domain(self) -> float | None:
        """The largest norm of a solution."""
        return self.base.domain

    def constrained(self, w_norm: float) -> Objective:
        """The same loss with solutions of at most this norm."""
        return replace(self, base=self.base.constrained(w_norm))

    @property
    def residual_scale(self) -> float | None:
        """The residual beyond which the loss is linear."""
        return self.base.residual_scale

    @property
    def label_count(self) -> int | None:
        """C of a loss with one margin per label."""
        return self.base.label_count

    def model_length(self, features: int) -> int:
        """How many numbers a model has."""
        return self.base.model_length(features)

    def margins(self, w: Array, features: Array) -> Array:
        """What a model makes of rows."""
        return self.base.margins(w, features)

    def predict(self, margins: Array) -> Array:
        """The prediction from margins."""
        return self.base.predict(margins)

    def suitable(self, targets: AnyFloats) -> Bools:
        """Which targets the loss accepts."""
        return self.base.suitable(parted(targets, 1)[0])

    def gradient_bound(self, bounds: Bounds) -> float | None:
        """C times that of the loss."""
        bound = self.base.gradient_bound(bounds)
        return None if bound is None else self.cap * bound

    def gradient_change(self, bounds: Bounds) -> float | None:
        """C times the largest of ‖g − g'‖ and ‖g‖: either record may weigh nothing."""
        change, bound = self.base.gradient_change(bounds), self.base.gradient_bound(bounds)
        return None if change is None or bound is None else self.cap * max(change, bound)

    def smoothness(self, bounds: Bounds) -> float | None:
        """C times that of the loss."""
        smoothness = self.base.smoothness(bounds)
        return None if smoothness is None else self.cap * smoothness


@dataclass(frozen=True)
class WeightedMargins(_Weighted, MarginObjective):
    """A loss of margins whose records have weights."""

    base: MarginObjective = None  # type: ignore[assignment]

    def _times(self, method: str, margin: Array, target: Array) -> Array:
        plain, weight = parted(target, margin.ndim)
        found: Array = getattr(self.base, method)(margin, plain)
        return found if weight is None else found * weight

    def scalar_loss(self, margin: Array, target: Array) -> Array:
        """c·h(u, y)."""
        return self._times("scalar_loss", margin, target)

    def slope(self, margin: Array, target: Array) -> Array:
        """c·∂h/∂u."""
        return self._times("slope", margin, target)

    def curvature(self, margin: Array, target: Array) -> Array:
        """c·∂²h/∂u²."""
        return self._times("curvature", margin, target)

    def prepare(self, features: Array, targets: Array, counts: Array, modulus: Array) -> Prepared:
        """Solve with weights; those of a squared loss go into its rows."""
        plain, weight = parted(targets, features.ndim - 1)
        if weight is None:
            return self.base.prepare(features, plain, counts, modulus)
        scaled = self.base.scaled(features, plain, weight)
        if scaled is None:
            return super().prepare(features, targets, counts, modulus)
        return self.base.prepare(*scaled, counts, modulus)


@dataclass(frozen=True)
class WeightedClasses(_Weighted):
    """A loss that takes weights with its targets, as softmax regression does."""

    base: BatchedObjective = None  # type: ignore[assignment]

    def value_and_gradient(self, w: Array, features: Array, targets: Array, counts: Array) -> tuple[Array, Array]:
        """The weighted mean loss and its gradient."""
        return self.base.value_and_gradient(w, features, targets, counts)

    def loss(self, w: Array, features: Array, targets: Array, counts: Array) -> Array:
        """The weighted mean cross-entropy."""
        return self.base.loss(w, features, targets, counts)

    def gradient(self, w: Array, features: Array, targets: Array, counts: Array) -> Array:
        """Its gradient, flattened as a model is."""
        return self.base.gradient(w, features, targets, counts)

    def prepare(self, features: Array, targets: Array, counts: Array, modulus: Array) -> Prepared:
        """Newton's method, guarded by the majoriser of the weighted rows."""
        return self.base.prepare(features, targets, counts, modulus)
