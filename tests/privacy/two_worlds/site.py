"""A site that lies: it says anything at any time, and chooses by all that it has received so far.

It never sees a world's data, only what the client sent. As long as both worlds send the same, it says the same to both.
"""

from __future__ import annotations

import json
from collections import Counter

import numpy as np

from pgfl.network.protocol.wire import VERSION, Kind
from tests.privacy.two_worlds import device
from tests.privacy.two_worlds.frames import challenge, frame, opened, refused, request, stop, welcome

NONCES = ("00", "ab" * 32)
PLACES = ("computing", "drawing", "sending")
WELCOMES = ("task", "task", "task in cluster", *2 * ("dimension", "cluster"), "moved", "text", "key", "value")
CRASHES = ("interrupted", "failed", "out of memory", "arithmetic", "killed", "killed")


def usual_training(config, **algorithm):
    """What an honest site would ask for."""
    return {
        "rounds": 100, "dimension": config.dimension, "clusters": ["a", "b"], "mixing": "metropolis",
        "most_clients": {"a": 3, "b": 3},
        "objective": {"kind": config.objective, "lam": 0.01, "kappa": 1.0},
        "algorithm": {"kind": "pgfl", "rho": 2.0, "tau": 0.1, **algorithm},
    }  # fmt: skip


class HonestSite:
    """A site that asks as it should, but for one round too late; the client has two lives."""

    def __init__(self, config, training=None, models=None):
        self.config, self.training = config, training or usual_training(config)
        self.models = models or [np.zeros(config.dimension), None, np.ones(config.dimension)]
        self.noted, self.round = Counter(), 0

    def plan(self):
        """No crash, and nothing to accept."""
        return [((), False), ((), False)]

    def streams(self, received):
        """One stream a life."""
        yield self.frames(received)

    def frames(self, received):
        """A welcome and some rounds."""
        yield challenge(NONCES[0])
        yield welcome(self.training)
        for model in self.models:
            self.round += 2
            yield request(self.round, 3, model)
        yield request(self.round - 1, 3, self.models[-1])


