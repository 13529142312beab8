"""Every key of a config: its type, its default and its range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    InstanceOf,
    Tag,
    ValidationInfo,
    field_serializer,
    field_validator,
    model_validator,
)

from pgfl.algorithms import schedules as training_defaults
from pgfl.algorithms.algorithms import PGFL, ClientKind, FedAvg
from pgfl.algorithms.schedules import Stop
from pgfl.errors import ConfigError
from pgfl.federation.declarations import Column
from pgfl.federation.graphs import Mixing
from pgfl.objectives import Huber, Ridge
from pgfl.privacy import rules
from pgfl.privacy.budget import Guarantee, Index
from pgfl.privacy.request import Noise, Privacy
from pgfl.privacy.trust import Level
from pgfl.streams import SEED_LIMIT

DEFAULT_DEGREE = 3.0
TRAINED_BY_GRADIENT = "fedavg"

ObjectiveKind = Literal["ridge", "huber", "logistic", "hinge", "softmax"]
AlgorithmKind = Literal["pgfl", "pgfl-exact", "pgfl-onestep", "fedavg"]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
MOST = 2**31 - 1
Count = Annotated[int, Field(ge=1, le=MOST)]
Classes = Annotated[int, Field(ge=2, le=10_000)]
Digit = Annotated[int, Field(ge=0, le=9)]
Digits = Annotated[tuple[Digit, ...], Field(min_length=1)]


def _ascending(ends: tuple[int, int]) -> tuple[int, int]:
    if ends[0] > ends[1]:
        raise ValueError(f"`data.samples` must be [least, most], but {list(ends)} descends.")
    return ends


Ends = Annotated[tuple[Count, Count], AfterValidator(_ascending)]
Metric = Literal[
    "nmsd", "r2", "mae", "rmse", "accuracy", "auc", "log_loss", "objective", "residuals", "disagreement", "distance"
]


class Section(BaseModel):
    """One table of a config: no unknown keys, no silent conversion, immutable."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Generated(Section):
    """What generated federations share: servers, and clients at each."""

    servers: Count = 10
    clients_per_server: Count = 15


class SyntheticData(Generated):
    """Section V-A: related linear models, one per cluster; a client has D_k samples, with D_k in `samples`."""

    kind: Literal["synthetic-regression"] = "synthetic-regression"
    clusters: Count = 3
    dimension: Count = 60
    samples: Ends = (2, 9)
    gamma: NotNegative = 0.15
    per_coordinate: bool = True
    observation_noise: NotNegative = 0.7
    x_norm: Positive | None = None
    test_samples: Annotated[int, Field(ge=0, le=MOST)] = 0


def _tasks_shape(value: object) -> str:
    return "<text>" if isinstance(value, str) else "<list>"


class MnistData(Generated):
    """Section V-B: digits; a task is two classes of digits and makes a cluster; D_k images of every digit of it."""

    kind: Literal["mnist"]
    tasks: Annotated[
        Annotated[Literal["pairs", "triplets"], Tag("<text>")]
        | Annotated[tuple[tuple[Digits, Digits], ...], Field(min_length=1), Tag("<list>")],
        Discriminator(_tasks_shape),
    ] = "pairs"
    samples: Ends | None = None
    source: str | None = None
    intercept: bool = False


def _share(value: float) -> float:
    if not 0.0 < value < 1.0:
        raise ValueError(f"`data.test` must be a share between 0 and 1, or a table; got {value:g}.")
    return value


def _test_shape(value: object) -> str:
    return "<path>" if isinstance(value, str) else "<share>"


def _declared(columns: object) -> object:
    """The declarations of columns, from tables of a config."""
    if not isinstance(columns, Mapping):
        return columns
    try:
        return {name: Column.of(values, f"data.columns.{name}") for name, values in columns.items()}
    except ConfigError as error:
        raise ValueError(str(error)) from None


