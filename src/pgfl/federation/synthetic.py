"""Regression data of Section V-A: related linear models, one per cluster, with clients placed on a server graph."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pgfl.arrays import AnyFloats, AnyInts, Floats, Ints
from pgfl.errors import ConfigError
from pgfl.federation.federation import Federation, TestSet, numbered, own_servers
from pgfl.federation.graphs import Graph, build
from pgfl.federation.storage import Allocate, build_stored, in_memory
from pgfl.streams import Purpose, stream

COUNTS, SAMPLES, TESTS, POOLS = range(4)  # what a DATA stream is for, in the place of its round


@dataclass(frozen=True, eq=False)
class Layout:
    """The whole federation's shape, and the servers whose clients are generated here (`own`, ascending)."""

    sizes: Ints
    clusters: AnyInts
    graph: Graph
    own: Ints
    seed: int
    run: int

    @cached_property
    def first_client(self) -> Ints:
        """Server s has clients `first_client[s]` to `first_client[s + 1]`."""
        return offsets_of(self.sizes)

    @cached_property
    def clients(self) -> Ints:
        """The clients of the own servers, numbered in the whole federation."""
        return np.concatenate([np.arange(*self.first_client[s : s + 2]) for s in self.own])

    @property
    def client_server(self) -> Ints:
        """The server of each of these clients."""
        return np.repeat(self.own, self.sizes[self.own])

    @property
    def client_cluster(self) -> Ints:
        """The cluster of each of these clients."""
        return self.clusters[self.clients].astype(np.int64)

    @property
    def server_ids(self) -> tuple[str, ...]:
        """Ids of all servers."""
        return tuple(numbered("server", s, len(self.sizes)) for s in range(len(self.sizes)))

    @property
    def names(self) -> tuple[str, ...] | None:
        """Ids of these clients where they are not all: a part keeps the names of the whole."""
        total = len(self.clusters)
        return None if len(self.own) == len(self.sizes) else tuple(numbered("client", k, total) for k in self.clients)

    def sample_counts(self, samples: int | tuple[int, int], servers: Iterable[int]) -> dict[int, Ints]:
        """D_k of the clients of each of some servers, uniform between the two ends of `samples`."""
        low, high = (samples, samples) if isinstance(samples, int) else samples
        if not 1 <= low <= high:
            raise ConfigError(f"Samples per client must go from at least 1 up to something not smaller; got {samples}.")
        return {
            s: stream(self.seed, self.run, Purpose.DATA, s, COUNTS).integers(low, high, self.sizes[s], endpoint=True)
            for s in servers
        }


def lay_out(
    servers: int,
    clients_per_server: int | Sequence[int],
    clusters: int,
    *,
    graph: str | Graph = "random",
    average_degree: float = 3.0,
    seed: int = 0,
    run: int = 0,
    servers_subset: Sequence[int] | None = None,
) -> Layout:
    """Clients numbered server by server, and split at random among clusters whose sizes differ by one at most."""
    if servers < 1:
        raise ConfigError(f"A federation needs at least one server; got {servers}.")
    sizes = (
        np.full(servers, clients_per_server) if isinstance(clients_per_server, int) else np.array(clients_per_server)
    )
    if len(sizes) != servers:
        raise ConfigError(f"There are {servers} servers, but clients per server are given for {len(sizes)}.")
    if sizes.dtype.kind not in "iu" or sizes.min() < 0 or sizes.sum() < 1:
        raise ConfigError("Clients per server must be whole numbers, none negative and not all zero.")
    total = int(sizes.sum())
    if not 1 <= clusters <= total:
        raise ConfigError(f"{total} clients can be split among 1 to {total} clusters; got {clusters}.")
    own = np.arange(servers) if servers_subset is None else own_servers(servers_subset, servers)
    if isinstance(graph, str):
        graph = build(graph, servers, average_degree=average_degree, rng=stream(seed, run, Purpose.GRAPH))
    labels = (np.arange(total) % clusters).astype(np.min_scalar_type(clusters))
    stream(seed, run, Purpose.CLUSTERS).shuffle(labels)
    return Layout(sizes.astype(np.int64), labels, graph, own, seed, run)


def offsets_of(counts: Ints) -> Ints:
    """Return where each of consecutive groups of these sizes begins, and where the last one ends.

    >>> offsets_of(np.array([2, 3]))
    array([0, 2, 5])
    """
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def float_type(dtype: DTypeLike) -> np.dtype[Any]:
    """Return the type that data is held in: float32 or float64, and nothing else."""
    try:
        chosen = np.dtype(dtype)
    except TypeError:
        raise ConfigError(f"Data can be held as float32 or float64; got {dtype!r}.") from None
    if chosen not in (np.float32, np.float64):
        raise ConfigError(f"Data can be held as float32 or float64; got {chosen}.")
    return chosen


Progress = Callable[[int, int], None]


