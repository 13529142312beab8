"""What a user asks of privacy, and the plan that it becomes for given data, objective and algorithm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from pgfl.algorithms.algorithms import Algorithm
from pgfl.arrays import DTypeLike, Floats, Ints
from pgfl.errors import PrivacyError
from pgfl.federation.clipping import LABEL_BOUND, clip_labels, clip_rows, clip_weights
from pgfl.federation.encoding import MAP_OF_RECORDS, toml_key
from pgfl.federation.federation import Federation, TestSet
from pgfl.objectives import Bounds, Objective
from pgfl.privacy import accounting, rules
from pgfl.privacy.budget import Budget, Guarantee, Index
from pgfl.privacy.sensitivity import nominal_sensitivity, release_sensitivity
from pgfl.privacy.trust import Level, Trust
from pgfl.suggestions import friendly_constructor, quoted

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from pgfl.federation.encoding import RowEncoding
    from pgfl.privacy.ledger.rows import Policy
    from pgfl.privacy.mechanism import Plan
    from pgfl.privacy.trust import SharedNoise


Noise = Literal["seeded", "secure"]
ROUNDING = 1e-6  # a row of norm 1 may come out this much longer in single precision
MOST_NAMED = 20
UNBOUNDED = (
    "the sensitivity is only nominal, because the paper's objective has an unbounded gradient (its Assumption 3 fails)"
)


def _columns_have(names: Sequence[str]) -> str:
    """Return the beginning of a sentence about columns."""
    listed = ", ".join(quoted(name) for name in names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")
    return f"Column {listed} has" if len(names) == 1 else f"Columns {listed} have"


@friendly_constructor("Privacy(epsilon=4.0, max_releases=50)")
@dataclass(frozen=True, kw_only=True)
class Privacy:
    """A schedule (`phi0` or `phi1`, `zeta`) or a target (`epsilon`, `delta`, `max_releases`), and data bounds.

    `x_norm`, `y_bound`, `w_norm` and `update_norm` are enforced by the package (see `Bounds`), and so is `weight_cap`,
    to which the weights of records are clipped. `guarantee="none"` is
    for reproducing the paper's unbounded ridge: the noise is calibrated as if the gradient were at most
    `nominal_gradient`, and every result says that nothing is promised. Unless `noise` is given, it is float-safe
    ("secure") on your own data and "seeded" on generated data.

    `trust` says whom clients trust: nobody ("local"), their own server ("site"), or that enough clients of the same
    server and cluster are honest ("masked"). `contributors`, `colluders` and `dropouts` are explained by `Trust`.

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
    weight_cap: float | None = None
    noise: Noise | None = None
    guarantee: Guarantee = "required"
    nominal_gradient: float = 1.0
    trust: Level = Trust.level
    contributors: int = Trust.contributors
    colluders: int = Trust.colluders
    dropouts: float = Trust.dropouts

    def __post_init__(self) -> None:
        asked = asdict(self)
        wrong = [found for key, value in asked.items() if (found := rules.problem(key, value))]
        if wrong or (wrong := [found] if (found := rules.contradiction(asked)) else []):
            raise PrivacyError(wrong[0])

    @property
    def trusted(self) -> Trust:
        """Whom clients trust, with the numbers that belong to it."""
        return Trust(self.trust, self.contributors, self.colluders, self.dropouts)

    @property
    def bounds(self) -> Bounds:
        """The bounds that are enforced."""
        return Bounds(self.x_norm, self.y_bound, self.w_norm, self.update_norm)

    @property
    def label_bound(self) -> float | None:
        """What labels are clipped to, stated or not, where a guarantee is given."""
        return LABEL_BOUND if self.y_bound is None and self.guarantee == "required" else self.y_bound

    def noise_for(self, federation: Federation) -> Noise:
        """The noise that is asked for, else float-safe noise unless the data is generated."""
        return self.noise or ("seeded" if federation.generated else "secure")

    def completed(self, encoding: RowEncoding | None) -> Privacy:
        """With the bounds that follow from the declared columns of a table, unless others are stated.

        Bounds, categories or labels that were read from records are refused, and so is a column without bounds where
        no `x_norm` is stated.
        """
        if encoding is None:
            return self
        if encoding.read_from_records:
            raise PrivacyError(_from_records(encoding))
        if self.guarantee == "required" and (learnt := next((one for one in encoding.maps if not one.public), None)):
            raise PrivacyError(
                f"The map {quoted(learnt.kind)} may have been trained on these records, which privacy does not allow; "
                "state public = true in it if it was not."
            )
        needed = self.guarantee == "required" and self.update_norm is None
        if self.x_norm is None and needed and encoding.unbounded:
            raise PrivacyError(
                f"{_columns_have(encoding.unbounded)} no bounds, so the norm of a row is not bounded; state public "
                f"ones under [data.columns], as in {toml_key(encoding.unbounded[0])} = {{ bounds = [LOW, HIGH] }}, or "
                "state `privacy.x_norm`."
            )
        if self.x_norm is None and needed and encoding.x_norm is None:
            raise PrivacyError(
                f"The map {quoted(encoding.maps[-1].kind)} does not bound the norm of a row; state `privacy.x_norm`, "
                "to which rows are clipped."
            )
        x_norm = encoding.x_norm if self.x_norm is None else self.x_norm
        return replace(self, x_norm=x_norm, y_bound=encoding.target.y_bound if self.y_bound is None else self.y_bound)

    def bounded(self, federation: Federation, dtype: DTypeLike | None = None) -> Federation:
        """The federation with rows and labels clipped, in the precision of `dtype`; the same one if nothing changes.

        Rounding to single precision can lengthen a row, so it comes before the clipping.
        """
        precision = federation.features.dtype if dtype is None else np.dtype(dtype)
        features, targets = (v.astype(precision, copy=False) for v in (federation.features, federation.targets))
        if self.x_norm is not None:
            features = clip_rows(features, self.x_norm)
        if self.label_bound is not None:
            targets = clip_labels(targets, self.label_bound)
        weights = federation.weights
        if weights is not None and self.weight_cap is not None:
            weights = clip_weights(weights.astype(precision, copy=False), self.weight_cap)
        tests = self._bounded_tests(federation.tests)
        changed = {"features": features, "targets": targets, "weights": weights, "tests": tests}
        if all(values is getattr(federation, name) for name, values in changed.items()):
            return federation
        return federation.replace(**changed, generated=federation.generated)

    def _bounded_tests(self, tests: Mapping[str, TestSet] | None) -> Mapping[str, TestSet] | None:
        """Held-out rows, clipped as training rows are; those that only rounding has lengthened are left alone."""
        x_norm = self.x_norm
        if not tests or x_norm is None or all(_longest(test) <= x_norm * (1.0 + ROUNDING) for test in tests.values()):
            return tests
        return {name: replace(test, features=clip_rows(test.features, x_norm)) for name, test in tests.items()}

    def constrained(self, objective: Objective) -> Objective:
        """The objective with the constraint that its guarantee rests on."""
        return objective if self.w_norm is None else objective.constrained(self.w_norm)

    def sensitivity(
        self, objective: Objective, algorithm: Algorithm, counts: Ints, modulus: Floats, tolerance: float
    ) -> Floats:
        """Δ_k of what is released, for clients with `counts` records and m_k = `modulus`."""
        if self.guarantee == "none":
            return nominal_sensitivity(self.nominal_gradient, algorithm, counts, modulus)
        return release_sensitivity(objective, algorithm, self.bounds, counts, modulus, tolerance)

    def budget(self, rounds: int) -> Budget:
        """What every client of a simulation of so many rounds may spend."""
        if self.epsilon is not None:
            return Budget.from_target(
                epsilon=self.epsilon,
                delta=self.delta,
                zeta=self.zeta,
                max_releases=rounds if self.max_releases is None else self.max_releases,
                index=self.index,
                rounds=rounds,
            )
        return Budget.from_schedule(
            phi0=self.phi0,
            phi1=self.phi1,
            zeta=self.zeta,
            delta=self.delta,
            rounds=rounds,
            index=self.index,
            max_releases=self.max_releases,
        )

    def to_dp_event(self, rounds: int) -> DpEvent:
        """Return what one client may release in `rounds` rounds as a `dp_accounting.DpEvent`; see `Budget`.

        Without a guarantee this is a `NonPrivateDpEvent`.
        """
        if self.guarantee == "none":
            return accounting.to_dp_event(np.inf)
        return self.budget(rounds).to_dp_event()

    def plan(self, deltas: Floats, rounds: int, shared: SharedNoise | None = None) -> Plan:
        """The account of all clients, given their sensitivities and, where they share noise, with whom."""
        from pgfl.privacy.mechanism import Plan

        return Plan(deltas, self.budget(rounds), self.guarantee, UNBOUNDED if self.guarantee == "none" else "", shared)

    def policy(self) -> Policy:
        """What a device agrees to, for good. Its index is its own count of releases, whatever round a site claims."""
        from pgfl.privacy.ledger.rows import Policy

        if self.max_releases is None:
            raise PrivacyError("privacy.max_releases is missing; a device needs a budget that ends.")
        if self.weight_cap is not None:
            raise PrivacyError("A device's cap on weights is its training's; state limits.weight_cap in its place.")
        if self.guarantee != "required" or self.update_norm is not None:
            raise PrivacyError(
                "A device guarantees the solution itself; leave privacy.guarantee and privacy.update_norm out."
            )
        by_release = replace(self, index="release").budget(self.max_releases)
        return Policy.of(by_release, {name: getattr(self, name) for name in ("x_norm", "y_bound", "w_norm")})


def _longest(test: TestSet) -> float:
    """The largest norm of a held-out row."""
    return float(np.sqrt(np.einsum("ij,ij->i", test.features, test.features).max(initial=0.0)))


def _from_records(encoding: RowEncoding) -> str:
    column = encoding.read_from_records[0]
    if column == MAP_OF_RECORDS:
        return (
            "The row map was chosen by looking at records, which privacy does not allow; name a map, or let "
            "`pgfl plan` choose one from public facts."
        )
    return (
        f"The bounds, categories or labels of column {quoted(column)} were read from records, which privacy does not "
        "allow; state public ones."
    )
