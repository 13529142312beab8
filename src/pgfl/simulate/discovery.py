"""Cluster discovery: find which clients should share a model before training begins.

A model for all clients is trained first. At that model, clients of different clusters pull into different directions:
their mean gradients, which are what they would release next, are clustered (`pgfl.algorithms.clustering`).

With privacy everything that leaves a client carries noise of its own, whatever the trust, and is charged: the steps of
the common model, then sketches. Directions come from the steps; each sketch improves them for the next one, and all
sketches together decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pgfl.algorithms.algorithms import Algorithm, is_automatic
from pgfl.algorithms.clustering import Mixture, cluster_by_halves, directions, find_clusters
from pgfl.arrays import AnyFloats, Floats, Ints
from pgfl.errors import ConfigError, DataError
from pgfl.federation.clipping import clip_rows
from pgfl.federation.federation import Federation, numbered
from pgfl.objectives import BatchedObjective, Objective
from pgfl.privacy.budget import sigma_for
from pgfl.privacy.discovery import DIRECTIONS, SKETCHES, DiscoveryBudget, sketch_clip, sketch_sensitivity
from pgfl.privacy.mechanism import Account
from pgfl.privacy.request import Privacy
from pgfl.results.clusters import clusters_table
from pgfl.results.result import Columns, Result
from pgfl.simulate.communicator import Communicator
from pgfl.simulate.observers import Observer
from pgfl.simulate.options import TrainingOptions
from pgfl.simulate.problems import Objectives
from pgfl.streams import Purpose, stream

if TYPE_CHECKING:
    from pgfl.privacy.noise import NoiseSource
    from pgfl.simulate.simulator import Simulator

ALL = "all"
Training = Callable[[Federation, Privacy | None, Sequence[Observer]], Result]
"""Trains one model for all clients of a federation, with this privacy."""


@dataclass(frozen=True, eq=False)
class Discovery:
    """The federation with the clusters that were found, and the table that says so, with what finding them cost."""

    federation: Federation
    table: Columns

    def charge(self, simulator: Simulator) -> None:
        """Put what finding has cost into the account of the training that follows."""
        if simulator.plan is None:
            return
        (run,), accounts = simulator.layout.runs, simulator.plan.state()
        accounts["rho"][run.clients] = self.table["rho"][run.order]
        simulator.plan.restore(accounts)

    def counted(self, result: Result) -> Result:
        """Return the result with its clusters, and with the releases of finding among those that were made."""
        result.clusters = self.table
        if result.privacy and result.terms is not None:
            made = self.table["releases"]
            result.privacy = [table | {"releases": table["releases"] + made} for table in result.privacy]
            most = result.terms.most_releases
            result.terms = replace(result.terms, most_releases=None if most is None else most + int(made.max()))
        return result


def check_discovery(
    algorithm: Algorithm, objectives: Objectives, options: TrainingOptions, processes: Communicator
) -> None:
    """Refuse what discovery cannot do, in one sentence each."""
    if processes.launched:
        raise ConfigError("Cluster discovery uses one process; start pgfl without a launcher, or leave `discover` out.")
    if options.runs > 1:
        raise ConfigError("Cluster discovery is for one run, because runs may differ in clusters; set runs = 1.")
    if not isinstance(objectives, Objective):
        raise ConfigError("Cluster discovery needs one objective for all clusters, because they are not known yet.")
    if not is_automatic(algorithm) and not algorithm.server_rule.personalised:  # only those with clusters have a ρ
        raise ConfigError(
            "Cluster discovery is for algorithms with a model per cluster, such as pgfl; this one has one for all."
        )


def discover(federation: Federation, objective: Objective, options: TrainingOptions, training: Training) -> Discovery:
    """Find clusters from the gradients of all clients at their common model, which `training` trains."""
    if not federation.graph.connected:
        raise DataError(
            "Cluster discovery compares clients of all servers, but the server graph is not connected; add edges "
            '(as in graph = "ring"), or leave `discover` out.'
        )
    everyone = federation.in_clusters(np.zeros(federation.size, dtype=np.int64), (ALL,))
    rng = stream(options.seed, 0, Purpose.DISCOVERY)
    if options.privacy is not None:
        return _discover_privately(federation, everyone, objective, options, training)
    model = training(everyone, None, ()).cluster(ALL)
    first, second, records = _halves(everyone, objective, model)
    return _in_found_clusters(federation, cluster_by_halves(first, second, records, rng))


def _discover_privately(
    federation: Federation,
    everyone: Federation,
    objective: Objective,
    options: TrainingOptions,
    training: Training,
) -> Discovery:
    """Find clusters from releases alone: noised steps of the common model, then noised sketches."""
    privacy = options.privacy
    assert privacy is not None
    length, counts = objective.model_length(everyone.dimension), everyone.counts
    budget = DiscoveryBudget.of(privacy, counts, length)
    if budget is None:
        nobody = Account.empty(everyone.size)
        return _in_found_clusters(federation, _one_cluster(everyone.size), nobody)
    pulls = Pulls(counts)
    common = training(everyone, budget.for_model(privacy), (pulls,))
    model, spent = common.cluster(ALL), common.privacy[0]
    if not np.isfinite(model).all():
        raise ConfigError("The common model diverged, so no clusters can be found; raise `algorithm.rho`.")
    account = Account(np.asarray(spent["releases"], dtype=np.int32), np.array(spent["rho"], dtype=np.float64))
    bound = privacy.constrained(objective).gradient_bound(privacy.bounds)
    assert bound is not None  # or the common model could not have been private
    bounded = privacy.bounded(everyone, options.dtype)
    sketches = Sketches(
        bounded,
        privacy.constrained(objective),
        model,
        bound,
        account,
        _noise(everyone, options, min(DIRECTIONS, length)),
    )
    known = (2.0 * bound / counts) ** 2 / (2.0 * np.maximum(account.rho, np.finfo(float).tiny))
    weights = 1.0 / (known + bound**2 / (length * counts))
    vectors = pulls.mean - np.average(pulls.mean, axis=0, weights=weights)
    along = directions(vectors, weights, sketches.width)
    for _ in range(SKETCHES):
        sketches.release(along, budget.sketch)
        points, noise = sketches.points, sketches.noise
        centred = (points - np.average(points, axis=0, weights=1.0 / noise[:, 0])) / np.sqrt(noise)
        along = np.linalg.svd(centred.T @ vectors, full_matrices=False)[2][: sketches.width]
    found = find_clusters(sketches.points, sketches.noise, counts, stream(options.seed, 0, Purpose.DISCOVERY))
    return _in_found_clusters(federation, found, account)


class Pulls(Observer):
    """Where clients pulled the common model: their noised steps, averaged over rounds by what each release cost.

    Steps are released, charged and public; so is everything here.
    """

    def __init__(self, counts: Ints) -> None:
        self._counts, self._sum, self._weight = counts, np.zeros((len(counts), 1)), np.zeros(len(counts))
        self._before: tuple[AnyFloats, Floats] = (np.empty(0), np.empty(0))

    @property
    def mean(self) -> Floats:
        """The mean gradient of every client, up to what all of its server share; 0 if it never took part."""
        return np.asarray(self._sum / np.maximum(self._weight, np.finfo(float).tiny)[:, None])

    def on_start(self, simulator: Simulator) -> None:
        """Refuse other steps than gradients, before anything is released; remember the first models and accounts."""
        if not simulator.algorithm.client_rule.linearised:
            raise ConfigError(
                'Private cluster discovery needs clients that take gradient steps; set `algorithm.client` = "gradient".'
            )
        self._remember(simulator)

    def on_round(self, simulator: Simulator) -> None:
        """Add the step of every client that was charged in this round."""
        run, rule = simulator.layout.runs[0], simulator.algorithm.client_rule
        models, rho = self._before
        self._remember(simulator)
        charged = self._before[1] - rho
        released = np.asarray(simulator.state.released)[run.clients]
        steps = models[simulator.layout.client_pair[run.clients]] - released
        gradients = steps * np.broadcast_to(rule.rho_of(simulator.layout.counts[run.clients]), len(steps))[:, None]
        place, charged = run.position, charged[run.clients]
        self._sum = self._sum + (gradients * charged[:, None])[place]
        self._weight = self._weight + charged[place]

    def _remember(self, simulator: Simulator) -> None:
        assert simulator.plan is not None
        self._before = np.array(simulator.state.server_models), simulator.plan.rho.copy()


class Sketches:
    """The sketches of all clients: each is charged, then computed, then released with noise."""

    def __init__(
        self,
        federation: Federation,
        objective: Objective,
        model: AnyFloats,
        gradient_bound: float,
        account: Account,
        noise: NoiseSource,
    ) -> None:
        self._federation, self._objective, self._model = federation, objective, model
        self._account, self._source = account, noise
        self.width = min(DIRECTIONS, len(model))
        self._clip = sketch_clip(gradient_bound, self.width, len(model))
        self.points: Floats = np.empty((federation.size, 0))
        self.noise: Floats = np.empty((federation.size, 0))

    def release(self, along: Floats, phi: float) -> None:
        """Release one more sketch of every client along some directions, for φ each."""
        federation, everyone = self._federation, np.arange(self._federation.size)
        sigma = sigma_for(self._source.widen(sketch_sensitivity(self._clip, federation.counts)), phi)
        self._source.check(sigma)
        self._account.charge(everyone, phi)
        clean = np.array([self._sketch(client, along) for client in everyone.tolist()])
        number = self.points.shape[1] // self.width + 1
        released = self._source.release(clean, sigma, everyone, number)
        self.points = np.hstack([self.points, released])
        self.noise = np.hstack([self.noise, np.repeat(sigma[:, None] ** 2, self.width, axis=1)])

    def _sketch(self, client: int, along: Floats) -> Floats:
        """The mean of a client's clipped gradients along the directions, before noise."""
        rows = record_gradients(self._objective, self._model, *self._federation.rows(client)) @ along.T
        return np.asarray(clip_rows(rows, self._clip).mean(axis=0))


