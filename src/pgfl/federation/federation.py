"""A federation: servers on a graph, their clients, the clients' clusters and data. Validated once, then immutable."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from pgfl.arrays import AnyArray, AnyFloats, AnyInts, Bools, Floats, Ints
from pgfl.drawing.pages import counted
from pgfl.errors import DataError, UsageError
from pgfl.federation.encoding import RowEncoding
from pgfl.federation.graphs import Graph, empty
from pgfl.suggestions import friendly_constructor, friendly_signature, kind_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pgfl.federation.frames import TableSource
    from pgfl.federation.graphs import GraphSource
    from pgfl.federation.table_encoding import Declarations
    from pgfl.maps import MapSource


def numbers(owner: str, values: ArrayLike) -> AnyFloats:
    """Return anything that NumPy can read as an array of floating-point numbers; such an array is returned as it is.

    >>> numbers("The table", [[1, 2]])
    array([[1., 2.]])
    """
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        return values
    try:
        found = np.asarray(values)
        if found.dtype.kind in "biufO":
            return np.asarray(found, dtype=found.dtype if found.dtype.kind == "f" else float)
    except (TypeError, ValueError):
        pass
    raise DataError(f"{owner} has a value that is not a number, or rows of unequal length.")


def column_of(targets: AnyFloats) -> AnyFloats:
    """Return the numbers of a table with one column, which is how targets often come; anything else as it is."""
    return targets[:, 0] if targets.ndim == 2 and targets.shape[1] == 1 else targets


def whole_numbers(name: str, values: ArrayLike) -> AnyInts:
    """Return a list of whole numbers as an array; `name` is the field that it is for."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        return values
    found = np.asarray(values)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise DataError(
            f"The field {name} of a federation takes whole numbers, such as [0, 0, 1]; got {kind_of(values)}."
        )
    return found.astype(np.int64, copy=False)


def ids_of(name: str, ids: Sequence[str]) -> tuple[str, ...]:
    """Return a list of ids as a tuple; `name` is the field that it is for."""
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise DataError(f'The field {name} of a federation is a list of ids, such as ["north"]; got {kind_of(ids)}.')
    return ids if isinstance(ids, tuple) else tuple(ids)


INDICES = ("offsets", "client_server", "client_cluster")


@friendly_constructor('ClientData("north", "adults", features, targets)')
@dataclass(frozen=True)
class ClientData:
    """One client: its server, its cluster, and its samples (D_k × d features and D_k targets).

    `weights` says how much each sample's loss counts, 1 where it is not given.
    """

    server: str
    cluster: str
    features: ArrayLike
    targets: ArrayLike
    weights: ArrayLike | None = None


ELSEWHERE = -1


@friendly_constructor("TestSet(features, targets)")
@dataclass(frozen=True)
class TestSet:
    """Samples that no client trains on, for one cluster's task. Anything that NumPy can read becomes an array.

    `clients` holds the index of the client that each sample belongs to, where it is known; `ELSEWHERE` (−1) for a
    client that is not in this federation, or in another part of it.
    """

    __test__ = False  # or pytest would collect it

    features: AnyFloats
    targets: AnyFloats
    clients: Ints | None = None

    def __post_init__(self) -> None:
        features, targets = (numbers("A test set", values) for values in (self.features, self.targets))
        targets = column_of(targets)
        if features.ndim != 2 or targets.shape != (len(features),):
            raise DataError("A test set needs a table of features and one target per row, as in TestSet(rows, labels).")
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "targets", targets)

    def of_part(self, clients: Ints) -> TestSet:
        """Return the same samples for a federation of some clients, which are numbered anew."""
        if self.clients is None:
            return self
        own = np.full(max(clients.max(), self.clients.max()) + 2, ELSEWHERE)
        own[clients] = np.arange(len(clients))
        return TestSet(self.features, self.targets, own[self.clients])