class HostileSite:
    """One adversary: a training that it mostly keeps to, and a stream of frames for each time that it is called."""

    def __init__(self, rng, config):
        self.rng, self.config = rng, config
        self.size, self.tie = 0.0, None  # models that aim at rounding
        self.steepest = False
        self.longest = {}  # by training and |C_s|
        self.training = self.any_training()
        self.noted = Counter()
        self.current = None
        self.asked = []
        self.answers = []  # (training, round, released model)
        self.dual = np.zeros(config.dimension)  # as the client sent it last
        self.seen = 0
        self.round = 0

    def plan(self):
        """How many lives the client gets; where and how each of them crashes, if it does; who accepts before it."""
        return [
            (self.crash() if self.chance(0.35) else (), life > 0 and self.chance(0.6))
            for life in range(int(self.rng.integers(1, 5)))
        ]

    def crash(self):
        return str(self.pick(PLACES)), int(self.rng.integers(3)), str(self.pick(CRASHES))

    def streams(self, received):
        """The streams of one life."""
        for _ in range(int(self.rng.integers(1, 3))):
            yield self.frames(received)

    def frames(self, received):
        """One stream; `received` grows with what the client sends."""
        for data in self.lies():
            yield data
            self.listen(received)

    def listen(self, received):
        """Note the answers that came."""
        known = {(round, model.tobytes()) for _, round, model in self.answers}
        for kind, header, numbers in map(opened, received[self.seen :]):
            model = numbers[: len(numbers) // 2]
            if kind is Kind.ANSWER and len(model) == len(self.dual):
                self.dual = numbers[len(model) :]
            if kind is Kind.ANSWER and (header["round"], model.tobytes()) not in known:
                self.answers.append((self.current, header["round"], model))
                self.noted[f"released by {self.current['objective']['kind']}"] += 1
                self.noted[f"released with {self.current['algorithm']['kind']}"] += 1
                self.noted[f"released by {self.current['algorithm'].get('client', 'admm')} steps"] += 1
        self.seen = len(received)

    def lies(self):
        """What is said on one stream."""
        if self.chance(0.04):
            yield from self.pick([[], [refused()], [self.garbage()], [b""]])
            return
        yield challenge(str(self.pick(NONCES)))
        if self.chance(0.96):
            yield self.welcome(self.training)
        if self.asked and self.chance(0.6):
            self.noted["replay"] += 1
            yield self.asked[-1]
        for _ in range(int(self.rng.integers(2, 11))):
            yield self.next_frame()
            if self.chance(0.01):
                self.noted["flood"] += 1
                yield from (self.garbage() for _ in range(20))

    def next_frame(self):
        """The next lie."""
        actions = {
            "request": 64, "replay": 9, "old round": 4, "garbage": 7, "welcome": 3, "changed training": 2,
            "hostile welcome": 5, "hostile training": 2, "stop": 2, "refused": 1,
        }  # fmt: skip
        weights = np.array(list(actions.values()), dtype=float)
        action = str(self.rng.choice(list(actions), p=weights / weights.sum()))
        self.noted[action] += 1
        if action == "request" or (action in ("replay", "old round") and not self.asked):
            self.round += int(self.pick([1, 1, 1, 2, 50]))
            return self.ask(self.round)
        if action == "replay":
            return self.asked[-1] if self.chance(0.5) else self.ask(self.round)
        if action == "old round":
            return self.ask(int(self.rng.integers(1, self.round + 1)))
        if action == "garbage":
            return self.garbage()
        if action in ("changed training", "hostile training"):
            return self.require(self.nearly(self.training) if action == "changed training" else self.any_training())
        if action == "hostile welcome":
            return self.hostile_welcome()
        if action == "stop":
            return stop(None if self.chance(0.3) else int(self.rng.integers(1, 2 * self.round + 2)))
        return refused() if action == "refused" else self.welcome(self.training)

    # questions --------------------------------------------------------------------------------------------------------

    def ask(self, round):
        """A round, with any model, any |C_s| and anything accepted."""
        clients = self.server_clients()
        if self.chance(0.7 if self.config.theme == "edges" else 0.1) and (edge := self.edge(clients)) is not None:
            question = request(round, clients, edge)
        else:
            model = None if self.chance(0.15) else self.model()
            question = request(round, clients, model, self.accepted(), self.restarted(round))
        self.asked.append(question)
        return question

    def server_clients(self):
        if (self.size or self.steepest) and self.chance(0.7):
            return 1
        return int(self.pick([1, 3, 10**9, int(10 ** self.rng.uniform(0, 9)), self.pick([1, 1, 0, 10**9 + 1])]))

    def accepted(self):
        answered = [round for training, round, _ in self.answers if training == self.current]
        if self.chance(0.02):
            return int(self.rng.integers(0, 2 * self.round + 9)), self.model()
        if not answered or self.chance(0.25):
            return None
        return answered[-1] if self.chance(0.9) else self.pick(answered), self.model()

    def restarted(self, round):
        """Duals begin anew now and then, or so the site says, also with rounds that have not been or cannot be."""
        return self.pick([round - 1, round, round + 9, 2**53 - 1]) if self.chance(0.05) else 0

    def model(self):
        """From denormal to far beyond what the wire takes, most of them where the client would answer."""
        d, rng = self.config.dimension, self.rng
        kind = rng.choice(
            ["small", "any size", "far", "edge", "zero", "released", "denormal", "too long", "not finite"],
            p=[0.34, 0.12, 0.16, 0.12, 0.04, 0.12, 0.04, 0.04, 0.02],
        )
        toward = self.config.direction if self.chance(0.5) else rng.standard_normal(d)
        if kind == "small" or (kind == "released" and not self.answers) or (self.config.fine and self.chance(0.6)):
            return rng.standard_normal(d)
        if kind == "any size":
            return toward * 10.0 ** rng.uniform(-310, 8.5)
        if self.tie is not None and self.chance(0.5):
            return self.tie
        if self.size and self.chance(0.6):
            return rng.choice([-1.0, 1.0], d) * self.size * rng.uniform(0.5, 1.0, d) / d**0.5
        if kind == "far":
            return toward * 10.0 ** rng.uniform(1, 5)
        if kind == "edge":
            return toward * 10.0 ** rng.uniform(5, 6)
        if kind == "released":
            return self.answers[-1][2]
        if kind == "too long":
            return toward * 10.0 ** rng.uniform(9.1, 300)
        if kind == "not finite":
            return np.full(d, self.pick([np.nan, np.inf]))
        return np.full(d, 0.0 if kind == "zero" else 5e-324)

    def edge(self, server_clients):
        """A model that makes the centre as long as the client just answers, or just not; None if there is none."""
        key = (json.dumps(self.training), server_clients)
        if key not in self.longest:
            usable = 1 <= server_clients <= 10**9
            self.longest[key] = device.longest_model(self.config, self.training, server_clients) if usable else None
        toward = self.config.direction if self.chance(0.5) else self.rng.standard_normal(self.config.dimension)
        if self.longest[key] is None or not toward.any():
            return None
        off = self.rng.uniform(-1, 1) * 10.0 ** self.rng.uniform(-16, -2)
        return toward / np.linalg.norm(toward) * self.longest[key] * (1.0 + off) - self.dual

    def welcome(self, training):
        """A welcome as it is to be, but for what the site says it has received."""
        self.current = training
        answers = len(self.answers)
        releases = self.pick([0, answers, answers, answers]) if self.chance(0.98) else answers + 1 + 10**6
        return welcome(training, releases=releases)

    def require(self, training):
        """A welcome to another training, which is often kept to: the owner may accept it."""
        if self.chance(0.6):
            self.training = training
        return self.welcome(training)

    # trainings --------------------------------------------------------------------------------------------------------

    def any_training(self):
        """Sane, wild or absurd."""
        rng, training = self.rng, usual_training(self.config)
        reach = float(rng.choice([0.5, 6.0, 300.0], p=[0.6, 0.25, 0.15]))
        algorithm, objective = training["algorithm"], training["objective"]
        algorithm["kind"] = str(
            rng.choice(["pgfl", "pgfl-exact", "pgfl-onestep", "fedavg"], p=[0.45, 0.15, 0.15, 0.25])
        )
        algorithm["rho"] = self.positive(reach)
        if self.chance(0.8 if self.config.fine or self.config.unlucky else 0.4):
            least, most = (-0.7, 2.0) if self.config.fine else (-1.7, 0.5)
            algorithm["rho"] = self.config.smoothness * float(10.0 ** rng.uniform(least, most))
        algorithm["step_size"] = 0.05 * self.positive(reach) / max(1.0, self.config.x_norm) ** 2
        algorithm["local_steps"] = int(
            rng.choice([1, 2, 5, 30, device.LONGEST_LOCAL_STEPS], p=[0.3, 0.3, 0.2, 0.15, 0.05])
        )
        objective["lam"] = float(rng.choice([0.0, 0.01, 0.5, self.positive(reach)]))
        objective["kappa"] = min(self.positive(reach), 1e10)
        if self.config.objective == "ridge" and algorithm["kind"] == "fedavg" and self.chance(0.7):
            algorithm["kind"] = "pgfl"
        if device.TOLERANCE_IS_SENT:
            objective["tolerance"] = float(rng.choice([1e-10, 1e-10, 1e-5, 10.0 ** rng.uniform(-16, 6)]))
        if self.config.theme == "rounding":
            algorithm["kind"] = "fedavg"
            self.aim_at_rounding(training)
            if self.chance(0.4):
                algorithm |= {"kind": "pgfl", "client": "gradient", "rho": 1.0 / algorithm["step_size"]}
        elif self.config.theme == "fallback":
            algorithm["kind"] = str(self.pick(["pgfl", "pgfl-exact", "pgfl-onestep"]))
        elif algorithm["kind"] == "fedavg" and self.config.objective != "ridge" and self.chance(0.3):
            self.aim_at_the_longest_step(training)
        elif self.chance(0.1):
            objective["clusters"] = {"a": {"lam": self.positive(reach)}}
        if algorithm["kind"] != "fedavg" and self.config.theme != "fallback" and self.chance(0.3):
            algorithm["client"] = "gradient"
        return training

    def aim_at_the_longest_step(self, training):
        """A step that is as long as allowed but for a last digit: 2/s is not normal any more, and rounded up."""
        self.steepest = True
        for _ in range(10_000):
            lam = float(self.rng.uniform(0.6, 0.89)) * 1e308
            whole = self.config.smoothness + 2.0 * lam
            if (2.0 / whole) * whole > 2.0:
                training["objective"]["lam"], training["algorithm"]["step_size"] = lam, 2.0 / whole
                return
        raise AssertionError("no step length is rounded up")

    def aim_at_rounding(self, training):
        """Models so long that a gradient step loses a record's pull in their last digits, or in their regulariser's."""
        coarse = device.TOLERANCE_IS_SENT and self.chance(0.4)
        self.size = 10.0 ** self.rng.uniform(4.5, 8.9 if coarse or self.chance(0.5) else 5.3)
        objective, algorithm = training["objective"], training["algorithm"]
        if coarse:
            objective["tolerance"] = 1.0
        objective["kappa"] = kappa = float(10.0 ** self.rng.uniform(-4, 0))
        kind = self.pick(["tie", "tie", "small steps", "regulariser"])
        if kind == "regulariser":
            objective["lam"] = lam = float(10.0 ** self.rng.uniform(6, 10))
            algorithm["step_size"] = float(self.rng.uniform(0.1, 0.9) / (self.config.x_norm**2 + lam))
            return
        pull = self.config.x_norm * (1.0 if self.config.objective == "logistic" else 2.0 * kappa)
        objective["lam"] = 0.0
        algorithm["step_size"] = float(np.spacing(self.size) * 10.0 ** self.rng.uniform(-1, 0.5) / pull)
        signs = (
            np.ones(self.config.dimension) if self.chance(0.5) else self.rng.choice([-1.0, 1.0], self.config.dimension)
        )
        self.tie = signs * self.size / self.config.dimension**0.5
        one, other = np.abs(self.config.gradients(kappa, self.tie))
        at = int(np.argmax(one != other))
        if kind == "tie" and one[at] + other[at] > 0:
            algorithm["step_size"] = float(np.spacing(abs(self.tie[at])) / (one[at] + other[at]))
            algorithm["local_steps"] = int(self.pick([1, 1, 2, 5]))

    def positive(self, reach):
        return float(10.0 ** self.rng.uniform(-reach, reach))

    def nearly(self, training):
        """The same training but for one number."""
        changed = json.loads(json.dumps(training))
        part, key = self.pick(
            [("algorithm", "rho"), ("objective", "lam"), ("algorithm", "step_size"), (None, "rounds")]
        )
        if part is None:
            changed[key] += 1
        else:
            changed[part][key] = float(np.nextafter(changed[part][key], np.inf))
        return changed

    def hostile_welcome(self):
        """A welcome that a client must refuse, by what it declared and never by what its data is."""
        kinds = {"ridge", "huber", "logistic"} - {self.config.objective}
        other = "logistic" if "logistic" in kinds and self.chance(0.7) else str(self.pick(sorted(kinds)))
        wrong_task = {**self.training, "objective": {**self.training["objective"], "kind": other}}
        sneaked = {**self.training["objective"], "clusters": {"a": {"kind": other}}}
        kind = str(self.rng.choice(WELCOMES))
        self.noted["wrong task" if kind.startswith("task") else kind] += 1
        if kind == "task":
            self.current = wrong_task
            return welcome(wrong_task)
        if kind == "task in cluster":
            self.current = {**self.training, "objective": sneaked}
            return welcome(self.current)
        if kind == "dimension":
            return welcome({**self.training, "dimension": self.config.dimension + 1})
        if kind in ("cluster", "moved"):
            return welcome(self.training, cluster="c" if kind == "cluster" else "b")
        if kind == "text":
            return welcome(str(self.pick(["", "{", "[]", "nonsense", '{"rounds": 1}'])))
        if kind == "key":
            return welcome({**self.training, "surprise": 1})
        return welcome({**self.training, "algorithm": {**self.training["algorithm"], "rho": self.pick([0.0, -1.0])}})

    def garbage(self):
        """Bytes that are no frame, or none that is expected."""
        self.noted["malformed"] += 1
        header = {"round": 1, "server_clients": 1, "known": True, "accepted": None, "restarted": 0}
        vector = np.ones(self.config.dimension)
        return self.pick([
            b"", b"PGFL", self.rng.bytes(40), frame(Kind.REQUEST, header), frame(Kind.REQUEST, header, vector, vector),
            frame(Kind.REQUEST, {**header, "round": 0}, vector), frame(Kind.REQUEST, {**header, "more": 1}, vector),
            frame(Kind.REQUEST, header, vector, magic=b"PGFX"), frame(99, {}), challenge("00"),
            frame(Kind.REQUEST, header, vector, version=VERSION + 1),
            frame(Kind.ANSWER, {"round": 1, "release": 1}, vector, vector),
            frame(Kind.REQUEST, b"{", vector), frame(Kind.STOP, {"reason": "x" * 501}), frame(Kind.REQUEST, b"[]"),
        ])  # fmt: skip

    def chance(self, share):
        return bool(self.rng.random() < share)

    def pick(self, things):
        return things[int(self.rng.integers(len(things)))]
