"""A site's server role with what the network adds: who is admitted, public bounds, and how its models move."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pgfl import equations as eq
from pgfl.algorithms.roles import Accepted, Answer, Publication, RoundRequest, Server
from pgfl.algorithms.schedules import late_weight, rounds_counted
from pgfl.arrays import AnyArray, Floats
from pgfl.metrics import disagreement
from pgfl.network.site.bounds import (
    REFUSED_RADII,
    Ball,
    ClientBound,
    UsualDistance,
    claiming_at_most,
    clipped_memory,
    clipped_publication,
)
from pgfl.network.site.effects import Members, Rollback
from pgfl.network.site.masked_pairs import MaskedPairs
from pgfl.network.site.trustee import Contribution, Trustee
from pgfl.results.verdict import SETTLED, Verdict, Window, is_diverging, remaining

ESTIMATES = 4.0  # how much further halves may be apart: they have half the clients, and older and larger noise
GROWS = 1.25  # how much later each window ends than the one before
LEAST_ROUNDS = 8  # before which there is no verdict
_ARRAYS = ("sum", "before", "now")
Late = tuple[Floats, int]  # an update, and the last round that it counts in, by its position in the training
_PREFIX = "movement."

Models = Mapping[str, Floats]


@dataclass
class Movement:
    """Follows the models of one site, cluster by cluster; a cluster that is not known yet counts as zero."""

    windows: list[Window] = field(default_factory=list)
    length: int = 0  # of the window that is open
    next: int = 1  # the round at which it ends
    clusters: list[str] = field(default_factory=list)
    sum: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    before: Floats = field(default_factory=lambda: np.zeros((0, 0)))  # the average of the window before
    now: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    def follow(self, round: int, models: Models) -> None:
        """Add the models of a completed round."""
        self._widen(models)
        last, self.now = self.now, np.array([models.get(cluster, 0.0 * self.now[0]) for cluster in self.clusters])
        self.sum, self.length = self.sum + self.now, self.length + 1
        if round < self.next or not self.clusters:
            return
        mean = self.sum / self.length
        vectors = (mean, self.now, mean - self.before, self.now - last, self.now - mean)
        self.windows.append(Window(round, self.length, *(float(np.linalg.norm(each)) for each in vectors)))
        self.before, self.sum, self.length = mean, np.zeros_like(mean), 0
        self.next = max(round + 1, int(GROWS * round))

    def begin_anew(self) -> None:
        """Forget everything: models were taken back."""
        self.__dict__.update(vars(Movement()))

    def _widen(self, models: Models) -> None:
        new = sorted(models.keys() - set(self.clusters))
        if new:
            rows = np.zeros((len(new), len(models[new[0]])))
            for name in _ARRAYS:
                kept: Floats = getattr(self, name)
                setattr(self, name, rows.copy() if not len(kept) else np.concatenate([kept, rows]))
            self.clusters += new

    def snapshot(self) -> dict[str, AnyArray]:
        """Arrays for the store."""
        about = {"length": self.length, "next": self.next, "clusters": self.clusters}
        about["windows"] = [vars(window) for window in self.windows]
        arrays: dict[str, AnyArray] = {f"{_PREFIX}{name}": getattr(self, name) for name in _ARRAYS}
        return arrays | {f"{_PREFIX}about": np.array(json.dumps(about))}

    @classmethod
    def restored(cls, arrays: Mapping[str, AnyArray]) -> Movement:
        """As `snapshot` stored it; new if it did not."""
        if f"{_PREFIX}about" not in arrays:
            return cls()
        about: dict[str, Any] = json.loads(str(arrays[f"{_PREFIX}about"]))
        windows = [Window(**window) for window in about.pop("windows")]
        total, before, now = (arrays[f"{_PREFIX}{name}"] for name in _ARRAYS)
        return cls(windows, about["length"], about["next"], about["clusters"], total, before, now)

    def verdict(self, rounds: int) -> Verdict | None:
        """What became of the models so far, of `rounds` in all; None while it is too early to tell."""
        if not self.windows or self.windows[-1].end < LEAST_ROUNDS or len(self.windows) < 2:
            return None
        if is_diverging(self.windows):
            sentence = "The models move more and more from round to round."
            return Verdict("diverging", sentence, "Look for clients or neighbours that send nonsense; see [bounds].")
        far, last = remaining(self.windows), self.windows[-1]
        figures = {"distance": far.total, "drift": far.drift, "spread": far.spread}
        noise = f"single rounds differ from their average by {100 * far.spread:.1f} %, noise included"
        if far.drift <= SETTLED:
            sentence = (
                f"The models have settled: they are within {100 * far.drift:.1f} % of where they are heading; {noise}."
            )
            return Verdict("converged", sentence, "", figures)
        away = f"about {100 * far.drift:.0f} % away from their limit"
        sentence = f"After round {last.end} of {rounds} the models are still {away}"
        return Verdict("not yet", f"{sentence}; {noise}.", "", figures)


Arrays = dict[str, AnyArray]
_MODELS = "state."  # the names of the arrays that hold models begin with it


@dataclass
class SiteRole:
    """A site's part of every round, on top of `roles.Server`.

    `clients` maps the admitted to their clusters, `accepted` to the last round in which they were accepted. The models
    of those rounds are kept until nobody needs them. With a `bound` on clients the site computes their duals itself,
    and clips what they contribute; with a radius for neighbours it clips what they publish. Without them it bounds both
    by what is `usual`. A `trustee` adds the noise
    for clients that send clean contributions; of these nothing is kept but what it returns. Of clients that take part
    in `masked` sums it sees the sums alone.
    """

    server: Server
    clients: Mapping[str, str]
    most_clients: Mapping[str, int] = field(default_factory=dict)  # as agreed: max over sites of |C_{s,(q)}|
    bound: ClientBound | None = None
    neighbour_radius: float | None = None
    trustee: Trustee | None = None
    masked: MaskedPairs | None = None
    usual: UsualDistance = field(default_factory=UsualDistance)
    position: Callable[[int], int] = lambda round: round  # of a round in the training; numbers skip after a rollback
    paces: dict[str, int] = field(default_factory=dict)  # rounds that a release is planned for, by client; else one
    accepted: dict[str, int] = field(default_factory=dict)
    rollbacks: tuple[int, ...] = ()  # the rounds whose models were taken back, in order
    disagreement: float = 0.0  # between this site's and its neighbours' publications of the last round
    clipped: set[str] = field(default_factory=set)  # clients and neighbours, in the last round
    outliers: dict[str, float] = field(default_factory=dict)  # clients refused: times the usual distance
    used: list[str] = field(default_factory=list)  # the clients whose contributions are in the last aggregates
    movement: Movement = field(default_factory=Movement)
    _kept: dict[tuple[int, str], Floats] = field(default_factory=dict)
    _closings: dict[str, Floats] = field(default_factory=dict)  # of clients that were accepted late: the model then
    _asked_late: dict[str, RoundRequest] = field(default_factory=dict)  # of the answers in this round that were late
    _updates: dict[str, Late] = field(default_factory=dict)  # of late answers that count still
    _entering: dict[str, Answer] = field(default_factory=dict)  # this round's aggregates, by client
    _duals: dict[str, Floats] = field(default_factory=dict)
    _corrections: dict[str, Floats] = field(default_factory=dict)  # how far the last accepted answers were clipped
    _restarted: dict[str, int] = field(default_factory=dict)
    _all_restarted: int = 0
    _contributions: dict[str, tuple[Answer, Answer]] = field(default_factory=dict)  # noised ones, as sent and as used
    _sent: Publication | None = None
    _neighbour_models: dict[str, Mapping[str, Floats]] = field(default_factory=dict)  # of the last round

    def __post_init__(self) -> None:
        self._share_out()

    def adopt(self, members: Members) -> None:
        """The members of the next rounds; the dual of a client that leaves or moves begins anew, should it be back."""
        for client, cluster in self.clients.items():
            if members.clients.get(client) != cluster:
                self._restart_dual(client)
        self.clients = dict(members.clients)
        self.server.neighbours = tuple(sorted(members.neighbours))
        self._share_out()

    def _share_out(self) -> None:
        here = list(self.clients.values())
        self.server.shares = {q: here.count(q) / most for q, most in self.most_clients.items()}

    def request(self, client: str, round: int) -> RoundRequest:
        """|C_s| is the number of admitted clients now, the same for everyone who is asked in this round."""
        cluster = self.clients[client]
        restarted = max(self._all_restarted, self._restarted.get(client, 0))
        return RoundRequest(
            round, len(self.clients), self.server.model(cluster), self._closing(client, cluster), restarted
        )

    def _closing(self, client: str, cluster: str) -> Accepted | None:
        """The model with which the client settles its dual; it makes up for what was clipped of its answer."""
        last = self.accepted.get(client)
        model = self._closings.get(client, self._kept.get((last, cluster))) if last is not None else None
        if last is None or model is None:
            return None
        return Accepted(last, model + self._corrections[client] if client in self._corrections else model)

    def judge(self, client: str, answer: Answer, late: RoundRequest | None = None) -> str | None:
        """Why an answer is refused, in words; None if it can be used, perhaps clipped. A `late` one was asked so."""
        if answer.clean:
            return self._judge_clean(client, answer) if late is None else "the sum that it belongs to is made"
        ball = self._ball(client, late)
        if self.bound is None or ball is None:
            return None
        if not np.allclose(answer.dual, self._dual(client), rtol=1e-9, atol=1e-9):
            self._restart_dual(client)
            return "its dual does not follow from its answers; it begins anew"
        far = ball.distance(answer.model)
        if far <= self.bound.refuse:
            return None
        return f"it is {far:.3g} times as far from its public centre as an honest one can be"

    def entrusted(self, client: str) -> bool:
        """Whether a client leaves its noise to this site."""
        return self.trustee is not None and client in self.trustee.accounts

    def _judge_clean(self, client: str, answer: Answer) -> str | None:
        """In constant words: what depends on a clean contribution must not be read in a log."""
        if not self.entrusted(client):
            return "it carries no noise, and this site adds none for this client"
        ball = self._clean_ball(client)
        if ball is None or ball.distance(answer.model) > REFUSED_RADII:
            return "it is further from its public centre than an honest one can be"
        return None

    def _clean_ball(self, client: str) -> Ball | None:
        assert self.trustee is not None
        cluster = self.clients[client]
        return self.trustee.ball(client, cluster, self.server.model(cluster), len(self.clients))

    def _ball(self, client: str, late: RoundRequest | None = None) -> Ball | None:
        if self.bound is None:
            return None
        cluster = self.clients[client]
        model = self.server.model(cluster) if late is None else late.model
        clients = len(self.clients) if late is None else late.server_clients
        return self.bound.ball(cluster, model, self._dual(client), clients)

    def _dual(self, client: str) -> Floats:
        return self._duals.get(client, np.zeros(self.server.dimension))

    def _restart_dual(self, client: str) -> None:
        self._restarted[client] = self.server.round + 1
        for known in (self.accepted, self._duals, self._corrections, self._closings, self._updates):
            known.pop(client, None)

    def aggregate(
        self,
        round: int,
        answers: Mapping[str, Answer],
        retired: Collection[str] = (),
        late: Mapping[str, tuple[Answer, RoundRequest]] | None = None,
    ) -> Publication:
        """The server's aggregation, with clients in the order of their names; the `retired` never answer again.

        Answers to earlier requests are `late`: their updates count at the present model, in as many rounds as their
        clients were busy for and have planned for.
        """
        self._asked_late = {name: request for name, (_, request) in (late or {}).items()}
        answers = {**answers, **{name: answer for name, (answer, _) in (late or {}).items()}}
        self.outliers = self._too_far(answers, round) if self.bound is None else {}
        names = sorted(client for client in answers if client in self.clients and client not in self.outliers)
        contributions = {name: (answers[name], self._bounded(name, answers[name])) for name in names}
        self.clipped = {name for name, (sent, used) in contributions.items() if sent.model is not used.model}
        self._contributions = {name: both for name, both in contributions.items() if not both[0].clean}
        clean = {name: used for name, (sent, used) in contributions.items() if sent.clean}
        summed = () if self.masked is None else self.masked.contributors
        self._entering = self._at_todays_models(round, {*contributions, *summed} - self._asked_late.keys())
        aggregates, used = self._noised_aggregates(round, clean) if self.masked is None else self._unmasked(self.masked)
        self.used = sorted([*self._contributions, *used])
        contributors = [(cluster, client not in retired) for client, cluster in self.clients.items()]
        answered = [(self.clients[name], answer) for name, answer in self._entering.items()]
        self._sent = self.server.aggregate(round, answered, contributors, aggregates, self._halves())
        return self._sent

    def _halves(self) -> list[int]:
        """The half of each client whose noised answer counts: every other client of a cluster, by name."""
        rank: Counter[str] = Counter()
        half: dict[str, int] = {}
        for name in sorted(self.clients):
            half[name] = rank[self.pair(name)] % 2
            rank[self.pair(name)] += 1
        return [half[name] for name in self._entering]

    def _noised_aggregates(self, round: int, clean: Mapping[str, Answer]) -> tuple[dict[str, Floats], list[str]]:
        """The aggregates of pairs with clean contributions, and whose contributions were used.

        The noised sum of the clean ones and the sum of those that clients have noised themselves make one average.
        """
        aggregates: dict[str, Floats] = {}
        used: list[str] = []
        if self.trustee is None:
            return aggregates, used
        self.trustee.sat_out.clear()
        self.update_over_cap()
        clean = {name: answer for name, answer in clean.items() if name not in self.trustee.over_cap}
        for pair in sorted({self.pair(client) for client in self.clients}):
            members = {name: self._contribution(name, clean[name]) for name in clean if self.pair(name) == pair}
            if not members and self.trustee.store.noised(round, pair) is None:
                continue
            noised = self.trustee.noised_sum(round, pair, members, len(self.clients))
            if noised is None:
                continue
            aggregates[pair] = self._averaged(pair, noised.sum, noised.contributors)
            used += noised.names
        return aggregates, used

    def update_over_cap(self) -> None:
        """Have the trustee find out who states too much."""
        if self.trustee is not None:
            self.trustee.update_over_cap(self.clients, {client: self.pair(client) for client in self.clients})

    def _unmasked(self, masked: MaskedPairs) -> tuple[dict[str, Floats], list[str]]:
        """The aggregates of pairs with a masked sum, to which clients that noised their models themselves are added."""
        aggregates: dict[str, Floats] = {}
        for pair, unmasked in masked.sums.items():
            aggregates[pair] = self._averaged(pair, unmasked.sum, len(unmasked.contributors))
        return aggregates, list(masked.contributors)

    def _averaged(self, pair: str, noised: Floats, contributors: int) -> Floats:
        """One average of a noised sum and of what clients have noised themselves."""
        local = [answer.model for name, answer in self._entering.items() if self.pair(name) == pair]
        averaged: Floats = np.sum([noised, *local], axis=0) / (contributors + len(local))
        return averaged

    def pair(self, client: str) -> str:
        """Under which name the aggregate is kept that a client contributes to."""
        return self.server.key(self.clients[client])

    def _contribution(self, client: str, answer: Answer) -> Contribution:
        ball = self._clean_ball(client)
        assert ball is not None  # else it was refused
        return Contribution(self.clients[client], answer.model, ball)

    def _bounded(self, client: str, answer: Answer) -> Answer:
        """The answer as an honest client could have sent it, with the dual that the site computed itself."""
        if answer.clean:
            for ball in (self._clean_ball(client), self._ball(client)):
                answer = answer if ball is None else replace(answer, model=ball.clipped(answer.model))
            return answer
        ball = self._ball(client, self._asked_late.get(client))
        if ball is None:
            return answer
        return replace(answer, model=ball.clipped(answer.model), dual=self._dual(client))

    def _at_todays_models(self, round: int, in_time: Collection[str]) -> dict[str, Answer]:
        """The noised answers as they enter the aggregates, by client: late ones, also of earlier rounds, as updates."""
        now = self.position(round)
        self._updates = {
            name: late for name, late in self._updates.items() if late[1] >= now and name not in self._contributions
        }
        entering = {}
        for name, (_, used) in self._contributions.items():
            if (asked := self._asked_late.get(name)) is None:
                entering[name] = used
            else:
                until = now - 1 + rounds_counted(now - self.position(asked.round), self.paces.get(name, 1))
                self._updates[name] = self._update(used, asked), until
        fresh = Counter(map(self.pair, in_time))
        old = [name for name in self._updates if name in self._asked_late or fresh[self.pair(name)]]
        late = Counter(map(self.pair, old))
        for name in old:
            pair = self.pair(name)
            entering[name] = self._brought_forward(
                name, round, self._updates[name][0], float(late_weight(fresh[pair], late[pair]))
            )
        return dict(sorted(entering.items()))

    def _as_of_today(self, client: str, answer: Answer, round: int) -> Answer:
        """An answer to be compared with the others of this round."""
        asked = self._asked_late.get(client)
        return answer if asked is None else self._brought_forward(client, round, self._update(answer, asked))

    def _update(self, answer: Answer, asked: RoundRequest) -> Floats:
        """What an answer contributes, less the model that its client was given."""
        contribution = np.asarray(self.server.algorithm.client_rule.contribution(answer.model, answer.dual))
        return contribution if asked.model is None else contribution - asked.model

    def _brought_forward(self, client: str, round: int, update: Floats, weight: float = 1.0) -> Answer:
        """An update as an answer at today's model."""
        blank, now = np.zeros(self.server.dimension), self.server.model(self.clients[client])
        return Answer(round, np.asarray(eq.late_contribution(update, blank if now is None else now, weight)), blank)

    def _too_far(self, answers: Mapping[str, Answer], round: int) -> dict[str, float]:
        """Who contributes what is far from the others of its cluster; clean contributions have their own bound."""
        rule, found = self.server.algorithm.client_rule, dict[str, float]()
        for pair in sorted({self.pair(client) for client in answers if client in self.clients}):
            contributed = {
                client: np.asarray(rule.contribution(forward.model, forward.dual))
                for client, answer in sorted(answers.items())
                if client in self.clients and self.pair(client) == pair and not answer.clean
                for forward in [self._as_of_today(client, answer, round)]
            }
            near = [models[pair] for models in self._neighbour_models.values() if pair in models]
            found |= self.usual.too_far(contributed, near)
        return found

    def publication(self) -> Publication:
        """The models as they are now, as a publication of the last round."""
        models = {cluster: state["model"] for cluster, state in self.server.state()["clusters"].items()}
        counted = Counter(map(self.server.key, self.clients.values()))
        return Publication(self.server.round, len(self.server.neighbours), models, clients=counted)

    def combine(self, round: int, publications: Mapping[str, Publication]) -> None:
        """The server's combination; from now on those who answered are accepted."""
        self._neighbour_models = {name: publication.models for name, publication in publications.items()}
        publications = {name: self._near(name, publication) for name, publication in publications.items()}
        position = self.position(round)
        self.server.combine(round, publications, position)
        self.usual.complete_round()
        self._measure(publications)
        self.movement.follow(position, self.publication().models)
        for client in self.used:
            model = self.server.model(self.clients[client])
            assert model is not None  # the client's own answer is in it
            asked = self._asked_late.get(client)
            self.accepted[client] = round if asked is None else asked.round
            self._closings.pop(client, None)
            if asked is None:
                self._kept[round, self.clients[client]] = model
            else:
                self._closings[client] = model
            self._settle(client)
        needed = {(last, self.clients[client]) for client, last in self.accepted.items() if client in self.clients}
        self._kept = {key: model for key, model in self._kept.items() if key in needed}

    def _near(self, name: str, publication: Publication) -> Publication:
        publication = claiming_at_most(self.most_clients, publication)
        radius = self.neighbour_radius or self.usual.radius
        if publication.memory and self._sent is not None:
            reach = ESTIMATES * self.server.algorithm.server_rule.reach_of_estimates
            publication = clipped_memory(self._sent, publication, self.server.dimension, radius, reach)
        if radius is None or self._sent is None:
            return publication
        near, changed = clipped_publication(self._sent, publication, radius)
        self.clipped |= {name} if changed else set()
        return near

    def _settle(self, client: str) -> None:
        """The client's dual after an accepted answer, computed exactly as the client will compute it."""
        if self.bound is None or not self.server.algorithm.client_rule.has_dual:
            return
        sent, used = self._contributions[client]
        self._corrections.pop(client, None)
        if sent.model is not used.model:
            self._corrections[client] = sent.model - used.model
        closing = self._closing(client, self.clients[client])
        assert closing is not None
        self._duals[client] = np.asarray(
            self.server.algorithm.client_rule.settle(self._dual(client), closing.model, sent.model)
        )

    def _measure(self, publications: Mapping[str, Publication]) -> None:
        known = [pub for pub in (self._sent, *publications.values()) if pub is not None]
        clusters = sorted({cluster for pub in known for cluster in pub.models})
        pairs = [(clusters.index(cluster), model) for pub in known for cluster, model in pub.models.items()]
        models = np.array([model for _, model in pairs]).reshape(len(pairs), self.server.dimension)
        self.disagreement = disagreement(models, np.array([row for row, _ in pairs], dtype=np.int64))

    def roll_back(self, rollback: Rollback) -> None:
        """Take back the models of an earlier round. Duals begin anew; round numbers never repeat."""
        round = rollback.round
        states = {} if rollback.past is None else models_in(rollback.past)
        if rollback.past is None and self.server.algorithm.server_rule.starts_everywhere:
            blank = np.zeros(self.server.dimension)
            states = {q: self.server.algorithm.server_rule.start(blank) for q in self.most_clients}
        self.server.restore({"round": round, "clusters": states})
        self.rollbacks, self._all_restarted = rollback.rollbacks, round + 1
        self.accepted, self._kept, self._duals, self._corrections, self._closings = {}, {}, {}, {}, {}
        self._updates = {}
        self.movement.begin_anew()

    def snapshot(self) -> Arrays:
        """Arrays for the store."""
        state = self.server.state()
        held = state["clusters"]
        names = sorted({name for state in held.values() for name in state})
        kept, duals, corrected = sorted(self._kept), sorted(self._duals), sorted(self._corrections)
        arrays: Arrays = {
            f"{_MODELS}{name}": np.array([held[cluster][name] for cluster in sorted(held)]) for name in names
        }
        arrays["kept"] = np.array([self._kept[key] for key in kept])
        arrays["closings"] = np.array([self._closings[client] for client in sorted(self._closings)])
        arrays["updates"] = np.array([self._updates[client][0] for client in sorted(self._updates)])
        arrays["disagreement"] = np.array(self.disagreement)
        if self.bound is not None:
            arrays["duals"] = np.array([self._duals[client] for client in duals])
            arrays["corrections"] = np.array([self._corrections[client] for client in corrected])
        about = {
            "round": self.server.round,
            "clusters": sorted(held),
            "rested": sorted(state["rested"]),
            "kept": kept,
            "accepted": self.accepted,
            "closings": sorted(self._closings),
            "updates": sorted((client, until) for client, (_, until) in self._updates.items()),
            "duals": duals,
            "corrected": corrected,
            "restarted": self._restarted,
            "all_restarted": self._all_restarted,
            "rollbacks": self.rollbacks,
            "usual_distances": self.usual.medians,
            "charged": {} if self.trustee is None else self.trustee.charges(),
        }
        arrays["about"] = np.array(json.dumps(about))
        return arrays | self.movement.snapshot()

    def restore(self, arrays: Mapping[str, AnyArray]) -> None:
        """Go on from a snapshot; if it has no duals but this site bounds its clients, duals begin anew."""
        about = json.loads(str(arrays["about"]))
        rested = about.get("rested", ())
        self.server.restore({"round": about["round"], "clusters": models_in(arrays), "rested": rested})
        self.disagreement = float(arrays["disagreement"])
        self.movement = Movement.restored(arrays)
        self.accepted = {client: int(round) for client, round in about["accepted"].items()}
        self._kept = {(key[0], key[1]): arrays["kept"][row] for row, key in enumerate(about["kept"])}
        self._closings = {name: arrays["closings"][row] for row, name in enumerate(about.get("closings", ()))}
        self._updates = {
            name: (arrays["updates"][row], until) for row, (name, until) in enumerate(about.get("updates", ()))
        }
        self._restarted, self._all_restarted = about.get("restarted", {}), about.get("all_restarted", 0)
        self.rollbacks = tuple(about.get("rollbacks", ()))
        self.usual.medians = about.get("usual_distances", [])
        if "duals" in arrays:
            self._duals = dict(zip(about["duals"], arrays["duals"], strict=True))
            self._corrections = dict(zip(about["corrected"], arrays["corrections"], strict=True))
        if self.trustee is not None:
            self.trustee.known = dict(about.get("charged", {}))
        if self.bound is not None and self.server.algorithm.client_rule.has_dual:
            for client in sorted(self.accepted.keys() - self._duals.keys()):
                self._restart_dual(client)


def models_in(arrays: Mapping[str, AnyArray]) -> dict[str, dict[str, Floats]]:
    """The state of every cluster in a snapshot."""
    names = [name.removeprefix(_MODELS) for name in arrays if name.startswith(_MODELS)]
    clusters = json.loads(str(arrays["about"]))["clusters"]
    return {cluster: {name: arrays[f"{_MODELS}{name}"][row] for name in names} for row, cluster in enumerate(clusters)}
