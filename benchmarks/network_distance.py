"""Rounds per second as sites, or sites and clients, are further apart: real TLS links over delayed cables."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from harness import Row, quartiles

sys.path.insert(0, str(Path(__file__).parents[1]))

from pgfl.demo import demo_federation, demo_training
from pgfl.network.local import LocalNetwork
from pgfl.network.site.settings import load_site
from pgfl.network.site.site import Site
from tests.network.inprocess import participant
from tests.network.wires import LongCable

SITES, CLIENTS, WARM_UP, ROUNDS = 2, 2, 3, 13
ROUND_TRIPS = (0.0, 0.05, 0.12, 0.25, 0.5)
LOSS = 0.02  # of the packets, on the longest links


def distance() -> Iterator[Row]:
    """Median rounds, beside what light needs: half a round trip between sites, a whole one to clients."""
    for far_clients in (False, True):
        who = "sites and clients" if far_clients else "sites, with clients nearby,"
        for round_trip in ROUND_TRIPS:
            seconds = _round_seconds(round_trip, far_clients)
            least = round_trip * (1.5 if far_clients else 0.5)
            rates = quartiles(1.0 / seconds)
            yield Row(
                f"distance-{'all' if far_clients else 'sites'}-{1000 * round_trip:.0f}",
                f"{who} {1000 * round_trip:.0f} ms apart (round trip): rounds a second",
                "the delays alone" if round_trip else "—", "—", *rates,
                f"{1000 * float(np.median(seconds)):.0f} ms a round",
                f"{1000 * least:.0f} ms a round" if round_trip else "—", clock="wall",
            )  # fmt: skip

    longest = ROUND_TRIPS[-1]
    seconds = _round_seconds(longest, True, LOSS)
    yield Row(
        "distance-all-lossy",
        f"sites and clients {1000 * longest:.0f} ms apart, {LOSS:.0%} of the packets lost, 20 Mbit/s: rounds a second",
        "the delays alone", "—", *quartiles(1.0 / seconds), f"{1000 * float(np.median(seconds)):.0f} ms a round",
        f"{1500 * longest:.0f} ms a round", clock="wall",
    )  # fmt: skip


def _round_seconds(round_trip: float, far_clients: bool, loss: float = 0.0) -> np.ndarray:
    federation = demo_federation(SITES, CLIENTS, "huber", seed=4)
    with tempfile.TemporaryDirectory() as folder:
        training = demo_training(federation, "huber", ROUNDS)
        network = LocalNetwork(Path(folder), federation, training, {"enabled": False})

        def cable(port: int) -> int:
            return int(LongCable(port, round_trip, loss=loss, seed=port).port) if round_trip else port

        network.prepare(lambda here, there: f"127.0.0.1:{cable(network.ports[there])}")
        lead = cable if far_clients else lambda port: port
        devices = [participant(network, client, lead) for client in federation.client_ids]
        threads = [threading.Thread(target=device.take_part, daemon=True) for device in devices]
        asyncio.run(_serve(network, threads))
        for thread in threads:
            thread.join(30)
        finished = np.array([row["finished"] for row in network.history(federation.server_ids[0])])
    return (finished[2:] - finished[:-2])[WARM_UP:] / 2.0  # of two sites one can be ahead: a long round, a short one


async def _serve(network: LocalNetwork, threads: list[threading.Thread]) -> None:
    sites = [Site(load_site(network.home(name) / "site.toml")) for name in network.federation.server_ids]
    for thread in threads:
        thread.start()
    async with asyncio.timeout(300):
        await asyncio.gather(*(site.run() for site in sites))
