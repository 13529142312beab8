"""The experiment as validated TOML: every key, its type, its default and its range.

A wrong config ends in one sentence that names the key: unknown keys suggest the nearest known one.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator

from pgfl.errors import ConfigError
from pgfl.streams import SEED_LIMIT

DEFAULT_PRESET = "private-huber"
DEFAULT_DEGREE = 3.0
TRAINED_BY_GRADIENT = "fedavg"

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Digit = Annotated[int, Field(ge=0, le=9)]
Digits = Annotated[tuple[Digit, ...], Field(min_length=1)]
Metric = Literal["nmsd", "accuracy", "objective", "residuals", "disagreement", "distance"]


class Section(BaseModel):
    """One table of a config: no unknown keys, no silent conversion, immutable."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Generated(Section):
    """What generated federations share: servers of equal size and clients with D_k samples, D_k in `samples`."""

    servers: Count = 10
    clients_per_server: Count = 15
    samples: tuple[Count, Count] = (2, 9)

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if self.samples[0] > self.samples[1]:
            raise ValueError(f"`data.samples` must be [least, most], but {list(self.samples)} descends.")
        return self


class SyntheticData(Generated):
    """Section V-A: related linear models, one a cluster."""

    kind: Literal["synthetic-regression"] = "synthetic-regression"
    clusters: Count = 3
    dimension: Count = 60
    gamma: NotNegative = 0.15
    per_coordinate: bool = True
    observation_noise: NotNegative = 0.7
    x_norm: Positive | None = None


class MnistData(Generated):
    """Section V-B: digits; a task is two classes of digits and makes a cluster."""

    kind: Literal["mnist"]
    tasks: Annotated[tuple[tuple[Digits, Digits], ...], Field(min_length=1)] = (
        ((1,), (8,)),
        ((1,), (9,)),
        ((7,), (8,)),
    )
    samples: tuple[Count, Count] = (2, 4)
    source: str | None = None
    intercept: bool = False

    @model_validator(mode="after")
    def _disjoint(self) -> Self:
        for first, second in self.tasks:
            if shared := set(first) & set(second):
                raise ValueError(f"`data.tasks` has digit {min(shared)} in both classes of one task; keep it in one.")
        return self


class TableData(Section):
    """A user's own table: client, server, cluster, the target, then feature columns; a row is a sample."""

    kind: Literal["table"]
    clients: str
    target: str = "y"
    intercept: bool = False
    test: str | None = None


class GraphSettings(Section):
    """The server graph and the weights of InterServerAggregation."""

    kind: Literal["random", "ring", "line", "star", "complete", "grid", "none", "edges"] = "random"
    average_degree: NotNegative = DEFAULT_DEGREE
    edges: str | None = None
    servers: tuple[str, ...] = ()
    mixing: Literal["uniform", "metropolis"] = "uniform"

    @model_validator(mode="after")
    def _edge_file(self) -> Self:
        if self.kind == "edges" and self.edges is None:
            raise ValueError(
                '`graph.edges` is missing; with kind = "edges" it names the file of edges (source, target).'
            )
        return self


class ClusterObjective(Section):
    """What one cluster does differently; a key left out is that of [objective]."""

    kind: Literal["ridge", "huber", "logistic"] | None = None
    lam: NotNegative | None = None
    kappa: Positive | None = None
    tolerance: Positive | None = None


class ObjectiveSettings(Section):
    """The loss, λ of λ/|C_s|·‖w‖², Huber's κ, and how exactly a primal problem is solved."""

    kind: Literal["ridge", "huber", "logistic"] = "ridge"
    lam: NotNegative = 0.01
    kappa: Positive = 1.0
    tolerance: Positive = 1e-10
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


def _participants_shape(value: object) -> str:
    return "<text>" if isinstance(value, str) else "<number>"


