"""What the sections of a config are made of: common types, keys that an implementation declares, kinds of data."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PlainSerializer,
    ValidationError,
)

from pgfl.arrays import Ints
from pgfl.errors import ConfigError
from pgfl.federation.declarations import Column
from pgfl.maps import AUTO, RowMap, read_maps, stated
from pgfl.registry import Registry, config_keys

if TYPE_CHECKING:
    from pgfl.config.schema import Config
    from pgfl.federation.encoding import RowEncoding
    from pgfl.federation.federation import Federation
    from pgfl.federation.graphs import Graph

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
MOST = 2**31 - 1
Count = Annotated[int, Field(ge=1, le=MOST)]


def _ascending(ends: tuple[int, int]) -> tuple[int, int]:
    if ends[0] > ends[1]:
        raise ValueError(f"`data.samples` must be [least, most], but {list(ends)} descends.")
    return ends


Ends = Annotated[tuple[Count, Count], AfterValidator(_ascending)]


class Section(BaseModel):
    """One table of a config: no unknown keys, no silent conversion, immutable."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def _line(kind: str, place: tuple[int | str, ...], value: object, about: Mapping[str, object]) -> dict[str, object]:
    return {"type": kind, "loc": place, "input": value, "ctx": dict(about)}


def _refusal(*lines: dict[str, object]) -> ValidationError:
    """The error of a section with these lines, as pydantic would have raised it."""
    return ValidationError.from_exception_data("config", list(lines))  # type: ignore[arg-type]


def one_of(registry: Registry[Any], *others: str) -> BeforeValidator:
    """A validator of the names of a registry, and of these others."""

    def check(value: object) -> object:
        if value in others or value in registry:
            return value
        known = ", ".join(f"'{name}'" for name in (*registry, *others))
        raise _refusal(_line("literal_error", (), value, {"expected": known}))

    return BeforeValidator(check)


def declared_keys(kind: type, known: Iterable[str] = ()) -> dict[str, Any]:
    """The config keys that an implementation declares, but for the `known` ones, as fields of a section."""
    hints = get_type_hints(kind)
    return {
        name: (
            Annotated[hints[name], Field(**one.metadata.get("limits", {}))],
            ... if one.default is MISSING else one.default,
        )
        for name, one in config_keys(kind).items()
        if name not in known
    }


def named_in(values: object, registry: Registry[Any], key: str = "kind") -> tuple[str, ...]:
    """The kinds that a table and its `clusters` name and other packages have registered, sorted."""
    if not isinstance(values, Mapping):
        return ()
    clusters = values.get("clusters")
    tables = [values, *(clusters.values() if isinstance(clusters, Mapping) else ())]
    found = [table.get(key) for table in tables if isinstance(table, Mapping)]
    return tuple(sorted({str(name) for name in found if name in registry and name not in registry.built_in}))


def maps_at(where: str, automatic: bool = False) -> BeforeValidator:
    """A validator that reads the row maps of a key, which may also leave the choice open."""

    def check(values: object) -> object:
        if automatic and values == AUTO:
            return AUTO
        try:
            return read_maps(values, where) or None
        except ConfigError as error:
            raise ValueError(str(error)) from None

    return BeforeValidator(check)


def _stated_maps(maps: tuple[RowMap, ...] | Literal["auto"] | None) -> object:
    if isinstance(maps, str):
        return maps
    tables = [table["kind"] if len(table) == 1 else table for table in stated(maps or ())]
    return tables[0] if len(tables) == 1 else tables or None


NamedMapKey = Annotated[tuple[InstanceOf[RowMap], ...] | None, maps_at("data.map"), PlainSerializer(_stated_maps)]
"""`map`: the name of a row map, a table with its kind and parameters, or a list of them."""

MapKey = Annotated[
    tuple[InstanceOf[RowMap], ...] | Literal["auto"] | None,
    maps_at("data.map", automatic=True),
    PlainSerializer(_stated_maps),
]
"""The same, or "auto"."""


class Extent(NamedTuple):
    """The size of a federation."""

    clients: int
    rows: int
    dimension: int
    pairs: int


