"""The same training inside a Flower federation and on pgfl's network: `python benchmarks/flower_app.py`.

It needs the extra `flower`. Both run as real processes on loopback, with one process for each node or client.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from pgfl.demo import demo_federation, demo_privacy, demo_training, largest_difference, train
from pgfl.network.local import LocalNetwork
from tests.flower.processes_of_flower import Flower
from tests.flower.runs import graph_table


def prepared(folder: Path, servers: int, clients: int, rounds: int) -> LocalNetwork:
    """The folders of a training, ready for either."""
    federation = demo_federation(servers, clients, "huber", seed=2)
    privacy = demo_privacy("huber", 20.0, rounds)
    return LocalNetwork(folder, federation, demo_training(federation, "huber", rounds), privacy, record_noise=True)


def in_flower(network: LocalNetwork, folder: Path) -> float:
    """Seconds of all of it: SuperLink, SuperNodes and `flwr run`."""
    network.prepare()
    flower, began = Flower(folder), time.monotonic()
    try:
        flower.start(network.home(client) / "client.toml" for client in network.federation.client_ids)
        said = flower.run(flower.app(graph_table(network)), network.folder)
        if network.round_of(network.federation.server_ids[0]) < network.training.rounds:
            raise SystemExit(said + flower.log())
        return time.monotonic() - began
    finally:
        flower.stop()


def main() -> None:
    """Print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("servers", 2), ("clients", 1), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    size = asked.servers, asked.clients, asked.rounds
    with tempfile.TemporaryDirectory() as folder:
        there = prepared(Path(folder, "there"), *size)
        here = prepared(Path(folder, "here"), *size)
        whole = {"inside Flower": in_flower(there, Path(folder, "flower")), "pgfl's network": train(here)}
        for (name, seconds), network in zip(whole.items(), (there, here), strict=True):
            rounds = [row["seconds"] for row in network.history(network.federation.server_ids[0])]
            print(
                f"{name}: {seconds:.1f} s in all, a round {np.median(rounds[1:]):.3g} s (median of {len(rounds) - 1}), "
                f"difference to the simulator {largest_difference(network):.1e}"
            )


if __name__ == "__main__":
    main()
