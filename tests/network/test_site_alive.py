"""A site is alive or it has ended with a reason: real sockets and stores in this process."""

from __future__ import annotations

import asyncio
import errno
import threading
from contextlib import closing, contextmanager

import pytest

from pgfl.demo import demo_federation, demo_training
from pgfl.errors import LedgerError, NetworkError, SiteCrashed, exit_code
from pgfl.network.local import LocalNetwork
from pgfl.network.site.effects import Timing
from pgfl.network.site.settings import load_site
from pgfl.network.site.site import Site
from pgfl.network.site.store import STORE, SiteStore
from tests.network.inprocess import participant

OPEN = {"enabled": False}
SITE = "server-0"
PATIENCE = 240.0
PACE = {"pace": 0.02}  # seconds between rounds without end, which would take the processor from what is tested


def network_of(folder, sites=1, clients=1, rounds=10**6, quorum=None, privacy=OPEN, **timing):
    federation = demo_federation(sites, clients, "huber", seed=0)
    training = demo_training(federation, "huber", rounds)
    network = LocalNetwork(
        folder, federation, training, privacy, PACE | timing, {"clients": 0.0} if quorum is None else quorum
    )
    network.prepare()
    return network


def site_of(network, name=SITE):
    return Site(load_site(network.home(name) / "site.toml"))


class Ends(dict):
    """Why clients ended, and the clients."""


@contextmanager
def taking_part(network, *clients):
    """Clients in threads of their own; yields why each ended, as it ends."""
    ends = Ends()
    devices = ends.devices = {client: participant(network, client) for client in clients}

    def take_part(client):
        ends[client] = devices[client].take_part()

    threads = [threading.Thread(target=take_part, args=(client,), daemon=True) for client in clients]
    for thread in threads:
        thread.start()
    try:
        yield ends
    finally:
        for device in devices.values():
            device.stop()
        for thread in threads:
            thread.join(PATIENCE)
        assert not any(thread.is_alive() for thread in threads), "a client that is told to end ends"


def broken(*_, **__):
    raise KeyError("planted")


@pytest.mark.parametrize("part", ["combine", "link", "live"])
def test_an_exception_ends_the_site_with_a_reason_and_a_code_to_restart_it(tmp_path, part):
    """In a round, in a link, in the watch over changes: a task that dies alone would leave the site half alive."""
    network = network_of(tmp_path, sites=2, start=0.1, quorum={"neighbours": 0})
    site = site_of(network)
    where, name = {
        "combine": (site.role, "combine"), "link": (site.peers, "_down"), "live": (site.reports, "write_live"),
    }[part]  # fmt: skip
    setattr(where, name, broken)
    with (
        taking_part(network, network.clients_of(SITE)[0]),
        pytest.raises(SiteCrashed, match=r"KeyError.*goes on") as failed,
    ):
        asyncio.run(asyncio.wait_for(site.run(), PATIENCE))
    assert failed.value.exit_code == 1, "2 is a mistake of the operator, which a restart does not mend"
    saved = site_of(network).rounds.round
    assert saved == 0 if part == "combine" else saved <= site.rounds.round, "what was not saved did not happen"


@pytest.mark.parametrize(("error", "code"), [(OSError(errno.ENOSPC, "full"), 1), (LedgerError("It is damaged."), 2)])
def test_a_full_disk_of_a_running_site_is_worth_a_restart_and_damage_is_not(tmp_path, error, code):
    network = network_of(tmp_path, start=0.1, quorum={})
    site = site_of(network)

    def fails(*_, **__):
        raise error

    site.role.combine = fails
    with taking_part(network, network.clients_of(SITE)[0]), pytest.raises(NetworkError) as failed:
        asyncio.run(asyncio.wait_for(site.run(), PATIENCE))
    assert exit_code(failed.value) == code


async def until(condition):
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.02)


def test_a_site_that_is_stopped_is_not_the_end_of_training_and_its_clients_come_back(tmp_path):
    network = network_of(tmp_path, clients=2)

    async def served(ends):
        """One life of the site, over three rounds of both clients; returns the round in which it was stopped."""
        site = site_of(network)
        first = site.rounds.round
        running = asyncio.create_task(site.run())
        await until(lambda: running.done() or ends or site.rounds.round > first + 3)
        site.stop("stopped by its operator")
        assert await running == "stopped by its operator"
        assert not ends
        return site.rounds.round

    async def two_lives(ends):
        return await served(ends), await served(ends)

    with taking_part(network, *network.clients_of(SITE)) as ends:
        first, second = asyncio.run(two_lives(ends))
    assert second > first
    assert set(network.history(SITE)[-1]["accepted"]) == set(network.clients_of(SITE))
    assert set(ends.values()) <= {"closed here", "stopped here"}


