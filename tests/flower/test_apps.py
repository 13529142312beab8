"""The two apps with Flower's own messages: only named bytes are read, and only a node's owner names its client."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

from pgfl.demo import largest_difference
from pgfl.flower import client
from pgfl.flower.client import Trouble
from pgfl.flower.letters import HELLO, NAME, ROUND
from pgfl.flower.nodes import play
from pgfl.flower.servers import ServerGraph
from pgfl.network.protocol.messages import Decline
from pgfl.network.protocol.wire import Limits, decode
from tests.flower.runs import Carrier, Clock, graph_of, prepared
from tests.network.client_folders import client_folder

pytestmark = pytest.mark.proof  # importing Flower takes seconds


@pytest.fixture(scope="module")
def flwr():
    import flwr.app
    import flwr.clientapp
    import flwr.serverapp
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 2, 3  # as Flower's processes are told
    return flwr


def context(flwr, node, run=None):
    return flwr.app.Context(1, 2, node, flwr.app.RecordDict(), run or {})


def message(flwr, kind, content, number="7", node=2):
    sent = flwr.app.Message(content, node, kind)
    sent.metadata.__dict__["_message_id"] = number  # as Flower's grids do
    return sent


def test_a_run_over_flowers_messages_is_the_simulator(tmp_path, flwr):
    from pgfl.flower.apps import GridPost, client_app

    network = prepared(tmp_path, servers=2, clients=1, rounds=2)
    carrier, app, numbers, pushed = Carrier(network), client_app(), count(), {}

    class Grid:
        def get_node_ids(self):
            return carrier.nodes()

        def push_messages(self, messages):
            for sent in messages:
                number = sent.metadata.__dict__["_message_id"] = str(next(numbers))
                pushed[number] = sent
                yield number

        def pull_messages(self, sent):
            for number in sent:
                asked = pushed.pop(number)
                yield app(asked, context(flwr, carrier.config(asked.metadata.dst_node_id)))

    servers, clock = ServerGraph(graph_of(network), network.folder), Clock()
    ended = play(servers, GridPost(Grid()), clock, clock.sleep)
    servers.close()
    assert set(ended.values()) == {"all rounds are done"}
    assert largest_difference(network) <= 1e-10


def test_neither_a_run_nor_a_message_names_a_client(tmp_path, flwr):
    from pgfl.flower.apps import client_app, parts_of

    own, planted = client_folder(tmp_path / "own"), client_folder(tmp_path / "planted", record_noise="noise")
    planted.write_text(planted.read_text().replace('"ann"', '"eve"'))
    names = {"client": str(planted), "partition-id": 0, client.CLIENTS: str(tmp_path)}
    content = flwr.app.RecordDict({"pgfl": flwr.app.ConfigRecord({"client": str(planted).encode()})})
    reply = client_app()(message(flwr, HELLO, content), context(flwr, {"client": str(own)}, names))
    assert parts_of(reply) == {NAME: b"ann"}
    reply = client_app()(message(flwr, HELLO, content), context(flwr, {}, names))
    assert parts_of(reply) == {NAME: b""}


def test_garbage_records_are_a_constant_and_not_an_exception(tmp_path, flwr):
    from pgfl.flower.apps import client_app, parts_of

    own = {"client": str(client_folder(tmp_path))}
    app = flwr.app
    said = []
    for records in (
        {},
        {"pgfl": app.ConfigRecord({"welcome": 3, "request": ["a", "b"]})},
        {"pgfl": app.ArrayRecord({"request": app.Array(np.full(5, np.nan))})},
        {"pgfl": app.MetricRecord({"request": 1.0})},
        {"other": app.ArrayRecord({"w": app.Array("object", (10**6,), "numpy.ndarray", b"\x80\x04garbage")})},
    ):
        reply = client_app()(message(flwr, ROUND, app.RecordDict(records)), context(flwr, own))
        said.append(parts_of(reply)["frame"])
    assert len(set(said)) == 1
    assert decode(said[0], Limits(2), (Decline,)).header.reason == Trouble.UNREADABLE


def test_an_exception_does_not_leave(tmp_path, flwr, monkeypatch):
    from pgfl.flower.apps import client_app, parts_of

    def fails(*_):
        raise ValueError("row 3 has y = 0.12345")

    monkeypatch.setattr(client, "load_samples", fails)
    reply = client_app()(
        message(flwr, ROUND, flwr.app.RecordDict()), context(flwr, {"client": str(client_folder(tmp_path))})
    )
    assert decode(parts_of(reply)["frame"], Limits(2), (Decline,)).header.reason == Trouble.FAILED
