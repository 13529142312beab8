"""A config carried out: build the federations, train, return the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from pgfl.config import Config
from pgfl.config import warnings as config_warnings
from pgfl.config.building import build_algorithm, build_objective
from pgfl.config.schema import MnistData, ObjectiveSettings, SyntheticData, TableData
from pgfl.core.federation import Federation
from pgfl.data.fingerprint import fingerprint
from pgfl.errors import ConfigError
from pgfl.privacy.request import Privacy
from pgfl.results.result import Result
from pgfl.simulate import memory
from pgfl.simulate.problems import Objectives
from pgfl.simulate.training import Library, Progress, check_threads, train

if TYPE_CHECKING:
    from pgfl.core.topology import Graph
    from pgfl.simulate.mpi.communicator import Ranks


KERNELS: dict[str, Library] = {"mpi": "numpy", "mpi-numba": "numba"}
"""What carries out the rounds of one rank, by the engine that is asked for."""


def run(config: Config, *, out: Path | None = None, resume: bool = False, progress: Progress | None = None) -> Result:
    """Train as the config says; with a folder, checkpoints are kept there and `resume` goes on from them."""
    if config.engine in KERNELS:
        raise ConfigError(f"The {config.engine} engine runs under mpiexec: mpiexec -n 2 pgfl run … --engine mpi.")
    checkpoints = None
    if out is not None:
        from pgfl.results.folder import begin_folder
        from pgfl.simulate.checkpoint import Checkpoints

        begin_folder(out, config)
        checkpoints = Checkpoints(*_checkpointing(config, out))
    check_threads(config.threads)
    check_memory(config)
    federation_of = federations(config)
    first = federation_of(0, None)
    result = train(
        lambda run: first if run == 0 else federation_of(run, None),
        build_algorithm(config.algorithm, config.graph.mixing),
        objectives(config.objective, first),
        **_training(config),
        engine=cast("Library", config.engine),
        checkpoints=checkpoints,
        resume=resume,
        progress=progress,
    )
    return _noted(result, config)


def run_on_ranks(
    config: Config,
    ranks: Ranks,
    *,
    out: Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Result | None:
    """`run` on all ranks of an MPI job, each of which builds its own part of the data; the first one has the result."""
    from pgfl.simulate.mpi.partition import partition
    from pgfl.simulate.mpi.rank_checkpoint import RankCheckpoints
    from pgfl.simulate.mpi.rank_training import RankTraining
    from pgfl.simulate.training import Settings

    checkpoints = None
    if out is not None:
        from pgfl.results.folder import begin_folder

        ranks.together(lambda: begin_folder(out, config) if ranks.first else None)
        checkpoints = RankCheckpoints(ranks, *_checkpointing(config, out))
    ranks.together(lambda: check_threads(config.threads))
    beside = ranks.beside
    ranks.together(lambda: check_memory(config, ranks.size, beside))
    federation_of, shape_of = ranks.together(lambda: federations(config)), shapes(config)
    owners: dict[int, NDArray[np.int64]] = {}

    def owner_of(run: int) -> NDArray[np.int64]:
        if run not in owners:
            owners[run] = ranks.from_first(lambda: partition(*shape_of(run), ranks.size))
        return owners[run]

    def own_part(run: int) -> Federation:
        return federation_of(run, np.flatnonzero(owner_of(run) == ranks.rank).tolist())

    owner_of(0)
    first = ranks.together(lambda: own_part(0))
    training = RankTraining(
        ranks,
        owner_of,
        lambda run: first if run == 0 else own_part(run),
        build_algorithm(config.algorithm, config.graph.mixing),
        ranks.together(lambda: objectives(config.objective, first)),
        ranks.together(lambda: Settings(**_training(config), engine=KERNELS[config.engine])),
        checkpoints,
        progress if ranks.first else None,
        out,
    )
    result = training.result(resume)
    return _noted(result, config) if ranks.first else None


def _training(config: Config) -> dict[str, Any]:
    """How to train, beside what on."""
    return {
        "rounds": config.rounds,
        "participants": config.algorithm.participants,
        "privacy": privacy(config),
        "seed": config.seed,
        "runs": config.runs,
        "record_every": config.record_every,
        "metrics": config.metrics,
        "dtype": np.dtype(config.dtype).type,
        "threads": config.threads,
    }


def _checkpointing(config: Config, out: Path) -> tuple[Path, str, int, bool]:
    """Where checkpoints lie, what they belong to, how often they are made, and whether they hold clean models."""
    keep_clean = config.privacy.noise == "seeded" or not config.privacy.enabled
    belongs_to = fingerprint(config, of_records=keep_clean)
    return checkpoint_folder(config, out), belongs_to, config.checkpoint_every, keep_clean


def checkpoint_folder(config: Config, out: Path) -> Path:
    """Where the checkpoints of a run in `out` lie: apart, where they hold clean models of a private simulation."""
    from pgfl.results.folder import checkpoint_folders

    public, clean = checkpoint_folders(out)
    return clean if config.privacy.enabled and config.privacy.noise == "seeded" else public


def _noted(result: Result, config: Config) -> Result:
    result.config, result.intercept = config, getattr(config.data, "intercept", False)
    result.warnings = list(dict.fromkeys([*config_warnings(config), *result.warnings]))
    return result


def expected_shape(config: Config) -> memory.Shape:
    """How large a federation will be, before it is made or read; digits are few."""
    data = config.data
    if isinstance(data, MnistData):
        return memory.Shape(0, 0, 1, 0)
    if isinstance(data, TableData):
        from pgfl.data.tables import read_extent

        extent = read_extent(data.clients, data.target, data.intercept)
    else:
        clients = data.servers * data.clients_per_server
        extent = {
            "clients": clients,
            "rows": clients * sum(data.samples) // 2,
            "dimension": data.dimension,
            "pairs": min(data.servers * data.clusters, clients * data.servers),
        }
    kernels = KERNELS.get(config.engine, config.engine)
    return memory.Shape(**extent, dtype=config.dtype, engine=kernels, private=config.privacy.enabled)


def check_memory(config: Config, ranks: int = 1, beside: int = 1) -> None:
    """Refuse a run that would not fit; of one that is split over ranks, the part of those `beside` on this machine."""
    whole = expected_shape(config)
    held = {name: -(-getattr(whole, name) // ranks) for name in ("clients", "rows", "pairs")}
    keys = ("data.clients_per_server", "data.servers", "data.samples")
    lower = ("the rows of data.clients",) if isinstance(config.data, TableData) else keys
    memory.check(replace(whole, runs_together=beside, **held), lower=lower)


def federations(config: Config) -> Callable[[int, Sequence[int] | None], Federation]:
    """The federation of every run, or the part of it at some servers: generated anew, or the user's table each time."""
    data, graph, dtype = config.data, config.graph, np.dtype(config.dtype)
    common: dict[str, Any] = {"seed": config.seed, "dtype": dtype, "average_degree": graph.average_degree}
    if isinstance(data, TableData):
        from pgfl.data.tables import read_federation

        where = str(graph.edges) if graph.kind == "edges" else graph.kind

        @lru_cache(maxsize=1)
        def read(servers: tuple[int, ...] | None) -> Federation:
            return read_federation(
                data.clients,
                target=data.target,
                graph=where,
                servers=graph.servers,
                intercept=data.intercept,
                test=data.test,
                servers_subset=servers,
                **common,
            )

        return lambda run, servers: read(None if servers is None else tuple(servers))
    if graph.kind == "edges":
        raise ConfigError('`graph.kind` = "edges" names servers of a table; generated data takes another kind.')
    if isinstance(data, MnistData):
        from pgfl.data.mnist import mnist_federation

        own = data.model_dump(exclude={"kind"})
        return lambda run, servers: mnist_federation(**own, graph=graph.kind, run=run, servers_subset=servers, **common)
    assert isinstance(data, SyntheticData)
    from pgfl.data.synthetic import synthetic_regression

    own = data.model_dump(exclude={"kind"})
    return lambda run, servers: synthetic_regression(**own, graph=graph.kind, run=run, servers_subset=servers, **common)