def record_gradients(objective: Objective, model: AnyFloats, features: AnyFloats, targets: AnyFloats) -> Floats:
    """∇ℓ of every record, (D, d)."""
    w, one = np.asarray(model, dtype=np.float64), np.ones(len(targets))
    rows, labels = features.astype(np.float64), targets.astype(np.float64)
    if isinstance(objective, BatchedObjective):
        many = np.broadcast_to(w, (len(labels), len(w)))
        return np.asarray(objective.gradient(many, rows[:, None, :], labels[:, None], one))
    found = [objective.gradient(w, rows[[i]], labels[[i]], one[i]) for i in range(len(labels))]
    return np.asarray(found, dtype=np.float64)


def _noise(federation: Federation, options: TrainingOptions, width: int) -> NoiseSource:
    """The source of the sketches' noise: float-safe unless the data is generated or seeded noise is asked for."""
    from pgfl.privacy.noise import SecureNoise, SeededNoise

    assert options.privacy is not None
    if options.privacy.noise_for(federation) == "secure":
        return SecureNoise(width)
    seed = options.seed

    def normals(clients: Ints, number: int, width: int) -> Floats:
        return stream(seed, 0, Purpose.DISCOVERY, round=number).standard_normal((len(clients), width))

    return SeededNoise(normals)


