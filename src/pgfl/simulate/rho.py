"""`rho = "auto"`: the ρ with which the rounds at hand are expected to bring models nearest to their optimum.

Take clients whose loss has curvature h in some direction, and α = ρ/(h + ρ). With a dual (the primal update) the mean
of all models comes nearer to the optimum by the factor α per round, and what the clients of a server disagree on
shrinks by 1 − α: a small ρ is best for the first, a large one for the second, and √(h_min·h_max) for both. What servers
disagree on, along an eigenvector of the mixing weights with eigenvalue λ, has the factor λα + (1 − λ)(1 − α) if servers
average plainly; with λ < 0 that is above 1 where ρ is too small. Without a dual (a gradient step of length 1/ρ) the
factor is |1 − h/ρ|. Noise of variance σ² per round, which falls with ρ, adds up to Σ_j factor^{2(n − j)}·σ_j².

Without privacy the curvatures are those of a sample of the clients' data. With privacy they follow from public facts
only: rows drawn uniformly from the ball of radius `x_norm` have the covariance x_norm²/(d + 2)·I, and the noise follows
from the privacy request and the number of records. Records are never looked at. docs/choosing-rho.md has measurements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pgfl import equations as eq
from pgfl.algorithms.algorithms import Algorithm, is_automatic
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
GRID = 10.0 ** np.arange(-5.0, 4.0, 0.0625)  # of the steepest curvature
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

    def log_error(self, rho: float, rounds: int, factors: Factors) -> float:
        """Return the log of the expected squared distance to the optimum after so many rounds; ∞ if errors grow."""
        with np.errstate(divide="ignore"):
            towards = np.log(np.abs(factors.of_mean(self.curvatures, rho)))
            apart = np.log(np.abs(factors.of_differences(self.steepest, rho)))
        if max(towards.max(), apart.max()) >= 0.0:
            return np.inf
        modes = 2.0 * rounds * np.append(towards, apart) + np.log(self.start)
        if self.noise is not None:
            modes = np.append(modes, _log_mean([_accumulated(self.noise(rho), 2.0 * f) for f in towards]))
        return _log_mean(modes)


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
        _of_data(objectives, federation, communicator)
        if options.privacy is None
        else _public(algorithm, objectives, federation, options, options.privacy, communicator)
    )
    factors = Factors.of(with_number(algorithm, 1.0), federation.graph)
    candidates = GRID * max(landscape.steepest for landscape in found)
    rounds = _rounds(options)
    errors = [_log_mean([landscape.log_error(rho, rounds, factors) for landscape in found]) for rho in candidates]
    return with_number(algorithm, float(f"{candidates[int(np.argmin(errors))]:.{DIGITS}g}"))


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


def _of_data(objectives: Objectives, federation: Federation, communicator: Communicator) -> list[Landscape]:
    sampled, facts = sampled_clients(federation, communicator), Facts.of(federation, communicator)
    return [
        _of_cluster(objective_of(objectives, federation.cluster_ids[q]), federation, sampled[own], facts, communicator)
        for q in facts.clusters
        for own in [federation.client_cluster[sampled] == q]
    ]


def _of_cluster(
    objective: Objective, federation: Federation, clients: Ints, facts: Facts, communicator: Communicator
) -> Landscape:
    """Return the curvatures of one cluster, from those of its clients that are in the sample."""
    bend, ridge = largest_bend(objective), facts.ridge(objective)
    total = max(int(communicator.sum([len(clients)])[0]), 1)
    rows = [federation.rows(int(k))[0].astype(float) for k in clients]
    steepest = bend * exact_mean(np.array([_largest(x) for x in rows]), total, communicator) + ridge
    features = federation.dimension
    if features > MOST_FEATURES:
        least = max(ridge, steepest / LARGEST_RATIO)
        return Landscape(np.geomspace(least, max(steepest, least), 5).astype(float), steepest)
    most = float(communicator.maximum([max((np.mean(x * x, axis=0).max() for x in rows), default=0.0)])[0]) or 1.0
    summed = np.zeros((features, features), dtype=np.int64)
    for x in rows:
        summed += np.rint(x.T @ x * (FINE / (most * len(x)))).astype(np.int64)
    mean = communicator.sum(summed) * (most / (FINE * total))
    values: Floats = np.asarray(np.linalg.eigvalsh(mean), dtype=float)
    seen = values[values > features * most / FINE]  # nothing moves a model in directions that no row has
    return Landscape((bend * seen if len(seen) else np.ones(1)) + ridge, steepest or 1.0)


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
    facts, rounds = Facts.of(federation, communicator), _rounds(options)
    length, features = model_length(objectives, federation), federation.dimension
    spent = privacy.budget(options.rounds).phi(np.arange(1, rounds + 1))
    variance = privacy.x_norm**2 / (features + 2)
    found = []
    for q in facts.clusters:
        objective = privacy.constrained(objective_of(objectives, federation.cluster_ids[q]))
        bend, ridge = largest_bend(objective), facts.ridge(objective)
        members, records = int(facts.members[q]), max(1, int(facts.rows[q]) // int(facts.members[q]))
        taking_part = members if options.participants == "all" else min(members, options.participants * facts.servers)

        def noise(rho: float, objective: Objective = objective, records: int = records, n: int = taking_part) -> Floats:
            modulus = eq.strong_convexity(rho, objective.lam, facts.server_clients)
            tolerance = tolerance_for(objective, options.dtype, np)
            stated, counts = with_number(algorithm, rho), np.array([records])
            delta = privacy.sensitivity(objective, stated, counts, np.array([modulus]), tolerance)
            return length * delta**2 / (2.0 * spent) / n

        steepest = bend * variance * (1.0 + (features / records) ** 0.5) ** 2 + ridge
        start = (privacy.y_bound or 1.0) ** 2 / variance if objective.task == "regression" else 1.0 / variance
        curvatures = bend * variance * np.array(SPREAD) + ridge
        found.append(Landscape(curvatures, steepest, min(start, (objective.domain or np.inf) ** 2), noise))
    return found


@dataclass(frozen=True)
class Facts:
    """Public facts about a federation, of all processes together; whole numbers, so that their sums are exact."""

    members: Ints  # clients of every cluster
    rows: Ints  # records of every cluster
    servers: int  # that have clients

    @classmethod
    def of(cls, federation: Federation, communicator: Communicator) -> Facts:
        """Count clients and records."""
        clusters, cluster = len(federation.cluster_ids), federation.client_cluster
        rows = np.zeros(clusters, dtype=np.int64)
        np.add.at(rows, cluster, federation.counts)
        sizes = communicator.sum(federation.server_sizes)
        members = communicator.sum(np.bincount(cluster, minlength=clusters))
        return cls(members, communicator.sum(rows), int(np.count_nonzero(sizes)))

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
