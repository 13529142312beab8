"""A network that changes while it trains: sites that are linked meanwhile, and clocks that jump."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
import time
from itertools import pairwise
from types import SimpleNamespace

import pytest

from pgfl.demo import demo_federation, demo_training, largest_difference
from pgfl.network.local import LocalNetwork
from pgfl.network.protocol import identity
from pgfl.network.site.settings import load_site
from pgfl.network.site.site import Site
from pgfl.network.site.store import STORE, SiteStore
from tests.network.inprocess import participant, train_in_process

OPEN = {"enabled": False}
FIRST, MIDDLE, NEW = "server-0", "server-1", "server-2"


def link(network, here, there, port=None):
    """What `pgfl site link` does."""
    store = SiteStore(network.home(here) / STORE)
    certificate = identity.SiteCertificate.read(network.home(there) / identity.SITE_CERTIFICATE)
    store.link(certificate, f"127.0.0.1:{port or network.ports[there]}")
    store.close()


def unlink_all(network, *sites):
    for site in sites:
        database = sqlite3.connect(network.home(site) / STORE)
        database.execute("DELETE FROM neighbours")
        database.commit()
        database.close()


async def until(condition, seconds=240.0):
    for _ in range(int(seconds / 0.05)):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("waited in vain")


@pytest.mark.proof
def test_a_site_linked_while_training_runs_catches_up_and_takes_part(tmp_path):
    """At first even at a wrong address: linking again sets it right, in the running site."""
    federation = demo_federation(3, 1, "huber", seed=1)
    timing = {"answers": 2.0, "exchange": 2.0, "start": 5.0, "pace": 0.05}
    network = LocalNetwork(tmp_path, federation, demo_training(federation, "huber", 10**6), OPEN, timing)
    network.prepare()
    unlink_all(network, FIRST, MIDDLE, NEW)
    link(network, FIRST, MIDDLE)
    link(network, MIDDLE, FIRST)
    ends = []
    clients = [participant(network, client) for client in federation.client_ids]
    threads = [threading.Thread(target=lambda c=client: ends.append(c.take_part()), daemon=True) for client in clients]

    def receives(here, there):
        return there in (network.history(here) or [{"neighbours": []}])[-1]["neighbours"]

    async def scenario():
        sites = {name: Site(load_site(network.home(name) / "site.toml")) for name in (FIRST, MIDDLE)}
        running = [asyncio.create_task(site.run()) for site in sites.values()]
        for thread in threads:
            thread.start()
        await until(lambda: receives(FIRST, MIDDLE) and network.round_of(MIDDLE) > 20)
        link(network, MIDDLE, NEW, port=1)
        link(network, NEW, MIDDLE, port=1)  # at the right one it could call before its neighbour's call has failed
        sites[NEW] = Site(load_site(network.home(NEW) / "site.toml"))
        running.append(asyncio.create_task(sites[NEW].run()))
        await until(lambda: NEW in sites[MIDDLE].peers.why_down)
        link(network, MIDDLE, NEW)
        await until(lambda: receives(MIDDLE, NEW) and receives(NEW, MIDDLE) and network.history(NEW)[-1]["accepted"])
        assert abs(network.round_of(NEW) - network.round_of(MIDDLE)) <= 3
        rounds = [row["round"] for row in network.history(NEW)]
        assert max(after - before for before, after in pairwise([0, *rounds])) > 5, "it took its neighbour's round over"
        for site in sites.values():
            site.stop("enough")
        await asyncio.gather(*running)

    asyncio.run(scenario())
    assert ends == [], "a site that is stopped does not end its clients"
    for client in clients:
        client.stop()
    for thread in threads:
        thread.join(10)


def test_a_clock_that_jumps_changes_nothing(tmp_path, monkeypatch):
    federation = demo_federation(2, 2, "ridge", seed=2)
    network = LocalNetwork(tmp_path, federation, demo_training(federation, "ridge", 8), OPEN)
    jumps = iter(range(10**9))
    jumping = SimpleNamespace(
        time=lambda: time.time() + (-1) ** next(jumps) * 86_400 * 365, monotonic=time.monotonic, sleep=time.sleep
    )
    ours = [module for name, module in sys.modules.items() if name.startswith("pgfl.") and hasattr(module, "time")]
    for module in ours:
        monkeypatch.setattr(module, "time", jumping)
    assert {"pgfl.network.site.site", "pgfl.network.site.store"} <= {module.__name__ for module in ours}
    ends = train_in_process(network)
    assert set(ends.values()) == {"all rounds are done"}
    assert all(network.round_of(site) == 8 for site in federation.server_ids)
    assert next(jumps) > 8, "the clock was looked at"
    assert largest_difference(network) <= 1e-10
