"""Find clusters of points whose noise is known: a mixture of Gaussians, with as many components as BIC supports.

A point is what one client has released: the mean over its D_k records along a few directions, plus noise of a public
variance. A client of cluster q is distributed as N(μ_q, A/D_k + σ_k² I): A, the spread of records, is fitted; the noise
is known. Nothing here looks at a record, so whatever it returns about released points costs no privacy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pgfl.arrays import Floats, Ints

DRAWS = 4_000
FEWEST = 5  # clients of a cluster
MOST_CLUSTERS = 12
RESTARTS, FIRST_STEPS, MOST_STEPS = 10, 12, 300
LEAST_GAIN = 1e-5  # of log-likelihood per point, by which a step must improve it
FLOOR = 1e-9  # of the points' variance: the least spread of records, so that no component collapses
MOST_DIRECTIONS, CLIENTS_PER_DIRECTION = 8, 8
CONFIRMED = 4.0  # standard errors by which two clusters must differ on records that did not find them


@dataclass(frozen=True, eq=False)
class Mixture:
    """Centres (Q, r), shares (Q,), the spread A of records (r, r), and the posterior (K, Q) of every point."""

    centres: Floats
    shares: Floats
    spread: Floats
    posterior: Floats
    log_likelihood: float

    @property
    def bic(self) -> float:
        """−2 log L + p log K: smaller is better."""
        (count, width), points = self.centres.shape, len(self.posterior)
        parameters = count * width + count - 1 + width * (width + 1) // 2
        return float(parameters * np.log(points) - 2.0 * self.log_likelihood)

    @property
    def labels(self) -> Ints:
        """The most probable component of every point."""
        return np.asarray(self.posterior.argmax(axis=1), dtype=np.int64)

    @property
    def misplaced(self) -> float:
        """How many points are expected to belong to another component than their most probable one."""
        return float((1.0 - self.posterior.max(axis=1)).sum())

    def by_size(self) -> Mixture:
        """The components that are the most probable one of some point, the largest first."""
        held, sizes = np.unique(self.labels, return_counts=True)
        kept = held[np.argsort(-sizes, kind="stable")]
        posterior = self.posterior[:, kept]
        return replace(
            self,
            centres=self.centres[kept],
            shares=self.shares[kept] / self.shares[kept].sum(),
            posterior=posterior / posterior.sum(axis=1, keepdims=True),
        )


def find_clusters(points: Floats, noise: Floats, records: Ints, rng: np.random.Generator) -> Mixture:
    """The mixture that BIC prefers, from one component upwards until two more do not improve it.

    `noise` (K, r) holds the known variance of every coordinate, 0 where there is none. A mixture with a component of
    fewer than `FEWEST` points is not considered.

    >>> rng = np.random.default_rng(0)
    >>> points = np.concatenate([rng.standard_normal((30, 2)), 6.0 + rng.standard_normal((30, 2))])
    >>> find_clusters(points, np.ones((60, 2)), np.full(60, 10), rng).centres.shape
    (2, 2)
    """
    best, worse = fit(points, noise, records, 1, rng), 0
    for count in range(2, min(MOST_CLUSTERS, len(points) // FEWEST) + 1):
        found = fit(points, noise, records, count, rng)
        large = np.bincount(found.labels, minlength=count).min() >= FEWEST
        best, worse = (found, 0) if large and found.bic < best.bic else (best, worse + 1)
        if worse == 2:
            break
    return best


def refined(found: Mixture, points: Floats, noise: Floats, records: Ints) -> Mixture:
    """The mixture of the same components after more coordinates have been released of every point."""
    shares = found.posterior / found.posterior.sum(axis=0)
    return _expectation_maximisation(points, noise, records, shares.T @ points)


def most_likely_least(values: Floats, variance: Floats, rng: np.random.Generator) -> Floats:
    """How probable it is that each of a client's Q values (K, Q) is its least, if their errors have this variance."""
    drawn = values + np.sqrt(variance)[:, None] * rng.standard_normal((DRAWS, *values.shape))
    least = drawn.argmin(axis=2)
    return np.asarray([(least == q).mean(axis=0) for q in range(values.shape[1])]).T


def cluster_by_halves(first: Floats, second: Floats, records: tuple[Ints, Ints], rng: np.random.Generator) -> Mixture:
    """Cluster clients by exact means over the two halves of their records, (K, d) each, with so many records in each.

    Clusters are found in the first halves and kept if the second ones show them, too: records of one distribution
    differ between clients by chance, but not twice in the same way. So clients that do not differ are one cluster,
    whatever the shape of their distribution. The second half of a client with one record is empty, and not looked at.
    """
    along = directions(first, records[0])
    points, other = first @ along.T, second @ along.T
    found = find_clusters(points, np.zeros_like(points), records[0], rng)
    labels = _merged(found, other, np.asarray(records[1], dtype=float))
    total = np.asarray(records[0]) + np.asarray(records[1])
    whole = (first * records[0][:, None] + second * records[1][:, None]) / total[:, None]
    points = whole @ directions(whole, total).T
    centres = np.array([np.average(points[labels == q], axis=0, weights=total[labels == q]) for q in np.unique(labels)])
    return _expectation_maximisation(points, np.zeros_like(points), total, centres)


