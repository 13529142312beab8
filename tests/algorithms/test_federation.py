import numpy as np
import pytest

from pgfl.errors import DataError, PgflError, TopologyError
from pgfl.federation.federation import ClientData, Federation, TestSet, numbered
from pgfl.federation.graphs import Graph, ring


def two_clients(**changes):
    ann = {"server": "north", "cluster": "adults", "features": [[1.0, 0.0], [0.0, 1.0]], "targets": [1.0, 2.0]}
    return {"bob": ClientData("south", "children", [[1.0, 1.0]], [0.5]), "ann": ClientData(**(ann | changes))}


def arrays(**changes):
    fields = {
        "features": np.ones((3, 2)),
        "targets": np.ones(3),
        "offsets": np.array([0, 2, 3]),
        "client_server": np.array([0, 1]),
        "client_cluster": np.array([0, 0]),
        "server_ids": ("a", "b"),
        "cluster_ids": ("q",),
        "graph": ring(2),
    }
    return fields | changes


def test_ids_are_sorted_as_text_and_rows_follow_them():
    clients = {
        f"c{k}": ClientData(f"s{k % 3}", f"q{k % 2}", [[float(k)]] * (k + 1), [0.0] * (k + 1)) for k in range(12)
    }
    federation = Federation.from_clients(clients, servers=["s10"])
    assert federation.client_ids == tuple(sorted(clients))
    assert federation.server_ids == ("s0", "s1", "s10", "s2")
    assert federation.server_sizes.tolist() == [4, 4, 0, 4]
    for name in clients:
        features, targets = federation.rows(name)
        assert features.tolist() == clients[name].features
        assert len(targets) == federation.counts[federation.client_index(name)]


def test_edges_may_come_from_an_iterator_and_a_graph_may_be_given():
    federation = Federation.from_clients(two_clients(), (edge for edge in [("north", "south")]))
    assert federation.graph.edges.tolist() == [[0, 1]]
    assert Federation.from_clients(two_clients(), graph=ring(2)).graph.connected
    assert not federation.without_edges().graph.connected
    assert federation.without_edges().features is federation.features


def test_a_cluster_per_client_is_quick():
    clients = {f"c{k}": ClientData("s", f"q{k}", [[1.0]], [1.0]) for k in range(20_000)}
    federation = Federation.from_clients(clients)
    assert len(federation.cluster_ids) == 20_000
    assert federation.client_ids[federation.client_index("c777")] == "c777"


def test_truth_and_tests_follow_the_clusters():
    tests = {"adults": TestSet(np.ones((4, 2)), np.ones(4))}
    federation = Federation.from_clients(
        two_clients(), truth={"children": [3.0, 4.0], "adults": [1.0, 2.0]}, tests=tests
    )
    assert federation.truth.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_made_up_ids_sort_as_their_numbers():
    names = [numbered("client", index, 1001) for index in range(1001)]
    assert names == sorted(names)
    assert Federation(**arrays()).client_ids == ("client-0", "client-1")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"features": [[1.0], [2.0]]}, "bob has 2 features, client ann 1"),
        ({"features": [1.0, 2.0]}, "ann needs a table of features"),
        ({"features": np.empty((0, 2)), "targets": []}, "ann needs a table of features"),
        ({"features": np.empty((2, 0))}, "ann needs a table of features"),
        ({"features": [[1.0, "x"], [0.0, 1.0]]}, "ann has a value that is not a number"),
        ({"features": [[1.0], [0.0, 1.0]]}, "ann has a value that is not a number, or rows of unequal length"),
        ({"features": [[1.0, np.nan], [0.0, 1.0]]}, "ann has a value that is not a finite"),
        ({"targets": [1.0, np.inf]}, "ann has a value that is not a finite"),
        ({"targets": [1.0]}, "ann has 2 samples but 1 targets"),
        ({"targets": [1.0, "high"]}, "ann has a value that is not a number"),
    ],
)
def test_bad_client_data_names_the_client(changes, sentence):
    with pytest.raises(DataError, match=sentence):
        Federation.from_clients(two_clients(**changes))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"edges": [("north", "west")]}, "names server west"),
        ({"edges": [("north", "north")]}, "Server north has an edge to itself"),
        ({"edges": [("north", "south"), ("south", "north")]}, "given twice"),
        ({"graph": ring(3)}, "graph has 3 servers, but 2"),
        ({"truth": {"adults": [1.0, 2.0]}}, "true model of cluster children is missing"),
        ({"truth": {"adults": [1.0], "children": [1.0, 2.0]}}, "same length"),
        ({"truth": {"adults": [1.0], "children": [1.0]}}, "must be 2 × 2"),
        ({"tests": {"dogs": TestSet(np.ones((1, 2)), np.ones(1))}}, "cluster dogs, which has no clients"),
        ({"tests": {"adults": TestSet(np.ones((1, 3)), np.ones(1))}}, "must have 2 features"),
    ],
)
def test_bad_surroundings_are_named(arguments, sentence):
    with pytest.raises((DataError, TopologyError), match=sentence):
        Federation.from_clients(two_clients(), **arguments)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"features": np.float64(1.0)}, "table with at least one column"),
        ({"features": np.ones((3, 0))}, "table with at least one column"),
        ({"targets": np.ones(2)}, "3 rows of features but 2 targets"),
        ({"targets": np.ones((3, 1))}, "targets|rows"),
        ({"offsets": np.array([0, 2, 4])}, "from 0 to 3"),
        ({"offsets": np.array([1, 2, 3])}, "from 0 to 3"),
        ({"offsets": np.array([0, 3, 3])}, "client-1 has no samples"),
        ({"offsets": np.array([0, 3])}, "same clients"),
        ({"client_server": np.array([0, 2])}, "server 2, but there are only 2"),
        ({"client_cluster": np.array([1, 0])}, "cluster 1, but there are only 1"),
        ({"names": ("a",)}, "2 clients but 1 names"),
        ({"graph": Graph.from_edges(3, [])}, "graph has 3 servers"),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(changes, sentence):
    with pytest.raises(DataError, match=sentence):
        Federation(**arrays(**changes))


def test_no_clients_and_unknown_clients():
    with pytest.raises(PgflError, match="at least one"):
        Federation.from_clients({})
    with pytest.raises(DataError, match="no client eve"):
        Federation.from_clients(two_clients()).rows("eve")


def test_a_part_keeps_the_names_and_numbers_of_the_whole():
    clients = {
        f"c{k}": ClientData(f"s{k % 4}", f"q{k % 3}", [[float(k)]] * (k % 3 + 1), [0.0] * (k % 3 + 1))
        for k in range(12)
    }
    whole = Federation.from_clients(clients, [("s0", "s3")])
    part = whole.part([3, 1, 3])
    assert part.client_ids == ("c1", "c11", "c3", "c5", "c7", "c9")
    assert part.server_ids == whole.server_ids
    assert part.graph is whole.graph
    for name in part.client_ids:
        assert np.array_equal(part.rows(name)[0], whole.rows(name)[0])
        assert part.client_server[part.client_index(name)] == whole.client_server[whole.client_index(name)]
    unnamed = Federation(**arrays())
    assert unnamed.part([1]).client_ids == ("client-1",)
    for servers in ([], [4], [-1]):
        with pytest.raises(DataError, match="servers 0 to 3"):
            whole.part(servers)
