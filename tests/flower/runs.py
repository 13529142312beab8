"""Runs of a graph of servers without Flower: letters are carried here, clients are called as their ClientApps are."""

from __future__ import annotations

from itertools import count

from pgfl.demo import demo_federation, demo_privacy, demo_training
from pgfl.flower import client
from pgfl.flower.graph import GraphSettings
from pgfl.flower.letters import FRAME, HELLO, NAME
from pgfl.flower.nodes import play
from pgfl.flower.servers import ServerGraph
from pgfl.network.local import LocalNetwork


def prepared(folder, servers=3, clients=2, rounds=3, objective="huber", privacy=None, timing=None, **algorithm):
    """Folders of clients as their owners would have them, and of servers; clients record their noise."""
    federation = demo_federation(servers, clients, objective, seed=2)
    training = demo_training(federation, objective, rounds)
    if algorithm:
        table = training.model_dump()
        table["algorithm"] |= algorithm
        training = type(training).model_validate(table)
    network = LocalNetwork(
        folder, federation, training, demo_privacy(objective, 20.0, rounds) if privacy is None else privacy,
        timing or {}, record_noise=True,
    )  # fmt: skip
    network.prepare()
    return network


def graph_table(network, **tables):
    """The content of graph.toml for the servers and clients of a network."""
    federation = network.federation
    servers = {site: [other for a, other in network.edges() if a == site] for site in federation.server_ids}
    clients = {
        name: {
            "server": federation.server_ids[federation.client_server[k]],
            "cluster": federation.cluster_ids[federation.client_cluster[k]],
        }
        for k, name in enumerate(federation.client_ids)
    }
    training = network.training.model_dump(mode="json", exclude_none=True)
    return {"servers": servers, "clients": clients, "bounds": {"spread": 1e9}, "training": training, **tables}


def graph_of(network, **tables):
    table = graph_table(network, **tables)
    table["servers"] = {site: tuple(others) for site, others in table["servers"].items()}
    return GraphSettings.model_validate({**table, "training": network.training})


class Carrier:
    """Nodes with a client each; a letter is answered when replies are collected, unless its node is away or broken."""

    def __init__(self, network, numbers=None):
        numbers = count(1000) if numbers is None else numbers
        self.client_of = dict(zip(numbers, network.federation.client_ids, strict=False))
        self.network = network
        self.away, self.broken, self.slow = set(), set(), set()
        self.waiting, self.sent, self._numbers = {}, [], count()

    def config(self, node):
        return {"client": str(self.network.home(self.client_of[node]) / "client.toml")}

    def nodes(self):
        return set(self.client_of) - self.away

    def send(self, letter):
        if letter.node in self.away:
            return None
        number = str(next(self._numbers))
        self.waiting[number] = letter
        self.sent.append(letter)
        return number

    def collect(self, sent):
        there = [number for number in sent if self.waiting[number].node not in self.away | self.slow]
        return [(number, self.answer(self.waiting.pop(number))) for number in there]

    def answer(self, letter):
        if letter.node in self.broken:
            return None
        config = self.config(letter.node)
        if letter.kind == HELLO:
            return {NAME: client.introduce(config)}
        return {FRAME: client.answer(config, letter.parts)}


class Clock:
    """Time passes only in `sleep`; `then` is called at every step."""

    def __init__(self, then=lambda: None, most=10_000.0):
        self.now, self.then, self.most = 0.0, then, most

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        assert self.now < self.most, "the run does not end"
        self.then()


def run(network, carrier=None, graph=None, then=lambda: None):
    """Play all rounds; why each server ended."""
    servers = ServerGraph(graph_of(network) if graph is None else graph, network.folder)
    clock = Clock(then)
    try:
        return play(servers, carrier or Carrier(network), clock, clock.sleep)
    finally:
        servers.close()