@dataclass(frozen=True, eq=False, repr=False)
class Federation:
    """Clients at servers, in clusters that cut across servers.

    The samples of client k are rows `offsets[k]` to `offsets[k+1]` of `features` and `targets`. Indices follow the
    order of the ids sorted as text. `truth` holds the models w_q* that generated the data, where they are known;
    `tests` one test set per cluster. `generated` means that it holds no private records: it is synthetic or public.
    `encoding` describes how rows of a table became features, where they came from one. `weights` says how much each
    sample's loss counts; without it all count alike.

    A notebook shows a federation as a picture with a short table; `plot` draws it with matplotlib.

    >>> federation = Federation.from_clients({
    ...     "ann": ClientData("north", "adults", [[1.0, 0.0], [0.0, 1.0]], [1.0, 2.0]),
    ...     "bob": ClientData("south", "children", [[1.0, 1.0]], [0.5]),
    ... }, edges=[("north", "south")])
    >>> federation
    <Federation: 2 clients at 2 servers in 2 clusters, 3 rows of 2 features>
    >>> federation.client_ids, federation.server_ids, federation.cluster_ids, federation.dimension
    (('ann', 'bob'), ('north', 'south'), ('adults', 'children'), 2)
    >>> federation.rows("ann")[1]
    array([1., 2.])
    """

    features: AnyFloats
    targets: AnyFloats
    offsets: Ints
    client_server: Ints
    client_cluster: Ints
    server_ids: tuple[str, ...]
    cluster_ids: tuple[str, ...]
    graph: Graph
    names: tuple[str, ...] | None = None
    truth: AnyFloats | None = None
    tests: Mapping[str, TestSet] | None = None
    generated: bool = False
    encoding: RowEncoding | None = None
    weights: AnyFloats | None = None

    def __post_init__(self) -> None:
        self._convert()
        if self.features.ndim != 2 or self.features.shape[1] < 1:
            raise DataError("The features must be a table with at least one column.")
        clients, dimension = len(self.client_server), self.features.shape[1]
        if clients < 1:
            raise DataError("A federation needs at least one client.")
        if len(self.client_cluster) != clients or len(self.offsets) != clients + 1:
            raise DataError("Servers, clusters and row offsets must be given for the same clients.")
        if self.targets.shape != (len(self.features),):
            raise DataError(f"There are {len(self.features)} rows of features but {self.targets.size} targets.")
        if self.weights is not None:
            _check_weights(self.weights, len(self.features))
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.features):
            raise DataError(f"The row offsets must go from 0 to {len(self.features)}, the number of rows.")
        if (np.diff(self.offsets) < 1).any():
            lonely = self.client_id(int(np.argmax(np.diff(self.offsets) < 1)))
            raise DataError(f"Client {lonely} has no samples; every client needs at least one.")
        for what, index, ids in (
            ("server", self.client_server, self.server_ids),
            ("cluster", self.client_cluster, self.cluster_ids),
        ):
            if index.min() < 0 or index.max() >= len(ids):
                raise DataError(f"A client is given {what} {index.max()}, but there are only {len(ids)} {what}s.")
        if self.names is not None and len(self.names) != clients:
            raise DataError(f"There are {clients} clients but {len(self.names)} names.")
        if self.graph.size != len(self.server_ids):
            raise DataError(f"The graph has {self.graph.size} servers, but {len(self.server_ids)} are named.")
        if self.truth is not None and not _one_model_each(self.truth, len(self.cluster_ids), dimension):
            raise DataError(
                f"The true models must be {len(self.cluster_ids)} × {dimension}, one row per cluster (or, with C "
                f"classes, {len(self.cluster_ids)} × {dimension}·C)."
            )
        known = set(self.cluster_ids) if self.tests else set()
        for cluster, test in (self.tests or {}).items():
            if cluster not in known:
                raise DataError(f"There is a test set for cluster {cluster}, which has no clients.")
            if test.features.shape != (len(test.targets), dimension):
                raise DataError(
                    f"The test set of cluster {cluster} must have {dimension} features and one target per row."
                )

    def _convert(self) -> None:
        """Accept anything that NumPy can read in place of arrays, and lists in place of tuples."""
        if not isinstance(self.graph, Graph):
            raise DataError(f"The graph of a federation is a Graph; got {kind_of(self.graph)}: see Graph.from_edges.")
        arrays: dict[str, AnyArray] = {
            "features": numbers("The field features", self.features),
            "targets": numbers("The field targets", self.targets),
            **{name: whole_numbers(name, getattr(self, name)) for name in INDICES},
        }
        if self.truth is not None:
            arrays["truth"] = numbers("The field truth", self.truth)
        if self.weights is not None:
            arrays["weights"] = numbers("The field weights", self.weights)
        for name, values in arrays.items():
            object.__setattr__(self, name, values)
        for name in ("server_ids", "cluster_ids", "names"):
            if (ids := getattr(self, name)) is not None:
                object.__setattr__(self, name, ids_of(name, ids))
        if self.tests is not None and not (
            isinstance(self.tests, Mapping) and all(isinstance(test, TestSet) for test in self.tests.values())
        ):
            raise DataError(
                f"The tests are a mapping from clusters to TestSet(features, targets); got {kind_of(self.tests)}."
            )

    @classmethod
    def from_clients(
        cls,
        clients: Mapping[str, ClientData],
        edges: Iterable[tuple[str, str]] = (),
        *,
        graph: Graph | None = None,
        servers: Sequence[str] = (),
        truth: Mapping[str, ArrayLike] | None = None,
        tests: Mapping[str, TestSet] | None = None,
    ) -> Federation:
        """From a mapping of client ids to their data, and the edges between server ids (or a graph).

        `servers` names additional servers, without clients.
        """
        _check_clients(clients)
        names = sorted(clients)
        server_ids = tuple(sorted({clients[name].server for name in names} | set(servers)))
        cluster_ids = tuple(sorted({clients[name].cluster for name in names}))
        server_number = {server: index for index, server in enumerate(server_ids)}
        cluster_number = {cluster: index for index, cluster in enumerate(cluster_ids)}
        features = [_double(name, clients[name].features) for name in names]
        targets = [column_of(np.atleast_1d(_double(name, clients[name].targets))) for name in names]
        for name, block, target in zip(names, features, targets, strict=True):
            if block.ndim != 2 or block.size == 0:
                raise DataError(f"Client {name} needs a table of features with at least one row and one column.")
            if block.shape[1] != features[0].shape[1]:
                raise DataError(
                    f"Client {name} has {block.shape[1]} features, client {names[0]} {features[0].shape[1]}."
                )
            if target.shape != (len(block),):
                raise DataError(f"Client {name} has {len(block)} samples but {target.size} targets.")
            if not (np.isfinite(block).all() and np.isfinite(target).all()):
                raise DataError(f"Client {name} has a value that is not a finite number; remove or fill it.")
        if not features:
            raise DataError("A federation needs at least one client.")
        weights = None
        if any(client.weights is not None for client in clients.values()):
            weights = np.concatenate(
                [_weights_of(name, clients[name], len(y)) for name, y in zip(names, targets, strict=True)]
            )
        return cls(
            features=np.concatenate(features),
            targets=np.concatenate(targets),
            offsets=np.concatenate([[0], np.cumsum([len(block) for block in features])]).astype(np.int64),
            client_server=np.array([server_number[clients[name].server] for name in names], dtype=np.int64),
            client_cluster=np.array([cluster_number[clients[name].cluster] for name in names], dtype=np.int64),
            server_ids=server_ids,
            cluster_ids=cluster_ids,
            graph=Graph.between(server_ids, edges) if graph is None else graph,
            names=tuple(names),
            truth=None if truth is None else _stacked_truth(truth, cluster_ids),
            tests=tests,
            weights=weights,
        )

    @classmethod
    @friendly_signature('Federation.read("clients.csv", target="y", graph="line")')
    def read(
        cls,
        table: TableSource,
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
        map: MapSource = None,
        weight: str | None = None,
        class_weight: Mapping[str, float] | None = None,
    ) -> Federation:
        """Read a table with one row per sample: a csv or parquet file, a data frame, an Arrow table or a dict.

        The columns `client`, `server` and `cluster` name where a row belongs; a table without a server or cluster
        column has one, "all". Every other column but the `target` is a feature, in the table's order, unless `features`
        lists them or `ignore` leaves some out. Numbers are taken as they are; `columns` declares bounds, categories and
        missing values (see `Column`). Encoded rows go through the row `map`, for instance "hats" (see `pgfl.maps`).
        With `intercept` a column of ones comes last. Rows may be in any order. `weight` names a column that says how
        much every row counts in training, and `class_weight` maps labels to such weights; both are multiplied.

        `test` holds rows out that nobody trains on: a share of every client's rows, or a table with the same columns.
        With `folds`, fold number `fold` is held out. `graph` is a kind (random, ring, line, star, complete, grid, none)
        over the server ids sorted as text, an edge table (see `read_edges`), pairs of server ids, or a `Graph`.
        `servers` names servers without clients.

        The features are allocated once, in `dtype`, and filled a few columns at a time, so there is never a second
        copy: 0.67 GB of float32 data from 500,000 clients in a shuffled parquet file took 0.96 GB at its peak. With
        `store` the features are written to that new folder and mapped from it. With `servers_subset` (numbers of
        servers) only the samples of their clients are kept, with the numbers that they have in the whole.

        >>> from pgfl import Column
        >>> table = {"client": ["bob", "ann", "bob"], "server": ["south", "north", "south"], "y": [1, 2, 3],
        ...          "age": [50, 40, 60], "sex": ["m", "f", "m"]}
        >>> declared = {"age": Column(bounds=(20, 80)), "sex": Column(categories=["f", "m"])}
        >>> federation = Federation.read(table, columns=declared, graph="line")
        >>> federation.client_ids, federation.encoding.feature_names, federation.rows("bob")[0].tolist()
        (('ann', 'bob'), ('age', 'sex=f', 'sex=m'), [[0.0, 0.0, 1.0], [0.3333333333333333, 0.0, 1.0]])
        """
        from pgfl.federation.tables import ReadOptions, read_table

        options = ReadOptions(
            target=target,
            columns=columns,
            features=features,
            ignore=ignore,
            client=client,
            server=server,
            cluster=cluster,
            graph=graph,
            servers=servers,
            test=test,
            folds=folds,
            fold=fold,
            average_degree=average_degree,
            seed=seed,
            run=run,
            dtype=dtype,
            intercept=intercept,
            servers_subset=servers_subset,
            store=store,
            map=map,
            weight=weight,
            class_weight=class_weight,
        )
        return read_table(table, options)

    def mapped(
        self, map: MapSource, *, bounds: tuple[float, float] | None = None, intercept: bool = False
    ) -> Federation:
        """Return the federation with mapped rows; the map is kept in its `encoding`, and so in every model.

        It is for federations of plain arrays; `Federation.read` has a `map` of its own. With `bounds` every number is
        clipped to them and scaled to [−1, 1] first. With `intercept` a 1 comes last. Tests are mapped alike.

        >>> plain = Federation.from_clients({"ann": ClientData("north", "all", [[0.5], [-0.5]], [1.0, 2.0])})
        >>> plain.mapped({"kind": "fourier", "features": 4}, intercept=True)
        <Federation: 1 client at 1 server in 1 cluster, 2 rows of 5 features>
        """
        from pgfl.federation.mapping import mapped_federation

        return mapped_federation(self, map, bounds, intercept)

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, mmap: bool = True) -> Federation:
        """Open a saved federation; its features stay on disk and are mapped read-only, unless `mmap` is false."""
        from pgfl.federation.storage import open_folder

        return open_folder(folder, mmap=mmap)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the federation to a new folder, from which `Federation.open` reads or maps it.

        >>> import tempfile, pathlib
        >>> from pgfl import synthetic_regression
        >>> federation = synthetic_regression(servers=4, clients_per_server=3, dimension=5)
        >>> with tempfile.TemporaryDirectory() as place:
        ...     federation.save(pathlib.Path(place) / "saved")
        ...     mapped = Federation.open(pathlib.Path(place) / "saved")
        ...     type(mapped.features).__name__, bool((mapped.features == federation.features).all())
        ('memmap', True)
        """
        from pgfl.federation.storage import save_folder

        save_folder(self, folder)

    def __repr__(self) -> str:
        return f"<Federation: {summary_line(self)}>"

    def _repr_html_(self) -> str:
        from pgfl.federation.cards import federation_card

        return federation_card(self)

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw servers, edges and clients with matplotlib, on `ax` if it is given; clusters have their colours."""
        from pgfl.drawing.networks import draw_network
        from pgfl.federation.cards import federation_drawing

        return draw_network(federation_drawing(self), ax)

    @cached_property
    def client_ids(self) -> tuple[str, ...]:
        """All clients' ids; generated on first use if there are no names."""
        return self.names if self.names is not None else tuple(self.client_id(k) for k in range(self.size))

    def client_id(self, index: int) -> str:
        """Return the id of one client."""
        return self.names[index] if self.names is not None else numbered("client", index, self.size)

    @cached_property
    def _client_numbers(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.client_ids)}

    def client_index(self, client: str) -> int:
        """Return the index of the client with this id."""
        if client not in self._client_numbers:
            raise DataError(f"There is no client {client} in this federation.")
        return self._client_numbers[client]

    @property
    def size(self) -> int:
        """K, the number of clients."""
        return len(self.client_server)

    @property
    def dimension(self) -> int:
        """d, the number of features."""
        return int(self.features.shape[1])

    @cached_property
    def counts(self) -> Ints:
        """D_k of every client."""
        return np.diff(self.offsets)

    @cached_property
    def server_sizes(self) -> Ints:
        """|C_s| of every server."""
        return np.bincount(self.client_server, minlength=len(self.server_ids))

    def rows(self, client: str | int) -> tuple[AnyFloats, AnyFloats]:
        """(X_k, y_k) of one client, by id or index."""
        index = self.client_index(client) if isinstance(client, str) else client
        chosen = slice(self.offsets[index], self.offsets[index + 1])
        return self.features[chosen], self.targets[chosen]

    def weighted_targets(self, rows: Ints | slice) -> AnyFloats:
        """Return the targets of some samples as a loss takes them: with their weights in a second column, if any."""
        if self.weights is None:
            return self.targets[rows]
        return np.stack([self.targets[rows], self.weights[rows].astype(self.targets.dtype)], axis=-1)

    def with_class_weights(self, class_weight: Mapping[float, float]) -> Federation:
        """Return the federation with every sample's weight times that of its label; labels that are not named keep it.

        >>> plain = Federation.from_clients({"ann": ClientData("north", "all", [[0.5], [-0.5]], [0.0, 1.0])})
        >>> plain.with_class_weights({1: 5.0}).weights
        array([1., 5.])
        """
        factors = np.ones(len(self.targets))
        for label, weight in class_weight.items():
            factors[self.targets == float(label)] = weight
        before = 1.0 if self.weights is None else self.weights
        return self.replace(weights=before * factors, generated=self.generated)

    def without_edges(self) -> Federation:
        """Return the same clients and servers with ℰ = ∅."""
        return self.replace(graph=empty(self.graph.size))

    def part(self, servers: Sequence[int]) -> Federation:
        """Return the clients of some servers (by number), with their names, numbers and graph in the whole federation.

        If the data is memory-mapped, only the rows of these clients are read.
        """
        own = own_servers(servers, len(self.server_ids))
        clients = np.flatnonzero(np.isin(self.client_server, own))
        counts = self.counts[clients]
        rows = _joined_ranges(self.offsets[clients], counts)
        return self.replace(
            features=self.features[rows],
            targets=self.targets[rows],
            weights=None if self.weights is None else self.weights[rows],
            offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            client_server=self.client_server[clients],
            client_cluster=self.client_cluster[clients],
            names=tuple(self.client_id(client) for client in clients.tolist()),
            tests=self.tests and {cluster: test.of_part(clients) for cluster, test in self.tests.items()},
            generated=self.generated,
        )

    def in_clusters(self, client_cluster: Ints, cluster_ids: Sequence[str]) -> Federation:
        """Return the same clients in other clusters.

        Held-out rows go with their clients. True models and held-out rows that belong to a cluster as a whole are kept
        if all clients of every new cluster were in one old cluster.
        """
        count = len(cluster_ids)
        origins = [np.unique(self.client_cluster[client_cluster == q]) for q in range(count)]
        nested = all(len(origin) == 1 for origin in origins)
        truth = self.truth[[origin[0] for origin in origins]] if nested and self.truth is not None else None
        tests: dict[str, TestSet] | None = None
        owned = [test for test in (self.tests or {}).values() if test.clients is not None and len(test.clients)]
        if owned:
            tests = {
                name: found for q, name in enumerate(cluster_ids) if (found := _tests_of(owned, client_cluster == q))
            }
        elif nested and self.tests is not None:
            old = [self.cluster_ids[origin[0]] for origin in origins]
            tests = {new: self.tests[name] for new, name in zip(cluster_ids, old, strict=True) if name in self.tests}
        return self.replace(
            client_cluster=client_cluster, cluster_ids=tuple(cluster_ids), truth=truth, tests=tests or None
        )

    def replace(self, **changes: object) -> Federation:
        """A copy with some fields changed (arrays are shared); with other records it is no longer `generated`."""
        own = {"generated": False} if {"features", "targets", "weights"} & set(changes) else {}
        return replace(self, **{**own, **changes})  # type: ignore[arg-type]


