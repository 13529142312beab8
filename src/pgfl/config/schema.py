"""Every key of a config: its type, its default and its range."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    SerializeAsAny,
    Tag,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    create_model,
    field_validator,
    model_validator,
)

from pgfl.algorithms import schedules as training_defaults
from pgfl.algorithms.algorithms import ALGORITHMS, CLIENTS, PGFL, RECORDS, Algorithm, Counted, FedAvg
from pgfl.algorithms.client_rules import CLIENT_RULES
from pgfl.algorithms.schedules import ALIASES, ENGINES, Decaying, Delays, Stop
from pgfl.arrays import Ints
from pgfl.config.images_data import ImagesData
from pgfl.config.mnist_data import MnistData
from pgfl.config.section import (
    MOST,
    Count,
    DataSection,
    NotNegative,
    Positive,
    Section,
    declared_keys,
    named_in,
    one_of,
    section_of_kind,
)
from pgfl.config.synthetic_data import SyntheticData
from pgfl.config.table_data import TableData
from pgfl.errors import ConfigError
from pgfl.federation.federation import Federation
from pgfl.federation.graphs import GRAPHS, Graph, Mixing
from pgfl.metrics import MEASURES, OF_MODELS
from pgfl.objectives import OBJECTIVES, BatchedObjective
from pgfl.privacy import rules
from pgfl.privacy.budget import Guarantee, Index
from pgfl.privacy.request import Noise, Privacy
from pgfl.privacy.trust import Level
from pgfl.registry import Registry, config_keys
from pgfl.streams import SEED_LIMIT

DEFAULT_DEGREE = 3.0
TRAINED_BY_GRADIENT = "fedavg"

Metric = Annotated[str, one_of(MEASURES, *OF_MODELS)]
ObjectiveKind = Annotated[str, one_of(OBJECTIVES)]
AlgorithmKind = Annotated[str, one_of(ALGORITHMS)]

DATA = Registry[type[DataSection]](
    "data",
    "kind of data",
    {"synthetic-regression": SyntheticData, "mnist": MnistData, "images": ImagesData, "table": TableData},
)


class GraphSettings(Section):
    """The server graph and the weights of InterServerAggregation."""

    kind: Annotated[str, one_of(GRAPHS, "edges")] = "random"
    average_degree: NotNegative = DEFAULT_DEGREE
    edges: str | None = None
    servers: tuple[str, ...] = ()
    mixing: Mixing = PGFL.mixing

    @model_validator(mode="after")
    def _edge_file(self) -> Self:
        if self.kind == "edges" and self.edges is None:
            raise ValueError(
                '`graph.edges` is missing; with kind = "edges" it names the file of edges (source, target).'
            )
        return self


class ClusterSettings(Section):
    """Which client belongs to which cluster: as the data says, or found from the clients' data."""

    discover: bool = False


class ClusterObjective(Section):
    """What one cluster does differently; a key left out is that of [objective]."""

    kind: ObjectiveKind | None = None
    lam: NotNegative | None = None


