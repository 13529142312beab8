"""Roles joined by plain function calls: the network without a network."""

from __future__ import annotations

from collections import Counter

import numpy as np

from pgfl.algorithms.roles import Accepted, Client, RoundRequest, Server
from tests import bridges, oracle


class InMemoryNetwork:
    """Plays rounds of the oracle's problem with `Client` and `Server` objects."""

    def __init__(self, problem: oracle.Problem, participants=None, noise=None, spent=None, chosen=None):
        self.problem, self.participants, self.noise, self.spent = problem, participants, noise, spent
        algorithm, objectives = chosen or bridges.algorithm(problem), bridges.objective(problem)
        neighbours = {s: {b for a, b in both(problem.edges) if a == s} for s in problem.servers}
        members = Counter((c.server, c.cluster) for c in problem.clients)
        most = {q: max(members[s, q] for s in problem.servers) for q in problem.clusters}
        reachable = component_clusters(problem, neighbours)
        self.servers = {
            s: Server(
                algorithm,
                problem.dimension,
                neighbours[s],
                clusters=reachable[s],
                shares={q: members[s, q] / most[q] for q in problem.clusters},
            )
            for s in problem.servers
        }
        self.clients = {c.id: Client(objectives[c.cluster], algorithm, c.X, c.y) for c in problem.clients}
        self.sizes = Counter(c.server for c in problem.clients)
        self.accepted: dict[str, Accepted] = {}

    def play(self, n: int) -> None:
        chosen = self.participants(n) if self.participants else set(self.clients)
        answers = {s: [] for s in self.servers}
        for c in self.problem.clients:
            if c.id in chosen:
                answers[c.server].append((c.cluster, self._ask(c, n)))
        spent = self.spent(n) if self.spent else ()
        able = {s: [(c.cluster, c.id not in spent) for c in self.problem.clients if c.server == s] for s in answers}
        published = {name: server.aggregate(n, answers[name], able[name]) for name, server in self.servers.items()}
        for server in self.servers.values():
            server.combine(n, published)
        for c in self.problem.clients:
            if c.id in chosen:
                self.accepted[c.id] = Accepted(n, self.servers[c.server].model(c.cluster))

    def _ask(self, c, n):
        extra = self.noise(n, c.id) if self.noise else None
        request = RoundRequest(
            n, self.sizes[c.server], self.servers[c.server].model(c.cluster), self.accepted.get(c.id)
        )
        return self.clients[c.id].answer(request, lambda model: model if extra is None else model + extra)

    def duals(self) -> dict[str, np.ndarray]:
        for name, client in self.clients.items():
            client.settle(self.accepted.get(name))
        return {name: client.algorithm.rho * client.dual for name, client in self.clients.items()}


def both(edges):
    return [*edges, *((b, a) for a, b in edges)]


def component_clusters(problem, neighbours):
    """For every server, the clusters with a client in its component."""
    found = {}
    for start in problem.servers:
        seen, ahead = {start}, [start]
        while ahead:
            for p in neighbours[ahead.pop()] - seen:
                seen.add(p)
                ahead.append(p)
        found[start] = sorted({c.cluster for c in problem.clients if c.server in seen})
    return found
