"""The paper's round written plainly, client by client: what most people would write first, and what is compared with.

`solving` solves each client's normal equations in every round; `factored` inverts them beforehand. Both are checked
against the engine before they are timed.
"""

from __future__ import annotations

import numpy as np

from pgfl import Federation


class PlainLoop:
    """PGFL (Algorithm 1) with ridge regression, everyone taking part, one client after the other."""

    def __init__(self, federation: Federation, rho: float, tau: float, lam: float) -> None:
        self.rho, self.tau = rho, tau
        self.clients = range(federation.size)
        self.server, self.cluster = federation.client_server.tolist(), federation.client_cluster.tolist()
        self.servers, self.clusters = len(federation.server_ids), len(federation.cluster_ids)
        self.neighbourhood = [[s, *federation.graph.neighbours(s).tolist()] for s in range(self.servers)]
        self.pairs = [(s, q) for s in range(self.servers) for q in range(self.clusters)]
        self.members: dict[tuple[int, int], list[int]] = {pair: [] for pair in self.pairs}
        for k in self.clients:
            self.members[self.server[k], self.cluster[k]].append(k)
        self.lam, self.dimension = lam, federation.dimension
        self.rows = [federation.rows(k) for k in self.clients]
        self.weight = [rho + 2.0 * lam / federation.server_sizes[s] for s in self.server]
        self.factors: list[tuple[np.ndarray, np.ndarray]] | None = None
        self.model = [np.zeros(self.dimension) for _ in self.clients]
        self.dual = [np.zeros(self.dimension) for _ in self.clients]
        self.server_model = np.zeros((self.servers, self.clusters, self.dimension))

    def factor(self) -> PlainLoop:
        """Prepare what `solving` does anew in every round."""
        self.factors = [(np.linalg.inv(hessian), pull) for hessian, pull in map(self.normal_equations, self.clients)]
        return self

    def normal_equations(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """H and the data's part of the right-hand side of H w = …"""
        features, targets = self.rows[k]
        hessian = 2.0 / len(features) * features.T @ features + self.weight[k] * np.eye(self.dimension)
        return hessian, 2.0 / len(features) * features.T @ targets

    def primal(self, k: int, pull: np.ndarray) -> np.ndarray:
        """ClientPrimalUpdate of one client."""
        if self.factors is not None:
            inverse, from_data = self.factors[k]
            return inverse @ (from_data + pull)
        hessian, from_data = self.normal_equations(k)
        return np.linalg.solve(hessian, from_data + pull)

    def run_round(self) -> None:
        """One round, in the paper's order."""
        for k in self.clients:
            pull = self.dual[k] + self.rho * self.server_model[self.server[k], self.cluster[k]]
            self.model[k] = self.primal(k, pull)
        aggregate, mixed = np.empty_like(self.server_model), np.empty_like(self.server_model)
        for s, q in self.pairs:
            parts = [self.model[k] - self.dual[k] / self.rho for k in self.members[s, q]]
            aggregate[s, q] = np.mean(parts, axis=0)
        for s, q in self.pairs:
            mixed[s, q] = np.mean([aggregate[p, q] for p in self.neighbourhood[s]], axis=0)
        for s, q in self.pairs:
            others = np.mean([mixed[s, r] for r in range(self.clusters) if r != q], axis=0)
            self.server_model[s, q] = (1 - self.tau) * mixed[s, q] + self.tau * others
        for k in self.clients:
            step = self.server_model[self.server[k], self.cluster[k]] - self.model[k]
            self.dual[k] = self.dual[k] + self.rho * step