def _tests_of(tests: Sequence[TestSet], members: Bools) -> TestSet | None:
    """Return the held-out rows of some clients, or None."""
    owners = [np.full(len(test.targets), ELSEWHERE) if test.clients is None else test.clients for test in tests]
    rows = [np.flatnonzero((owner != ELSEWHERE) & members[owner]) for owner in owners]
    if not any(len(chosen) for chosen in rows):
        return None
    return TestSet(
        np.concatenate([test.features[chosen] for test, chosen in zip(tests, rows, strict=True)]),
        np.concatenate([test.targets[chosen] for test, chosen in zip(tests, rows, strict=True)]),
        np.concatenate([owner[chosen] for owner, chosen in zip(owners, rows, strict=True)]),
    )


def summary_line(federation: Federation) -> str:
    """Return a federation in half a sentence."""
    clients, servers = counted(federation.size, "client"), counted(len(federation.server_ids), "server")
    clusters, rows = counted(len(federation.cluster_ids), "cluster"), counted(len(federation.features), "row")
    return f"{clients} at {servers} in {clusters}, {rows} of {counted(federation.dimension, 'feature')}"


def _one_model_each(truth: AnyFloats, clusters: int, features: int) -> bool:
    """Return whether there is one row per cluster, of one or more numbers per feature."""
    return truth.ndim == 2 and len(truth) == clusters and truth.shape[1] > 0 and truth.shape[1] % features == 0


