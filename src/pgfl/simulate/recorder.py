"""What is measured while a simulation runs: one row per run and recorded round.

Measures of clean client models are kept apart from those of server models: with privacy on, only the latter may be
shown. All sums are those of `Totals`, so a history does not depend on the order, the batch or the process of its terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from pgfl import metrics
from pgfl.algorithms.theory import cluster_optimum
from pgfl.arrays import AnyArray, Ints
from pgfl.arrays import AnyFloats as Floats
from pgfl.results.measures import ClientFigures
from pgfl.simulate.engine import CLIENTS_AT_A_TIME, Engine
from pgfl.simulate.observers import Observer
from pgfl.simulate.predictions import CLUSTERS_SHOWN, HeldOut
from pgfl.simulate.problems import Objectives, objective_of
from pgfl.simulate.totals import Totals

if TYPE_CHECKING:
    from pgfl.simulate.simulator import Simulator


Columns = dict[str, AnyArray]


class Recorder(Observer):
    """Collects the history of an engine's runs; as an observer, every `every` rounds and at the end."""

    def __init__(self, engine: Engine, objectives: Objectives, wanted: Iterable[str], every: int, last: int) -> None:
        self.engine, self.layout = engine, engine.layout
        self.totals = Totals(engine.layout, engine.communicator)
        self.wanted, self._every, self._last = set(wanted), every, last
        self.held_out = HeldOut(engine.layout, objectives, self.totals, self.wanted)
        self._truth = self._truths() if "nmsd" in self.wanted else None
        self._optima = self._exact_optima(objectives) if "distance" in self.wanted else None
        self.shown: list[dict[str, float]] = []
        self.clean: list[dict[str, float]] = []

    def on_round(self, simulator: Simulator) -> None:
        """Measure the state where a record is due."""
        if self._is_due(self.engine.state.round) or simulator.ended_by in ("converged", "diverging"):
            self.record()

    def carry_on(self) -> None:
        """Record the current state for all later rounds: training ended early, and curves keep their length."""
        later = [round for round in range(self.engine.state.round + 1, self._last + 1) if self._is_due(round)]
        if later:
            self.record(*later)

    def _is_due(self, round: int) -> bool:
        return round % self._every == 0 or round == self._last

    def record(self, *rounds: int) -> None:
        """Measure the current state, for its own round unless others are given."""
        clean: list[dict[str, float]] = [{} for _ in self.layout.runs]
        shown: list[dict[str, float]] = [{} for _ in self.layout.runs]
        servers = np.asarray(self.engine.state.server_models)
        if self._truth is not None:
            self._deviations(clean, self._of_clients(self._deviation))
        if self._truth is not None and self.engine.privacy is not None:  # else the clean ones are shown
            received = self._of_clients(lambda some, _: self._deviation(some, servers[self.layout.client_pair[some]]))
            self._deviations(shown, received)
        if "objective" in self.wanted:
            self._objective_values(clean)
        if "residuals" in self.wanted:
            self._residuals(clean, shown, servers)
        if "disagreement" in self.wanted:
            self._disagreement(shown, servers)
        if self._optima is not None:
            self._distance(clean, servers)
        if self.held_out.exists:
            self.held_out.record(clean, self.own_models)
        if self.held_out.exists and self.engine.privacy is not None:
            self.held_out.record(shown, self.received_models)
        for round, (number, run) in product(rounds or (self.engine.state.round,), enumerate(self.layout.runs)):
            place = {"run": run.number, "round": round}
            self.clean.append(place | clean[number])
            self.shown.append(place | shown[number])

    def own_models(self, clients: slice) -> Floats:
        """Return the clean models of some clients."""
        return np.asarray(self.engine.state.model[clients])

    def received_models(self, clients: slice) -> Floats:
        """Return the one model that clients of the same cluster receive from their server."""
        return np.asarray(self.engine.state.server_models[self.layout.client_pair[clients.start]])[None]

    def client_figures(self, number: int, *, only_wanted: bool) -> list[ClientFigures]:
        """Return what a run's clients have learned, by released models where privacy is on."""
        shown = self.own_models if self.engine.privacy is None else self.received_models
        return self.held_out.of_clients(number, shown, only_wanted=only_wanted) if self.held_out.exists else []

    def _of_clients(self, measure: Callable[[slice, Floats], Floats]) -> Floats:
        """Return one number per client, measured on some clients at a time so that not all models are copied."""
        out, model = np.empty(self.layout.clients), self.engine.state.model
        for start in range(0, len(out), CLIENTS_AT_A_TIME):
            some = slice(start, start + CLIENTS_AT_A_TIME)
            out[some] = measure(some, np.asarray(model[some]))
        return out

    def _deviation(self, some: slice, models: Floats) -> Floats:
        assert self._truth is not None
        group = self.totals.client_group[some]
        return metrics.deviation(models, self._truth[group], self._truth_size[group])

    @cached_property
    def _truth_size(self) -> Floats:
        assert self._truth is not None
        return metrics.squared_norm(self._truth)

    def _deviations(self, rows: list[dict[str, float]], deviation: Floats) -> None:
        sums = self.totals.over_clients_by_cluster(deviation)
        means = metrics.mean_per_group(sums, self.totals.members)
        for number, run in enumerate(self.layout.runs):
            rows[number]["nmsd"] = float(sums[number].sum() / self.totals.clients[number])
            names = run.federation.cluster_ids
            if not 1 < len(names) <= CLUSTERS_SHOWN:
                continue
            for q, name in enumerate(names):
                rows[number][f"nmsd_{name}"] = float(means[number, q]) if self.totals.members[number, q] else np.nan

    def _objective_values(self, rows: list[dict[str, float]]) -> None:
        model = self.engine.state.model
        values = np.concatenate(
            [np.asarray(block.objective_values(model[block.clients])) for block in self.engine.blocks]
        )
        for row, mean in zip(rows, self.totals.over_clients(values) / self.totals.clients, strict=True):
            row["objective"] = float(mean)

    def _residuals(self, clean: list[dict[str, float]], shown: list[dict[str, float]], servers: Floats) -> None:
        previous = np.asarray(self.engine.previous_servers)
        moved = metrics.squared_dual_residual(self.engine.algorithm.rho, servers, previous)
        squares = self._of_clients(
            lambda some, model: metrics.squared_distance(model, servers[self.layout.client_pair[some]])
        )
        primal = self.totals.over_clients(squares) / self.totals.clients
        dual = self.totals.over_pairs(moved) / self.totals.pairs
        for number in range(len(self.layout.runs)):
            clean[number]["primal_residual"] = float(np.sqrt(primal[number]))
            shown[number]["dual_residual"] = float(np.sqrt(dual[number]))

    def _disagreement(self, rows: list[dict[str, float]], servers: Floats) -> None:
        """Σ‖w_{q,s} − w̄_q‖² / Σ‖w̄_q‖² over all servers that have a model, w̄_q their mean."""
        held = self.totals.pairs_by_cluster(self.engine.network.known)
        means = metrics.mean_per_group(self.totals.over_pairs_by_cluster(servers), held[..., None])
        self._spread(rows, "disagreement", servers, means, held)

    def _distance(self, rows: list[dict[str, float]], servers: Floats) -> None:
        """Σ‖w_{q,s} − w_q^opt‖² / Σ‖w_q^opt‖² over the servers that have a model."""
        assert self._optima is not None
        held = self.totals.pairs_by_cluster(self.engine.network.known)
        self._spread(rows, "distance", servers, self._optima, held)

    def _spread(self, rows: list[dict[str, float]], name: str, servers: Floats, centres: Floats, held: Ints) -> None:
        nearest = np.concatenate(
            [centres[number, self.layout.pair_cluster[run.pairs]] for number, run in enumerate(self.layout.runs)]
        )
        apart = self.totals.over_pairs(metrics.squared_distance(servers, nearest) * self.engine.network.known)
        scale = (held * metrics.squared_norm(centres)).sum(axis=1)
        for row, above, below in zip(rows, apart, scale, strict=True):
            row[name] = float(above / below) if below > 0 else 0.0

    def _truths(self) -> Floats | None:
        """Return the true models of all runs' clusters, one after the other."""
        federations = [run.federation for run in self.layout.runs]
        lengths = {None if f.truth is None else f.truth.shape[1] for f in federations}
        if lengths != {self.layout.model_length}:
            return None
        truth = np.ones((len(federations), self.totals.width, self.layout.model_length))
        for number, federation in enumerate(federations):
            truth[number, : len(federation.cluster_ids)] = federation.truth
        return truth.reshape(-1, self.layout.model_length)

    def _exact_optima(self, objectives: Objectives) -> Floats:
        found = np.zeros((len(self.layout.runs), self.totals.width, self.layout.model_length))
        for number, run in enumerate(self.layout.runs):
            federation = run.federation
            chosen = [objective_of(objectives, name) for name in federation.cluster_ids]
            members = np.bincount(federation.client_cluster, minlength=len(chosen))
            for q in np.flatnonzero(members):
                found[number, q] = cluster_optimum(federation, chosen[q], int(q))
        return found


def columns(rows: list[dict[str, float]]) -> Columns:
    """Return rows of measures as columns, sorted by run and round; a measure that a row lacks is NaN there."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = {name: np.array([row.get(name, np.nan) for row in rows]) for name in names}
    order = np.lexsort((table["round"], table["run"]))
    return {
        name: values[order].astype(np.int64) if name in ("run", "round") else values[order]
        for name, values in table.items()
    }