class TableData(Section):
    """A user's own table, one row per sample; see `Federation.read` for the keys.

    `client`, `server` and `cluster` name columns, `columns` declares them, `test` is a share of the rows or a table.
    """

    kind: Literal["table"]
    table: str
    target: str = "y"
    client: str | None = None
    server: str | None = None
    cluster: str | None = None
    features: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    columns: Annotated[dict[str, InstanceOf[Column]], BeforeValidator(_declared)] = Field(default_factory=dict)
    intercept: bool = False
    test: (
        Annotated[
            Annotated[str, Tag("<path>")] | Annotated[float, AfterValidator(_share), Tag("<share>")],
            Discriminator(_test_shape),
        ]
        | None
    ) = None
    folds: Annotated[int, Field(ge=2, le=MOST)] | None = None

    @field_serializer("columns")
    def _stated_columns(self, columns: dict[str, Column]) -> dict[str, dict[str, object]]:
        return {name: column.stated() for name, column in columns.items()}

    @model_validator(mode="after")
    def _one_way_to_test(self) -> Self:
        if self.test is not None and self.folds is not None:
            raise ValueError("`data.test` and `data.folds` both hold rows out; keep one of them.")
        return self


class GraphSettings(Section):
    """The server graph and the weights of InterServerAggregation."""

    kind: Literal["random", "ring", "line", "star", "complete", "grid", "none", "edges"] = "random"
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


class ClusterObjective(Section):
    """What one cluster does differently; a key left out is that of [objective]."""

    kind: ObjectiveKind | None = None
    lam: NotNegative | None = None
    kappa: Positive | None = None
    classes: Classes | None = None
    tolerance: Positive | None = None


class ObjectiveSettings(Section):
    """The loss, λ of λ/|C_s|·‖w‖², Huber's κ, softmax's classes, and how exactly a primal problem is solved."""

    kind: ObjectiveKind = "ridge"
    lam: NotNegative = Ridge.lam
    kappa: Positive = Huber.kappa
    classes: Classes | None = None
    tolerance: Positive = Ridge.tolerance
    clusters: dict[str, ClusterObjective] = Field(default_factory=dict)

    def of(self, cluster: str) -> ObjectiveSettings:
        """The settings that hold for one cluster."""
        own = self.clusters.get(cluster)
        changes = own.model_dump(exclude_none=True) if own else {}
        return self.model_copy(update=changes | {"clusters": {}})


class Decay(Section):
    """τ⁽ⁿ⁾ = start · decayⁿ, n from 1."""

    start: Annotated[float, Field(ge=0, lt=1)]
    decay: Annotated[float, Field(gt=0, le=1)]


def _tau_shape(value: object) -> str:
    return "<decay>" if isinstance(value, Mapping | Decay) else "<number>"


def _number_or_text(value: object) -> str:
    return "<text>" if isinstance(value, str) else "<number>"


class AlgorithmSettings(Section):
    """Which algorithm, what a client does, ρ, inter-cluster learning τ, and how many clients of a server take part.

    A client solves its primal problem ("admm", as in the paper) or takes one gradient step of length 1/ρ ("gradient");
    the step of a client with fewer than `full_records` records is shorter, in proportion to its records.
    """

    kind: AlgorithmKind = "pgfl"
    client: ClientKind = PGFL.client
    full_records: Count = PGFL.full_records
    rho: Annotated[
        Annotated[Positive, Tag("<number>")] | Annotated[Literal["auto"], Tag("<text>")], Discriminator(_number_or_text)
    ] = PGFL.rho
    tau: Annotated[
        Annotated[float, Field(ge=0, lt=1), Tag("<number>")] | Annotated[Decay, Tag("<decay>")],
        Discriminator(_tau_shape),
    ] = cast("float", PGFL.tau)
    participants: Annotated[
        Annotated[Count, Tag("<number>")] | Annotated[Literal["all"], Tag("<text>")], Discriminator(_number_or_text)
    ] = training_defaults.PARTICIPANTS
    step: Positive = FedAvg.step
    local_steps: Count = FedAvg.local_steps

    @model_validator(mode="after")
    def _one_client_step(self) -> Self:
        if self.kind == TRAINED_BY_GRADIENT and self.client != PGFL.client:
            raise ValueError(
                f'`algorithm.client` = "{self.client}" is for the pgfl algorithms, but fedavg has its own steps '
                f'(`step`, `local_steps`); set client = "{PGFL.client}", the default, or kind = "pgfl".'
            )
        if self.full_records != PGFL.full_records and self.client != "gradient":
            raise ValueError(
                '`algorithm.full_records` is for gradient steps; set client = "gradient" with it, or full_records = 1.'
            )
        return self


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


