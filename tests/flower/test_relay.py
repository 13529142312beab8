"""Several Flower federations train together: each has a site, and sites exchange over pgfl's own links."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from contextlib import closing

import pytest

from pgfl.algorithms.roles import RoundRequest
from pgfl.demo import largest_difference
from pgfl.errors import NetworkError
from pgfl.flower import nodes
from pgfl.flower.relay import KEYS, SiteRelay, Trouble
from pgfl.network.client.rounds import decline
from pgfl.network.protocol import messages
from pgfl.network.protocol.identity import CLIENT_KEY
from pgfl.network.protocol.messages import encode_request
from pgfl.network.protocol.wire import Limits, decode
from pgfl.network.site.settings import load_site
from pgfl.network.site.site import Site
from pgfl.network.site.store import STORE, SiteStore
from pgfl.privacy.ledger.ledger import Ledger
from tests.flower.runs import Carrier, graph_of, prepared

ROUNDS = 3


def graph_of_site(network, site):
    whole = graph_of(network)
    members = {name: member for name, member in whole.clients.items() if member.server == site}
    return whole.model_copy(update={"servers": {site: ()}, "clients": members})


def relay_of(network, site, known=True):
    """With the keys that the site has admitted already, if these are `known`."""
    home = network.home(site)
    for client in network.clients_of(site):
        (home / KEYS / client).mkdir(parents=True)
        if known:
            shutil.copy(network.home(client) / CLIENT_KEY, home / KEYS / client)
    return SiteRelay(graph_of_site(network, site), home)


def served(network):
    """All sites, in a thread; returns it, running."""
    sites = [Site(load_site(network.home(site) / "site.toml")) for site in network.federation.server_ids]

    async def together():
        await asyncio.gather(*(site.run() for site in sites))

    thread = threading.Thread(target=asyncio.run, args=(together(),))
    thread.start()
    return thread


def carrier_of(network, site):
    carrier = Carrier(network)
    carrier.client_of = {node: name for node, name in carrier.client_of.items() if name in network.clients_of(site)}
    return carrier


def test_two_federations_with_a_site_each_are_the_simulator_given_the_noise(tmp_path):
    network = prepared(tmp_path, servers=2, clients=2, rounds=ROUNDS)
    sites = served(network)
    relays = {site: relay_of(network, site) for site in network.federation.server_ids}

    def play(site):
        nodes.play(relays[site], carrier_of(network, site), sleep=lambda _: time.sleep(0.005))

    playing = [threading.Thread(target=play, args=(site,)) for site in relays]
    for thread in playing:
        thread.start()
    for thread in (*playing, sites):
        thread.join(60.0)
        assert not thread.is_alive()
    for relay in relays.values():
        relay.close()
    assert all(relay.ended for relay in relays.values())
    assert largest_difference(network) <= 1e-10
    for client in network.federation.client_ids:
        with Ledger.read(network.home(client) / "ledger.db") as ledger:
            ledger.verify()
            assert ledger.count == ROUNDS


def test_a_relay_admits_its_clients_with_keys_of_its_own(tmp_path):
    network = prepared(tmp_path, servers=1, clients=2, rounds=ROUNDS)
    (site,) = network.federation.server_ids
    with closing(SiteStore(network.home(site) / STORE)) as store:
        for client in network.clients_of(site):
            store.expel(client)
    with pytest.raises(NetworkError, match="belongs to another key"):
        relay_of(network, site, known=False)
    (network.home(site) / STORE).unlink()
    (network.home(site) / f"{STORE}.made").unlink()
    shutil.rmtree(network.home(site) / KEYS)
    relay_of(network, site, known=False)
    with closing(SiteStore(network.home(site) / STORE)) as store:
        assert sorted(store.clients()) == sorted(network.clients_of(site))
        assert {name: known.cluster for name, known in store.clients().items()} == {
            name: member.cluster for name, member in graph_of_site(network, site).clients.items()
        }


def test_a_graph_of_another_site_or_training_is_refused(tmp_path):
    network = prepared(tmp_path, servers=2, clients=1, rounds=ROUNDS)
    first, second = network.federation.server_ids
    with pytest.raises(NetworkError, match=f"must be {first} alone"):
        SiteRelay(graph_of_site(network, second), network.home(first))
    graph = graph_of_site(network, first)
    other = graph.model_copy(update={"training": graph.training.model_copy(update={"rounds": 99})})
    with pytest.raises(NetworkError, match=r"is not that of the site .*rounds: 3 -> 99"):
        SiteRelay(other, network.home(first))


def test_a_node_that_is_gone_while_it_is_asked_declines_in_constant_words(tmp_path):
    network = prepared(tmp_path, servers=1, clients=1, rounds=ROUNDS)
    (site,) = network.federation.server_ids
    relay, (client,) = relay_of(network, site), network.clients_of(site)
    sent = encode_request(RoundRequest(1, 1, None))
    request = decode(sent, Limits(network.training.dimension), (messages.Request,))
    threading.Timer(0.05, relay.receive, (client, 1, None, 0.0)).start()
    assert relay._ask(client, request) == decline(1, Trouble.FAILED)
    assert relay.take_requests() == {client: (1, sent)}
    assert relay.take_requests() == {}
