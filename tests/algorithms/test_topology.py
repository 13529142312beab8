import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgfl.errors import TopologyError
from pgfl.federation import graphs as topology
from pgfl.federation.graphs import Graph

CONNECTED_KINDS = [kind for kind in topology.GRAPHS if kind != "none"]


@st.composite
def possible_random_graphs(draw):
    size = draw(st.integers(1, 40))
    edges = draw(st.integers(size - 1, size * (size - 1) // 2))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return size, edges, topology.random_connected(size, 2 * edges / size, rng)


@settings(deadline=None, derandomize=True)
@given(possible_random_graphs())
def test_a_random_graph_has_exactly_the_edges_asked_for_and_is_connected(case):
    _, edges, graph = case
    assert len(graph.edges) == edges
    assert graph.connected
    assert nx.is_connected(as_networkx(graph))
    assert graph.degrees.sum() == 2 * edges
    assert len({tuple(edge) for edge in graph.edges.tolist()}) == edges
    assert (graph.edges[:, 0] < graph.edges[:, 1]).all()


@settings(deadline=None, derandomize=True)
@given(possible_random_graphs(), st.sampled_from(topology.MIXINGS))
def test_mixing_weights_are_averages_over_the_closed_neighbourhood(case, mixing):
    _, _, graph = case
    weights = graph.weights(mixing).toarray()
    assert np.allclose(weights.sum(axis=1), 1.0, atol=1e-12)
    assert (np.diag(weights) > 0).all()
    assert ((weights > 0) == (graph.adjacency.toarray() + np.eye(graph.size) > 0)).all()
    if mixing == "metropolis":
        assert np.array_equal(weights - np.diag(np.diag(weights)), (weights - np.diag(np.diag(weights))).T)
    else:
        assert np.allclose(weights.max(axis=1), 1.0 / (1 + graph.degrees))


def test_a_random_graph_is_a_function_of_its_generator():
    first, again, other = (topology.random_connected(10, 3.0, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert np.array_equal(first.edges, again.edges)
    assert not np.array_equal(first.edges, other.edges)
    assert len(first.edges) == 15


@pytest.mark.parametrize("kind", CONNECTED_KINDS)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 9, 10, 17])
def test_every_kind_is_connected_at_every_size(kind, size):
    degree = min(3.0, size - 1)
    graph = topology.build(kind, size, average_degree=degree, rng=np.random.default_rng(0))
    assert graph.size == size
    assert graph.connected


@pytest.mark.parametrize(
    ("kind", "reference"),
    [("ring", nx.cycle_graph), ("line", nx.path_graph), ("complete", nx.complete_graph)],
)
@pytest.mark.parametrize("size", [3, 4, 9])
def test_kinds_are_the_graphs_that_networkx_calls_so(kind, reference, size):
    assert nx.utils.graphs_equal(as_networkx(topology.build(kind, size)), reference(size))


def test_star_grid_and_none():
    assert nx.utils.graphs_equal(as_networkx(topology.star(5)), nx.star_graph(4))
    assert nx.is_isomorphic(as_networkx(topology.grid(12)), nx.grid_2d_graph(3, 4))
    assert topology.grid(7).edges.tolist() == [[0, 1], [0, 3], [1, 2], [1, 4], [2, 5], [3, 4], [3, 6], [4, 5]]
    assert topology.build("none", 3).components.tolist() == [0, 1, 2]
    assert np.array_equal(topology.build("none", 3).weights("uniform").toarray(), np.eye(3))


def test_neighbours_are_ascending_and_without_the_server_itself():
    graph = Graph.from_edges(5, [(4, 2), (0, 2), (2, 3)])
    assert graph.neighbours(2).tolist() == [0, 3, 4]
    assert graph.neighbours(1).tolist() == []


def test_networkx_graphs_of_any_kind_of_node():
    graph = Graph.from_networkx(nx.Graph([("b", "a"), ("a", "c")]))
    assert (graph.size, graph.edges.tolist()) == (3, [[0, 1], [1, 2]])
    with pytest.raises(TopologyError, match="undirected"):
        Graph.from_networkx(nx.DiGraph([(0, 1)]))


def test_edges_between_named_servers():
    graph = Graph.between(["a", "b", "c"], (pair for pair in [("c", "a")]))
    assert graph.edges.tolist() == [[0, 2]]


@pytest.mark.parametrize(
    ("size", "edges", "sentence"),
    [
        (0, [], "at least one server"),
        (3, [(0, 3)], "names server 3"),
        (3, [(0, -1)], "names server -1"),
        (3, [(1, 1)], "Server 1 has an edge to itself"),
        (3, [(0, 1), (1, 0)], "between servers 0 and 1 is given twice"),
        (3, [(0, 1, 2), (0, 1, 2)], "pair of server numbers"),
        (3, [(0, 1), (2,)], "pair of server numbers"),
        (3, [("a", "b")], "pair of server numbers"),
    ],
)
def test_bad_edges_are_named(size, edges, sentence):
    with pytest.raises(TopologyError, match=sentence):
        Graph.from_edges(size, edges)


@pytest.mark.parametrize(
    ("edges", "sentence"),
    [
        ([("a", "x")], "names server x"),
        ([("b", "b")], "Server b has an edge to itself"),
        ([("b", "a"), ("a", "b")], "between servers a and b is given twice"),
    ],
)
def test_bad_named_edges_are_named_by_id(edges, sentence):
    with pytest.raises(TopologyError, match=sentence):
        Graph.between(["a", "b"], edges)


@pytest.mark.parametrize("degree", [0.5, 4.5, float("nan"), float("inf"), -1.0])
def test_an_impossible_average_degree_says_so(degree):
    with pytest.raises(TopologyError, match="average degree"):
        topology.random_connected(5, degree, np.random.default_rng(0))


def test_unknown_kind_mixing_or_missing_generator():
    with pytest.raises(TopologyError, match="choose one of random, ring"):
        topology.build("torus", 5)
    with pytest.raises(TopologyError, match="needs a generator"):
        topology.build("random", 5)
    with pytest.raises(TopologyError, match="choose one of uniform"):
        topology.ring(3).weights("loud")


@settings(deadline=None, derandomize=True, max_examples=5)
@given(st.integers(2000, 10000))
def test_thousands_of_servers(size):
    graph = topology.random_connected(size, 3.0, np.random.default_rng(size))
    assert graph.connected
    assert len(graph.edges) == round(1.5 * size)


def as_networkx(graph):
    result = nx.Graph()
    result.add_nodes_from(range(graph.size))
    result.add_edges_from(graph.edges.tolist())
    return result
