"""A network without sockets or real time: the sites' and clients' own protocol code on a fake clock, with faults."""

from __future__ import annotations

import heapq
import json
import random
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from pgfl.algorithms.algorithms import PGFL, Algorithm
from pgfl.algorithms.roles import Client, Server
from pgfl.errors import BudgetSpent, LedgerError
from pgfl.federation.federation import Federation
from pgfl.network.client.rounds import STATE, ClientRounds
from pgfl.network.protocol.messages import BETWEEN_SITE_AND_CLIENT, Decline, encode_request, read_answer, read_request
from pgfl.network.protocol.wire import Limits, decode
from pgfl.network.site.bounds import ClientBound
from pgfl.network.site.effects import Ask, Completed, Finished, Members, Phase, Publish, Quorum, Timing
from pgfl.network.site.role import SiteRole
from pgfl.network.site.rounds import SiteRounds
from pgfl.objectives import Bounds, Ridge
from pgfl.privacy.ledger.rows import Slot

ALGORITHM = PGFL(rho=2.0, tau=0.2)
OBJECTIVE = Ridge(lam=0.01)
TRAINING = "ab" * 32
BOUNDED = ClientBound(
    ALGORITHM, dict.fromkeys(("cluster-0", "cluster-1"), Ridge(w_norm=1e6)), Bounds(1.0, 1.0, 1e6), noise=0.0
)
WITH_ANYONE = Quorum(clients=0.0, neighbours=0)
TIMING = Timing(answers=4.0, exchange=3.0, start=5.0, give_up=30.0, pace=0.0)
HEARTBEAT = 1.0


@dataclass
class MemoryAccount:
    """An account that survives a crash of its client, as a ledger does, and notices any double charge."""

    budget: int = 10**9
    stored: dict[str, bytes] = field(default_factory=dict)
    confirmed: set[str] = field(default_factory=set)
    kept: bytes | None = None
    clean: bool = False
    noise: Callable[[int], Any] = lambda release: 0.0  # of a release

    @property
    def releases(self):
        return len(self.stored)

    def find(self, key):
        return SimpleNamespace(payload=self.stored[key]) if key in self.stored else None

    def refusal(self, client, server_clients):
        return None

    @contextmanager
    def reserve(self, key, client, server_clients):
        assert key not in self.stored, f"{key} would be charged twice"
        if len(self.stored) >= self.budget:
            raise BudgetSpent("spent")
        self.stored[key] = None
        slot = Slot(len(self.stored), key, phi=0.0, rho=0.0, sensitivity=0.0, sigma=0.0)
        yield slot
        self.stored[key], self.kept = slot.payload, slot.state[STATE]

    def perturb(self, slot, model):
        return model + self.noise(slot.number)

    def confirm(self, key):
        if key not in self.stored:
            raise LedgerError(f"{key} is not known")
        self.confirmed.add(key)

    def check_known(self, releases):
        if releases > len(self.stored):
            raise LedgerError("from a backup")

    def state(self):
        return self.kept


@dataclass
class Faults:
    """How unkind the network is."""

    drop: float = 0.0
    duplicate: float = 0.0
    latency: float = 0.001
    delay: float = 0.0  # the longest beyond it, in seconds
    crashes: int = 0
    cuts: int = 0
    flaps: int = 0
    changes: int = 0  # a client is expelled, and admitted again later
    last: float = 60.0  # faults happen before this time


