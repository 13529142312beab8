"""One client and one server as state machines without I/O: what runs on a device and at a site.

A site that serves its clients is a `Server`; a device is a `Client`. A cluster rests at a server once nobody near can
contribute to it any more: then it takes nothing from other clusters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pgfl import equations as eq
from pgfl.algorithms.accuracy import EPS, Magnitudes, PrimalPromise, Promise, Refusal, Terms, finite_or_none
from pgfl.algorithms.algorithms import Algorithm
from pgfl.algorithms.schedules import tau_at
from pgfl.algorithms.server_rules import Halves
from pgfl.arrays import Bools, Floats
from pgfl.errors import DataError, PrivacyError, SolverError
from pgfl.federation.graphs import by_clients, neighbour_weight
from pgfl.objectives import Objective
from pgfl.objectives.interface import Prepared, tolerance_for


def exhausted(clients: Bools | bool, able: Bools | bool, rested: Bools | bool) -> Bools:
    """Where nobody can contribute any more: all `clients` are spent or, without clients, the cluster `rested` before.

    The second part lets rest spread over servers that only relay a cluster; otherwise they would drift and pull the
    servers that rest.
    """
    return np.asarray(np.logical_or(clients, rested) & np.logical_not(able))


def rests(able_near: Bools, exhausted_near: Bools) -> Bools:
    """Where a cluster rests: in the server's closed neighbourhood nobody is able, and somebody is exhausted."""
    return np.asarray(exhausted_near & ~able_near)


ROUNDING_SHARE = 0.5  # of the radius that updates are clipped to


@dataclass(frozen=True)
class Accepted:
    """A round in which the server used the client's answer, and the resulting model."""

    round: int
    model: Floats


@dataclass(frozen=True)
class RoundRequest:
    """What a server asks of a client; `model` is None while the server has no model of the client's cluster."""

    round: int
    server_clients: int  # |C_s|
    model: Floats | None
    accepted: Accepted | None = None
    restarted: int = 0  # the round with which duals began anew, after a site took its models back


@dataclass(frozen=True)
class Answer:
    """What leaves a client: the released model, and the dual, which follows from earlier messages.

    A `clean` one carries no noise: a client that trusts its own site sends it there, and nobody else may see it.
    """

    round: int
    model: Floats
    dual: Floats
    clean: bool = False


@dataclass(frozen=True)
class Publication:
    """What a server sends its neighbours after a round's aggregation.

    `able` names the clusters to which one of its clients can still contribute, `exhausted` those to which nobody at the
    server can any more (see `resting`). Both follow from public numbers: how often clients released, and their budgets.
    `clients` says how many clients of a cluster the server has, whether they answer or not. `memory` is what a rule
    that learns weights between clusters publishes with each model.
    """

    round: int
    degree: int
    models: Mapping[str, Floats]
    able: frozenset[str] = frozenset()
    exhausted: frozenset[str] = frozenset()
    clients: Mapping[str, int] = field(default_factory=dict)
    memory: Mapping[str, Floats] = field(default_factory=dict)


