"""`site.toml` and `client.toml`, validated: a wrong file ends in one sentence that names the key."""

from __future__ import annotations

import difflib
import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import AfterValidator, Field, ValidationError, model_validator

from pgfl.config import AlgorithmSettings, ObjectiveSettings, PrivacySettings
from pgfl.config.building import build_algorithm, build_objective
from pgfl.config.error_messages import one_line, sentence
from pgfl.config.schema import (
    TRAINED_BY_GRADIENT,
    AlgorithmKind,
    Count,
    NotNegative,
    ObjectiveKind,
    Positive,
    Section,
)
from pgfl.core.algorithms import Algorithm
from pgfl.core.assured import LEAST_TOLERANCE, MOST_STEPS
from pgfl.errors import ConfigError, NetworkError
from pgfl.objectives import MarginObjective, Ridge

Name = Annotated[str, Field(min_length=1, max_length=63)]
Port = Annotated[int, Field(ge=1, le=65535)]
AnySection = TypeVar("AnySection", bound=Section)


class Training(Section):
    """What all sites of a network agree on; neighbours compare its hash, clients are told it."""

    rounds: Count
    dimension: Annotated[int, Field(ge=1, le=10_000_000)]
    clusters: Annotated[tuple[Name, ...], Field(min_length=1)]
    mixing: Literal["uniform", "metropolis"] = "uniform"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0  # for the choice of participants
    max_norm: Positive = 1e9  # longer vectors are refused
    most_clients: dict[str, Count] = Field(default_factory=dict)  # pgfl-exact: max over sites of |C_{s,(q)}|
    objective: ObjectiveSettings = Field(default_factory=ObjectiveSettings)
    algorithm: AlgorithmSettings = Field(default_factory=AlgorithmSettings)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(set(self.clusters)) != len(self.clusters):
            raise ValueError("`training.clusters` names a cluster twice.")
        if self.algorithm.kind == "pgfl-exact" and set(self.most_clients) != set(self.clusters):
            raise ValueError(
                "`training.most_clients` must give, for exact mixing, the largest site's clients of every cluster."
            )
        return self

    @property
    def text(self) -> str:
        """One spelling, so that equal configurations are equal text."""
        return self.model_copy(update={"clusters": tuple(sorted(self.clusters))}).model_dump_json()

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

    def build_algorithm(self) -> Algorithm:
        """The algorithm with its parameters."""
        return build_algorithm(self.algorithm, self.mixing)

    def build_objective(self, cluster: str, w_norm: float | None = None) -> MarginObjective:
        """A cluster's objective; `w_norm` is the client's own bound on a ridge solution.

        How accurately it is solved is the client's to say as well, so the tolerance of the training is not used.
        """
        own = self.objective.of(cluster).model_copy(update={"tolerance": LEAST_TOLERANCE})
        objective = build_objective(own)
        return replace(objective, w_norm=w_norm) if isinstance(objective, Ridge) and w_norm else objective

    def differences(self, other: Training) -> list[str]:
        """What another training has otherwise, one line per key."""
        mine, theirs = _flat(self.model_dump(mode="json")), _flat(other.model_dump(mode="json"))
        keys = sorted(key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key))
        return [f"{key}: {mine.get(key)} -> {theirs.get(key)}" for key in keys]

    def described(self, cluster: str) -> str:
        """One line for people."""
        objective, algorithm = self.objective.of(cluster), self.algorithm
        extra = f", kappa {objective.kappa:g}" if objective.kind == "huber" else ""
        how = (
            f"step {algorithm.step:g}, {algorithm.local_steps} local steps"
            if algorithm.kind == TRAINED_BY_GRADIENT
            else f"rho {algorithm.rho:g}"
        )
        return (
            f"{algorithm.kind} ({how}) with {objective.kind} (lam {objective.lam:g}{extra}), {self.rounds} rounds, "
            f"dimension {self.dimension}, cluster {cluster}"
        )


class Listening(Section):
    """Where a site listens, and how others reach it."""

    host: str = "127.0.0.1"
    public: str | None = None  # what clients and neighbours call; host if not given
    flower: Port = 9092
    clients: Port = 9093
    peers: Port = 9094


class TimingSettings(Section):
    """How long a site waits, in seconds, and how old a neighbour's publication may be, in rounds."""

    answers: Positive = 30.0
    exchange: Positive = 15.0
    start: NotNegative = 60.0
    give_up: Positive | None = None
    staleness: Annotated[int, Field(ge=0, le=1000)] = 1


class SiteSettings(Section):
    """`site.toml`."""

    name: Name
    home: str = "."
    listen: Listening = Field(default_factory=Listening)
    timing: TimingSettings = Field(default_factory=TimingSettings)
    training: Training


class SiteAddress(Section):
    """The site of a client: its certificate, handed over by its operator, and its Flower address."""

    certificate: str
    superlink: str


Task = Literal["regression", "classification"]
TASK_OF: dict[str, Task] = {"ridge": "regression", "huber": "regression", "logistic": "classification"}


def _ascending(ends: tuple[float, float]) -> tuple[float, float]:
    if ends[0] > ends[1]:
        raise ValueError(f"A range of `limits` must be [least, most], but {list(ends)} descends.")
    return ends


Range = Annotated[tuple[NotNegative, NotNegative], AfterValidator(_ascending)]


