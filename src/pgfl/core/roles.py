"""One client and one server as state machines without I/O: what runs on a device and at a site.

They call the same algorithm steps as the simulator, on arrays with one row a client or a cluster. A client closes its
dual lazily: the model of the last round in which *its* answer was accepted comes with the next request, so a client
that sat out, or whose answer was lost, still has the right dual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pgfl.core import equations as eq
from pgfl.core.algorithms import Algorithm
from pgfl.core.assured import EPS, Magnitudes, PrimalPromise, Promise, Refusal, Terms, finite_or_none
from pgfl.core.schedules import tau_at
from pgfl.core.topology import neighbour_weight
from pgfl.errors import DataError, SolverError
from pgfl.objectives import Objective
from pgfl.objectives.solvers import Prepared, tolerance_for

Vector = NDArray[np.float64]
ROUNDING_SHARE = 0.5  # of the radius that updates are clipped to


@dataclass(frozen=True)
class Accepted:
    """A round whose answer the server took, and the model that came out of it."""

    round: int
    model: Vector


@dataclass(frozen=True)
class RoundRequest:
    """What a server asks of a client; `model` is None while the server knows nothing of the client's cluster."""

    round: int
    server_clients: int  # |C_s|
    model: Vector | None
    accepted: Accepted | None = None


@dataclass(frozen=True)
class Answer:
    """What leaves a client: the released model and the dual, a function of what was exchanged before."""

    round: int
    model: Vector
    dual: Vector


@dataclass(frozen=True)
class Publication:
    """What a server tells its neighbours after a round's aggregation."""

    round: int
    degree: int
    models: Mapping[str, Vector]


