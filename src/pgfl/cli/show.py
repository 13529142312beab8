"""A result as a short table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from pgfl.result import Result

MOST_CLUSTERS = 12
PRIVACY_ROWS = {
    "releases": "releases",
    "rho": "zCDP ρ",
    "epsilon": "ε, exact",
    "epsilon_paper": "ε, the paper's formula",
}


def decibel(value: float) -> str:
    """A ratio in dB.

    >>> decibel(0.01)
    '-20.00 dB'
    """
    return f"{10 * math.log10(value):.2f} dB" if value > 0 else "−∞ dB" if value == 0 else "—"


def figures(info: Mapping[str, Any]) -> str:
    """What the progress bar says besides rounds.

    >>> figures({"nmsd": 0.1, "epsilon": 1.25})
    'NMSD -10.00 dB  ε 1.25'
    """
    parts = []
    if info.get("nmsd") is not None:
        parts.append(f"NMSD {decibel(info['nmsd'])}")
    if info.get("accuracy") is not None:
        parts.append(f"accuracy {info['accuracy']:.1%}")
    if info.get("epsilon") is not None:
        parts.append(f"ε {info['epsilon']:.3g}")
    return "  ".join(parts)


def show_result(result: Result, folder: Path) -> None:
    """Print the table, the warnings and where the files are."""
    console = Console()
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in _rows(result):
        table.add_row(name, value)
    console.print(table)
    if result.guarantee:
        console.print(result.guarantee, markup=False, highlight=False)
    for warning in result.warnings:
        console.print(f"Warning: {warning}", style="yellow", markup=False, highlight=False)
    console.print(f"Result: {folder} (open report.html)", markup=False, highlight=False, soft_wrap=True)


def _rows(result: Result) -> list[tuple[str, str]]:
    final = {name: float(np.mean(result.curve(name)[:, -1])) for name in result.metrics}
    rows = []
    if "nmsd" in final:
        rows.append(("NMSD", decibel(final["nmsd"])))
        per_cluster = [(q, final[f"nmsd_{q}"]) for q in result.cluster_ids if f"nmsd_{q}" in final]
        rows += [(f"  {q}", decibel(value)) for q, value in per_cluster[:MOST_CLUSTERS]]
        if len(per_cluster) > MOST_CLUSTERS:
            rows.append(("  …", f"{len(per_cluster) - MOST_CLUSTERS} clusters more in history.csv"))
    if "accuracy" in final:
        rows.append(("accuracy", f"{final['accuracy']:.1%}"))
    if "objective" in final and not rows:
        rows.append(("objective", f"{final['objective']:.6g}"))
    runs = len(result.models)
    rows.append(("rounds", f"{int(result.rounds[-1])}" + (f" × {runs} runs" if runs > 1 else "")))
    rows.append(("time", f"{result.seconds:.2f} s"))
    spending = result.spending()
    for name, label in PRIVACY_ROWS.items():
        if name in spending:
            worst, median = (_short(spending[name][which]) for which in ("worst", "median"))
            rows.append((label, f"{worst} worst client, {median} median"))
    if result.noise:
        rows.append(("noise", result.noise))
    return rows


def _short(value: float | None) -> str:
    return "∞" if value is None else f"{value:.4g}"