def synthetic_regression(
    *,
    servers: int = 10,
    clients_per_server: int | Sequence[int] = 15,
    clusters: int = 3,
    dimension: int = 60,
    samples: int | tuple[int, int] = (2, 9),
    gamma: float = 0.15,
    per_coordinate: bool = True,
    observation_noise: float = 0.7,
    x_norm: float | None = None,
    test_samples: int = 0,
    graph: str | Graph = "random",
    average_degree: float = 3.0,
    seed: int = 0,
    run: int = 0,
    dtype: DTypeLike = np.float64,
    servers_subset: Sequence[int] | None = None,
    store: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Federation:
    """A federation whose cluster q follows y = xᵀw_q* + noise, with w_q* = w_0* + γ w_0* and γ ~ U(−gamma, gamma).

    w_0* and x are standard normal; γ is drawn per coordinate, or once a cluster. `samples` is D_k or its two ends.

    With `x_norm` = B every x is scaled to length B exactly, as a private run enforces anyway, and w_0* by √d/B, so
    that xᵀw_q* is as large as before and B = √d keeps the units of Section V-A. In other units ρ and λ scale with B².

    `test_samples` adds a test set of that many fresh, equally noisy samples per cluster.

    Everything is drawn from streams keyed by server, so a process may generate some servers only (`servers_subset`):
    it gets the clients of those servers, with the names and numbers that they have in the whole, and the whole graph.
    The features are allocated once, in `dtype`, and filled server by server without a second copy; `progress` receives
    (servers done, servers to do). With `store`, they are written to that folder and mapped from it.

    >>> federation = synthetic_regression(servers=4, clients_per_server=2, dimension=5, graph="ring", seed=1)
    >>> federation.size, federation.dimension, federation.truth.shape
    (8, 5, (3, 5))
    >>> part = synthetic_regression(servers=4, clients_per_server=2, dimension=5, graph="ring", seed=1,
    ...                             servers_subset=[2])
    >>> part.client_ids, bool((part.rows("client-5")[0] == federation.rows("client-5")[0]).all())
    (('client-4', 'client-5'), True)
    """
    if dimension < 1:
        raise ConfigError(f"The dimension must be at least 1; got {dimension}.")
    if not (0 <= gamma < np.inf and 0 <= observation_noise < np.inf):
        raise ConfigError(
            f"gamma and the observation noise must be finite and not negative; got {gamma}, {observation_noise}."
        )
    if x_norm is not None and not 0 < x_norm < np.inf:
        raise ConfigError(f"x_norm must be positive and finite; got {x_norm}.")
    if test_samples < 0:
        raise ConfigError(f"The number of test samples must not be negative; got {test_samples}.")
    layout = lay_out(
        servers,
        clients_per_server,
        clusters,
        graph=graph,
        average_degree=average_degree,
        seed=seed,
        run=run,
        servers_subset=servers_subset,
    )
    scale = 1.0 if x_norm is None else np.sqrt(dimension) / x_norm
    truth = (scale * _related_models(layout, clusters, dimension, gamma, per_coordinate)).astype(float_type(dtype))
    draw = _Sampler(truth, observation_noise, x_norm)

    def generate(allocate: Allocate) -> Federation:
        counts = layout.sample_counts(samples, layout.own.tolist())
        offsets = offsets_of(np.concatenate(list(counts.values())))
        features = allocate((int(offsets[-1]), dimension), truth.dtype)
        targets = np.empty(len(features), dtype=truth.dtype)
        row = 0
        for done, (server, of_server) in enumerate(counts.items(), start=1):
            labels = layout.clusters[layout.first_client[server] : layout.first_client[server + 1]]
            rows = slice(row, row + int(of_server.sum()))
            rng = stream(seed, run, Purpose.DATA, server, SAMPLES)
            draw(rng, np.repeat(labels, of_server), features[rows], targets[rows])
            row = rows.stop
            if progress is not None:
                progress(done, len(counts))
        cluster_ids = tuple(numbered("cluster", q, clusters) for q in range(clusters))
        return Federation(
            features=features,
            targets=targets,
            offsets=offsets,
            client_server=layout.client_server,
            client_cluster=layout.client_cluster,
            server_ids=layout.server_ids,
            cluster_ids=cluster_ids,
            graph=layout.graph,
            names=layout.names,
            truth=truth,
            tests={q: draw.test_set(layout, i, test_samples) for i, q in enumerate(cluster_ids)}
            if test_samples
            else None,
            generated=True,
        )

    return in_memory(generate) if store is None else build_stored(store, generate)


def _related_models(layout: Layout, clusters: int, dimension: int, gamma: float, per_coordinate: bool) -> Floats:
    rng = stream(layout.seed, layout.run, Purpose.TRUTH)
    base = rng.standard_normal(dimension)
    return base + rng.uniform(-gamma, gamma, size=(clusters, dimension if per_coordinate else 1)) * base


class _Sampler:
    """Draws samples of given clusters into arrays that exist."""

    def __init__(self, truth: AnyFloats, noise: float, x_norm: float | None) -> None:
        self.truth, self.noise, self.x_norm = truth, noise, x_norm

    def __call__(
        self,
        rng: np.random.Generator,
        labels: AnyInts,
        features: AnyFloats,
        targets: AnyFloats,
    ) -> None:
        rng.standard_normal(out=features, dtype=features.dtype)
        if self.x_norm is not None:
            features *= self.x_norm / np.linalg.norm(features, axis=1, keepdims=True)
        rng.standard_normal(out=targets, dtype=targets.dtype)
        targets *= self.noise
        targets += np.einsum("ij,ij->i", features, self.truth[labels])

    def test_set(self, layout: Layout, cluster: int, size: int) -> TestSet:
        test = TestSet(np.empty((size, self.truth.shape[1]), self.truth.dtype), np.empty(size, self.truth.dtype))
        rng = stream(layout.seed, layout.run, Purpose.DATA, cluster, TESTS)
        self(rng, np.full(size, cluster), test.features, test.targets)
        return test
