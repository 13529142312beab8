"""A late choice: where membership is in doubt, clients say once more which model suits them, while training runs.

Models that are trained for a while tell clusters apart better than gradients at the common model do. So every client
releases, with noise and for a charge, how well the models of all clusters suit its records. That is added to what its
sketches said: the same mixture is fitted to more coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgfl.algorithms.clustering import Mixture, refined
from pgfl.arrays import AnyFloats, Floats, Ints
from pgfl.privacy.discovery import CHOICE_AT, choice_clip
from pgfl.simulate.sketches import Sketches


@dataclass(frozen=True, eq=False)
class LateChoice:
    """What all clients have released so far, the clusters found in it, and φ of the choice."""

    sketches: Sketches
    found: Mixture
    gradient_bound: float
    phi: float

    @staticmethod
    def round(rounds: int) -> int:
        """The round after which clients choose; 0 if there are too few."""
        return int(CHOICE_AT * rounds)

    def made(self, models: AnyFloats, records: Ints) -> Mixture:
        """The mixture after every client's choice among the clusters' models."""
        self.sketches.choose(models, choice_clip(self.gradient_bound, models), self.phi)
        return refined(self.found, self.sketches.points, self.sketches.noise, records)


def keeping_pairs(labels: Ints, before: Ints, servers: Ints, posterior: Floats) -> Ints:
    """The new labels, but whoever would be the last to leave a cluster at a server stays.

    A server cannot go on without a model that its neighbours count on. Of those who would leave, the one stays that
    most probably belongs there.
    """
    kept = labels.copy()
    for server, cluster in {*zip(servers.tolist(), before.tolist(), strict=True)}:
        here = np.flatnonzero((servers == server) & (before == cluster))
        if not ((labels == cluster) & (servers == server)).any():
            kept[here[np.argmax(posterior[here, cluster])]] = cluster
    return kept
