"""A result as a short table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from pgfl.core.measures import MEASURES
from pgfl.results.measured import Figure
from pgfl.results.report.figures import LABELS, NOISE, SPENDING, figure, guarantee, short
from pgfl.results.result import Result

MOST_CLUSTERS = 12


def figures(info: Mapping[str, Any]) -> str:
    """The figures that the progress bar shows besides rounds.

    >>> figures({"nmsd": 0.1, "accuracy": 0.914, "epsilon": 0.25, "memory_gib": 2.31})
    'NMSD -10.00 dB  accuracy 91.4 %  spent ε 0.25  2.3 GiB'
    """
    parts: dict[str, tuple[str, Callable[[float], str]]] = {
        **{name: (f"{LABELS[name]} {{}}", partial(figure, name)) for name in ("nmsd", *MEASURES)},
        "epsilon": ("spent ε {}", short),
        "memory_gib": ("{} GiB", "{:.1f}".format),
    }
    return "  ".join(words.format(form(info[key])) for key, (words, form) in parts.items() if key in info)


def show_result(result: Result, folder: Path) -> None:
    """Print the table, the warnings and where the files are."""
    console = Console()
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in _rows(result):
        table.add_row(name, value)
    console.print(table)
    if result.guarantee:
        console.print(guarantee(result.guarantee), markup=False, highlight=False)
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
    rows += _measures(result)
    if "objective" in final and not rows:
        rows.append(("objective", figure("objective", final["objective"])))
    runs = len(result.models)
    rows.append(("rounds", f"{int(result.rounds[-1])}" + (f" × {runs} runs" if runs > 1 else "")))
    rows.append(("time", f"{result.seconds:.2f} s"))
    spending = result.spending()
    for name, label in SPENDING.items():
        if spent := spending.get(name):
            rows.append((label, f"{short(spent['worst'])} worst client, {short(spent['median'])} median"))
    if result.noise:
        rows.append(("noise", NOISE.get(result.noise, result.noise)))
    return rows


def _measures(result: Result) -> list[tuple[str, str]]:
    """What was measured on held-out rows, beside the trivial prediction."""
    rows = []
    for measured in result.measures:
        name = measured.name
        rows.append((LABELS[name], _beside(name, measured.whole)))
        shown = list(measured.clusters.items()) if len(measured.clusters) > 1 else []
        rows += [(f"  {cluster}", _beside(name, each)) for cluster, each in shown[:MOST_CLUSTERS]]
        if len(shown) > MOST_CLUSTERS:
            rows.append(("  …", f"{len(shown) - MOST_CLUSTERS} clusters more in summary.json"))
        worst = "worst client" if measured.worst_client is None else f"worst client ({measured.worst_client})"
        rows.append((f"  {worst}", _beside(name, measured.worst)))
        rows.append(("  median client", _beside(name, measured.median)))
    return rows


def _beside(name: str, shown: Figure) -> str:
    return f"{figure(name, shown.value)} (baseline {figure(name, shown.baseline)})"
