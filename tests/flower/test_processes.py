"""`flwr run` with a real SuperLink and SuperNodes: the example's app is the simulator, given the noise."""

from __future__ import annotations

import pytest

from pgfl.demo import largest_difference
from pgfl.privacy.ledger.ledger import Ledger
from pgfl.results.model import Model
from tests.flower.processes_of_flower import Flower
from tests.flower.runs import graph_table, prepared

pytestmark = pytest.mark.proof
ROUNDS = 2


@pytest.fixture
def flower(tmp_path):
    flower = Flower(tmp_path / "flower")
    yield flower
    flower.stop()


def test_flwr_run_is_the_simulator_given_the_noise(tmp_path, flower):
    network = prepared(tmp_path / "network", servers=2, clients=1, rounds=ROUNDS)
    clients = network.federation.client_ids
    flower.start(network.home(client) / "client.toml" for client in clients)
    said = flower.run(flower.app(graph_table(network)), network.folder)
    histories = [network.history(site) for site in network.federation.server_ids]
    assert [len(rows) for rows in histories] == [ROUNDS] * 2, said + flower.log()
    assert all(row["accepted"] and not row["late"] for rows in histories for row in rows)
    assert largest_difference(network) <= 1e-10
    for client in clients:
        with Ledger.read(network.home(client) / "ledger.db") as ledger:
            ledger.verify()
            assert ledger.count == ROUNDS
    for site in network.federation.server_ids:
        assert Model.load(network.folder / f"{site}.pgfl").provenance["rounds"] == ROUNDS
