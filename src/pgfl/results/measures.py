"""What was measured on held-out rows at the end of training, beside trivial baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgfl.arrays import AnyArray, AnyFloats, AnyInts, Floats

FEW_ROWS = 10
LEAST_ROWS = 5  # of a client that can be called the worst


@dataclass(frozen=True)
class Figure:
    """A measure, and the same measure of the trivial prediction on the same rows (NaN where it is undefined)."""

    value: float
    baseline: float

    def to_json(self) -> dict[str, float | None]:
        """Return the two numbers; None for what JSON cannot hold."""
        return {"value": _number(self.value), "baseline": _number(self.baseline)}

    @classmethod
    def from_json(cls, numbers: Mapping[str, Any]) -> Figure:
        """As `to_json` wrote it."""
        value, baseline = (numbers[name] for name in ("value", "baseline"))
        return cls(np.nan if value is None else value, np.nan if baseline is None else baseline)


@dataclass(frozen=True)
class Measured:
    """One measure: the mean over all clients whose cluster has held-out rows, per cluster, and over clients.

    A client's model is measured on its cluster's rows. `worst` and `median` compare clients: each on its own held-out
    rows where they are known. `worst_client` is not named under privacy.
    """

    name: str
    whole: Figure
    clusters: Mapping[str, Figure]
    worst: Figure
    median: Figure
    worst_client: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Ready for `summary.json`."""
        named = {} if self.worst_client is None else {"client": self.worst_client}
        return {
            "whole": self.whole.to_json(),
            "clusters": {cluster: figure.to_json() for cluster, figure in self.clusters.items()},
            "clients": {"worst": self.worst.to_json() | named, "median": self.median.to_json()},
        }

    @classmethod
    def from_json(cls, name: str, table: Mapping[str, Any]) -> Measured:
        """As `to_json` wrote it."""
        clients = table["clients"]
        return cls(
            name,
            Figure.from_json(table["whole"]),
            {cluster: Figure.from_json(figure) for cluster, figure in table["clusters"].items()},
            Figure.from_json(clients["worst"]),
            Figure.from_json(clients["median"]),
            clients["worst"].get("client"),
        )


@dataclass(frozen=True, eq=False)
class ClientFigures:
    """One measure of every client (K): its model on its cluster's rows and on its own, and the baselines of both."""

    name: str
    on_cluster: Floats
    cluster_baseline: Floats
    on_own: Floats
    own_baseline: Floats

    @property
    def columns(self) -> tuple[Floats, ...]:
        """The numbers of all clients, in the order of the fields."""
        return self.on_cluster, self.cluster_baseline, self.on_own, self.own_baseline

    def measured(
        self,
        client_cluster: AnyInts,
        cluster_ids: Sequence[str],
        client_ids: Sequence[str] | None,
        lower: bool,
        rows: AnyInts,
    ) -> Measured | None:
        """Return the figures of a run; None if no client has one. Without `client_ids` the worst client stays unnamed.

        `rows` are the clients' held-out rows: with fewer than `LEAST_ROWS` a figure is chance, and nobody the worst.
        """
        tested = ~np.isnan(self.cluster_baseline)
        if not tested.any():
            return None
        own = np.flatnonzero(~np.isnan(self.own_baseline))
        judged = own[rows[own] >= LEAST_ROWS]
        order = judged[np.argsort(self.on_own[judged] if lower else -self.on_own[judged], kind="stable")]
        worst = int(order[-1]) if len(order) else None
        of_worst = (np.nan, np.nan) if worst is None else (float(self.on_own[worst]), float(self.own_baseline[worst]))
        return Measured(
            self.name,
            Figure(_mean(self.on_cluster[tested]), _mean(self.cluster_baseline[tested])),
            {
                cluster_ids[q]: Figure(
                    _mean(self.on_cluster[tested & (client_cluster == q)]),
                    _mean(self.cluster_baseline[tested & (client_cluster == q)]),
                )
                for q in np.unique(client_cluster[tested]).tolist()
            },
            Figure(*of_worst),
            Figure(_median(self.on_own[own]), _median(self.own_baseline[own])),
            None if client_ids is None or worst is None else client_ids[worst],
        )


def of_enough_rows(name: str, values: Floats, rows: AnyInts) -> Floats:
    """Return every client's own figure, without an R² on a handful of rows, which can be any negative number."""
    return np.where(rows >= LEAST_ROWS, values, np.nan) if name == "r2" else values


def few_rows(clients: Mapping[str, AnyArray] | None) -> list[str]:
    """Return a note that a client has too few held-out rows for a figure of its own to mean much."""
    rows = (clients or {}).get("rows")
    own = np.empty(0) if rows is None else rows[rows > 0]
    if not len(own) or (median := float(np.median(own))) >= FEW_ROWS:
        return []
    return [f"A client has {median:g} held-out rows in the median, so that figures of single clients vary widely."]


def over_runs(runs: Sequence[Sequence[Measured]]) -> list[Measured]:
    """Return the figures of several runs, averaged; no client is the worst of all runs."""
    if len(runs) <= 1:
        return list(runs[0]) if runs else []
    names = dict.fromkeys(measured.name for run in runs for measured in run)
    return [_averaged([measured for run in runs for measured in run if measured.name == name]) for name in names]


def _averaged(found: Sequence[Measured]) -> Measured:
    clusters = dict.fromkeys(cluster for measured in found for cluster in measured.clusters)
    return Measured(
        found[0].name,
        _mean_figure([measured.whole for measured in found]),
        {
            cluster: _mean_figure([measured.clusters[cluster] for measured in found if cluster in measured.clusters])
            for cluster in clusters
        },
        _mean_figure([measured.worst for measured in found]),
        _mean_figure([measured.median for measured in found]),
    )


def _mean_figure(figures: Sequence[Figure]) -> Figure:
    return Figure(
        _mean(np.array([figure.value for figure in figures])), _mean(np.array([figure.baseline for figure in figures]))
    )


def _mean(values: AnyFloats) -> float:
    return float(np.mean(values, dtype=np.float64))


def _median(values: AnyFloats) -> float:
    return float(np.median(values)) if len(values) else np.nan


def _number(value: AnyArray | float) -> float | None:
    return float(value) if np.isfinite(value) else None
