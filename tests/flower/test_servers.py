"""The graph of servers inside a Flower run is pgfl's network, and so the simulator."""

from __future__ import annotations

import importlib.util
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from pgfl.demo import largest_difference
from pgfl.errors import NetworkError
from pgfl.flower.graph import load_graph
from pgfl.flower.letters import HELLO, ROUND
from pgfl.flower.servers import ServerGraph
from pgfl.privacy.ledger.ledger import Ledger
from pgfl.results.model import Model
from tests.flower.runs import Carrier, graph_of, graph_table, prepared, run

DONE = {"all rounds are done"}
EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"


@pytest.fixture
def network(tmp_path):
    return prepared(tmp_path, servers=2, clients=1, rounds=3)


def releases(network):
    found = []
    for client in network.federation.client_ids:
        with Ledger.read(network.home(client) / "ledger.db") as ledger:
            found.append(ledger.count)
    return found


def test_a_run_is_the_simulator_given_the_noise(tmp_path):
    network = prepared(tmp_path, servers=3, clients=2, rounds=3)
    carrier = Carrier(network)
    assert set(run(network, carrier).values()) == DONE
    assert largest_difference(network) <= 1e-10
    assert releases(network) == [3] * 6
    assert sum(letter.kind == ROUND for letter in carrier.sent) == 18, "no letter is sent twice"


def test_clients_that_sit_out_are_those_of_the_network(tmp_path):
    network = prepared(tmp_path, servers=2, clients=2, rounds=4, participants=1)
    assert set(run(network).values()) == DONE
    assert largest_difference(network) <= 1e-10
    assert sum(releases(network)) == 8


def test_another_run_goes_on_where_the_last_one_ended(network):
    """The servers' process is killed between letters, and when an answer was charged that it never sees."""
    first, second = Carrier(network, count(10)), Carrier(network, count(20))

    def between_letters():
        if sum(letter.kind == ROUND for letter in first.sent) >= 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(network, first, then=between_letters)

    def lost(letter):
        Carrier.answer(second, letter)
        if letter.kind == ROUND:
            raise KeyboardInterrupt
        return Carrier.answer(second, letter)

    second.answer = lost
    with pytest.raises(KeyboardInterrupt):
        run(network, second)
    assert sorted(releases(network)) == [1, 2], "one answer of round 2 is lost"
    assert set(run(network).values()) == DONE
    assert largest_difference(network) <= 1e-10
    assert releases(network) == [3, 3]


def test_another_training_needs_another_folder(network):
    run(network)
    other = network.training.model_copy(update={"seed": 7})
    with pytest.raises(NetworkError, match="new home folder"):
        ServerGraph(graph_of(network).model_copy(update={"training": other}), network.folder)


def test_every_server_leaves_a_model_file(network, tmp_path):
    run(network)
    servers = ServerGraph(graph_of(network), network.folder)
    written = servers.save_models(tmp_path)
    servers.close()
    assert [path.name for path in written] == [f"{site}.pgfl" for site in network.federation.server_ids]
    assert Model.load(written[0]).provenance["rounds"] == 3


# nodes ----------------------------------------------------------------------------------------------------------------


def test_a_node_that_goes_and_comes_back_is_not_asked_whose_client_it_is_again(network):
    carrier = Carrier(network)
    (first, *_) = carrier.client_of
    steps = count()

    def flap():
        step = next(steps)
        carrier.away = {first} if 20 <= step < 60 else set()

    graph = graph_of(network, quorum={"clients": 1.0}, timing={"pace": 5.0})
    assert set(run(network, carrier, graph, flap).values()) == DONE
    assert sum(letter.kind == HELLO for letter in carrier.sent) == len(carrier.client_of)
    histories = [network.history(site) for site in network.federation.server_ids]
    assert all(row["accepted"] for rows in histories for row in (rows[0], rows[-1]))


def test_a_name_belongs_to_one_node_and_to_the_one_that_is_stated(network, caplog):
    caplog.set_level("INFO")
    ann, ben = network.federation.client_ids
    carrier = Carrier(network)
    carrier.client_of = {1: ann, 2: ann, 3: ben, 4: ben}
    table = graph_table(network)["clients"]
    table[ben] |= {"node": 4}
    assert set(run(network, carrier, graph_of(network, clients=table)).values()) == DONE
    assert {letter.node for letter in carrier.sent if letter.kind == ROUND} == {1, 4}
    assert f"node 2 calls itself {ann}, as another node does" in caplog.text
    assert f"node 3 calls itself {ben}, whose node is 4" in caplog.text
    assert releases(network) == [3, 3]


def test_a_node_that_fails_keeps_nobody_waiting(tmp_path):
    network = prepared(tmp_path, servers=1, clients=3, rounds=3)
    carrier = Carrier(network)
    (first, *_) = carrier.client_of

    def break_once():
        if any(letter.kind == ROUND for letter in carrier.sent):
            carrier.broken = {first}

    assert set(run(network, carrier, then=break_once).values()) == DONE
    assert [row["accepted"] for row in network.history(network.federation.server_ids[0])][-1] == sorted(
        network.federation.client_ids[1:]
    )


def test_a_slow_node_is_not_sent_the_same_letter_twice_and_its_answer_counts_later(tmp_path):
    network = prepared(tmp_path, servers=1, clients=3, rounds=6)
    carrier = Carrier(network)
    (first, *_) = carrier.client_of
    steps = count()

    def slow():
        step = next(steps)
        carrier.slow = {first} if 5 <= step < 60 else set()

    graph = graph_of(network, timing={"answers": 5.0, "pace": 4.0})
    assert set(run(network, carrier, graph, slow).values()) == DONE
    asked = [(letter.node, letter.round) for letter in carrier.sent if letter.kind == ROUND]
    assert len(asked) == len(set(asked))
    (history,) = [network.history(site) for site in network.federation.server_ids]
    mine = carrier.client_of[first]
    assert any(mine in row["late"] for row in history)
    assert mine in history[-1]["accepted"]


def test_the_example_s_clients_answer_the_example_s_graph(tmp_path):
    spec = importlib.util.spec_from_file_location("make_clients", EXAMPLE / "make_clients.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    homes = module.main(tmp_path)
    graph = load_graph(EXAMPLE / "graph.toml")
    graph = graph.model_copy(update={"training": graph.training.model_copy(update={"rounds": 1})})
    names = [home.name for home in homes]
    folders = SimpleNamespace(
        folder=tmp_path, home=lambda name: tmp_path / name, federation=SimpleNamespace(client_ids=names)
    )
    assert set(run(folders, Carrier(folders), graph).values()) == DONE
    assert releases(folders) == [1] * len(graph.clients)
