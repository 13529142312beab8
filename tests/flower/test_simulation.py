"""`flwr run` on one machine, in Flower's simulation: its nodes are Ray's, and the models are the simulator's."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import requires

import pytest

from pgfl.demo import largest_difference
from pgfl.flower.client import CLIENTS
from pgfl.privacy.ledger.ledger import Ledger
from tests.flower.processes_of_flower import Flower
from tests.flower.runs import graph_table, prepared

pytestmark = pytest.mark.proof
ROUNDS = 2


@pytest.fixture(scope="session")
def ray(tmp_path_factory):
    """A folder with the Ray that this Flower asks for; it is large, so that pgfl's own environment does without it."""
    folder = tmp_path_factory.mktemp("ray")
    wanted = next(line for line in requires("flwr") if line.startswith("ray=="))  # one version for every Python
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder)]
    subprocess.run([*pip, wanted.partition(";")[0].strip()], check=True, timeout=600)
    return folder


@pytest.fixture
def flower(tmp_path):
    flower = Flower(tmp_path / "flower")
    yield flower
    flower.stop()


def test_flowers_simulation_is_the_simulator_given_the_noise(tmp_path, flower, ray):
    network = prepared(tmp_path / "network", servers=2, clients=1, rounds=ROUNDS)
    nodes = len(network.federation.client_ids)
    paths = [*filter(None, [os.environ.get("PYTHONPATH")]), str(ray)]
    flower.environment |= {CLIENTS: str(network.folder), "PYTHONPATH": os.pathsep.join(paths)}
    flower.environment["RAY_USAGE_STATS_ENABLED"] = "0"
    flower.start_link("--simulation")
    flower.wait_for_link()
    said = flower.run(
        flower.app(graph_table(network)), network.folder, "--federation-config", f"num-supernodes={nodes}"
    )
    histories = [network.history(site) for site in network.federation.server_ids]
    assert [len(rows) for rows in histories] == [ROUNDS] * 2, said + flower.log()
    assert largest_difference(network) <= 1e-10
    for client in network.federation.client_ids:
        with Ledger.read(network.home(client) / "ledger.db") as ledger:
            ledger.verify()
            assert ledger.count == ROUNDS
