import numpy as np
import pytest

from pgfl.errors import PgflError
from pgfl.federation.graphs import ring
from pgfl.federation.synthetic import synthetic_regression
from pgfl.streams import Purpose, stream

SMALL = {"servers": 4, "clients_per_server": 5, "dimension": 6, "graph": "ring"}


def test_the_papers_network():
    federation = synthetic_regression()
    assert (federation.size, federation.dimension, len(federation.server_ids)) == (150, 60, 10)
    assert federation.server_sizes.tolist() == [15] * 10
    assert np.bincount(federation.client_cluster).tolist() == [50, 50, 50]
    assert set(federation.counts.tolist()) == set(range(2, 10))
    assert federation.graph.connected
    assert len(federation.graph.edges) == 15
    assert federation.names is None
    assert federation.client_ids == tuple(sorted(federation.client_ids))


def test_clusters_are_observable_together_but_not_at_a_client_or_server():
    federation = synthetic_regression()
    for q in range(3):
        of_cluster = np.repeat(federation.client_cluster == q, federation.counts)
        of_server = np.repeat(federation.client_server == 0, federation.counts)
        assert np.linalg.matrix_rank(federation.features[of_cluster]) == 60
        assert np.linalg.matrix_rank(federation.features[of_cluster & of_server]) < 60


def test_targets_follow_the_models_with_the_noise_asked_for():
    federation = synthetic_regression(servers=10, clients_per_server=300, dimension=20, observation_noise=0.7)
    labels = np.repeat(federation.client_cluster, federation.counts)
    residuals = federation.targets - np.einsum("ij,ij->i", federation.features, federation.truth[labels])
    size = len(residuals)
    assert abs(residuals.std() / 0.7 - 1) < 5 / np.sqrt(2 * size)
    assert abs(federation.features.mean()) < 5 / np.sqrt(federation.features.size)
    assert abs(federation.features.var() - 1) < 5 * np.sqrt(2 / federation.features.size)
    exact = synthetic_regression(**SMALL, observation_noise=0.0)
    labels = np.repeat(exact.client_cluster, exact.counts)
    assert np.allclose(exact.targets, np.einsum("ij,ij->i", exact.features, exact.truth[labels]), atol=1e-12)


def test_models_are_the_base_stretched_by_gamma():
    base = stream(3, 1, Purpose.TRUTH).standard_normal(200)
    each = synthetic_regression(**SMALL | {"dimension": 200}, gamma=0.5, seed=3, run=1).truth / base - 1
    assert np.abs(each).max() <= 0.5
    assert np.abs(each).max() > 0.45
    assert abs(each.std() - 0.5 / np.sqrt(3)) < 0.03
    once = synthetic_regression(**SMALL, gamma=0.5, per_coordinate=False).truth
    ratio = once / once[0]
    assert np.allclose(ratio, ratio[:, :1])
    assert len(np.unique(ratio[:, 0].round(12))) == 3
    assert np.ptp(synthetic_regression(**SMALL, gamma=0.0).truth, axis=0).max() == 0


def test_seed_and_run_give_new_data_and_the_same_ones_the_same_bits():
    first, again = synthetic_regression(**SMALL, seed=1), synthetic_regression(**SMALL, seed=1)
    assert np.array_equal(first.features, again.features)
    assert np.array_equal(first.targets, again.targets)
    for other in (synthetic_regression(**SMALL, seed=2), synthetic_regression(**SMALL, seed=1, run=1)):
        assert not np.array_equal(first.truth, other.truth)
        assert not np.array_equal(first.features[:2], other.features[:2])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_parts_make_up_the_whole_bit_for_bit(dtype):
    options = {"servers": 7, "clients_per_server": [3, 0, 5, 1, 4, 2, 6], "dimension": 4, "seed": 5, "dtype": dtype}
    whole = synthetic_regression(**options)
    parts = [synthetic_regression(**options, servers_subset=own) for own in ([4, 0], [1, 2, 6], [3], [5])]
    assert sum(part.size for part in parts) == whole.size
    for part in parts:
        assert np.array_equal(part.graph.edges, whole.graph.edges)
        assert part.server_ids == whole.server_ids
        assert np.array_equal(part.truth, whole.truth)
        for index, name in enumerate(part.client_ids):
            number = whole.client_index(name)
            assert part.client_server[index] == whole.client_server[number]
            assert part.client_cluster[index] == whole.client_cluster[number]
            assert np.array_equal(part.rows(index)[0], whole.rows(number)[0])
            assert np.array_equal(part.rows(index)[1], whole.rows(number)[1])


def test_float32_is_drawn_as_float32_with_nothing_else_changed():
    single, double = (synthetic_regression(**SMALL, dtype=dtype) for dtype in (np.float32, np.float64))
    assert {single.features.dtype, single.targets.dtype, single.truth.dtype} == {np.dtype(np.float32)}
    assert np.array_equal(single.counts, double.counts)
    assert np.array_equal(single.client_cluster, double.client_cluster)
    assert np.allclose(single.truth, double.truth, rtol=1e-6)