def numbered(kind: str, index: int, total: int) -> str:
    """Return an id that sorts as text in the order of its number.

    >>> numbered("server", 3, 10)
    'server-3'
    """
    return f"{kind}-{index:0{len(str(max(total - 1, 0)))}d}"


def own_servers(servers: Sequence[int], total: int) -> Ints:
    """Return some of `total` servers, ascending and without repetition.

    >>> own_servers([3, 1], 5)
    array([1, 3])
    """
    own = np.unique(np.asarray(servers, dtype=np.int64))
    if not own.size or own[0] < 0 or own[-1] >= total:
        raise DataError(f"A part of the federation takes some of the servers 0 to {total - 1}; got {list(servers)}.")
    return own


def _joined_ranges(starts: Ints, lengths: Ints) -> Ints:
    """Return the ranges that begin at `starts`, one after the other."""
    return np.repeat(starts - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())


def _double(client: str, values: ArrayLike) -> Floats:
    return numbers(f"Client {client}", values).astype(np.float64, copy=False)


def _check_clients(clients: Mapping[str, ClientData]) -> None:
    if not isinstance(clients, Mapping):
        raise UsageError(
            f"Federation.from_clients takes a mapping from client ids to ClientData; got {kind_of(clients)}: use "
            "Federation.read for a table."
        )
    for name, client in clients.items():
        if not isinstance(client, ClientData):
            raise UsageError(
                f"Client {name} is {kind_of(client)}; write ClientData(server, cluster, features, targets) instead."
            )
        for what, value in (("id", name), ("server", client.server), ("cluster", client.cluster)):
            if not isinstance(value, str):
                raise UsageError(f"Client {name} has the {what} {value!r}; ids are text, such as 'north'.")


