"""Clients that trust their own site: it adds the noise once, keeps their accounts, and nothing clean leaves it."""

from __future__ import annotations

from pgfl.demo.replay import largest_difference
from pgfl.demo.scenario import demo_federation, demo_privacy, demo_training
from pgfl.deploy.agreed_training import Training
from pgfl.deploy.local import LocalNetwork
from pgfl.privacy.ledger import Ledger
from tests.deploy.inprocess import train_in_process

ROUNDS = 5


def trusting_network(folder, sites=2, clients=4, rounds=ROUNDS, releases=None, training=None, **options):
    """A network whose clients trust their sites, not prepared yet; `training` changes the agreed one."""
    federation = demo_federation(sites, clients, "huber", seed=2, trust="site")
    agreed = demo_training(federation, "huber", rounds, "site").model_dump()
    for key, value in (training or {}).items():
        agreed[key] = {**agreed[key], **value} if isinstance(value, dict) else value
    privacy = demo_privacy("huber", 20.0, releases or rounds, "site")
    return LocalNetwork(folder, federation, Training.model_validate(agreed), privacy, record_noise=True, **options)


def site_ledger(network, client):
    site = next(site for site in network.federation.server_ids if client in network.clients_of(site))
    return Ledger.read(network.home(site) / "ledgers" / f"{client}.db")


def test_a_network_that_trusts_its_sites_is_the_simulator_given_the_noise(tmp_path):
    """In one pair all trust their site, in another one client noises itself: both kinds are averaged rightly."""
    network = trusting_network(tmp_path, clients=6)
    own = [network.federation.client_ids[0], network.federation.client_ids[11]]
    network.own_privacy = {client: {"trust": "local"} for client in own}
    ends = train_in_process(network)
    assert set(ends.values()) == {"all rounds are done"}
    for site in network.federation.server_ids:
        assert [row["accepted"] for row in network.history(site)] == [network.clients_of(site)] * ROUNDS
    assert largest_difference(network) <= 1e-10
    for client in network.federation.client_ids:
        with Ledger.read(network.home(client) / "ledger.db") as ledger:
            assert {row.entrusted for row in ledger.rows()} == {client not in own}
            ledger.verify()
            mine = ledger.summary()
        assert mine["entrusted"] == (0 if client in own else ROUNDS)
        if client in own:
            assert not (network.home("server-0") / "ledgers" / f"{client}.db").exists()
            continue
        with site_ledger(network, client) as ledger:
            ledger.verify()
            theirs = ledger.summary()
        assert theirs["releases"] == ROUNDS
        assert 0 < theirs["epsilon"] <= mine["epsilon"] * (1 + 1e-9)
