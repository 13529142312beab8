"""Federations from tables: a row is a sample of a client."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import DTypeLike

from pgfl.arrays import Bools, Ints
from pgfl.errors import ConfigError
from pgfl.federation.encoding import Part, RowEncoding
from pgfl.federation.federation import Federation, TestSet, own_servers
from pgfl.federation.frames import Table, TableSource, open_table
from pgfl.federation.graph_sources import GraphSource, extra_servers, server_graph
from pgfl.federation.places import (
    Places,
    client_numbers,
    held_out_fold,
    held_out_share,
    place_columns,
    read_places,
    read_tests,
    sets_by_cluster,
)
from pgfl.federation.rows import TableRows
from pgfl.federation.storage import Allocate, build_stored, in_memory
from pgfl.federation.synthetic import float_type
from pgfl.federation.table_encoding import Declarations, Selection, build_encoding, select_columns
from pgfl.suggestions import explained, shown


@explained('read_federation("clients.csv", target="y", graph="line")')
def read_federation(
    clients: TableSource,
    *,
    target: str = "y",
    columns: Declarations | None = None,
    features: Iterable[str] | None = None,
    ignore: Iterable[str] = (),
    client: str | None = None,
    server: str | None = None,
    cluster: str | None = None,
    graph: GraphSource = "none",
    servers: Sequence[object] = (),
    test: TableSource | float | None = None,
    folds: int | None = None,
    fold: int = 0,
    average_degree: float = 3.0,
    seed: int = 0,
    run: int = 0,
    dtype: DTypeLike = np.float64,
    intercept: bool = False,
    servers_subset: Sequence[int] | None = None,
    store: str | os.PathLike[str] | None = None,
) -> Federation:
    """A federation from a table with one row per sample: a csv or parquet file, a data frame or an Arrow table.

    The columns `client`, `server` and `cluster` name where a row belongs; a table without a server or cluster column
    has one, "all". Every other column but the `target` is a feature, in the table's order, unless `features` lists them
    or `ignore` leaves some out. Numbers are taken as they are; `columns` declares bounds, categories and missing values
    (see `Column`). With `intercept` a column of ones comes last. Rows may be in any order.

    `test` holds rows out that nobody trains on: a share of every client's rows, or a table with the same columns. With
    `folds`, fold number `fold` is held out. `graph` is a kind (random, ring, line, star, complete, grid, none) over the
    server ids sorted as text, an edge table (see `read_edges`), pairs of server ids, or a `Graph`. `servers` names
    servers without clients.

    The features are allocated once, in `dtype`, and filled a few columns at a time, so there is never a second copy:
    0.67 GB of float32 data from 500,000 clients in a shuffled parquet file took 0.96 GB at its peak. With `store` the
    features are written to that new folder and mapped from it. With `servers_subset` (numbers of servers) only the
    samples of their clients are kept, with the numbers that they have in the whole.

    >>> from pgfl import Column
    >>> table = {"client": ["bob", "ann", "bob"], "server": ["south", "north", "south"], "y": [1, 2, 3],
    ...          "age": [50, 40, 60], "sex": ["m", "f", "m"]}
    >>> declared = {"age": Column(bounds=(20, 80)), "sex": Column(categories=["f", "m"])}
    >>> federation = read_federation(table, columns=declared, graph="line")
    >>> federation.client_ids, federation.encoding.feature_names, federation.rows("bob")[0].tolist()
    (('ann', 'bob'), ('age', 'sex=f', 'sex=m'), [[0.0, 0.0, 1.0], [0.3333333333333333, 0.0, 1.0]])
    """
    held = float_type(dtype)
    table = open_table(clients)
    places_in = place_columns(table, client, server, cluster)
    selection = select_columns(table, target, places_in, columns, features, ignore)
    everything = read_places(table, places_in)
    held_out = _held_out(everything.offsets, test, folds, fold, seed)
    training = everything if held_out is None else everything.where(~held_out)
    server_ids = tuple(sorted({*everything.servers, *extra_servers(servers)}))
    position = {name: index for index, name in enumerate(server_ids)}
    server_numbers = np.array([position[name] for name in everything.servers], dtype=np.int64)
    part = training
    if servers_subset is not None:
        part = training.at(np.isin(server_numbers, own_servers(servers_subset, len(server_ids))))
    graph_of_servers = server_graph(graph, server_ids, average_degree, seed, run)
    fitted_on = everything if folds is not None else training
    encoding = build_encoding(table, selection, np.sort(fitted_on.rows), intercept)
    tests = None
    if test is not None and not isinstance(test, float):
        tests = read_tests(open_table(test), encoding, everything, part, held)

    def fill(allocate: Allocate) -> Federation:
        tested = None if held_out is None else everything.where(held_out)
        samples, outside = _read_samples(table, selection, encoding, part, tested, allocate, held)
        return Federation(
            features=samples.features,
            targets=samples.targets,
            offsets=part.offsets,
            client_server=server_numbers[part.client_server],
            client_cluster=part.client_cluster,
            server_ids=server_ids,
            cluster_ids=everything.clusters,
            graph=graph_of_servers,
            names=part.clients,
            tests=tests if tested is None or outside is None else _own_tests(tested, outside, part),
            encoding=encoding,
        )

    return in_memory(fill) if store is None else build_stored(store, fill)


def _held_out(offsets: Ints, test: object, folds: int | None, fold: int, seed: int) -> Bools | None:
    """Which rows of the table nobody trains on, if some are held out."""
    if folds is not None:
        if test is not None:
            raise ConfigError("`test` and `folds` both hold rows out; keep one of them.")
        if isinstance(folds, bool) or not isinstance(folds, int) or isinstance(fold, bool) or not isinstance(fold, int):
            raise ConfigError(f"`folds` and `fold` must be whole numbers; got {shown(folds)} and {shown(fold)}.")
        return held_out_fold(offsets, folds, fold, seed)
    if isinstance(test, bool | int):
        raise ConfigError(f"`test` must be a share between 0 and 1, or a table; got {shown(test)}.")
    if isinstance(test, str) and _is_number(test):
        raise ConfigError(f"`test` = {test!r} is text; write test = {test}, without quotes.")
    if not isinstance(test, float):
        return None
    if not 0.0 < test < 1.0:
        raise ConfigError(f"`test` must be a share between 0 and 1, or a table; got {test:g}.")
    return held_out_share(offsets, test, seed)


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def _read_samples(
    table: Table,
    selection: Selection,
    encoding: RowEncoding,
    part: Places,
    tested: Places | None,
    allocate: Allocate,
    dtype: DTypeLike,
) -> tuple[Part, Part | None]:
    """The training rows of some clients, and the rows that are held out, read in one pass in the table's order."""
    wanted = part.rows if tested is None else np.concatenate([part.rows, tested.rows])
    needed = np.sort(wanted)
    undeclared = {name: "categories" for name in selection.features if name not in selection.declared}
    undeclared |= {} if selection.target in selection.declared else {selection.target: "labels"}
    places = {"server": selection.places.server, "cluster": selection.places.cluster}
    rows = TableRows(
        table,
        needed,
        ahead=[selection.target, *selection.features],
        undeclared=undeclared,
        unplaced=[key for key, name in places.items() if name is None],
    )

    def allocated(of: Places, allocate: Allocate) -> Part:
        features = allocate((len(of.rows), encoding.dimension), dtype)
        return Part(features, np.empty(len(of.rows), dtype=dtype), np.searchsorted(needed, of.rows))

    parts = [allocated(part, allocate)]
    if tested is not None:
        parts.append(allocated(tested, lambda shape, kind: np.empty(shape, dtype=kind)))
    encoding.encode_into(rows, *parts)
    return parts[0], parts[1] if tested is not None else None


def _own_tests(tested: Places, samples: Part, part: Places) -> dict[str, TestSet]:
    """The rows that are held out, by cluster."""
    client = tested.row_clients
    return sets_by_cluster(
        samples, tested.client_cluster[client], tested.clusters, client_numbers(tested, part)[client]
    )
