"""`train`: a federation, an algorithm and an objective in; a result out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pgfl.algorithms import PGFL, Algorithm, ExactMixing, swap_warning
from pgfl.errors import ConfigError, MissingExtra
from pgfl.federation import Federation
from pgfl.metrics import decibels
from pgfl.objectives import Objective, Ridge
from pgfl.result import Network as Placement
from pgfl.result import Result, RunModels
from pgfl.schedules import Participants, Scheduler
from pgfl.simulate.draws import ServerNormals
from pgfl.simulate.engine import Engine
from pgfl.simulate.layout import Layout, RunLayout, lay_out
from pgfl.simulate.problems import BLOCK_ELEMENTS, Objectives, objective_of, prepare
from pgfl.simulate.recorder import METRICS, Recorder, columns
from pgfl.solvers import tolerance_for

if TYPE_CHECKING:
    from pgfl.privacy.mechanism import Plan
    from pgfl.privacy.settings import Privacy
    from pgfl.simulate.checkpoint import Checkpoints

Library = Literal["numpy", "jax"]
Progress = Callable[[int, int, dict[str, Any]], None]
FederationOfRun = Callable[[int], Federation]
DEFAULT_METRICS = ("nmsd", "accuracy", "residuals", "disagreement")
MANY_CLUSTERS_NAMED = 6


def train(
    federation: Federation | FederationOfRun,
    algorithm: Algorithm | None = None,
    objective: Objectives | None = None,
    *,
    rounds: int = 300,
    participants: Participants = "all",
    privacy: Privacy | None = None,
    seed: int = 0,
    runs: int = 1,
    record_every: int = 1,
    metrics: Iterable[str] = DEFAULT_METRICS,
    engine: Library = "numpy",
    dtype: Any = np.float64,
    threads: int = 1,
    checkpoints: Checkpoints | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Train a model for every cluster of a federation.

    A federation is used for all `runs`, or a function gives each Monte Carlo run its own. `objective` is one for all
    clusters or a mapping from cluster ids. With `privacy` the clients' data is clipped to its bounds, releases are
    perturbed and counted, and a client whose budget is spent takes no further part.

    >>> from pgfl import PGFL, Ridge, synthetic_regression, train
    >>> federation = synthetic_regression(servers=4, clients_per_server=6, dimension=5, samples=(4, 8), seed=1)
    >>> result = train(federation, PGFL(rho=5.0, tau=0.2), Ridge(lam=0.01), rounds=40)
    >>> bool(result.curve("nmsd")[0, -1] < 0.1)
    True
    >>> result.client("client-03").shape
    (5,)
    """
    return Training(
        federation if callable(federation) else lambda run: federation,
        algorithm or PGFL(),
        objective or Ridge(),
        Settings(rounds, participants, privacy, seed, runs, record_every, tuple(metrics), dtype, threads, engine),
        checkpoints,
        progress,
    ).result(resume)


