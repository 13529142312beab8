"""What is measured: experiments that can be sent to another process, each giving arrays with one row per run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np

from pgfl.algorithms.algorithms import Algorithm
from pgfl.algorithms.schedules import Library, Participants
from pgfl.arrays import AnyArray, Bools
from pgfl.federation.digits import PIXELS
from pgfl.federation.federation import Federation, TestSet
from pgfl.federation.mnist import mnist_federation
from pgfl.federation.synthetic import synthetic_regression
from pgfl.metrics import deviation
from pgfl.objectives import Objective
from pgfl.privacy.request import Privacy
from pgfl.simulate.observers import Observer
from pgfl.simulate.options import Performance, TrainingOptions
from pgfl.simulate.simulator import Simulator
from pgfl.simulate.training import train

ENGINE: Library = "numba" if find_spec("numba") else "numpy"
"""Compiled if Numba is there, whatever the length of a training: a worker loads the kernels once for all of them."""

KEPT, KEPT_DIGITS = 30, 10
"""How many federations a worker keeps: those of one seed serve all experiments on the same data."""

Measured = dict[str, AnyArray]
"""By name, what was measured; the first axis is the run."""


class Experiment(Protocol):
    """Anything that can be run: hashable, so that the same experiment in two figures is run once.

    Runs of different experiments with the same seed share data, network, participants and noise, so that their
    differences are paired.
    """

    @property
    def cost(self) -> float:
        """Seconds that one run takes, roughly; only the progress bar and the order of work depend on it."""
        ...

    def run(self, seed: int, runs: int) -> Measured:
        """Carry out that many runs."""
        ...


@dataclass(frozen=True)
class RegressionData:
    """Section V-A."""

    gamma: float = 0.15
    observation_noise: float = 1.0
    x_norm: float | None = None
    samples: tuple[int, int] = (2, 9)
    graph: str = "random"
    servers: int = 10
    clients_per_server: int = 15

    @lru_cache(KEPT)  # noqa: B019 (data are values, and few)
    def federation(self, seed: int, run: int) -> Federation:
        """The federation of one run."""
        return self._generated(seed, run, gamma=self.gamma)

    def _generated(self, seed: int, run: int, **settings: Any) -> Federation:
        return synthetic_regression(
            observation_noise=self.observation_noise,
            x_norm=self.x_norm,
            samples=self.samples,
            graph=self.graph,
            servers=self.servers,
            clients_per_server=self.clients_per_server,
            seed=seed,
            run=run,
            **settings,
        )


@dataclass(frozen=True)
class DigitData:
    """Section V-B: "pairs" or "triplets", from the images in the package or from the originals in a folder."""

    tasks: str
    source: str | None = None
    graph: str = "random"
    servers: int = 10
    clients_per_server: int = 15

    @lru_cache(KEPT_DIGITS)  # noqa: B019
    def federation(self, seed: int, run: int) -> Federation:
        """The federation of one run."""
        return mnist_federation(
            self.tasks,
            servers=self.servers,
            clients_per_server=self.clients_per_server,
            graph=self.graph,
            seed=seed,
            run=run,
            source=self.source,
        )


@dataclass(frozen=True)
class PooledDigits(DigitData):
    """The same images, 14 × 14: squares of four pixels are averaged, then every image is divided by its norm again.

    That is preconditioning by a public guess of the curvature: strokes are wide, so neighbouring pixels are alike.
    """

    @lru_cache(KEPT_DIGITS)  # noqa: B019
    def federation(self, seed: int, run: int) -> Federation:
        """The federation of one run."""
        made = super().federation(seed, run)
        own = made.tests or {}
        tests = {name: TestSet(_pooled(test.features), test.targets) for name, test in own.items()}
        return made.replace(features=_pooled(made.features), tests=tests, generated=made.generated)


def _pooled(images: AnyArray) -> AnyArray:
    side = math.isqrt(PIXELS) // 2
    squares = np.asarray(images).reshape(len(images), side, 2, side, 2).mean(axis=(2, 4)).reshape(len(images), -1)
    return np.asarray(squares / np.maximum(np.linalg.norm(squares, axis=1, keepdims=True), np.finfo(float).tiny))


@dataclass(frozen=True)
class Trial:
    """A training that is repeated: the curves of a figure."""

    data: RegressionData | DigitData
    algorithm: Algorithm
    objective: Objective
    participants: Participants = "all"
    privacy: Privacy | None = None
    rounds: int = 300
    metrics: tuple[str, ...] = ("nmsd",)
    record_every: int = 1
    received: bool = False  # whether the models that clients receive are measured, not the clean ones they compute

    @property
    def cost(self) -> float:
        """Measured once on one core."""
        size = self.data.servers * self.data.clients_per_server / 150
        return size * self._cost_of_150_clients

    @property
    def _cost_of_150_clients(self) -> float:
        everyone = self.participants == "all"
        if isinstance(self.data, DigitData):
            training, scoring = (0.0033, 0.055) if self.data.tasks == "pairs" else (0.021, 0.12)
            return training * self.rounds + scoring * self.rounds / self.record_every
        if self.objective.kind == "ridge":
            a_round = 6e-4 if self.algorithm.kind == "fedavg" and everyone else 2.8e-4
        else:
            a_round = 6.5e-4 * (5.0 if everyone else 1.0) * max(1.0, self.data.samples[1] / 9)
        return a_round * self.rounds

    def run(self, seed: int, runs: int) -> Measured:
        """Every metric of the clients' models (runs × recorded rounds), the rounds, and the worst client's ε."""
        result = train(
            lambda run: self.data.federation(seed, run),
            self.algorithm,
            self.objective,
            rounds=self.rounds,
            participants=self.participants,
            privacy=self.privacy,
            seed=seed,
            runs=runs,
            metrics=self.metrics,
            record_every=self.record_every,
            engine=ENGINE,
            threads=1,
        )
        history = {**result.history, **({} if self.received else result.clean_history or {})}
        found: Measured = {
            name: values.reshape(runs, -1) for name, values in history.items() if name not in ("run", "round")
        }
        found["round"] = history["round"].reshape(runs, -1)
        guaranteed = self.privacy is not None and self.privacy.guarantee == "required"
        found["epsilon"] = np.array(
            [table["epsilon"].max() if guaranteed else np.inf for table in result.privacy] or [np.inf] * runs
        )
        return found


@dataclass(frozen=True)
class FromSeed:
    """A trial on federations that nothing was tuned on: its seeds are counted from another one."""

    trial: Experiment
    first: int

    @property
    def cost(self) -> float:
        """That of the trial."""
        return self.trial.cost

    def run(self, seed: int, runs: int) -> Measured:
        """The trial with a later seed."""
        return self.trial.run(self.first + seed, runs)


@dataclass(frozen=True)
class TailAverage:
    """A trial whose servers' models are averaged over the last share of its rounds; that costs no privacy."""

    trial: Trial
    share: float

    @property
    def cost(self) -> float:
        """That of the trial."""
        return self.trial.cost

    def run(self, seed: int, runs: int) -> Measured:
        """NMSD of the averaged models that clients receive."""
        trial = self.trial
        federations = [trial.data.federation(seed, run) for run in range(runs)]
        options = TrainingOptions(
            trial.rounds,
            trial.participants,
            trial.privacy,
            seed=seed,
            metrics=(),
            performance=Performance(engine=ENGINE, threads=1),
        )
        mean = _Mean(trial.rounds - round(self.share * trial.rounds))
        simulator = Simulator(federations, trial.algorithm, trial.objective, options, observers=[mean])
        simulator.run()
        simulator.close()
        models = (mean.total / mean.rounds)[simulator.layout.client_pair]
        found = []
        for place, federation in zip(simulator.layout.runs, federations, strict=True):
            assert federation.truth is not None
            truth = federation.truth[federation.client_cluster[place.order]]
            found.append([float(deviation(models[place.clients], truth).mean())])
        return {"nmsd": np.array(found), "round": np.full((runs, 1), trial.rounds)}