class TrainingLimits(Section):
    """Which trainings the owner takes part in: the site proposes one, and what is outside of these is refused."""

    objectives: tuple[ObjectiveKind, ...] = get_args(ObjectiveKind)
    algorithms: tuple[AlgorithmKind, ...] = get_args(AlgorithmKind)
    rho: Range = (0.01, 1000.0)
    lam: Range = (0.0, 100.0)
    kappa: Range = (0.001, 1000.0)
    step: Range = (1e-6, 10.0)
    local_steps: Count = 100
    rounds: Count = 1_000_000
    dimension: Count = 1_000_000
    solver_steps: Count = MOST_STEPS
    tolerance: Positive | None = None  # of a solution; a millionth of the sensitivity if not given

    def refused(self, training: Training, cluster: str) -> str | None:
        """The first key of a training that is outside, in one sentence; None if it is all within."""
        objective, algorithm = training.objective.of(cluster), training.algorithm
        for key, value, allowed in (
            ("objectives", objective.kind, self.objectives),
            ("algorithms", algorithm.kind, self.algorithms),
        ):
            if value not in allowed:
                return f"The site trains with {value}, but `limits.{key}` allows {', '.join(allowed)}."
        by_gradient = algorithm.kind == TRAINED_BY_GRADIENT
        ranges = {"lam": objective.lam, **({"step": algorithm.step} if by_gradient else {"rho": algorithm.rho})}
        ranges |= {"kappa": objective.kappa} if objective.kind == "huber" else {}
        for key, number in ranges.items():
            least, most = getattr(self, key)
            if not least <= number <= most:
                return f"The site trains with {key} = {number:g}, but `limits.{key}` allows {least:g} to {most:g}."
        counts = {"rounds": training.rounds, "dimension": training.dimension}
        counts |= {"local_steps": algorithm.local_steps} if by_gradient else {}
        for key, count in counts.items():
            if count > getattr(self, key):
                return f"The site trains with {key} = {count}, but `limits.{key}` allows at most {getattr(self, key)}."
        return None


class ClientSettings(Section):
    """`client.toml`. Privacy, task and limits are the owner's alone; nothing that a site sends changes them."""

    name: Name
    home: str = "."
    data: str
    target: str = "y"
    intercept: bool = False
    task: Task = "regression"  # classification: labels 0 and 1; checked when the data is loaded
    site: SiteAddress
    privacy: PrivacySettings
    limits: TrainingLimits = Field(default_factory=TrainingLimits)
    ledger: str = "ledger.db"
    training: str | None = None  # hash of the training configuration, where the owner insists on one
    record_noise: str | None = None  # demonstrations with made-up data only: whoever reads this file undoes the noise

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if not self.privacy.enabled:
            return self
        if self.privacy.guarantee != "required":
            raise ValueError(
                '`privacy.guarantee` must be "required" on a device; noise without a guarantee protects nobody.'
            )
        if self.privacy.x_norm is None:
            raise ValueError(
                "`privacy.x_norm` is missing; it bounds the norm of every row, and rows are clipped to it."
            )
        if self.task == "classification" and self.privacy.y_bound is not None and self.privacy.y_bound < 1.0:
            raise ValueError(
                "`privacy.y_bound` is below 1, so clipping would change the labels 0 and 1 of a classification; raise "
                "it to 1, or leave it out."
            )
        if self.privacy.update_norm is not None:
            raise ValueError(
                "`privacy.update_norm` is for objectives that are not convex; the network trains convex ones."
            )
        if self.privacy.max_releases is None:
            raise ValueError("`privacy.max_releases` is missing; a device needs a budget that ends.")
        return self


def load_site(path: Path) -> SiteSettings:
    """A site's settings; `home` is taken from the file's folder."""
    settings = _load(path, SiteSettings)
    return settings.model_copy(update={"home": str(path.resolve().parent / settings.home)})


def load_client(path: Path) -> ClientSettings:
    """A client's settings; its paths are taken from the file's folder."""
    settings = _load(path, ClientSettings)
    base = path.resolve().parent
    site = settings.site.model_copy(update={"certificate": str(base / settings.site.certificate)})
    changes: dict[str, Any] = {"home": str(base / settings.home), "data": str(base / settings.data), "site": site}
    changes["ledger"] = str(base / settings.ledger)
    if settings.record_noise is not None:
        changes["record_noise"] = str(base / settings.record_noise)
    return settings.model_copy(update=changes)


def _load(path: Path, section: type[AnySection]) -> AnySection:
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML: {one_line(error)}.") from error
    try:
        return section.model_validate(_tuples(table))
    except ValidationError as error:
        raise ConfigError(f"{path}: {_unknown(error, section) or sentence(error)}") from None


def _unknown(error: ValidationError, section: type[Section]) -> str | None:
    for found in error.errors():
        if found["type"] != "extra_forbidden":
            continue
        *where, leaf = (str(part) for part in found["loc"] if not str(part).startswith("<"))
        owner: Any = section
        for part in where:
            field = owner.model_fields.get(part) if hasattr(owner, "model_fields") else None
            owner = field.annotation if field is not None else None
        known = list(getattr(owner, "model_fields", {}))
        near = difflib.get_close_matches(leaf, known, n=1)
        advice = f"did you mean `{'.'.join([*where, near[0]])}`?" if near else f"the keys there are {', '.join(known)}."
        return f"unknown key `{'.'.join([*where, leaf])}`; {advice}"
    return None


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) and value else {f"{prefix}{key}": value}
    return flat


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_tuples(item) for item in value)
    return {key: _tuples(item) for key, item in value.items()} if isinstance(value, Mapping) else value
