"""Real processes on loopback, with TLS and authentication: what may go wrong, and does not hurt."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal

import pytest

from pgfl.demo import demo_federation, demo_training
from pgfl.network.local import LocalNetwork
from pgfl.network.protocol import identity
from pgfl.network.protocol.links import PeerLink, PeerService
from pgfl.network.protocol.messages import PeerHello
from pgfl.network.protocol.wire import Limits, encode
from pgfl.network.settings import toml_of
from pgfl.network.site.store import STORE, SiteStore
from pgfl.privacy.ledger.ledger import Ledger
from tests.command_line import process
from tests.network.wires import Cable

ENDLESS = 10**6
PATIENCE = 400.0  # seconds; more than a machine under load needs
NORTH, SOUTH = "server-0", "server-1"
POLICY = {"enabled": True, "phi0": 1e-7, "zeta": 1.0, "max_releases": ENDLESS, "x_norm": 3.0}


@pytest.mark.proof
def test_the_demo_equals_the_simulator():
    """3 sites × 2 clients, 5 rounds: the sites' and the clients' models are the simulator's, given the noise."""
    run = process("network", "demo", "--json")
    assert run.returncode == 0, run.stderr[-2000:]
    outcome = json.loads(run.stdout)
    assert outcome["difference"] <= 1e-10
    assert outcome["agrees"] is True
    assert set(outcome["rounds"].values()) == {5}
    assert set(outcome["releases"].values()) == {5}
    assert all(epsilon <= 20.0 for epsilon in outcome["epsilon"].values())


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Two sites with two clients each, training without end, and a cable between the sites."""
    federation = demo_federation(2, 2, "huber", seed=3)
    training = demo_training(federation, "huber", ENDLESS)
    timing = {"answers": 2.0, "exchange": 2.0, "start": 60.0, "pace": 0.1}  # the tests need the processor, too
    quorum = {"neighbours": 0}  # a part that is cut off trains alone
    network = LocalNetwork(tmp_path_factory.mktemp("network"), federation, training, POLICY, timing, quorum)
    network.cables = {}

    def over_a_cable(here, there):
        network.cables[here, there] = Cable(network.ports[there])
        return f"127.0.0.1:{network.cables[here, there].port}"

    network.prepare(over_a_cable)
    yield network
    network.stop()


@pytest.fixture
def network(prepared):
    """The network with everyone at work, whatever the test before did to it."""
    ended = prepared.ended()
    for name in (*prepared.federation.server_ids, *prepared.federation.client_ids):
        if name not in prepared.running or name in ended:
            prepared.start(name)
    for cable in prepared.cables.values():
        cable.mend()
    prepared.wait(lambda: together(prepared), PATIENCE, "everyone to be at work")
    return prepared


def last(network, site):
    history = network.history(site)
    return history[-1] if history else {"accepted": [], "neighbours": [], "round": 0}


def together(network):
    """Everyone takes part everywhere, and the neighbours receive each other's models."""
    return all(
        set(network.clients_of(site)) <= set(last(network, site)["accepted"]) and last(network, site)["neighbours"]
        for site in (NORTH, SOUTH)
    )


def accounts_are_right(network):
    """Nobody paid twice: one release a round in each ledger, and the site knows of no more than the client."""
    for site in (NORTH, SOUTH):
        store = SiteStore(network.home(site) / STORE)
        known = store.clients()
        store.close()
        for client in network.clients_of(site):
            with Ledger.read(network.home(client) / "ledger.db") as ledger:
                rounds = [row.round_key for row in ledger.rows()]
                assert len(rounds) == len(set(rounds))
                assert known[client].releases <= len(rounds)


@pytest.mark.proof
def test_a_client_killed_in_a_round_is_missed_and_welcomed_back(network):
    victim = network.clients_of(NORTH)[0]
    before = network.round_of(NORTH)
    os.kill(network.running[victim].pid, signal.SIGSTOP)  # it hangs in a round …

    def is_missed():  # once: while its answer is on the way nobody asks it again
        return any(victim in done["late"] for done in network.history(NORTH) if done["round"] > before)

    network.wait(is_missed, PATIENCE, "a round closed without it")
    network.kill(victim)  # … and dies
    before = network.round_of(NORTH)
    network.wait(lambda: network.round_of(NORTH) > before + 5, PATIENCE, "the others to go on")
    assert victim not in last(network, NORTH)["accepted"]
    network.start(victim)
    network.wait(lambda: together(network), PATIENCE, "it to be back")
    accounts_are_right(network)