class ObjectiveSettings(Section):
    """The loss, λ of λ/|C_s|·‖w‖², the keys that losses declare, and how exactly a primal problem is solved.

    `objective_section` adds the keys; nothing is made of this class itself.
    """

    kind: ObjectiveKind = "ridge"
    lam: NotNegative = BatchedObjective.lam

    if TYPE_CHECKING:
        tolerance: float
        clusters: dict[str, ClusterObjective]

    def of(self, cluster: str) -> Self:
        """The settings that hold for one cluster."""
        own = self.clusters.get(cluster)
        changes = own.model_dump(exclude_none=True) if own else {}
        return self.model_copy(update=changes | {"clusters": {}})

    @property
    def kinds(self) -> list[str]:
        """The losses of all clusters."""
        return list(dict.fromkeys([self.kind, *(own.kind for own in self.clusters.values() if own.kind is not None)]))

    @property
    def own_keys(self) -> dict[str, Any]:
        """The values of the keys that this loss declares."""
        known = BatchedObjective.__dataclass_fields__
        return {name: getattr(self, name) for name in config_keys(OBJECTIVES[self.kind]) if name not in known}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the values: the class is made when a config is read, so no module has it."""
        return _read_objective, (self.model_dump(exclude_unset=True),)

    def build(self) -> BatchedObjective:
        """The objective that the settings name."""
        return OBJECTIVES[self.kind](lam=self.lam, tolerance=self.tolerance, **self.own_keys)


@cache
def objective_section(*kinds: str) -> type[ObjectiveSettings]:
    """[objective] with the keys of the package's own losses and those of other packages' `kinds`."""
    keys: dict[str, Any] = {}
    for kind in (*OBJECTIVES.built_in, *kinds):
        keys |= declared_keys(OBJECTIVES[kind], BatchedObjective.__dataclass_fields__)
    optional: dict[str, Any] = {name: (of_type | None, None) for name, (of_type, _) in keys.items()}
    cluster = create_model("ClusterObjective", __base__=ClusterObjective, **optional, tolerance=(Positive | None, None))
    more: dict[str, Any] = {
        "tolerance": (Positive, BatchedObjective.tolerance),
        "clusters": (dict[str, cluster], Field(default_factory=dict)),  # type: ignore[valid-type]
    }
    return create_model("ObjectiveSettings", __base__=ObjectiveSettings, **keys, **more)


def default_objective() -> ObjectiveSettings:
    """[objective] where nothing is stated."""
    return objective_section().model_validate({})


def _objective_of_kind(values: object, handler: ValidatorFunctionWrapHandler) -> ObjectiveSettings:
    return values if isinstance(values, ObjectiveSettings) else _read_objective(values)


def _read_objective(values: object) -> ObjectiveSettings:
    return objective_section(*named_in(values, OBJECTIVES)).model_validate(values)


ObjectiveTable = Annotated[SerializeAsAny[ObjectiveSettings], WrapValidator(_objective_of_kind)]
"""[objective], whoever declares its keys."""


class Decay(Section):
    """τ⁽ⁿ⁾ = start · decayⁿ, n from 1."""

    start: Annotated[float, Field(ge=0, lt=1)]
    decay: Annotated[float, Field(gt=0, le=1)]


class DelaySettings(Section):
    """A share of every server's clients is slow: their answers count so many rounds after they were asked."""

    clients: Annotated[float, Field(gt=0, le=1)]
    rounds: Count

    def build(self) -> Delays:
        """The delays that the settings describe."""
        return Delays(self.clients, self.rounds)


def _number_or_text(value: object) -> str:
    return "<text>" if isinstance(value, str) else "<number>"


def _tau_shape(value: object) -> str:
    return "<decay>" if isinstance(value, Mapping | Decay) else _number_or_text(value)


class AlgorithmSettings(Section):
    """Which algorithm, what a client does, ρ, inter-cluster learning τ, and how many clients of a server take part.

    A client solves its primal problem ("admm", as in the paper) or takes one gradient step of length 1/ρ ("gradient");
    a client with fewer than `full_records` records counts in proportion to its records. `count` says what counts alike:
    clients, as in the paper, or records.
    """

    kind: AlgorithmKind = "pgfl"
    client: Annotated[str, one_of(CLIENT_RULES)] = cast("str", PGFL.client)
    full_records: Count = PGFL.full_records
    count: Counted = PGFL.count
    rho: Annotated[
        Annotated[Positive, Tag("<number>")] | Annotated[Literal["auto"], Tag("<text>")], Discriminator(_number_or_text)
    ] = PGFL.rho
    tau: Annotated[
        Annotated[float, Field(ge=0, lt=1), Tag("<number>")]
        | Annotated[Decay, Tag("<decay>")]
        | Annotated[Literal["auto"], Tag("<text>")],
        Discriminator(_tau_shape),
    ] = cast("float", PGFL.tau)
    participants: Annotated[
        Annotated[Count, Tag("<number>")] | Annotated[Literal["all"], Tag("<text>")], Discriminator(_number_or_text)
    ] = training_defaults.PARTICIPANTS
    delays: DelaySettings | None = training_defaults.DELAYS
    step_size: Annotated[
        Annotated[Positive, Tag("<number>")] | Annotated[Literal["auto"], Tag("<text>")], Discriminator(_number_or_text)
    ] = FedAvg.step_size
    local_steps: Count = FedAvg.local_steps

    @model_validator(mode="after")
    def _one_client_step(self) -> Self:
        if not self.uses("client") and self.client != PGFL.client:
            own = ", ".join(f"`{key}`" for key in config_keys(ALGORITHMS[self.kind]) if key != "mixing")
            raise ValueError(
                f'`algorithm.client` = "{self.client}" is for the pgfl algorithms, but {self.kind} has its own steps '
                f'({own}); set client = "{PGFL.client}", the default, or kind = "pgfl".'
            )
        if self.full_records != PGFL.full_records and not self.uses("full_records"):
            raise ValueError(f'`algorithm.full_records` is unknown to client = "{self.client}"; leave it out.')
        if self.count != PGFL.count and self.full_records != PGFL.full_records:
            raise ValueError('`algorithm.full_records` follows from count = "records"; leave one of them out.')
        return self

    def uses(self, key: str) -> bool:
        """Whether a key does something with this kind of algorithm."""
        own = config_keys(ALGORITHMS[self.kind])
        return key in own or ("client" in own and key in config_keys(CLIENT_RULES[self.client]))

    @property
    def client_keys(self) -> dict[str, Any]:
        """The values of the keys that a client rule of another package declares."""
        if not self.uses("client"):
            return {}
        return {key: getattr(self, key) for key in config_keys(CLIENT_RULES[self.client]) if key not in CLIENT_KEYS}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the values, as those of [objective]."""
        return _read_algorithm, (self.model_dump(exclude_unset=True),)

    def build(self, mixing: Mixing) -> Algorithm:
        """The algorithm that the settings name, with these weights unless it works with others only."""
        kind = ALGORITHMS[self.kind]
        own = {name: getattr(self, name) for name in config_keys(kind) if name != "mixing"}
        if "mixing" in config_keys(kind):
            own["mixing"] = kind.needs_mixing or mixing
        if isinstance(self.tau, Decay) and "tau" in own:
            own["tau"] = Decaying(self.tau.start, self.tau.decay)
        if self.client_keys:
            rule = CLIENT_RULES[self.client]
            if self.rho == "auto":
                raise ConfigError(f'`algorithm.rho` must be a number with client = "{self.client}".')
            own["client"] = rule(
                **self.client_keys, **{key: own[key] for key in CLIENT_KEYS if key in own and key in config_keys(rule)}
            )
        return kind(**own)

    @property
    def has_dual(self) -> bool:
        """Whether clients keep a dual."""
        chosen = self.model_copy(
            update={"count": CLIENTS, **{key: 1.0 for key in ("rho", "step_size") if getattr(self, key) == "auto"}}
        )
        return chosen.build("uniform").client_rule.has_dual


CLIENT_KEYS = ("rho", "full_records")


@cache
def algorithm_section(kinds: tuple[str, ...], clients: tuple[str, ...]) -> type[AlgorithmSettings]:
    """[algorithm] with the keys of other packages' algorithms and client rules."""
    keys: dict[str, Any] = {}
    for kind in (*(ALGORITHMS[name] for name in kinds), *(CLIENT_RULES[name] for name in clients)):
        keys |= declared_keys(kind, (*AlgorithmSettings.model_fields, "mixing"))
    return create_model("AlgorithmSettings", __base__=AlgorithmSettings, **keys) if keys else AlgorithmSettings


