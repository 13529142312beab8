"""Standard errors of coefficients under privacy, from what is released, from public numbers and from held-out rows.

No training record is read. The noise of every round is known, and so is how rounds pass it on but for the curvature H
of the loss. That, and how far single records spread the gradient, is estimated on held-out rows, which the guarantee
does not protect: whoever publishes these standard errors publishes figures of held-out rows, as with every measure.

Clients take one gradient step per round from the public model, so that along a direction of curvature h the mean of a
cluster's models follows w ← w − (gain·h)(w − w*) − pull·w + ξ: `gain` is the mean length of a step, `pull` the penalty
times it, and ξ the noise of the mean. After all rounds the model is b·w* plus noise of a known variance, and w* itself
is off by what records happen to be. The estimate is the model divided by b.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pgfl import equations as eq
from pgfl.arrays import Floats, Ints
from pgfl.federation.federation import Federation, TestSet
from pgfl.objectives import Objective
from pgfl.results.coefficients import Fit
from pgfl.results.model import Model
from pgfl.results.result import Columns
from pgfl.simulate.inference import MOST_WORK, TOO_LARGE, WeightedLoss, inverse, tabled
from pgfl.simulate.observers import Observer
from pgfl.simulate.problems import Objectives, objective_of

if TYPE_CHECKING:
    from pgfl.simulate.simulator import Simulator

LEAST_ROWS = 20  # held-out rows beyond the number of coefficients
LEAST_LEARNED = 0.02  # b below which noise leaves nothing of a direction
POWER_STEPS = 500
BASIS = (
    "Standard errors count the noise of privacy and chance in the training records. They are estimated on held-out "
    "rows, which the guarantee does not protect; no training record was read."
)
LEFT_OUT = (
    "Standard errors were left out: under privacy no training record may be read for them, and they need held-out rows "
    'of a training with client = "gradient", tau = 0 and no clipped updates.'
)

WEIGHTED = "Standard errors were left out: with privacy they come from held-out rows, which have no weights."


@dataclass(frozen=True)
class Round:
    """One round of one cluster: the variance of its mean model's noise per coordinate, and the mean step."""

    variance: Floats
    gain: Floats
    pull: Floats


class NoisePath(Observer):
    """Follows how much noise each round adds to the mean of every cluster's models, and how far steps go.

    `spread` is Σ c_i² of every cluster's records, whose weights c_i add up to 1: 1/n if all of n weigh alike.
    """

    def __init__(self) -> None:
        self.rounds: list[Round] = []
        self.whole = True  # False if rounds went by unseen

    @classmethod
    def of(cls, simulator: Simulator) -> NoisePath | None:
        """Return one for a private run on a table whose rounds are as described above; else None."""
        privacy, client, server = simulator.options.privacy, *simulator.algorithm.rules()
        federation = simulator.layout.runs[0].federation
        described = (
            privacy is not None
            and privacy.update_norm is None
            and client.linearised
            and (server.plain_average or server.exact)
            and server.personalised
            and simulator.algorithm.tau == 0.0
            and simulator.options.runs == 1
            and simulator.options.delays is None
            and federation.encoding is not None
            and federation.graph.connected
        )
        return cls() if described else None

    def on_start(self, simulator: Simulator) -> None:
        """Note where the rounds begin, and what does not change."""
        self.whole &= simulator.state.round == len(self.rounds)
        layout, rule = simulator.layout, simulator.algorithm.client_rule
        run = layout.runs[0]
        self._clusters = len(run.federation.cluster_ids)
        self._step = 1.0 / np.broadcast_to(np.asarray(rule.rho_of(layout.counts.astype(float))), layout.clients)
        objectives = [objective_of(simulator.objectives, name) for name in run.federation.cluster_ids]
        lam = np.array([one.lam for one in objectives])[layout.pair_cluster[layout.client_pair]]
        self._penalty = eq.ridge_penalty(lam, layout.server_clients)
        self._weight = _weights(simulator)
        per_record = (
            (self._weight / np.maximum(layout.pair_members, 1))[layout.client_pair] * self._step / layout.counts
        )
        cluster = layout.pair_cluster[layout.client_pair]
        total = np.bincount(cluster, layout.counts * per_record, self._clusters)
        self.spread = np.bincount(cluster, layout.counts * per_record**2, self._clusters) / total**2

    def on_round(self, simulator: Simulator) -> None:
        """Add up this round's noise and steps."""
        plan, layout, active = simulator.plan, simulator.layout, simulator.engine.participants
        assert plan is not None
        pair = layout.client_pair[active]
        share = 1.0 / np.maximum(np.bincount(pair, minlength=layout.pairs), 1)[pair]
        index = plan.releases[active] if plan.budget.index == "release" else simulator.state.round
        sigma = plan.budget.sigma(plan.sensitivity[active], index)
        variance = plan.variance_of_means(active, sigma, share)
        weight, cluster = self._weight[pair], layout.pair_cluster[pair]
        step = weight * share * self._step[active]
        self.rounds.append(
            Round(
                self._by_cluster(cluster, weight**2 * variance),
                self._by_cluster(cluster, step),
                self._by_cluster(cluster, step * self._penalty[active]),
            )
        )

    def _by_cluster(self, cluster: Ints, values: Floats) -> Floats:
        return np.bincount(cluster, values, self._clusters).astype(np.float64)

    def passed_on(self, cluster: int, curvature: Floats) -> tuple[Floats, Floats]:
        """Return b, and the variance of the final model's noise, along directions of these curvatures."""
        learned, variance = np.zeros(len(curvature)), np.zeros(len(curvature))
        for one in self.rounds:
            kept = 1.0 - one.gain[cluster] * curvature - one.pull[cluster]
            learned = kept * learned + one.gain[cluster] * curvature
            variance = kept**2 * variance + one.variance[cluster]
        return learned, variance


