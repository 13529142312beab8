"""Whether clusters are worth it: the models of a run beside simpler ones, on the same held-out rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgfl.arrays import Floats
from pgfl.results.report.figures import LABELS, figure

TRAINED, POOLED, TERM = "these models", "one model for all", "one model with a term per cluster"
APART, LOCAL = "each cluster by itself", "each client by itself"
LEAST, CLOSE = 0.005, 0.01  # a difference below the first is none; within the second, one way does as well as another
SURE, VERY_SURE = 2.0, 3.0  # standard errors of a difference: of one comparison, and of one among many clusters
MOST_EXCEPTIONS = 3
NOT_TRIED = (
    "Whether one model for all, or one per client, would do as well was not tried: under privacy each is a training "
    "of its own, which would spend the same ε again."
)
COSTS = {
    POOLED: "splitting by cluster costs",
    TERM: "splitting by cluster costs",
    APART: "learning from other clusters costs",
    LOCAL: "learning together costs",
}
NOTHING = {POOLED: "splitting by cluster", TERM: "splitting by cluster", LOCAL: "learning together"}


@dataclass(frozen=True)
class Alternatives:
    """A measure of every way to split the data, `TRAINED` first: of all held-out rows and of each cluster's.

    The figure of all is the mean over clusters, weighted by their clients. Each held-out row is predicted by the model
    of its own cluster, or of its own client. `sentence` says which is best for whom.
    """

    measure: str
    rows: int
    whole: Mapping[str, float]
    clusters: Mapping[str, Mapping[str, float]]
    sentence: str

    def to_json(self) -> dict[str, Any]:
        """Ready for `summary.json`."""
        return {
            "measure": self.measure,
            "rows": self.rows,
            "whole": dict(self.whole),
            "clusters": {name: dict(values) for name, values in self.clusters.items()},
            "sentence": self.sentence,
        }

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> Alternatives:
        """As `to_json` wrote it."""
        return cls(page["measure"], page["rows"], page["whole"], page["clusters"], page["sentence"])


@dataclass(frozen=True, eq=False)
class Contest:
    """Figures of all ways (W) in all clusters (Q), and the same on resampled held-out rows (B × W × Q).

    `weights` are the clusters' numbers of clients, those of undefined clusters 0. Higher is better.
    """

    measure: str
    rows: int
    ways: Sequence[str]
    cluster_ids: Sequence[str]
    figures: Floats
    resampled: Floats
    weights: Floats

    def outcome(self) -> Alternatives:
        """Return the figures and the sentence."""
        whole = self._whole(self.figures)
        named = dict(zip(self.ways, whole.tolist(), strict=True))
        defined = np.flatnonzero(self.weights > 0).tolist()
        clusters = {
            self.cluster_ids[q]: dict(zip(self.ways, self.figures[:, q].tolist(), strict=True)) for q in defined
        }
        best, words = self._conclusion(whole)
        return Alternatives(self.measure, self.rows, named, clusters, f"{words}.{self._exceptions(best)}")

    def _whole(self, figures: Floats) -> Floats:
        known = self.weights > 0
        return np.asarray((figures[..., known] * self.weights[known]).sum(axis=-1) / self.weights.sum())

    def _apart(self, values: Floats, resampled: Floats, one: int, other: int, sure: float) -> float:
        """Return how much better one way is than another; 0 if the rows are too few to tell."""
        difference = float(values[one] - values[other])
        error = float(np.nanstd(resampled[:, one] - resampled[:, other]))
        return difference if abs(difference) > max(sure * error, LEAST) else 0.0

    def _conclusion(self, whole: Floats) -> tuple[int, str]:
        """Return the way to take, and why."""
        resampled = self._whole(self.resampled)
        gains = [self._apart(whole, resampled, way, 0, SURE) for way in range(len(self.ways))]
        label, shown = LABELS[self.measure], [figure(self.measure, value) for value in whole.tolist()]
        best = int(np.argmax(np.where(np.array(gains) > 0, whole, -np.inf)))
        if gains[best] > 0:
            name = self.ways[best]
            words = f"{_capital(name)} does better: {label} {shown[best]} against {shown[0]}; {COSTS[name]}"
            return best, f"{words} {figure(self.measure, gains[best])}"
        for name in (POOLED, TERM, LOCAL):
            if name not in self.ways:
                continue
            way = list(self.ways).index(name)
            if not gains[way] and whole[way] >= whole[0] - CLOSE:
                words = f"{_capital(name)} does as well: {label} {shown[way]} against {shown[0]}"
                return way, f"{words}; what {NOTHING[name]} gains does not show on {self.rows} held-out rows"
        others = [f"{value} with {name}" for name, value in zip(self.ways[1:], shown[1:], strict=True) if name != APART]
        rivals = [way for way, name in enumerate(self.ways) if way and name != APART]
        settled = all(gains[way] < 0 for way in rivals)
        words = "These models are worth it" if settled else "These models are ahead"
        doubt = "" if settled else f"; {self.rows} held-out rows are too few to be sure"
        return 0, f"{words}: {label} {shown[0]} against {_listed(others)}{doubt}"

    def _exceptions(self, best: int) -> str:
        """Return the clusters for which another way is surely better than the one to take."""
        found = []
        for q in np.flatnonzero(self.weights > 0).tolist() if (self.weights > 0).sum() > 1 else ():
            gains = [
                self._apart(self.figures[:, q], self.resampled[:, :, q], way, best, VERY_SURE)
                for way in range(len(self.ways))
            ]
            if (gain := max(gains)) > 0:
                way = gains.index(gain)
                values = [figure(self.measure, float(self.figures[one, q])) for one in (way, best)]
                found.append(f"{self.cluster_ids[q]} ({self.ways[way]}: {values[0]} against {values[1]})")
        more = f" and {len(found) - MOST_EXCEPTIONS} more" if len(found) > MOST_EXCEPTIONS else ""
        return f" Otherwise for {', '.join(found[:MOST_EXCEPTIONS])}{more}." if found else ""


def _capital(name: str) -> str:
    return name[0].upper() + name[1:]


def _listed(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
