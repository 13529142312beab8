"""Trainings for the page, in processes of their own; only the newest request counts."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from multiprocessing.sharedctypes import SynchronizedArray
from typing import TYPE_CHECKING, Any

import numpy as np

from pgfl.arrays import AnyFloats, Floats
from pgfl.config import Config
from pgfl.drawing.networks import server_places
from pgfl.errors import ConfigError
from pgfl.experiment import run
from pgfl.federation.federation import Federation
from pgfl.privacy.card import PrivacyCard
from pgfl.simulate.engines import engine_kind
from pgfl.simulate.observers import Observer

if TYPE_CHECKING:
    from pgfl.config import Config
    from pgfl.results.result import Result
    from pgfl.simulate.simulator import Simulator


_loaded = threading.Event()
_TINY: dict[str, Any] = {"servers": 2, "clients_per_server": 8, "dimension": 60, "clusters": 2, "samples": [2, 4]}
_NOISE = {"phi0": 1e-3, "zeta": 0.99, "x_norm": 1.0}
_HUBER = {"kind": "huber"}
_KINDS: tuple[dict[str, Any], ...] = (
    {"algorithm": {"tau": 0.5}},
    {"algorithm": {"participants": 1}},
    {"algorithm": {"participants": 1}, "objective": _HUBER, "privacy": _NOISE},
    {"algorithm": {"client": "gradient"}, "objective": _HUBER, "privacy": _NOISE},
    {"algorithm": {"client": "gradient"}, "objective": _HUBER, "privacy": {**_NOISE, "trust": "site"}},
)
"""Trainings that call every kernel of the page between them: all or some take part; without noise, with each client's
or with that of a pair; exactly or by a step. Kernels depend on how many registers a row fills; rows are the paper's."""


def loaded() -> bool:
    """Return whether all kernels are at hand in this process."""
    return _loaded.is_set()


def load_behind(one_at_a_time: AbstractContextManager[Any]) -> None:
    """Load the kernels in a thread of their own; one process compiles them, and the next finds them in the cache."""
    if engine_kind("numba").installed():
        threading.Thread(target=load, args=(one_at_a_time,), daemon=True).start()


def load(one_at_a_time: AbstractContextManager[Any]) -> None:
    """Call every kernel once, so that it is compiled, or loaded, when a user waits."""
    from pgfl.config import parse
    from pgfl.experiment import run

    with one_at_a_time:
        for kind in _KINDS:
            run(parse({"rounds": 2, "metrics": ["nmsd"], "engine": "numba", "data": _TINY, **kind}))
    _loaded.set()


FACTORS = (0.1, 0.25, 0.5, 2.0, 4.0, 10.0)
OFF = "Switch privacy on to see what an ε costs."
NO_GUARANTEE = (
    "Ridge regression has an unbounded gradient, so the noise of this figure guarantees no ε. "
    "Its guaranteed twin among the presets has one."
)


def why_not(config: Config) -> str | None:
    """Why there is no curve, if there is none."""
    if not config.privacy.enabled:
        return OFF
    return NO_GUARANTEE if config.privacy.guarantee == "none" else None


def levels(config: Config) -> list[Config]:
    """Return the same config with less and more noise, measured at the end only."""
    if why_not(config):
        return []
    privacy = config.privacy
    key = next((key for key in ("epsilon", "phi0", "phi1") if getattr(privacy, key) is not None), None)
    if key is None:
        raise ConfigError("The privacy of this config has neither a target nor a schedule.")
    others = [privacy.model_copy(update={key: getattr(privacy, key) * factor}) for factor in FACTORS]
    return [config.model_copy(update={"privacy": other, "record_every": config.rounds}) for other in others]


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
    step_size: float | None
    verdict: str | None
    tone: str
    card: PrivacyCard | None
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
        step_size=result.step_size,
        verdict=result.verdict.text if result.verdict else None,
        tone=result.verdict.tone if result.verdict else "mixed",
        card=result.privacy_card,
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
    from pgfl.results.report.pictures import network_drawing

    placed, models = network_drawing(result), result.models[0]
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
    """Return where servers stand; kept, because placing them takes as long as a training."""
    return server_places(servers, np.array(edges, dtype=np.int64).reshape(-1, 2))