def test_bounded_rows_keep_the_size_of_the_signal():
    bounded = synthetic_regression(clients_per_server=100, x_norm=1.0, observation_noise=0.0)
    free = synthetic_regression(clients_per_server=100, observation_noise=0.0)
    assert np.allclose(np.linalg.norm(bounded.features, axis=1), 1.0)
    assert 0.95 < bounded.targets.std() / free.targets.std() < 1.05
    same_units = synthetic_regression(clients_per_server=100, x_norm=np.sqrt(60))
    assert np.allclose(same_units.truth, free.truth)


def test_test_sets_are_fresh_samples_of_each_cluster():
    federation = synthetic_regression(**SMALL, test_samples=500, observation_noise=0.1)
    assert set(federation.tests) == set(federation.cluster_ids)
    for q, cluster in enumerate(federation.cluster_ids):
        test = federation.tests[cluster]
        assert test.features.shape == (500, 6)
        assert abs((test.targets - test.features @ federation.truth[q]).std() / 0.1 - 1) < 0.2
    plain = synthetic_regression(**SMALL, observation_noise=0.1)
    assert plain.tests is None
    assert np.array_equal(plain.features, federation.features)


@pytest.mark.parametrize("clusters", [1, 20])
def test_one_cluster_for_all_and_one_for_each(clusters):
    federation = synthetic_regression(**SMALL, clusters=clusters)
    assert np.bincount(federation.client_cluster).tolist() == [20 // clusters] * clusters


def test_clusters_differ_by_one_client_at_most_and_are_not_in_order():
    labels = synthetic_regression(**SMALL | {"clients_per_server": 50}).client_cluster
    assert sorted(np.bincount(labels).tolist()) == [66, 67, 67]
    assert (labels != np.arange(200) % 3).any()


def test_one_server_fixed_samples_and_a_ready_graph():
    assert synthetic_regression(servers=1, clients_per_server=4, dimension=2).graph.size == 1
    assert synthetic_regression(**SMALL, samples=3).counts.tolist() == [3] * 20
    graph = ring(4)
    assert synthetic_regression(**SMALL | {"graph": graph}).graph is graph


def test_progress_hears_every_server():
    received = []
    synthetic_regression(**SMALL, progress=lambda done, total: received.append((done, total)))
    assert received == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_features_are_filled_into_the_one_array_that_was_allocated(monkeypatch):
    allocated = []

    def allocate_once(generate):
        def allocate(shape, dtype):
            allocated.append(np.empty(shape, dtype))
            return allocated[-1]

        return generate(allocate)

    monkeypatch.setattr("pgfl.federation.synthetic.in_memory", allocate_once)
    federation = synthetic_regression(**SMALL)
    assert len(allocated) == 1
    assert federation.features is allocated[0]


def test_a_large_federation_needs_little_more_memory_than_its_data():
    import tracemalloc

    tracemalloc.start()
    federation = synthetic_regression(servers=200, clients_per_server=100, dimension=30, dtype=np.float32)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.2 * (federation.features.nbytes + federation.targets.nbytes)


def test_generated_federations_can_be_mapped(tmp_path):
    stored = synthetic_regression(**SMALL, store=tmp_path / "stored", test_samples=2)
    assert isinstance(stored.features, np.memmap)
    assert np.array_equal(stored.features, synthetic_regression(**SMALL).features)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"servers": 0}, "at least one server"),
        ({"clients_per_server": [1, 2]}, "given for 2"),
        ({"clients_per_server": [1, 2, 3, -1]}, "none negative"),
        ({"clients_per_server": 0}, "not all zero"),
        ({"clients_per_server": [1.5, 1, 1, 1]}, "whole numbers"),
        ({"clusters": 0}, "1 to 20 clusters; got 0"),
        ({"clusters": 21}, "1 to 20 clusters; got 21"),
        ({"dimension": 0}, "dimension must be at least 1"),
        ({"samples": 0}, "at least 1"),
        ({"samples": (3, 2)}, r"got \(3, 2\)"),
        ({"gamma": -1.0}, "gamma"),
        ({"gamma": np.nan}, "gamma"),
        ({"observation_noise": np.inf}, "noise"),
        ({"x_norm": 0.0}, "x_norm"),
        ({"test_samples": -1}, "test samples"),
        ({"graph": "torus"}, "choose one of random"),
        ({"graph": "random", "average_degree": 9.0}, "average degree"),
        ({"graph": ring(5)}, "graph has 5 servers"),
        ({"dtype": np.int64}, "float32 or float64; got int64"),
        ({"dtype": "nonsense"}, "float32 or float64; got 'nonsense'"),
        ({"servers_subset": [4]}, "0 to 3"),
        ({"servers_subset": []}, "0 to 3"),
        ({"seed": -1}, "seed"),
    ],
)
def test_what_cannot_be_generated_says_why(changes, sentence):
    with pytest.raises(PgflError, match=sentence):
        synthetic_regression(**SMALL | changes)
