"""A result as a short table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from pgfl.results.measures import Figure
from pgfl.results.report.figures import LABELS, figure, spent
from pgfl.results.result import Result

MOST_CLUSTERS = 12


def show_result(result: Result, folder: Path) -> None:
    """Print the verdict, the table, the warnings and where the files are."""
    console = Console()
    if (verdict := result.verdict) is not None:
        colour = {"good": "green", "bad": "red", "mixed": "yellow"}[verdict.tone]
        console.print(f"Verdict: {verdict.kind}", style=f"bold {colour}", highlight=False)
        console.print(verdict.text, markup=False, highlight=False)
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in _rows(result):
        table.add_row(name, value)
    if (measured := _measures(result)) is not None:
        console.print(measured)
    console.print(table)
    if (card := result.privacy_card) is not None:
        style = None if card.guaranteed else "yellow"
        for name, value in card.lines:
            console.print(f"{name}: {value.rstrip('.')}.", style=style, markup=False, highlight=False)
    for note in result.notes:
        console.print(f"Note: {note}", markup=False, highlight=False)
    for warning in result.warnings:
        console.print(f"Warning: {warning}", style="yellow", markup=False, highlight=False)
    console.print(f"Result: {folder} (open report.html)", markup=False, highlight=False, soft_wrap=True)


def _rows(result: Result) -> list[tuple[str, str]]:
    final = {name: float(np.mean(result.curve(name)[:, -1])) for name in result.metrics}
    rows = []
    if "nmsd" in final:
        rows.append(("NMSD", figure("nmsd", final["nmsd"])))
        per_cluster = [(q, final[f"nmsd_{q}"]) for q in result.cluster_ids if f"nmsd_{q}" in final]
        rows += [(f"  {q}", figure("nmsd", value)) for q, value in per_cluster[:MOST_CLUSTERS]]
        if len(per_cluster) > MOST_CLUSTERS:
            rows.append(("  …", f"{len(per_cluster) - MOST_CLUSTERS} clusters more in history.csv"))
    if "objective" in final and not rows and not result.measures:
        rows.append(("objective", figure("objective", final["objective"])))
    runs = len(result.models)
    rows.append(("rounds", f"{int(result.rounds[-1])}" + (f" × {runs} runs" if runs > 1 else "")))
    rows.append(("time", f"{result.seconds:.2f} s" + (f", engine {result.engine}" if result.engine else "")))
    if result.rho is not None and result.config is not None and result.config.algorithm.rho == "auto":
        rows.append(("rho, chosen", f"{result.rho:g}"))
    rows += [(label, f"{worst} worst client, {median} median") for label, worst, median in spent(result)]
    return rows


def _measures(result: Result) -> Table | None:
    """Return what was measured on held-out rows, each figure with that of a trivial prediction in brackets."""
    if not result.measures:
        return None
    table = Table(box=None, pad_edge=False)
    table.add_column("held-out rows (baseline)")
    for measured in result.measures:
        table.add_column(LABELS[measured.name], justify="right")
    for name, row in _measured_rows(result):
        pairs = zip(result.measures, row, strict=True)
        table.add_row(name, *("–" if shown is None else _with_baseline(each.name, shown) for each, shown in pairs))
    return table


def _measured_rows(result: Result) -> list[tuple[str, list[Figure | None]]]:
    """Return all clients, the clusters, and the worst and the median client."""
    rows: list[tuple[str, list[Figure | None]]] = [("all clients", [each.whole for each in result.measures])]
    clusters = list(dict.fromkeys(cluster for each in result.measures for cluster in each.clusters))
    for cluster in clusters[:MOST_CLUSTERS] if len(clusters) > 1 else ():
        rows.append((f"  {cluster}", [each.clusters.get(cluster) for each in result.measures]))
    if len(clusters) > MOST_CLUSTERS:
        rows.append(
            (f"  … {len(clusters) - MOST_CLUSTERS} clusters more in summary.json", [None] * len(result.measures))
        )
    named = {each.worst_client for each in result.measures} - {None}
    worst = f"worst client ({named.pop()})" if len(named) == 1 else "worst client"
    rows.append((f"  {worst}", [each.worst for each in result.measures]))
    rows.append(("  median client", [each.median for each in result.measures]))
    return rows


def _with_baseline(name: str, shown: Figure) -> str:
    return f"{figure(name, shown.value)} ({figure(name, shown.baseline)})"
