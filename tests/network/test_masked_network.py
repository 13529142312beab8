"""Masked sums on the network: in this process, with real streams, stores and ledgers."""

import pytest

from pgfl import synthetic_regression
from pgfl.demo import largest_difference
from pgfl.federation.graphs import line
from pgfl.network.agreement import Training
from pgfl.network.local import LEDGER, LocalNetwork
from pgfl.privacy.ledger.ledger import Ledger
from tests.network.inprocess import train_in_process

TIMING = {"start": 60.0, "answers": 60.0, "exchange": 60.0}
PRIVACY = {
    "enabled": True, "epsilon": 20.0, "delta": 1e-5, "max_releases": 40, "zeta": 0.99, "x_norm": 3.0, "trust": "masked",
}  # fmt: skip


def network_of(folder, sites=1, clients=5, rounds=3, clusters=1, kind="pgfl", privacy=None, **timing):
    federation = synthetic_regression(
        servers=sites, clients_per_server=clients, clusters=clusters, dimension=4, samples=(20, 40), graph=line(sites)
    )
    algorithm = {"kind": kind, "client": "gradient", "rho": 8.0, "tau": {"start": 0.3, "decay": 0.98}}
    training = Training.model_validate(
        {
            "rounds": rounds,
            "dimension": federation.dimension,
            "clusters": tuple(federation.cluster_ids),
            "objective": {"kind": "huber", "lam": 0.01},
            "algorithm": algorithm if kind != "fedavg" else {"kind": kind, "step_size": 0.05, "local_steps": 2},
            "privacy": {"trust": "masked"},
        }
    )
    return LocalNetwork(
        folder, federation, training, {**PRIVACY, **(privacy or {})}, {**TIMING, **timing}, record_noise=True
    )


def ledgers(network):
    found = {}
    for client in network.federation.client_ids:
        with Ledger.read(network.home(client) / LEDGER) as ledger:
            ledger.verify()
            found[client] = ledger.rows()
    return found


@pytest.mark.parametrize("kind", ["pgfl", "pgfl-onestep", "fedavg"])
def test_a_masked_training_is_the_simulator_s_given_its_noise(tmp_path, kind):
    network = network_of(tmp_path, sites=2, clients=5, rounds=3, kind=kind)
    train_in_process(network)
    assert largest_difference(network) < 1e-10
    for rows in ledgers(network).values():
        assert [row.trust for row in rows] == ["masked"] * 3
        assert all(row.accepted for row in rows[:-1])
    for site in network.federation.server_ids:
        assert [len(row["accepted"]) for row in network.history(site)] == [5, 5, 5]
