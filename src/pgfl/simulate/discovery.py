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
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from pgfl.algorithms.algorithms import Algorithm, is_automatic
from pgfl.algorithms.clustering import Mixture, cluster_by_halves, directions, find_clusters
from pgfl.arrays import AnyArray, AnyFloats, Bools, Floats, Ints
from pgfl.errors import ConfigError, DataError
from pgfl.federation.federation import Federation, numbered
from pgfl.objectives import Objective
from pgfl.privacy.discovery import DIRECTIONS, DOUBT, SKETCHES, DiscoveryBudget, sketch_clip
from pgfl.privacy.mechanism import Account
from pgfl.privacy.request import Privacy
from pgfl.results.clusters import clusters_table
from pgfl.results.result import Columns, Result
from pgfl.simulate.communicator import Communicator
from pgfl.simulate.late_choice import LateChoice, keeping_pairs
from pgfl.simulate.newcomers import place
from pgfl.simulate.observers import Observer
from pgfl.simulate.options import TrainingOptions
from pgfl.simulate.problems import Objectives
from pgfl.simulate.sketches import Sketches, noise_of
from pgfl.streams import Purpose, stream

if TYPE_CHECKING:
    from pgfl.simulate.simulator import Simulator

ALL = "all"
Training = Callable[[Federation, Privacy | None, Sequence[Observer]], Result]
"""Trains one model for all clients of a federation, with this privacy."""


@dataclass(frozen=True, eq=False)
class Discovery:
    """The federation with the clusters that were found, and the table that says so, with what finding them cost.

    Where membership is in doubt, clients make a late `choice` while training runs; what it costs is `reserved`.
    """

    federation: Federation
    table: Columns
    due: Floats | None = None  # ρ that finding has cost and that no account of the training holds yet
    choice: LateChoice | None = None
    model: AnyFloats | None = None  # the common model, if training starts there

    @property
    def reserved(self) -> Floats:
        """ρ of every client that is not left for training."""
        return np.asarray(self.table["rho"] + (self.choice.phi if self.choice else 0.0))

    def charge(self, simulator: Simulator) -> None:
        """Put what finding has cost into the account of a training that begins or goes on."""
        if simulator.plan is None or self.due is None:
            return
        (run,), accounts = simulator.layout.runs, simulator.plan.state()
        accounts["rho"][run.clients] += self.due[run.order]
        simulator.plan.restore(accounts)
        self._start_at_common_model(simulator)

    def _start_at_common_model(self, simulator: Simulator) -> None:
        """Let every server start at the common model, which has been released and is nearer than nothing.

        One-step servers remember more than models; they start as always.
        """
        rule, state, engine = simulator.algorithm.server_rule, simulator.state, simulator.engine
        if self.model is None or rule.publishes_last_round:
            return
        models = np.empty_like(np.asarray(state.server_models))
        models[:] = self.model
        state.servers = rule.start(engine.xp.asarray(models))
        engine.previous_servers = state.server_models
        engine.network.known = np.ones_like(engine.network.known)

    def after_choice(self, begun: Result) -> Discovery:
        """The clusters after a late choice among the models of a training that has begun."""
        choice, names = self.choice, self.federation.cluster_ids
        models = np.array([begun.cluster(name) for name in names], dtype=np.float64)
        if choice is None or not np.isfinite(models).all():
            return replace(self, due=None, choice=None)
        federation = self.federation
        found = choice.made(models, federation.counts)
        labels = keeping_pairs(found.labels, federation.client_cluster, federation.client_server, found.posterior)
        table = clusters_table(federation.client_ids, self.table["given"].tolist(), labels, found.posterior, names)
        due = np.full(federation.size, choice.phi)
        table |= {"releases": self.table["releases"] + 1, "rho": self.table["rho"] + due}
        return Discovery(federation.in_clusters(labels, names), table, due)

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
    constrained = privacy.constrained(objective)
    bound = constrained.gradient_bound(privacy.bounds)
    assert bound is not None  # or the common model could not have been private
    bounded, noise = privacy.bounded(everyone, options.dtype), partial(noise_of, everyone, options)
    sketches = Sketches(bounded, constrained, account, noise)
    known = (2.0 * bound / counts) ** 2 / (2.0 * np.maximum(account.rho, np.finfo(float).tiny))
    weights = 1.0 / (known + bound**2 / (length * counts))
    vectors = pulls.mean - np.average(pulls.mean, axis=0, weights=weights)
    width = min(DIRECTIONS, length)
    along, clip = directions(vectors, weights, width), sketch_clip(bound, width, length)
    for _ in range(SKETCHES):
        sketches.sketch(model, along, clip, budget.sketch)
        points, variance = sketches.points, sketches.noise
        centred = (points - np.average(points, axis=0, weights=1.0 / variance[:, 0])) / np.sqrt(variance)
        along = np.linalg.svd(centred.T @ vectors, full_matrices=False)[2][:width]
    found = find_clusters(sketches.points, sketches.noise, counts, stream(options.seed, 0, Purpose.DISCOVERY))
    found = found.by_size()
    doubtful = len(found.centres) > 1 and found.misplaced > DOUBT
    choice = LateChoice(sketches, found, bound, budget.choice) if doubtful else None
    return replace(_in_found_clusters(federation, found, account, choice), model=model)