class DataSection(Section):
    """[data] of one kind: where records come from. A subclass has a `kind` and its own keys.

    `own_records`: the records are a user's own, so training defaults to float-safe noise and stops once it has
    converged. `lower_for_memory` are the keys that make it smaller, `maker` is the public function of `pgfl` that makes
    the same federation. What a kind does not have (columns, a target, folds) is empty.
    """

    own_records: ClassVar[bool] = False
    lower_for_memory: ClassVar[tuple[str, ...]] = ("the number of clients", "their samples")
    maker: ClassVar[str] = ""

    if TYPE_CHECKING:
        kind: str

    @property
    def chosen_map(self) -> tuple[RowMap, ...]:
        """The row maps that are named; none where the choice is still open."""
        found: tuple[RowMap, ...] | str | None = getattr(self, "map", None)
        return () if found is None or isinstance(found, str) else found

    @property
    def leaves_map_open(self) -> bool:
        """Whether the row map is still to be chosen."""
        return getattr(self, "map", None) == AUTO

    @property
    def bounds_rows(self) -> bool:
        """Whether the norm of rows may follow from what is declared, so that `privacy.x_norm` need not be stated."""
        return bool(self.declared)

    @property
    def declared(self) -> Mapping[str, Column]:
        """What is declared of the columns of a table."""
        return {}

    @property
    def declared_target(self) -> Column:
        """What is declared of the target."""
        return Column()

    @property
    def cross_validation(self) -> int | None:
        """How many folds the runs hold out in turn."""
        return None

    @property
    def has_weights(self) -> bool:
        """Whether rows count differently."""
        return False

    @property
    def label_costs(self) -> tuple[float, float] | None:
        """What a miss and a false alarm cost, of the second of two labels."""
        return getattr(self, "costs", None)

    @property
    def public_weight_cap(self) -> float | None:
        """Return the largest weight of a row, if it is public."""
        return None

    @abstractmethod
    def federations(self, config: Config) -> Callable[[int, Sequence[int] | None], Federation]:
        """Return the federation of every run, or its part at some servers, as a function of both."""

    @abstractmethod
    def shapes(self, config: Config) -> Callable[[int], tuple[Graph, Ints]]:
        """Return, by run, the server graph and how much data each server has (rows, or clients), without the data."""

    def expected_extent(self) -> Extent:
        """Return the size of a federation before it is made; by default it counts as nothing."""
        return Extent(0, 0, 1, 0)

    def public_encoding(self) -> RowEncoding | None:
        """Return how rows are encoded, without reading a record; None where that is not stated."""
        return None

    def public_digest(self, key: str, path: str) -> str:
        """Return what is public of the file that a key names; by default only that it is given."""
        return "given"

    def planner_facts(self) -> dict[str, Any]:
        """Return the facts that a plan rests on: servers, clients_per_server, clusters, records, columns."""
        raise ConfigError(f"A plan does not know data of kind {self.kind}; state its facts.")

    def placed_clients(self, config: Config) -> tuple[int, list[tuple[int, int, int]]]:
        """Return the number of features, and (server, cluster, rows) of every client; for records of a user's own."""
        raise ConfigError(f"A plan does not know data of kind {self.kind}; state its facts.")


def section_of_kind(values: object, registry: Registry[type[DataSection]], default: str) -> DataSection:
    """The section that its `kind` names; errors stand under `<kind>`, so that messages know which keys it has."""
    if isinstance(values, DataSection):
        return values
    kind = values.get("kind", default) if isinstance(values, Mapping) else None
    if not isinstance(kind, str) or kind not in registry:
        about = {"discriminator": "kind", "tag": str(kind), "expected_tags": ", ".join(registry)}
        raise _refusal(_line("union_tag_invalid", (), values, about))
    try:
        return registry[kind].model_validate(values)
    except ValidationError as error:
        lines = error.errors()
        place = f"<{kind}>"
        raise _refusal(
            *(_line(line["type"], (place, *line["loc"]), line["input"], line.get("ctx", {})) for line in lines)
        ) from None