def _weights(simulator: Simulator) -> Floats:
    """Return what every pair's step has in the mean of its cluster's models, once servers agree."""
    layout, run = simulator.layout, simulator.layout.runs[0]
    graph = run.federation.graph
    if simulator.algorithm.server_rule.exact:
        return np.asarray(layout.shares, dtype=np.float64) / graph.size
    weights, mean = graph.weights(simulator.algorithm.mixing), np.full(graph.size, 1.0 / graph.size)
    for _ in range(POWER_STEPS):
        mean = weights.T @ mean
    return mean[layout.pair_server]


def private_fit(path: NoisePath, cluster: int, objective: Objective, test: TestSet, w: Floats) -> Fit | None:
    """Return what is known about a cluster's coefficients; None if held-out rows are too few."""
    rows = len(test.targets)
    loss = WeightedLoss(objective, test.features, test.targets, np.full(rows, 1.0 / rows))
    curvature = loss.curvature(w)
    values, vectors = np.linalg.eigh(curvature)
    learned, variance = path.passed_on(cluster, values)
    kept = (values > 0) & (learned >= LEAST_LEARNED)
    df = rows - int(kept.sum())
    if df < LEAST_ROWS:
        return None
    own = vectors[:, kept]
    noise = variance[kept] / learned[kept] ** 2
    bread, _ = inverse(curvature)
    meat = loss.meat(w) * rows * rows / df
    sampling = bread @ meat @ bread * path.spread[cluster]
    return Fit(own @ ((own.T @ w) / learned[kept]), sampling + own * noise @ own.T, df, vectors[:, ~kept])


def private_fits(
    path: NoisePath | None, model: Model, federation: Federation, objectives: Objectives
) -> tuple[Columns | None, str]:
    """Return what `inference.fits` returns, without a look at training records."""
    tests = federation.tests or {}
    if federation.weights is not None:
        return None, WEIGHTED
    if path is None or not path.whole or not path.rounds or not tests:
        return None, LEFT_OUT
    found = []
    for q, name in enumerate(federation.cluster_ids):
        objective, own = objective_of(objectives, name), model.clusters[q].astype(np.float64)
        known = name in tests and np.isfinite(own).all() and objective.convex
        if known and 2.0 * tests[name].features.size * len(own) > MOST_WORK / len(tests):
            return None, TOO_LARGE
        found.append(private_fit(path, q, objective, tests[name], own) if known else None)
    columns, _ = tabled(model, found)
    return columns, "" if columns is None else BASIS
