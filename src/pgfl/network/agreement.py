"""What sites and clients agree on: the training, the budget that a client shares, and what it entrusts to its site."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Any, Literal, Self, cast

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, InstanceOf, PlainSerializer, ValidationError, model_validator

from pgfl.algorithms.accuracy import LEAST_TOLERANCE, Terms
from pgfl.algorithms.algorithms import Algorithm
from pgfl.algorithms.schedules import Adaptive
from pgfl.config.schema import AlgorithmSettings, AlgorithmTable, ObjectiveTable, PrivacyKeys, default_objective
from pgfl.config.section import Count, NotNegative, Positive, Section, maps_at
from pgfl.errors import NetworkError, PgflError, PrivacyError
from pgfl.federation.graphs import Mixing
from pgfl.maps import RowMap, to_json
from pgfl.objectives import OBJECTIVES, Bounds, Objective
from pgfl.objectives.weighted import weighted
from pgfl.privacy import accounting, lattice
from pgfl.privacy.ledger.rows import Policy
from pgfl.privacy.sensitivity import release_sensitivity
from pgfl.privacy.trust import NOISE_CAP, Level, Trust

Name = Annotated[str, Field(min_length=1, max_length=63)]
Task = Literal["regression", "classification"]
MOST_ROLLBACKS = 1000  # of one training


def task_of(kind: str) -> Task:
    """The task of an objective that is trained on a network, where labels are two."""
    return cast("Task", OBJECTIVES[kind].task)


class AgreedPrivacy(PrivacyKeys):
    """Where noise is added. Clients that trust no site add their own, whatever a training says."""

    trust: Level = Trust.level
    contributors: int = Trust.contributors
    colluders: int = Trust.colluders
    dropouts: float = Trust.dropouts
    noise_cap: float = NOISE_CAP  # on what a member may state, over the median of its pair

    @property
    def level(self) -> Trust:
        """The level of trust, with the numbers that belong to it."""
        return Trust(self.trust, self.contributors, self.colluders, self.dropouts)


AgreedMaps = Annotated[
    tuple[InstanceOf[RowMap], ...] | None,
    maps_at("training.map"),
    PlainSerializer(lambda maps: None if maps is None else to_json(maps)),  # every constant, for the hash
]


class Training(Section):
    """What all sites of a network agree on; neighbours compare its hash, clients receive it."""

    rounds: Count
    dimension: Annotated[int, Field(ge=1, le=10_000_000)]
    clusters: Annotated[tuple[Name, ...], Field(min_length=1)]
    mixing: Mixing = "uniform"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0  # for the choice of participants
    max_norm: Positive = 1e9  # longer vectors are refused
    most_clients: dict[str, Count] = Field(default_factory=dict)  # max over sites of |C_{s,(q)}|
    objective: ObjectiveTable = Field(default_factory=default_objective)
    algorithm: AlgorithmTable = Field(default_factory=AlgorithmSettings)
    privacy: AgreedPrivacy = Field(default_factory=AgreedPrivacy)
    curvature: Positive | None = None  # the mean curvature of the losses, for tau = "auto"
    map: AgreedMaps = None  # what clients' rows go through; `dimension` counts mapped features
    weight_cap: Positive | None = None  # to which weights of records are clipped; all count alike if not given
    class_weight: dict[Literal["0", "1"], NotNegative] = Field(default_factory=dict)  # how much rows of a label count

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(set(self.clusters)) != len(self.clusters):
            raise ValueError("`training.clusters` names a cluster twice.")
        for key in ("rho", "step_size"):
            if self.algorithm.uses(key) and getattr(self.algorithm, key) == "auto":
                raise ValueError(
                    f'`training.algorithm.{key}` must be a number on a real network; "auto" is for `pgfl run`.'
                )
        if self.algorithm.tau == "auto" and self.curvature is None:
            raise ValueError(
                '`training.curvature` is missing; tau = "auto" needs the mean curvature of the losses, which a network '
                "cannot measure: that of Huber is about x_norm² / (features + 2)."
            )
        if self.algorithm.delays is not None:
            raise ValueError(
                "`training.algorithm.delays` is for `pgfl run`; on a real network clients are late by themselves."
            )
        if self.algorithm.count == "records":
            raise ValueError(
                '`training.algorithm.count` = "records" is for `pgfl run`; on a real network set full_records to the '
                "largest number of records of a client."
            )
        if self.algorithm.full_records > 1 and self.algorithm.has_dual:
            raise ValueError(
                "`training.algorithm.full_records` needs clients without a dual on a real network, where a site does "
                'not know their records; set client = "gradient".'
            )
        wide = [kind for kind in self.objective.kinds if OBJECTIVES[kind].task == "multiclass"]
        if wide:
            raise ValueError(
                "`training.objective.kind` must be one of ridge, huber, logistic, hinge on a real network; "
                f'"{wide[0]}" is for `pgfl run`.'
            )
        if self.class_weight and any(OBJECTIVES[kind].task != "classification" for kind in self.objective.kinds):
            raise ValueError("`training.class_weight` is for labels 0 and 1; leave it out of a regression.")
        counted = self.build_algorithm().server_rule.exact or self.mixing == "clients"
        if counted and set(self.most_clients) != set(self.clusters):
            raise ValueError(
                "`training.most_clients` must give, for exact mixing and for weights by clients, the largest site's "
                "clients of every cluster."
            )
        try:
            self.privacy.level.check(self.build_algorithm())
        except PrivacyError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def text(self) -> str:
        """One spelling, so that equal configurations are equal text.

        A cap that is the default is left out, and so are a map and weights where there are none: trainings that were
        begun before there were any go on.
        """
        sorted_copy = self.model_copy(update={"clusters": tuple(sorted(self.clusters))})
        left_out: dict[str, Any] = {"privacy": {"noise_cap"}} if self.privacy.noise_cap == NOISE_CAP else {}
        left_out["algorithm"] = {"count"}  # "clients" on every network; older trainings do not state it
        unstated = {key: True for key in ("map", "curvature", "weight_cap") if getattr(self, key) is None}
        unstated |= {} if self.class_weight else {"class_weight": True}
        return sorted_copy.model_dump_json(exclude=left_out | unstated)

    @property
    def digest(self) -> str:
        """SHA-256 of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @classmethod
    def parse(cls, text: str) -> Training:
        """From the text that a site sent; whatever is wrong with it is one `NetworkError`."""
        try:
            return cls.model_validate_json(text)
        except (ValidationError, ValueError) as error:
            raise NetworkError("The site sent a training configuration that this pgfl cannot read.") from error

    def position(self, round: int) -> int:
        """The place of a round in the training, from 1 to `rounds`.

        After every rollback round numbers go on behind the next power of ten: of 100 rounds, after the first rollback,
        to round 40, with 1041. So they never repeat, and all sites know from the rollbacks which rounds are left.
        """
        return round % self._numbers

    def rolled_back(self, rollbacks: Sequence[int]) -> tuple[int, int]:
        """The number after which rounds go on, and that of the last one, after these rollbacks."""
        begun = len(rollbacks) * self._numbers
        return begun + (self.position(rollbacks[-1]) if rollbacks else 0), begun + self.rounds

    def has_round(self, round: int) -> bool:
        """Whether a round can have this number."""
        return 0 < self.position(round) <= self.rounds and round // self._numbers <= MOST_ROLLBACKS

    @property
    def _numbers(self) -> int:
        return int(10 ** len(str(self.rounds)))

    def build_algorithm(self) -> Algorithm:
        """The algorithm with its parameters; sites do not know whether clients add noise, so weights allow for it."""
        built = self.algorithm.build(self.mixing)
        if self.curvature is None or not isinstance(built.tau, Adaptive):
            return built
        return replace(built, tau=Adaptive(self.curvature, noised=True))  # type: ignore[type-var]

    def build_objective(self, cluster: str, w_norm: float | None = None) -> Objective:
        """A cluster's objective; `w_norm` is the client's own bound on a ridge solution.

        How accurately it is solved is the client's to say as well, so the tolerance of the training is not used. Of
        records with weights it is the weighted loss, so that all that follows from it (sensitivity, smoothness, what an
        honest client can send) has the largest weight as a factor.
        """
        own = self.objective.of(cluster).model_copy(update={"tolerance": LEAST_TOLERANCE})
        built = own.build()
        objective = built.constrained(w_norm) if w_norm else built
        return objective if self.largest_weight is None else weighted(objective, self.largest_weight)

    @property
    def largest_weight(self) -> float | None:
        """The most that a record may count; None where all count alike."""
        if self.weight_cap is None and self.class_weight:
            return max([1.0, *self.class_weight.values()])
        return self.weight_cap

    def differences(self, other: Training) -> list[str]:
        """The differences of another training, one line per key."""
        mine, theirs = _flat(self.model_dump(mode="json")), _flat(other.model_dump(mode="json"))
        keys = sorted(key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key))
        return [f"{key}: {mine.get(key)} -> {theirs.get(key)}" for key in keys]

    def describe(self, cluster: str) -> str:
        """One line for people."""
        objective, algorithm = self.objective.of(cluster), self.algorithm
        extra = "".join(f", {key} {_short(value)}" for key, value in objective.own_keys.items())
        how = (
            f"rho {algorithm.rho:g}{', one gradient step' if algorithm.client == 'gradient' else ''}"
            if algorithm.uses("rho")
            else f"step {algorithm.step_size:g}, {algorithm.local_steps} local steps"
        )
        weights = "" if self.largest_weight is None else f", weights of records up to {self.largest_weight:g}"
        return (
            f"{algorithm.kind} ({how}) with {objective.kind} (lam {objective.lam:g}{extra}), {self.rounds} rounds, "
            f"dimension {self.dimension}, cluster {cluster}, trust {self.privacy.trust}{weights}"
        )


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) and value else {f"{prefix}{key}": value}
    return flat