def directions(vectors: Floats, weights: Ints | Floats, count: int | None = None) -> Floats:
    """The orthonormal directions (r, d) along which clients' vectors (K, d) differ most; clients count by weight."""
    most = np.clip(len(vectors) // CLIENTS_PER_DIRECTION, 2, MOST_DIRECTIONS) if count is None else count
    centred = vectors - np.average(vectors, axis=0, weights=weights)
    return np.asarray(np.linalg.svd(centred * np.sqrt(weights)[:, None], full_matrices=False)[2][: int(most)])


def _merged(found: Mixture, points: Floats, records: Floats) -> Ints:
    """The labels, with every two clusters made one that points of other records do not tell apart."""
    labels = found.labels.copy()
    while len(names := np.unique(labels)) > 1:
        pairs = [(q, r) for q in names for r in names if q < r]
        gaps = [_gap(found, points, records, labels, q, r) for q, r in pairs]
        if min(gaps) >= CONFIRMED:
            break
        kept, merged = pairs[int(np.argmin(gaps))]
        labels[labels == merged] = kept
    return labels


def _gap(found: Mixture, points: Floats, records: Floats, labels: Ints, first: int, second: int) -> float:
    """How many standard errors two clusters lie apart along the line through their centres."""
    along = np.linalg.solve(found.spread, found.centres[second] - found.centres[first])
    values, mine, others = points @ along, records * (labels == first), records * (labels == second)
    if not (mine.any() and others.any()):
        return 0.0
    means = (mine @ values / mine.sum(), others @ values / others.sum())
    square = mine @ (values - means[0]) ** 2 + others @ (values - means[1]) ** 2
    free = np.count_nonzero(mine) + np.count_nonzero(others) - 2
    error = square / max(free, 1) * (1.0 / mine.sum() + 1.0 / others.sum())
    return float((means[1] - means[0]) / np.sqrt(error)) if error > 0.0 else np.inf


def fit(points: Floats, noise: Floats, records: Ints, count: int, rng: np.random.Generator) -> Mixture:
    """The likeliest mixture of so many components: of several starts, the one that is ahead after a few steps."""
    starts = [_spread_out(points, count, rng) for _ in range(RESTARTS if count > 1 else 1)]
    tried = [_expectation_maximisation(points, noise, records, centres, FIRST_STEPS) for centres in starts]
    best = max(tried, key=lambda one: one.log_likelihood)
    return _expectation_maximisation(points, noise, records, best.centres, MOST_STEPS, best)


def _spread_out(points: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Points far from each other, drawn as k-means++ does, as the first centres."""
    chosen = [points[rng.integers(len(points))]] if count > 1 else [points.mean(axis=0)]
    while len(chosen) < count:
        distance = np.min([((points - centre) ** 2).sum(axis=1) for centre in chosen], axis=0)
        total = distance.sum()
        chosen.append(points[rng.choice(len(points), p=distance / total if total > 0.0 else None)])
    return np.array(chosen)


def _expectation_maximisation(
    points: Floats, noise: Floats, records: Ints, centres: Floats, steps: int = MOST_STEPS, start: Mixture | None = None
) -> Mixture:
    (size, width), count = points.shape, len(centres)
    weight = np.asarray(records, dtype=float)
    identity = np.eye(width)
    floor = FLOOR * max(float(points.var()), np.finfo(float).tiny) * identity
    known = noise[:, :, None] * identity
    nearest = ((points[:, None] - centres) ** 2).sum(axis=2).min(axis=1).mean() / width
    spread = max(nearest - noise.mean(), 0.1 * nearest) * weight.mean() * identity + floor
    shares, previous = np.full(count, 1.0 / count), -np.inf
    if start is not None:
        spread, shares = start.spread, start.shares
    for step in range(steps):
        own = spread / weight[:, None, None]  # A/D_k
        inverse = np.linalg.inv(own + known)
        log = _log_densities(points, centres, inverse) + np.log(np.maximum(shares, np.finfo(float).tiny))
        total = np.logaddexp.reduce(log, axis=1)
        posterior, likelihood = np.exp(log - total[:, None]), float(total.sum())
        if step == steps - 1 or likelihood - previous < LEAST_GAIN * size:
            break
        previous, shares = likelihood, posterior.mean(axis=0)
        centres = _centres(points, posterior, inverse, centres)
        expected = own @ inverse  # what of a point's distance to its centre its records are expected to make up
        moved = np.einsum("kij,kqj->kqi", expected, points[:, None] - centres)
        scaled = (moved * np.sqrt(posterior * weight[:, None])[..., None]).reshape(-1, width)
        left = np.einsum("k,kij->ij", weight, own - expected @ own)
        spread = (scaled.T @ scaled + left) / size + floor
    return Mixture(centres, shares, spread, posterior, likelihood)


def _log_densities(points: Floats, centres: Floats, inverse: Floats) -> Floats:
    """log N(point; centre, inverse⁻¹) of every point and centre, (K, Q)."""
    apart = points[:, None] - centres
    square = np.einsum("kqi,kij,kqj->kq", apart, inverse, apart, optimize=True)
    constant = np.linalg.slogdet(inverse)[1] - points.shape[1] * np.log(2.0 * np.pi)
    return np.asarray(0.5 * (constant[:, None] - square))


def _centres(points: Floats, posterior: Floats, inverse: Floats, before: Floats) -> Floats:
    """The means of components, every point counting by its precision; one that has lost its points stays."""
    weights = np.einsum("kq,kij->qij", posterior, inverse)
    sums = np.einsum("kq,kij,kj->qi", posterior, inverse, points, optimize=True)
    held = posterior.sum(axis=0) > 1e-6
    found = np.array(before)
    found[held] = np.linalg.solve(weights[held], sums[held][..., None])[..., 0]
    return found
