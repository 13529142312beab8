"""Who learned from whom: the weights that clusters have in each other's models, as a table and in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pgfl.arrays import AnyArray, Floats

ALONE = 0.05  # of a model: a cluster that takes less than this from all others learns alone
MOST_NAMED = 6  # clusters, in a sentence

Columns = dict[str, AnyArray]


def weights_table(matrices: Sequence[Floats], cluster_ids: Sequence[str]) -> Columns | None:
    """The table of all runs: run, cluster, learns_from, weight."""
    if not matrices:
        return None
    names = np.array(cluster_ids, dtype=np.str_)
    count, runs = len(names), len(matrices)
    return {
        "run": np.repeat(np.arange(runs), count * count),
        "cluster": np.tile(np.repeat(names, count), runs),
        "learns_from": np.tile(names, count * runs),
        "weight": np.concatenate([np.asarray(matrix, dtype=float).reshape(-1) for matrix in matrices]),
    }


def mean_weights(table: Columns, cluster_ids: Sequence[str]) -> Floats:
    """The weights averaged over runs, (Q, Q)."""
    count = len(cluster_ids)
    return np.asarray(np.asarray(table["weight"], dtype=float).reshape(-1, count, count).mean(axis=0))


def sentence(table: Columns, cluster_ids: Sequence[str]) -> str:
    """Who shares with whom: clusters that take from each other, how much of a model, and who learns alone.

    >>> table = weights_table([np.array([[0.6, 0.4, 0.0], [0.4, 0.6, 0.0], [0.0, 0.0, 1.0]])], ["a", "b", "c"])
    >>> sentence(table, ["a", "b", "c"])
    'a and b share 40 %; c learns alone.'
    """
    weights = mean_weights(table, cluster_ids)
    groups = _groups(np.maximum(weights, weights.T) > ALONE / 2)
    parts = []
    for group in sorted((group for group in groups if len(group) > 1), key=lambda group: group[0]):
        taken = float(np.mean([1.0 - weights[q, q] for q in group]))
        parts.append(f"{_named([cluster_ids[q] for q in group])} share {taken:.0%}".replace("%", " %"))
    alone = sorted(group[0] for group in groups if len(group) == 1)
    if alone:
        parts.append(f"{_named([cluster_ids[q] for q in alone])} {'learns' if len(alone) == 1 else 'learn'} alone")
    return "; ".join(parts) + "."


def _named(names: list[str]) -> str:
    more = len(names) - MOST_NAMED
    *first, last = [*names[:MOST_NAMED], *([f"{more} more"] if more > 0 else [])]
    return f"{', '.join(first)} and {last}" if first else last


def _groups(linked: AnyArray) -> list[list[int]]:
    """Return the connected parts of a graph."""
    left, found = set(range(len(linked))), []
    while left:
        waiting, group = [min(left)], []
        left -= set(waiting)
        while waiting:
            q = waiting.pop()
            group.append(q)
            near = [r for r in left if linked[q, r] or linked[r, q]]
            left -= set(near)
            waiting += near
        found.append(sorted(group))
    return found