class Client:
    """Settle the dual, solve, release, answer.

    With `terms` a request is judged by what is public before data is touched (`refusal`), and an answer is as accurate
    as they promise. Without them nothing is promised, and an unsolved problem is a `SolverError`.

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
        self.dual: Vector = np.zeros(self._features.shape[-1])
        self.sent: tuple[int, Vector] | None = None
        self.settled_round = 0
        self._problem: _OneClient | None = None

    @property
    def records(self) -> int:
        """D_k, which is public."""
        return int(self._features.shape[1])

    def answer(self, request: RoundRequest, release: Callable[[Vector], Vector]) -> Answer:
        """The answer to a request; `release` perturbs the solution and accounts for it before it may be seen."""
        if refusal := self.refusal(request):
            raise DataError(f"Nothing was released: {refusal}.")
        self.settle(request.accepted)
        problem = self._problem_at(request.server_clients)
        model = self._model_of(request)
        step = self.algorithm.client_step(problem, model[None], self.dual[None], lambda m: release(m[0])[None])
        self.sent = (request.round, step.released[0])
        return Answer(request.round, step.released[0], self.dual)

    def refusal(self, request: RoundRequest) -> Refusal | None:
        """Why this request is not answered: decided by public quantities alone, so it tells nothing about the data."""
        if request.server_clients < 1:
            raise DataError(f"A server with a client has at least one client; it claims {request.server_clients}.")
        with np.errstate(over="ignore", invalid="ignore"):
            return self._refusal(self._model_of(request), self._settled(request.accepted), request.server_clients)

    def _refusal(self, model: Vector, dual: Vector, server_clients: int) -> Refusal | None:
        if self.update_norm is not None:
            rounding = EPS * len(model) ** 0.5 * float(np.linalg.norm(model) + np.linalg.norm(dual))
            if not rounding <= ROUNDING_SHARE * self.update_norm:
                return Refusal.TOO_LONG
        promise = self.promise(server_clients)
        if promise is None:
            clipped_or_free = self.update_norm is not None or self.terms is None
            return None if clipped_or_free else Refusal.UNBOUNDED
        modulus = np.float64(self.strong_convexity(server_clients))
        centre = self.algorithm.client_rule.centre(model, dual, modulus)
        return promise.refusal(float(np.linalg.norm(centre)))

    def promise(self, server_clients: int) -> Promise | None:
        """What is promised of a solution with this |C_s|; None where nothing can be, or nothing needs to be."""
        if self.terms is None or not self.objective.convex:
            return None
        sizes = Magnitudes.of(self.objective, self.terms.bounds, self.records, len(self.dual))
        if sizes is None:
            return None
        tolerance, most_steps = self.tolerance(server_clients), self.terms.most_steps
        return self.algorithm.client_rule.promise(sizes, self.objective.lam, server_clients, tolerance, most_steps)

    def tolerance(self, server_clients: int) -> float:
        """How far a released solution may be from the exact one; a calibration counts with the same."""
        if self.terms is None:
            return tolerance_for(self.objective, np.float64, np)
        reach = float(self.algorithm.reach(self.strong_convexity(server_clients)))
        return self.terms.tolerance_for(self.objective, reach, self.records)

    def settle(self, accepted: Accepted | None) -> None:
        """ClientDualUpdate with the model of the round that was accepted, once; an answer that was not is forgotten."""
        if self._unsettled(accepted):
            assert accepted is not None
            self.dual, self.settled_round = self._settled(accepted), accepted.round

    def _unsettled(self, accepted: Accepted | None) -> bool:
        return accepted is not None and self.sent is not None and accepted.round == self.sent[0] > self.settled_round

    def _settled(self, accepted: Accepted | None) -> Vector:
        """The dual as it will be once `accepted` is settled."""
        if not self._unsettled(accepted):
            return self.dual
        assert accepted is not None and self.sent is not None
        return np.asarray(self.algorithm.settle(self.dual, self._received(accepted.model), self.sent[1]))

    def state(self) -> dict[str, Any]:
        """What must survive a restart."""
        return {"dual": self.dual, "sent": self.sent, "settled_round": self.settled_round}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state()`."""
        self.dual, self.sent, self.settled_round = state["dual"], state["sent"], state["settled_round"]

    def strong_convexity(self, server_clients: int) -> float:
        """m of the problem that would be solved; a calibration uses the same."""
        return float(eq.strong_convexity(self.algorithm.rho, self.objective.lam, server_clients))

    def _model_of(self, request: RoundRequest) -> Vector:
        return np.zeros_like(self.dual) if request.model is None else self._received(request.model)

    def _received(self, values: Vector) -> Vector:
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
    data: tuple[Vector, Vector, Vector]
    moduli: Vector
    server_clients: int
    update_norm: float | None
    promise: Promise | None

    @property
    def modulus(self) -> Vector:
        return self.moduli[:, None]

    @cached_property
    def prepared(self) -> Prepared:
        """Factored when first needed, since a fast solver may fail even at that."""
        return self.objective.prepare(*self.data, self.moduli)

    def solve(self, centre: Vector) -> tuple[Vector, Vector]:
        """The solution as promised. An update to be clipped may be any, so it never fails; else it is certified."""
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

    def _fast(self, centre: Vector) -> Vector:
        found: Vector = self.prepared.solve(centre)[0][0]
        return found

    def _loss_gradient(self, w: Vector) -> Vector:
        gradient: Vector = self.objective.gradient(w[None], *self.data)[0]
        return gradient

    def gradient(self, w: Vector) -> Vector:
        gradient = self.objective.gradient(w, *self.data)
        return np.asarray(gradient + eq.ridge_penalty(self.objective.lam, self.server_clients) * w)


