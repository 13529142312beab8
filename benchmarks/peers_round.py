"""What the peers share: the clients' problems, the servers' side of the paper's round, and rounds on demand.

Imported inside a peer's environment, so it needs NumPy only. None of the peers knows a graph of servers: the one server
that they have does the arithmetic of all, and keeps the clients' duals.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import cache
from multiprocessing.connection import Client

import numpy as np

PROBLEM, LINE = "PGFL_PEER_PROBLEM", "PGFL_PEER_LINE"


class Problem:
    """The clients' factored problems and the network, from the file that the environment names."""

    def __init__(self) -> None:
        self.__dict__.update(np.load(os.environ[PROBLEM]))
        self.clients, self.dimension = self.right.shape
        self.pair = self.server * self.clusters + self.cluster
        self.members = np.bincount(self.pair)[:, None]

    def solve(self, k: int, pull: np.ndarray) -> np.ndarray:
        """ClientPrimalUpdate of one client: all that a client does."""
        return self.inverse[k] @ (self.right[k] + pull)


@cache
def problem() -> Problem:
    """The problem, loaded once in each process."""
    return Problem()


class Servers:
    """The models of all servers, and each client's latest model and dual."""

    def __init__(self) -> None:
        self.problem = problem()
        self.models = np.zeros((len(self.problem.members), self.problem.dimension))
        self.client_models, self.duals = (np.zeros(self.problem.right.shape) for _ in range(2))

    def pulls(self) -> np.ndarray:
        """What is sent to each client: dual + ρ · the model of its server and cluster."""
        return self.duals + self.problem.rho * self.models[self.problem.pair]

    def sums(self) -> np.ndarray:
        """The clients' contributions, added up by server and cluster."""
        total = np.zeros_like(self.models)
        np.add.at(total, self.problem.pair, self.client_models - self.duals / self.problem.rho)
        return total

    def finish(self, sums: np.ndarray) -> None:
        """Aggregate, mix with the neighbours and between the clusters, and settle the duals."""
        mixing, tau, rho = self.problem.mixing, self.problem.tau, self.problem.rho
        means = (sums / self.problem.members).reshape(len(mixing), -1, self.problem.dimension)
        mixed = np.einsum("sp,pqd->sqd", mixing, means)
        others = (mixed.sum(axis=1, keepdims=True) - mixed) / (mixed.shape[1] - 1)
        self.models = ((1 - tau) * mixed + tau * others).reshape(self.models.shape)
        self.duals += rho * (self.models[self.problem.pair] - self.client_models)


def rounds_on_demand(servers: Servers) -> Iterator[None]:
    """Yield once for each round that the benchmark asks for, tell it how long they took, and at last the models."""
    with Client(os.environ[LINE], family="AF_UNIX") as line:
        while wanted := line.recv():
            began = time.perf_counter()
            for _ in range(wanted):
                yield
            line.send((time.perf_counter() - began) / wanted)
        line.send(servers.client_models)
