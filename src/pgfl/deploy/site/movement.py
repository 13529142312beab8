"""How a site's models have moved, from which the verdict on its page is made; they are public, so this is too.

Models are averaged over windows that grow with the rounds, as the simulator's monitor does it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pgfl.array_types import AnyArray, Floats
from pgfl.results.approach import Window, is_diverging, remaining
from pgfl.results.verdict import SETTLED, Verdict

GROWS = 1.25  # how much later each window ends than the one before
LEAST_ROUNDS = 8  # before which there is no verdict
_ARRAYS = ("sum", "before", "now")
_PREFIX = "movement."

Models = Mapping[str, Floats]


@dataclass
class Movement:
    """Follows the models of one site, cluster by cluster; a cluster that is not known yet counts as zero."""

    windows: list[Window] = field(default_factory=list)
    length: int = 0  # of the window that is open
    next: int = 1  # the round at which it ends
    clusters: list[str] = field(default_factory=list)
    sum: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    before: Floats = field(default_factory=lambda: np.zeros((0, 0)))  # the average of the window before
    now: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    def follow(self, round: int, models: Models) -> None:
        """Add the models of a completed round."""
        self._widen(models)
        last, self.now = self.now, np.array([models.get(cluster, 0.0 * self.now[0]) for cluster in self.clusters])
        self.sum, self.length = self.sum + self.now, self.length + 1
        if round < self.next or not self.clusters:
            return
        mean = self.sum / self.length
        vectors = (mean, self.now, mean - self.before, self.now - last, self.now - mean)
        self.windows.append(Window(round, self.length, *(float(np.linalg.norm(each)) for each in vectors)))
        self.before, self.sum, self.length = mean, np.zeros_like(mean), 0
        self.next = max(round + 1, int(GROWS * round))

    def begin_anew(self) -> None:
        """Forget everything: models were taken back."""
        self.__dict__.update(vars(Movement()))

    def _widen(self, models: Models) -> None:
        new = sorted(models.keys() - set(self.clusters))
        if new:
            rows = np.zeros((len(new), len(models[new[0]])))
            for name in _ARRAYS:
                kept: Floats = getattr(self, name)
                setattr(self, name, rows.copy() if not len(kept) else np.concatenate([kept, rows]))
            self.clusters += new

    def snapshot(self) -> dict[str, AnyArray]:
        """Arrays for the store."""
        about = {"length": self.length, "next": self.next, "clusters": self.clusters}
        about["windows"] = [vars(window) for window in self.windows]
        arrays: dict[str, AnyArray] = {f"{_PREFIX}{name}": getattr(self, name) for name in _ARRAYS}
        return arrays | {f"{_PREFIX}about": np.array(json.dumps(about))}

    @classmethod
    def restored(cls, arrays: Mapping[str, AnyArray]) -> Movement:
        """As `snapshot` stored it; new if it did not."""
        if f"{_PREFIX}about" not in arrays:
            return cls()
        about: dict[str, Any] = json.loads(str(arrays[f"{_PREFIX}about"]))
        windows = [Window(**window) for window in about.pop("windows")]
        total, before, now = (arrays[f"{_PREFIX}{name}"] for name in _ARRAYS)
        return cls(windows, about["length"], about["next"], about["clusters"], total, before, now)

    def verdict(self, rounds: int) -> Verdict | None:
        """What became of the models so far, of `rounds` in all; None while it is too early to tell."""
        if not self.windows or self.windows[-1].end < LEAST_ROUNDS or len(self.windows) < 2:
            return None
        if is_diverging(self.windows):
            sentence = "The models move more and more from round to round."
            return Verdict("diverging", sentence, "Look for clients or neighbours that send nonsense; see [bounds].")
        far, last = remaining(self.windows), self.windows[-1]
        figures = {"distance": far.total, "drift": far.drift, "spread": far.spread}
        noise = f"single rounds differ from their average by {far.spread:.1%}, noise included"
        if far.drift <= SETTLED:
            sentence = f"The models have settled: they are within {far.drift:.1%} of where they are heading; {noise}."
            return Verdict("converged", sentence, "", figures)
        sentence = (
            f"After round {last.end} of {rounds} the models are still about {far.drift:.0%} away from their limit"
        )
        return Verdict("not yet", f"{sentence}; {noise}.", "", figures)
