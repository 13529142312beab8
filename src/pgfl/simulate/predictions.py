"""Models measured on held-out rows: while training goes on, and at its end.

A client's model is measured on the held-out rows of its cluster. A cluster's figure is the mean over its clients, that
of a run the mean over all clients whose cluster has such rows. Models are multiplied with the rows server by server, so
that no figure depends on the batch or the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pgfl import metrics as measures
from pgfl.arrays import AnyFloats, Floats, Ints
from pgfl.federation.columns import TargetColumn
from pgfl.federation.federation import TestSet
from pgfl.objectives import Objective
from pgfl.results.measures import ClientFigures
from pgfl.results.result import Columns, RunModels
from pgfl.simulate.layout import Layout, RunLayout
from pgfl.simulate.problems import Objectives, objective_of
from pgfl.simulate.totals import Totals

CLUSTERS_SHOWN = 12
GROUPS, LEAST_ROWS, MOST_POINTS = 10, 20, 400
BLOCK_BYTES, MODELS_TOGETHER = 1 << 19, 64
Rows = list[dict[str, float]]
ModelsOf = Callable[[slice], AnyFloats]
"""The models of a range of clients: one row each, or a single row that all of them share."""


@dataclass(frozen=True)
class Task:
    """A cluster's held-out rows, the objective that predicts them, and what its targets stand for."""

    test: TestSet
    objective: Objective
    target: TargetColumn

    def figures(self, name: str, margins: AnyFloats, rows: Ints | None = None) -> Floats:
        """Return one measure of every model, on all rows or on some."""
        chosen = slice(None) if rows is None else rows
        return self._scale(name) * measures.measured(name, self.objective, margins[chosen], self.test.targets[chosen])

    def baseline(self, name: str, rows: Ints | None = None) -> float:
        """Return the measure of the trivial prediction."""
        return self._scale(name) * measures.baseline(name, self.test.targets[slice(None) if rows is None else rows])

    def defines(self, name: str) -> bool:
        """Return whether the measure belongs to this task and its rows define it."""
        belongs = name in measures.of_task(self.objective.task)
        return belongs and measures.MEASURES[name].defined(self.test.targets)

    def _scale(self, name: str) -> float:
        return self.target.unit if measures.MEASURES[name].in_target_unit else 1.0

    def points(self, model: AnyFloats, private: bool) -> tuple[Floats, Floats, Ints]:
        """Predicted and observed targets, and how many rows each point stands for.

        Probabilities are grouped by size: their mean beside the share of rows that have the label. Predicted numbers
        are single rows, evenly thinned, and with privacy means of many rows.
        """
        margins = measures.margins(model[None], self.test.features)
        predicted, observed = np.asarray(self.objective.predict(margins))[:, 0], self.test.targets
        if self.objective.task == "multiclass":
            observed = (predicted.argmax(axis=1) == observed).astype(float)
            predicted = predicted.max(axis=1)
        if self.objective.task != "regression":
            return _grouped(predicted, observed, np.minimum((predicted * GROUPS).astype(np.int64), GROUPS - 1), private)
        order = np.argsort(predicted, kind="stable")
        predicted, observed = (self.target.decode(values[order].astype(float)) for values in (predicted, observed))
        if private:
            groups = max(1, min(GROUPS, len(order) // LEAST_ROWS))
            return _grouped(predicted, observed, np.arange(len(order)) * groups // len(order), private)
        kept = np.unique(np.linspace(0, len(order) - 1, min(len(order), MOST_POINTS)).round().astype(np.int64))
        return predicted[kept], observed[kept], np.ones(len(kept), dtype=np.int64)


class HeldOut:
    """The held-out rows of a layout's runs; `wanted` names the measures that are recorded while training goes on."""

    def __init__(self, layout: Layout, objectives: Objectives, totals: Totals, wanted: Iterable[str] = ()) -> None:
        self.layout, self.totals = layout, totals
        self.tasks = [_tasks(run, objectives) for run in layout.runs]
        self._ranges = [_ranges(layout, run) for run in layout.runs]
        self.wanted = [name for name in measures.MEASURES if name in set(wanted) and self._anywhere(name)]

    @property
    def exists(self) -> bool:
        """Whether there is anything to measure."""
        return bool(self.wanted)

    def record(self, rows: Rows, models_of: ModelsOf) -> None:
        """Add the wanted measures of every run and of its clusters to its row."""
        if "accuracy" in self.wanted:
            self._note(rows, "accuracy", self._accuracies(models_of))
        others = [name for name in self.wanted if name != "accuracy"]
        values = {name: np.zeros(self.layout.clients) for name in others}
        for number, tasks in enumerate(self.tasks) if others else ():
            for q, task in tasks.items():
                for clients, margins in _margins(models_of, self._servers(number, q), task.test.features):
                    for name in filter(task.defines, others):
                        values[name][clients] = task.figures(name, margins)
        for name in others:
            self._note(rows, name, self.totals.over_clients_by_cluster(values[name]))

    def of_clients(self, number: int, models_of: ModelsOf, *, only_wanted: bool = False) -> list[ClientFigures]:
        """Return the measures of every client of a run, in the order of its federation."""
        run, tasks = self.layout.runs[number], self.tasks[number]
        names = self.wanted if only_wanted else [name for name in measures.MEASURES if self._anywhere(name)]
        found = {name: np.full((4, run.federation.size), np.nan) for name in names}
        own_rows = {q: _rows_by_client(task.test, run.federation.size) for q, task in tasks.items()}
        for q, task in tasks.items():
            for clients, margins in _margins(models_of, self._servers(number, q), task.test.features):
                members = run.order[clients.start - run.clients.start : clients.stop - run.clients.start]
                shared = margins.shape[1] == 1
                for name in filter(task.defines, names):
                    found[name][0, members], found[name][1, members] = task.figures(name, margins), task.baseline(name)
                    for place, client in enumerate(members.tolist()):
                        rows, model = own_rows[q][client], slice(None) if shared else slice(place, place + 1)
                        if rows is None:
                            found[name][2:, client] = found[name][:2, client]
                        elif len(rows):
                            found[name][2, client] = task.figures(name, margins[:, model], rows)[0]
                            found[name][3, client] = task.baseline(name, rows)
        return [ClientFigures(name, *found[name]) for name in names]

    def own_rows(self, number: int) -> Ints:
        """Return how many held-out rows each client of a run has; all of its cluster where it is not known whose."""
        federation = self.layout.runs[number].federation
        counts = np.zeros(federation.size)
        for q, task in self.tasks[number].items():
            by_client = _rows_by_client(task.test, federation.size)
            for client in np.flatnonzero(federation.client_cluster == q).tolist():
                rows = by_client[client]
                counts[client] = len(task.test.targets) if rows is None else len(rows)
        return counts.astype(np.int64)

    def _anywhere(self, name: str) -> bool:
        return any(task.defines(name) for tasks in self.tasks for task in tasks.values())

    def _accuracies(self, models_of: ModelsOf) -> AnyFloats:
        """Return the sums over each cluster's clients; equal models are scored once."""
        right = np.zeros((len(self.layout.runs), self.totals.width), dtype=np.int64)
        sizes = np.ones(right.shape)
        for number, tasks in enumerate(self.tasks):
            for q, task in tasks.items():
                sizes[number, q] = len(task.test.targets)
                chosen = self._servers(number, q)
                if chosen and task.defines("accuracy"):
                    distinct, counts = _distinct(models_of, chosen, task.test.features)
                    hits = measures.hits(measures.margins(distinct, task.test.features), task.test.targets)
                    right[number, q] = hits @ counts
        return np.asarray(self.totals.added(right) / sizes)

    def _note(self, rows: Rows, name: str, sums: AnyFloats) -> None:
        members = self.totals.members
        for number, tasks in enumerate(self.tasks):
            tested = [q for q, task in tasks.items() if task.defines(name) and members[number, q]]
            if not tested:
                continue
            rows[number][name] = float(sum(sums[number, q] for q in tested) / sum(members[number, q] for q in tested))
            names = self.layout.runs[number].federation.cluster_ids
            if 1 < len(names) <= CLUSTERS_SHOWN:
                rows[number] |= {f"{name}_{names[q]}": float(sums[number, q] / members[number, q]) for q in tested}

    def _servers(self, number: int, q: int) -> list[slice]:
        """Return the clients of a run's cluster, server by server."""
        return [clients for cluster, clients in self._ranges[number] if cluster == q]


def _ranges(layout: Layout, run: RunLayout) -> list[tuple[int, slice]]:
    """Return the clusters of a run's servers, and where the clients of each lie."""
    cluster, server = run.federation.client_cluster[run.order], layout.client_server[run.clients]
    starts = np.flatnonzero((np.diff(cluster, prepend=-1) != 0) | (np.diff(server, prepend=-1) != 0))
    ends = pairwise([*starts.tolist(), len(cluster)])
    return [(int(cluster[start]), slice(run.clients.start + start, run.clients.start + stop)) for start, stop in ends]


def _tasks(run: RunLayout, objectives: Objectives) -> dict[int, Task]:
    tests, encoding = run.federation.tests or {}, run.federation.encoding
    target = TargetColumn("y") if encoding is None else encoding.target
    return {
        q: Task(tests[name], objective_of(objectives, name), target)
        for q, name in enumerate(run.federation.cluster_ids)
        if name in tests and len(tests[name].targets)
    }


def _margins(models_of: ModelsOf, servers: list[slice], features: AnyFloats) -> Iterator[tuple[slice, AnyFloats]]:
    """Return the clients of every server with the margins of their models.

    Reading the rows takes most of the time, so a block of them serves several servers while it is in the cache.
    """
    block = max(1, BLOCK_BYTES // (features.itemsize * features.shape[1]))
    waiting: list[tuple[slice, AnyFloats]] = []
    for number, clients in enumerate(servers, start=1):
        waiting.append((clients, models_of(clients)))
        if number < len(servers) and sum(len(models) for _, models in waiting) < MODELS_TOGETHER:
            continue
        starts = range(0, len(features), block)
        found = [[measures.margins(models, features[i : i + block]) for _, models in waiting] for i in starts]
        for (together, _), blocks in zip(waiting, zip(*found, strict=True), strict=True):
            yield together, np.concatenate(blocks)
        waiting = []


def _distinct(models_of: ModelsOf, ranges: list[slice], features: AnyFloats) -> tuple[AnyFloats, Ints]:
    """Return the different models of some clients, in the precision of the features, and how many clients have each."""
    found = [models_of(clients).astype(features.dtype) for clients in ranges]
    sizes = [clients.stop - clients.start for clients in ranges]
    many = [np.full(len(models), size if len(models) == 1 else 1) for models, size in zip(found, sizes, strict=True)]
    rows = np.ascontiguousarray(np.concatenate(found))
    as_bytes = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()  # one comparison per pair of rows
    _, first, place = np.unique(as_bytes, return_index=True, return_inverse=True)
    return rows[first], np.bincount(place, weights=np.concatenate(many)).astype(np.int64)


def _rows_by_client(test: TestSet, clients: int) -> list[Ints] | dict[int, None]:
    """Return the held-out rows of every client; None for each where that is not known."""
    if test.clients is None:
        return dict.fromkeys(range(clients))
    order = np.argsort(test.clients, kind="stable")
    cuts = np.searchsorted(test.clients[order], np.arange(clients + 1))
    return [order[start:stop] for start, stop in pairwise(cuts.tolist())]


def points(tasks: dict[int, Task], models: RunModels, cluster_ids: Sequence[str]) -> Columns:
    """Predicted and observed targets of every cluster's held-out rows, by the cluster's model."""
    found: list[tuple[str, float, float, int]] = []
    for q, task in tasks.items():
        held = models.present & (models.pair_cluster == q)
        if held.any() and np.isfinite(model := models.servers[held].mean(axis=0)).all():
            columns = task.points(model, private=models.released is not None)
            found += [(cluster_ids[q], *point) for point in zip(*(column.tolist() for column in columns), strict=True)]
    cluster, predicted, observed, rows = zip(*found, strict=True) if found else ((),) * 4
    return {
        "cluster": np.array(cluster, dtype=np.str_),
        "predicted": np.array(predicted, dtype=float),
        "observed": np.array(observed, dtype=float),
        "rows": np.array(rows, dtype=np.int64),
    }


def _grouped(predicted: AnyFloats, observed: AnyFloats, group: Ints, private: bool) -> tuple[Floats, Floats, Ints]:
    """Return the means of groups of rows; with privacy small groups are left out."""
    rows = np.bincount(group)
    kept = rows >= (LEAST_ROWS if private else 1)
    means = [np.bincount(group, values)[kept] / rows[kept] for values in (predicted, observed)]
    return means[0], means[1], rows[kept]
