"""[data] of kind table: a user's own table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    InstanceOf,
    Tag,
    field_serializer,
    model_validator,
)

from pgfl.arrays import Ints
from pgfl.config.section import MOST, DataSection, Extent, MapKey, Positive
from pgfl.errors import ConfigError
from pgfl.federation.declarations import Column
from pgfl.federation.federation import Federation

if TYPE_CHECKING:
    from pgfl.config.schema import Config
    from pgfl.federation.encoding import RowEncoding
    from pgfl.federation.graphs import Graph
    from pgfl.federation.table_encoding import Reading


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


class TableData(DataSection):
    """A user's own table, one row per sample; see `Federation.read` for the keys.

    `client`, `server` and `cluster` name columns, `columns` declares them, `test` is a share of the rows or a table.
    `weight` names a column of weights, and `class_weight` maps labels to weights. `costs` are those of a miss and of a
    false alarm: predicted labels cost least.
    """

    own_records: ClassVar[bool] = True
    maker: ClassVar[str] = "Federation.read"
    lower_for_memory: ClassVar[tuple[str, ...]] = ("the rows of data.table",)

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
    map: MapKey = None
    weight: str | None = None
    class_weight: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    costs: tuple[Positive, Positive] | None = None

    @field_serializer("columns")
    def _stated_columns(self, columns: dict[str, Column]) -> dict[str, dict[str, object]]:
        return {name: column.stated() for name, column in columns.items()}

    @model_validator(mode="after")
    def _one_way_to_test(self) -> Self:
        if self.test is not None and self.folds is not None:
            raise ValueError("`data.test` and `data.folds` both hold rows out; keep one of them.")
        return self

    @property
    def has_weights(self) -> bool:
        """Whether rows count differently."""
        return self.weight is not None or bool(self.class_weight)

    @property
    def public_weight_cap(self) -> float | None:
        """The largest weight, if it is public: that of labels is, a column's is not."""
        return max([1.0, *self.class_weight.values()]) if self.class_weight and self.weight is None else None

    @property
    def bounds_rows(self) -> bool:
        """Declared columns have bounds, and so do the rows of some maps."""
        return bool(self.columns or self.chosen_map)

    @property
    def declared(self) -> Mapping[str, Column]:
        """What is declared of the columns."""
        return self.columns

    @property
    def declared_target(self) -> Column:
        """What is declared of the target."""
        return self.columns.get(self.target, Column())

    @property
    def cross_validation(self) -> int | None:
        """The folds."""
        return self.folds

    def expected_extent(self) -> Extent:
        """The size of the table, without its values."""
        from pgfl.federation.table_encoding import read_extent

        return Extent(**read_extent(self.table, self.target, self.intercept, **self._reading))

    def public_encoding(self) -> RowEncoding | None:
        """How rows are encoded, without reading a record; None where that is not stated."""
        from pgfl.federation.table_encoding import stated_encoding

        return stated_encoding(self.table, self.target, self.intercept, **self._reading)

    def placed_clients(self, config: Config) -> tuple[int, list[tuple[int, int, int]]]:
        """The number of features, and (server, cluster, rows) of every client, without its features."""
        from pgfl.federation.table_encoding import read_placement

        places = read_placement(self.table, config.graph.servers, self.client, self.server, self.cluster)
        return self.expected_extent().dimension, places

    def federations(self, config: Config) -> Callable[[int, Sequence[int] | None], Federation]:
        """Read the same table for every run, or its part at some servers; with folds, each holds out another one."""

        @lru_cache(maxsize=1)
        def read(fold: int, servers: tuple[int, ...] | None) -> Federation:
            return Federation.read(
                self.table,
                target=self.target,
                graph=_graph_source(config),
                servers=config.graph.servers,
                intercept=self.intercept,
                test=self.test,
                folds=self.folds,
                fold=fold,
                servers_subset=servers,
                seed=config.seed,
                dtype=np.dtype(config.dtype),
                average_degree=config.graph.average_degree,
                weight=self.weight,
                class_weight=self.class_weight or None,
                **self._reading,
            )

        return lambda run, servers: read(run if self.folds else 0, None if servers is None else tuple(servers))

    def shapes(self, config: Config) -> Callable[[int], tuple[Graph, Ints]]:
        """The server graph, and how many rows each server has."""
        from pgfl.federation.table_encoding import read_shape

        source, graph = _graph_source(config), config.graph
        return lambda run: read_shape(self.table, source, graph.servers, graph.average_degree, config.seed, self.server)

    def public_digest(self, key: str, path: str) -> str:
        """The clients' places and record counts in their table; of test samples only that they are given."""
        from pgfl.federation.table_encoding import public_digest

        return public_digest(path, self.client, self.server, self.cluster) if key == "table" else "given"

    @property
    def _reading(self) -> Reading:
        """How columns are read, as arguments of `Federation.read`."""
        return {
            "columns": self.columns,
            "features": self.features,
            "ignore": self.ignore if self.weight is None else tuple(dict.fromkeys([*self.ignore, self.weight])),
            "client": self.client,
            "server": self.server,
            "cluster": self.cluster,
            "map": self.chosen_map,
        }


def _graph_source(config: Config) -> str:
    """The file of edges, or the kind of graph."""
    return str(config.graph.edges) if config.graph.kind == "edges" else config.graph.kind
