"""What an honest client or neighbour can send, known to a site from public quantities alone.

The solution of a client's primal problem lies within (largest gradient)/m of the problem's centre, which follows from
the model that the client was sent and its dual. Noise adds no more than a quantile of its norm. So a release outside of
this ball is a mistake or a lie: it is clipped to the ball, and one that is far beyond is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median_low

import numpy as np

from pgfl import equations as eq
from pgfl.algorithms.algorithms import Algorithm
from pgfl.algorithms.roles import Publication
from pgfl.algorithms.server_rules import COLUMNS, MASSES
from pgfl.arrays import Floats
from pgfl.objectives import Bounds, Objective

NOISE_TAIL = math.log(1e12)  # noise passes its bound once in 10¹² releases
REFUSED_RADII = 10.0  # beyond so many an answer is refused
_ROUNDING = 1e-9
_USUAL_ROUNDS = 10  # that say what is usual
_LEAST_POOL = 3  # clients and neighbours: of two nobody knows who lies
_LEAST_SHARE = 1e-3  # of the median's norm that is usual, where clients are all alike
_NEIGHBOURS_SHARE = 0.3  # of what clients may be away: sites average over their clients


@dataclass(frozen=True)
class Ball:
    """The ball in which an honest release lies."""

    centre: Floats
    radius: float

    def distance(self, model: Floats) -> float:
        """Of a release from the centre, in radii."""
        away = float(np.linalg.norm(model - self.centre))
        return away / self.radius if self.radius > 0 else math.inf * away if away else 0.0

    def clipped(self, model: Floats) -> Floats:
        """The nearest point of the ball."""
        return model if self.distance(model) <= 1.0 else np.asarray(eq.clip_update(model, self.centre, self.radius))


@dataclass(frozen=True)
class ClientBound:
    """The balls of a training's clients, under the operator's statement of their bounds and noise."""

    algorithm: Algorithm
    objectives: Mapping[str, Objective]  # by cluster
    bounds: Bounds
    noise: float  # the largest standard deviation per coordinate
    refuse: float = REFUSED_RADII  # radii beyond which an answer is refused

    def unbounded(self) -> list[str]:
        """The clusters whose honest releases have no bound."""
        return sorted(q for q in self.objectives if self._gradient(q) is None and self.objectives[q].domain is None)

    def ball(self, cluster: str, model: Floats | None, dual: Floats, server_clients: int) -> Ball | None:
        """Where the release of a client lies that was sent this model and has this dual; None if it may be anywhere."""
        objective, rule = self.objectives[cluster], self.algorithm.client_rule
        sent = np.zeros_like(dual) if model is None else model
        noise = self.noise * (math.sqrt(len(dual)) + math.sqrt(2.0 * NOISE_TAIL))
        if rule.has_dual and objective.domain is not None:
            return self._ball(np.zeros_like(dual), objective.domain + noise)
        gradient = self._gradient(cluster)
        if gradient is None:
            return None
        most = np.float64(rule.full_records)  # whose records count in full; a client with fewer moves less
        modulus = np.float64(rule.modulus(objective.lam, server_clients, most))
        if not rule.has_dual:  # the regulariser is part of the gradient, not of the centre
            sent = _projected(sent, objective.domain)
            gradient += float(eq.ridge_penalty(objective.lam, server_clients)) * float(np.linalg.norm(sent))
        return self._ball(rule.centre(sent, dual, modulus, most), float(rule.reach(modulus)) * gradient + noise)

    def _gradient(self, cluster: str) -> float | None:
        bound = self.objectives[cluster].gradient_bound(self.bounds)
        return bound if bound is not None and math.isfinite(bound) else None

    def _ball(self, centre: Floats, radius: float) -> Ball:
        return Ball(centre, radius + _ROUNDING * (1.0 + radius + float(np.linalg.norm(centre))))


@dataclass
class UsualDistance:
    """How far contributions and neighbours' models are from their median, as a bound where nobody stated one.

    The usual distance is the median of these distances, the largest of the last rounds. Neither median is moved far by
    one liar among three or more clients and neighbours. All of it was released: it says nothing new of records.
    """

    most: float = (
        math.inf
    )  # times the usual distance, beyond which an answer is refused and a neighbour's model clipped
    medians: list[float] = field(default_factory=list)  # of the last rounds
    _round: list[float] = field(default_factory=list)  # of the clusters in this round

    def too_far(self, clients: Mapping[str, Floats], neighbours: Sequence[Floats]) -> dict[str, float]:
        """The clients of a cluster that are beyond the bound, and how many times the usual distance they are away."""
        pool = [*clients.values(), *neighbours]
        if len(pool) < _LEAST_POOL or not math.isfinite(self.most):
            return {}
        centre = np.median(pool, axis=0)
        far = [float(np.linalg.norm(each - centre)) for each in pool]
        self._round.append(max(median_low(far), _LEAST_SHARE * float(np.linalg.norm(centre))))
        usual = max([*self.medians, *self._round])
        return {name: away / usual for name, away in zip(clients, far, strict=False) if away > self.most * usual > 0.0}

    def complete_round(self) -> None:
        """Remember this round."""
        self.medians = [*self.medians, *([max(self._round)] if self._round else [])][-_USUAL_ROUNDS:]
        self._round.clear()

    @property
    def radius(self) -> float | None:
        """How far a neighbour's model may be away; None while nothing is known, or nothing is bounded."""
        usual = max([*self.medians, *self._round], default=0.0)
        return _NEIGHBOURS_SHARE * self.most * usual if usual else None