class AlgorithmSettings(Section):
    """Which algorithm, the ADMM penalty ρ, inter-cluster learning τ, and how many clients of a server take part."""

    kind: Literal["pgfl", "pgfl-exact", "pgfl-onestep", "fedavg"] = "pgfl"
    rho: Positive = 5.0
    tau: Annotated[
        Annotated[float, Field(ge=0, lt=1), Tag("<number>")] | Annotated[Decay, Tag("<decay>")],
        Discriminator(_tau_shape),
    ] = 0.0
    participants: Annotated[
        Annotated[Count, Tag("<number>")] | Annotated[Literal["all"], Tag("<text>")], Discriminator(_participants_shape)
    ] = "all"
    step: Positive = 0.005
    local_steps: Count = 5


class PrivacySettings(Section):
    """Local differential privacy: a schedule (phi0 or phi1, zeta) or a target (epsilon, delta), and the data's bounds."""

    enabled: bool = False
    phi0: Positive | None = None
    phi1: Positive | None = None
    zeta: Annotated[float, Field(gt=0, le=1)] = 0.99
    epsilon: Positive | None = None
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    max_releases: Count | None = None
    index: Literal["round", "release"] = "round"
    x_norm: Positive | None = None
    y_bound: Positive | None = None
    w_norm: Positive | None = None
    update_norm: Positive | None = None
    noise: Literal["seeded", "secure"] = "seeded"
    guarantee: Literal["required", "none"] = "required"

    @model_validator(mode="after")
    def _one_schedule(self) -> Self:
        if not self.enabled:
            return self
        given = [key for key in ("phi0", "phi1", "epsilon") if getattr(self, key) is not None]
        if not given:
            raise ValueError(
                "Privacy is on without a noise level; give `privacy.phi0` (or `phi1`) and `zeta`, "
                "or a target `privacy.epsilon`."
            )
        if len(given) > 1:
            raise ValueError(
                f"`privacy.{given[0]}` and `privacy.{given[1]}` both set the noise level; keep one of them."
            )
        if self.epsilon is not None and self.guarantee == "none":
            raise ValueError(
                '`privacy.epsilon` is a promise that guarantee = "none" does not keep; give `phi0` instead.'
            )
        return self


def _data_shape(value: object) -> str | None:
    kind = value.get("kind", "synthetic-regression") if isinstance(value, Mapping) else getattr(value, "kind", None)
    return f"<{kind}>" if isinstance(kind, str) and f"<{kind}>" in _DATA_SECTIONS else None


_DATA_SECTIONS: dict[str, type[Section]] = {
    "<synthetic-regression>": SyntheticData,
    "<mnist>": MnistData,
    "<table>": TableData,
}
DATA_KINDS = tuple(tag.strip("<>") for tag in _DATA_SECTIONS)


class Config(Section):
    """A whole experiment.

    >>> config = parse({"rounds": 50, "algorithm": {"rho": 3.0, "tau": {"start": 0.4, "decay": 0.98}}})
    >>> config.rounds, config.algorithm.tau.decay, config.data.dimension
    (50, 0.98, 60)
    >>> parse({"algorithm": {"roh": 3.0}})
    Traceback (most recent call last):
    pgfl.errors.ConfigError: Unknown key `algorithm.roh`; did you mean `algorithm.rho`?
    """

    name: Annotated[str, Field(min_length=1, pattern=r"^[^/\\\x00-\x1f]+$")] = "run"
    rounds: Count = 300
    seed: Annotated[int, Field(ge=0, lt=SEED_LIMIT)] = 0
    runs: Count = 1
    record_every: Count = 1
    checkpoint_every: Annotated[int, Field(ge=0, le=2**31 - 1)] = 100
    metrics: tuple[Metric, ...] = ("nmsd", "accuracy", "objective", "residuals", "disagreement")
    dtype: Literal["float64", "float32"] = "float64"
    engine: Literal["numpy", "jax", "mpi"] = "numpy"
    threads: Count | None = None
    data: Annotated[
        Annotated[SyntheticData, Tag("<synthetic-regression>")]
        | Annotated[MnistData, Tag("<mnist>")]
        | Annotated[TableData, Tag("<table>")],
        Discriminator(_data_shape),
    ] = Field(default_factory=SyntheticData)
    graph: GraphSettings = Field(default_factory=GraphSettings)
    objective: ObjectiveSettings = Field(default_factory=ObjectiveSettings)
    algorithm: AlgorithmSettings = Field(default_factory=AlgorithmSettings)
    privacy: PrivacySettings = Field(default_factory=PrivacySettings)

    @model_validator(mode="after")
    def _bounds_of_the_guarantee(self) -> Self:
        privacy = self.privacy
        if not privacy.enabled or privacy.guarantee == "none" or privacy.update_norm is not None:
            return self
        if privacy.x_norm is None:
            raise ValueError(
                "`privacy.x_norm` is missing; it bounds the norm of every row, and rows are clipped to it."
            )
        kinds = {self.objective.kind} | {own.kind for own in self.objective.clusters.values()}
        missing = [key for key in ("y_bound", "w_norm") if getattr(privacy, key) is None]
        if "ridge" in kinds and missing and self.algorithm.kind != TRAINED_BY_GRADIENT:
            raise ValueError(
                f"`privacy.{missing[0]}` is missing; ridge regression has a guarantee only with bounded labels (`y_bound`) "
                "and models (`w_norm`), so give both, or use the huber objective."
            )
        return self