def _algorithm_of_kind(values: object, handler: ValidatorFunctionWrapHandler) -> AlgorithmSettings:
    return values if isinstance(values, AlgorithmSettings) else _read_algorithm(values)


def _read_algorithm(values: object) -> AlgorithmSettings:
    section = algorithm_section(named_in(values, ALGORITHMS), named_in(values, CLIENT_RULES, "client"))
    return section.model_validate(values)


AlgorithmTable = Annotated[SerializeAsAny[AlgorithmSettings], WrapValidator(_algorithm_of_kind)]
"""[algorithm], whoever declares its keys."""


class PrivacyKeys(Section):
    """Keys of privacy, each of which is judged by its name in `rules`."""

    @field_validator("*", mode="before")
    @classmethod
    def _by_the_rules(cls, value: object, about: ValidationInfo) -> object:
        if found := rules.problem(str(about.field_name), value):
            raise ValueError(found)
        return value


class PrivacySettings(PrivacyKeys):
    """Differential privacy: a schedule (phi0 or phi1, zeta) or a target (epsilon, delta), and data bounds.

    Where a schedule or a target is stated, it is on unless `enabled` is false. What may be asked is in `rules`.
    """

    enabled: bool = False
    phi0: float | None = Privacy.phi0
    phi1: float | None = Privacy.phi1
    zeta: float = Privacy.zeta
    epsilon: float | None = Privacy.epsilon
    delta: float = Privacy.delta
    max_releases: int | None = Privacy.max_releases
    index: Index = Privacy.index
    x_norm: float | None = Privacy.x_norm
    y_bound: float | None = Privacy.y_bound
    w_norm: float | None = Privacy.w_norm
    update_norm: float | None = Privacy.update_norm
    weight_cap: float | None = Privacy.weight_cap
    noise: Noise | None = Privacy.noise
    guarantee: Guarantee = Privacy.guarantee
    nominal_gradient: float = Privacy.nominal_gradient
    trust: Level = Privacy.trust
    contributors: int = Privacy.contributors
    colluders: int = Privacy.colluders
    dropouts: float = Privacy.dropouts

    @model_validator(mode="before")
    @classmethod
    def _on_where_a_level_is_stated(cls, values: object) -> object:
        if isinstance(values, Mapping) and any(values.get(key) is not None for key in rules.LEVELS):
            return {"enabled": True, **values}
        return values

    @model_validator(mode="after")
    def _one_schedule(self) -> Self:
        if self.enabled and (found := rules.contradiction(dict(self))):
            raise ValueError(found)
        return self

    def request(self) -> Privacy:
        """The same as a request for privacy; only where it is on."""
        return Privacy(**self.model_dump(exclude={"enabled"}))


