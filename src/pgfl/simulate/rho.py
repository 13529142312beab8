"""`rho = "auto"`: the ρ with which the rounds at hand are expected to bring models nearest to their optimum.

Take clients whose loss has curvature h in some direction, and α = ρ/(h + ρ). With a dual (the primal update) the mean
of all models comes nearer to the optimum by the factor α per round, and what the clients of a server disagree on
shrinks by 1 − α: a small ρ is best for the first, a large one for the second, and √(h_min·h_max) for both. What servers
disagree on, along an eigenvector of the mixing weights with eigenvalue λ, has the factor λα + (1 − λ)(1 − α) if servers
average plainly; with λ < 0 that is above 1 where ρ is too small. Without a dual (a gradient step of length 1/ρ) the
factor is |1 − h/ρ|. Noise of variance σ² per round, which falls with ρ, adds up to Σ_j factor^{2(n − j)}·σ_j².

Without privacy the curvatures are those of a sample of the clients' data. With privacy they follow from public facts
only: rows drawn uniformly from the ball of radius `x_norm` have the covariance x_norm²/(d + 2)·I, and the noise follows
from the privacy request, the trust and the numbers of records. Real rows can all point in about one direction (an
intercept, columns that are never negative), so the largest curvature that bounds allow is among the curvatures: no
choice overshoots, whatever the records are. Records are never looked at. docs/choosing-rho.md has measurements.

The step of FedAvg (`step_size = "auto"`) follows by the same rule: its local steps together are as long as the one
gradient step, 1/ρ, of a PGFL client without a dual. Longer ones would let each client run to an optimum of its own.

Here `count` = "records" becomes a number too: `full_records` is that of the client with most records, and a client with
D_k of them weighs D_k/`full_records` in all curvatures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pgfl import equations as eq
from pgfl.algorithms.algorithms import (
    CLIENTS,
    PGFL,
    Algorithm,
    counts_records,
    is_automatic,
    steps_automatically,
)
from pgfl.arrays import Floats, Ints
from pgfl.errors import ConfigError
from pgfl.federation.federation import Federation
from pgfl.federation.graphs import Graph, Mixing
from pgfl.objectives import Bounds, Objective
from pgfl.objectives.interface import tolerance_for
from pgfl.privacy.request import Privacy
from pgfl.simulate.communicator import Communicator
from pgfl.simulate.options import TrainingOptions
from pgfl.simulate.problems import Objectives, model_length, objective_of

MOST_CLIENTS = 512  # in the sample
MOST_WORK = 2**31  # multiplications for the sample's matrices XᵀX
MOST_CLUSTERS = 16
MOST_FEATURES = 512  # above, the least curvature is taken to be the regulariser's
LARGEST_RATIO = 1e4  # of curvatures above MOST_FEATURES
POWER_STEPS = 30
MIXING_STEPS = 100
GRID = 10.0 ** np.arange(-4.0, 4.0, 0.0625)  # of the steepest curvature
SPREAD = (1.0, 0.5, 0.25, 0.125)  # how much of the uniform rows' curvature real rows have in some directions
DIGITS = 3
FINE = 2.0**31  # sums are rounded to this part of the largest term, so that their order does not matter


@dataclass(frozen=True)
class Factors:
    """What a round multiplies an error with; `mixing` holds the eigenvalues λ of differences, 0 within a server."""

    has_dual: bool
    mixing: Floats

    @classmethod
    def of(cls, algorithm: Algorithm, graph: Graph) -> Factors:
        """Return those of an algorithm whose ρ is a number."""
        plain = algorithm.server_rule.plain_average
        return cls(
            algorithm.client_rule.has_dual,
            np.array([0.0, _least_eigenvalue(graph, algorithm.mixing)] if plain else [0.0]),
        )

    def of_mean(self, curvature: Floats, rho: float) -> Floats:
        """Return the factor of the mean of all models."""
        return np.asarray(rho / (curvature + rho) if self.has_dual else 1.0 - curvature / rho)

    def of_differences(self, curvature: float, rho: float) -> Floats:
        """Return the factors of what clients and servers disagree on."""
        share = rho / (curvature + rho)
        if self.has_dual:
            return np.asarray(self.mixing * share + (1.0 - self.mixing) * (1.0 - share))
        return np.array([1.0 - curvature / rho])


@dataclass(frozen=True)
class Landscape:
    """What ρ depends on in one cluster: curvatures of its mean loss, a client's steepest one, and noise."""

    curvatures: Floats
    steepest: float
    start: float = 1.0  # the squared distance from the start to the optimum
    noise: Callable[[float], Floats] | None = None  # of ρ: the variance that each round adds
    alone: bool = False  # a cluster of one client, which disagrees with nobody

    def log_error(self, rho: float, rounds: int, factors: Factors) -> float:
        """Return the log of the expected squared distance to the optimum after so many rounds; ∞ if errors grow."""
        with np.errstate(divide="ignore"):
            towards = np.log(np.abs(factors.of_mean(self.curvatures, rho)))
            apart = np.log(np.abs(factors.of_differences(self.steepest, rho)))
        apart = towards if self.alone and factors.has_dual else apart
        if max(towards.max(), apart.max()) >= 0.0:
            return np.inf
        modes = 2.0 * rounds * np.append(towards, apart) + np.log(self.start)
        if self.noise is not None:
            modes = np.append(modes, _log_mean([_accumulated(self.noise(rho), 2.0 * f) for f in towards]))
        return _log_mean(modes)


