"""`graph.toml` is read as it is written, and mistakes in it are one sentence."""

from __future__ import annotations

import pytest

from pgfl.flower.graph import load_graph
from pgfl.network.settings import toml_of
from tests.flower.runs import graph_table, prepared


@pytest.fixture
def network(tmp_path):
    return prepared(tmp_path, servers=2, clients=1, rounds=3)


def test_a_graph_is_read_as_it_is_written(network, tmp_path):
    path = tmp_path / "graph.toml"
    path.write_text(toml_of(graph_table(network)))
    found = load_graph(path)
    assert found.training.digest == network.training.digest
    first, second = network.federation.server_ids
    assert found.neighbours(first) == {second} and found.neighbours(second) == {first}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda table: table["servers"].update(north=["nowhere"]), "not another server"),
        (lambda table: table["servers"].update(north=["north"]), "not another server"),
        (lambda table: table["clients"].update(eve={"server": "south", "cluster": "cluster-0"}), "clients.eve.server"),
        (lambda table: next(iter(table["clients"].values())).update(cluster="x"), "training.clusters"),
        (lambda table: table["training"].update(privacy={"trust": "site"}), "local"),
        (lambda table: table.update(clients={}), "clients"),
    ],
)
def test_mistakes_in_a_graph_are_one_sentence(network, tmp_path, change, words):
    table = graph_table(network)
    table["training"]["algorithm"] |= {"client": "gradient", "rho": 8.0}
    change(table)
    path = tmp_path / "graph.toml"
    path.write_text(toml_of(table))
    with pytest.raises(Exception, match=words) as refused:
        load_graph(path)
    assert "\n" not in str(refused.value)
