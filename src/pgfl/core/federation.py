"""A federation: servers on a graph, their clients, the clients' clusters and data. Validated once, then immutable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from pgfl.array_types import AnyFloats, Floats, Ints
from pgfl.core.topology import Graph, empty
from pgfl.errors import DataError


@dataclass(frozen=True)
class ClientData:
    """One client: its server, its cluster, and its samples (D_k × d features and D_k targets)."""

    server: str
    cluster: str
    features: ArrayLike
    targets: ArrayLike


@dataclass(frozen=True)
class TestSet:
    """Samples that no client trains on, for one cluster's task."""

    __test__ = False  # or pytest would collect it

    features: AnyFloats
    targets: AnyFloats


@dataclass(frozen=True, eq=False)
class Federation:
    """Clients at servers, in clusters that cut across servers.

    The samples of client k are rows `offsets[k]` to `offsets[k+1]` of `features` and `targets`. Indices follow the
    order of the ids sorted as text. `truth` holds the models w_q* that generated the data, where they are known;
    `tests` one test set per cluster. `generated` means that it holds no private records: it is synthetic or public.

    >>> federation = Federation.from_clients({
    ...     "ann": ClientData("north", "adults", [[1.0, 0.0], [0.0, 1.0]], [1.0, 2.0]),
    ...     "bob": ClientData("south", "children", [[1.0, 1.0]], [0.5]),
    ... }, edges=[("north", "south")])
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

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or self.features.shape[1] < 1:
            raise DataError("The features must be a table with at least one column.")
        clients, dimension = len(self.client_server), self.features.shape[1]
        if clients < 1:
            raise DataError("A federation needs at least one client.")
        if len(self.client_cluster) != clients or len(self.offsets) != clients + 1:
            raise DataError("Servers, clusters and row offsets must be given for the same clients.")
        if self.targets.shape != (len(self.features),):
            raise DataError(f"There are {len(self.features)} rows of features but {self.targets.size} targets.")
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
        names = sorted(clients)
        server_ids = tuple(sorted({clients[name].server for name in names} | set(servers)))
        cluster_ids = tuple(sorted({clients[name].cluster for name in names}))
        server_number = {server: index for index, server in enumerate(server_ids)}
        cluster_number = {cluster: index for index, cluster in enumerate(cluster_ids)}
        features = [_numbers(name, clients[name].features) for name in names]
        targets = [np.atleast_1d(_numbers(name, clients[name].targets)) for name in names]
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
        )

    @cached_property
    def client_ids(self) -> tuple[str, ...]:
        """All clients' ids; generated on first use if there are no names."""
        return self.names if self.names is not None else tuple(self.client_id(k) for k in range(self.size))

    def client_id(self, index: int) -> str:
        """The id of one client."""
        return self.names[index] if self.names is not None else numbered("client", index, self.size)

    @cached_property
    def _client_numbers(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.client_ids)}

    def client_index(self, client: str) -> int:
        """The index of the client with this id."""
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

    def without_edges(self) -> Federation:
        """The same clients and servers with ℰ = ∅."""
        return self.replace(graph=empty(self.graph.size))

    def part(self, servers: Sequence[int]) -> Federation:
        """The clients of some servers (by number), with their names, numbers and graph in the whole federation.

        If the data is memory-mapped, only the rows of these clients are read.
        """
        own = own_servers(servers, len(self.server_ids))
        clients = np.flatnonzero(np.isin(self.client_server, own))
        counts = self.counts[clients]
        rows = _joined_ranges(self.offsets[clients], counts)
        return self.replace(
            features=self.features[rows],
            targets=self.targets[rows],
            offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            client_server=self.client_server[clients],
            client_cluster=self.client_cluster[clients],
            names=tuple(self.client_id(client) for client in clients.tolist()),
            generated=self.generated,
        )

    def replace(self, **changes: object) -> Federation:
        """A copy with some fields changed (arrays are shared); with other records it is no longer `generated`."""
        from dataclasses import replace

        own = {"generated": False} if {"features", "targets"} & set(changes) else {}
        return replace(self, **{**own, **changes})  # type: ignore[arg-type]


def _one_model_each(truth: AnyFloats, clusters: int, features: int) -> bool:
    """Whether there is one row per cluster, of one or more numbers per feature."""
    return truth.ndim == 2 and len(truth) == clusters and truth.shape[1] > 0 and truth.shape[1] % features == 0


def numbered(kind: str, index: int, total: int) -> str:
    """An id that sorts as text in the order of its number.

    >>> numbered("server", 3, 10)
    'server-3'
    """
    return f"{kind}-{index:0{len(str(max(total - 1, 0)))}d}"


def own_servers(servers: Sequence[int], total: int) -> Ints:
    """Some of `total` servers, ascending and without repetition.

    >>> own_servers([3, 1], 5)
    array([1, 3])
    """
    own = np.unique(np.asarray(servers, dtype=np.int64))
    if not own.size or own[0] < 0 or own[-1] >= total:
        raise DataError(f"A part of the federation takes some of the servers 0 to {total - 1}; got {list(servers)}.")
    return own


def _joined_ranges(starts: Ints, lengths: Ints) -> Ints:
    """The ranges that begin at `starts`, one after the other."""
    return np.repeat(starts - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())


def _numbers(client: str, values: ArrayLike) -> Floats:
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise DataError(f"Client {client} has a value that is not a number, or rows of unequal length.") from None


def _stacked_truth(truth: Mapping[str, ArrayLike], clusters: Sequence[str]) -> Floats:
    missing = [cluster for cluster in clusters if cluster not in truth]
    if missing:
        raise DataError(f"The true model of cluster {missing[0]} is missing; give one for every cluster.")
    try:
        return np.array([truth[cluster] for cluster in clusters], dtype=float)
    except (TypeError, ValueError):
        raise DataError("The true models must be lists of numbers of the same length.") from None