# ---------------------------------------------------------------------------------------------------------------- load


def load(source: str | os.PathLike[str], overrides: Sequence[str] = (), seed: int | None = None) -> Config:
    """The config of a TOML file or a preset, with `key=value` overrides; relative paths are relative to the file.

    >>> load("paper-fig2", ["rounds=20", "graph.kind=ring"], seed=7).algorithm.participants
    3
    """
    text, base, name = _read(source)
    try:
        settings = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name} is not valid TOML: {_one_line(error)}.") from None
    settings.setdefault("name", _folder_name(Path(name).stem))
    for override in overrides:
        _override(settings, override)
    if seed is not None:
        settings["seed"] = seed
    return parse(settings, base)


def parse(settings: Mapping[str, Any], base: Path | None = None) -> Config:
    """A config from plain dictionaries; relative paths are taken from `base` where it is given."""
    filled = _fill({key: _tuples(value) for key, value in settings.items()})
    try:
        config = Config.model_validate(filled)
    except ValidationError as error:
        raise ConfigError(_sentence(error)) from None
    return config if base is None else _with_absolute_paths(config, base)


def presets() -> dict[str, str]:
    """The settings that come along: name and one-line description, sorted by name.

    >>> "private-huber" in presets()
    True
    """
    files = sorted((file for file in _preset_folder().iterdir() if file.name.endswith(".toml")), key=lambda f: f.name)
    return {file.name.removesuffix(".toml"): file.read_text("utf-8").splitlines()[0].lstrip("# ") for file in files}


def _preset_folder() -> Any:
    return resources.files("pgfl") / "presets"


def _read(source: str | os.PathLike[str]) -> tuple[str, Path, str]:
    """The text, the folder its relative paths start from, and how messages call it."""
    spelling = os.fspath(source)
    if "\x00" in spelling:
        raise ConfigError("The name of the config holds a NUL character; give a file or a preset.")
    path = Path(os.path.expanduser(spelling))
    if isinstance(source, str) and source in presets():
        return (_preset_folder() / f"{source}.toml").read_text("utf-8"), Path.cwd(), source
    if isinstance(source, str) and path.suffix == "" and path.name == spelling and not path.exists():
        raise ConfigError(f"There is no preset or file {source!r}{_nearest(source, presets())}; see `pgfl presets`.")
    try:
        return path.read_bytes().decode("utf-8"), path.resolve().parent, str(path)
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file in UTF-8; a config is TOML.") from None
    except FileNotFoundError:
        raise ConfigError(f"The config {path} does not exist; give a TOML file or one of `pgfl presets`.") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder; give the TOML file in it.") from None
    except OSError as error:
        raise ConfigError(f"The config {path} cannot be read: {error.strerror}.") from None


