"""Real processes killed with SIGKILL between stages of a round: training ends, ledgers are right, sums are exact."""

from __future__ import annotations

import json
import signal
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from pgfl.demo import demo_federation, demo_privacy, demo_training, largest_difference
from pgfl.network import processes
from pgfl.network.agreement import Training
from pgfl.network.local import LEDGER, LocalNetwork
from pgfl.network.site.store import STORE, SiteStore
from pgfl.privacy.ledger.ledger import Ledger
from tests.command_line import process

pytestmark = pytest.mark.proof
SITE, PATIENCE, CLIENTS = "server-0", 400.0, 5
REPOSITORY = Path(__file__).resolve().parents[2]


class Fused:
    """A network of one site, some of whose processes die at the moments that are listed for them, one per life."""

    def __init__(self, folder, trust, rounds, fuses):
        federation = demo_federation(1, CLIENTS, "huber", seed=4, trust=trust)
        agreed = demo_training(federation, "huber", rounds, trust).model_dump()
        agreed["privacy"] |= {"dropouts": 0.3} if trust == "masked" else {}
        timing = {"start": 120.0, "answers": 60.0, "exchange": 6.0}  # whoever is killed is back by then
        self.network = LocalNetwork(
            folder, federation, Training.model_validate(agreed), demo_privacy("huber", 20.0, rounds, trust), timing,
            record_noise=True,
        )  # fmt: skip
        names = {"site": SITE, **{f"client {number}": name for number, name in enumerate(federation.client_ids)}}
        self.fuses = {names[who]: list(planned) for who, planned in fuses.items()}
        self.burnt = []

    def start(self, name):
        left = self.fuses.get(name, [])
        fuse = f"light(*{left[0]!r}); " if left else ""
        arguments = ["site", "serve", "site.toml"] if name == SITE else ["client", "join", "client.toml"]
        arguments[2] = str(self.network.home(name) / arguments[2])
        code = f"from tests.network.fuses import light; {fuse}from pgfl.cli import main; main()"
        self.network.running[name] = processes.start(
            [sys.executable, "-P", "-c", code, *arguments], self.network.home(name) / "log.txt",
            {"PYTHONPATH": str(REPOSITORY)},
        )  # fmt: skip

    def run(self):
        """Until all have ended; whoever is killed is started again."""
        network, until = self.network, time.monotonic() + PATIENCE
        network.prepare()
        try:
            for name in (SITE, *network.federation.client_ids):
                self.start(name)
            while set(network.ended()) != set(network.running):
                assert time.monotonic() < until, {name: network.log(name)[-500:] for name in network.running}
                for name, code in network.ended().items():
                    if code == -signal.SIGKILL:
                        self.burnt.append((name, self.fuses[name].pop(0)))
                        processes.kill(network.running.pop(name))  # what it has left behind
                        self.start(name)
                time.sleep(0.1)
            assert set(network.ended().values()) == {0}
        finally:
            network.stop()
        assert not any(self.fuses.values())

    def ledgers(self):
        """Every client's, whole and without a round that was charged twice; the site knows of no more releases."""
        found = {}
        with closing(SiteStore(self.network.home(SITE) / STORE)) as store:
            known = store.clients()
        for client in self.network.federation.client_ids:
            with Ledger.read(self.network.home(client) / LEDGER) as ledger:
                ledger.verify()
                found[client] = ledger.rows()
            keys = [row.round_key for row in found[client]]
            assert len(keys) == len(set(keys)) >= known[client].releases
        return found


def test_masked_rounds_survive_kills_between_their_stages(tmp_path):
    """Before and after a contribution, between contributions and consent, and in the middle of unmasking."""
    rounds = 9
    fused = Fused(
        tmp_path,
        "masked",
        rounds,
        {
            "site": [("SURVIVORS", 2, "send"), ("CONSENTS", 7, "send")],
            "client 0": [("MASKED_REQUEST", 4, "after")],
            "client 1": [("CONSENTS", 5, "before")],
            "client 2": [("MASKED_REQUEST", 6, "before")],
        },
    )
    fused.run()
    history = fused.network.history(SITE)
    assert [row["round"] for row in history] == list(range(1, rounds + 1))
    accepted = [len(row["accepted"]) for row in history]
    assert accepted[0] == accepted[-1] == CLIENTS
    assert all(number == 0 or number >= 4 for number in accepted)  # the threshold of five
    assert accepted[1] == accepted[6] == 0  # what was noised for one group is never masked for another
    ledgers = fused.ledgers()
    for client, rows in ledgers.items():
        assert {row.trust for row in rows} == {"masked"}
        taken = sum(client in row["accepted"] for row in history)
        assert taken <= len(rows) <= rounds
    assert largest_difference(fused.network) < 1e-10


def test_a_trusted_site_survives_kills_and_every_contribution_in_a_model_is_recorded(tmp_path):
    """Killed while it asks, and after the noise was drawn, with a client killed as well that comes back late."""
    rounds = 6
    fused = Fused(
        tmp_path, "site", rounds,
        {"site": [("REQUEST", 2, "send"), ("", 4, "save")], "client 0": [("REQUEST", 5, "before")]},
    )  # fmt: skip
    fused.run()
    history = fused.network.history(SITE)
    assert [row["round"] for row in history] == list(range(1, rounds + 1))
    fused.ledgers()
    assert largest_difference(fused.network) < 1e-10
    for client in fused.network.federation.client_ids:
        with Ledger.read(fused.network.home(SITE) / "ledgers" / f"{client}.db") as ledger:
            ledger.verify()
            charged = {int(row.round_key.rpartition("/")[2]) for row in ledger.rows()}
        assert charged == {row["round"] for row in history if client in row["accepted"]}


@pytest.mark.parametrize(("trust", "sites", "clients"), [("site", 2, 2), ("masked", 1, 4)])
def test_the_demo_of_every_trust_equals_the_simulator(trust, sites, clients):
    """Models are the simulator's, given the noise, and nobody passes its budget."""
    size = ("--sites", str(sites), "--clients", str(clients), "--rounds", "3")
    run = process("network", "demo", "--json", "--trust", trust, *size)
    assert run.returncode == 0, run.stderr[-2000:]
    outcome = json.loads(run.stdout)
    assert outcome["trust"] == trust
    assert outcome["difference"] <= 1e-10
    assert outcome["agrees"] is True
    assert set(outcome["rounds"].values()) == set(outcome["releases"].values()) == {3}
    assert all(epsilon <= 20.0 for epsilon in outcome["epsilon"].values())
