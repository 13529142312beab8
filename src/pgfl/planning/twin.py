"""A synthetic twin: a made-up federation of the planned shape, with labels as predictable as a user states."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from pgfl.arrays import AnyFloats, Floats, Ints
from pgfl.federation.federation import Federation, TestSet, numbered
from pgfl.federation.graphs import Graph
from pgfl.federation.synthetic import lay_out, offsets_of, synthetic_regression
from pgfl.planning.facts import EXPECTED_BETWEEN, Facts
from pgfl.planning.row_shapes import FURTHEST, LOW_MIDDLE, LOW_MIDDLES_VARY, MIDDLE, MIDDLES_VARY, RowShape, skewed

LABELS_VARY = 0.2  # the deviation of the logarithm of a target's deviation
LEAST_OF_ONE_LABEL = 0.1  # of the records, where the share is a guess
LEAST_SHARE, MOST_SHARE = 1e-4, 0.999
LOGISTIC_VARIANCE = math.pi**2 / 3.0
FLATTEST, STEEPEST = 1e-3, 200.0  # slopes of logistic models that hardly know anything, and that hardly err

Labels = Callable[[Floats, Floats, np.random.Generator], Floats]
"""Labels of margins whose clusters' labels are moved by so many of their deviations."""


def numbers(facts: Facts, typical: Floats, moved: Floats, rng: np.random.Generator) -> Labels:
    """Numbers within their bounds, of which margins like the typical ones explain as much as is expected.

    Those of clusters are `moved`; the stated deviation is that of all of them together.
    """
    middle, varies = (LOW_MIDDLE, LOW_MIDDLES_VARY) if facts.target_from_zero else (MIDDLE, MIDDLES_VARY)
    guessed = float(np.clip(middle + varies * rng.standard_normal(), -FURTHEST, FURTHEST))
    mean = guessed if facts.label_mean is None else facts.label_mean
    deviation = facts.label_scale * (1.0 if facts.label_stated else math.exp(LABELS_VARY * rng.standard_normal()))
    deviation /= math.sqrt(1.0 + float(moved.var()))

    def labelled(margins: Floats, moved: Floats | float, normal: Floats, share: float) -> Floats:
        around = math.sqrt(share) * margins + math.sqrt(1.0 - share) * skewed(normal, mean, deviation)
        return np.clip(mean + deviation * (around + moved), -1.0, 1.0)

    normal = rng.standard_normal(len(typical))

    def beyond(share: float) -> float:
        return float(np.corrcoef(typical, labelled(typical, 0.0, normal, share))[0, 1]) ** 2 - facts.expected

    share = _zero(beyond, LEAST_SHARE, MOST_SHARE)
    return lambda margins, moved, rng: labelled(margins, moved, rng.standard_normal(len(margins)), share)


def two_labels(facts: Facts, typical: Floats, rng: np.random.Generator) -> Labels:
    """Labels of a logistic model whose margins, like the typical ones, have the expected AUC.

    Of more than two labels, one against the rest.
    """
    guessed = float(rng.uniform(LEAST_OF_ONE_LABEL, 1.0 - LEAST_OF_ONE_LABEL))
    guessed = guessed if facts.labels == 2 else 1.0 / facts.labels
    positive = guessed if facts.label_mean is None else facts.label_mean
    typical = np.sort(typical)
    furthest = float(np.abs(typical).max())

    def threshold(slope: float) -> float:
        reach = 10.0 + slope * furthest
        return _zero(lambda at: float(expit(slope * typical + at).mean()) - positive, -reach, reach)

    def beyond(slope: float) -> float:
        chances = expit(slope * typical + threshold(slope))
        above = np.cumsum(1.0 - chances) - 0.5 * (1.0 - chances)  # of those without the label, how many are below
        return float(above @ chances / (chances.sum() * (1.0 - chances).sum())) - facts.expected

    slope = _zero(beyond, FLATTEST, STEEPEST)
    at, deviation = threshold(slope), math.sqrt(slope**2 + LOGISTIC_VARIANCE)

    def labelled(margins: Floats, moved: Floats, rng: np.random.Generator) -> Floats:
        return (rng.random(len(margins)) < expit(slope * margins + deviation * moved + at)).astype(float)

    return labelled


def _zero(rising: Callable[[float], float], low: float, high: float) -> float:
    """Return where a rising function is 0; the nearer end where that is outside."""
    if rising(low) >= 0.0:
        return low
    return high if rising(high) <= 0.0 else float(brentq(rising, low, high, xtol=1e-6))


TEST_SAMPLES = 400
REFERENCE = 2000  # rows by which a made-up table's labels are scaled
CLUSTERS_DIFFER, LABELS_DIFFER, DIFFERENCES_VARY = 0.3, 0.2, 0.7
"""How far apart clusters are in the means of what is behind the columns and of labels, in their deviations, and how the
logarithm of that differs between tables."""

TWINS_KEPT = 32
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
    """Return a table with its own middles, spreads and directions, and rows dealt to clients where they are."""
    rng = np.random.default_rng([seed, 1])
    if not facts.expected_stated:
        facts = replace(facts, expected=float(rng.uniform(*EXPECTED_BETWEEN[facts.task])))
    server, cluster, counts, graph = _placed(facts, seed, rng)
    clusters = int(cluster.max()) + 1
    table = rows.table(rng, facts.explained)
    truth = table.coefficients(rng, facts.explained)
    truth = truth * (1.0 + rng.uniform(-facts.gamma, facts.gamma, (clusters, len(truth))))
    far = math.exp(DIFFERENCES_VARY * rng.standard_normal()) if clusters > 1 else 0.0
    apart = far * CLUSTERS_DIFFER * rng.standard_normal((clusters, table.size))
    moved = far * LABELS_DIFFER * rng.standard_normal(clusters)
    moved -= moved.mean()  # a stated mean is that of all clusters
    owners = rng.integers(0, clusters, REFERENCE)
    reference = np.einsum("ij,ij->i", table.rows(REFERENCE, rng, apart[owners]), truth[owners])
    middles = np.bincount(owners, reference, clusters) / np.maximum(np.bincount(owners, minlength=clusters), 1)
    within = reference - middles[owners]  # a run is measured by every cluster's own test records
    middle, scale = float(reference.mean()), max(float(within.std()), 1e-12)
    typical, regression = within / scale, facts.task == "regression"
    label = numbers(facts, typical, moved, rng) if regression else two_labels(facts, typical, rng)

    def drawn(count: int, owner: Ints) -> tuple[Floats, Floats]:
        features = table.rows(count, rng, apart[owner])
        margins = (np.einsum("ij,ij->i", features, truth[owner]) - middle) / scale
        return rows.mapped(features), label(margins, moved[owner], rng)

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
    """Return the noise, over the margins' deviation, with which margins have such an AUC.

    Margins with the correlation r to what is behind a label that half of the records have reach ½ + 2 arcsin(r/√2)/π.
    """
    return math.sqrt(1.0 / (2.0 * math.sin(math.pi * (share - 0.5) / 2.0) ** 2) - 1.0)


def _labels(margins: AnyFloats, doubt: float, rng: np.random.Generator) -> Floats:
    """1 where a margin with noise is above 0."""
    return np.asarray(margins + doubt * rng.standard_normal(len(margins)) > 0.0, dtype=float)
