"""What a user asks of privacy, and the plan that it becomes for given data, objective and algorithm."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pgfl.core.algorithms import PGFL, Algorithm, ExactMixing, FedAvg, OneStep
from pgfl.core.federation import Federation
from pgfl.errors import PrivacyError
from pgfl.objectives import Bounds, Objective, Ridge
from pgfl.privacy import rules, sensitivity
from pgfl.privacy.accounting import Index

if TYPE_CHECKING:
    from pgfl.privacy.mechanism import Guarantee, Plan

Noise = Literal["seeded", "secure"]
UNBOUNDED = (
    "the sensitivity is only nominal, because the paper's objective has an unbounded gradient (its Assumption 3 fails)"
)


@dataclass(frozen=True)
class Privacy:
    """A schedule (`phi0` or `phi1`, `zeta`) or a target (`epsilon`, `delta`, `max_releases`), and data bounds.

    `x_norm`, `y_bound`, `w_norm` and `update_norm` are enforced by the package (see `Bounds`). `guarantee="none"` is
    for reproducing the paper's unbounded ridge: the noise is calibrated as if the gradient were at most
    `nominal_gradient`, and every result says that nothing is promised. Unless `noise` is given, it is float-safe
    ("secure") on data of one's own and "seeded" on generated data.

    >>> Privacy(epsilon=2.0, guarantee="yes")
    Traceback (most recent call last):
    pgfl.errors.PrivacyError: `privacy.guarantee` must be one of required, none; got the text 'yes'.
    """

    phi0: float | None = None
    phi1: float | None = None
    zeta: float = 0.99
    epsilon: float | None = None
    delta: float = 1e-5
    max_releases: int | None = None
    index: Index = "round"
    x_norm: float | None = None
    y_bound: float | None = None
    w_norm: float | None = None
    update_norm: float | None = None
    noise: Noise | None = None
    guarantee: Guarantee = "required"
    nominal_gradient: float = 1.0

    def __post_init__(self) -> None:
        asked = asdict(self)
        wrong = [found for key, value in asked.items() if (found := rules.problem(key, value))]
        if wrong or (wrong := [found] if (found := rules.contradiction(asked)) else []):
            raise PrivacyError(wrong[0])

    @property
    def bounds(self) -> Bounds:
        """The bounds that are enforced."""
        return Bounds(self.x_norm, self.y_bound, self.w_norm, self.update_norm)

    @property
    def label_bound(self) -> float | None:
        """What labels are clipped to, stated or not, where a guarantee is given."""
        return sensitivity.LABEL_BOUND if self.y_bound is None and self.guarantee == "required" else self.y_bound

    def noise_for(self, federation: Federation) -> Noise:
        """The noise that is asked for, else float-safe noise unless the data is generated."""
        return self.noise or ("seeded" if federation.generated else "secure")

    def bounded(self, federation: Federation, dtype: Any = None) -> Federation:
        """The federation with rows and labels clipped, in the precision of `dtype`; the same one if nothing changes.

        Rounding to single precision can lengthen a row, so it comes before the clipping.
        """
        precision = federation.features.dtype if dtype is None else np.dtype(dtype)
        features, targets = (v.astype(precision, copy=False) for v in (federation.features, federation.targets))
        if self.x_norm is not None:
            features = sensitivity.clip_rows(features, self.x_norm)
        if self.label_bound is not None:
            targets = sensitivity.clip_labels(targets, self.label_bound)
        if features is federation.features and targets is federation.targets:
            return federation
        return federation.replace(features=features, targets=targets, generated=federation.generated)

    def constrained(self, objective: Objective) -> Objective:
        """The objective with the constraint that its guarantee rests on."""
        if isinstance(objective, Ridge) and self.w_norm is not None:
            return replace(objective, w_norm=self.w_norm)
        return objective

    def sensitivity(
        self,
        objective: Objective,
        algorithm: Algorithm,
        counts: NDArray[np.int64],
        modulus: NDArray[np.float64],
        tolerance: float,
    ) -> NDArray[np.float64]:
        """Δ_k of what is released, for clients with `counts` records and m_k = `modulus`."""
        if self.guarantee == "none":
            return np.asarray(2.0 * self.nominal_gradient * algorithm.reach(modulus) / counts)

        def unclipped() -> NDArray[np.float64]:
            if isinstance(algorithm, FedAvg):
                return self._fedavg_sensitivity(objective, algorithm, counts, tolerance)
            if not isinstance(algorithm, PGFL | ExactMixing | OneStep):
                raise PrivacyError(
                    f"No sensitivity is derived for {type(algorithm).__name__}; set privacy.update_norm."
                )
            return sensitivity.update_sensitivity(objective, self.bounds, counts, modulus, tolerance)

        if self.update_norm is None:
            return unclipped()
        clipped = np.full(len(counts), 2.0 * self.update_norm)
        if not objective.convex or objective.gradient_change(self.bounds) is None:
            return clipped
        try:
            return np.asarray(np.minimum(clipped, unclipped()))
        except PrivacyError:
            return clipped

    def _fedavg_sensitivity(
        self, objective: Objective, algorithm: FedAvg, counts: NDArray[np.int64], rounding: float
    ) -> NDArray[np.float64]:
        """Steps on a convex smooth loss do not spread apart while step ≤ 2/L, so Δ = steps · step · change/D.

        What rounding may add in either world comes on top.
        """
        change, smoothness = objective.gradient_change(self.bounds), objective.smoothness(self.bounds)
        if change is None or smoothness is None or objective.domain is not None:
            raise PrivacyError(
                f"FedAvg with {objective.kind} has no bounded update; set privacy.update_norm, or use huber."
            )
        if algorithm.step > 2.0 / (smoothness + 2.0 * objective.lam):
            raise PrivacyError(
                f"FedAvg's step {algorithm.step:g} is too long for a bounded sensitivity; use at most "
                f"{2.0 / (smoothness + 2.0 * objective.lam):.3g}, or set privacy.update_norm."
            )
        return np.asarray(algorithm.reach(1.0) * change / counts + 2.0 * rounding, dtype=float)

    def plan(self, deltas: NDArray[np.float64], rounds: int) -> Plan:
        """The account of all clients, given their sensitivities."""
        from pgfl.privacy.mechanism import Plan

        phi0 = self.phi0 if self.phi1 is None else self.phi1 * self.zeta
        if self.guarantee == "none":
            assert phi0 is not None
            return Plan.without_guarantee(
                deltas,
                phi0=phi0,
                zeta=self.zeta,
                rounds=rounds,
                delta=self.delta,
                reason=UNBOUNDED,
                index=self.index,
                max_releases=self.max_releases,
            )
        if self.epsilon is not None:
            return Plan.from_target(
                deltas,
                epsilon=self.epsilon,
                delta=self.delta,
                max_releases=rounds if self.max_releases is None else self.max_releases,
                rounds=rounds,
                zeta=self.zeta,
                index=self.index,
            )
        assert phi0 is not None
        return Plan.from_paper(
            deltas,
            phi0=phi0,
            zeta=self.zeta,
            rounds=rounds,
            delta=self.delta,
            index=self.index,
            max_releases=self.max_releases,
        )
