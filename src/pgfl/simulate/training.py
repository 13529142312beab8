"""`train`: a federation, an algorithm and an objective in; a result out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pgfl.core.algorithms import PGFL, Algorithm, ExactMixing, swap_warning
from pgfl.core.federation import Federation
from pgfl.core.schedules import Participants, Scheduler
from pgfl.errors import ConfigError, MissingExtra
from pgfl.objectives import Objective, Ridge
from pgfl.objectives.solving import tolerance_for
from pgfl.results.result import Network as Placement
from pgfl.results.result import Result, RunModels
from pgfl.simulate import memory
from pgfl.simulate.draws import ServerNormals
from pgfl.simulate.engine import AnyBlock, Engine
from pgfl.simulate.flat_layout import Layout, RunLayout, lay_out
from pgfl.simulate.problems import Objectives, objective_of, prepare
from pgfl.simulate.recorder import METRICS, Recorder, columns

if TYPE_CHECKING:
    from pgfl.privacy.mechanism import Plan
    from pgfl.privacy.request import Privacy
    from pgfl.simulate.checkpoint import Checkpoints

Library = Literal["numpy", "numba", "jax"]
Progress = Callable[[int, int, dict[str, Any]], None]
FederationOfRun = Callable[[int], Federation]
DEFAULT_METRICS = ("nmsd", "accuracy", "residuals", "disagreement")
MANY_CLUSTERS_NAMED = 6
BATCH_ELEMENTS = 2**18  # elements of features that are played together: more do not stay in cache
THREADS_A_CORE = 8
BETWEEN_REPORTS = 0.1  # seconds
MEMORY_SHOWN = 2**30  # bytes from which a progress display speaks of memory
ELEMENTS_A_THREAD = 2**20  # below, a thread costs more than it brings


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
    threads: int | None = None,
    checkpoints: Checkpoints | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Train a model for every cluster of a federation.

    A federation is used for all `runs`, or a function gives each Monte Carlo run its own. `objective` is one for all
    clusters or a mapping from cluster ids. With `privacy` the clients' data is clipped to its bounds, releases are
    perturbed and counted, and a client whose budget is spent takes no further part.

    Engines differ in speed, not in results: "numpy" needs nothing else, "numba" is fastest on CPUs and copies no data,
    "jax" runs on accelerators. `threads` is as many as pay off unless given; results do not depend on it.

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
    threads: int | None
    engine: Library = "numpy"

    def __post_init__(self) -> None:
        for name in ("rounds", "runs", "record_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1; got {getattr(self, name)}.")
        check_threads(self.threads)
        if unknown := sorted(set(self.metrics) - set(METRICS)):
            raise ConfigError(f"Unknown metric {unknown[0]}; choose from {', '.join(METRICS)}.")


def check_threads(threads: int | None) -> None:
    """Raise for a number of threads that makes no sense on this machine."""
    most = THREADS_A_CORE * cores()
    if threads is not None and not 1 <= threads <= most:
        raise ConfigError(
            f"threads = {threads} makes no sense on a machine with {cores()} cores; give 1 to {most}, or leave it out."
        )


def cores() -> int:
    """How many cores this process may use."""
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
        self.objectives = _constrained(objectives, settings.privacy)
        self.xp = _namespace(settings.engine)
        self.warnings: list[str] = []
        self._finished, self._report_due = 0, 0.0

    def result(self, resume: bool = False) -> Result:
        """Train, and gather what is left."""
        began = time.perf_counter()
        first: Federation | None = None
        guarantee: str | None = None
        models: list[RunModels] = []
        privacy: list[dict[str, NDArray[Any]]] = []
        shown_rows: list[dict[str, float]] = []
        clean_rows: list[dict[str, float]] = []
        for numbers in self._batches():
            batch = self._ready(numbers)
            first = first or batch.layout.runs[0].federation
            guarantee = batch.plan.label if batch.plan else None
            self._play(batch, resume)
            batch.engine.close()
            for run in batch.layout.runs:
                models.append(self._models(batch, run))
                if batch.plan is not None:
                    privacy.append(self._account(batch, run))
            shown_rows += batch.recorder.shown
            clean_rows += batch.recorder.clean
        assert first is not None
        shown = columns(shown_rows)
        private = self.settings.privacy is not None
        noise = self._noise
        clean = {} if noise == "secure" else columns(clean_rows)
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
            guarantee=guarantee,
            warnings=self.warnings,
            seconds=time.perf_counter() - began,
        )

    def _batches(self) -> list[range]:
        """Runs that are played together: about as many as stay in cache."""
        self._first_federation = self._bounded(0)
        size = len(self._first_federation.features) * self._first_federation.dimension
        together = max(1, min(self.settings.runs, BATCH_ELEMENTS // max(size, 1)))
        memory.check(self._shape(self._first_federation, together), held=self._first_federation.features.nbytes)
        self._warn(self._first_federation)
        return [
            range(start, min(start + together, self.settings.runs)) for start in range(0, self.settings.runs, together)
        ]

    @property
    def _noise(self) -> str | None:
        """The source of the noise; None without privacy."""
        privacy = self.settings.privacy
        return privacy.noise_for(self._first_federation) if privacy else None

    def _shape(self, federation: Federation, together: int) -> memory.Shape:
        settings = self.settings
        return memory.Shape(
            clients=federation.size,
            rows=len(federation.features),
            dimension=federation.dimension,
            pairs=len(federation.server_ids) * min(len(federation.cluster_ids), federation.size),
            runs_together=together,
            dtype=np.dtype(settings.dtype).name,
            engine=settings.engine,
            private=settings.privacy is not None,
        )

    def _bounded(self, run: int) -> Federation:
        federation = self.federation_of(run)
        return self.settings.privacy.bounded(federation, self.settings.dtype) if self.settings.privacy else federation

    def _ready(self, numbers: range) -> Batch:
        settings = self.settings
        federations = [self._first_federation if run == 0 else self._bounded(run) for run in numbers]
        for federation in federations:
            self._check_targets(federation)
        layout = self._lay_out(federations, numbers.start)
        plan, noise = self._privacy(layout)
        threads = settings.threads or self._useful_threads(layout)
        kind, blocks = self._engine(layout, threads)
        engine = kind(
            layout,
            blocks,
            self.algorithm,
            Scheduler(settings.participants, layout.members, layout.server_keys, settings.seed),
            privacy=plan,
            noise=noise,
            dtype=settings.dtype,
            xp=self.xp,
            threads=threads,
        )
        return Batch(layout, engine, self._recorder(engine), plan)

    def _lay_out(self, federations: list[Federation], first_run: int) -> Layout:
        return lay_out(federations, first_run, self.algorithm.personalised)

    def _recorder(self, engine: Engine) -> Recorder:
        return Recorder(engine, self.objectives, self.settings.metrics)

    def _client_ids(self, federation: Federation) -> Sequence[str]:
        return federation.client_ids

    def _server_sizes(self, federation: Federation) -> NDArray[np.int64]:
        return federation.server_sizes

    def _most_records(self, federation: Federation) -> int:
        return int(federation.counts.max())

    def _engine(self, layout: Layout, threads: int) -> tuple[type[Engine], Sequence[AnyBlock]]:
        """The engine's class, and all problems, factored."""
        settings, rho = self.settings, self.algorithm.rho
        update_norm = settings.privacy.update_norm if settings.privacy else None
        if settings.engine == "numba" and self.algorithm.has_dual:
            from pgfl.simulate import numba_engine as fast

            return fast.FastEngine, fast.prepare(layout, self.objectives, rho, settings.dtype, update_norm, threads)
        chosen = Engine
        if settings.engine == "jax":
            from pgfl.simulate.jax_engine import JaxEngine as chosen
        return chosen, prepare(layout, self.objectives, rho, settings.dtype, self.xp, update_norm)

    def _useful_threads(self, layout: Layout) -> int:
        elements = int(layout.counts.sum()) * layout.runs[0].federation.dimension
        return max(1, min(cores(), elements // ELEMENTS_A_THREAD)) if self.settings.engine == "numba" else 1

    def _privacy(self, layout: Layout) -> tuple[Plan | None, Any]:
        privacy = self.settings.privacy
        if privacy is None:
            return None, None
        from pgfl.privacy.noise import SecureNoise, SeededNoise

        dimension = layout.runs[0].federation.dimension
        normals = ServerNormals(layout, self.settings.participants, self.settings.seed, self.settings.dtype)
        noise = SecureNoise(dimension) if self._noise == "secure" else SeededNoise(normals)
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
                modulus = self.algorithm.rho + 2.0 * objective.lam / layout.server_clients[chosen]
                tolerance = tolerance_for(objective, self.settings.dtype, np)
                counts = layout.counts[chosen]
                deltas[chosen] = privacy.sensitivity(objective, self.algorithm, counts, modulus, tolerance)
        plan = privacy.plan(noise.widen(deltas), self.settings.rounds)
        noise.check(plan.least_sigma)
        return plan, noise

    def _play(self, batch: Batch, resume: bool) -> None:
        engine, recorder, settings = batch.engine, batch.recorder, self.settings
        if not (resume and self.checkpoints and self.checkpoints.restore(engine, recorder, batch.plan)):
            recorder.record()
        with self.checkpoints.patient() if self.checkpoints else nullcontext():
            while engine.state.round < settings.rounds:
                self._advance(batch)
        engine.check_finite()
        self._finished += len(batch.layout.runs) * settings.rounds

    def _advance(self, batch: Batch) -> None:
        """One round, and what is due after it: measures, a checkpoint, a word on the progress."""
        engine, recorder, settings = batch.engine, batch.recorder, self.settings
        round = engine.play().round
        if round % settings.record_every == 0 or round == settings.rounds:
            recorder.record()
        if self.checkpoints and self.checkpoints.due(round, settings.rounds):
            engine.check_finite()
            self.checkpoints.save(engine, recorder, batch.plan)
            if self.checkpoints.stopping:
                raise KeyboardInterrupt
        if self.progress and (round == settings.rounds or time.monotonic() >= self._report_due):
            self._report_due = time.monotonic() + BETWEEN_REPORTS
            done, total = self._finished + len(batch.layout.runs) * round, settings.runs * settings.rounds
            self.progress(done, total, self._latest(recorder, batch.plan))

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
        keep_clean = self._noise != "secure"
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
            info["nmsd"] = rows[-1]["nmsd"]
        if rows and "accuracy" in rows[-1]:
            info["accuracy"] = rows[-1]["accuracy"]
        if (held := memory.resident()) is not None and held >= MEMORY_SHOWN:
            info["memory_gib"] = held / 2**30
        if plan is not None and plan.guarantee == "required":
            from pgfl.privacy.accounting import exact_epsilon

            info["epsilon"] = float(exact_epsilon(plan.rho.max(), plan.delta))
        return info

    def _check_targets(self, federation: Federation) -> None:
        suitable = np.ones(len(federation.targets), dtype=bool)
        for q, name in enumerate(federation.cluster_ids):
            mine = np.repeat(federation.client_cluster == q, federation.counts)
            suitable[mine] = objective_of(self.objectives, name).suitable(federation.targets[mine])
        if not suitable.all():
            client = int(np.searchsorted(federation.offsets, np.argmin(suitable), side="right")) - 1
            objective = objective_of(self.objectives, federation.cluster_ids[federation.client_cluster[client]])
            objective.check_targets(federation.rows(client)[1], f"Client {federation.client_id(client)}: ")

    def _warn(self, federation: Federation) -> None:
        clusters, participants = len(federation.cluster_ids), self.settings.participants
        if self.algorithm.personalised and (swapping := swap_warning(self.algorithm.tau, clusters)):
            self.warnings.append(swapping)
        if participants != "all":
            sizes = self._server_sizes(federation)
            small = np.flatnonzero((sizes < participants) & (sizes > 0))
            if len(small):
                self.warnings.append(
                    f"{len(small)} servers have fewer than {participants} clients ({federation.server_ids[small[0]]} "
                    f"has {sizes[small[0]]}); there all clients take part."
                )
        if (privacy := self.settings.privacy) and privacy.guarantee == "required":
            records = self._most_records(federation)
            if privacy.delta * records >= 1.0:
                self.warnings.append(
                    f"delta = {privacy.delta:g} is not below 1/D for a client with {records} records: publishing one "
                    "of them at random would keep such a promise; choose a smaller delta."
                )
        if not federation.graph.connected:
            self.warnings.append(_components_sentence(federation))
        if isinstance(self.algorithm, ExactMixing) and (participants != "all" or self.algorithm.tau != 0.0):
            self.warnings.append(
                "Exact mixing is exact only with tau = 0 and all clients taking part; elsewhere the plain rule does as "
                "well or better."
            )


def _constrained(objectives: Objectives, privacy: Privacy | None) -> Objectives:
    """The objectives with the constraints that privacy puts on them."""
    if privacy is None:
        return objectives
    if isinstance(objectives, Objective):
        return privacy.constrained(objectives)
    return {name: privacy.constrained(objective) for name, objective in objectives.items()}


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
    if engine == "numba":
        if find_spec("numba") is None:
            raise MissingExtra("The numba engine needs Numba; install it with pip install 'pgfl[fast]'.")
        return np
    if engine == "jax":
        try:
            from pgfl.simulate.jax_engine import namespace
        except ImportError as error:
            raise MissingExtra("The jax engine needs JAX; install it with pip install 'pgfl[jax]'.") from error
        return namespace()
    raise ConfigError(f"Unknown engine {engine!r}; choose numpy, numba or jax.")
