"""The contract of a kind of graph."""

import numpy as np
import pytest

from pgfl.config import parse
from pgfl.federation.graphs import GRAPHS, build


@pytest.mark.parametrize("size", [1, 2, 3, 5, 12])
@pytest.mark.parametrize("kind", list(GRAPHS))
def test_edges_join_different_servers_once(kind, size):
    degree = min(3.0, size - 1.0)
    one, again = (build(kind, size, average_degree=degree, rng=np.random.default_rng(3)) for _ in range(2))
    assert one.size == size and np.array_equal(one.edges, again.edges)
    edges = [tuple(edge) for edge in one.edges.tolist()]
    assert len(set(edges)) == len(edges) and all(0 <= a < b < size for a, b in edges)
    assert one.connected or kind == "none"


@pytest.mark.parametrize("kind", list(GRAPHS))
def test_a_config_can_name_it(kind):
    config = parse({"graph": {"kind": kind}, "data": {"servers": 6, "clients_per_server": 2, "dimension": 3}})
    made = config.federations()(0, None)
    assert made.graph.size == 6
    shape, clients = config.shapes()(0)
    assert np.array_equal(shape.edges, made.graph.edges) and clients.sum() == made.size
