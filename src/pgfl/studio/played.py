"""One training, carried out for the page: the curve, the network, the models on their way, what clients have spent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from pgfl.array_types import AnyFloats, Floats
from pgfl.core.federation import Federation
from pgfl.drawing.network_layout import server_places
from pgfl.experiment import run
from pgfl.studio.kernels import loaded

if TYPE_CHECKING:
    from pgfl.config import Config
    from pgfl.results.result import Result
    from pgfl.simulate.simulator import Simulator

FRAMES = 60
MOST_SERVER_MODELS = 400


class Superseded(Exception):
    """A newer setting is waiting; this training is not wanted any more."""


@dataclass(frozen=True)
class ServerDetail:
    """What the page shows of a server."""

    name: str
    x: float
    y: float
    neighbours: tuple[str, ...]
    clients: tuple[tuple[str, str, int], ...]  # name, cluster, records
    models: tuple[tuple[str, float, float | None], ...]  # cluster, norm, relative distance to the truth in dB


@dataclass(frozen=True)
class Network:
    """The servers with their places in the picture, and the clients around them."""

    servers: tuple[ServerDetail, ...]
    edges: tuple[tuple[int, int], ...]
    clusters: tuple[str, ...]
    clients: tuple[tuple[str, int, int, float, float, float | None], ...]  # name, server, cluster, x, y, ε


@dataclass(frozen=True)
class Plane:
    """Models in the plane in which clusters differ most: one frame per shown round."""

    rounds: tuple[int, ...]
    clusters: AnyFloats  # frames × clusters × 2
    servers: AnyFloats  # frames × pairs × 2
    pair_cluster: tuple[int, ...]
    truth: AnyFloats | None  # clusters × 2


@dataclass(frozen=True)
class Played:
    """What a training leaves for the page; it can be sent between processes."""

    metric: str
    rounds: tuple[int, ...]
    curve: tuple[float, ...]
    by_cluster: dict[str, tuple[float, ...]]
    seconds: float
    engine: str
    rho: float | None
    verdict: str | None
    guarantee: str | None
    epsilon: float | None  # the worst client's
    spent: tuple[tuple[str, str, float, int], ...] = ()  # client, cluster, ε, releases
    warnings: tuple[str, ...] = ()
    network: Network | None = None
    plane: Plane | None = None
    models: dict[str, AnyFloats] = field(default_factory=dict)

    @property
    def final(self) -> float:
        """The last value of the curve."""
        return self.curve[-1]


def play(config: Config, *, details: bool = True, wanted: Callable[[], bool] = lambda: True) -> Played:
    """Train as the config says; without details only the curve is kept. Ends early once it is not wanted any more."""
    path = _Path()
    result = run(config, observers=[_Wanted(wanted), *([path] if details else [])], kernels_loaded=loaded())
    (metric,) = config.metrics
    history = {name: tuple(result.curve(name)[0].tolist()) for name in result.metrics}
    clusters = {name: history[f"{metric}_{name}"] for name in result.cluster_ids if f"{metric}_{name}" in history}
    spent = _spent(result)
    federation = path.federation
    return Played(
        metric=metric,
        rounds=tuple(result.rounds.tolist()),
        curve=history[metric],
        by_cluster=clusters,
        seconds=result.seconds,
        engine=str(result.engine),
        rho=result.rho,
        verdict=result.verdict.sentence if result.verdict else None,
        guarantee=result.guarantee,
        epsilon=max((row[2] for row in spent), default=None),
        spent=spent,
        warnings=tuple(result.warnings),
        network=_network(federation, result, spent) if federation else None,
        plane=path.plane(None if _is_digits(config) else federation.truth) if federation else None,
        models={name: result.cluster(name) for name in result.cluster_ids} if details and _is_digits(config) else {},
    )


def _is_digits(config: Config) -> bool:
    return config.data.kind == "mnist"


def _spent(result: Result) -> tuple[tuple[str, str, float, int], ...]:
    if not result.privacy or result.models[0].network is None:
        return ()
    table, cluster = result.privacy[0], result.models[0].network.client_cluster
    names = [result.cluster_ids[q] for q in cluster.tolist()]
    rows = zip(table["client"].tolist(), names, table["epsilon"].tolist(), table["releases"].tolist(), strict=True)
    return tuple((client, name, float(epsilon), int(count)) for client, name, epsilon, count in rows)


def _network(federation: Federation, result: Result, spent: Sequence[tuple[str, str, float, int]]) -> Network | None:
    from pgfl.results.report.network_picture import drawn

    placed, models = drawn(result), result.models[0]
    if placed is None or placed.too_large:
        return None
    ids, names = result.client_ids, result.cluster_ids
    edges = [(int(a), int(b)) for a, b in placed.edges.tolist()]
    vars(placed)["servers"] = _server_places(len(result.server_ids), tuple(edges))
    epsilon = {row[0]: row[2] for row in spent}
    members = list(zip(placed.client_server.tolist(), placed.client_cluster.tolist(), strict=True))
    clients = tuple(
        (ids[k], s, q, float(placed.clients[k, 0]), float(placed.clients[k, 1]), epsilon.get(ids[k]))
        for k, (s, q) in enumerate(members)
    )
    servers = []
    for s, name in enumerate(result.server_ids):
        own = tuple((ids[k], names[q], int(federation.counts[k])) for k, (at, q) in enumerate(members) if at == s)
        neighbours = tuple(result.server_ids[b if a == s else a] for a, b in edges if s in (a, b))
        held = np.flatnonzero((models.pair_server == s) & models.present)
        known = tuple(_model(result, federation, int(models.pair_cluster[row]), models.servers[row]) for row in held)
        x, y = placed.servers[s].tolist()
        servers.append(ServerDetail(name, x, y, neighbours, own, known))
    return Network(tuple(servers), tuple(edges), tuple(names), clients if placed.shows_clients else ())


@lru_cache(maxsize=8)
def _server_places(servers: int, edges: tuple[tuple[int, int], ...]) -> Floats:
    """Where servers stand; kept, because placing them takes as long as a training."""
    return server_places(servers, np.array(edges, dtype=np.int64).reshape(-1, 2))


def _model(result: Result, federation: Federation, q: int, model: Any) -> tuple[str, float, float | None]:
    truth = federation.truth
    error = None
    if truth is not None and truth.shape[1] == len(model):
        error = float(10 * np.log10(np.sum((model - truth[q]) ** 2) / np.sum(truth[q] ** 2)))
    return result.cluster_ids[q], float(np.linalg.norm(model)), error


class _Wanted:
    """An observer that ends a training which is not wanted any more."""

    def __init__(self, wanted: Callable[[], bool]) -> None:
        self._wanted = wanted

    def on_round(self, simulator: Simulator) -> None:
        """Raise once a newer setting is waiting."""
        if not self._wanted():
            raise Superseded


class _Path:
    """An observer that keeps the servers' models of some rounds."""

    def __init__(self) -> None:
        self.rounds: list[int] = []
        self.models: list[Floats] = []
        self.federation: Federation | None = None
        self._clusters: Any = None

    def on_round(self, simulator: Simulator) -> None:
        """Keep the models of this round where a frame is due: many at the start, where they move most."""
        round, last = simulator.state.round, simulator.options.rounds
        if self.federation is None:
            self.federation = simulator.layout.runs[0].federation
            self._clusters = simulator.layout.pair_cluster[simulator.layout.runs[0].pairs]
            self._due = set(np.unique(np.geomspace(1, max(last, 2), FRAMES).round().astype(int)).tolist())
        if round in self._due and len(self._clusters) <= MOST_SERVER_MODELS:
            self.rounds.append(round)
            self.models.append(np.array(simulator.state.server_models, dtype=float))

    def plane(self, truth: AnyFloats | None) -> Plane | None:
        """The plane in which clusters differ most. A model's place is its difference from the clusters' common mean."""
        if not self.models:
            return None
        models, cluster = np.array(self.models), np.asarray(self._clusters)
        count = int(cluster.max()) + 1
        means = np.stack([models[:, cluster == q].mean(axis=1) for q in range(count)], axis=1)
        common = means.mean(axis=1, keepdims=True)
        fits = truth is not None and truth.shape == (count, models.shape[2])
        apart = truth - truth.mean(axis=0) if fits and truth is not None else (means - common)[-1]
        _, _, axes = np.linalg.svd(np.vstack([apart, np.zeros_like(apart[:2])]), full_matrices=False)
        return Plane(
            tuple(self.rounds),
            (means - common) @ axes[:2].T,
            (models - common) @ axes[:2].T,
            tuple(cluster.tolist()),
            apart @ axes[:2].T if fits else None,
        )
