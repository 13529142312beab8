"""Rows that nobody trains on: a share by client, folds, or a table with clients."""

import numpy as np
import pytest

from pgfl import Federation
from pgfl.errors import DataError
from pgfl.federation.places import held_out_fold, held_out_share

COUNTS = np.array([1, 2, 3, 10, 37, 500])
OFFSETS = np.concatenate([[0], np.cumsum(COUNTS)])
CLIENT = np.repeat(np.arange(len(COUNTS)), COUNTS)


def by_client(held_out):
    return np.bincount(CLIENT[held_out], minlength=len(COUNTS))


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.99])
def test_a_share_by_client_leaves_everybody_a_row(share):
    held = by_client(held_out_share(OFFSETS, share, seed=3))
    assert (held <= COUNTS - 1).all()
    assert (np.abs(held - share * COUNTS) < 1)[COUNTS * (1 - share) >= 1].all()


def test_a_share_holds_on_average_for_small_clients():
    offsets = np.arange(0, 2 * 10_000 + 1, 2)
    assert held_out_share(offsets, 0.2, seed=0).mean() == pytest.approx(0.2, abs=0.01)


def test_a_small_table_has_one_test_row():
    for seed in range(20):
        held = held_out_share(np.array([0, 1, 3, 4]), 0.01, seed)
        assert held.sum() == 1
        assert held[1:3].any()


def test_the_seed_decides_and_nothing_else():
    first = held_out_share(OFFSETS, 0.2, seed=0)
    assert np.array_equal(first, held_out_share(OFFSETS, 0.2, seed=0))
    assert not np.array_equal(first, held_out_share(OFFSETS, 0.2, seed=1))


def test_clients_of_one_row_only_cannot_be_held_out():
    with pytest.raises(DataError, match=r"test = 0.2 holds out no row"):
        held_out_share(np.arange(6), 0.2, seed=0)
    with pytest.raises(DataError, match=r"folds = 5 holds out no row"):
        held_out_fold(np.arange(6), 5, 0, seed=0)


@pytest.mark.parametrize("folds", [2, 5])
def test_every_row_is_in_one_fold_and_every_client_keeps_rows(folds):
    masks = np.array([held_out_fold(OFFSETS, folds, fold, seed=7) for fold in range(folds)])
    assert (masks.sum(axis=0) == (COUNTS > 1)[CLIENT]).all()
    for mask in masks:
        assert (by_client(mask) < COUNTS).all()
        assert (by_client(mask) <= np.ceil(COUNTS / folds)).all()
    again = np.array([held_out_fold(OFFSETS, folds, folds + fold, seed=7) for fold in range(folds)])
    assert (again.sum(axis=0) == (COUNTS > 1)[CLIENT]).all()
    assert not np.array_equal(masks, again)


def table(rows=60):
    rng = np.random.default_rng(0)
    number = rng.integers(0, 6, size=rows)
    return {
        "client": [f"k{k}" for k in number],
        "server": [f"s{k % 3}" for k in number],
        "cluster": [f"q{k % 2}" for k in number],
        "y": np.arange(rows),
        "x": np.arange(rows) * 10,
    }


def test_a_share_of_a_table_is_tested_by_cluster_and_client():
    made, whole = Federation.read(table(), test=0.3), Federation.read(table())
    tested = np.concatenate([test.targets for test in made.tests.values()])
    assert sorted([*made.targets, *tested]) == list(range(60))
    assert made.client_ids == whole.client_ids
    for cluster, test in made.tests.items():
        owner = np.array([whole.client_index(table()["client"][int(y)]) for y in test.targets])
        assert np.array_equal(test.clients, owner)
        assert {made.cluster_ids[q] for q in made.client_cluster[owner]} == {cluster}
        assert np.array_equal(test.features[:, 0], 10 * test.targets)
    assert np.array_equal(made.features[:, 0], 10 * made.targets)


def test_a_part_holds_out_the_same_rows_and_numbers_its_own_clients():
    whole, part = Federation.read(table(), test=0.3), Federation.read(table(), test=0.3, servers_subset=[1])
    cut = whole.part([1])
    assert part.client_ids == cut.client_ids == ("k1", "k4")
    assert np.array_equal(part.targets, cut.targets)
    for cluster, test in part.tests.items():
        assert np.array_equal(test.targets, whole.tests[cluster].targets)
        assert np.array_equal(test.clients, cut.tests[cluster].clients)
        named = [whole.client_ids[k] for k in whole.tests[cluster].clients]
        assert [part.client_ids[k] if k >= 0 else None for k in test.clients] == [
            name if name in part.client_ids else None for name in named
        ]


def test_folds_of_a_table_cover_it():
    tested = []
    for fold in range(4):
        made = Federation.read(table(), folds=4, fold=fold)
        tested += [y for test in made.tests.values() for y in test.targets]
        assert len(made.targets) + sum(len(test.targets) for test in made.tests.values()) == 60
    assert sorted(tested) == list(range(60))


ROWS = {"client": ["k1", "k0", "new"], "cluster": ["q1", "q0", "q0"], "y": [1, 2, 3], "x": [4, 5, 6]}


class TestTables:
    def test_known_clients_are_numbered_and_new_ones_count_for_their_cluster(self):
        made = Federation.read(table(), test=ROWS)
        assert made.tests["q1"].clients.tolist() == [1]
        assert made.tests["q0"].clients.tolist() == [0, -1]

    def test_the_cluster_follows_from_the_client(self):
        rows = {name: cells for name, cells in ROWS.items() if name != "cluster"}
        with pytest.raises(DataError, match=r"data row 3: client 'new' is not in the clients' table.*'cluster'"):
            Federation.read(table(), test=rows)
        made = Federation.read(table(), test=rows | {"client": ["k1", "k0", "k2"]})
        assert {cluster: test.clients.tolist() for cluster, test in made.tests.items()} == {"q0": [0, 2], "q1": [1]}

    def test_a_client_in_another_cluster_is_refused(self):
        with pytest.raises(DataError, match=r"data row 2: client 'k0' is in cluster 'q0' of the clients' table"):
            Federation.read(table(), test=ROWS | {"cluster": ["q1", "q1", "q0"]})

    def test_neither_client_nor_cluster_is_needed_where_there_is_one_cluster(self):
        plain = {name: cells for name, cells in table().items() if name not in ("server", "cluster")}
        made = Federation.read(plain, test={"y": [1], "x": [2]})
        assert made.tests["all"].features.tolist() == [[2.0]]
        assert made.tests["all"].clients is None
        with pytest.raises(DataError, match="has no column 'cluster'"):
            Federation.read(table(), test={"y": [1], "x": [2]})