def with_count(algorithm: Algorithm, federation: Federation, communicator: Communicator) -> Algorithm:
    """Return the algorithm with a number in the place of `count` = "records": most records of any client.

    Numbers of records are public. Processes call this together.
    """
    if not counts_records(algorithm):
        return algorithm
    most = int(communicator.maximum([federation.counts.max(initial=1)])[0])
    return replace(algorithm, count=CLIENTS, full_records=most)  # type: ignore[type-var]


def with_rho(
    algorithm: Algorithm,
    objectives: Objectives,
    federation: Federation,
    options: TrainingOptions,
    communicator: Communicator,
    known: float | None = None,
) -> Algorithm:
    """Return the algorithm with a number for ρ: `known` from the run that this one continues, or a chosen one.

    It is the same on any number of processes, which call this together.
    """
    if not is_automatic(algorithm):
        return algorithm
    if known is not None:
        return with_number(algorithm, known)
    found = (
        _of_data(with_number(algorithm, 1.0), objectives, federation, communicator)
        if options.privacy is None
        else _public(algorithm, objectives, federation, options, options.privacy, communicator)
    )
    factors = Factors.of(with_number(algorithm, 1.0), federation.graph)
    candidates = GRID * max(landscape.steepest for landscape in found)
    rounds = _rounds(options)
    errors = [_log_mean([landscape.log_error(rho, rounds, factors) for landscape in found]) for rho in candidates]
    return with_number(algorithm, float(f"{candidates[int(np.argmin(errors))]:.{DIGITS}g}"))


def with_step(
    algorithm: Algorithm,
    objectives: Objectives,
    federation: Federation,
    options: TrainingOptions,
    communicator: Communicator,
    known: float | None = None,
) -> Algorithm:
    """Return FedAvg with a number for its step: `known` from the run that this one continues, or a chosen one.

    It is the same on any number of processes, which call this together.
    """
    if not steps_automatically(algorithm):
        return algorithm
    if known is not None:
        return _with_step_number(algorithm, known)
    stated = vars(algorithm)
    one_step = PGFL(rho="auto", client="gradient", mixing=algorithm.mixing, full_records=stated["full_records"])
    chosen = with_rho(one_step, objectives, federation, options, communicator)
    return _with_step_number(algorithm, float(f"{1.0 / (chosen.rho * stated['local_steps']):.{DIGITS}g}"))


