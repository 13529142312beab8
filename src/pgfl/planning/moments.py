"""How the error of a private training evolves in expectation: a recursion for its moments, without records or noise.

Rows with the second moments H and normal margins make the expected gradient of a linear model linear: H(αw − βw*),
where α and β follow from how large residuals are (Huber: α = β = twice the share within κ, because beyond κ the slope
is bounded; logistic: β = 1, and α is the mean slope of the logistic function, from 0 to where margins are along their
mean, and around there in other directions). Of more than two labels, one against the rest is looked at. So in the
directions of H, and in those of the network's mixing (consensus of servers, what clusters have in common, the rest),
noise and signal evolve apart from each other, and one round multiplies each of their moments by a number. What one
release costs is exact.

A federation serves to say what H, w* and the places of clients are. It is a made-up one.

The modes of servers that weigh their neighbours by clients: what all of them agree on, and how differences fade.

The weights A are not symmetric: a server with many clients counts for more than it listens. But diag(π)A is symmetric
for the weights π that servers end up with, so A has real eigenvalues, and left and right vectors that follow from the
eigenvectors of a symmetric matrix.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import erf, expit, logit, ndtr, ndtri

from pgfl.arrays import AnyFloats, AnyInts, Floats, Ints
from pgfl.federation.clipping import clip_rows
from pgfl.federation.federation import Federation
from pgfl.federation.graphs import Graph, by_clients
from pgfl.objectives import Bounds
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
RAREST = 0.001  # label
CLOSEST = 0.99  # correlation of margins with what is behind a label
SUREST = 1e-9  # chance of a label
FLAT = 1e-3  # margins this near to 0 have the slope of 0
SOFT = 0.05  # added to the share that is missed, so that no search hunts for its last per cent
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(16)
WEIGHTS = WEIGHTS / WEIGHTS.sum()  # of means over a standard normal number


@dataclass(frozen=True)
class Candidates:
    """Settings side by side, one number each; κ is ignored for labels."""

    rho: Floats
    zeta: Floats
    releases: Floats
    tau: Floats
    tau_decay: Floats
    kappa: Floats

    def __getitem__(self, order: object) -> Candidates:
        return Candidates(*(getattr(self, name)[order] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Foreseen:
    """What candidates reach on one federation.

    `error` is the NMSD, 1 − R² or 1 − AUC; `limit` is that of the best linear models; `kept` is the share of what these
    gain over a trivial prediction, in squared error or log loss; `chance` is the variance of what is
    lost of it, over what is lost, as one held-out row measures it.
    """

    error: Floats
    kept: Floats
    limit: float
    chance: float = 0.0


@dataclass(frozen=True)
class Labels:
    """A label that so large a share of the records has, the sign of a normal number that is known in part.

    The best margins fit labels of 0 and 1 by least squares, with the deviation `spread`.
    """

    share: float
    spread: float

    @property
    def _usual(self) -> float:
        return float(ndtri(self.share))

    @property
    def _density(self) -> float:
        return math.exp(-(self._usual**2) / 2.0) / math.sqrt(2.0 * math.pi)

    @property
    def entropy(self) -> float:
        """Return the log loss of always saying the share."""
        return -self.share * math.log(self.share) - (1.0 - self.share) * math.log1p(-self.share)

    def _known(self, correlation: Floats) -> Floats:
        """Return the correlation with what is behind the label, of margins with this one with the best ones."""
        return np.asarray(min(self.spread / self._density, CLOSEST) * np.clip(correlation, -CLOSEST, CLOSEST))

    def auc(self, correlation: Floats) -> Floats:
        """Return how often the margin of one with the label is above that of one without, as if both were normal."""
        known, variance = self._known(correlation), self.share * (1.0 - self.share)
        apart = known * self._density / variance
        return np.asarray(ndtr(apart / np.sqrt(2.0 * (1.0 - known**2 * self._density**2 / variance))))

    def log_loss(self, offset: float | None, mean: Floats, spread: Floats, correlation: Floats) -> Floats:
        """Return the mean log loss of margins beyond an offset; without one, of the best use of such margins."""
        known = self._known(correlation)[:, None]
        chance = np.clip(ndtr((self._usual + known * NODES) / np.sqrt(1.0 - known**2)), SUREST, 1.0 - SUREST)
        margins = logit(chance) if offset is None else mean[:, None] + offset + spread[:, None] * NODES
        return np.asarray((np.logaddexp(0.0, margins) - chance * margins) @ WEIGHTS)


class Moments:
    """What settings will achieve on federations like `made`, with rows clipped to `x_norm`.

    A placement of the facts says how many records clients have; `made` may hold fewer.
    """

    def __init__(self, facts: Facts, made: Federation, x_norm: float) -> None:
        self._facts = facts
        self._budget = exact_rho(facts.epsilon, facts.delta)
        self._clusters = len(made.cluster_ids)
        self._full = facts.records[1]
        self._change = float(facts.loss.gradient_change(Bounds(x_norm=x_norm)) or 0.0)  # of Huber with κ = 1
        self._places(made)
        self._rows(made, x_norm)

    def at(self, epsilon: float) -> Moments:
        """Return the same for another ε."""
        other = copy(self)
        other._budget = exact_rho(epsilon, self._facts.delta)
        return other

    def foresee(self, tried: Candidates) -> Foreseen:
        """Return what every candidate reaches."""
        order = np.argsort(-tried.releases, kind="stable")
        back = np.argsort(order, kind="stable")
        found = self._measured(*self._played(tried[order]))
        return replace(found, error=found.error[back], kept=found.kept[back])

    def errors(self, tried: Candidates) -> Floats:
        """Return one per candidate: the NMSD; 1 − R²; for labels 1 − AUC."""
        return self.foresee(tried).error

    def regrets(self, tried: Candidates) -> Floats:
        """Return what a search makes small: the logarithm of the NMSD or, of a table, of the share that is lost."""
        found = self.foresee(tried)
        lost = found.error if self._facts.uses_nmsd else SOFT + np.maximum(1.0 - found.kept, 0.0)
        return np.asarray(np.log(lost))

    def _played(self, tried: Candidates) -> tuple[Floats, Floats, Floats]:
        """Candidates in falling order of their releases, so that those still training are the first ones."""
        learned, noise, displaced = self._start(len(tried.rho))
        regression, rounds = self._facts.task == "regression", int(tried.releases[0])
        slope = tried.kappa if regression else np.ones(len(tried.rho))
        sensitivity = self._change * slope / (self._full * tried.rho)
        first = self._budget / _geometric(tried.zeta, tried.releases)
        scatter = np.full(len(tried.rho), self._signal + self._residual if regression else 0.0)
        step = self._step * self._curvature
        for number in range(1, rounds + 1):
            some = slice(0, int(np.searchsorted(-tried.releases, -number, side="right")))
            if regression:
                bend = 2.0 * erf(tried.kappa[some] / np.sqrt(2.0 * scatter[some]))[:, None]
            else:
                bend = self._slopes(learned[some], scatter[some])
            pull = (bend if regression else np.ones_like(bend)) / tried.rho[some, None] * step
            kept = 1.0 - bend / tried.rho[some, None] * step
            added = sensitivity[some] ** 2 / (2.0 * first[some] * tried.zeta[some] ** -float(number))
            mixed = self._mixed(tried.tau[some] * tried.tau_decay[some] ** number)
            learned[some] = mixed[:, None, :] * (kept[:, :, None] * learned[some] + pull[:, :, None])
            both = self._modes[:, None, None] * mixed[:, None, None, :]
            noise[some] = both**2 * (kept[:, None, :, None] ** 2 * noise[some] + added[:, None, None, None])
            displaced[some] = both * (kept[:, None, :, None] * displaced[some] + pull[:, None, :, None])
            scatter[some] = np.minimum(self._scatter(learned[some], noise[some], displaced[some]), HUGE)
        return learned, noise, displaced

    def _slopes(self, learned: Floats, scatter: Floats) -> Floats:
        """Return the mean slope of the logistic function by candidate and direction, at normal margins.

        A direction that all rows have in common moves all margins alike, from where they start; the others move them
        around their mean, where a rare label makes the slope small.
        """
        mean = learned[:, :, 0] @ self._middle
        wide = np.sqrt(1.0 + np.pi / 8.0 * np.maximum(scatter - mean**2, 0.0))
        begin, now = self._offset / wide, (mean + self._offset) / wide
        around = expit(now) * expit(-now) / wide
        moved = np.abs(mean) > FLAT
        from_start = np.where(moved, (expit(now) - expit(begin)) / np.where(moved, mean, 1.0), around)
        return np.asarray(around[:, None] + self._in_common * (from_start - around)[:, None])

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
        """Return the mean square of residuals, or for labels of margins."""
        variance = self._variance(noise, displaced) @ (self._count * self._curvature)
        if self._facts.task == "regression":
            return np.asarray(self._missed(learned) @ self._curvature + variance + self._residual)
        return np.asarray((learned**2 * self._energy).sum(axis=2) @ self._curvature + variance)

    def _missed(self, learned: Floats) -> Floats:
        return np.asarray(((1.0 - learned) ** 2 * self._energy).sum(axis=2))

    def _measured(self, learned: Floats, noise: Floats, displaced: Floats) -> Foreseen:
        if self._facts.uses_nmsd:
            variance = self._variance(noise, displaced) @ self._count
            error = np.asarray((self._missed(learned).sum(axis=1) + variance) / self._energy.sum())
            return Foreseen(error, 1.0 - error, 0.0)
        scatter = self._scatter(learned, noise, displaced)
        if self._facts.task == "regression":
            error, limit = scatter / self._total, self._least / self._total
            best = max(1.0 - limit, 1e-6)
            # squared errors of two predictions differ by twice a residual times their distance
            chance = 4.0 * limit / best
            return Foreseen(error, (1.0 - error) / best, limit, chance)
        middle = float(self._middle.sum())  # the mean of the best margins
        spread = math.sqrt(max(self._signal - middle**2, 1e-12))
        mean = learned[:, :, 0] @ self._middle
        own = np.sqrt(np.maximum(scatter - mean**2, 1e-300))
        along = (learned * self._energy).sum(axis=2) @ self._curvature - mean * middle
        labels = Labels(float(np.clip(self._begin + middle, RAREST, 1.0 - RAREST)), spread)
        whole = Labels(labels.share, math.sqrt(max(self._total - self._least, 1e-12)))
        correlation, one = along / (own * spread), np.ones(1)
        gain = labels.entropy - labels.log_loss(self._offset, mean, own, correlation)
        most = whole.entropy - float(whole.log_loss(None, one, one, one)[0])
        chance = 2.0 / max(most, 1e-6)  # log losses of two chances differ by a deviation twice the root of their mean
        auc, limit = labels.auc(correlation), 1.0 - float(whole.auc(one)[0])
        return Foreseen(1.0 - auc, gain / max(most, 1e-6), limit, chance)

    def _places(self, made: Federation) -> None:
        """From who is where: the step that servers agree on, and how noise and chance reach clients along each mode."""
        trust, shape = self._facts.trusted, (made.graph.size, self._clusters)

        def by_pair(weights: Floats) -> Floats:
            """Return one row per cluster, one column per server."""
            pair = made.client_server * self._clusters + made.client_cluster
            counted = np.bincount(pair, weights, minlength=shape[0] * shape[1])
            return np.asarray(counted.reshape(shape).T, dtype=float)

        placed = self._facts.placement
        counts = made.counts if placed is None else np.array([own for _, _, own in placed.clients])
        clients, records = by_pair(np.ones(len(counts))), by_pair(counts.astype(float))
        contributing = np.zeros(clients.shape)  # a pair that sits out adds neither step nor noise
        noise = np.zeros(clients.shape)
        for size in map(int, np.unique(clients)):
            if size and trust.takes_part(size):
                contributing[clients == size] = 1.0
                noise[clients == size] = (trust.excess(size) if trust.aggregates else size) / size**2
        steps = contributing * by_pair(np.minimum(1.0, counts / self._full)) / np.maximum(clients, 1.0)
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
        whole, targets = made.features, made.targets
        if made.tests:
            tests = [made.tests[name] for name in made.cluster_ids if name in made.tests]
            own = [q for q, name in enumerate(made.cluster_ids) if name in made.tests]
            whole = np.vstack([whole, *(test.features for test in tests)])
            targets = np.concatenate([targets, *(test.targets for test in tests)])
            cluster = np.concatenate([cluster, *(np.full(len(t.targets), q) for q, t in zip(own, tests, strict=True))])
        self._begin = 1.0 / self._facts.labels
        self._offset = float(logit(self._begin))
        labels = targets if self._facts.task == "regression" else targets - self._begin
        features = clip_rows(whole, x_norm)
        rng = np.random.default_rng(0)
        seen = rng.choice(len(features), min(len(features), max(2, round(self._pair_records * self._nearby))), False)
        curvature, directions = np.linalg.eigh(features[seen].T @ features[seen] / len(seen))
        truth = made.truth if made.truth is not None else _best(features, labels, cluster, self._clusters)
        along, common = truth @ directions, truth.mean(axis=0) @ directions
        groups = _groups(len(curvature), SINGLE_DIRECTIONS if self._facts.rows else 0)
        middle = features.mean(axis=0) @ directions
        self._curvature = np.array([max(float(curvature[group].mean()), 1e-12) for group in groups])
        self._count = np.array([float(len(group)) for group in groups])
        rows_in_common = (features.mean(axis=0) @ directions) ** 2 / np.maximum(curvature, 1e-12)
        self._in_common = np.array([min(float(rows_in_common[group].mean()), 1.0) for group in groups])
        apart = ((along - common) ** 2).mean(axis=0)
        self._energy = np.array([[(common[group] ** 2).sum(), apart[group].sum()] for group in groups])
        self._middle = np.array([float(common[group] @ middle[group]) for group in groups])
        self._signal = float(self._energy.sum(axis=1) @ self._curvature)
        self._total = float(labels.var())
        fitted = np.einsum("ij,ij->i", features, truth[cluster])
        unclipped = (
            fitted
            if features is whole
            else np.einsum("ij,ij->i", whole, _best(whole, labels, cluster, self._clusters)[cluster])
        )
        self._least = float(np.mean((labels - unclipped) ** 2))  # of the best models of rows as they are
        self._residual = float(np.mean((labels - fitted) ** 2)) if self._facts.task == "regression" else self._total
        self._astray = self._residual / (self._pair_records * self._curvature)
        self._residual = self._residual if self._facts.task == "regression" else 0.0


@lru_cache(maxsize=MODES_KEPT)
def _modes(graph: Graph, clients: tuple[int, ...]) -> Modes:
    """Kept, because the same twin serves for every ε and trust, and a thousand servers take a second."""
    return Modes.of(graph, np.array(clients))


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