@dataclass(frozen=True)
class Settings:
    """How to train, beside what on."""

    rounds: int
    participants: Participants
    privacy: Privacy | None
    seed: int
    runs: int
    record_every: int
    metrics: tuple[str, ...]
    dtype: Any
    threads: int
    engine: Library = "numpy"

    def __post_init__(self) -> None:
        for name in ("rounds", "runs", "record_every", "threads"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1; got {getattr(self, name)}.")
        if unknown := sorted(set(self.metrics) - set(METRICS)):
            raise ConfigError(f"Unknown metric {unknown[0]}; choose from {', '.join(METRICS)}.")


@dataclass
class Batch:
    """Some runs, ready to play."""

    layout: Layout
    engine: Engine
    recorder: Recorder
    plan: Plan | None


class Training:
    """Plays all runs, some at a time."""

    def __init__(
        self,
        federation_of: FederationOfRun,
        algorithm: Algorithm,
        objectives: Objectives,
        settings: Settings,
        checkpoints: Checkpoints | None,
        progress: Progress | None,
    ) -> None:
        self.federation_of, self.algorithm, self.settings = federation_of, algorithm, settings
        self.checkpoints, self.progress = checkpoints, progress
        privacy = settings.privacy
        if privacy is not None and not isinstance(objectives, Objective):
            objectives = {name: privacy.constrained(objective) for name, objective in objectives.items()}
        elif privacy is not None:
            objectives = privacy.constrained(objectives)
        self.objectives: Objectives = objectives
        self.xp = _namespace(settings.engine)
        self.warnings: list[str] = []
        self._finished = 0

    def result(self, resume: bool = False) -> Result:
        """Train, and gather what is left."""
        began = time.perf_counter()
        batches: list[Batch] = []
        first: Federation | None = None
        models: list[RunModels] = []
        privacy: list[dict[str, NDArray[Any]]] = []
        for numbers in self._batches():
            batch = self._ready(numbers)
            first = first or batch.layout.runs[0].federation
            self._play(batch, resume)
            for run in batch.layout.runs:
                models.append(self._models(batch, run))
                if batch.plan is not None:
                    privacy.append(self._account(batch, run))
            batch.engine.close()
            batches.append(batch)
        assert first is not None
        shown = columns([row for batch in batches for row in batch.recorder.shown])
        private = self.settings.privacy is not None
        noise = self.settings.privacy.noise if self.settings.privacy else None
        clean = {} if noise == "secure" else columns([row for batch in batches for row in batch.recorder.clean])
        return Result(
            client_ids=self._client_ids(first),
            server_ids=first.server_ids,
            cluster_ids=first.cluster_ids,
            objectives=[objective_of(self.objectives, name).kind for name in first.cluster_ids],
            models=models,
            history=shown if private else {**shown, **clean},
            clean_history=clean if noise == "seeded" else None,
            privacy=privacy,
            noise=noise,
            guarantee=batches[0].plan.label if batches[0].plan else None,
            warnings=self.warnings,
            seconds=time.perf_counter() - began,
        )

    def _batches(self) -> list[range]:
        """Runs that are played together: about as many as stay in cache."""
        self._first_federation = self._bounded(0)
        size = len(self._first_federation.features) * self._first_federation.dimension
        together = max(1, min(self.settings.runs, BLOCK_ELEMENTS // max(size, 1)))
        self._warn(self._first_federation)
        return [
            range(start, min(start + together, self.settings.runs)) for start in range(0, self.settings.runs, together)
        ]

    def _bounded(self, run: int) -> Federation:
        federation = self.federation_of(run)
        return self.settings.privacy.bounded(federation) if self.settings.privacy else federation

    def _ready(self, numbers: range) -> Batch:
        settings = self.settings
        federations = [self._first_federation if run == 0 else self._bounded(run) for run in numbers]
        for federation in federations:
            self._check_targets(federation)
        layout = self._lay_out(federations, numbers.start)
        update_norm = settings.privacy.update_norm if settings.privacy else None
        blocks = prepare(layout, self.objectives, self.algorithm.rho, settings.dtype, self.xp, update_norm)
        plan, noise = self._privacy(layout)
        scheduler = Scheduler(settings.participants, layout.members, layout.server_keys, settings.seed)
        options = {"dtype": settings.dtype, "xp": self.xp, "threads": settings.threads}
        engine = self._engine(layout, blocks, self.algorithm, scheduler, privacy=plan, noise=noise, **options)
        return Batch(layout, engine, self._recorder(engine), plan)

    def _lay_out(self, federations: list[Federation], first_run: int) -> Layout:
        return lay_out(federations, first_run, self.algorithm.personalised)

    def _engine(self, *parts: Any, **options: Any) -> Engine:
        return Engine(*parts, **options)

    def _recorder(self, engine: Engine) -> Recorder:
        return Recorder(engine, self.objectives, self.settings.metrics)

    def _client_ids(self, federation: Federation) -> Sequence[str]:
        return federation.client_ids

    def _server_sizes(self, federation: Federation) -> NDArray[np.int64]:
        return federation.server_sizes

    def _privacy(self, layout: Layout) -> tuple[Plan | None, Any]:
        privacy = self.settings.privacy
        if privacy is None:
            return None, None
        from pgfl.privacy.noise import SecureNoise, SeededNoise

        dimension = layout.runs[0].federation.dimension
        normals = ServerNormals(layout, self.settings.participants, self.settings.seed, self.settings.dtype)
        noise = SecureNoise(dimension) if privacy.noise == "secure" else SeededNoise(normals)
        deltas = np.empty(layout.clients)
        for run in layout.runs:
            cluster = run.federation.client_cluster[run.order]
            for q, name in enumerate(run.federation.cluster_ids):
                objective, chosen = (
                    objective_of(self.objectives, name),
                    np.flatnonzero(cluster == q) + run.clients.start,
                )
                if not len(chosen):
                    continue
                weight = self.algorithm.rho + 2.0 * objective.lam / layout.server_clients[chosen]
                tolerance = tolerance_for(objective, self.settings.dtype, np)
                counts = layout.counts[chosen]
                deltas[chosen] = privacy.sensitivity(objective, self.algorithm, counts, weight, tolerance)
        return privacy.plan(noise.widen(deltas), self.settings.rounds), noise

    def _play(self, batch: Batch, resume: bool) -> None:
        engine, recorder, settings = batch.engine, batch.recorder, self.settings
        if not (resume and self.checkpoints and self.checkpoints.restore(engine, recorder, batch.plan)):
            recorder.record()
        runs, total = len(batch.layout.runs), settings.runs * settings.rounds
        while engine.state.round < settings.rounds:
            round = engine.play().round
            if round % settings.record_every == 0 or round == settings.rounds:
                recorder.record()
            if self.checkpoints and self.checkpoints.due(round, settings.rounds):
                engine.check_finite()
                self.checkpoints.save(engine, recorder, batch.plan)
            if self.progress:
                self.progress(self._finished + runs * round, total, self._latest(recorder, batch.plan))
        engine.check_finite()
        self._finished += runs * settings.rounds

    def _models(self, batch: Batch, run: RunLayout) -> RunModels:
        state, layout, federation = batch.engine.state, batch.layout, run.federation
        clean = np.asarray(state.model[run.clients])[run.position]
        released = None
        if batch.plan is not None:
            never = batch.plan.releases[run.clients][run.position] == 0
            released = np.array(state.released[run.clients])[run.position]
            released[never] = np.nan
        servers = np.asarray(state.server_models[run.pairs])
        present = batch.engine.network.known[run.pairs]
        pair_server, pair_cluster = layout.pair_server[run.pairs] - run.servers.start, layout.pair_cluster[run.pairs]
        if not self.algorithm.personalised:
            clusters = len(federation.cluster_ids)
            pair_server, pair_cluster = (
                np.repeat(pair_server, clusters),
                np.tile(np.arange(clusters), len(pair_cluster)),
            )
            servers, present = np.repeat(servers, clusters, axis=0), np.repeat(present, clusters)
        keep_clean = self.settings.privacy is None or self.settings.privacy.noise == "seeded"
        return RunModels(
            clients=clean if keep_clean else None,
            released=released,
            pair_server=pair_server,
            pair_cluster=pair_cluster,
            servers=servers,
            present=present,
            network=Placement(federation.client_server, federation.client_cluster, federation.graph.edges),
        )

    def _account(self, batch: Batch, run: RunLayout) -> dict[str, NDArray[Any]]:
        assert batch.plan is not None
        table = batch.plan.table(batch.engine.state.round)
        ids: Sequence[str] = run.federation.client_ids
        return {"client": np.array(ids)} | {name: values[run.clients][run.position] for name, values in table.items()}

    def _latest(self, recorder: Recorder, plan: Plan | None) -> dict[str, Any]:
        """What a progress display shows: the newest measures, and the worst spending so far."""
        info: dict[str, Any] = {}
        rows = recorder.clean if plan is None else recorder.shown
        if rows and "nmsd" in rows[-1]:
            info["nmsd_db"] = float(decibels(rows[-1]["nmsd"]))
        if rows and "accuracy" in rows[-1]:
            info["accuracy"] = rows[-1]["accuracy"]
        if plan is not None and plan.guarantee == "required":
            info["rho_worst"] = float(plan.rho.max())
        return info

    def _check_targets(self, federation: Federation) -> None:
        if isinstance(self.objectives, Objective):
            self.objectives.check_targets(federation.targets)
            return
        for q, name in enumerate(federation.cluster_ids):
            mine = np.repeat(federation.client_cluster == q, federation.counts)
            objective_of(self.objectives, name).check_targets(federation.targets[mine])

    def _warn(self, federation: Federation) -> None:
        clusters, participants = len(federation.cluster_ids), self.settings.participants
        if self.algorithm.personalised and (swapping := swap_warning(self.algorithm.tau, clusters)):
            self.warnings.append(swapping)
        if participants != "all":
            sizes = self._server_sizes(federation)
            small = np.flatnonzero((sizes < participants) & (sizes > 0))
            if len(small):
                self.warnings.append(
                    f"{len(small)} servers have fewer than {participants} clients ({federation.server_ids[small[0]]} has "
                    f"{sizes[small[0]]}); there all clients take part."
                )
        if not federation.graph.connected and len(federation.graph.edges):
            self.warnings.append(_components_sentence(federation))
        if isinstance(self.algorithm, ExactMixing) and (participants != "all" or self.algorithm.tau != 0.0):
            self.warnings.append(
                "Exact mixing is exact only with tau = 0 and all clients taking part; elsewhere the plain rule does as "
                "well or better."
            )


def _components_sentence(federation: Federation) -> str:
    parts: dict[int, list[str]] = {}
    for server, component in zip(federation.server_ids, federation.graph.components.tolist(), strict=True):
        parts.setdefault(component, []).append(server)
    named = [
        "{" + ", ".join(names[:MANY_CLUSTERS_NAMED]) + (", …" if len(names) > MANY_CLUSTERS_NAMED else "") + "}"
        for names in list(parts.values())[:MANY_CLUSTERS_NAMED]
    ]
    more = f" and {len(parts) - MANY_CLUSTERS_NAMED} more" if len(parts) > MANY_CLUSTERS_NAMED else ""
    return f"The server graph falls into {len(parts)} parts that never hear of each other: {', '.join(named)}{more}."


def _namespace(engine: Library) -> Any:
    if engine == "numpy":
        return np
    if engine == "jax":
        try:
            from pgfl.simulate.jax import namespace
        except ImportError as error:
            raise MissingExtra("The jax engine needs JAX; install it with pip install 'pgfl[jax]'.") from error
        return namespace()
    raise ConfigError(f"Unknown engine {engine!r}; choose numpy or jax.")
