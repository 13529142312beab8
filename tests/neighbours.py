"""A search for the two neighbouring data sets, and the message, that take a client's models furthest apart.

Candidates are rows of numbers: all records, the record that replaces the last one, the server's model, its size on a
logarithmic scale, and |C_s|. The best are kept and varied at all scales, so x, xxᵀ and y of the replaced record all
change. Nothing here knows how a bound was derived.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pgfl import equations as eq
from pgfl.federation.clipping import clip_labels, clip_rows, clip_weights
from pgfl.objectives.interface import tolerance_for

DIMENSION = 3
MOST_CLIENTS = 1e9


@dataclass(frozen=True)
class Neighbours:
    """Two data sets of each candidate that differ in their last record, and what a server says about them."""

    features: tuple[np.ndarray, np.ndarray]
    targets: tuple[np.ndarray, np.ndarray]
    model: np.ndarray
    server_clients: np.ndarray


@dataclass(frozen=True)
class Searched:
    """A mechanism under search: the shipped parts, how far a server's model goes, and which labels there are."""

    objective: object
    algorithm: object
    privacy: object
    label: Callable[[np.ndarray], np.ndarray]
    largest_model: float = 1e4
    records: int = 3

    @property
    def shipped(self):
        return self.privacy.constrained(self.objective)

    def apart(self, pairs):
        """‖w − w'‖ of each candidate."""
        return np.linalg.norm(self._models(pairs, 0) - self._models(pairs, 1), axis=1)

    def bound(self, pairs):
        """Δ of each candidate, as an engine calibrates with it."""
        counts = np.full(len(pairs.model), self.records)
        weight = self.algorithm.client_rule.modulus(self.shipped.lam, pairs.server_clients, counts)
        tolerance = tolerance_for(self.shipped, np.float64, np)
        return self.privacy.sensitivity(self.shipped, self.algorithm, counts, weight, tolerance)

    def _models(self, pairs, world):
        counts = np.full(len(pairs.model), float(self.records))
        problems = _Problems(
            self.shipped, pairs.features[world], pairs.targets[world], counts, pairs.server_clients,
            self.algorithm.client_rule, self.privacy.update_norm,
        )  # fmt: skip
        step = self.algorithm.client_rule.step(problems, pairs.model, np.zeros_like(pairs.model), lambda model: model)
        return step.model

    # candidates -------------------------------------------------------------------------------------------------------

    @property
    def genes(self):
        return (self.records + 1) * (DIMENSION + 1) + self.length + 2

    @property
    def length(self):
        return self.objective.model_length(DIMENSION)

    def decoded(self, genes):
        """Candidates as data within the bounds and messages."""
        size = (self.records + 1) * (DIMENSION + 1)
        records = genes[:, :size].reshape(len(genes), self.records + 1, DIMENSION + 1)
        rows, labels = records[..., :-1], self.label(records[..., -1])
        if self.privacy.x_norm is not None:
            rows = clip_rows(rows * self.privacy.x_norm, self.privacy.x_norm)
        if self.privacy.y_bound is not None:
            labels = clip_labels(labels, self.privacy.y_bound)
        if (cap := self.privacy.weight_cap) is not None:
            weights = clip_weights(3.0 * cap * np.abs(records[..., -1]), cap)
            labels = np.stack([labels, weights], axis=-1)
        keep = [np.arange(self.records), np.append(np.arange(self.records - 1), self.records)]
        towards, length, several = genes[:, size : size + self.length], genes[:, -2:-1], genes[:, -1]
        reach = 10.0 ** np.clip(4.0 * length, -3.0, np.log10(self.largest_model))
        model = reach * towards / np.maximum(np.linalg.norm(towards, axis=1, keepdims=True), 1e-300)
        clients = np.round(10.0 ** np.clip(9.0 * several, 0.0, np.log10(MOST_CLIENTS)))
        return Neighbours(tuple(rows[:, k] for k in keep), tuple(labels[:, k] for k in keep), model, clients)

    def canaries(self):
        """Replaced records at all angles to each other and to a model of every size, with labels at odds."""
        found = []
        for angle in np.radians([0, 30, 45, 60, 85, 89, 89.9, 90]):
            for sign in (-1.0, 1.0):
                for size in (-1.0, -0.2, 0.0, 0.3, 1.0):
                    for several in (0.0, 1.0):
                        one = [np.cos(angle), np.sin(angle), 0.0, -1.0]
                        other = [-np.cos(angle), np.sin(angle), 0.0, 1.0]
                        others = np.tile([0.0, 0.0, 1e-3, 0.0], self.records - 1)
                        found.append([*others, *one, *other, *self._along(0, sign), size, several])
                        found.append([*others, *one, *other, *self._along(1, sign), size, several])
        return np.array(found)

    def _along(self, axis, sign):
        """A model along an axis; with classes, of the first and against it of the second."""
        model = np.zeros((self.length // DIMENSION, DIMENSION))
        model[:2, axis] = [sign, -sign][: len(model)]
        return model.ravel()


@dataclass(frozen=True)
class _Problems:
    """A `Problem` of many clients at once."""

    objective: object
    features: np.ndarray
    targets: np.ndarray
    counts: np.ndarray
    server_clients: np.ndarray
    rule: object
    update_norm: float | None

    @property
    def modulus(self):
        return self.rule.modulus(self.objective.lam, self.server_clients, self.counts)[:, None]

    @property
    def records(self):
        return self.counts[:, None]

    def solve(self, centre):
        return self.objective.prepare(self.features, self.targets, self.counts, self.modulus[:, 0]).solve(centre)

    def gradient(self, w):
        penalty = eq.ridge_penalty(self.objective.lam, self.server_clients[:, None])
        return eq.regularised_gradient(self.objective.gradient(w, self.features, self.targets, self.counts), penalty, w)

    def projected(self, w):
        return eq.project(w, self.objective.domain)


def furthest(searched, *, generations=40, population=96, parents=16, seed=0):
    """The largest ‖w − w'‖/Δ found, and the neighbours that reach it."""
    random = np.random.default_rng(seed)
    pool = np.concatenate([searched.canaries(), random.normal(size=(population, searched.genes))])
    best, found = 0.0, None
    for _ in range(generations):
        pairs = searched.decoded(pool)
        ratio = searched.apart(pairs) / searched.bound(pairs)
        order = np.argsort(-ratio)
        if ratio[order[0]] > best:
            first = slice(order[0], order[0] + 1)
            best = float(ratio[order[0]])
            found = Neighbours(
                *(tuple(world[first] for world in part) for part in (pairs.features, pairs.targets)),
                pairs.model[first],
                pairs.server_clients[first],
            )
        kept = pool[order[:parents]]
        children = np.repeat(kept, population // parents, axis=0)
        step = 10.0 ** random.uniform(-4.0, 0.3, size=(len(children), 1))
        hit = random.random(children.shape) < random.choice([0.1, 0.5, 1.0], size=(len(children), 1))
        pool = np.concatenate([kept, children + step * hit * random.normal(size=children.shape)])
    return best, found
