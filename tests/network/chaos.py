"""`make chaos`: faults, one after the other, in a network of real processes; ends with a table of what became of them.

    make chaos ARGS="--faults 30 --seed 7 --trust masked"

After each fault everyone must take part everywhere again; in the end every ledger must be whole, and nobody charged
twice. A lie must not move the rounds of those who do not lie. What happens is drawn from the seed, so a campaign can be
repeated.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import closing
from pathlib import Path

from pgfl.demo import CLIENTS, demo_federation, demo_training
from pgfl.errors import NetworkError
from pgfl.network.local import LocalNetwork
from pgfl.network.site.reports import LIVE
from pgfl.network.site.store import STORE, SiteStore
from pgfl.privacy.ledger.ledger import Ledger
from tests.network.connect_proxy import ConnectProxy
from tests.network.jumping_clock import JumpingClock
from tests.network.liars import SITE_LIES, LyingClient, LyingSite
from tests.network.wires import Cable

ENDLESS, PATIENCE, SITES = 10**6, 400.0, 2
POLICY = {"enabled": True, "phi0": 1e-7, "zeta": 1.0, "max_releases": ENDLESS, "x_norm": 3.0}
TIMING = {"answers": 3.0, "exchange": 3.0, "start": 60.0, "pace": 0.2, "patience": 3.0}
LYING = 4.0  # seconds; a site notices within one that its operator linked somebody
JUMPS = (3600.0, 86_400.0, 3.2e8)  # seconds, forwards or backwards
_REFUSED = "502 Bad Gateway", "407 Proxy Authentication Required"
REFUSALS = (*(f"HTTP/1.1 {why}\r\n\r\n".encode() for why in _REFUSED), b"what?\r\n\r\n")


class Campaign:
    """A network, and what is done to it."""

    def __init__(self, folder, seed, trust="local"):
        self.chance = random.Random(seed)
        federation = demo_federation(SITES, CLIENTS[trust], "huber", seed=3, trust=trust)
        training = demo_training(federation, "huber", ENDLESS, trust)
        self.network = LocalNetwork(folder, federation, training, {**POLICY, "trust": trust}, TIMING)
        self.sites, self.clients = list(federation.server_ids), list(federation.client_ids)
        self.cables = []
        self.network.prepare(self._over_a_cable)
        self.proxy = ConnectProxy({f"127.0.0.1:{port}": port for port in self.network.ports.values()})
        self.proxy.start()
        self.way_to_proxy = Cable(self.proxy.port)
        for client in self.clients[::2]:
            settings = self.network.home(client) / "client.toml"
            settings.write_text(f'proxy = "http://127.0.0.1:{self.way_to_proxy.port}"\n{settings.read_text()}')
        self.faults = {
            "kill -9 a site": lambda: self.killed(self.sites),
            "kill -9 a client": lambda: self.killed(self.clients),
            "SIGTERM a site": lambda: self.terminated(self.sites),
            "SIGTERM a client": lambda: self.terminated(self.clients),
            "stop a site for a while": lambda: self.stopped(self.sites),
            "stop a client for a while": lambda: self.stopped(self.clients),
            "cut the sites apart": lambda: self.cut(self.cables),
            "the proxy is gone": lambda: self.cut([self.way_to_proxy]),
            "the proxy refuses": self.proxy_refuses,
            "damage live.json": self.damaged,
            "expel and admit a client": self.expelled,
            "a client is ten times slower": self.slowed,
            "a client lies": self.lying_client,
            "the clock jumps": self.clock_jumps,
        }
        self.faults |= {
            f"a neighbour lies {lie.__name__.replace('_', ' ')}": lambda lie=lie: self.lying_site(lie)
            for lie in SITE_LIES
        }
        self.clock = JumpingClock(folder / "clock")
        self.liar, self.liars = LyingSite(self.network, self.chance), []

    def _over_a_cable(self, here, there):
        self.cables.append(Cable(self.network.ports[there]))
        return f"127.0.0.1:{self.cables[-1].port}"

    # faults -----------------------------------------------------------------------------------------------------------

    def killed(self, names):
        name = self.chance.choice(names)
        self.network.kill(name)
        self.pause()
        self.network.start(name)

    def terminated(self, names):
        name = self.chance.choice(names)
        self.network.terminate(name)
        self.pause()
        self.network.start(name)

    def stopped(self, names):
        process = self.network.running[self.chance.choice(names)].pid
        os.kill(process, signal.SIGSTOP)
        self.pause()
        os.kill(process, signal.SIGCONT)

    def cut(self, cables):
        for cable in cables:
            cable.cut()
        self.pause()
        for cable in cables:
            cable.mend()

    def proxy_refuses(self):
        """Half of the clients call their sites through it; the others keep the rounds going."""
        asked, self.proxy.reply = len(self.proxy.asked), self.chance.choice(REFUSALS)
        self.cut([self.way_to_proxy])
        self.pause()
        until = time.monotonic() + 60.0
        while len(self.proxy.asked) == asked:
            assert time.monotonic() < until, "nobody asked the proxy"
            time.sleep(0.1)
        self.proxy.reply = None

    def damaged(self):
        site = self.chance.choice(self.sites)
        (self.network.home(site) / LIVE).write_bytes(self.chance.randbytes(50))

    def expelled(self):
        site = self.chance.choice(self.sites)
        name = self.chance.choice(self.network.clients_of(site))
        with closing(SiteStore(self.network.home(site) / STORE)) as store:
            known = store.clients()[name]
            store.expel(name)
            self.pause()
            store.admit(name, known.key, known.cluster)

    def slowed(self):
        """It computes for a tenth of the time, so that it answers after the round has closed."""
        process = self.network.running[self.chance.choice(self.clients)].pid
        for _ in range(12):
            os.kill(process, signal.SIGSTOP)
            time.sleep(0.45)
            os.kill(process, signal.SIGCONT)
            time.sleep(0.05)

    def lying_site(self, lie):
        before, began = {site: self.network.round_of(site) for site in self.sites}, time.monotonic()
        told = self.liar.told
        self.liar.tell(lie, LYING)
        assert self.liar.told > told, "nobody heard the lie"
        possible = (time.monotonic() - began) / TIMING["pace"] + 1
        for site in self.sites:
            went = self.network.round_of(site) - before[site]
            assert went <= possible, f"{site} went {went} rounds on a neighbour's word; {possible:.0f} were possible"

    def lying_client(self):
        liar = LyingClient(self.network, self.chance, self.chance.choice(self.sites), f"lying-client-{len(self.liars)}")
        self.liars.append(liar)
        liar.tell(LYING)
        assert liar.told or self.network.training.privacy.trust == "masked", "nobody asked the liar"

    def clock_jumps(self):
        """For everyone; one process is started while it is wrong."""
        self.clock.jump(self.chance.choice(JUMPS) * self.chance.choice([1, -1]))
        self.terminated([*self.sites, *self.clients])
        self.pause()
        self.clock.jump(0.0)

    def pause(self):
        time.sleep(self.chance.uniform(0.1, 6.0))

    # what must hold ---------------------------------------------------------------------------------------------------

    def together(self):
        """Everyone takes part everywhere, in a round that began after now, and the neighbours receive each other."""
        before = {site: self.network.round_of(site) for site in self.sites}

        def again():
            rows = {site: self.network.history(site)[-1:] for site in self.sites}
            return all(
                row and row[0]["round"] > before[site] + 1 and row[0]["neighbours"]
                and set(self.network.clients_of(site)) <= set(row[0]["accepted"])
                for site, row in rows.items()
            )  # fmt: skip

        began = time.monotonic()
        self.network.wait(again, PATIENCE, "everyone to take part again")
        return time.monotonic() - began

    def accounts_are_right(self):
        for site in self.sites:
            with closing(SiteStore(self.network.home(site) / STORE)) as store:
                known = store.clients()
                rounds = [row["round"] for row in store.history()]
                assert rounds == sorted(set(rounds)), f"{site} repeats a round"
            for client in self.network.clients_of(site):
                with Ledger.read(self.network.home(client) / "ledger.db") as ledger:
                    ledger.verify()
                    keys = [row.round_key for row in ledger.rows()]
                    assert len(keys) == len(set(keys)), f"{client} was charged twice"
                    assert known[client].releases <= len(keys), f"{site} knows of more releases than {client}"

    def run(self, count):
        """So many faults; returns the seconds to recover from each, by kind."""
        seconds = defaultdict(list)
        with self.clock.installed():
            return self._run(count, seconds)

    def _run(self, count, seconds):
        self.network.start()
        try:
            self.together()
            for number in range(1, count + 1):
                fault = self.chance.choice(sorted(self.faults))
                self.faults[fault]()
                seconds[fault].append(self.together())
                print(f"{number}/{count} {fault}: together again after {seconds[fault][-1]:.1f} s", flush=True)
        finally:
            self.network.stop()
        self.accounts_are_right()
        return seconds


def main():
    """Run a campaign and print its table."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=20, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="what happens is drawn from it")
    parser.add_argument("--only", default="", help="only faults whose names have this in them")
    parser.add_argument("--trust", choices=CLIENTS, default="local", help="whom clients trust")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pgfl-chaos-") as folder:
        try:
            campaign = Campaign(Path(folder), options.seed, options.trust)
            campaign.faults = {name: do for name, do in campaign.faults.items() if options.only in name}
            seconds = campaign.run(options.faults)
        except (AssertionError, NetworkError) as error:
            print(f"not kept: {error}")
            return 1
    print("\n| fault | times | together again after, worst |\n|---|---|---|")
    for fault, took in sorted(seconds.items()):
        print(f"| {fault} | {len(took)} | {max(took):.1f} s |")
    print("\nEvery ledger is whole, and nobody was charged twice.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