def test_a_neighbour_cut_off_is_missed_and_the_parts_grow_together(network):
    before = len(network.log(NORTH))
    for cable in network.cables.values():
        cable.cut()
    network.wait(lambda: all(last(network, s)["absent"] for s in (NORTH, SOUTH)), PATIENCE, "both to notice")
    apart = {site: network.round_of(site) for site in (NORTH, SOUTH)}
    network.wait(lambda: all(network.round_of(s) > apart[s] + 5 for s in apart), PATIENCE, "both to train alone")
    for cable in network.cables.values():
        cable.mend()
    network.wait(lambda: together(network), PATIENCE, "them to hear each other")
    network.wait(lambda: abs(network.round_of(NORTH) - network.round_of(SOUTH)) <= 3, PATIENCE, "them to be level")
    assert "cannot be reached" in network.log(NORTH)[before:]
    accounts_are_right(network)


@pytest.mark.proof
def test_a_site_killed_goes_on_from_its_last_round(network):
    network.kill(NORTH)
    before = len(network.log(NORTH))
    saved = network.round_of(NORTH)
    models = network.arrays(NORTH)
    south = network.round_of(SOUTH)
    network.wait(lambda: network.round_of(SOUTH) > south + 5, PATIENCE, "the neighbour to go on alone")
    assert network.round_of(NORTH) == saved
    assert models is not None
    network.start(NORTH)
    network.wait(
        lambda: network.round_of(NORTH) > saved and together(network), PATIENCE, "it to be back with its clients"
    )
    assert f"serves from round {saved} on" in network.log(NORTH)[before:]
    rounds = [row["round"] for row in network.history(NORTH)]
    assert rounds == sorted(set(rounds))
    assert "catching up" in network.log(NORTH)[before:]
    accounts_are_right(network)


def test_a_site_that_is_stopped_keeps_its_clients(network):
    """SIGTERM to a site is not the end of training: its clients wait, and come back with it."""
    waiting = {client: network.running[client].pid for client in network.clients_of(NORTH)}
    network.terminate(NORTH)
    assert "stopped by its operator" in network.log(NORTH)
    network.start(NORTH)
    network.wait(lambda: together(network), PATIENCE, "its clients to come back")
    assert {client: network.running[client].pid for client in waiting} == waiting
    assert not set(waiting) & set(network.ended())


@pytest.mark.proof
def test_a_client_admitted_while_training_runs_takes_part(network):
    """And before that, as a stranger, it is refused, with the fingerprint of its key in the log."""
    home, name = network.home("newcomer"), "newcomer"
    key = identity.create_client(home, name)
    (home / "data.csv").write_text((network.home(network.clients_of(SOUTH)[0]) / "data.csv").read_text())
    certificate = identity.SiteCertificate.read(network.home(SOUTH) / identity.SITE_CERTIFICATE)
    site = {"address": f"127.0.0.1:{network.ports[SOUTH]}", "fingerprint": certificate.fingerprint}
    (home / "client.toml").write_text(toml_of({"name": name, "data": "data.csv", "site": site, "privacy": POLICY}))
    network.start(name)
    network.wait(lambda: "is not admitted" in network.log(SOUTH), PATIENCE, "the stream to be refused")
    assert key.fingerprint[:16] in network.log(SOUTH)
    network.wait(lambda: "refused: the key with fingerprint" in network.log(name), PATIENCE, "it to be told so")
    assert not any(name in row["accepted"] for row in network.history(SOUTH))
    admitted = process("site", "admit", home / "client.pub", "--cluster", "cluster-1", "--home", network.home(SOUTH))
    assert "newcomer is admitted" in admitted.stdout
    assert "applied from round" in admitted.stdout
    network.wait(lambda: name in last(network, SOUTH)["accepted"], PATIENCE, "it to take part")
    expelled = process("site", "expel", name, "--home", network.home(SOUTH))
    applied = int(expelled.stdout.partition("applied from round ")[2].rstrip(".\n"))
    network.wait(lambda: network.round_of(SOUTH) > applied + 5, PATIENCE, "the site to go on without it")
    assert not any(name in row["accepted"] for row in network.history(SOUTH) if row["round"] >= applied)
    network.terminate(name)


