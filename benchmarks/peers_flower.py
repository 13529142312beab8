"""The paper's round on Flower's simulation engine: its own virtual clients, messages and scheduling."""

from __future__ import annotations

import time

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from peers_round import Servers, problem, rounds_on_demand

client, server = ClientApp(), ServerApp()


def message_of(vector, **where) -> Message:
    return Message(RecordDict({"content": ArrayRecord({"vector": Array(vector)})}), **where)


def vector_of(message: Message):
    return message.content["content"]["vector"].numpy()


def client_of(context: Context) -> int:
    return int(context.node_config["partition-id"])


@client.query()
def who(message: Message, context: Context) -> Message:
    return message_of(np.array(client_of(context)), reply_to=message)


@client.train()
def train(message: Message, context: Context) -> Message:
    return message_of(problem().solve(client_of(context), vector_of(message)), reply_to=message)


def clients_of_nodes(grid: Grid) -> dict[int, int]:
    """Which client a node is: the order of the nodes does not say."""
    while len(nodes := list(grid.get_node_ids())) < problem().clients:
        time.sleep(0.1)
    asked = [message_of(np.array(0), dst_node_id=node, message_type="query") for node in nodes]
    return {reply.metadata.src_node_id: int(vector_of(reply)) for reply in grid.send_and_receive(asked)}


@server.main()
def main(grid: Grid, context: Context) -> None:
    servers, place = Servers(), clients_of_nodes(grid)
    for _ in rounds_on_demand(servers):
        pulls = servers.pulls()
        messages = [message_of(pulls[k], dst_node_id=node, message_type="train") for node, k in place.items()]
        for reply in grid.send_and_receive(messages):
            servers.client_models[place[reply.metadata.src_node_id]] = vector_of(reply)
        servers.finish(servers.sums())


if __name__ == "__main__":
    run_simulation(server, client, problem().clients, backend_config={"client_resources": {"num_cpus": 1}})