def test_a_client_that_was_away_when_training_ended_learns_so_when_it_returns(tmp_path):
    """While the site waits for it, or when the site is started once more for its sake."""
    network = network_of(tmp_path, clients=3, rounds=3, start=0.1)
    present, late, later = network.clients_of(SITE)

    async def all_told(*clients):
        site = site_of(network)
        running = asyncio.create_task(site.run())
        for client in clients:
            with taking_part(network, client) as ends:
                await until(lambda ends=ends: ends)
                assert ends == {client: "all rounds are done"}
                assert site.rounds.round == 3
        await until(lambda: running.done() or len(site.uninformed) == (later not in clients))
        if later in clients:
            return await running
        site.stop("stopped by its operator")
        return await running

    assert asyncio.run(all_told(present, late)) == "stopped by its operator"
    assert asyncio.run(all_told(later)) == "all rounds are done"
    assert asyncio.run(site_of(network).run()) == "all rounds are done"


def test_nobody_spends_a_release_before_the_last_client_of_any_site_is_there_nor_while_the_sites_are_apart(tmp_path):
    """The defaults of a network of two sites, whose last client comes late and whose link breaks."""
    network = network_of(tmp_path, sites=2, quorum={}, start=PATIENCE)
    early, late = network.federation.client_ids
    names = network.federation.server_ids

    async def scenario():
        sites = [site_of(network, name) for name in names]
        running = [asyncio.create_task(site.run()) for site in sites]
        with taking_part(network, early):
            await until(lambda: sites[0].rounds.connected and sites[0].rounds.up and sites[1].rounds.up)
            assert [site.rounds.round for site in sites] == [0, 0]
            assert (sites[0].rounds.ready, sites[1].rounds.ready) == (True, False)
            with taking_part(network, late):
                await until(lambda: all(site.rounds.round > 3 for site in sites))
                sites[1].stop("stopped by its operator")
                await running[1]
                await until(lambda: sites[0].rounds.missing)
                assert "0 of 1 neighbours are here" in sites[0].rounds.missing
                published = sites[1].rounds.round + 1  # at most; it may be used for `staleness` more rounds
                assert sites[0].rounds.round <= published + Timing().staleness
                again = site_of(network, names[1])
                running[1] = asyncio.create_task(again.run())
                await until(lambda: sites[0].rounds.round > sites[1].rounds.round + 3)
        for site in (sites[0], again):
            site.stop("enough")
        await asyncio.gather(*running)

    asyncio.run(scenario())
    assert not any(row["absent"] for row in network.history(names[1]))
    assert sum(bool(row["absent"]) for row in network.history(names[0])) <= 1, "the one under way when the link broke"


def test_a_rollback_counts_when_the_neighbours_agree_and_round_numbers_never_repeat(tmp_path):
    network = network_of(tmp_path, sites=2, quorum={})
    names = network.federation.server_ids

    def roll_back(name, round):
        with closing(SiteStore(network.home(name) / STORE)) as store:
            return store.roll_back(round)

    async def scenario(devices):
        sites = [site_of(network, name) for name in names]
        running = [asyncio.create_task(site.run()) for site in sites]
        await until(lambda: all(site.rounds.round > 25 for site in sites))
        change, found = roll_back(names[0], 14)
        assert found == 10
        await until(lambda: sites[0].store.acknowledged()[0] == change and sites[0].rounds.missing)
        taken_back = sites[0].rounds.round
        assert taken_back == 10_000_014, "a number that was never used, and the fourteenth of the training"
        await until(lambda: sites[1].peers.service.refused["refused"] and sites[1].rounds.missing)
        assert sites[0].rounds.round == taken_back, "it goes on only when its neighbour has agreed"
        roll_back(names[1], 14)
        await until(lambda: all(site.rounds.round > taken_back + 5 for site in sites))
        assert {site.role.rollbacks for site in sites} == {(14,)}
        assert all(device.rounds.role.restarted == taken_back + 1 for device in devices.values())
        for site in sites:
            site.stop("enough")
        await asyncio.gather(*running)
        assert site_of(network).role.rollbacks == (14,)

    with taking_part(network, *network.federation.client_ids) as ends:
        asyncio.run(scenario(ends.devices))
    for name in names:
        rounds = [row["round"] for row in network.history(name)]
        assert rounds == sorted(set(rounds))
        with pytest.raises(NetworkError, match="The last completed round is"):
            roll_back(name, 10**8)


def test_a_rollback_revives_a_training_that_was_over(tmp_path):
    network = network_of(tmp_path, rounds=12)

    def roll_back():
        with closing(SiteStore(network.home(SITE) / STORE)) as store:
            store.roll_back(10)

    async def scenario():
        return await site_of(network).run()

    for last in (12, 112, 212):
        with taking_part(network, *network.federation.client_ids) as ends:
            assert asyncio.run(scenario()) == "all rounds are done"
        assert list(ends.values()) == ["all rounds are done"]
        assert network.history(SITE)[-1]["round"] == last
        roll_back()


def test_a_restart_does_not_forget_how_many_rounds_were_trained_apart(tmp_path):
    network = network_of(tmp_path, sites=2, quorum={"apart": 3})
    role = site_of(network).role
    with closing(SiteStore(network.home(SITE) / STORE)) as store:
        for round, neighbours in enumerate([["server-1"], [], []], start=1):
            role.aggregate(round, {})
            role.combine(round, {})
            store.save_round(round, role.snapshot(), [], {"neighbours": neighbours})
    assert site_of(network).rounds.apart == 2
    assert site_of(network, "server-1").rounds.apart == 0
