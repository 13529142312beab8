"""Over real sockets, with every client's own secure noise, the network is the simulator: objectives and algorithms."""

from __future__ import annotations

import numpy as np
import pytest

from pgfl.demo import demo_federation, demo_privacy, demo_training, largest_difference
from pgfl.network.agreement import Training
from pgfl.network.local import LocalNetwork
from tests.network.inprocess import train_in_process

ROUNDS = 6


@pytest.mark.parametrize("objective", ["huber", "ridge", "logistic"])
def test_the_network_is_the_simulator_given_the_noise(tmp_path, objective):
    federation = demo_federation(3, 2, objective, seed=2)
    privacy = demo_privacy(objective, 20.0, ROUNDS)
    bounds = {key: privacy[key] for key in ("x_norm", "y_bound", "w_norm") if key in privacy} | {"noise": 10.0}
    network = LocalNetwork(
        tmp_path, federation, demo_training(federation, objective, ROUNDS), privacy, record_noise=True, bounds=bounds
    )
    ends = train_in_process(network)
    assert set(ends.values()) == {"all rounds are done"}
    assert all(len(network.history(site)) == ROUNDS for site in federation.server_ids)
    assert largest_difference(network) <= 1e-10
    assert not any(row["clipped"] for site in federation.server_ids for row in network.history(site))


def test_a_site_that_cannot_be_called_takes_part_by_calling(tmp_path):
    """As behind a router: nobody knows an address of the first site, and the last one knows none of the others."""
    federation = demo_federation(3, 1, "huber", seed=2)
    network = LocalNetwork(tmp_path, federation, demo_training(federation, "huber", ROUNDS), {"enabled": False})
    first, *_, last = federation.server_ids

    def address(here, there):
        return "" if there == first or here == last else f"127.0.0.1:{network.ports[there]}"

    ends = train_in_process(network, peer_address=address)
    assert set(ends.values()) == {"all rounds are done"}
    assert all(not row["absent"] for site in federation.server_ids for row in network.history(site))
    assert largest_difference(network) <= 1e-10


def test_clients_that_sit_out_still_close_their_duals(tmp_path):
    """One client of each site a round, as the sites drew them: the simulator with the same participants agrees."""
    federation = demo_federation(2, 3, "huber", seed=5)
    settings = demo_training(federation, "huber", 10).model_dump()
    settings["algorithm"]["participants"] = 1
    privacy = demo_privacy("huber", 20.0, 10)
    network = LocalNetwork(tmp_path, federation, Training.model_validate(settings), privacy, record_noise=True)
    train_in_process(network)
    taking_part = {tuple(row["accepted"]) for row in network.history(federation.server_ids[0])}
    assert len(taking_part) > 1
    assert largest_difference(network) <= 1e-10


@pytest.mark.parametrize("objective", ["huber", "ridge"])
def test_linearised_steps_over_a_network_are_those_of_the_simulator_given_the_noise(tmp_path, objective):
    federation = demo_federation(2, 2, objective, seed=2)
    settings = demo_training(federation, objective, ROUNDS).model_dump()
    settings["algorithm"] |= {"client": "gradient", "rho": 8.0}
    privacy = demo_privacy(objective, 20.0, ROUNDS)
    network = LocalNetwork(tmp_path, federation, Training.model_validate(settings), privacy, record_noise=True)
    ends = train_in_process(network)
    assert set(ends.values()) == {"all rounds are done"}
    assert largest_difference(network) <= 1e-10


