"""One site and its clients in memory, with real ledgers: frames go through a queue, and any of them can be lost."""

from __future__ import annotations

from collections import deque

import numpy as np

from pgfl import synthetic_regression
from pgfl.algorithms.accuracy import Terms
from pgfl.algorithms.roles import Client, Server
from pgfl.config import PrivacySettings
from pgfl.masking.member import Member
from pgfl.masking.terms import Demands
from pgfl.network.agreement import Training
from pgfl.network.client.accounts import PrivateAccount
from pgfl.network.client.masked_rounds import MaskedRounds
from pgfl.network.client.rounds import ClientRounds
from pgfl.network.protocol import masked_messages, messages
from pgfl.network.protocol.messages import encode_request, read_answer, read_request
from pgfl.network.protocol.wire import Limits, decode
from pgfl.network.site.effects import Ask, Completed, Note, Quorum, Send, Timing
from pgfl.network.site.masked_pairs import MaskedPairs
from pgfl.network.site.role import SiteRole
from pgfl.network.site.rounds import SiteRounds
from pgfl.objectives import Bounds
from tests.masking.masked_group import identity, names_of, roster_of

DIMENSION = 4
LIMITS = Limits(DIMENSION, frozenset({"q"}))
TO_CLIENT = (messages.Request, *masked_messages.TO_CLIENT)
TO_SITE = (messages.Answer, messages.Decline, *masked_messages.TO_SITE)
SITE = "north"
PRIVACY = {"epsilon": 30.0, "delta": 1e-5, "max_releases": 20, "zeta": 0.99, "x_norm": 3.0, "trust": "masked"}


def training_of(rounds=20, **privacy):
    return Training.model_validate(
        {
            "rounds": rounds,
            "dimension": DIMENSION,
            "clusters": ("q",),
            "objective": {"kind": "huber", "lam": 0.01},
            "algorithm": {"kind": "pgfl", "client": "gradient", "rho": 8.0, "tau": 0.3},
            "privacy": {"trust": "masked", "dropouts": 0.3, **privacy},
        }
    )


class Device:
    """One client, which can be restarted."""

    def __init__(self, name, roster, data, training, folder, masks=True, **privacy):
        self.name, self.roster, self.data, self.training, self.folder = name, roster, data, training, folder
        self.settings = PrivacySettings(**{**PRIVACY, **privacy})
        self.masks, self.drawn = masks, {}
        self.start()

    def start(self):
        self.account = PrivateAccount.open(
            self.folder / f"{self.name}.db", self.name, self.settings, len(self.data[1]), DIMENSION
        )
        self.account.on_draw = lambda number, model, released: self.drawn.__setitem__(number, (model, released))
        bounds = Bounds(self.settings.x_norm)
        role = Client(
            self.training.build_objective("q"), self.training.build_algorithm(), *self.data, terms=Terms(bounds)
        )
        rounds = ClientRounds(role, self.account, self.training.digest, self.training.has_round)
        demands = Demands(self.settings.contributors, self.settings.colluders)
        member = Member(self.name, identity(self.name), self.roster, demands)
        self.rounds = rounds
        self.masked = MaskedRounds(rounds, self.account, member, SITE, "q", bounds)

    def restart(self):
        self.account.close()
        self.start()

    def reply(self, data):
        frame = decode(data, LIMITS, TO_CLIENT)
        if isinstance(frame.header, masked_messages.TO_CLIENT):
            return self.masked.handle(frame)
        return self.rounds.answer(read_request(frame))

    @property
    def ledger(self):
        return self.account.ledger.rows()


