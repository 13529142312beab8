"""Sites and clients far from each other: half a second for a round trip, 2 % of the packets lost, 20 Mbit/s."""

from __future__ import annotations

import logging

import pytest

from pgfl.demo import demo_federation, demo_training, largest_difference
from pgfl.network.local import LocalNetwork
from tests.network.inprocess import train_in_process
from tests.network.wires import LongCable

ROUNDS = 5


@pytest.mark.proof
def test_half_a_second_and_lost_packets_keep_nobody_out_of_any_round(tmp_path, caplog):
    """With the default deadlines: every link and stream holds, everyone takes part, and it is the simulator."""
    federation = demo_federation(2, 2, "huber", seed=4)
    network = LocalNetwork(tmp_path, federation, demo_training(federation, "huber", ROUNDS), {"enabled": False})
    cables = []

    def over_a_long_cable(port):
        cables.append(LongCable(port, seed=len(cables)))
        return cables[-1].port

    with caplog.at_level(logging.INFO):
        ends = train_in_process(
            network,
            seconds=240.0,
            peer_address=lambda here, there: f"127.0.0.1:{over_a_long_cable(network.ports[there])}",
            client_port=over_a_long_cable,
        )
    assert set(ends.values()) == {"all rounds are done"}
    assert len(cables) == 2 + 4
    assert sum(cable.lost for cable in cables) > 0, "else the cables were too good"
    for site in federation.server_ids:
        history = network.history(site)
        assert [row["round"] for row in history] == list(range(1, ROUNDS + 1))
        assert all(row["accepted"] == network.clients_of(site) and not row["absent"] for row in history)
    assert largest_difference(network) <= 1e-10
    assert not any("did not reply" in line or "is gone" in line for line in before_the_end(caplog.messages))


def before_the_end(messages):
    """The log until the first site is done; then clients leave."""
    return messages[: next(place for place, line in enumerate(messages) if line.startswith("finished after"))]
