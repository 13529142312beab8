"""The paper's round on Flower's simulation engine: the same mathematics, its own virtual clients and scheduling.

Run inside the peers' environment, with the clients' data as an npz file; prints seconds of every round as JSON. The
server keeps the duals, which favours Flower: a client only solves its primal problem.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

FILE, ROUNDS, OUT = sys.argv[1], int(sys.argv[2]), sys.argv[3]
DATA = dict(np.load(FILE))
RHO, TAU = float(DATA["rho"]), float(DATA["tau"])
client, server = ClientApp(), ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    k = int(context.node_config["partition-id"])
    data = dict(np.load(FILE)) if "inverse" not in _CACHE else _CACHE
    _CACHE.update(data)
    pull = message.content["pull"]["vector"].numpy()
    model = data["inverse"][k] @ (data["right"][k] + pull)
    return Message(RecordDict({"model": ArrayRecord({"vector": Array(model)})}), reply_to=message)


_CACHE: dict[str, np.ndarray] = {}


@server.main()
def main(grid: Grid, context: Context) -> None:
    clients = len(DATA["server"])
    while len(list(grid.get_node_ids())) < clients:
        time.sleep(0.1)
    nodes = sorted(grid.get_node_ids())
    pair = DATA["server"] * DATA["clusters"] + DATA["cluster"]
    members = np.bincount(pair)
    mixing = DATA["mixing"]
    dimension = DATA["right"].shape[1]
    servers, dual, model = (
        np.zeros((len(members), dimension)),
        np.zeros((clients, dimension)),
        np.zeros((clients, dimension)),
    )
    stamps = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        pulls = dual + RHO * servers[pair]
        messages = [
            Message(
                RecordDict({"pull": ArrayRecord({"vector": Array(pulls[i])})}), dst_node_id=node, message_type="train"
            )
            for i, node in enumerate(nodes)
        ]
        place = {node: i for i, node in enumerate(nodes)}
        for reply in grid.send_and_receive(messages):
            model[place[reply.metadata.src_node_id]] = reply.content["model"]["vector"].numpy()
        aggregate = np.zeros_like(servers)
        np.add.at(aggregate, pair, model - dual / RHO)
        mixed = np.einsum("sp,pqd->sqd", mixing, (aggregate / members[:, None]).reshape(len(mixing), -1, dimension))
        others = (mixed.sum(axis=1, keepdims=True) - mixed) / (mixed.shape[1] - 1)
        servers = ((1 - TAU) * mixed + TAU * others).reshape(servers.shape)
        dual += RHO * (servers[pair] - model)
        stamps.append(time.perf_counter() - began)
    with open(OUT, "w") as file:
        json.dump({"seconds": stamps}, file)


run_simulation(server, client, num_supernodes=len(DATA["server"]), backend_config={"client_resources": {"num_cpus": 1}})