def _model(result: Result, federation: Federation, q: int, model: Any) -> tuple[str, float, float | None]:
    truth = federation.truth
    error = None
    if truth is not None and truth.shape[1] == len(model):
        error = float(10 * np.log10(np.sum((model - truth[q]) ** 2) / np.sum(truth[q] ** 2)))
    return result.cluster_ids[q], float(np.linalg.norm(model)), error


class _Wanted(Observer):
    """An observer that ends a training which is not wanted any more."""

    def __init__(self, wanted: Callable[[], bool]) -> None:
        self._wanted = wanted

    def on_round(self, simulator: Simulator) -> None:
        """Raise once a newer setting is waiting."""
        if not self._wanted():
            raise Superseded


class _Path(Observer):
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


WORKERS = 2
PAGES = 256
"""As many open pages have a number of their own; with more, two pages may give up each other's trainings."""
_newest: Any = None


class Workers:
    """A few warm processes. A page takes a number, and a newer request of a page makes its older ones unwanted."""

    def __init__(self, workers: int = WORKERS) -> None:
        context = multiprocessing.get_context("spawn")
        self._newest: SynchronizedArray[int] = context.Array("Q", PAGES)
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the matrices are small, and there are several processes
        self._pool = ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(self._newest, context.Lock()))
        self._pages = count()
        for _ in range(workers):
            self._pool.submit(os.getpid)  # starts a process, which warms up

    def page(self) -> int:
        """Return a number for a new page."""
        return next(self._pages) % PAGES

    def supersede(self, page: int) -> int:
        """Make all earlier requests of a page unwanted; returns the number of the new ones."""
        with self._newest.get_lock():
            self._newest[page] += 1
            return int(self._newest[page])

    def current(self, page: int) -> int:
        """Return the number of the newest requests of a page."""
        return int(self._newest[page])

    async def play(self, page: int, number: int, config: Config, *, details: bool) -> Played | None:
        """Return a training; None if something newer was asked for meanwhile."""
        return await asyncio.wrap_future(self._pool.submit(_play, page, number, config, details))

    def close(self) -> None:
        """End the processes."""
        with self._newest.get_lock():
            for page in range(PAGES):
                self._newest[page] += 1
        self._pool.shutdown(wait=False, cancel_futures=True)


class NewestOnly:
    """Does one thing at a time; of what is asked for meanwhile, only the newest is done afterwards."""

    def __init__(self) -> None:
        self._waiting: Callable[[], Awaitable[None]] | None = None
        self._running = False

    async def ask(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do this as soon as what is being done has ended, unless something newer is asked for until then."""
        self._waiting = work
        if self._running:
            return
        self._running = True
        try:
            while self._waiting is not None:
                newest, self._waiting = self._waiting, None
                await newest()
        finally:
            self._running = False


def _begin(newest: SynchronizedArray[int], one_at_a_time: AbstractContextManager[Any]) -> None:
    """In a worker: remember what is wanted, leave Ctrl-C to the page's process, and load what every training needs."""
    import signal

    global _newest
    _newest = newest
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _warm()
    load_behind(one_at_a_time)


def _end_with_parent() -> None:
    """End when the page's process has ended, however it did: a pool whose owner was killed would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)


def _warm() -> None:
    """A training as small as possible, so that the first one of a user is not slowed down by imports."""
    from pgfl.config import parse

    tiny = {"servers": 2, "clients_per_server": 2, "dimension": 2, "clusters": 2}
    play(parse({"rounds": 2, "metrics": ["nmsd"], "data": tiny}))


def _play(page: int, number: int, config: Config, details: bool) -> Played | None:

    if _newest[page] > number:
        return None
    try:
        return play(config, details=details, wanted=lambda: _newest[page] == number)
    except Superseded:
        return None