def _weights_of(name: str, client: ClientData, count: int) -> Floats:
    """Return a client's weights, 1 each where it states none."""
    if client.weights is None:
        return np.ones(count)
    found = column_of(np.atleast_1d(_double(name, client.weights)))
    if found.shape != (count,):
        raise DataError(f"Client {name} has {count} samples but {found.size} weights.")
    return np.asarray(found, dtype=np.float64)


def _check_weights(weights: AnyFloats, rows: int) -> None:
    """Refuse weights that are not one finite number of at least 0 per row."""
    if weights.shape != (rows,):
        raise DataError(f"There are {rows} rows of features but {weights.size} weights.")
    if not (np.isfinite(weights).all() and (weights >= 0.0).all()):
        wrong = int(np.argmin(np.isfinite(weights) & (weights >= 0.0)))
        raise DataError(f"Row {wrong + 1} has the weight {weights[wrong]:g}; weights are finite numbers of at least 0.")
    if not weights.any():
        raise DataError("All weights are 0; at least one row must count.")


def _stacked_truth(truth: Mapping[str, ArrayLike], clusters: Sequence[str]) -> Floats:
    missing = [cluster for cluster in clusters if cluster not in truth]
    if missing:
        raise DataError(f"The true model of cluster {missing[0]} is missing; give one for every cluster.")
    try:
        return np.array([truth[cluster] for cluster in clusters], dtype=float)
    except (TypeError, ValueError):
        raise DataError("The true models must be lists of numbers of the same length.") from None