def _one_cluster(clients: int) -> Mixture:
    return Mixture(np.zeros((1, 1)), np.ones(1), np.zeros((1, 1)), np.ones((clients, 1)), 0.0)


def found_before(federation: Federation, start: Result) -> Discovery:
    """The clusters that an earlier result found; a client that was not there has none."""
    table = start.clusters
    if table is None:
        raise ConfigError("The earlier run found no clusters; leave `discover` out to go on with its own.")
    cluster = dict(zip(table["client"].tolist(), table["cluster"].tolist(), strict=True))
    if new := [name for name in federation.client_ids if name not in cluster]:
        raise DataError(
            f"Client {new[0]} was not there when clusters were found, so it has none; start a new run, or leave it out."
        )
    number = {name: q for q, name in enumerate(start.cluster_ids)}
    labels = np.array([number[cluster[name]] for name in federation.client_ids], dtype=np.int64)
    rows = {name: place for place, name in enumerate(table["client"].tolist())}
    order = [rows[name] for name in federation.client_ids]
    kept = {name: values[order] for name, values in table.items()}
    return Discovery(federation.in_clusters(labels, tuple(start.cluster_ids)), kept)


def _halves(federation: Federation, objective: Objective, model: AnyFloats) -> tuple[Floats, Floats, tuple[Ints, Ints]]:
    """Mean gradients over every other record of each client, those over the others, and how many records each has."""
    shape = (federation.size, len(model))
    means, records = (np.zeros(shape), np.zeros(shape)), np.zeros((2, federation.size), dtype=np.int64)
    w = np.asarray(model, dtype=federation.features.dtype)
    for client in range(federation.size):
        features, targets = federation.rows(client)
        for half in (0, 1):
            rows, labels = features[half::2], targets[half::2]
            records[half, client] = len(rows)
            if len(rows):
                means[half][client] = objective.gradient(w, rows, labels, np.asarray(len(rows), dtype=w.dtype))
    return *means, (records[0], records[1])


def _in_found_clusters(federation: Federation, found: Mixture, account: Account | None = None) -> Discovery:
    """The federation in the clusters of a mixture, the largest first."""
    held, labels = np.unique(found.labels, return_inverse=True)
    order = np.argsort(-np.bincount(labels), kind="stable")
    labels = np.argsort(order)[labels].astype(np.int64)
    names = tuple(numbered("cluster", q, len(held)) for q in range(len(held))) if len(held) > 1 else (ALL,)
    posterior = found.posterior[:, held[order]]
    posterior = posterior / posterior.sum(axis=1, keepdims=True)
    given = [federation.cluster_ids[q] for q in federation.client_cluster.tolist()]
    table = clusters_table(federation.client_ids, given, labels, posterior, names)
    if account is not None:
        table |= {"releases": account.releases.copy(), "rho": account.rho.copy()}
    return Discovery(federation.in_clusters(labels, names), table)
