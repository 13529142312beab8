"""A synthetic twin: a made-up federation of the planned shape, on which settings are tried."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from pgfl.array_types import AnyFloats, Floats, Ints
from pgfl.core.federation import Federation, TestSet, numbered
from pgfl.core.topology import Graph
from pgfl.data.placement import lay_out, offsets_of
from pgfl.data.synthetic import synthetic_regression
from pgfl.planning.facts import Facts
from pgfl.planning.row_shapes import RowShape, quantity_moments

TEST_SAMPLES = 400
REFERENCE = 2000  # rows by which a made-up table's labels are scaled
LABEL_OFFSET = 0.5  # of a target's mean from the middle of its bounds, in its deviations, as a root mean square
MOST_OF_ONE_LABEL = 0.7
TWINS_KEPT = 20
PLAIN: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "trust": "local"}


def twin(facts: Facts, seed: int) -> Federation:
    """A federation with labels of related linear models, as predictable as expected; the same whatever the privacy.

    Of a table it has the columns' kinds, and every client's place and number of records. Elsewhere rows have their full
    norm, in random directions.
    """
    plain = replace(facts, **PLAIN)
    return _directions(plain, seed) if facts.rows is None else _table(plain, facts.rows, seed)


@lru_cache(maxsize=TWINS_KEPT)
def _directions(facts: Facts, seed: int) -> Federation:
    dimension, share = facts.columns, facts.expected
    regression = facts.task == "regression"
    noise = math.sqrt(dimension * (1.0 - share) / share) if regression else 0.0
    made = synthetic_regression(
        servers=facts.servers,
        clients_per_server=facts.clients_per_server,
        clusters=facts.clusters,
        dimension=dimension,
        samples=facts.records,
        gamma=facts.gamma,
        observation_noise=noise,
        x_norm=facts.x_norm,
        test_samples=0 if regression else TEST_SAMPLES,
        graph=facts.graph,
        average_degree=facts.average_degree,
        seed=seed,
    )
    if regression:
        scale = facts.label_scale / math.sqrt(dimension / share)
        assert made.truth is not None
        return made.replace(targets=scale * made.targets, truth=scale * made.truth, generated=True)
    rng = np.random.default_rng(seed)
    doubt = math.sqrt(dimension) * _doubt(share)
    tests = {
        name: TestSet(test.features, _labels(test.targets, doubt, rng)) for name, test in (made.tests or {}).items()
    }
    return made.replace(targets=_labels(made.targets, doubt, rng), tests=tests, truth=None, generated=True)


@lru_cache(maxsize=TWINS_KEPT)
def _table(facts: Facts, rows: RowShape, seed: int) -> Federation:
    """A table with its own middles, spreads and directions, and rows dealt to clients where they are."""
    rng = np.random.default_rng([seed, 1])
    server, cluster, counts, graph = _placed(facts, seed, rng)
    clusters = int(cluster.max()) + 1
    table = rows.table(rng)
    reference = table.rows(REFERENCE, rng)
    base = table.coefficients(rng)
    truth = base * (1.0 + rng.uniform(-facts.gamma, facts.gamma, (clusters, rows.columns)))
    fit = reference @ truth.T
    middle, scale = fit.mean(axis=0), fit.std(axis=0)
    label_scale, mean = facts.label_scale, facts.label_scale * LABEL_OFFSET * rng.standard_normal()
    if table.target_tail > 0.0:
        mean, label_scale = quantity_moments(table.target_tail)
    offset = mean / label_scale if rows.intercept else 0.0
    positive = _share_of_ones(facts.expected, rng) if facts.task == "classification" else 0.5
    middle = middle if rows.intercept else np.zeros(clusters)

    along = np.array([(reference - reference.mean(axis=0)).T @ one for one in ((fit - fit.mean(axis=0)) / scale).T])
    along[:, rows.numbers :] = 0.0
    along /= REFERENCE

    def drawn(count: int, owner: Ints) -> tuple[Floats, Floats]:
        features = table.rows(count, rng)
        signal = (np.einsum("ij,ij->i", features, truth[owner]) - middle[owner]) / scale[owner]
        if facts.task == "classification" and 2 * rows.numbers < rows.columns:
            return features, _labels(signal, _doubt(facts.expected), rng, positive)
        if facts.task == "classification":
            labels, wanted = _two_groups(count, facts.expected, positive, rng)
            features += (wanted - signal)[:, None] * along[owner]
            features[:, : rows.numbers] = np.clip(features[:, : rows.numbers], -1.0, 1.0)
            return features, labels
        noise = math.sqrt(1.0 - facts.expected) * rng.standard_normal(count)
        return features, label_scale * (math.sqrt(facts.expected) * signal + noise + offset)

    features, targets = drawn(int(counts.sum()), np.repeat(cluster, counts))
    names = tuple(numbered("cluster", q, clusters) for q in range(clusters))
    return Federation(
        features=features,
        targets=targets,
        offsets=offsets_of(counts),
        client_server=server,
        client_cluster=cluster,
        server_ids=tuple(numbered("server", s, graph.size) for s in range(graph.size)),
        cluster_ids=names,
        graph=graph,
        tests={name: TestSet(*drawn(TEST_SAMPLES, np.full(TEST_SAMPLES, q))) for q, name in enumerate(names)},
        generated=True,
    )


def _placed(facts: Facts, seed: int, rng: np.random.Generator) -> tuple[Ints, Ints, Ints, Graph]:
    """Server, cluster and number of records of every client, and the graph: as they are, or as they might be."""
    if facts.placement is not None:
        server, cluster, counts = np.array(facts.placement.clients, dtype=np.int64).T
        return server, cluster, counts, Graph.from_edges(facts.servers, list(facts.placement.edges))
    laid = lay_out(
        facts.servers,
        facts.clients_per_server,
        facts.clusters,
        graph=facts.graph,
        average_degree=facts.average_degree,
        seed=seed,
    )
    counts = rng.integers(facts.records[0], facts.records[1], len(laid.client_server), endpoint=True)
    return laid.client_server, laid.client_cluster, counts, laid.graph


def _doubt(share: float) -> float:
    """The noise, over the margins' deviation, with which a margin's sign is right so often."""
    return math.tan(math.pi * (1.0 - share))


def _share_of_ones(expected: float, rng: np.random.Generator) -> float:
    """A guess of how often the label is 1: rarely enough that a model can be better than the more frequent label."""
    most = min(MOST_OF_ONE_LABEL, max(0.5, expected - 0.05))
    return float(rng.uniform(1.0 - most, most))


def _two_groups(count: int, expected: float, positive: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Labels, and margins of mean 0 and variance 1 that are normal around either label's mean.

    The best threshold is right as often as is expected, if `positive` is the share of ones.
    """
    odds = math.log(positive / (1.0 - positive))

    def right(apart: float) -> float:
        shift = odds / (2.0 * apart)
        return float(positive * ndtr(apart + shift) + (1.0 - positive) * ndtr(apart - shift))

    apart = float(brentq(lambda size: right(size) - expected, 1e-3, 10.0))
    labels = (rng.random(count) < positive).astype(float)
    margins = 2.0 * apart * (labels - positive) + rng.standard_normal(count)
    return labels, margins / math.sqrt(1.0 + 4.0 * apart**2 * positive * (1.0 - positive))


def _labels(margins: AnyFloats, doubt: float, rng: np.random.Generator, positive: float = 0.5) -> Floats:
    """1 where a margin with noise is large enough: the margin's own sign is right as often as is expected."""
    threshold = -float(ndtri(positive)) * math.hypot(1.0, doubt) * float(np.std(margins))
    return np.asarray(margins + doubt * rng.standard_normal(len(margins)) > threshold, dtype=float)