def _data_of_kind(values: object, handler: ValidatorFunctionWrapHandler) -> DataSection:
    return section_of_kind(values, DATA, "synthetic-regression")


def _own_records(about: ValidationInfo) -> bool:
    return isinstance(data := about.data.get("data"), DataSection) and data.own_records


def _stopping(stop: Stop | None, about: ValidationInfo) -> Stop:
    """On a user's own table training stops once it has converged, elsewhere never, unless one is asked for."""
    return stop or ("converged" if _own_records(about) else training_defaults.STOP)


def _with_noise(privacy: PrivacySettings, about: ValidationInfo) -> PrivacySettings:
    """Of a user's own table float-safe noise, of generated data seeded noise, unless one is asked for."""
    noise = "secure" if _own_records(about) else "seeded"
    return privacy if privacy.noise else privacy.model_copy(update={"noise": noise})


def _with_rho(algorithm: AlgorithmSettings, about: ValidationInfo) -> AlgorithmSettings:
    """On a user's own table ρ is chosen by itself and all records count alike, unless something else is stated."""
    own, stated = _own_records(about), algorithm.model_fields_set
    if own and algorithm.uses("rho") and "rho" not in stated:
        algorithm = algorithm.model_copy(update={"rho": "auto"})
    if own and algorithm.uses("count") and not {"count", "full_records"} & stated:
        algorithm = algorithm.model_copy(update={"count": RECORDS})
    return algorithm


