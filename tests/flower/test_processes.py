"""`flwr run` with a real SuperLink and SuperNodes: the example's app is the simulator, given the noise."""

from __future__ import annotations

import shutil
import threading

import pytest

from pgfl.demo import largest_difference
from pgfl.flower.relay import KEYS
from pgfl.network.protocol.identity import CLIENT_KEY
from pgfl.privacy.ledger.ledger import Ledger
from pgfl.results.model import Model
from tests.flower.processes_of_flower import Flower
from tests.flower.runs import graph_table, prepared

pytestmark = pytest.mark.proof
ROUNDS = 2


@pytest.fixture
def flowers(tmp_path):
    """Two federations, each with a SuperLink of its own."""
    both = Flower(tmp_path / "flower"), Flower(tmp_path / "other")
    yield both
    for flower in both:
        flower.stop()


@pytest.fixture
def flower(flowers):
    return flowers[0]


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


def test_two_federations_train_together_over_the_link_between_their_sites(tmp_path, flowers):
    network = prepared(tmp_path / "network", servers=2, clients=1, rounds=ROUNDS, timing={"answers": 600.0})
    sites, said = network.federation.server_ids, {}
    network.start(*sites)
    try:
        for site, flower in zip(sites, flowers, strict=True):
            (client,) = network.clients_of(site)
            keys = network.home(site) / KEYS / client
            keys.mkdir(parents=True)
            shutil.copy(network.home(client) / CLIENT_KEY, keys)  # with which the site has admitted it
            flower.start([network.home(client) / "client.toml"])

        def run(site, flower):
            table = graph_table(network)
            table["servers"] = {site: []}
            table["clients"] = {name: member for name, member in table["clients"].items() if member["server"] == site}
            said[site] = flower.run(flower.app(table), network.home(site), key="site")

        running = [threading.Thread(target=run, args=both) for both in zip(sites, flowers, strict=True)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        network.wait(lambda: len(network.ended()) == len(sites), 60.0, "the sites to end")
    finally:
        network.stop()
    why = "".join(said.values()) + "".join(flower.log() for flower in flowers)
    assert [network.round_of(site) for site in sites] == [ROUNDS] * 2, why
    assert largest_difference(network) <= 1e-10
