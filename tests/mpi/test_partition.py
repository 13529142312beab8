"""Servers are split into equal shares with few edges between them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgfl.errors import ConfigError
from pgfl.federation.graphs import Graph, complete, empty, grid, line, random_connected, ring, star
from pgfl.simulate.mpi.partition import SLACK, edges_between, partition

GRAPHS = {
    "ring": ring(200),
    "line": line(90),
    "grid": grid(400),
    "random": random_connected(500, 3.0, np.random.default_rng(1)),
}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("parts", [2, 3, 8])
def test_far_fewer_edges_between_parts_than_at_random(name, parts):
    graph, rng = GRAPHS[name], np.random.default_rng(2)
    rows = rng.integers(1, 100, graph.size)
    part = partition(graph, rows, parts)
    at_random = np.mean([edges_between(graph, rng.integers(parts, size=graph.size)) for _ in range(10)])
    assert edges_between(graph, part) < 0.5 * at_random
    load = np.bincount(part, weights=rows, minlength=parts)
    assert load.max() <= (1 + SLACK) * load.mean() + rows.max()


def test_a_ring_and_a_line_are_cut_where_they_must_be():
    assert edges_between(ring(100), partition(ring(100), np.full(100, 5), 2)) == 2
    assert edges_between(line(100), partition(line(100), np.full(100, 5), 4)) == 3


def test_a_grid_is_cut_into_blocks_not_strips():
    """A square of 50 × 50 in 16 blocks has 6 cuts of 50 edges; in strips it would have 15."""
    assert edges_between(grid(2500), partition(grid(2500), np.full(2500, 5), 16)) < 11 * 50


@given(st.data())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_every_part_has_clients_and_no_part_is_overloaded(data):
    size = data.draw(st.integers(1, 30))
    kind = data.draw(st.sampled_from([ring, line, star, complete, empty, grid]))
    graph = kind(size) if size > 2 else Graph.from_edges(size, [])
    rows = np.array(data.draw(st.lists(st.integers(0, 50), min_size=size, max_size=size)))
    rows[data.draw(st.integers(0, size - 1))] = 1
    parts = data.draw(st.integers(1, int(np.count_nonzero(rows))))
    part = partition(graph, rows, parts)
    assert set(part[rows > 0]) == set(range(parts))
    weight = rows + 1
    load = np.bincount(part, weights=weight, minlength=parts)
    empties = np.bincount(part[rows == 0], minlength=parts).max()
    assert load.max() <= (1 + SLACK) * load.mean() + 2 * weight.max() + empties


def test_the_same_split_every_time():
    graph, rows = GRAPHS["random"], np.arange(1, 501)
    assert (partition(graph, rows, 5) == partition(graph, rows, 5)).all()


def test_more_ranks_than_servers_with_clients_is_refused():
    with pytest.raises(ConfigError, match="3 ranks are more than the 2 servers that have clients; start at most 2"):
        partition(ring(4), np.array([1, 0, 0, 5]), 3)
    with pytest.raises(ConfigError, match="1 rank or more; got 0"):
        partition(ring(4), np.array([1, 0, 0, 5]), 0)