class Client:
    """Updates its dual, solves its problem, and releases an answer.

    With `terms` a request is first checked using public quantities only (`refusal`), and answers are as accurate as
    promised. Without them nothing is promised, and an unsolved problem raises `SolverError`.

    >>> from pgfl import PGFL, Ridge
    >>> client = Client(Ridge(lam=0.0), PGFL(rho=2.0), [[1.0], [1.0]], [3.0, 5.0])
    >>> client.answer(RoundRequest(1, server_clients=1, model=None), release=lambda model: model).model
    array([2.])
    """

    def __init__(
        self,
        objective: Objective,
        algorithm: Algorithm,
        features: ArrayLike,
        targets: ArrayLike,
        update_norm: float | None = None,
        terms: Terms | None = None,
    ) -> None:
        self._features = np.asarray(features, dtype=float)[None]
        self._targets = np.asarray(targets, dtype=float)[None]
        self.objective, self.algorithm, self.update_norm, self.terms = objective, algorithm, update_norm, terms
        objective.check_targets(self._targets[0])
        self.dual: Floats = np.zeros(objective.model_length(self._features.shape[-1]))
        self.sent: tuple[int, Floats] | None = None
        self.settled_round = 0
        self.restarted = 0
        self._problem: _OneClient | None = None

    @property
    def records(self) -> int:
        """D_k, a public number."""
        return int(self._features.shape[1])

    def answer(self, request: RoundRequest, release: Callable[[Floats], Floats]) -> Answer:
        """The answer to a request; `release` perturbs the solution and charges the budget first."""
        if refusal := self.refusal(request):
            raise DataError(f"Nothing was released: {refusal}.")
        self.restart(request.restarted)
        self.settle(request.accepted)
        problem = self._problem_at(request.server_clients)
        model = self._model_of(request)
        step = self.algorithm.client_rule.step(problem, model[None], self.dual[None], lambda m: release(m[0])[None])
        self.sent = (request.round, step.released[0])
        return Answer(request.round, step.released[0], self.dual)

    def refusal(self, request: RoundRequest) -> Refusal | None:
        """Why this request is refused, from public quantities alone, so that it reveals nothing about the data."""
        if request.server_clients < 1:
            raise DataError(f"A server with a client has at least one client; it claims {request.server_clients}.")
        with np.errstate(over="ignore", invalid="ignore"):
            return self._refusal(self._model_of(request), self._dual_at(request), request.server_clients)

    def _refusal(self, model: Floats, dual: Floats, server_clients: int) -> Refusal | None:
        if self.update_norm is not None:
            rounding = EPS * len(model) ** 0.5 * float(np.linalg.norm(model) + np.linalg.norm(dual))
            if not rounding <= ROUNDING_SHARE * self.update_norm:
                return Refusal.TOO_LONG
        promise = self.promise(server_clients)
        if promise is None:
            clipped_or_free = self.update_norm is not None or self.terms is None
            return None if clipped_or_free else Refusal.UNBOUNDED
        modulus = np.float64(self.strong_convexity(server_clients))
        centre = self.algorithm.client_rule.centre(model, dual, modulus, np.float64(self.records))
        return promise.refusal(float(np.linalg.norm(centre)))

    def promise(self, server_clients: int) -> Promise | None:
        """The accuracy promised for this |C_s|; None if none can be promised, or none is needed."""
        if self.terms is None or not self.objective.convex:
            return None
        sizes = Magnitudes.of(self.objective, self.terms.bounds, self.records, len(self.dual))
        if sizes is None:
            return None
        tolerance, most_steps = self.tolerance(server_clients), self.terms.most_steps
        return self.algorithm.client_rule.promise(sizes, self.objective.lam, server_clients, tolerance, most_steps)

    def tolerance(self, server_clients: int) -> float:
        """How far a released solution may be from the exact one; the noise is calibrated with the same value."""
        if self.terms is None:
            return tolerance_for(self.objective, np.float64, np)
        reach = float(self.algorithm.client_rule.reach(self.strong_convexity(server_clients)))
        return self.terms.tolerance_for(self.objective, reach, self.records)

    def settle(self, accepted: Accepted | None) -> None:
        """Update the dual, once, with the model of the accepted round; an answer that was not accepted is dropped."""
        if self._unsettled(accepted):
            assert accepted is not None
            self.dual, self.settled_round = self._settled(accepted), accepted.round

    def restart(self, round: int) -> None:
        """Begin anew with a dual of zero, once; what was sent before is not settled any more."""
        if round > self.restarted:
            self.dual, self.restarted = np.zeros_like(self.dual), round
            self.settled_round = self.sent[0] if self.sent is not None else 0

    def _dual_at(self, request: RoundRequest) -> Floats:
        """The dual with which this request is answered."""
        return np.zeros_like(self.dual) if request.restarted > self.restarted else self._settled(request.accepted)

    def _unsettled(self, accepted: Accepted | None) -> bool:
        return accepted is not None and self.sent is not None and accepted.round == self.sent[0] > self.settled_round

    def _settled(self, accepted: Accepted | None) -> Floats:
        """The dual after settling `accepted`."""
        if not self._unsettled(accepted):
            return self.dual
        assert accepted is not None and self.sent is not None
        return np.asarray(self.algorithm.client_rule.settle(self.dual, self._received(accepted.model), self.sent[1]))

    def state(self) -> dict[str, Any]:
        """The state to save for a restart."""
        return {
            "dual": self.dual,
            "sent": self.sent,
            "settled_round": self.settled_round,
            "restarted": self.restarted,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state()`."""
        self.dual, self.sent, self.settled_round = state["dual"], state["sent"], state["settled_round"]
        self.restarted = state.get("restarted", 0)

    def strong_convexity(self, server_clients: int) -> float:
        """m of the primal problem; the noise is calibrated with the same value."""
        return float(self.algorithm.client_rule.modulus(self.objective.lam, server_clients, self.records))

    def _model_of(self, request: RoundRequest) -> Floats:
        return np.zeros_like(self.dual) if request.model is None else self._received(request.model)

    def _received(self, values: Floats) -> Floats:
        model = np.asarray(values, dtype=float)
        if model.shape != self.dual.shape:
            raise DataError(f"The server's model has {model.size} coefficients, this client's data {self.dual.size}.")
        return model

    def _problem_at(self, server_clients: int) -> _OneClient:
        if self._problem is None or self._problem.server_clients != server_clients:
            data = (self._features, self._targets, np.array([float(self.records)]))
            modulus = np.array([self.strong_convexity(server_clients)])
            promise = self.promise(server_clients)
            self._problem = _OneClient(self.objective, data, modulus, server_clients, self.update_norm, promise)
        return self._problem


@dataclass(frozen=True)
class _OneClient:
    """A `Problem` of one client."""

    objective: Objective
    data: tuple[Floats, Floats, Floats]
    moduli: Floats
    server_clients: int
    update_norm: float | None
    promise: Promise | None

    @property
    def modulus(self) -> Floats:
        return self.moduli[:, None]

    @property
    def records(self) -> float:
        return float(self.data[2][0])

    @cached_property
    def prepared(self) -> Prepared:
        """Factored on first use, because even that may fail."""
        return self.objective.prepare(*self.data, self.moduli)

    def solve(self, centre: Floats) -> tuple[Floats, Floats]:
        """The solution as promised. An update that will be clipped may be inexact; any other must be certified."""
        if isinstance(self.promise, PrimalPromise):
            model = self.promise.solve(centre[0], self._loss_gradient, lambda: self._fast(centre))
            return model[None], np.array([self.promise.tolerance])
        if self.update_norm is not None:
            found = finite_or_none(lambda: self._fast(centre))
            return (centre if found is None else found[None]), np.zeros(1)
        model, error = self.prepared.solve(centre)
        if self.objective.convex and not error[0] <= tolerance_for(self.objective, np.float64, np):
            raise SolverError(f"The primal problem was solved only to {error[0]:.1e}; nothing was released.")
        return model, error

    def _fast(self, centre: Floats) -> Floats:
        found: Floats = self.prepared.solve(centre)[0][0]
        return found

    def _loss_gradient(self, w: Floats) -> Floats:
        gradient: Floats = self.objective.gradient(w[None], *self.data)[0]
        return gradient

    def gradient(self, w: Floats) -> Floats:
        penalty = eq.ridge_penalty(self.objective.lam, self.server_clients)
        return np.asarray(eq.regularised_gradient(self.objective.gradient(w, *self.data), penalty, w))

    def projected(self, w: Floats) -> Floats:
        return np.asarray(eq.project(w, self.objective.domain))


class Server:
    """Aggregates its clients' answers, publishes to its neighbours, and combines what they publish.

    Only exact mixing needs `clusters` and `shares` (c_s of every cluster): there all servers take part from the first
    round. An algorithm with one model for all clients has a single cluster, `EVERYONE`. `half` is the half of the
    servers that this one belongs to, where weights between clusters are learned from sums alone.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        dimension: int,
        neighbours: Iterable[str] = (),
        *,
        clusters: Iterable[str] = (),
        shares: Mapping[str, float] | None = None,
        half: int = 0,
    ) -> None:
        self.algorithm, self.dimension, self.half = algorithm, dimension, half
        self.neighbours = tuple(sorted(neighbours))
        self.shares = dict(shares or {})
        self.round = 0
        self._states: dict[str, dict[str, Floats]] = {}
        self._rested: frozenset[str] = frozenset()
        self._pending: _Pending | None = None
        if algorithm.server_rule.starts_everywhere:
            self._states = {q: algorithm.server_rule.start(np.zeros(dimension)) for q in clusters}

    def model(self, cluster: str) -> Floats | None:
        """w_{q,s}, or None while this server has no model of the cluster."""
        state = self._states.get(self.key(cluster))
        return None if state is None else state["model"]

    def aggregate(
        self,
        round: int,
        answers: Iterable[tuple[str, Answer]],
        contributors: Iterable[tuple[str, bool]] = (),
        aggregates: Mapping[str, Floats] | None = None,
        halves: Iterable[int] = (),
    ) -> Publication:
        """Aggregate (cluster, answer) pairs; returns the message to the neighbours.

        `contributors` has the cluster of each of the server's clients, and whether the client can still contribute.
        `aggregates` are those of clusters (by `key`) that were made and noised elsewhere; answers to these clusters
        are in them already. A clean answer is refused here, so that it can never be published without noise. `halves`
        has the half (0 or 1) of the client of each answer, for a rule that compares them; without it, all are in the
        server's own half.
        """
        made, elsewhere = dict(aggregates or {}), frozenset(aggregates or {})
        by_cluster: dict[str, list[Floats]] = {}
        answered = list(answers)
        for cluster, answer in answered:
            if answer.clean:
                raise PrivacyError("A contribution without noise would have been published; nothing was.")
            contributed = self.algorithm.client_rule.contribution(answer.model, answer.dual)
            by_cluster.setdefault(self.key(cluster), []).append(contributed)
        half_of = _by_cluster([self.key(cluster) for cluster, _ in answered], halves)
        for cluster, stacked in by_cluster.items():
            made.setdefault(
                cluster, np.asarray(eq.server_aggregation(np.stack(stacked), lambda values: values.mean(axis=0)))
            )
        rows = sorted(self._states.keys() | made.keys())
        state = self._stacked(rows)
        aggregate = state["model"] + 0.0
        for row, cluster in enumerate(rows):
            if cluster in made:
                aggregate[row] = made[cluster]
        shares = np.array([[self.shares.get(cluster, 0.0)] for cluster in rows])
        learning = np.array([[float(q in self._states and q not in self._rested)] for q in rows]).reshape(-1, 1)
        compared = self._halves(rows, aggregate, by_cluster, half_of, elsewhere)
        before = _Own(shares, learning, compared)
        state, published = self.algorithm.server_rule.publish(state, aggregate, before)  # type: ignore[arg-type]
        public = self._states.keys() if self.algorithm.server_rule.publishes_last_round else set(rows)
        models, memory = (
            {cluster: part[row] for row, cluster in enumerate(rows) if cluster in public and part.shape[1]}
            for part in (published[:, : self.dimension], published[:, self.dimension :])
        )
        here = list(contributors)
        counted = Counter(self.key(cluster) for cluster, _ in here)
        publication = Publication(round, len(self.neighbours), models, *self._contributors(here, made), counted, memory)
        self._pending = _Pending(rows, state, published, publication, frozenset(made))
        return publication

    def _halves(
        self,
        rows: list[str],
        aggregate: Floats,
        contributed: Mapping[str, list[Floats]],
        half_of: Mapping[str, list[int]],
        elsewhere: Collection[str],
    ) -> Halves | None:
        """What two halves of the contributors came to; of what was made elsewhere, all of it is this server's half."""
        if not self.algorithm.server_rule.compares_halves:
            return None
        sums, weights = np.zeros((2, *aggregate.shape)), np.zeros((len(rows), 2))
        for row, cluster in enumerate(rows):
            if cluster in elsewhere:
                sums[self.half, row], weights[row, self.half] = aggregate[row], 1.0
                continue
            given = contributed.get(cluster, [])
            for one, half in zip(given, half_of.get(cluster) or [self.half] * len(given), strict=True):
                sums[half, row] += one / len(given)
                weights[row, half] += 1.0 / len(given)
        return Halves(sums[0], sums[1], weights)

    def combine(self, round: int, publications: Mapping[str, Publication], position: int | None = None) -> None:
        """Compute the new models from this round's aggregate and the publications received from neighbours.

        `position` is what a schedule of τ counts, where the numbers of rounds skip.
        """
        pending = self._pending
        if pending is None:
            raise DataError("combine was called before aggregate.")
        received = {name: publications[name] for name in self.neighbours if name in publications}
        rows = sorted(
            {*pending.rows, *(cluster for publication in received.values() for cluster in publication.models)}
        )
        neighbourhood = _Neighbours(self.algorithm, rows, pending, received, len(self.neighbours), self.dimension)
        state = {name: neighbourhood.widened(values) for name, values in pending.state.items()}
        state = self.algorithm.server_rule.combine(
            state, neighbourhood.own, neighbourhood, tau_at(self.algorithm.tau, round if position is None else position)
        )
        self._states = {
            cluster: {name: values[row] for name, values in state.items()}
            for row, cluster in enumerate(rows)
            if neighbourhood.known[row]
        }
        self._rested = frozenset(cluster for row, cluster in enumerate(rows) if neighbourhood.resting[row])
        self.round, self._pending = round, None

    def _contributors(
        self, contributors: Iterable[tuple[str, bool]], answered: Iterable[str]
    ) -> tuple[frozenset[str], frozenset[str]]:
        """The clusters that are able, and those that are exhausted."""
        clients = [(self.key(cluster), left) for cluster, left in contributors]
        having, able = {cluster for cluster, _ in clients}, {*answered, *(cluster for cluster, left in clients if left)}
        found = {q for q in having | self._rested if exhausted(q in having, q in able, q in self._rested)}
        return frozenset(able), frozenset(found)

    def state(self) -> dict[str, Any]:
        """The state to save for a restart."""
        return {"round": self.round, "clusters": self._states, "rested": self._rested}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state()`."""
        self.round, self._states, self._pending = state["round"], dict(state["clusters"]), None
        self._rested = frozenset(state.get("rested", ()))

    def key(self, cluster: str) -> str:
        """Under which name the model of a cluster is kept."""
        return cluster if self.algorithm.server_rule.personalised else EVERYONE

    def _stacked(self, rows: list[str]) -> dict[str, Floats]:
        blank = self.algorithm.server_rule.start(np.zeros(self.dimension))
        held = [self._states.get(cluster, blank) for cluster in rows]
        return {name: np.array([state[name] for state in held]).reshape(len(rows), len(blank[name])) for name in blank}


EVERYONE = "everyone"


def _by_cluster(clusters: list[str], values: Iterable[int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for cluster, value in zip(clusters, values, strict=False):
        found.setdefault(cluster, []).append(value)
    return found


class _OneServer:
    """Rows of one server's clusters by server and cluster, and back."""

    def at_servers(self, values: Floats) -> Floats:
        return values[None]

    def at_pairs(self, values: Floats) -> Floats:
        return np.asarray(values[0])


@dataclass(frozen=True)
class _Own(_OneServer):
    """What a server knows of its neighbourhood before it publishes."""

    share: Floats
    learning: Floats
    halves: Halves | None


@dataclass(frozen=True)
class _Pending:
    """State kept between `aggregate` and `combine`."""

    rows: list[str]
    state: dict[str, Floats]
    published: Floats
    publication: Publication
    contributed: frozenset[str]


@dataclass
class _Neighbours(_OneServer):
    """A `Neighbourhood` of one server: its own rows, and what its neighbours published."""

    algorithm: Algorithm
    rows: list[str]
    pending: _Pending
    received: Mapping[str, Publication]
    neighbours: int
    dimension: int
    own: Floats = field(init=False)
    known: Bools = field(init=False)
    degree: Floats = field(init=False)
    adopting: Floats = field(init=False)
    share: Floats = field(init=False)
    resting: Bools = field(init=False)
    learning: Floats = field(init=False)
    halves: Halves | None = None

    def __post_init__(self) -> None:
        self._place = {cluster: row for row, cluster in enumerate(self.rows)}
        self.own = self.widened(self.pending.published)
        self._has = self._mask(self.pending.publication.models)
        self._theirs = [self._table(pub.models, self.dimension) for pub in self.received.values()]
        length = self.own.shape[1] - self.dimension
        self._their_memory = [self._table(pub.memory, length) for pub in self.received.values()] if length else []
        self._they_have = [self._mask(publication.models) for publication in self.received.values()]
        having = sum((mask.astype(float) for mask in self._they_have), np.zeros(len(self.rows)))
        contributed = np.array([cluster in self.pending.contributed for cluster in self.rows], dtype=bool)
        one_step = self.algorithm.server_rule.publishes_last_round
        adopting = one_step & ~self._has & ~contributed & (having > 0)
        self.known = (self._has | contributed | adopting) if one_step else (self._has | (having > 0))
        self.degree = (having * self._has)[:, None]
        self.adopting = adopting.astype(float)[:, None]
        self.share = np.zeros((len(self.rows), 1))
        self._having = having
        near = [self.pending.publication, *self.received.values()]
        able, spent = ([self._mask(getattr(pub, flag)) for pub in near] for flag in ("able", "exhausted"))
        self.resting = rests(np.logical_or.reduce(able), np.logical_or.reduce(spent))
        self.learning = (self.known & ~self.resting).astype(float)[:, None]

    def widened(self, values: Floats) -> Floats:
        """Rows of this server's own clusters, placed among all clusters of the neighbourhood."""
        wide = np.zeros((len(self.rows), values.shape[-1]))
        wide[[self._place[cluster] for cluster in self.pending.rows]] = values
        return wide

    def average(self, values: Floats) -> Floats:
        """Of models or, if the rows have their length, of what is published with them."""
        own_weight, weights = self._weights()
        received = self._theirs if values.shape[1] == self.dimension else self._their_memory
        total = own_weight * self._has + sum(
            (weight * mask for weight, mask in zip(weights, self._they_have, strict=True)), np.zeros(len(self.rows))
        )
        summed = (own_weight * self._has)[:, None] * values
        for weight, theirs in zip(weights, received, strict=True):
            summed = summed + weight[:, None] * theirs
        return np.asarray(summed / np.where(total > 0, total, 1.0)[:, None])

    def _weights(self) -> tuple[Floats, list[Floats]]:
        """The weights of this server and of each neighbour, for every cluster."""
        mixing, everywhere = self.algorithm.mixing, np.ones(len(self.rows))
        if mixing == "clients":
            return self._clients(self.pending.publication), [self._clients(theirs) for theirs in self.received.values()]
        weights = [
            neighbour_weight(mixing, np.array(self.neighbours), np.array(publication.degree))
            for publication in self.received.values()
        ]
        own_weight = 1.0 - sum(weights) - self._silent_weight()
        return own_weight * everywhere, [weight * everywhere for weight in weights]

    def _clients(self, publication: Publication) -> Floats:
        counts = [publication.clients.get(cluster, 0) for cluster in self.rows]
        return by_clients(np.array(counts, dtype=np.int64)).astype(float)

    def _silent_weight(self) -> float:
        """The total weight of neighbours that sent nothing; their degree is unknown, so it is the uniform weight."""
        silent = self.neighbours - len(self.received)
        return silent * float(neighbour_weight("uniform", np.array(self.neighbours), np.array(0))) if silent else 0.0

    def neighbour_sum(self, values: Floats) -> Floats:
        return self._has[:, None] * self._sum_of_theirs()

    def neighbour_mean(self, values: Floats) -> Floats:
        return self._sum_of_theirs() / np.maximum(self._having, 1.0)[:, None]

    def other_clusters(self, values: Floats) -> tuple[Floats, Floats]:
        here = self.known.astype(float)
        others = here.sum() - here
        total = (here[:, None] * values).sum(axis=0)
        return self._mean_to_learn_from(total - here[:, None] * values, others)

    def other_clusters_nearby(self, values: Floats) -> tuple[Floats, Floats]:
        tables = [self._has[:, None] * values, *self._theirs]
        masks = [self._has, *self._they_have]
        count = sum((mask.sum() - mask.astype(float) for mask in masks), np.zeros(len(self.rows)))
        summed = sum((table.sum(axis=0) - table for table in tables), np.zeros_like(values))
        return self._mean_to_learn_from(summed, count)

    def _mean_to_learn_from(self, summed: Floats, count: Floats) -> tuple[Floats, Floats]:
        learning = (count > 0) & ~self.resting
        return summed / np.maximum(count, 1.0)[:, None], learning.astype(float)[:, None]

    def _sum_of_theirs(self) -> Floats:
        return np.asarray(sum(self._theirs, np.zeros((len(self.rows), self.dimension))))

    def _table(self, models: Mapping[str, Floats], length: int) -> Floats:
        table = np.zeros((len(self.rows), length))
        for cluster, model in models.items():
            table[self._place[cluster]] = model
        return table

    def _mask(self, clusters: Collection[str]) -> Bools:
        return np.array([cluster in clusters for cluster in self.rows], dtype=bool)
