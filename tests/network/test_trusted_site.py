"""Clients that trust their own site: it adds the noise once, keeps their accounts, and nothing clean leaves it."""

from __future__ import annotations

import json
import logging

import numpy as np

from pgfl.demo import demo_federation, demo_privacy, demo_training, largest_difference
from pgfl.network.agreement import Training
from pgfl.network.client.accounts import PrivateAccount
from pgfl.network.client.backup import model_of_client
from pgfl.network.client.settings import load_client
from pgfl.network.local import LocalNetwork
from pgfl.network.protocol.links import PeerLink
from pgfl.network.protocol.streams import ClientStreams
from pgfl.network.site.backup import model_of_site
from pgfl.network.site.reports import Reports, metrics_page
from pgfl.network.site.settings import load_site
from pgfl.network.site.status import status_of
from pgfl.network.site.store import SiteStore
from pgfl.privacy import lattice
from pgfl.privacy.ledger.ledger import Ledger
from tests.command_line import refused
from tests.network.inprocess import train_in_process

ROUNDS = 5
PATIENT = {"answers": 120.0, "start": 120.0}  # seconds: whoever is slow is waited for


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


class Overheard:
    """Everything that sites send, show and log, and apart from it what their clients entrusted to them."""

    def __init__(self, monkeypatch):
        self.sent, self.shown, self.clean, self.noised = [], [], {}, []
        self._wrap(monkeypatch, ClientStreams, "send", lambda _, client, data: self.sent.append(data))
        self._wrap(monkeypatch, PeerLink, "publish", lambda _, round, data: self.sent.append(data))
        self._wrap(monkeypatch, Reports, "write_live", lambda site: self.shown.append(metrics_page(site.figures())))
        self._wrap(monkeypatch, SiteStore, "keep_noised", lambda _, round, pair, noised, n: self.noised.append(noised))
        self._wrap(monkeypatch, PrivateAccount, "perturb", self._entrusted)

    def _wrap(self, monkeypatch, where, name, look):
        plain = getattr(where, name)

        def looking(*arguments):
            look(*arguments)
            return plain(*arguments)

        monkeypatch.setattr(where, name, looking)

    def _entrusted(self, account, slot, model):
        self.clean[account.ledger.client, slot.number] = model.copy()

    def secrets(self, network):
        """The clean contributions, and their sums and means, in the ways in which one might compute them."""
        cluster = dict(zip(network.federation.client_ids, network.federation.client_cluster.tolist(), strict=True))
        groups = {}
        for (client, number), model in self.clean.items():
            site = next(s for s in network.federation.server_ids if client in network.clients_of(s))
            groups.setdefault((site, cluster[client], number), []).append(model)
        for models in groups.values():
            total = np.sum(models, axis=0)
            yield from [*models, total, total / len(models), np.mean(models, axis=0)]
            yield lattice.from_lattice(lattice.to_lattice(models).sum(axis=0))
            yield lattice.to_lattice(models).sum(axis=0)


def found_in(vectors, heap):
    """The numbers of some vectors that stand in bytes, as eight bytes or written out."""
    numbers = [number for vector in vectors for number in vector]
    return [
        number
        for number in numbers
        if number.tobytes() in heap or number.tobytes()[::-1] in heap or str(number)[:11].encode() in heap
    ]


def test_nothing_clean_is_written_or_sent_by_a_site(tmp_path, monkeypatch, caplog):
    """Store, ledgers, logs, status, metrics, model files, every frame: no number of a contribution, a sum or a mean."""
    caplog.set_level(logging.DEBUG)
    overheard = Overheard(monkeypatch)
    network = trusting_network(tmp_path, rounds=3, bounds={"x_norm": 3.0, "noise": 1.0})
    network.record_noise = False
    train_in_process(network)
    assert len(overheard.clean) == 3 * 8
    heap = [b"".join(overheard.sent), "".join(overheard.shown).encode(), caplog.text.encode()]
    for site in network.federation.server_ids:
        model_of_site(load_site(network.home(site) / "site.toml")).save(network.home(site) / "model.pgfl")
        heap += [json.dumps(status_of(network.home(site))).encode(), json.dumps(network.history(site)).encode()]
        heap += [path.read_bytes() for path in sorted(network.home(site).rglob("*")) if path.is_file()]
    for client in network.federation.client_ids:
        client_model = model_of_client(load_client(network.home(client) / "client.toml"))
        assert client_model.client_ids == ()
        client_model.save(network.home(client) / "model.pgfl")
        heap.append((network.home(client) / "model.pgfl").read_bytes())
    everything = b"\n".join(heap)
    assert found_in(overheard.secrets(network), everything) == []
    assert len(found_in(overheard.noised, everything)) == 0, "sums are forgotten with their round"
    models = [
        model for _, saved in map(network.arrays, network.federation.server_ids) for model in saved["state.model"]
    ]
    assert len(found_in(models, everything)) == sum(map(len, models)), "what is public is found by the same search"
    clean = overheard.clean["client-0", 1]
    assert len(found_in([clean], (network.home("client-0") / "ledger.db").read_bytes())) == len(clean)


def test_clients_that_go_and_a_site_that_is_stopped_in_a_round_cost_nobody_twice(tmp_path):
    """A client leaves for good after two rounds: its pair sits out, the others go on, and accounts are right."""
    network = trusting_network(tmp_path, sites=1, rounds=6, timing=PATIENT, quorum={"clients": 0})
    network.own_privacy = {"client-0": {"max_releases": 2}}
    train_in_process(network)
    history = network.history("server-0")
    assert [row["accepted"] for row in history] == [network.clients_of("server-0")] * 2 + [["client-2", "client-3"]] * 4
    assert "client-0" in history[-1]["retired"]
    charged = {}
    for client in network.federation.client_ids:
        with site_ledger(network, client) as ledger:
            ledger.verify()
            charged[client] = ledger.count
    assert charged == {"client-0": 2, "client-1": 2, "client-2": 6, "client-3": 6}
    with Ledger.read(network.home("client-1") / "ledger.db") as ledger:
        assert ledger.count == 2, "a client whose sum could not be used was not asked"


def test_the_demonstration_refuses_what_it_cannot_show():
    assert "'sight' is not one of" in refused("network", "demo", "--trust", "sight")
    assert "at least 2 clients" in refused("network", "demo", "--trust", "site", "--clients", "1")
