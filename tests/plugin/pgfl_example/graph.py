"""A wheel: a ring around a hub."""

from pgfl import Graph


def wheel(size, average_degree, rng):
    """Server 0 is the hub; the others form a ring."""
    ring = [(i, i + 1) for i in range(1, size - 1)] + ([(1, size - 1)] if size > 3 else [])
    return Graph.from_edges(size, [(0, i) for i in range(1, size)] + ring)
