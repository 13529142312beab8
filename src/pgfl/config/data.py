"""The federations that a config describes, and a digest of all that determines an experiment's result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pgfl.arrays import Ints
from pgfl.config.schema import PATH_KEYS, Config, MnistData, SyntheticData, TableData, idle_keys
from pgfl.errors import ConfigError
from pgfl.federation.federation import Federation
from pgfl.federation.table_encoding import public_digest

if TYPE_CHECKING:
    from pgfl.federation.encoding import RowEncoding
    from pgfl.federation.graphs import Graph
    from pgfl.federation.table_encoding import Reading


class Extent(NamedTuple):
    """The size of a federation."""

    clients: int
    rows: int
    dimension: int
    pairs: int


def expected_extent(config: Config) -> Extent:
    """The size of a config's federation, before it is generated or read; digits are few and count as nothing."""
    data = config.data
    if isinstance(data, MnistData):
        return Extent(0, 0, 1, 0)
    if isinstance(data, TableData):
        from pgfl.federation.table_encoding import read_extent

        return Extent(**read_extent(data.table, data.target, data.intercept, **_reading(data)))
    clients = data.servers * data.clients_per_server
    pairs = min(data.servers * data.clusters, clients * data.servers)
    return Extent(clients, clients * sum(data.samples) // 2, data.dimension, pairs)


def public_encoding(config: Config) -> RowEncoding | None:
    """How rows of a config's table are encoded, without reading a record; None where that is not stated."""
    data = config.data
    if not isinstance(data, TableData):
        return None
    from pgfl.federation.table_encoding import stated_encoding

    return stated_encoding(data.table, data.target, data.intercept, **_reading(data))


def placed_clients(config: Config) -> tuple[int, list[tuple[int, int, int]]]:
    """The number of features of a config's table, and (server, cluster, rows) of every client, without its features."""
    data = config.data
    assert isinstance(data, TableData)
    from pgfl.federation.table_encoding import read_extent, read_placement

    columns = read_extent(data.table, data.target, data.intercept, **_reading(data))["dimension"]
    return columns, read_placement(data.table, config.graph.servers, data.client, data.server, data.cluster)


def federations(config: Config) -> Callable[[int, Sequence[int] | None], Federation]:
    """The federation of every run, or its part at some servers: generated for each run, or the same table for all.

    With folds, every run holds out another fold of the table.
    """
    data, graph, dtype = config.data, config.graph, np.dtype(config.dtype)
    common: dict[str, Any] = {"seed": config.seed, "dtype": dtype, "average_degree": graph.average_degree}
    if isinstance(data, TableData):

        @lru_cache(maxsize=1)
        def read(fold: int, servers: tuple[int, ...] | None) -> Federation:
            return Federation.read(
                data.table,
                target=data.target,
                graph=_graph_source(config),
                servers=graph.servers,
                intercept=data.intercept,
                test=data.test,
                folds=data.folds,
                fold=fold,
                servers_subset=servers,
                **_reading(data),
                **common,
            )

        return lambda run, servers: read(run if data.folds else 0, None if servers is None else tuple(servers))
    if graph.kind == "edges":
        raise ConfigError('`graph.kind` = "edges" names servers of a table; generated data takes another kind.')
    if isinstance(data, MnistData):
        from pgfl.federation.mnist import mnist_federation

        own = data.model_dump(exclude={"kind"})
        return lambda run, servers: mnist_federation(**own, graph=graph.kind, run=run, servers_subset=servers, **common)
    assert isinstance(data, SyntheticData)
    from pgfl.federation.synthetic import synthetic_regression

    own = data.model_dump(exclude={"kind"})
    return lambda run, servers: synthetic_regression(**own, graph=graph.kind, run=run, servers_subset=servers, **common)


def shapes(config: Config) -> Callable[[int], tuple[Graph, Ints]]:
    """The server graph of every run, and how much data each server has (rows, or clients), without the data."""
    data, graph = config.data, config.graph
    if isinstance(data, TableData):
        from pgfl.federation.table_encoding import read_shape

        source = _graph_source(config)
        return lambda run: read_shape(data.table, source, graph.servers, graph.average_degree, config.seed, data.server)
    from pgfl.federation.synthetic import lay_out

    def shape(run: int) -> tuple[Graph, Ints]:
        layout = lay_out(
            data.servers,
            data.clients_per_server,
            len(data.tasks) if isinstance(data, MnistData) else data.clusters,
            graph=graph.kind,
            average_degree=graph.average_degree,
            seed=config.seed,
            run=run,
        )
        return layout.graph, layout.sizes

    return shape


def _reading(data: TableData) -> Reading:
    """How a table's columns are read, as arguments of `Federation.read`."""
    return {
        "columns": data.columns,
        "features": data.features,
        "ignore": data.ignore,
        "client": data.client,
        "server": data.server,
        "cluster": data.cluster,
    }


def _graph_source(config: Config) -> str:
    """The file of edges, or the kind of graph."""
    return str(config.graph.edges) if config.graph.kind == "edges" else config.graph.kind


UNDECIDING_KEYS = ("name", "engine", "threads", "checkpoint_every")


def fingerprint(config: Config, *, of_records: bool = True) -> str:
    """The digest of a config and of the contents, not the paths, of its files.

    Without `of_records` only what is public of the data files counts, so that the digest confirms no guess at a record.
    """
    settings = config.model_dump(mode="json", exclude=set(UNDECIDING_KEYS))
    for section, key in idle_keys(config):
        del settings[section][key]
    if not config.privacy.enabled:
        del settings["privacy"]
    if settings.pop("continues") is not None:
        settings["continues"] = _content_digest(Path(str(config.continues)) / "state.npz")
    else:
        del settings["new_clients"], settings["moved_records"]  # statements about what is continued
    for section, key in PATH_KEYS:
        if isinstance(path := settings[section].get(key), str):
            public_only = section == "data" and not of_records
            settings[section][key] = _public_digest(config, key, path) if public_only else _content_digest(Path(path))
    return hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16).hexdigest()


def _public_digest(config: Config, key: str, path: str) -> str:
    """The clients' places and record counts in their table; of test samples and images only that they are given."""
    data = config.data
    if key == "table" and isinstance(data, TableData):
        return public_digest(path, data.client, data.server, data.cluster)
    return "given"


def _content_digest(path: Path) -> str:
    """A digest of a file's bytes or a folder's files; a path that does not exist stands for itself."""
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
