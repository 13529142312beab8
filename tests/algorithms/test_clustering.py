"""Clusters of released points: as many as there are, none that chance or heavy tails suggest."""

import numpy as np
import pytest

from pgfl.algorithms.clustering import cluster_by_halves, directions, find_clusters, fit
from pgfl.metrics import adjusted_rand_index


def points(rng, labels, distance, noise, records, spread):
    """Centres in a simplex `distance` apart, the spread of records, and noise of its own deviation for every client."""
    centres = distance / np.sqrt(2.0) * np.eye(4)[labels]
    return (
        centres
        + rng.standard_normal((len(labels), 4)) * np.sqrt(spread / records)[:, None]
        + rng.standard_normal((len(labels), 4)) * noise[:, None]
    )


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(8100, 8102))
@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_mixture_with_known_noise_has_as_many_components_as_there_are(count, seed):
    rng = np.random.default_rng(seed)
    labels, records = np.arange(120) % count, rng.integers(20, 200, 120)
    noise = 40.0 / records  # small clients have much more noise
    made = points(rng, labels, 6.0, noise, records, 9.0)
    found = find_clusters(made, np.repeat(noise[:, None] ** 2, 4, axis=1), records, rng)
    assert len(found.centres) == count
    assert adjusted_rand_index(found.labels, labels) > 0.9
    assert found.posterior.sum(axis=1) == pytest.approx(1.0)


def test_the_spread_of_records_is_estimated_beside_noise_that_is_known():
    rng = np.random.default_rng(8110)
    records = rng.integers(20, 200, 4000)
    made = points(rng, np.zeros(4000, dtype=int), 0.0, np.full(4000, 0.2), records, 9.0)
    found = fit(made, np.full((4000, 4), 0.04), records, 1, rng)
    assert found.spread == pytest.approx(9.0 * np.eye(4), abs=1.0)


@pytest.mark.parametrize("seed", range(8120, 8122))
def test_what_the_second_halves_do_not_show_is_no_cluster(seed):
    """Records of two kinds that every client has: the one record in a half tells clients apart, and only by chance."""
    rng = np.random.default_rng(seed)
    first, second = rng.standard_normal((2, 80, 12))
    first[:, 0] += rng.choice([-5.0, 5.0], 80)
    second[:, 0] += rng.choice([-5.0, 5.0], 80)
    records = np.ones(80, dtype=int)
    along = first @ directions(first, records).T
    assert len(find_clusters(along, np.zeros_like(along), records, rng).centres) > 1  # a mixture alone is misled
    assert len(cluster_by_halves(first, second, (records, records), rng).centres) == 1


def test_directions_are_orthonormal_and_hold_the_differences():
    rng = np.random.default_rng(8130)
    truth = rng.standard_normal((3, 40))
    made = truth[np.arange(90) % 3] + 0.05 * rng.standard_normal((90, 40))
    along = directions(made, np.ones(90), 2)
    assert along @ along.T == pytest.approx(np.eye(2))
    apart = truth - truth.mean(axis=0)
    assert np.sum((apart @ along.T) ** 2) == pytest.approx(np.sum(apart**2), rel=0.01)


@pytest.mark.parametrize(
    ("first", "second", "index"), [([0, 0, 1, 1], [1, 1, 0, 0], 1.0), ([0, 0, 1, 1], [0, 1, 0, 1], -0.5)]
)
def test_the_adjusted_rand_index(first, second, index):
    assert adjusted_rand_index(np.array(first), np.array(second)) == pytest.approx(index)
