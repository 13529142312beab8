"""What is measured while a simulation runs: a row a run and recorded round.

Measures of clean client models are apart from those of server models: with privacy on, only the latter may be shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgfl import metrics
from pgfl.kernels import Linear
from pgfl.simulate.engine import Engine
from pgfl.simulate.layout import RunLayout
from pgfl.simulate.problems import Objectives, objective_of
from pgfl.theory import cluster_objective

Floats = NDArray[np.floating]
Ints = NDArray[np.int64]
Columns = dict[str, NDArray[Any]]
METRICS = ("nmsd", "accuracy", "objective", "residuals", "disagreement", "distance")
CLUSTERS_SHOWN = 12
CLIENTS_AT_A_TIME = 2**12


class Recorder:
    """Collects the history of an engine's runs."""

    def __init__(self, engine: Engine, objectives: Objectives, wanted: Iterable[str]) -> None:
        self.engine, self.layout = engine, engine.layout
        self.wanted = set(wanted)
        self._run_of_client = np.repeat(
            np.arange(len(self.layout.runs)), [run.federation.size for run in self.layout.runs]
        )
        self._run_sizes = np.bincount(self._run_of_client)
        self._truth = self._truths() if "nmsd" in self.wanted else None
        self._optima = self._exact_optima(objectives) if "distance" in self.wanted else None
        self.shown: list[dict[str, float]] = []
        self.clean: list[dict[str, float]] = []

    def record(self) -> None:
        """Measure the current state."""
        clean: list[dict[str, float]] = [{} for _ in self.layout.runs]
        shown: list[dict[str, float]] = [{} for _ in self.layout.runs]
        servers = np.asarray(self.engine.state.server_models)
        if self._truth is not None:
            self._deviations(clean, self._of_clients(lambda some, model: self._deviation(model, some)))
            received = self._of_clients(lambda some, _: self._deviation(servers[self.layout.client_pair[some]], some))
            self._deviations(shown, received)
        if "objective" in self.wanted:
            self._objective_values(clean)
        if "residuals" in self.wanted:
            self._residuals(clean, shown, servers)
        if "disagreement" in self.wanted:
            self._disagreements(shown, servers)
        for number, run in enumerate(self.layout.runs):
            known = self.engine.network.known[run.pairs]
            if self._optima is not None and known.any():
                clusters = self.layout.pair_cluster[run.pairs][known]
                optima = self._optima[number][clusters]
                clean[number]["distance"] = metrics.relative_distance(servers[run.pairs][known], optima)
            if "accuracy" in self.wanted and run.federation.tests is not None:
                model = np.asarray(self.engine.state.model[run.clients])
                clean[number]["accuracy"] = self._accuracy(run, model)
                shown[number]["accuracy"] = self._accuracy(run, servers[self.layout.client_pair[run.clients]])
        for number, run in enumerate(self.layout.runs):
            place = {"run": run.number, "round": self.engine.state.round}
            self.clean.append(place | clean[number])
            self.shown.append(place | shown[number])

    def _of_clients(self, measure: Callable[[slice, Floats], Floats]) -> Floats:
        """A number a client, measured on some clients (and their models) at a time: no second copy of all models."""
        out, model = np.empty(self.layout.clients), self.engine.state.model
        for start in range(0, len(out), CLIENTS_AT_A_TIME):
            some = slice(start, start + CLIENTS_AT_A_TIME)
            out[some] = measure(some, np.asarray(model[some]))
        return out

    def _deviation(self, models: Floats, some: slice) -> Floats:
        assert self._truth is not None
        return metrics.deviation(models, self._truth[self._group_of_client[some]])

    def _deviations(self, rows: list[dict[str, float]], deviation: Floats) -> None:
        means = np.bincount(self._run_of_client, weights=deviation) / self._run_sizes
        with np.errstate(invalid="ignore"):
            per_cluster = np.bincount(self._group_of_client, weights=deviation, minlength=len(self._members))
            per_cluster /= self._members
        for number, (run, groups) in enumerate(zip(self.layout.runs, self._groups_of_run, strict=True)):
            rows[number]["nmsd"] = float(means[number])
            names = run.federation.cluster_ids
            if 1 < len(names) <= CLUSTERS_SHOWN:
                values = per_cluster[groups].tolist()
                rows[number] |= {f"nmsd_{name}": value for name, value in zip(names, values, strict=True)}

    @cached_property
    def _group_of_client(self) -> Ints:
        """The cluster of every client among those of all runs (its own, also where all share a model)."""
        runs = zip(self.layout.runs, self._groups_of_run, strict=True)
        return np.concatenate([run.federation.client_cluster[run.order] + groups.start for run, groups in runs])

    @cached_property
    def _members(self) -> Ints:
        return np.bincount(self._group_of_client, minlength=self._groups_of_run[-1].stop)

    def _objective_values(self, rows: list[dict[str, float]]) -> None:
        model = self.engine.state.model
        values = np.concatenate(
            [np.asarray(block.objective_values(model[block.clients])) for block in self.engine.blocks]
        )
        for number, run in enumerate(self.layout.runs):
            rows[number]["objective"] = float(values[run.clients].mean())

    def _residuals(self, clean: list[dict[str, float]], shown: list[dict[str, float]], servers: Floats) -> None:
        moved = self.engine.algorithm.rho * (servers - np.asarray(self.engine.previous_servers))
        squares = self._of_clients(
            lambda some, model: metrics.squared_norm(model - servers[self.layout.client_pair[some]])
        )
        moves = metrics.squared_norm(moved)
        for number, run in enumerate(self.layout.runs):
            clean[number]["primal_residual"] = float(np.sqrt(np.mean(squares[run.clients])))
            shown[number]["dual_residual"] = float(np.sqrt(np.mean(moves[run.pairs])))

    def _disagreements(self, rows: list[dict[str, float]], servers: Floats) -> None:
        """`metrics.disagreement` of every run, all runs' clusters at once."""
        known, group = self.engine.network.known, self._group_of_pair
        height = int(group.max()) + 1
        sizes = np.bincount(group, weights=known, minlength=height)
        order = np.argsort(group, kind="stable")
        gather = Linear(np.searchsorted(group[order], np.arange(height + 1)), order, known[order] * 1.0, len(group))
        centres = gather(servers.astype(float)) / np.maximum(sizes, 1.0)[:, None]
        away = metrics.squared_norm(servers - centres[group]) * known
        scale = metrics.squared_norm(centres) * sizes
        for number, run in enumerate(self.layout.runs):
            total = scale[self._groups_of_run[number]].sum()
            rows[number]["disagreement"] = float(away[run.pairs].sum() / total) if total > 0 else 0.0

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
        """The true models of all runs' clusters, one after the other."""
        if any(run.federation.truth is None for run in self.layout.runs):
            return None
        return np.concatenate([run.federation.truth for run in self.layout.runs])  # type: ignore[misc]

    @cached_property
    def _groups_of_run(self) -> list[slice]:
        """Where the clusters of every run lie among those of all runs."""
        ends = np.cumsum([len(run.federation.cluster_ids) for run in self.layout.runs]).tolist()
        return [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]

    @cached_property
    def _group_of_pair(self) -> Ints:
        """The cluster of every pair among those of all runs."""
        sizes = [run.pairs.stop - run.pairs.start for run in self.layout.runs]
        return self.layout.pair_cluster + np.repeat([group.start for group in self._groups_of_run], sizes)

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