class Server:
    """Aggregate the clients' answers, tell the neighbours, combine what they tell.

    `clusters` and `shares` (c_s of every cluster) are needed by exact mixing only, where every server takes part from
    the first round. FedAvg treats all clients as one cluster, `EVERYONE`.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        dimension: int,
        neighbours: Iterable[str] = (),
        *,
        clusters: Iterable[str] = (),
        shares: Mapping[str, float] | None = None,
    ) -> None:
        self.algorithm, self.dimension = algorithm, dimension
        self.neighbours = tuple(sorted(neighbours))
        self.shares = dict(shares or {})
        self.round = 0
        self._states: dict[str, dict[str, Vector]] = {}
        self._pending: _Pending | None = None
        if algorithm.starts_everywhere:
            self._states = {q: algorithm.start(np.zeros(dimension)) for q in clusters}

    def model(self, cluster: str) -> Vector | None:
        """w_{q,s}, or None while nothing of the cluster has reached this server."""
        state = self._states.get(self._key(cluster))
        return None if state is None else state["model"]

    @property
    def known_clusters(self) -> tuple[str, ...]:
        """The clusters that this server has a model for."""
        return tuple(sorted(self._states))

    def aggregate(self, round: int, answers: Iterable[tuple[str, Answer]]) -> Publication:
        """(Private)ServerAggregation over (cluster, answer) pairs; returns what the neighbours are to be told."""
        by_cluster: dict[str, list[Vector]] = {}
        for cluster, answer in answers:
            contributed = self.algorithm.contribution(answer.model, answer.dual)
            by_cluster.setdefault(self._key(cluster), []).append(contributed)
        rows = sorted(self._states.keys() | by_cluster.keys())
        state = self._stacked(rows)
        aggregate = state["model"] + 0.0
        for row, cluster in enumerate(rows):
            if cluster in by_cluster:
                stacked = np.stack(by_cluster[cluster])
                aggregate[row] = eq.server_aggregation(stacked, lambda values: values.mean(axis=0))
        shares = np.array([[self.shares.get(cluster, 0.0)] for cluster in rows])
        state, published = self.algorithm.publish(state, aggregate, _Shares(shares))  # type: ignore[arg-type]
        audible = self._states.keys() if self.algorithm.publishes_last_round else set(rows)
        self._pending = _Pending(rows, state, published, frozenset(audible), frozenset(by_cluster))
        told = {cluster: published[row] for row, cluster in enumerate(rows) if cluster in audible}
        return Publication(round, len(self.neighbours), told)

    def combine(self, round: int, publications: Mapping[str, Publication]) -> None:
        """The new models, from this round's aggregate and what the neighbours (those present) published."""
        pending = self._pending
        if pending is None:
            raise DataError("combine was called before aggregate.")
        heard = {name: publications[name] for name in self.neighbours if name in publications}
        rows = sorted({*pending.rows, *(cluster for publication in heard.values() for cluster in publication.models)})
        neighbourhood = _Neighbours(self.algorithm, rows, pending, heard, len(self.neighbours), self.dimension)
        state = {name: neighbourhood.widened(values) for name, values in pending.state.items()}
        state = self.algorithm.combine(state, neighbourhood.own, neighbourhood, tau_at(self.algorithm.tau, round))
        self._states = {
            cluster: {name: values[row] for name, values in state.items()}
            for row, cluster in enumerate(rows)
            if neighbourhood.known[row]
        }
        self.round, self._pending = round, None

    def state(self) -> dict[str, Any]:
        """What must survive a restart."""
        return {"round": self.round, "clusters": self._states}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state()`."""
        self.round, self._states, self._pending = state["round"], dict(state["clusters"]), None

    def _key(self, cluster: str) -> str:
        return cluster if self.algorithm.personalised else EVERYONE

    def _stacked(self, rows: list[str]) -> dict[str, Vector]:
        blank = self.algorithm.start(np.zeros(self.dimension))
        held = [self._states.get(cluster, blank) for cluster in rows]
        return {name: np.array([state[name] for state in held]).reshape(len(rows), self.dimension) for name in blank}


EVERYONE = "everyone"


@dataclass(frozen=True)
class _Shares:
    share: Vector


@dataclass(frozen=True)
class _Pending:
    """Between `aggregate` and `combine`."""

    rows: list[str]
    state: dict[str, Vector]
    published: Vector
    audible: frozenset[str]
    contributed: frozenset[str]


@dataclass
class _Neighbours:
    """A `Neighbourhood` of one server: its own rows, and what its neighbours published."""

    algorithm: Algorithm
    rows: list[str]
    pending: _Pending
    heard: Mapping[str, Publication]
    neighbours: int
    dimension: int
    own: Vector = field(init=False)
    known: NDArray[np.bool_] = field(init=False)
    degree: Vector = field(init=False)
    adopting: Vector = field(init=False)
    share: Vector = field(init=False)

    def __post_init__(self) -> None:
        self._place = {cluster: row for row, cluster in enumerate(self.rows)}
        self.own = self.widened(self.pending.published)
        self._has = np.array([cluster in self.pending.audible for cluster in self.rows], dtype=bool)
        self._theirs = [self._table(publication.models) for publication in self.heard.values()]
        self._they_have = [self._mask(publication.models) for publication in self.heard.values()]
        having = sum((mask.astype(float) for mask in self._they_have), np.zeros(len(self.rows)))
        contributed = np.array([cluster in self.pending.contributed for cluster in self.rows], dtype=bool)
        one_step = self.algorithm.publishes_last_round
        adopting = one_step & ~self._has & ~contributed & (having > 0)
        self.known = (self._has | contributed | adopting) if one_step else (self._has | (having > 0))
        self.degree = (having * self._has)[:, None]
        self.adopting = adopting.astype(float)[:, None]
        self.share = np.zeros((len(self.rows), 1))
        self._having = having

    def widened(self, values: Vector) -> Vector:
        """Rows of this server's own clusters, spread over the clusters of the whole neighbourhood."""
        wide = np.zeros((len(self.rows), self.dimension))
        wide[[self._place[cluster] for cluster in self.pending.rows]] = values
        return wide

    def average(self, values: Vector) -> Vector:
        weights = [
            neighbour_weight(self.algorithm.mixing, np.array(self.neighbours), np.array(publication.degree))
            for publication in self.heard.values()
        ]
        own_weight = 1.0 - sum(weights) - self._silent_weight()
        total = own_weight * self._has + sum(
            (weight * mask for weight, mask in zip(weights, self._they_have, strict=True)), np.zeros(len(self.rows))
        )
        summed = own_weight * self._has[:, None] * values
        for weight, theirs in zip(weights, self._theirs, strict=True):
            summed = summed + weight * theirs
        return np.asarray(summed / np.where(total > 0, total, 1.0)[:, None])

    def _silent_weight(self) -> float:
        """A neighbour that was not heard keeps its weight out of the average; uniform weights know what it is."""
        silent = self.neighbours - len(self.heard)
        return silent * float(neighbour_weight("uniform", np.array(self.neighbours), np.array(0))) if silent else 0.0

    def neighbour_sum(self, values: Vector) -> Vector:
        return self._has[:, None] * self._sum_of_theirs()

    def neighbour_mean(self, values: Vector) -> Vector:
        return self._sum_of_theirs() / np.maximum(self._having, 1.0)[:, None]

    def other_clusters(self, values: Vector) -> tuple[Vector, Vector]:
        here = self.known.astype(float)
        others = here.sum() - here
        total = (here[:, None] * values).sum(axis=0)
        return _mean_and_any(total - here[:, None] * values, others)

    def other_clusters_nearby(self, values: Vector) -> tuple[Vector, Vector]:
        tables = [self._has[:, None] * values, *self._theirs]
        masks = [self._has, *self._they_have]
        count = sum((mask.sum() - mask.astype(float) for mask in masks), np.zeros(len(self.rows)))
        summed = sum((table.sum(axis=0) - table for table in tables), np.zeros_like(values))
        return _mean_and_any(summed, count)

    def _sum_of_theirs(self) -> Vector:
        return np.asarray(sum(self._theirs, np.zeros((len(self.rows), self.dimension))))

    def _table(self, models: Mapping[str, Vector]) -> Vector:
        table = np.zeros((len(self.rows), self.dimension))
        for cluster, model in models.items():
            table[self._place[cluster]] = model
        return table

    def _mask(self, models: Mapping[str, Vector]) -> NDArray[np.bool_]:
        return np.array([cluster in models for cluster in self.rows], dtype=bool)


def _mean_and_any(summed: Vector, count: Vector) -> tuple[Vector, Vector]:
    return summed / np.maximum(count, 1.0)[:, None], (count > 0).astype(float)[:, None]
