"""Cluster discovery: find which clients should share a model before training begins.

A model for all clients is trained first. At that model, clients of different clusters pull into different directions:
their mean gradients, which are what they would release next, are clustered (`pgfl.algorithms.clustering`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pgfl.algorithms.algorithms import Algorithm, is_automatic
from pgfl.algorithms.clustering import Mixture, cluster_by_halves
from pgfl.arrays import AnyFloats, Floats, Ints
from pgfl.errors import ConfigError, DataError
from pgfl.federation.federation import Federation, numbered
from pgfl.objectives import Objective
from pgfl.results.clusters import clusters_table
from pgfl.results.result import Columns, Result
from pgfl.simulate.communicator import Communicator
from pgfl.simulate.options import TrainingOptions
from pgfl.simulate.problems import Objectives
from pgfl.streams import Purpose, stream

ALL = "all"
CommonModel = Callable[[Federation], AnyFloats]
"""Trains one model for all clients of a federation."""


@dataclass(frozen=True, eq=False)
class Discovery:
    """The federation with the clusters that were found, and the table that says so."""

    federation: Federation
    table: Columns


def check_discovery(
    algorithm: Algorithm, objectives: Objectives, options: TrainingOptions, processes: Communicator
) -> None:
    """Refuse what discovery cannot do, in one sentence each."""
    if processes.launched:
        raise ConfigError("Cluster discovery uses one process; start pgfl without a launcher, or leave `discover` out.")
    if options.runs > 1:
        raise ConfigError("Cluster discovery is for one run, because runs may differ in clusters; set runs = 1.")
    if options.privacy is not None:
        raise ConfigError(
            "Cluster discovery under differential privacy is not available yet: first models without noise would leave "
            "the clients; leave `discover` out, or name a cluster column."
        )
    if not isinstance(objectives, Objective):
        raise ConfigError("Cluster discovery needs one objective for all clusters, because they are not known yet.")
    if not is_automatic(algorithm) and not algorithm.server_rule.personalised:  # only those with clusters have a ρ
        raise ConfigError(
            "Cluster discovery is for algorithms with a model per cluster, such as pgfl; this one has one for all."
        )


def discover(federation: Federation, objective: Objective, seed: int, common_model: CommonModel) -> Discovery:
    """Find clusters from the gradients of all clients at their common model."""
    if not federation.graph.connected:
        raise DataError(
            "Cluster discovery compares clients of all servers, but the server graph is not connected; add edges "
            '(as in graph = "ring"), or leave `discover` out.'
        )
    everyone = federation.in_clusters(np.zeros(federation.size, dtype=np.int64), (ALL,))
    model = common_model(everyone)
    first, second, records = _halves(everyone, objective, model)
    found = cluster_by_halves(first, second, records, stream(seed, 0, Purpose.DISCOVERY))
    return _in_found_clusters(federation, found)


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


def _in_found_clusters(federation: Federation, found: Mixture) -> Discovery:
    """The federation in the clusters of a mixture, the largest first."""
    held, labels = np.unique(found.labels, return_inverse=True)
    order = np.argsort(-np.bincount(labels), kind="stable")
    labels = np.argsort(order)[labels].astype(np.int64)
    names = tuple(numbered("cluster", q, len(held)) for q in range(len(held))) if len(held) > 1 else (ALL,)
    posterior = found.posterior[:, held[order]]
    posterior = posterior / posterior.sum(axis=1, keepdims=True)
    given = [federation.cluster_ids[q] for q in federation.client_cluster.tolist()]
    table = clusters_table(federation.client_ids, given, labels, posterior, names)
    return Discovery(federation.in_clusters(labels, names), table)