def _override(settings: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    path = _key_path(key.strip())
    if not equals or not path:
        raise ConfigError(f"--set takes key=value, as in --set algorithm.rho=3; got {override!r}.")
    table = settings
    for part in path[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ConfigError(f"--set {key.strip()}: `{part}` is a value here, not a table.")
    table[path[-1]] = _toml_value(value.strip())


def _key_path(key: str) -> list[str]:
    try:
        table: Any = tomllib.loads(f"{key} = 0") if "\n" not in key else {}
    except (ValueError, RecursionError):
        return [] if "" in key.split(".") else key.split(".")
    path = []
    while isinstance(table, dict) and len(table) == 1:
        path.append(next(iter(table)))
        table = table[path[-1]]
    return path if table == 0 else []


def _toml_value(text: str) -> Any:
    """A TOML value; what is none is text, so that quotes may be left out."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return parsed["value"] if set(parsed) == {"value"} else text


def _tuples(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_tuples(item) for item in value)
    return {key: _tuples(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def _fill(settings: dict[str, Any]) -> dict[str, Any]:
    """Defaults that depend on other keys."""
    data, graph = settings.get("data", {}), settings.get("graph", {})
    if not isinstance(data, dict) or not isinstance(graph, dict):
        return settings
    if "kind" not in graph:
        kind = "edges" if "edges" in graph else "none" if data.get("kind") == "table" else "random"
        graph = {"kind": kind} | graph
    servers = data.get("servers", Generated.model_fields["servers"].default)
    if graph["kind"] == "random" and data.get("kind") != "table" and type(servers) is int and servers >= 1:
        nearest = min(max(DEFAULT_DEGREE, 2 * (servers - 1) / servers), servers - 1.0)
        graph = {"average_degree": nearest} | graph
    settings = settings | {"graph": graph}
    privacy = settings.get("privacy")
    if isinstance(privacy, dict) and privacy.get("enabled") is True and "epsilon" in privacy:
        privacy = {"max_releases": settings.get("rounds", Config.model_fields["rounds"].default)} | privacy
        settings["privacy"] = privacy
    return settings


PATH_KEYS = (("data", "clients"), ("data", "test"), ("data", "source"), ("graph", "edges"))


def _with_absolute_paths(config: Config, base: Path) -> Config:
    sections: dict[str, Section] = {}
    for section, key in PATH_KEYS:
        current = sections.get(section, getattr(config, section))
        value = getattr(current, key, None)
        if value is not None and "\x00" in value:
            raise ConfigError(f"`{section}.{key}` holds a NUL character; give the path of a file.")
        if value is not None:
            sections[section] = current.model_copy(update={key: str(base / os.path.expanduser(value))})
    return config.model_copy(update=sections)


# ------------------------------------------------------------------------------------------------------------ sentences

_WANTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "tuple": "a list",
    "dict": "a table",
    "model": "a table",
}
_LIMITS = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
}


def _sentence(error: ValidationError) -> str:
    """The most telling of pydantic's errors as one sentence; an unknown key comes first, it explains a missing one."""
    first = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
    key = ".".join(str(part) for part in first["loc"] if not str(part).startswith("<"))
    kind, given = first["type"], _shown(first["input"])
    context = first.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown(key, [str(part) for part in first["loc"]])
    if kind == "missing" and isinstance(first["loc"][-1], int):
        return f"`{key.rpartition('.')[0]}` is too short a list."
    if kind == "missing":
        return f"`{key}` is missing; it has no default."
    if kind == "value_error":
        return str(context["error"])
    if kind.startswith("union_tag"):
        wrong = first["input"].get("kind") if isinstance(first["input"], Mapping) else None
        if wrong is None:
            return f"`{key}` must be a table; got {given}."
        return f"`{key}.kind` must be one of {', '.join(DATA_KINDS)}; got {_shown(wrong)}{_nearest(wrong, DATA_KINDS)}."
    if kind == "literal_error":
        options = re.findall(r"'([^']*)'", str(context["expected"]))
        if len(options) == 1:
            return f'`{key}` must be a whole number or "{options[0]}"; got {given}.'
        return f"`{key}` must be one of {', '.join(options)}; got {given}{_nearest(first['input'], options)}."
    if kind in _LIMITS:
        limit, words = _LIMITS[kind]
        return f"`{key}` must be {words} {context[limit]}; got {given}."
    if kind == "too_long":
        return f"`{key}` must be a list of {context['max_length']}; got {given}."
    if kind == "finite_number":
        return f"`{key}` must be a finite number; got {given}."
    if wanted := _WANTED.get(kind.split("_")[0]):
        return f"`{key}` must be {wanted}; got {given}."
    return f"`{key}` is wrong: {_one_line(first['msg'])}; got {given}."


def _unknown(key: str, location: list[str]) -> str:
    section, _, leaf = key.rpartition(".")
    known = dict(_known_keys())
    siblings = [name for name in known if name.rpartition(".")[0] == _generic(section, location)]
    if "data" in location[:1]:
        siblings = [f"data.{name}" for name in _DATA_SECTIONS[location[1]].model_fields]
        if key in known and key not in siblings:
            owner = next(tag for tag, section in _DATA_SECTIONS.items() if leaf in section.model_fields).strip("<>")
            return f"`{key}` belongs to data of kind {owner}, but `data.kind` is {location[1].strip('<>')}."
    own = difflib.get_close_matches(leaf, [name.rpartition(".")[2] for name in siblings], n=1, cutoff=0.6)
    elsewhere = [name for name in known if name.rpartition(".")[2] == leaf and "NAME" not in name]
    if own:
        return f"Unknown key `{key}`; did you mean `{section + '.' if section else ''}{own[0]}`?"
    if elsewhere:
        return f"Unknown key `{key}`; did you mean `{elsewhere[0]}`?"
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    if near:
        return f"Unknown key `{key}`; did you mean `{near[0]}`?"
    choices = ", ".join(name.rpartition(".")[2] for name in siblings)
    return f"Unknown key `{key}`; the keys {f'of [{section}]' if section else 'at the top'} are {choices}."


def _generic(section: str, location: list[str]) -> str:
    return "objective.clusters.NAME" if location[:2] == ["objective", "clusters"] else section


def _known_keys() -> Iterator[tuple[str, type]]:
    sections: list[tuple[str, type[Section]]] = [
        ("", Config),
        *(("data.", section) for section in _DATA_SECTIONS.values()),
        ("graph.", GraphSettings),
        ("objective.", ObjectiveSettings),
        ("objective.clusters.NAME.", ClusterObjective),
        ("algorithm.", AlgorithmSettings),
        ("algorithm.tau.", Decay),
        ("privacy.", PrivacySettings),
    ]
    for prefix, section in sections:
        yield from ((prefix + name, section) for name in section.model_fields)


def _nearest(given: object, known: Mapping[str, str] | Sequence[str]) -> str:
    near = difflib.get_close_matches(given, list(known), n=1, cutoff=0.6) if isinstance(given, str) else []
    return f" (did you mean {near[0]}?)" if near else ""


def _shown(value: object) -> str:
    text = {True: "true", False: "false"}.get(value, "") if isinstance(value, bool) else ""
    text = text or (
        "the text " + repr(value) if isinstance(value, str) else "a table" if isinstance(value, Mapping) else ""
    )
    if not text and isinstance(value, tuple):
        text = "a list of " + str(len(value))
    try:
        text = text or repr(value)
    except ValueError:  # an integer of too many digits to print
        text = "a huge number"
    return text if len(text) <= 60 else text[:57] + "…"


def _one_line(error: object) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _folder_name(stem: str) -> str:
    return re.sub(r"[/\\\x00-\x1f]", "-", stem) or "run"


# ---------------------------------------------------------------------------------------------------------- consequences


def warnings(config: Config, *, clusters: int | None = None, most_clients: int | None = None) -> list[str]:
    """What is allowed but probably not meant, one sentence each.

    `clusters` and `most_clients` (of the largest server) are given once the data are read; for generated data they are
    known from the config.
    """
    data, algorithm = config.data, config.algorithm
    if isinstance(data, Generated):
        clusters, most_clients = clusters or _generated_clusters(data), most_clients or data.clients_per_server
    found = [
        f'`{section}.{key}` has no effect with kind = "{getattr(config, section).kind}".'
        for section, key in _idle_keys(config)
        if key in getattr(config, section).model_fields_set
    ]
    if algorithm.kind != TRAINED_BY_GRADIENT:
        found += _tau_warnings(algorithm, clusters)
    if isinstance(algorithm.participants, int) and most_clients is not None and algorithm.participants > most_clients:
        found.append(
            f"`algorithm.participants` is {algorithm.participants}, but no server has more than {most_clients} clients; "
            "all of them take part."
        )
    if config.privacy.enabled and config.privacy.guarantee == "none":
        found.append('The noise of this run carries no guarantee, because `privacy.guarantee` is "none".')
    return found


def _generated_clusters(data: Generated) -> int:
    return data.clusters if isinstance(data, SyntheticData) else len(data.tasks) if isinstance(data, MnistData) else 0


def _tau_warnings(algorithm: AlgorithmSettings, clusters: int | None) -> Iterator[str]:
    first = algorithm.tau.start * algorithm.tau.decay if isinstance(algorithm.tau, Decay) else algorithm.tau
    if first > 0 and clusters == 1:
        yield "`algorithm.tau` has no effect with a single cluster."
    elif first > 0 and clusters is not None and first > (clusters - 1) / clusters:
        yield (
            f"`algorithm.tau` = {first:g} is above (Q−1)/Q = {(clusters - 1) / clusters:.3g}, so a cluster's model weighs "
            "less than the other clusters' and the clusters swap; lower it."
        )
    if algorithm.kind == "pgfl-exact" and (first > 0 or algorithm.participants != "all"):
        yield 'Exact mixing is made for tau = 0 and participants = "all"; elsewhere plain pgfl is as good or better.'


def _idle_keys(config: Config) -> list[tuple[str, str]]:
    """Keys that do nothing, because of the kind of their section."""
    by_gradient = config.algorithm.kind == TRAINED_BY_GRADIENT
    huber = "huber" in {config.objective.kind} | {own.kind for own in config.objective.clusters.values()}
    idle = [("algorithm", key) for key in (("rho", "tau") if by_gradient else ("step", "local_steps"))]
    idle += [("graph", key) for key, kind in _GRAPH_KEYS if config.graph.kind != kind]
    return idle if huber else [*idle, ("objective", "kappa")]


_GRAPH_KEYS = (("average_degree", "random"), ("edges", "edges"))


UNDECIDING_KEYS = ("name", "engine", "threads", "checkpoint_every")


def fingerprint(config: Config) -> str:
    """A digest of all that determines the result: settings and the contents of the files they name, not their place."""
    settings = config.model_dump(mode="json", exclude=set(UNDECIDING_KEYS))
    for section, key in _idle_keys(config):
        del settings[section][key]
    if not config.privacy.enabled:
        del settings["privacy"]
    for section, key in PATH_KEYS:
        if settings[section].get(key) is not None:
            settings[section][key] = _content_digest(Path(settings[section][key]))
    return hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16).hexdigest()


def _content_digest(path: Path) -> str:
    """Of a file its bytes, of a folder its files, of neither its name."""
    digest = hashlib.blake2b(digest_size=16)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    try:
        for file in (file for file in files if file.is_file()):
            digest.update(f"{file.relative_to(path)}\0".encode())
            with open(file, "rb") as stream:
                digest.update(hashlib.file_digest(stream, "blake2b").digest())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    return digest.hexdigest() if path.exists() else str(path)


# ------------------------------------------------------------------------------------------------------------------ TOML


def to_toml(config: Config) -> str:
    """The resolved config: every key that has a value, so that a later default cannot change what was run.

    >>> print(to_toml(parse({"rounds": 9})).splitlines()[1])
    rounds = 9
    """
    settings = config.model_dump(exclude_none=True)
    for section, key in _idle_keys(config):
        settings[section].pop(key, None)
    return "\n".join(_tables(settings)).strip() + "\n"


def _tables(table: dict[str, Any], prefix: str = "") -> Iterator[str]:
    nested = {key: value for key, value in table.items() if isinstance(value, dict) and prefix + key not in _INLINE}
    yield from (f"{_toml_key(key)} = {_toml_text(value)}" for key, value in table.items() if key not in nested)
    for key, value in nested.items():
        if value:
            yield from ("", f"[{prefix}{_toml_key(key)}]")
            yield from _tables(value, f"{prefix}{_toml_key(key)}.")


_INLINE = ("algorithm.tau",)


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml_text(key)


def _toml_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml_text, value))}]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_toml_key(key)} = {_toml_text(item)}" for key, item in value.items()) + " }"
    return repr(value)