class Config(Section):
    """A whole experiment.

    >>> from pgfl.config import parse
    >>> config = parse({"rounds": 50, "algorithm": {"rho": 3.0, "tau": {"start": 0.4, "decay": 0.98}}})
    >>> config.rounds, config.algorithm.tau.decay, config.data.dimension
    (50, 0.98, 60)
    >>> parse({"algorithm": {"roh": 3.0}})
    Traceback (most recent call last):
    pgfl.errors.ConfigError: Unknown key `algorithm.roh`; did you mean `algorithm.rho`?
    """

    name: Annotated[str, Field(min_length=1, pattern=r"^[^/\\\x00-\x1f]+$")] = "run"
    rounds: Count = training_defaults.ROUNDS
    seed: Annotated[int, Field(ge=0, lt=SEED_LIMIT)] = training_defaults.SEED
    runs: Count = training_defaults.RUNS
    record_every: Count = training_defaults.RECORD_EVERY
    checkpoint_every: Annotated[int, Field(ge=0, le=MOST)] = 100
    metrics: tuple[Metric, ...] = training_defaults.METRICS
    dtype: Literal["float64", "float32"] = "float64"
    engine: Annotated[str, one_of(ENGINES, "auto", *ALIASES)] = training_defaults.ENGINE
    threads: Count | None = training_defaults.THREADS
    continues: str | None = None
    new_clients: tuple[str, ...] = ()
    moved_records: bool | None = None
    data: Annotated[SerializeAsAny[DataSection], WrapValidator(_data_of_kind)] = Field(default_factory=SyntheticData)
    stop: Annotated[Stop | None, AfterValidator(_stopping)] = Field(default=None, validate_default=True)
    graph: GraphSettings = Field(default_factory=GraphSettings)
    clusters: ClusterSettings = Field(default_factory=ClusterSettings)
    objective: ObjectiveTable = Field(default_factory=default_objective)
    algorithm: Annotated[AlgorithmTable, AfterValidator(_with_rho)] = Field(
        default_factory=AlgorithmSettings, validate_default=True
    )
    privacy: Annotated[PrivacySettings, AfterValidator(_with_noise)] = Field(
        default_factory=PrivacySettings, validate_default=True
    )

    def federations(self) -> Callable[[int, Sequence[int] | None], Federation]:
        """The federation of every run, or its part at some servers, as a function of both."""
        return self.data.federations(self)

    def shapes(self) -> Callable[[int], tuple[Graph, Ints]]:
        """By run, the server graph and how much data each server has (rows, or clients), without the data."""
        return self.data.shapes(self)

    @model_validator(mode="after")
    def _folds_are_runs(self) -> Self:
        folds = self.data.cross_validation
        if folds is not None and self.runs % folds:
            raise ValueError(f"`runs` = {self.runs} is no multiple of `data.folds` = {folds}; every run is one fold.")
        if folds is not None and self.privacy.enabled:
            raise ValueError(
                "`data.folds` trains on the same records several times, and each time spends the budget; "
                "with privacy hold out a share instead, as in test = 0.2."
            )
        own = self.data.own_records and self.privacy.enabled and self.privacy.noise == "secure"
        if own and self.runs > 1:
            raise ValueError(
                f"`runs` = {self.runs} releases models of the same records {self.runs} times, and each time spends the "
                'budget; set runs = 1, or noise = "seeded" for a simulation that is not shared.'
            )
        return self

    @model_validator(mode="after")
    def _trust_needs_clients_without_duals(self) -> Self:
        trust = self.privacy.trust
        if self.privacy.enabled and trust != "local" and self.algorithm.has_dual:
            raise ValueError(
                f'`privacy.trust` = "{trust}" needs clients that keep no dual, because a model that nobody released '
                'would live on in it; set `algorithm.client` = "gradient".'
            )
        return self

    @model_validator(mode="after")
    def _stated_classes(self) -> Self:
        settings = [self.objective, *(self.objective.of(name) for name in self.objective.clusters)]
        if not self.privacy.enabled or self.data.declared_target.labels:
            return self
        if any(own.build().lacks_labels for own in settings):
            raise ValueError(
                "`objective.classes` is missing; under privacy the number of classes is stated, never read from "
                "records."
            )
        return self

    @model_validator(mode="after")
    def _costs_of_two_labels(self) -> Self:
        if self.data.label_costs and any(OBJECTIVES[kind].task != "classification" for kind in self.objective.kinds):
            raise ValueError(
                "`data.costs` are those of a miss and of a false alarm, of two labels; leave it out, or use the "
                "logistic or the hinge objective."
            )
        return self

    @model_validator(mode="after")
    def _public_declarations(self) -> Self:
        declared = self.data.declared if self.privacy.enabled else {}
        for name, column in declared.items():
            if column.from_data:
                raise ValueError(
                    f'`data.columns.{name}.{column.from_data}` = "data" would be read from records, which privacy does '
                    f"not allow; state public {column.from_data}."
                )
        return self

    @model_validator(mode="after")
    def _bounds_of_the_guarantee(self) -> Self:
        privacy = self.privacy
        if not privacy.enabled or privacy.guarantee == "none" or privacy.update_norm is not None:
            return self
        if privacy.x_norm is None and not self.data.bounds_rows:
            instead = ", or declare bounds for all columns" if self.data.own_records else ""
            raise ValueError(
                f"`privacy.x_norm` is missing; it bounds the norm of every row, and rows are clipped to it{instead}."
            )
        target = self.data.declared_target
        bounded = {"y_bound"} if target.bounds is not None or target.labels is not None else set()
        for kind in self.objective.kinds if self.algorithm.uses("rho") else ():
            needed = OBJECTIVES[kind].needs_bounds
            missing = [key for key in needed if getattr(privacy, key) is None and key not in bounded]
            if missing:
                raise ValueError(
                    f"`privacy.{missing[0]}` is missing; {kind} has a guarantee only with "
                    f"{' and '.join(f'{_BOUNDED[key]} (`{key}`)' for key in needed)}, so give "
                    f"{'both' if len(needed) == 2 else 'it'}, or use the huber objective."
                )
        return self


PATH_KEYS = (("data", "table"), ("data", "test"), ("data", "source"), ("data", "groups"), ("graph", "edges"))
_BOUNDED = {"x_norm": "bounded rows", "y_bound": "bounded labels", "w_norm": "models"}


def idle_keys(config: Config) -> list[tuple[str, str]]:
    """Keys that do nothing, because of the kind of their section."""
    graph, algorithm, objective = config.graph.kind, config.algorithm, config.objective
    steps = [key for key in type(algorithm).model_fields if key not in ("kind", "participants", "delays")]
    idle = [("algorithm", key) for key in steps if not algorithm.uses(key)]
    if graph in (*GRAPHS.built_in, "edges") and graph != "random":
        idle.append(("graph", "average_degree"))
    if graph != "edges":
        idle.append(("graph", "edges"))
    common = ("kind", "clusters", *BatchedObjective.__dataclass_fields__)
    used = {key for kind in objective.kinds for key in config_keys(OBJECTIVES[kind])}
    own = [key for key in type(objective).model_fields if key not in common]
    return idle + [("objective", key) for key in own if key not in used]
