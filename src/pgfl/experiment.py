"""A config carried out: build the federations, train, return the result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from pgfl.algorithms import KINDS as ALGORITHMS
from pgfl.algorithms import Algorithm, FedAvg
from pgfl.config import Config, fingerprint
from pgfl.config import warnings as config_warnings
from pgfl.config.schema import AlgorithmSettings, Decay, MnistData, ObjectiveSettings, SyntheticData, TableData
from pgfl.errors import ConfigError
from pgfl.federation import Federation
from pgfl.objectives import KINDS as OBJECTIVES
from pgfl.objectives import Huber, Objective
from pgfl.privacy.settings import Privacy
from pgfl.result import Result
from pgfl.schedules import Decaying
from pgfl.simulate import memory
from pgfl.simulate.problems import Objectives
from pgfl.training import Progress, check_threads, train


def run(config: Config, *, out: Path | None = None, resume: bool = False, progress: Progress | None = None) -> Result:
    """Train as the config says; with a folder, checkpoints are kept there and `resume` goes on from them."""
    checkpoints = None
    if out is not None:
        from pgfl.folder import begin_folder, checkpoint_folders
        from pgfl.simulate.checkpoint import Checkpoints

        begin_folder(out, config)
        public, clean = checkpoint_folders(out)
        seeded, private = config.privacy.noise == "seeded", config.privacy.enabled
        folder = clean if private and seeded else public
        checkpoints = Checkpoints(folder, fingerprint(config), config.checkpoint_every, seeded or not private)
    if config.engine == "mpi":
        raise ConfigError("The mpi engine runs under mpiexec: mpiexec -n 2 pgfl run … --engine mpi.")
    check_threads(config.threads)
    memory.check(expected_shape(config))
    federation_of = federations(config)
    first = federation_of(0)
    result = train(
        lambda run: first if run == 0 else federation_of(run),
        algorithm(config.algorithm, config.graph.mixing),
        objectives(config.objective, first),
        rounds=config.rounds,
        participants=config.algorithm.participants,
        privacy=privacy(config),
        seed=config.seed,
        runs=config.runs,
        record_every=config.record_every,
        metrics=config.metrics,
        engine=config.engine,
        dtype=np.dtype(config.dtype).type,
        threads=config.threads,
        checkpoints=checkpoints,
        resume=resume,
        progress=progress,
    )
    result.config, result.intercept = config, getattr(config.data, "intercept", False)
    result.warnings = list(dict.fromkeys([*config_warnings(config), *result.warnings]))
    return result


def expected_shape(config: Config) -> memory.Shape:
    """How large a generated federation will be, before it is; a table is measured once it is read."""
    data = config.data
    if not isinstance(data, SyntheticData):
        return memory.Shape(0, 0, 1, 0)
    clients = data.servers * data.clients_per_server
    return memory.Shape(
        clients=clients,
        rows=clients * sum(data.samples) // 2,
        dimension=data.dimension,
        pairs=min(data.servers * data.clusters, clients * data.servers),
        dtype=config.dtype,
        engine=config.engine,
        private=config.privacy.enabled,
    )


def federations(config: Config) -> Callable[[int], Federation]:
    """The federation of every run: generated anew, or the user's table each time."""
    data, graph, dtype = config.data, config.graph, np.dtype(config.dtype)
    common = {"seed": config.seed, "dtype": dtype, "average_degree": graph.average_degree}
    if isinstance(data, TableData):
        from pgfl.data.tables import read_federation

        where = graph.edges if graph.kind == "edges" else graph.kind
        table = read_federation(
            data.clients,
            target=data.target,
            graph=where,  # type: ignore[arg-type]
            servers=graph.servers,
            intercept=data.intercept,
            test=data.test,
            **common,  # type: ignore[arg-type]
        )
        return lambda run: table
    if graph.kind == "edges":
        raise ConfigError('`graph.kind` = "edges" names servers of a table; generated data takes another kind.')
    if isinstance(data, MnistData):
        from pgfl.data.mnist import mnist_federation

        return lambda run: mnist_federation(
            tasks=data.tasks,
            samples=data.samples,
            servers=data.servers,
            clients_per_server=data.clients_per_server,
            source=data.source,
            intercept=data.intercept,
            graph=graph.kind,
            run=run,
            **common,  # type: ignore[arg-type]
        )
    assert isinstance(data, SyntheticData)
    from pgfl.data.synthetic import synthetic_regression

    own = data.model_dump(exclude={"kind"})
    return lambda run: synthetic_regression(**own, graph=graph.kind, run=run, **common)  # type: ignore[arg-type]


def algorithm(settings: AlgorithmSettings, mixing: str) -> Algorithm:
    """The algorithm that a config names."""
    kind = ALGORITHMS[settings.kind]
    if kind is FedAvg:
        return FedAvg(settings.step, settings.local_steps, mixing)  # type: ignore[arg-type]
    tau = Decaying(settings.tau.start, settings.tau.decay) if isinstance(settings.tau, Decay) else settings.tau
    weights = "metropolis" if settings.kind == "pgfl-exact" else mixing
    return kind(rho=settings.rho, tau=tau, mixing=weights)  # type: ignore[call-arg, arg-type]


def objectives(settings: ObjectiveSettings, federation: Federation) -> Objectives:
    """One objective for all clusters, or one a cluster; a cluster that does not exist is an error."""
    if not settings.clusters:
        return _objective(settings)
    for name in settings.clusters:
        if name not in federation.cluster_ids:
            known = ", ".join(federation.cluster_ids[:10])
            raise ConfigError(f"[objective.clusters.{name}] names no cluster of the data; the clusters are {known}.")
    return {name: _objective(settings.of(name)) for name in federation.cluster_ids}


def _objective(settings: ObjectiveSettings) -> Objective:
    kind = OBJECTIVES[settings.kind]
    extra = {"kappa": settings.kappa} if kind is Huber else {}
    return kind(lam=settings.lam, tolerance=settings.tolerance, **extra)


def privacy(config: Config) -> Privacy | None:
    """What the config asks of privacy, or nothing where it is off."""
    return Privacy(**config.privacy.model_dump(exclude={"enabled"})) if config.privacy.enabled else None