def shapes(config: Config) -> Callable[[int], tuple[Graph, NDArray[np.int64]]]:
    """Of every run the server graph and how much data is at each server, without the data: rows, or clients."""
    data, graph = config.data, config.graph
    if isinstance(data, TableData):
        from pgfl.data.tables import read_shape

        where = str(graph.edges) if graph.kind == "edges" else graph.kind
        return lambda run: read_shape(
            data.clients,
            where,
            graph.servers,
            graph.average_degree,
            config.seed,
        )
    from pgfl.data.placement import lay_out

    def shape(run: int) -> tuple[Graph, NDArray[np.int64]]:
        layout = lay_out(
            data.servers,
            data.clients_per_server,
            len(data.tasks) if isinstance(data, MnistData) else data.clusters,
            graph=graph.kind,
            average_degree=graph.average_degree,
            seed=config.seed,
            run=run,
        )
        return layout.graph, layout.sizes

    return shape


def objectives(settings: ObjectiveSettings, federation: Federation) -> Objectives:
    """One objective for all clusters, or one a cluster; a cluster that does not exist is an error."""
    if not settings.clusters:
        return build_objective(settings)
    for name in settings.clusters:
        if name not in federation.cluster_ids:
            known = ", ".join(federation.cluster_ids[:10])
            raise ConfigError(f"[objective.clusters.{name}] names no cluster of the data; the clusters are {known}.")
    return {name: build_objective(settings.of(name)) for name in federation.cluster_ids}


def privacy(config: Config) -> Privacy | None:
    """What the config asks of privacy, or nothing where it is off."""
    return Privacy(**config.privacy.model_dump(exclude={"enabled"})) if config.privacy.enabled else None
