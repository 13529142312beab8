"""What is measured while a simulation runs: a row a run and recorded round.

Measures of clean client models are apart from those of server models: with privacy on, only the latter may be shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgfl import metrics
from pgfl.simulate.engine import Engine
from pgfl.simulate.layout import RunLayout
from pgfl.simulate.problems import Objectives, objective_of
from pgfl.theory import cluster_objective

Floats = NDArray[np.floating]
Columns = dict[str, NDArray[Any]]
METRICS = ("nmsd", "accuracy", "objective", "residuals", "disagreement", "distance")
CLUSTERS_SHOWN = 12


class Recorder:
    """Collects the history of an engine's runs."""

    def __init__(self, engine: Engine, objectives: Objectives, wanted: Iterable[str]) -> None:
        self.engine, self.layout = engine, engine.layout
        self.wanted = set(wanted)
        self._run_of_client = np.repeat(
            np.arange(len(self.layout.runs)), [run.federation.size for run in self.layout.runs]
        )
        self._truth = self._truths() if "nmsd" in self.wanted else None
        self._optima = self._exact_optima(objectives) if "distance" in self.wanted else None
        self.shown: list[dict[str, float]] = []
        self.clean: list[dict[str, float]] = []

    def record(self) -> None:
        """Measure the current state."""
        clean: list[dict[str, float]] = [{} for _ in self.layout.runs]
        shown: list[dict[str, float]] = [{} for _ in self.layout.runs]
        model, servers = np.asarray(self.engine.state.model), np.asarray(self.engine.state.server_models)
        received = servers[self.layout.client_pair]
        if self._truth is not None:
            self._deviations(clean, model)
            self._deviations(shown, received)
        if "objective" in self.wanted:
            self._objective_values(clean)
        if "residuals" in self.wanted:
            self._residuals(clean, shown, model, received, servers)
        for number, run in enumerate(self.layout.runs):
            known = self.engine.network.known[run.pairs]
            held, clusters = servers[run.pairs][known], self.layout.pair_cluster[run.pairs][known]
            if "disagreement" in self.wanted:
                shown[number]["disagreement"] = metrics.disagreement(held, clusters)
            if self._optima is not None and len(held):
                clean[number]["distance"] = metrics.relative_distance(held, self._optima[number][clusters])
            if "accuracy" in self.wanted and run.federation.tests is not None:
                clean[number]["accuracy"] = self._accuracy(run, model[run.clients])
                shown[number]["accuracy"] = self._accuracy(run, received[run.clients])
        for number, run in enumerate(self.layout.runs):
            place = {"run": run.number, "round": self.engine.state.round}
            self.clean.append(place | clean[number])
            self.shown.append(place | shown[number])

    def _deviations(self, rows: list[dict[str, float]], models: Floats) -> None:
        assert self._truth is not None
        deviation = metrics.deviation(models, self._truth)
        sizes = np.bincount(self._run_of_client)
        means = np.bincount(self._run_of_client, weights=deviation) / sizes
        for number, run in enumerate(self.layout.runs):
            rows[number]["nmsd"] = float(means[number])
            names = run.federation.cluster_ids
            if not 1 < len(names) <= CLUSTERS_SHOWN:
                continue
            cluster = run.federation.client_cluster[run.order]
            sums = np.bincount(cluster, weights=deviation[run.clients], minlength=len(names))
            members = np.bincount(cluster, minlength=len(names))
            for name, total, count in zip(names, sums, members, strict=True):
                rows[number][f"nmsd_{name}"] = float(total / count) if count else np.nan

    def _objective_values(self, rows: list[dict[str, float]]) -> None:
        values = np.concatenate(
            [
                np.asarray(block.problem(None).objective(self.engine.state.model[block.clients]))
                for block in self.engine.blocks
            ]
        )
        for number, run in enumerate(self.layout.runs):
            rows[number]["objective"] = float(values[run.clients].mean())

    def _residuals(
        self,
        clean: list[dict[str, float]],
        shown: list[dict[str, float]],
        model: Floats,
        received: Floats,
        servers: Floats,
    ) -> None:
        moved = self.engine.algorithm.rho * (servers - np.asarray(self.engine.previous_servers))
        for number, run in enumerate(self.layout.runs):
            clean[number]["primal_residual"] = metrics.root_mean_square(model[run.clients] - received[run.clients])
            shown[number]["dual_residual"] = metrics.root_mean_square(moved[run.pairs])

    def _accuracy(self, run: RunLayout, models: Floats) -> float:
        """The mean over clients of each model's accuracy on its cluster's test set; equal models are scored once."""
        federation, total = run.federation, 0.0
        cluster = federation.client_cluster[run.order]
        for q, name in enumerate(federation.cluster_ids):
            test = (federation.tests or {}).get(name)
            chosen = np.flatnonzero(cluster == q)
            if test is None or not len(chosen):
                continue
            distinct, counts = np.unique(models[chosen].astype(test.features.dtype), axis=0, return_counts=True)
            total += float(metrics.accuracy(distinct, test.features, test.targets) @ counts)
        return total / len(models)

    def _truths(self) -> Floats | None:
        if any(run.federation.truth is None for run in self.layout.runs):
            return None
        return np.concatenate(
            [run.federation.truth[run.federation.client_cluster[run.order]] for run in self.layout.runs]  # type: ignore[index]
        )

    def _exact_optima(self, objectives: Objectives) -> list[Floats]:
        found = []
        for run in self.layout.runs:
            federation = run.federation
            chosen = [objective_of(objectives, name) for name in federation.cluster_ids]
            members = np.bincount(federation.client_cluster, minlength=len(chosen))
            optima = [
                cluster_objective(federation, objective, q).minimiser()  # type: ignore[arg-type]
                if members[q]
                else np.zeros(federation.dimension)
                for q, objective in enumerate(chosen)
            ]
            found.append(np.array(optima))
        return found


def columns(rows: list[dict[str, float]]) -> Columns:
    """Rows of measures as columns, sorted by run and round; a measure that a row lacks is NaN there."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = {name: np.array([row.get(name, np.nan) for row in rows]) for name in names}
    order = np.lexsort((table["round"], table["run"]))
    return {
        name: values[order].astype(np.int64) if name in ("run", "round") else values[order]
        for name, values in table.items()
    }
