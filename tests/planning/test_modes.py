"""Servers that weigh neighbours by clients: the modes say what they agree on, and how much of noise clients feel."""

import numpy as np
import pytest

from pgfl.federation.graphs import Graph, build, by_clients
from pgfl.planning.moments import Modes

GRAPH = build("random", 12, average_degree=3.0, rng=np.random.default_rng(1))
CLIENTS = np.random.default_rng(2).integers(0, 10, GRAPH.size)


def averages(graph, clients):
    """The weights as the algorithm has them: row s holds how much every neighbour counts at server s."""
    weights = (graph.adjacency.toarray() + np.eye(graph.size)) * by_clients(clients)
    return weights / weights.sum(axis=1, keepdims=True)


def test_left_and_right_vectors_make_up_the_weights():
    modes = Modes.of(GRAPH, CLIENTS)
    assert modes.right @ np.diag(modes.values) @ modes.left.T == pytest.approx(averages(GRAPH, CLIENTS), abs=1e-12)


def test_servers_agree_on_the_average_that_endless_rounds_lead_to():
    endless = np.linalg.matrix_power(averages(GRAPH, CLIENTS), 500)
    assert Modes.of(GRAPH, CLIENTS).agreed == pytest.approx(endless[0], abs=1e-9)


def test_servers_that_nobody_connects_agree_with_themselves_alone():
    modes = Modes.of(Graph.from_edges(3, [(0, 1)]), np.array([2, 2, 4]))
    assert modes.agreed == pytest.approx([0.25, 0.25, 0.5])
    assert sorted(modes.values) == pytest.approx([0.0, 1.0, 1.0], abs=1e-12)


@pytest.mark.parametrize("rounds", [1, 2, 5, 20])
@pytest.mark.parametrize("shared", [False, True])
def test_clients_feel_the_noise_that_averages_leave(rounds, shared):
    """Local noise falls with a pair's clients, and shared noise with their square; products of modes hardly matter."""
    variances = np.where(CLIENTS > 0, 1.0 / np.maximum(CLIENTS, 1.0) ** (1 + shared), 0.0)
    passed = np.linalg.matrix_power(averages(GRAPH, CLIENTS), rounds)
    exact = float(CLIENTS / CLIENTS.sum() @ passed**2 @ variances)
    modes = Modes.of(GRAPH, CLIENTS)
    assert float(modes.felt(variances) @ modes.values ** (2 * rounds)) == pytest.approx(exact, rel=0.15)