def _with_step_number(algorithm: Algorithm, step: float) -> Algorithm:
    return replace(algorithm, step_size=step)  # type: ignore[type-var]


def with_number(algorithm: Algorithm, rho: float) -> Algorithm:
    """Return the same algorithm with this ρ."""
    return replace(algorithm, rho=rho)  # type: ignore[type-var]


def _least_eigenvalue(graph: Graph, mixing: Mixing) -> float:
    """Return the least eigenvalue of the servers' mixing weights A, by power iteration on I − A.

    Weights by clients differ from cluster to cluster; the bound of all averages serves for them.
    """
    if mixing == "clients" and len(graph.edges):
        return -1.0
    weights = graph.weights(mixing)
    vector = np.random.default_rng(0).standard_normal(graph.size)
    size = 0.0
    for _ in range(MIXING_STEPS):
        length = float(np.linalg.norm(vector))
        if length == 0.0:
            return 1.0
        vector = vector / length - weights @ (vector / length)
        size = float(np.linalg.norm(vector))
    return 1.0 - min(size, 2.0)


def _rounds(options: TrainingOptions) -> int:
    """Return how many rounds there will be: with privacy, as many as a client that always takes part can pay for."""
    most = options.privacy.max_releases if options.privacy else None
    return options.rounds if most is None or options.participants != "all" else min(options.rounds, most)


# --- from the data ----------------------------------------------------------------------------------------------------


def _of_data(
    algorithm: Algorithm, objectives: Objectives, federation: Federation, communicator: Communicator
) -> list[Landscape]:
    full = algorithm.client_rule.full_records
    sampled, facts = sampled_clients(federation, communicator), Facts.of(federation, communicator, full)
    return [
        _of_cluster(
            objective_of(objectives, federation.cluster_ids[q]), federation, sampled[own], full, facts, communicator
        )
        for q in facts.clusters
        for own in [federation.client_cluster[sampled] == q]
    ]


def _of_cluster(
    objective: Objective, federation: Federation, clients: Ints, full: int, facts: Facts, communicator: Communicator
) -> Landscape:
    """Return the curvatures of one cluster, from those of its clients that are in the sample."""
    bend, ridge = largest_bend(objective), facts.ridge(objective)
    total = max(int(communicator.sum([len(clients)])[0]), 1)
    alone = max(facts.members) == 1
    rows = [_weighted(federation.rows(int(k))[0].astype(float), full) for k in clients]
    steepest = bend * exact_mean(np.array([_largest(x) for x in rows]), total, communicator) + ridge
    features = federation.dimension
    if features > MOST_FEATURES:
        least = max(ridge, steepest / LARGEST_RATIO)
        return Landscape(np.geomspace(least, max(steepest, least), 5).astype(float), steepest, alone=alone)
    most = float(communicator.maximum([max((np.mean(x * x, axis=0).max() for x in rows), default=0.0)])[0]) or 1.0
    summed = np.zeros((features, features), dtype=np.int64)
    for x in rows:
        summed += np.rint(x.T @ x * (FINE / (most * len(x)))).astype(np.int64)
    mean = communicator.sum(summed) * (most / (FINE * total))
    values: Floats = np.asarray(np.linalg.eigvalsh(mean), dtype=float)
    seen = values[values > features * most / FINE]  # nothing moves a model in directions that no row has
    return Landscape((bend * seen if len(seen) else np.ones(1)) + ridge, steepest or 1.0, alone=alone)


def _weighted(rows: Floats, full: int) -> Floats:
    """Return a client's rows, shorter where it counts less: its curvatures then have its weight."""
    return rows if full == 1 else rows * (len(rows) / max(len(rows), full)) ** 0.5