class _Mean(Observer):
    """An observer that sums the servers' models after a round."""

    def __init__(self, after: int) -> None:
        self.after, self.rounds, self.total = after, 0, np.zeros(1)

    def on_round(self, simulator: Simulator) -> None:
        """Add the current models."""
        if simulator.state.round > self.after:
            self.rounds += 1
            self.total = self.total + np.asarray(simulator.state.server_models)


@dataclass(frozen=True)
class FeatureRanks:
    """How much of d each client, each server and each cluster sees: the ranks of their stacked features."""

    data: RegressionData
    cost: float = 0.02

    def run(self, seed: int, runs: int) -> Measured:
        """The largest rank at a client and at a server (of one cluster's rows), the smallest of a whole cluster."""
        rows = [self._ranks(self.data.federation(seed, run)) for run in range(runs)]
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}

    @staticmethod
    def _ranks(federation: Federation) -> dict[str, int]:
        def rank(chosen: Bools) -> int:
            picked = federation.features[np.repeat(chosen, federation.counts)]
            return int(np.linalg.matrix_rank(picked)) if len(picked) else 0

        clusters, servers = range(len(federation.cluster_ids)), range(len(federation.server_ids))
        cluster, server = federation.client_cluster, federation.client_server
        return {
            "client": max(rank(np.arange(federation.size) == k) for k in range(federation.size)),
            "server": max(rank((server == s) & (cluster == q)) for s in servers for q in clusters),
            "cluster": min(rank(cluster == q) for q in clusters),
            "dimension": federation.dimension,
        }
