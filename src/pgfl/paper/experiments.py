"""What is measured: experiments that can be sent to another process, each giving arrays with one row per run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pgfl.array_types import AnyArray, Bools
from pgfl.core.algorithms import Algorithm, FedAvg
from pgfl.core.federation import Federation
from pgfl.core.schedules import Participants
from pgfl.data.mnist import mnist_federation
from pgfl.data.synthetic import synthetic_regression
from pgfl.objectives import Objective, Ridge
from pgfl.privacy.request import Privacy
from pgfl.simulate.training import train

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

    def federation(self, seed: int, run: int) -> Federation:
        """The federation of one run."""
        return synthetic_regression(
            gamma=self.gamma,
            observation_noise=self.observation_noise,
            x_norm=self.x_norm,
            samples=self.samples,
            graph=self.graph,
            seed=seed,
            run=run,
        )


@dataclass(frozen=True)
class DigitData:
    """Section V-B: "pairs" or "triplets", from the images in the package or from the originals in a folder."""

    tasks: str
    source: str | None = None

    def federation(self, seed: int, run: int) -> Federation:
        """The federation of one run."""
        return mnist_federation(self.tasks, seed=seed, run=run, source=self.source)


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

    @property
    def cost(self) -> float:
        """Measured once on one core."""
        everyone = self.participants == "all"
        if isinstance(self.data, DigitData):
            training, scoring = (0.0033, 0.055) if self.data.tasks == "pairs" else (0.021, 0.12)
            return training * self.rounds + scoring * self.rounds / self.record_every
        if isinstance(self.objective, Ridge):
            a_round = 6e-4 if isinstance(self.algorithm, FedAvg) and everyone else 2.8e-4
        else:
            a_round = 6.5e-4 * (5.0 if everyone else 1.0) * max(1.0, self.data.samples[1] / 9)
        return a_round * self.rounds

    def run(self, seed: int, runs: int) -> Measured:
        """Every metric of clean client models (runs × recorded rounds), the rounds, and the worst client's ε."""
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
        )
        history = {**result.history, **(result.clean_history or {})}
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