class MaskedSite:
    """The site's state machines, its clients, and the messages between them."""

    def __init__(self, folder, count=5, training=None, local=(), privacy=None):
        self.names, self.training = names_of(count), training or training_of()
        made = synthetic_regression(
            servers=1, clients_per_server=count, clusters=1, dimension=DIMENSION, samples=(20, 30), x_norm=3.0
        )
        roster, own = roster_of(self.names), privacy or {}
        self.devices = {
            name: Device(name, roster, made.rows(k), self.training, folder, name not in local, **own.get(name, {}))
            for k, name in enumerate(self.names)
        }
        self.lost = lambda client, header: False
        self.completed, self.notes, self.now = [], [], 0.0
        self.start()

    def start(self, saved=None):
        """A new life of the site, from what was saved."""
        server = Server(self.training.build_algorithm(), DIMENSION, clusters=self.training.clusters)
        self.masked = MaskedPairs(
            self.training, SITE, lambda client: self.role.pair(client), lambda client: self.role.clients.get(client),
            lambda: dict(roster_of(self.names).keys), patience=10.0,
        )  # fmt: skip
        self.role = SiteRole(server, dict.fromkeys(self.names, "q"), masked=self.masked)
        if saved is not None:
            self.role.restore(saved.snapshot)
        timing = Timing(answers=10.0, exchange=10.0, start=10.0, pace=0.0)
        quorum = Quorum(clients=0.0, neighbours=0)
        self.rounds = SiteRounds(
            self.role, self.training.rounds, set(), set(self.names), timing, quorum,
            choose=lambda round, able: self.masked.eligible(able), masked=self.masked,
            round=0 if saved is None else saved.round,
        )  # fmt: skip
        self.queue = deque()

    def connect(self, *names):
        for name in names or self.names:
            self.masked.set_member(name, self.devices[name].masks)
            self._put(self.rounds.on_client_connected(name, self.now))

    def until(self, round, seconds=2000.0):
        """Play until a round is completed; time passes when nothing else happens."""
        end = self.now + seconds
        while self.rounds.round < round and self.now < end:
            if self.queue:
                self._deliver(self.queue.popleft())
            else:
                self.now += 1.0
                self._put(self.rounds.tick(self.now))
        assert self.rounds.round >= round, self.notes[-3:]
        return self.completed[-1]

    def _put(self, effects):
        for effect in effects:
            if isinstance(effect, Completed):
                self.completed.append(effect)
            elif isinstance(effect, Note):
                self.notes.append(effect.text)
            else:
                self.queue.append(effect)

    def _deliver(self, effect):
        if not isinstance(effect, Ask | Send):
            return
        data = effect.frame if isinstance(effect, Send) else encode_request(effect.request)
        header = decode(data, LIMITS, TO_CLIENT).header
        if effect.client not in self.rounds.connected or self.lost(effect.client, header):
            return
        reply = self.devices[effect.client].reply(data)
        if reply is None:
            return
        frame = decode(reply, LIMITS, TO_SITE)
        if not self.lost(effect.client, frame.header):
            self._put(self._event(effect.client, frame))

    def _event(self, client, frame):
        header = frame.header
        match header:
            case messages.Answer(round=round):
                return self.rounds.on_answer(client, round, read_answer(frame), self.now)
            case messages.Decline(round=round, final=final, reason=reason):
                return self.rounds.on_decline(client, round, final, reason, self.now)
            case masked_messages.MaskedAnswer(round=round):
                take = lambda: self.masked.add_contribution(client, header, frame.words[0])  # noqa: E731
                return self.rounds.on_masked_answer(client, round, take, self.now)
            case masked_messages.Consent() | masked_messages.Reveal():
                return self.rounds.on_masked_message(lambda: self.masked.on_unmasking_frame(client, frame), self.now)
        return self.rounds.on_masked_message(lambda: self.masked.on_preparation_frame(client, frame), self.now)

    def vanish(self, *names):
        for name in names:
            self._put(self.rounds.on_client_disconnected(name, self.now))

    def expected(self, contributors):
        """The average of what these clients recorded as released, last."""
        drawn = [self.devices[name].drawn for name in contributors]
        return np.mean([released[max(released)][1] for released in drawn], axis=0)

    def close(self):
        for device in self.devices.values():
            device.account.close()