def back_at_work(network, client):
    """Wait until the site has accepted more of the client's releases than its ledger at rest held."""
    with Ledger.read(network.home(client) / "ledger.db") as ledger:
        before = ledger.count

    def accepted():
        store = SiteStore(network.home(NORTH) / STORE)
        known = store.clients()[client]
        store.close()
        return known.releases

    network.wait(lambda: accepted() > before, PATIENCE, "it to be back")


@pytest.mark.proof
def test_a_ledger_put_back_from_a_backup_stops_its_client(network):
    """Alone it is exposed by its anchor, with the anchor by the site; with the newer files it takes part again."""
    client = network.clients_of(NORTH)[1]
    names = ("ledger.db", "ledger.db.anchor")
    ledger, old, new = ([network.home(client) / f"{kind}{name}" for name in names] for kind in ("", "old-", "new-"))
    network.terminate(client)
    copied(ledger, old)
    network.start(client)
    back_at_work(network, client)
    network.terminate(client)
    copied(ledger, new)
    for put_back, words in ((old[:1], "its anchor says"), (old, "put back from a backup")):
        copied(put_back, ledger)
        network.start(client)
        ended = network.running.pop(client)
        assert ended.wait(PATIENCE) == 2
        assert words in network.log(client).splitlines()[-1]
    copied(new, ledger)
    network.start(client)
    back_at_work(network, client)
    accounts_are_right(network)


def copied(sources, targets):
    for source, target in zip(sources, targets, strict=False):
        shutil.copy(source, target)


def test_a_site_that_is_not_linked_is_refused(network, tmp_path):
    identity.create_site(tmp_path, "server-9", [])
    shown = tmp_path / identity.SITE_CERTIFICATE, tmp_path / identity.SITE_KEY
    store = SiteStore(network.home(SOUTH) / STORE)
    neighbour = store.neighbours()[NORTH]
    store.close()
    neighbour = type(neighbour)(neighbour.certificate, f"127.0.0.1:{network.ports[NORTH]}")
    replies, down = [], []

    async def call():
        hello = PeerHello(site="server-9", training=network.training.digest, round=0, degree=1, heard=0)
        service = PeerService(dict, Limits(5), lambda peer, frame: b"")
        link = PeerLink(
            "server-9", NORTH, neighbour, *shown, service, lambda: encode(hello),
            lambda *reply: replies.append(reply), lambda *reason: down.append(reason),
        )  # fmt: skip
        link.start()
        refused = "127.0.0.1 was refused: the certificate that it shows is not linked"
        await asyncio.to_thread(network.wait, lambda: down and refused in network.log(NORTH), PATIENCE, "the refusal")
        await link.stop()

    asyncio.run(call())
    assert not replies


def test_status_tells_what_is(network):
    network.wait(lambda: network.live(NORTH).get("up") == [SOUTH], PATIENCE, "the neighbour")
    status = json.loads(process("site", "status", "--json", "--home", network.home(NORTH)).stdout)
    assert status["running"] is True
    assert [client["name"] for client in status["clients"]] == network.clients_of(NORTH)
    assert status["up"] == [SOUTH]
    refused = process("site", "serve", network.home(NORTH) / "site.toml")
    assert refused.returncode == 2
    assert "runs already" in refused.stderr


def test_nothing_is_left_behind(network):
    """Stopped by its operator, a site ends in order, and so do all processes that it started."""
    groups = [child.pid for child in network.running.values()]
    before = len(network.log(NORTH))
    network.stop()
    for group in groups:
        with pytest.raises(ProcessLookupError):
            os.killpg(group, 0)
    assert "stopped by its operator" in network.log(NORTH)[before:]
    accounts_are_right(network)
    for client in network.federation.client_ids:
        with Ledger.read(network.home(client) / "ledger.db") as ledger:
            ledger.verify()
