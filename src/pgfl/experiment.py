"""A config carried out: build the federations, train, return the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from pgfl.algorithms.schedules import ALIASES
from pgfl.arrays import Ints
from pgfl.config import Config
from pgfl.config import warnings as config_warnings
from pgfl.config.building import build_objectives, build_privacy
from pgfl.config.fingerprint import fingerprint
from pgfl.errors import ConfigError
from pgfl.federation.federation import Federation
from pgfl.federation.map_choice import choose_map
from pgfl.privacy.carried import Statement
from pgfl.results.folder import checkpoint_folder
from pgfl.results.result import Result
from pgfl.simulate import memory
from pgfl.simulate.checkpoint import Checkpoints
from pgfl.simulate.communicator import SINGLE_PROCESS, Communicator
from pgfl.simulate.engines import check_engine
from pgfl.simulate.observers import Observer
from pgfl.simulate.options import Performance, TrainingOptions
from pgfl.simulate.problems import Objectives
from pgfl.simulate.progress import LiveHistory
from pgfl.simulate.training import Progress, train_runs

NUMBERS = ("ridge", "huber")
Federations = Callable[[int, Sequence[int] | None], Federation]
"""The federation of a run, or its part at some servers."""


def run(
    config: Config,
    *,
    out: Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    communicator: Communicator = SINGLE_PROCESS,
    observers: Sequence[Observer] = (),
    kernels_loaded: bool = False,
) -> Result:
    """Train as the config says; with a folder, checkpoints are kept there and `resume` goes on from them.

    On several processes, each builds its own part of the data, and the first one has the whole result. `observers` are
    called as `train` calls them. A caller whose process has `kernels_loaded` has them used for short trainings, too.
    """
    local_size = communicator.local_size
    config = with_chosen_map(config, communicator)[0]

    def prepare() -> tuple[TrainingOptions, Result | None, Checkpoints | None, Federations]:
        options, start = _options(config, communicator, kernels_loaded), _start(config)
        memory.check_config(config, communicator.size, local_size)
        checkpoints = None if out is None else _checkpoints(config, out, communicator)
        return options, start, checkpoints, config.federations()

    options, start, checkpoints, federation_of = communicator.collective(prepare)

    @cache
    def owners_of(run: int) -> Ints | None:
        return _owners(config, run, communicator) if communicator.launched else None

    def part_of(run: int) -> Federation:
        owner = owners_of(run)
        servers = None if owner is None else np.flatnonzero(owner == communicator.rank).tolist()
        return federation_of(run, servers)

    owners_of(0)

    def build() -> tuple[Federation, Objectives]:
        first = part_of(0)
        return first, build_objectives(config.objective, first.cluster_ids)

    first, objectives = communicator.collective(build)
    result = train_runs(
        lambda run: first if run == 0 else part_of(run),
        config.algorithm.build(config.graph.mixing),
        objectives,
        options,
        checkpoints=checkpoints,
        resume=resume,
        progress=progress if communicator.first else None,
        communicator=communicator,
        owners_of=owners_of,
        folder=out,
        start=start,
        stated=Statement(config.new_clients, config.moved_records),
        observers=[*observers, *([LiveHistory(out)] if out is not None and communicator.first else [])],
    )
    result.config, result.intercept = config, getattr(config.data, "intercept", False)
    result.warnings = list(dict.fromkeys([*config_warnings(config), *result.warnings]))
    return result


def with_chosen_map(config: Config, communicator: Communicator = SINGLE_PROCESS) -> tuple[Config, str]:
    """Return the config with the row map that its records ask for where it leaves one open, and the reason.

    Under privacy records may not choose; a plan does.
    """
    if not config.data.leaves_map_open:
        return config, ""
    if config.privacy.enabled and config.privacy.guarantee == "required":
        raise ConfigError(
            '`data.map` = "auto" is chosen by a plan where privacy is on; use `pgfl run`, or `pgfl plan CONFIG --out`.'
        )

    def chosen() -> tuple[Config, str]:
        plain = config.model_copy(update={"data": config.data.model_copy(update={"map": None})})
        first = plain.federations()(0, None)
        found = choose_map(first, _mean_lam(config, first), labels=config.objective.kind not in NUMBERS)
        data = config.data.model_copy(update={"map": found.maps or None})
        return config.model_copy(update={"data": data}), found.reason

    return communicator.broadcast(chosen)


def _mean_lam(config: Config, federation: Federation) -> float:
    """Return λ as it weighs beside the mean loss: clients of a cluster at a server share it."""
    pairs = {*zip(federation.client_server.tolist(), federation.client_cluster.tolist(), strict=True)}
    return config.objective.lam * len(pairs) / federation.size


def _options(config: Config, communicator: Communicator, kernels_loaded: bool) -> TrainingOptions:
    if config.engine in ALIASES and not communicator.launched:
        raise ConfigError(f"The {config.engine} engine runs under mpiexec: mpiexec -n 2 pgfl run … --engine mpi.")
    options = TrainingOptions(
        rounds=config.rounds,
        participants=config.algorithm.participants,
        delays=config.algorithm.delays.build() if config.algorithm.delays else None,
        privacy=build_privacy(config),
        seed=config.seed,
        runs=config.runs,
        record_every=config.record_every,
        metrics=config.metrics,
        dtype=np.dtype(config.dtype).type,
        stop=config.stop or TrainingOptions.stop,
        performance=Performance(ALIASES.get(config.engine, config.engine), config.threads, kernels_loaded),
        discover=config.clusters.discover,
    )
    check_engine(options, communicator.size)
    return options


def _start(config: Config) -> Result | None:
    """The result that the config goes on from."""
    if config.continues is None:
        if config.new_clients or config.moved_records is not None:
            raise ConfigError("`new_clients` and `moved_records` are about a run that is continued; give --continue.")
        return None
    start = Result.load(config.continues)
    if start.private and not config.privacy.enabled:
        raise ConfigError(f"The run in {config.continues} was private; keep its [privacy] to go on with it.")
    return start


def _owners(config: Config, run: int, communicator: Communicator) -> Ints:
    """The process of every server of a run."""
    from pgfl.simulate.mpi.partition import partition

    return communicator.broadcast(lambda: partition(*config.shapes()(run), communicator.size))


def _checkpoints(config: Config, out: Path, communicator: Communicator) -> Checkpoints:
    keep_clean = config.privacy.noise == "seeded" or not config.privacy.enabled
    belongs_to = fingerprint(config, of_records=keep_clean)
    folder = checkpoint_folder(out, config)
    return Checkpoints(folder, belongs_to, config.checkpoint_every, keep_clean, communicator)
