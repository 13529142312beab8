"""How the error of a private training evolves in expectation: a recursion for its moments, without records or noise.

Rows with the second moments H and normal margins make the expected gradient of a linear model linear: H(αw − βw*),
where α and β follow from how large residuals are (Huber: α = β = twice the share within κ, because beyond κ the slope
is bounded; logistic: α is the mean curvature of the loss). So in the directions of H, and in those of the network's
mixing (consensus of servers, what clusters have in common, the rest), noise and signal evolve apart from each other,
and one round multiplies each of their moments by a number. What one release costs is exact.

A federation serves to say what H, w* and the places of clients are. It is a made-up one.

The modes of servers that weigh their neighbours by clients: what all of them agree on, and how differences fade.

The weights A are not symmetric: a server with many clients counts for more than it listens. But diag(π)A is symmetric
for the weights π that servers end up with, so A has real eigenvalues, and left and right vectors that follow from the
eigenvectors of a symmetric matrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import erf, ndtr, ndtri

from pgfl.arrays import AnyFloats, AnyInts, Floats, Ints
from pgfl.federation.clipping import clip_rows
from pgfl.federation.federation import Federation
from pgfl.federation.graphs import Graph, by_clients
from pgfl.objectives import Bounds, Huber, Logistic
from pgfl.planning.facts import Facts
from pgfl.privacy.accounting import exact_rho


@dataclass(frozen=True, eq=False)
class Modes:
    """Eigenvalues of a cluster's weights between servers, with their left and right vectors as columns.

    `agreed` is how much every server counts in what all of them agree on; `seen` is the share of clients at each.
    """

    values: Floats
    left: Floats
    right: Floats
    agreed: Floats
    seen: Floats

    @classmethod
    def of(cls, graph: Graph, clients: Ints) -> Modes:
        """Of servers with so many clients of the cluster each."""
        counted = by_clients(clients).astype(float)
        nearby = graph.adjacency.toarray() + np.eye(graph.size)
        total = nearby @ counted  # clients of every neighbourhood
        root = np.sqrt(counted / total)
        values, vectors = np.linalg.eigh(root[:, None] * nearby * root)
        scale = np.sqrt(counted * total)[:, None]
        seen = clients / max(clients.sum(), 1)
        agreed, part = counted * total, graph.components
        agreed *= (np.bincount(part, seen) / np.bincount(part, agreed))[part]
        return cls(values, scale * vectors, vectors / scale, agreed, seen)

    def felt(self, variances: Floats) -> Floats:
        """Return how much of independent numbers with such variances at every server clients feel, by mode.

        After k rounds of averages it has to be multiplied by the eigenvalue to the power of 2k. Products of different
        modes are left out; they are small where neighbourhoods have about the same numbers of clients.
        """
        return np.asarray((self.left**2).T @ variances * ((self.right**2).T @ self.seen))


MOST_DIRECTIONS = 6  # groups of directions of about the same curvature
SINGLE_DIRECTIONS = 4  # of a table's rows: the steepest ones, each by itself
MOST_MODES = 5  # groups of modes of the network of about the same eigenvalue
MODES_KEPT = 8  # of clusters of a twin
HUGE = 1e9
COIN = 0.25  # the variance of a label that is 0 or 1
RAREST = 0.001  # label
CLOSEST = 0.99  # correlation of margins with what is behind a label
NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)  # of integrals over [−1, 1]


@dataclass(frozen=True)
class Candidates:
    """Settings side by side, one number each; κ is ignored for two labels."""

    rho: Floats
    zeta: Floats
    releases: Floats
    tau: Floats
    tau_decay: Floats
    kappa: Floats

    def __getitem__(self, order: object) -> Candidates:
        return Candidates(*(getattr(self, name)[order] for name in self.__dataclass_fields__))


class Moments:
    """What settings will achieve on federations like `made`, with rows clipped to `x_norm`."""

    def __init__(self, facts: Facts, made: Federation, x_norm: float) -> None:
        self._facts = facts
        self._budget = exact_rho(facts.epsilon, facts.delta)
        self._clusters = len(made.cluster_ids)
        self._full = facts.records[1]
        self._change = float(_loss(facts).gradient_change(Bounds(x_norm=x_norm)) or 0.0)  # of Huber with κ = 1
        self._places(made)
        self._rows(made, x_norm)

    def errors(self, tried: Candidates) -> Floats:
        """Return one per candidate: the NMSD; 1 − R²; for two labels the share of wrong ones."""
        order = np.argsort(-tried.releases, kind="stable")
        found = np.empty(len(order))
        found[order] = self._played(tried[order])
        return found

    def _played(self, tried: Candidates) -> Floats:
        """Candidates in falling order of their releases, so that those still training are the first ones."""
        learned, noise, displaced = self._start(len(tried.rho))
        regression, rounds = self._facts.task == "regression", int(tried.releases[0])
        slope = tried.kappa if regression else np.ones(len(tried.rho))
        sensitivity = self._change * slope / (self._full * tried.rho)
        first = self._budget / _geometric(tried.zeta, tried.releases)
        scatter = np.full(len(tried.rho), self._signal + self._residual)
        step = self._step * self._curvature
        for number in range(1, rounds + 1):
            some = slice(0, int(np.searchsorted(-tried.releases, -number, side="right")))
            share = erf(tried.kappa[some] / np.sqrt(2.0 * scatter[some])) if regression else None
            bend = 2.0 * share if share is not None else COIN / np.sqrt(1.0 + np.pi / 8.0 * scatter[some])
            pull = (bend if regression else np.ones_like(bend))[:, None] / tried.rho[some, None] * step
            kept = 1.0 - bend[:, None] / tried.rho[some, None] * step
            added = sensitivity[some] ** 2 / (2.0 * first[some] * tried.zeta[some] ** -float(number))
            mixed = self._mixed(tried.tau[some] * tried.tau_decay[some] ** number)
            learned[some] = mixed[:, None, :] * (kept[:, :, None] * learned[some] + pull[:, :, None])
            both = self._modes[:, None, None] * mixed[:, None, None, :]
            noise[some] = both**2 * (kept[:, None, :, None] ** 2 * noise[some] + added[:, None, None, None])
            displaced[some] = both * (kept[:, None, :, None] * displaced[some] + pull[:, None, :, None])
            scatter[some] = np.minimum(self._scatter(learned[some], noise[some], displaced[some]), HUGE)
        return self._measured(learned, noise, displaced)

    def _start(self, count: int) -> tuple[Floats, Floats, Floats]:
        """Return how much of w* is learned, by direction and cluster mode; variances by network mode as well."""
        directions, modes = len(self._curvature), len(self._modes)
        variances = np.zeros((2, count, modes, directions, 2))
        return np.zeros((count, directions, 2)), variances[0], variances[1]

    def _mixed(self, tau: Floats) -> Floats:
        """Return what inter-cluster learning leaves of what clusters have in common, and of what they differ in."""
        apart = self._clusters / (self._clusters - 1.0) if self._clusters > 1 else 0.0
        return np.stack([np.ones_like(tau), 1.0 - apart * tau], axis=1)

    def _variance(self, noise: Floats, displaced: Floats) -> Floats:
        """Of the models around their mean, by direction: noise, and what a server's few records lead astray."""
        felt = np.einsum("cmdq,m->cdq", noise, self._noise_share)
        felt += np.einsum("cmdq,m->cdq", displaced**2, self._astray_share) * self._astray[:, None]
        return np.asarray(felt @ np.array([1.0, self._clusters - 1.0]) / self._clusters)

    def _scatter(self, learned: Floats, noise: Floats, displaced: Floats) -> Floats:
        """Return the variance of residuals, or for two labels of margins."""
        variance = self._variance(noise, displaced) @ (self._count * self._curvature)
        if self._facts.task == "regression":
            return np.asarray(self._missed(learned) @ self._curvature + variance + self._residual)
        return np.asarray((learned**2 * self._energy).sum(axis=2) @ self._curvature + variance)

    def _missed(self, learned: Floats) -> Floats:
        return np.asarray(((1.0 - learned) ** 2 * self._energy).sum(axis=2))

    def _measured(self, learned: Floats, noise: Floats, displaced: Floats) -> Floats:
        if self._facts.uses_nmsd:
            variance = self._variance(noise, displaced) @ self._count
            return np.asarray((self._missed(learned).sum(axis=1) + variance) / self._energy.sum())
        scatter = self._scatter(learned, noise, displaced)
        if self._facts.task == "regression":
            return scatter / self._total
        best = float(self._middle.sum())  # the mean of the best margins
        spread = math.sqrt(max(self._signal - best**2, 1e-12))
        mean = learned[:, :, 0] @ self._middle
        own = np.sqrt(np.maximum(scatter - mean**2, 1e-300))
        along = (learned * self._energy).sum(axis=2) @ self._curvature - mean * best
        return _wrong(best, spread, mean / own, along / (own * spread))

    def _places(self, made: Federation) -> None:
        """From who is where: the step that servers agree on, and how noise and chance reach clients along each mode."""
        trust, shape = self._facts.trusted, (made.graph.size, self._clusters)

        def by_pair(weights: Floats) -> Floats:
            """Return one row per cluster, one column per server."""
            pair = made.client_server * self._clusters + made.client_cluster
            counted = np.bincount(pair, weights, minlength=shape[0] * shape[1])
            return np.asarray(counted.reshape(shape).T, dtype=float)

        clients, records = by_pair(np.ones(len(made.counts))), by_pair(made.counts.astype(float))
        contributing = np.zeros(clients.shape)  # a pair that sits out adds neither step nor noise
        noise = np.zeros(clients.shape)
        for size in map(int, np.unique(clients)):
            if size and trust.takes_part(size):
                contributing[clients == size] = 1.0
                noise[clients == size] = (trust.excess(size) if trust.aggregates else size) / size**2
        steps = contributing * by_pair(np.minimum(1.0, made.counts / self._full)) / np.maximum(clients, 1.0)
        self._pair_records = float(records[records > 0].mean())
        self._nearby = 1.0 + 2.0 * len(made.graph.edges) / made.graph.size
        chance = contributing * self._pair_records / np.maximum(records, 1.0)
        modes = [_modes(made.graph, tuple(map(int, own))) for own in clients]
        self._step = float(np.mean([each.agreed @ own for each, own in zip(modes, steps, strict=True)]))
        self._modes, self._noise_share, self._astray_share = _grouped(
            np.concatenate([each.values for each in modes]),
            np.concatenate([each.felt(own) for each, own in zip(modes, noise, strict=True)]) / self._clusters,
            np.concatenate([each.felt(own) for each, own in zip(modes, chance, strict=True)]) / self._clusters,
        )

    def _rows(self, made: Federation, x_norm: float) -> None:
        """From rows and labels: curvatures, the best models along them, and what these leave unexplained."""
        cluster = np.repeat(made.client_cluster, made.counts)
        features, targets = clip_rows(made.features, x_norm), made.targets
        if made.tests:
            tests = [made.tests[name] for name in made.cluster_ids if name in made.tests]
            own = [q for q, name in enumerate(made.cluster_ids) if name in made.tests]
            features = np.vstack([features, *(clip_rows(test.features, x_norm) for test in tests)])
            targets = np.concatenate([targets, *(test.targets for test in tests)])
            cluster = np.concatenate([cluster, *(np.full(len(t.targets), q) for q, t in zip(own, tests, strict=True))])
        labels = targets if self._facts.task == "regression" else targets - 0.5
        rng = np.random.default_rng(0)
        seen = rng.choice(len(features), min(len(features), max(2, round(self._pair_records * self._nearby))), False)
        curvature, directions = np.linalg.eigh(features[seen].T @ features[seen] / len(seen))
        truth = made.truth if made.truth is not None else _best(features, labels, cluster, self._clusters)
        along, common = truth @ directions, truth.mean(axis=0) @ directions
        groups = _groups(len(curvature), SINGLE_DIRECTIONS if self._facts.rows else 0)
        middle = features.mean(axis=0) @ directions
        self._curvature = np.array([max(float(curvature[group].mean()), 1e-12) for group in groups])
        self._count = np.array([float(len(group)) for group in groups])
        apart = ((along - common) ** 2).mean(axis=0)
        self._energy = np.array([[(common[group] ** 2).sum(), apart[group].sum()] for group in groups])
        self._middle = np.array([float(common[group] @ middle[group]) for group in groups])
        self._signal = float(self._energy.sum(axis=1) @ self._curvature)
        self._total = float(labels.var())
        fitted = np.einsum("ij,ij->i", features, truth[cluster])
        self._residual = float(np.mean((labels - fitted) ** 2)) if self._facts.task == "regression" else COIN
        self._astray = self._residual / (self._pair_records * self._curvature)
        self._residual = self._residual if self._facts.task == "regression" else 0.0