def _data_shape(value: object) -> str | None:
    kind = value.get("kind", "synthetic-regression") if isinstance(value, Mapping) else getattr(value, "kind", None)
    return f"<{kind}>" if isinstance(kind, str) and f"<{kind}>" in DATA_SECTIONS else None


DATA_SECTIONS: dict[str, type[Section]] = {
    "<synthetic-regression>": SyntheticData,
    "<mnist>": MnistData,
    "<table>": TableData,
}
DATA_KINDS = tuple(tag.strip("<>") for tag in DATA_SECTIONS)


def _stopping(stop: Stop | None, about: ValidationInfo) -> Stop:
    """On a user's own table training stops once it has converged, elsewhere never, unless one is asked for."""
    return stop or ("converged" if isinstance(about.data.get("data"), TableData) else training_defaults.STOP)


def _with_noise(privacy: PrivacySettings, about: ValidationInfo) -> PrivacySettings:
    """Of a user's own table float-safe noise, of generated data seeded noise, unless one is asked for."""
    own = isinstance(about.data.get("data"), TableData)
    return privacy if privacy.noise else privacy.model_copy(update={"noise": "secure" if own else "seeded"})


def _with_rho(algorithm: AlgorithmSettings, about: ValidationInfo) -> AlgorithmSettings:
    """On a user's own table ρ is chosen by itself, unless it is stated."""
    own = isinstance(about.data.get("data"), TableData) and algorithm.kind != TRAINED_BY_GRADIENT
    return (
        algorithm.model_copy(update={"rho": "auto"}) if own and "rho" not in algorithm.model_fields_set else algorithm
    )


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
    metrics: tuple[Metric, ...] = cast("tuple[Metric, ...]", training_defaults.METRICS)
    dtype: Literal["float64", "float32"] = "float64"
    engine: Literal["auto", "numpy", "numba", "jax", "debug", "mpi", "mpi-numba"] = training_defaults.ENGINE
    threads: Count | None = training_defaults.THREADS
    continues: str | None = None
    new_clients: tuple[str, ...] = ()
    moved_records: bool | None = None
    data: Annotated[
        Annotated[SyntheticData, Tag("<synthetic-regression>")]
        | Annotated[MnistData, Tag("<mnist>")]
        | Annotated[TableData, Tag("<table>")],
        Discriminator(_data_shape),
    ] = Field(default_factory=SyntheticData)
    stop: Annotated[Stop | None, AfterValidator(_stopping)] = Field(default=None, validate_default=True)
    graph: GraphSettings = Field(default_factory=GraphSettings)
    objective: ObjectiveSettings = Field(default_factory=ObjectiveSettings)
    algorithm: Annotated[AlgorithmSettings, AfterValidator(_with_rho)] = Field(
        default_factory=AlgorithmSettings, validate_default=True
    )
    privacy: Annotated[PrivacySettings, AfterValidator(_with_noise)] = Field(
        default_factory=PrivacySettings, validate_default=True
    )

    @model_validator(mode="after")
    def _folds_are_runs(self) -> Self:
        folds = self.data.folds if isinstance(self.data, TableData) else None
        if folds is not None and self.runs % folds:
            raise ValueError(f"`runs` = {self.runs} is no multiple of `data.folds` = {folds}; every run is one fold.")
        if folds is not None and self.privacy.enabled:
            raise ValueError(
                "`data.folds` trains on the same records several times, and each time spends the budget; "
                "with privacy hold out a share instead, as in test = 0.2."
            )
        own = isinstance(self.data, TableData) and self.privacy.enabled and self.privacy.noise == "secure"
        if own and self.runs > 1:
            raise ValueError(
                f"`runs` = {self.runs} releases models of the same records {self.runs} times, and each time spends the "
                'budget; set runs = 1, or noise = "seeded" for a simulation that is not shared.'
            )
        return self

    @model_validator(mode="after")
    def _trust_needs_clients_without_duals(self) -> Self:
        trust, algorithm = self.privacy.trust, self.algorithm
        duals = algorithm.kind != TRAINED_BY_GRADIENT and algorithm.client != "gradient"
        if self.privacy.enabled and trust != "local" and duals:
            raise ValueError(
                f'`privacy.trust` = "{trust}" needs clients that keep no dual, because a model that nobody released '
                'would live on in it; set `algorithm.client` = "gradient".'
            )
        return self

    @model_validator(mode="after")
    def _stated_classes(self) -> Self:
        settings = [self.objective, *(self.objective.of(name) for name in self.objective.clusters)]
        if isinstance(self.data, TableData) and self.data.columns.get(self.data.target, Column()).labels:
            return self
        if self.privacy.enabled and any(own.kind == "softmax" and own.classes is None for own in settings):
            raise ValueError(
                "`objective.classes` is missing; under privacy the number of classes is stated, never read from "
                "records."
            )
        return self

    @model_validator(mode="after")
    def _public_declarations(self) -> Self:
        declared = self.data.columns if isinstance(self.data, TableData) and self.privacy.enabled else {}
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
        declared = self.data.columns if isinstance(self.data, TableData) else {}
        if not privacy.enabled or privacy.guarantee == "none" or privacy.update_norm is not None:
            return self
        if privacy.x_norm is None and not declared:
            instead = ", or declare bounds for all columns" if isinstance(self.data, TableData) else ""
            raise ValueError(
                f"`privacy.x_norm` is missing; it bounds the norm of every row, and rows are clipped to it{instead}."
            )
        kinds = {self.objective.kind} | {own.kind for own in self.objective.clusters.values()}
        target = declared.get(getattr(self.data, "target", ""), Column())
        bounded = {"y_bound"} if target.bounds is not None or target.labels is not None else set()
        missing = [key for key in ("y_bound", "w_norm") if getattr(privacy, key) is None and key not in bounded]
        if "ridge" in kinds and missing and self.algorithm.kind != TRAINED_BY_GRADIENT:
            raise ValueError(
                f"`privacy.{missing[0]}` is missing; ridge has a guarantee only with bounded labels (`y_bound`) and "
                "models (`w_norm`), so give both, or use the huber objective."
            )
        return self


PATH_KEYS = (("data", "table"), ("data", "test"), ("data", "source"), ("graph", "edges"))
_OBJECTIVE_KEYS = (("kappa", "huber"), ("classes", "softmax"))
_GRAPH_KEYS = (("average_degree", "random"), ("edges", "edges"))


def idle_keys(config: Config) -> list[tuple[str, str]]:
    """Keys that do nothing, because of the kind of their section."""
    by_gradient = config.algorithm.kind == TRAINED_BY_GRADIENT
    kinds = {config.objective.kind} | {own.kind for own in config.objective.clusters.values()}
    idle = [
        ("algorithm", key)
        for key in (("client", "full_records", "rho", "tau") if by_gradient else ("step", "local_steps"))
    ]
    idle += [("graph", key) for key, kind in _GRAPH_KEYS if config.graph.kind != kind]
    return idle + [("objective", key) for key, kind in _OBJECTIVE_KEYS if kind not in kinds]