class Charge(Observer):
    """Charges what finding clusters has cost when the training begins."""

    def __init__(self, discovery: Discovery) -> None:
        self._discovery = discovery

    def on_start(self, simulator: Simulator) -> None:
        """Charge it before anything is released."""
        self._discovery.charge(simulator)


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


def _one_cluster(clients: int) -> Mixture:
    return Mixture(np.zeros((1, 1)), np.ones(1), np.zeros((1, 1)), np.ones((clients, 1)), 0.0)


def found_before(
    federation: Federation, start: Result, objective: Objective, options: TrainingOptions, new: Sequence[str]
) -> Discovery:
    """The clusters that an earlier result found; clients that were not there choose one among its models.

    With privacy only clients of whom no record was in the training before (`new`) have a budget to choose with.
    """
    table, names = start.clusters, tuple(start.cluster_ids)
    if table is None:
        raise ConfigError("The earlier run found no clusters; leave `discover` out to go on with its own.")
    rows = {name: place for place, name in enumerate(table["client"].tolist())}
    came = np.array([name not in rows for name in federation.client_ids])
    if options.privacy is not None and (others := came & ~np.isin(federation.client_ids, list(new))).any():
        raise DataError(
            f"Client {federation.client_ids[int(others.argmax())]} was not there when clusters were found, and a "
            "choice costs a part of its budget; list it in new_clients if none of its records was ever in this "
            "training, or leave it out."
        )
    order = [rows.get(name, 0) for name in federation.client_ids]
    kept = {name: values[order] for name, values in table.items()}
    number = {name: q for q, name in enumerate(names)}
    labels = np.array([number[name] for name in kept["cluster"].tolist()], dtype=np.int64)
    due = None
    if came.any():
        models = np.array([start.cluster(name) for name in names], dtype=np.float64)
        places = place(federation, np.flatnonzero(came), models, objective, options, int(start.rounds[-1]))
        labels[came], due = places.labels, places.account.rho
        given = [federation.cluster_ids[q] for q in federation.client_cluster[came].tolist()]
        fresh = clusters_table([*np.array(federation.client_ids)[came]], given, places.labels, places.posterior, names)
        fresh |= {"releases": places.account.releases[came], "rho": due[came]} if "rho" in kept else {}
        kept = {name: _with_rows(values, came, fresh[name]) for name, values in kept.items()}
    return Discovery(federation.in_clusters(labels, names), kept, due)


def _with_rows(values: AnyArray, chosen: Bools, rows: AnyArray) -> AnyArray:
    """A column with other values at some rows; texts may be longer than those that were there."""
    joined = values.astype(np.result_type(values, rows))
    joined[chosen] = rows
    return joined


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


def _in_found_clusters(
    federation: Federation, found: Mixture, account: Account | None = None, choice: LateChoice | None = None
) -> Discovery:
    """The federation in the clusters of a mixture, the largest first."""
    found = found.by_size()
    count = len(found.centres)
    names = tuple(numbered("cluster", q, count) for q in range(count)) if count > 1 else (ALL,)
    given = [federation.cluster_ids[q] for q in federation.client_cluster.tolist()]
    table = clusters_table(federation.client_ids, given, found.labels, found.posterior, names)
    if account is not None:
        table |= {"releases": account.releases.copy(), "rho": account.rho.copy()}
    due = None if account is None else account.rho.copy()
    return Discovery(federation.in_clusters(found.labels, names), table, due, choice)
