"""Federations from tables: a row is a sample of a client."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from pgfl.arrays import Bools, Ints
from pgfl.errors import ConfigError
from pgfl.federation.encoding import MAP_OF_RECORDS, Part, RowEncoding, TableRows
from pgfl.federation.federation import Federation, TestSet, own_servers
from pgfl.federation.frames import Table, TableSource, open_table
from pgfl.federation.graphs import GraphSource, extra_servers, server_graph
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
from pgfl.federation.row_weights import row_weights
from pgfl.federation.storage import Allocate, build_stored, in_memory
from pgfl.federation.synthetic import float_type
from pgfl.federation.table_encoding import Declarations, Selection, build_encoding, select_columns
from pgfl.maps import AUTO, MapSource, read_maps
from pgfl.suggestions import shown


class ReadOptions(NamedTuple):
    """The arguments of `Federation.read`, which explains them."""

    target: str
    columns: Declarations | None
    features: Iterable[str] | None
    ignore: Iterable[str]
    client: str | None
    server: str | None
    cluster: str | None
    graph: GraphSource
    servers: Sequence[object]
    test: TableSource | float | None
    folds: int | None
    fold: int
    average_degree: float
    seed: int
    run: int
    dtype: DTypeLike
    intercept: bool
    servers_subset: Sequence[int] | None
    store: str | os.PathLike[str] | None
    map: MapSource
    weight: str | None
    class_weight: Mapping[str, float] | None


def read_table(source: TableSource, options: ReadOptions) -> Federation:
    """Read a federation from a table; see `Federation.read`."""
    if options.map == AUTO:
        return _read_with_chosen_map(source, options)
    held = float_type(options.dtype)
    table = open_table(source)
    places_in = place_columns(table, options.client, options.server, options.cluster)
    maps, weight = read_maps(options.map), options.weight
    ignored = options.ignore if weight is None else dict.fromkeys([*options.ignore, weight])
    selection = select_columns(table, options.target, places_in, options.columns, options.features, ignored, maps)
    everything = read_places(table, places_in)
    held_out = _held_out(everything.offsets, options)
    training = everything if held_out is None else everything.where(~held_out)
    server_ids = tuple(sorted({*everything.servers, *extra_servers(options.servers)}))
    position = {name: index for index, name in enumerate(server_ids)}
    server_numbers = np.array([position[name] for name in everything.servers], dtype=np.int64)
    part = training
    if options.servers_subset is not None:
        part = training.at(np.isin(server_numbers, own_servers(options.servers_subset, len(server_ids))))
    graph_of_servers = server_graph(options.graph, server_ids, options.average_degree, options.seed, options.run)
    fitted_on = everything if options.folds is not None else training
    encoding = build_encoding(table, selection, np.sort(fitted_on.rows), options.intercept)
    tests = None
    if options.test is not None and not isinstance(options.test, float):
        tests = read_tests(open_table(options.test), encoding, everything, part, held)

    def fill(allocate: Allocate) -> Federation:
        tested = None if held_out is None else everything.where(held_out)
        samples, outside = _read_samples(table, selection, encoding, part, tested, allocate, held)
        weights = row_weights(table, part.rows, samples.targets, encoding.target, weight, options.class_weight)
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
            weights=weights,
        )

    return in_memory(fill) if options.store is None else build_stored(options.store, fill)


def _read_with_chosen_map(source: TableSource, options: ReadOptions) -> Federation:
    """Read a federation with the map that its own training rows ask for, which privacy then refuses."""
    from pgfl.federation.map_choice import choose_map

    if options.servers_subset is not None or options.store is not None:
        raise ConfigError('map = "auto" looks at all rows in memory; choose a map on a part of them, and name it.')
    plain = read_table(source, options._replace(map=None))
    encoding = plain.encoding
    assert encoding is not None
    chosen = choose_map(plain, labels=encoding.target.labels is not None)
    found = read_table(source, options._replace(map=chosen.maps)) if chosen.maps else plain
    assert found.encoding is not None
    known = replace(found.encoding, read_from_records=(*found.encoding.read_from_records, MAP_OF_RECORDS))
    return found.replace(encoding=known, generated=found.generated)


def _held_out(offsets: Ints, options: ReadOptions) -> Bools | None:
    """Return which rows of the table nobody trains on; None if all are for training."""
    test: object = options.test
    folds, fold, seed = options.folds, options.fold, options.seed
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
    """Return the rows that are held out, by cluster."""
    client = tested.row_clients
    return sets_by_cluster(
        samples, tested.client_cluster[client], tested.clusters, client_numbers(tested, part)[client]
    )