@lru_cache(maxsize=MODES_KEPT)
def _modes(graph: Graph, clients: tuple[int, ...]) -> Modes:
    """Kept, because the same twin serves for every ε and trust, and a thousand servers take a second."""
    return Modes.of(graph, np.array(clients))


def _loss(facts: Facts) -> Huber | Logistic:
    return Huber(0.0, kappa=1.0) if facts.task == "regression" else Logistic(0.0)


def _wrong(best: float, spread: float, mean: Floats, correlation: Floats) -> Floats:
    """How often labels are wrong whose margins have this mean, in their deviations, and correlation with the best ones.

    The best margins fit labels of −½ and ½, with the mean `best` and the deviation `spread`. A label is taken to be the
    sign of a normal number, and to be wrong if the margin has the other sign: an integral over two normal numbers.
    """
    usual = float(ndtri(np.clip(0.5 + best, RAREST, 1.0 - RAREST)))
    density = math.exp(-(usual**2) / 2.0) / math.sqrt(2.0 * math.pi)
    angle = np.arcsin(np.clip(min(spread / density, 1.0) * correlation, -CLOSEST, CLOSEST))
    angles, other = angle[:, None] * (NODES + 1.0) / 2.0, mean[:, None]
    heights = np.exp(-(usual**2 + other**2 - 2.0 * usual * other * np.sin(angles)) / (2.0 * np.cos(angles) ** 2))
    both = ndtr(usual) * ndtr(mean) + heights @ WEIGHTS * angle / (4.0 * np.pi)
    return np.asarray(ndtr(usual) + ndtr(mean) - 2.0 * both)