def sampled_clients(federation: Federation, communicator: Communicator) -> Ints:
    """Clients of this process that are in the sample: every so-many-th of the whole federation, server by server."""
    sizes = communicator.sum(federation.server_sizes)
    first = np.cumsum(sizes) - sizes
    order = np.argsort(federation.client_server, kind="stable")
    own = federation.client_server[order]
    number = first[own] + np.arange(len(own)) - np.searchsorted(own, own)
    clients, rows = communicator.sum([federation.size, len(federation.targets)]).tolist()
    work = rows * min(federation.dimension, MOST_FEATURES) ** 2
    stride = max(-(-clients // MOST_CLIENTS), -(-work // MOST_WORK))
    return np.sort(order[number % stride == 0])


def _largest(rows: Floats) -> float:
    """Return the largest eigenvalue of XᵀX/D, by power iteration."""
    vector = np.random.default_rng(0).standard_normal((rows.shape[1],))
    size = 0.0
    for _ in range(POWER_STEPS):
        length = float(np.linalg.norm(vector))
        if length == 0.0:
            break
        vector = rows.T @ (rows @ (vector / length)) / len(rows)
        size = float(np.linalg.norm(vector))
    return size


def exact_mean(values: Floats, total: int, communicator: Communicator) -> float:
    """Return the mean over all processes, to the same bit in any order."""
    largest = float(communicator.maximum([values.max(initial=0.0)])[0])
    if largest == 0.0:
        return 0.0
    summed = communicator.sum([np.rint(values * (FINE / largest)).astype(np.int64).sum()])[0]
    return float(summed) * largest / (FINE * total)


# --- from public facts ------------------------------------------------------------------------------------------------


def _public(
    algorithm: Algorithm,
    objectives: Objectives,
    federation: Federation,
    options: TrainingOptions,
    privacy: Privacy,
    communicator: Communicator,
) -> list[Landscape]:
    if privacy.x_norm is None:
        raise ConfigError(
            'algorithm.rho = "auto" follows from privacy.x_norm under privacy; state it, or give rho a number.'
        )
    rule = with_number(algorithm, 1.0).client_rule
    facts, rounds = Facts.of(federation, communicator, rule.full_records), _rounds(options)
    length, features = model_length(objectives, federation), federation.dimension
    spent = privacy.budget(options.rounds).phi(np.arange(1, rounds + 1))
    variance = privacy.x_norm**2 / (features + 2)
    found = []
    for q in facts.clusters:
        objective = privacy.constrained(objective_of(objectives, federation.cluster_ids[q]))
        bend, ridge = largest_bend(objective), facts.ridge(objective)
        members, weight = int(facts.members[q]), facts.weight(q)
        taking_part = members if options.participants == "all" else min(members, options.participants * facts.servers)
        counts = np.array([max(1, facts.counted(q, privacy.trusted.aggregates))])
        share = _share_of_noise(privacy, members / max(facts.servers, 1)) / taking_part

        def noise(rho: float, objective: Objective = objective, counts: Ints = counts, share: float = share) -> Floats:
            stated = with_number(algorithm, rho)
            modulus = stated.client_rule.modulus(objective.lam, facts.server_clients, counts.astype(float))
            tolerance = tolerance_for(objective, options.dtype, np)
            delta = privacy.sensitivity(objective, stated, counts, modulus, tolerance)
            return share * length * delta**2 / (2.0 * spent)

        steepest = bend * weight * privacy.x_norm**2 + ridge  # all rows in one direction: no bound allows for more
        start = (privacy.y_bound or 1.0) ** 2 / variance if objective.task == "regression" else 1.0 / variance
        curvatures = np.append(bend * weight * variance * np.array(SPREAD) + ridge, steepest)
        found.append(Landscape(curvatures, steepest, min(start, (objective.domain or np.inf) ** 2), noise))
    return found


def _share_of_noise(privacy: Privacy, clients: float) -> float:
    """Return the variance of a pair's mean beside that of local noise, for so many clients in a pair."""
    trust, most = privacy.trusted, max(1, round(clients))
    return trust.excess(most) / most if trust.aggregates and trust.takes_part(most) else 1.0


@dataclass(frozen=True)
class Facts:
    """Public facts about a federation, of all processes together; whole numbers, so that their sums are exact."""

    members: Ints  # clients of every cluster
    rows: Ints  # records of every cluster, of each client at most `full_records`
    least: Ints  # the least max(D, R) of every cluster
    inverse: Ints  # Σ 1/max(D, R)², in units of 1/FINE
    servers: int  # that have clients
    full: int  # R = `full_records`

    @classmethod
    def of(cls, federation: Federation, communicator: Communicator, full: int = 1) -> Facts:
        """Count clients and records, of each client at most `full` if that is more than 1."""
        clusters, cluster = len(federation.cluster_ids), federation.client_cluster
        rows, inverse = np.zeros(clusters, dtype=np.int64), np.zeros(clusters, dtype=np.int64)
        least = np.full(clusters, np.iinfo(np.int64).max)
        counted = np.maximum(federation.counts, full)
        np.add.at(rows, cluster, np.minimum(federation.counts, full) if full > 1 else federation.counts)
        np.add.at(inverse, cluster, np.rint(FINE / counted.astype(float) ** 2).astype(np.int64))
        np.minimum.at(least, cluster, counted)
        sizes = communicator.sum(federation.server_sizes)
        members = communicator.sum(np.bincount(cluster, minlength=clusters))
        smallest = -np.asarray(communicator.maximum(-least))
        servers = int(np.count_nonzero(sizes))
        return cls(members, communicator.sum(rows), smallest, communicator.sum(inverse), servers, full)

    def weight(self, q: int) -> float:
        """Return how much a client of a cluster weighs on average: 1 where clients count alike."""
        return 1.0 if self.full == 1 else int(self.rows[q]) / (int(self.members[q]) * self.full)

    def counted(self, q: int, aggregates: bool) -> int:
        """Return the number of records that noise is calibrated for, as if all clients had equally many.

        Where sums are noised, the client that needs most noise decides; elsewhere variances add up.
        """
        if aggregates or not self.inverse[q]:
            return int(self.least[q])
        return int((int(self.members[q]) * FINE / int(self.inverse[q])) ** 0.5)

    @property
    def clusters(self) -> list[int]:
        """Clusters that are looked at: all, or some of many."""
        known = np.flatnonzero(self.members)
        return [int(q) for q in known[:: -(-len(known) // MOST_CLUSTERS)]]

    @property
    def server_clients(self) -> float:
        """|C_s| of a server, on average."""
        return int(self.members.sum()) / max(self.servers, 1)

    def ridge(self, objective: Objective) -> float:
        """Return the curvature of the regulariser."""
        return float(eq.ridge_penalty(objective.lam, self.server_clients))


def largest_bend(objective: Objective, key: str = "rho") -> float:
    """Return the largest curvature of the loss per squared length of a row; `key` asks for it."""
    found = objective.smoothness(Bounds(x_norm=1.0))
    if found is None or not (np.isfinite(found) and found > 0):
        raise ConfigError(
            f'algorithm.{key} = "auto" needs the smoothness of the {objective.kind} objective; define `smoothness`, or '
            f"give {key} a number."
        )
    return found


def _accumulated(variances: Floats, log_factor: float) -> float:
    """log Σ_j factor^{n − j}·σ_j²."""
    left = np.arange(len(variances) - 1, -1, -1)
    with np.errstate(invalid="ignore"):
        kept = np.where(left > 0, left * log_factor, 0.0)
    return float(np.logaddexp.reduce(kept + np.log(variances)))


def _log_mean(logarithms: Floats | list[float]) -> float:
    return float(np.logaddexp.reduce(np.asarray(logarithms)) - np.log(len(logarithms)))