@pytest.mark.parametrize(
    ("kind", "client", "mixing"),
    [
        ("pgfl", "admm", "metropolis"),
        ("pgfl-exact", "admm", "metropolis"),
        ("pgfl-onestep", "admm", "metropolis"),
        ("fedavg", "admm", "metropolis"),
        ("pgfl-exact", "gradient", "metropolis"),
        ("pgfl", "gradient", "clients"),
        ("fedavg", "admm", "clients"),
    ],
)
def test_every_algorithm_without_noise(tmp_path, kind, client, mixing):
    federation = demo_federation(3, 2, "ridge", seed=4)
    plain = demo_training(federation, "ridge", ROUNDS)
    counts = [[sum(federation.client_cluster[federation.client_server == s] == q) for s in range(3)] for q in range(2)]
    settings = {
        **plain.model_dump(),
        "mixing": mixing,
        "algorithm": {
            "kind": kind,
            "client": client,
            "rho": 3.0,
            "tau": 0.0 if kind == "pgfl-exact" else 0.1,
            "step_size": 0.01,
        },
        "most_clients": {q: int(max(counts[i])) for i, q in enumerate(federation.cluster_ids)},
    }
    network = LocalNetwork(tmp_path, federation, Training.model_validate(settings), {"enabled": False})
    train_in_process(network)
    assert largest_difference(network) <= 1e-10


@pytest.mark.parametrize(("kind", "client"), [("pgfl", "admm"), ("pgfl-exact", "gradient")])
def test_learned_weights_over_a_network_are_those_of_the_simulator_given_the_noise(tmp_path, kind, client):
    """What neighbours need beyond models travels with them; a wide bound, so that no draw of the noise is clipped."""
    federation = demo_federation(3, 4, "huber", seed=4)
    counts = [[sum(federation.client_cluster[federation.client_server == s] == q) for s in range(3)] for q in range(2)]
    settings = demo_training(federation, "huber", ROUNDS).model_dump() | {"curvature": 0.5, "mixing": "metropolis"}
    settings["algorithm"] |= {"kind": kind, "client": client, "rho": 8.0, "tau": "auto"}
    settings["most_clients"] = {q: int(max(counts[i])) for i, q in enumerate(federation.cluster_ids)}
    privacy = demo_privacy("huber", 20.0, ROUNDS)
    training, wide = Training.model_validate(settings), {"neighbours": 1e6}
    network = LocalNetwork(tmp_path, federation, training, privacy, record_noise=True, bounds=wide)
    train_in_process(network)
    assert largest_difference(network) <= 1e-10
    halves = network.arrays(federation.server_ids[0])[1]["state.memory"]
    assert (halves[:, -6:-2] > 0).all()  # both halves of both clusters are known, so that weights were learned
    assert halves[:, -1].any()  # and whether that goes downhill was asked


@pytest.mark.parametrize("participants", ["all", 1])
def test_budgets_that_run_out_let_clusters_rest_at_every_site(tmp_path, participants):
    """Sites learn from refusals who is spent; clusters rest there as in the simulator, and their models stay apart."""
    rounds, releases = 24, 3
    federation = demo_federation(3, 2, "huber", seed=2)
    settings = demo_training(federation, "huber", rounds).model_dump()
    settings["algorithm"] |= {"tau": 0.4, "participants": participants}
    privacy = demo_privacy("huber", 20.0, releases)
    network = LocalNetwork(tmp_path, federation, Training.model_validate(settings), privacy, record_noise=True)
    train_in_process(network)
    history = {site: network.history(site) for site in federation.server_ids}
    assert all(len(rows) == rounds for rows in history.values())
    for site, rows in history.items():
        assert rows[-1]["retired"] == sorted(network.clients_of(site)) and not rows[releases - 1]["retired"]
    assert largest_difference(network) <= 1e-10
    for site in federation.server_ids:
        first, second = network.arrays(site)[1]["state.model"]
        assert np.linalg.norm(first - second) > 1e-2 * np.linalg.norm(first)


def test_the_comparison_can_fail(tmp_path):
    """A recorded draw that is not the one that was used shows."""
    federation = demo_federation(2, 1, "huber", seed=2)
    network = LocalNetwork(
        tmp_path, federation, demo_training(federation, "huber", 3), demo_privacy("huber", 20.0, 3), record_noise=True
    )
    train_in_process(network)
    drawn = network.home(federation.client_ids[0]) / "noise" / "000002.npy"
    np.save(drawn, np.add(np.load(drawn), [[0.0], [1e-6]]))
    assert largest_difference(network) > 1e-8
