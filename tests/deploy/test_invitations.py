"""The contract of a membership service, kept by Flower in real processes and by the one in memory."""

from __future__ import annotations

import asyncio
import queue
import threading
import time

import pytest

from pgfl.demo.replay import largest_difference
from pgfl.demo.scenario import Scenario
from pgfl.deploy import identity, processes
from pgfl.deploy.client.client import Participant
from pgfl.deploy.client.client_samples import load_samples
from pgfl.deploy.client.client_settings import load_client
from pgfl.deploy.flower.flower_site import FlowerInviter, SuperLink
from pgfl.deploy.invitations import Invitation
from pgfl.deploy.site.site import Site
from pgfl.deploy.site.site_settings import load_site
from tests.deploy.flower_guest import RemoteInvitations
from tests.deploy.memory_invitations import MembershipService

PATIENCE = 240.0  # seconds; more than a machine under load needs
FIRST, SECOND = Invitation("127.0.0.1:7", "first"), Invitation("127.0.0.1:7", "second")


class InMemory:
    """Both ends in this process."""

    def __init__(self, folder):
        self.folder, self.service = folder, MembershipService()

    def inviter(self):
        return self.service.inviter()

    def client(self, name):
        key = identity.create_client(self.folder / name, name)
        return key, self.service.invitations(key)


class OverFlower:
    """A SuperLink here, and one process per client."""

    def __init__(self, folder):
        self.folder = folder
        site = folder / "site"
        identity.create_site(site, "north", [])
        self.certificate = site / identity.SITE_CERTIFICATE
        self.link = SuperLink(site, "127.0.0.1", processes.free_port(), self.certificate, site / identity.SITE_KEY)

    def inviter(self):
        return FlowerInviter(self.link)

    def client(self, name):
        home = self.folder / name
        key = identity.create_client(home, name)
        address, private = f"127.0.0.1:{self.link.port}", home / identity.CLIENT_KEY
        return key, RemoteInvitations(address, self.certificate, private)


class Guest:
    """A client's end: keeps what it receives, and stays busy with it while it is held."""

    def __init__(self, service, name):
        self.name, self.received, self.free = name, queue.Queue(), threading.Event()
        self.free.set()
        self.key, self.invitations = service.client(name)

    def invited(self, invitation):
        self.received.put(invitation)
        self.free.wait(PATIENCE)
        return "done"

    def next(self):
        return self.received.get(timeout=PATIENCE)


class Host:
    """A site's end: who is admitted, what each is to receive, and for whom it was asked."""

    def __init__(self, service):
        self.inviter, self.admitted, self.prepared, self.asked = service.inviter(), {}, {}, []

    def admit(self, guest, *invitations):
        self.prepared[guest.name] = list(invitations)
        self.admitted = {**self.admitted, guest.name: guest.key}

    def invite(self, client):
        self.asked.append(client)
        return self.prepared[client].pop(0) if self.prepared[client] else None

    def wait_until_asked(self, client, times):
        until = time.monotonic() + PATIENCE
        while self.asked.count(client) < times:
            assert time.monotonic() < until, "waited in vain"
            time.sleep(0.05)


@pytest.fixture(params=[InMemory, OverFlower])
def service(request, tmp_path):
    return request.param(tmp_path)


@pytest.fixture
def host(service):
    host = Host(service)
    asyncio.run(host.inviter.start(lambda: host.admitted, host.invite))
    yield host
    host.inviter.stop()


@pytest.fixture
def guest(service):
    """Makes guests, and ends them."""
    guests = []

    def come(name):
        guests.append(Guest(service, name))
        guests[-1].invitations.start(guests[-1].invited)
        return guests[-1]

    yield come
    for each in guests:
        each.free.set()
        each.invitations.stop()


def test_a_client_gets_the_sites_invitations_as_they_are_and_none_that_the_site_does_not_give(host, guest):
    ann = guest("ann")
    host.admit(ann)
    host.wait_until_asked("ann", times=3)
    assert ann.received.empty(), "the site wanted to invite nobody"
    host.prepared["ann"] = [FIRST, SECOND]
    assert ann.next() == FIRST
    assert ann.next() == SECOND
    asked = host.asked.count("ann")
    host.wait_until_asked("ann", times=asked + 3)
    assert ann.received.empty()


def test_only_admitted_clients_are_invited_each_with_its_own_invitation(host, guest):
    ann, bob = guest("ann"), guest("bob")
    host.admit(bob, FIRST)
    assert bob.next() == FIRST
    host.wait_until_asked("bob", times=3)
    assert "ann" not in host.asked
    assert ann.received.empty()
    host.admit(ann, SECOND)
    assert ann.next() == SECOND
    assert bob.received.empty()


def test_a_client_gets_one_invitation_at_a_time(host, guest):
    ann, bob = guest("ann"), guest("bob")
    ann.free.clear()
    host.admit(ann, FIRST, SECOND)
    host.admit(bob)
    assert ann.next() == FIRST
    host.wait_until_asked("bob", times=host.asked.count("bob") + 4)
    assert ann.received.empty(), "it is busy with the first"
    ann.free.set()
    assert ann.next() == SECOND


def test_after_the_end_nobody_is_asked_for_and_nothing_arrives(host, guest):
    ann = guest("ann")
    host.admit(ann, FIRST)
    assert ann.next() == FIRST
    host.inviter.stop()
    asked = len(host.asked)
    host.prepared["ann"] = [SECOND]
    time.sleep(2.0)
    assert len(host.asked) == asked
    assert ann.received.empty()


@pytest.mark.parametrize("service", [OverFlower], indirect=True)
def test_a_superlink_that_dies_is_started_again(service, host, guest):
    ann = guest("ann")
    host.admit(ann, FIRST)
    assert ann.next() == FIRST
    service.link._child.kill()
    host.prepared["ann"] = [SECOND]
    assert ann.next() == SECOND


def test_a_network_trains_on_invitations_alone(tmp_path):
    """No client holds a token at the start: each is invited, and the outcome is the simulator's."""
    network, service = Scenario(sites=2, clients=1, rounds=3).network(tmp_path), MembershipService()
    network.prepare()
    ends = {}

    def take_part(client):
        settings = load_client(network.home(client) / "client.toml")
        participant = Participant(settings, load_samples(settings))
        ends[client] = participant.run(service.invitations(identity.public_key_of(participant.key)))

    threads = [threading.Thread(target=take_part, args=(client,)) for client in network.federation.client_ids]

    async def sites():
        running = [
            Site(load_site(network.home(site) / "site.toml"), service.inviter())
            for site in network.federation.server_ids
        ]
        for thread in threads:
            thread.start()
        await asyncio.wait_for(asyncio.gather(*(site.run() for site in running)), PATIENCE)

    asyncio.run(sites())
    for thread in threads:
        thread.join(60)
    assert ends == dict.fromkeys(network.federation.client_ids, "all rounds are done")
    assert largest_difference(network) <= 1e-10