@dataclass
class World:
    """All sites and clients; `play` runs until everyone is finished or the clock runs out."""

    federation: Federation
    rounds: int
    faults: Faults
    seed: int
    budget: int = 10**9
    timing: Timing = TIMING
    quorum: Quorum = WITH_ANYONE
    bound: ClientBound | None = None
    algorithm: Algorithm = ALGORITHM
    slow: Mapping[str, float] = field(default_factory=dict)  # clients, and the seconds that an answer of theirs takes

    def __post_init__(self):
        self.chance = random.Random(self.seed)
        self.now, self._count, self._events = 0.0, 0, []
        self.limits = Limits(self.federation.dimension, frozenset(self.federation.cluster_ids))
        ids = self.federation.server_ids
        self.neighbours = {site: {ids[p] for p in self.federation.graph.neighbours(s)} for s, site in enumerate(ids)}
        self.members = {
            site: {
                self.federation.client_id(k): self.federation.cluster_ids[self.federation.client_cluster[k]]
                for k in np.flatnonzero(self.federation.client_server == s).tolist()
            }
            for s, site in enumerate(ids)
        }
        self.site_of = {client: site for site, members in self.members.items() for client in members}
        self.cluster_of = {client: cluster for members in self.members.values() for client, cluster in members.items()}
        self.accounts = {client: MemoryAccount(self.budget) for client in self.site_of}
        self.saved: dict[str, tuple[int, Any, dict[str, int]] | None] = dict.fromkeys(ids)
        self.accepted: dict[str, list[tuple[int, Any, Any]]] = {client: [] for client in self.site_of}
        self.completed: dict[str, list[Completed]] = {site: [] for site in ids}
        self.finished: dict[str, str] = {}
        self.cut: set[frozenset[str]] = set()
        self.latest: dict[str, Publish] = {}
        self.clients = {client: self.new_client(client) for client in self.site_of}
        self.sites: dict[str, SiteRounds] = {}
        for site in ids:
            self.begin_site(site)
        self.plan_faults()
        self.later(HEARTBEAT, self.heartbeat)

    # processes --------------------------------------------------------------------------------------------------------

    def new_client(self, client):
        features, targets = self.federation.rows(client)
        return ClientRounds(Client(OBJECTIVE, self.algorithm, features, targets), self.accounts[client], TRAINING)

    def begin_site(self, site):
        server = Server(self.algorithm, self.federation.dimension, self.neighbours[site])
        role = SiteRole(server, dict(self.members[site]), bound=self.bound)
        saved = self.saved[site]
        if saved is not None:
            role.restore(saved[1])
        rounds = SiteRounds(
            role, self.rounds, set(self.neighbours[site]), set(self.members[site]), self.timing, self.quorum,
            round=saved[0] if saved else 0,
        )  # fmt: skip
        self.sites[site] = rounds
        self.answers: dict[tuple[str, str, int], Any] = getattr(self, "answers", {})
        self.apply(site, rounds.start(self.now))
        for client in self.members[site]:
            self.later(self.chance.uniform(0.1, 1.0), self.connect, client)
        for peer in self.neighbours[site]:
            self.later(self.chance.uniform(0.1, 1.0), self.greet, site, peer)

    def crash_site(self, site, back_after):
        if site in self.finished:
            return
        del self.sites[site]
        for peer in self.neighbours[site]:
            self.event(peer, "on_peer_down", site)
        self.later(back_after, lambda: self.begin_site(site))

    def crash_client(self, client, back_after):
        self.clients[client] = None
        self.event(self.site_of[client], "on_client_disconnected", client)

        def back():
            self.clients[client] = self.new_client(client)
            self.connect(client)

        self.later(back_after, back)

    def connect(self, client):
        site = self.site_of[client]
        if site in self.sites and self.clients[client] is not None:
            saved = self.saved[site]
            self.clients[client].welcomed(saved[2].get(client, 0) if saved else 0)
            self.event(site, "on_client_connected", client)

    def flap(self, client):
        self.event(self.site_of[client], "on_client_disconnected", client)
        self.later(self.chance.uniform(0.05, 2.0), self.connect, client)

    def greet(self, site, peer):
        """Both ways up, if nothing is in between; the greeted sends its latest."""
        if frozenset({site, peer}) in self.cut or site not in self.sites or peer not in self.sites:
            return
        for here, there in ((site, peer), (peer, site)):
            self.event(here, "on_peer_up", there, ready=self.sites[there].ready)
            if there in self.latest:
                self.post(lambda h=here, t=there, p=self.latest[there]: self.deliver_publication(t, h, p))

    def heartbeat(self):
        """Greetings repeat, so that what was lost on the way comes again."""
        for site in self.neighbours:
            for peer in self.neighbours[site]:
                if site < peer and self.chance.random() >= self.faults.drop:
                    self.greet(site, peer)
        self.later(HEARTBEAT, self.heartbeat)

    def cut_link(self, first, second, back_after):
        self.cut.add(frozenset({first, second}))
        self.event(first, "on_peer_down", second)
        self.event(second, "on_peer_down", first)

        def mend():
            self.cut.discard(frozenset({first, second}))
            self.greet(first, second)

        self.later(back_after, mend)

    def plan_faults(self):
        chance, faults = self.chance, self.faults
        edges = [(a, b) for a in self.neighbours for b in self.neighbours[a] if a < b]
        for _ in range(faults.crashes):
            name = chance.choice([*self.sites, *self.site_of])
            crash = self.crash_site if name in self.neighbours else self.crash_client
            self.later(chance.uniform(0.0, faults.last), self.if_alive, name, crash, chance.uniform(0.1, 20.0))
        for _ in range(faults.flaps):
            self.later(chance.uniform(0.0, faults.last), self.flap, chance.choice(list(self.site_of)))
        for _ in range(faults.changes):
            client = chance.choice(list(self.site_of))
            self.later(chance.uniform(0.0, faults.last), self.expel, client)
            self.later(chance.uniform(0.0, faults.last), self.admit, client)
        for _ in range(faults.cuts if edges else 0):
            self.later(
                chance.uniform(0.0, faults.last), self.cut_link, *chance.choice(edges), chance.uniform(0.5, 20.0)
            )

    def expel(self, client):
        site = self.site_of[client]
        self.members[site].pop(client, None)
        self.members_changed(site)

    def admit(self, client):
        site = self.site_of[client]
        self.members[site][client] = self.cluster_of[client]
        self.members_changed(site)
        self.later(self.chance.uniform(0.05, 5.0), self.connect, client)

    def members_changed(self, site):
        members = Members(dict(self.members[site]), frozenset(self.neighbours[site]))
        self.event(site, "change", members)

    def if_alive(self, name, crash, back_after):
        alive = name in self.sites if name in self.neighbours else self.clients[name] is not None
        if alive:
            crash(name, back_after)

    # messages ---------------------------------------------------------------------------------------------------------

    def apply(self, site, effects):
        for effect in effects:
            match effect:
                case Ask(client, request):
                    data = encode_request(request)
                    self.post(lambda c=client, d=data: self.deliver_request(c, d))
                case Publish():
                    self.latest[site] = effect
                    for peer in self.neighbours[site]:
                        self.post(lambda p=peer, e=effect: self.deliver_publication(site, p, e))
                case Completed():
                    self.save(site, effect)
                case Finished(_, reason):
                    self.finished[site] = reason
        rounds = self.sites.get(site)
        if rounds is not None and rounds.deadline is not None:
            self.at(rounds.deadline, lambda s=site, r=rounds: self.tick(s, r))

    def save(self, site, done):
        counts = dict(self.saved[site][2]) if self.saved[site] else {}
        for client in done.accepted:
            counts[client] = counts.get(client, 0) + 1
        self.saved[site] = (done.round, done.snapshot, counts)
        self.completed[site].append(done)
        about = json.loads(str(done.snapshot["about"]))
        for client in done.accepted:
            round = about["accepted"][client]
            late, kept = about["closings"], about["kept"]
            model = (
                done.snapshot["closings"][late.index(client)]
                if client in late
                else done.snapshot["kept"][kept.index([round, self.cluster_of[client]])]
            )
            self.accepted[client].append((round, model, self.answers[site, client, round]))

    def tick(self, site, rounds):
        if self.sites.get(site) is rounds and rounds.deadline is not None and self.now >= rounds.deadline:
            self.apply(site, rounds.tick(self.now))

    def deliver_request(self, client, data):
        machine, site = self.clients[client], self.site_of[client]
        if machine is None:
            return
        reply = machine.answer(read_request(decode(data, self.limits, BETWEEN_SITE_AND_CLIENT)))
        answered = lambda: self.post(lambda: self.deliver_reply(site, client, reply))  # noqa: E731
        self.later(self.slow[client], answered) if client in self.slow else answered()

    def deliver_reply(self, site, client, data):
        frame = decode(data, self.limits, BETWEEN_SITE_AND_CLIENT)
        round = frame.header.round
        if isinstance(frame.header, Decline):
            self.event(site, "on_decline", client, round, frame.header.final, frame.header.reason)
        elif site in self.sites:
            answer = read_answer(frame)
            self.answers[site, client, round] = answer
            self.event(site, "on_answer", client, round, answer)

    def deliver_publication(self, sender, receiver, effect):
        if frozenset({sender, receiver}) not in self.cut:
            self.event(receiver, "on_publication", sender, effect.round, effect.publication)

    def event(self, site, method, *arguments, **more):
        rounds = self.sites.get(site)
        if rounds is not None:
            self.apply(site, getattr(rounds, method)(*arguments, self.now, **more))

    def post(self, deliver):
        """Over the wire: perhaps late, twice, or never."""
        unkind = self.now < self.faults.last
        if unkind and self.chance.random() < self.faults.drop:
            return
        copies = 2 if unkind and self.chance.random() < self.faults.duplicate else 1
        for _ in range(copies):
            self.later(self.faults.latency + (self.chance.uniform(0, self.faults.delay) if unkind else 0.0), deliver)

    # time -------------------------------------------------------------------------------------------------------------

    def later(self, delay, call, *arguments):
        self.at(self.now + delay, lambda: call(*arguments))

    def at(self, when, call):
        self._count += 1
        heapq.heappush(self._events, (when, self._count, call))

    def play(self, horizon=100_000.0, most_events=200_000):
        for _ in range(most_events):
            if len(self.finished) == len(self.neighbours) or not self._events:
                break
            self.now, _, call = heapq.heappop(self._events)
            if self.now > horizon:
                break
            call()
        return self

    @property
    def ended(self):
        return len(self.finished) == len(self.neighbours) and all(
            rounds.phase is Phase.FINISHED for rounds in self.sites.values()
        )


def small_federation(seed=0, sites=3, clients=2):
    from pgfl.federation.graphs import line
    from pgfl.federation.synthetic import synthetic_regression

    return synthetic_regression(
        servers=sites, clients_per_server=clients, clusters=2, dimension=2, samples=(4, 6), graph=line(sites), seed=seed
    )