_Small = Annotated[float, Field(gt=0.0, lt=1e6, allow_inf_nan=False)]


class SharedBudget(BaseModel):
    """The schedule of a client's releases, and how many it may make."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    phi0: _Small
    zeta: Annotated[float, Field(gt=0.0, le=1.0)]
    delta: Annotated[float, Field(gt=0.0, lt=1.0)]
    max_releases: Annotated[int, Field(ge=1, le=10**9)]

    def epsilon_left(self, releases: int) -> float:
        """ε of all releases less ε of those that were made."""
        return max(0.0, self._epsilon(self.max_releases) - self._epsilon(min(releases, self.max_releases)))

    def _epsilon(self, releases: int) -> float:
        return _epsilon(self.phi0, self.zeta, self.delta, releases)

    def pace(self, rounds: int) -> int:
        """So many of a training's rounds each release is planned for."""
        return max(1, rounds // self.max_releases)


def encode_budget(policy: Policy | None) -> str | None:
    """Return a client's budget as JSON for its site; None without a policy or a last release."""
    if policy is None or policy.max_releases is None:
        return None
    budget = SharedBudget(phi0=policy.phi0, zeta=policy.zeta, delta=policy.delta, max_releases=policy.max_releases)
    return budget.model_dump_json()


def decode_budget(text: str | None) -> SharedBudget | None:
    """Parse a client's budget; None if it was not sent or is invalid."""
    try:
        return None if text is None else SharedBudget.model_validate_json(text)
    except ValidationError:
        return None


@lru_cache(maxsize=4096)
def _epsilon(phi0: float, zeta: float, delta: float, releases: int) -> float:
    if not releases:
        return 0.0
    return float(accounting.exact_epsilon(accounting.rho_total(phi0, zeta, releases), delta))


@dataclass(frozen=True)
class SiteTerms:
    """How many records a client has, its bounds and budget, and the solver tolerance that its owner stated, if any."""

    records: int
    policy: Policy
    tolerance: float | None = None
    used: int = field(default=0, compare=False)  # contributions that the client knows to have been used, and charged

    @property
    def bounds(self) -> Bounds:
        """The bounds that the client's rows, labels and models keep to."""
        return Bounds(**{name: self.policy.bounds.get(name) for name in ("x_norm", "y_bound", "w_norm")})

    @property
    def text(self) -> str:
        """As it is sent."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> SiteTerms:
        """From the text that a client sent; whatever is wrong with it is one `PrivacyError`."""
        try:
            stated: dict[str, Any] = json.loads(text)
            terms = cls(stated["records"], Policy(**stated["policy"]), stated["tolerance"], stated["used"])
            limits = [terms.records, *(bound for bound in terms.policy.bounds.values() if bound is not None)]
            limits += [] if terms.tolerance is None else [terms.tolerance]
            whole = type(terms.records) is int and type(terms.used) is int and terms.used >= 0
            sound = whole and all(np.isfinite(limit) and limit > 0 for limit in limits)
        except (ValueError, KeyError, TypeError, PgflError):
            sound = False
        if not sound:
            raise PrivacyError("The client's terms cannot be read.")
        return terms

    def sensitivity(self, objective: Objective, algorithm: Algorithm, server_clients: int, dimension: int) -> float:
        """How far one record of the client moves what it adds to a sum on the lattice."""
        modulus = float(algorithm.client_rule.modulus(objective.lam, server_clients, self.records))
        reach = float(algorithm.client_rule.reach(modulus))
        tolerance = Terms(self.bounds, self.tolerance).tolerance_for(objective, reach, self.records)
        plain = release_sensitivity(objective, algorithm, self.bounds, [self.records], [modulus], tolerance)
        return float(lattice.widened(plain, dimension)[0])
