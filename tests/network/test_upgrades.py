"""A site with a newer pgfl among older ones: both logs say whom to upgrade, nothing is lost, and then it trains on."""

from __future__ import annotations

import asyncio
import sys

from pgfl.network import processes
from tests.network.test_site_alive import network_of, site_of, taking_part, until

NEWER = """
import asyncio, logging, sys
from pathlib import Path
from pgfl.network.protocol import wire
from pgfl.network.site.site import Site
from pgfl.network.site.settings import load_site
wire.VERSION += 1
logging.basicConfig(level=logging.INFO)
asyncio.run(Site(load_site(Path(sys.argv[1]))).run())
"""


def test_a_newer_site_is_refused_with_what_to_do_and_joins_once_both_are_of_one_version(tmp_path, caplog):
    network = network_of(tmp_path, sites=2, quorum={}, start=0.5)
    here, there = network.federation.server_ids
    near, far = network.clients_of(here)[0], network.clients_of(there)[0]
    home = network.home(there)
    newer = processes.start([sys.executable, "-c", NEWER, str(home / "site.toml")], home / "log.txt")
    try:

        async def scenario():
            site = site_of(network, here)
            running = asyncio.create_task(site.run())
            with caplog.at_level("INFO"), taking_part(network, near, far):
                await until(lambda: "which a newer pgfl writes" in caplog.text)
                await until(lambda: "which an older pgfl writes" in network.log(there))
                await until(lambda: caplog.text.count("upgrade pgfl on this machine") >= 2)
                assert "upgrade pgfl there" in network.log(there)
                assert site.rounds.round == 0, "nobody's budget is spent alone"
                await asyncio.to_thread(processes.stop, newer)
                upgraded = site_of(network, there)
                also = asyncio.create_task(upgraded.run())
                await until(lambda: min(site.rounds.round, upgraded.rounds.round) > 2)
                for each in (site, upgraded):
                    each.stop("enough")
                await asyncio.gather(running, also)

        asyncio.run(scenario())
    finally:
        processes.stop(newer)