def _geometric(zeta: Floats, releases: Floats) -> Floats:
    """Σ ζ⁻ⁿ for n = 1 … releases."""
    rate = -np.log(zeta)
    return np.asarray(np.where(rate > 0, np.expm1(rate * releases) / -np.expm1(-np.maximum(rate, 1e-300)), releases))


def _best(features: AnyFloats, labels: AnyFloats, cluster: AnyInts, clusters: int) -> Floats:
    """Return the least-squares model of every cluster; a little ridge stands in for records that are missing."""
    found = np.zeros((clusters, features.shape[1]))
    for q in range(clusters):
        own = features[cluster == q]
        second = own.T @ own
        ridge = np.trace(second) / max(len(own), 1) * np.eye(len(second))
        found[q] = np.linalg.solve(second + ridge, own.T @ labels[cluster == q])
    return found


def _groups(count: int, single: int) -> list[Ints]:
    """Places in rising order of curvature, in groups; the last ones, of the largest curvatures, alone."""
    rest, last = np.arange(max(0, count - single)), np.arange(max(0, count - single), count)
    return [part for part in (*np.array_split(rest, MOST_DIRECTIONS), *last[:, None]) if len(part)]


def _grouped(values: Floats, *shares: Floats) -> list[Floats]:
    """Modes in groups: those of eigenvalue 1, and others of about the same size; their means, and sums of shares."""
    order = np.argsort(-values, kind="stable")
    whole = int(np.count_nonzero(values > 1.0 - 1e-9))
    groups = [order[:whole], *(part for part in np.array_split(order[whole:], MOST_MODES - 1) if len(part))]
    means = np.array([float(np.sqrt(np.mean(values[part] ** 2))) for part in groups])
    return [means, *(np.array([float(share[part].sum()) for part in groups]) for share in shares)]