def clipped_publication(own: Publication, theirs: Publication, radius: float) -> tuple[Publication, bool]:
    """A neighbour's models, at most `radius` away from this site's own: self-centred clipping; and whether it did.

    A cluster of which this site has no model yet has no centre, so it is taken as it is.
    """
    models, changed = dict(theirs.models), False
    for cluster, centre in own.models.items():
        if cluster in models:
            ball = Ball(centre, radius)
            changed = changed or ball.distance(models[cluster]) > 1.0
            models[cluster] = ball.clipped(models[cluster])
    return replace(theirs, models=models), changed


def clipped_memory(
    own: Publication, theirs: Publication, length: int, radius: float | None, reach: float
) -> Publication:
    """What a neighbour says that halves of the clients lead to, as near to this site's own as its models must be.

    `reach` is ρ/h̄, by which such an estimate is further away than the contribution that it follows from. Masses lie
    between 0 and 1. What is shorter than it must be is left out, and counts as nothing.
    """
    whole = 4 * length + COLUMNS
    kept = {cluster: sent[:whole].copy() for cluster, sent in theirs.memory.items() if len(sent) >= whole}
    for cluster, numbers in kept.items():
        masses, mine = np.clip(numbers[4 * length : 4 * length + MASSES], 0.0, 1.0), own.memory.get(cluster)
        numbers[4 * length : 4 * length + MASSES] = masses
        if mine is None or radius is None:
            continue
        for place, (mass, held) in enumerate(zip(masses[:4].tolist(), mine[4 * length :].tolist(), strict=False)):
            part = slice(place * length, (place + 1) * length)
            if mass == 0.0:
                numbers[part] = 0.0
            elif held > 0.0:
                numbers[part] = mass * Ball(mine[part] / held, reach * radius).clipped(numbers[part] / mass)
        took, held = float(masses[:2].sum()), float(mine[4 * length : 4 * length + 2].sum())
        if took == 0.0:
            numbers[-1] = 0.0
        elif held > 0.0:  # a component of such an estimate
            centre = mine[-1] / held
            numbers[-1] = took * np.clip(numbers[-1] / took, centre - reach * radius, centre + reach * radius)
    return replace(theirs, memory=kept)


def claiming_at_most(most: Mapping[str, int], theirs: Publication) -> Publication:
    """A neighbour's publication with no more clients than the agreed training has; else it could outweigh everybody."""
    return replace(theirs, clients={q: min(clients, most.get(q, clients)) for q, clients in theirs.clients.items()})


def _projected(model: Floats, domain: float | None) -> Floats:
    return model if domain is None else Ball(np.zeros_like(model), domain).clipped(model)
