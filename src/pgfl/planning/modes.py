"""The modes of servers that weigh their neighbours by clients: what all of them agree on, and how differences fade.

The weights A are not symmetric: a server with many clients counts for more than it listens. But diag(π)A is symmetric
for the weights π that servers end up with, so A has real eigenvalues, and left and right vectors that follow from the
eigenvectors of a symmetric matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgfl.array_types import Floats, Ints
from pgfl.core.topology import Graph, by_clients


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
        """How much of independent numbers with such variances at every server clients feel, by mode.

        After k rounds of averages it has to be multiplied by the eigenvalue to the power of 2k. Products of different
        modes are left out; they are small where neighbourhoods have about the same numbers of clients.
        """
        return np.asarray((self.left**2).T @ variances * ((self.right**2).T @ self.seen))
