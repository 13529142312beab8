"""The colours of all pictures; the first eight can be told apart by people with colour blindness."""

from __future__ import annotations

CLUSTER_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#6a3d9a", "#8c564b")
MOST_COLOURS = len(CLUSTER_COLOURS)
INK, GREY = "#333333", "#8a8a8a"


def cluster_colour(index: int) -> str:
    """The colour of a cluster, the same in every picture."""
    return CLUSTER_COLOURS[index % MOST_COLOURS]
