"""A plan as a picture: error against ε for every trust, beside the limit without privacy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pgfl.drawing.colours import cluster_colour
from pgfl.drawing.network_axes import new_axes
from pgfl.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pgfl.planning.forecast import Plan

SIZE = (6.0, 4.0)
DPI = 150
KINDS = (".png", ".pdf", ".svg")
MARKS = {"local": "o", "masked": "D", "site": "v"}
NAMES = {"local": "local: nobody is trusted", "masked": "masked sums", "site": "site: one's own server is trusted"}


def check_kind(path: Path) -> None:
    """Refuse a file that is no picture, before a plan is made for it."""
    if path.suffix.lower() not in KINDS:
        raise ConfigError(f"A picture is a file that ends in {', '.join(KINDS)}; got {path.name!r}.")


def draw(plan: Plan, axes: Axes | None = None) -> Axes:
    """Curves of all trusts, the limit, and the plan's own prediction with its interval."""
    axes = new_axes(*SIZE) if axes is None else axes
    for number, (trust, curve) in enumerate(plan.by_trust.items()):
        levels = sorted(curve)
        values = [curve[level] for level in levels]
        axes.plot(levels, values, MARKS[trust] + "-", color=cluster_colour(number), label=NAMES[trust], markersize=4)
    axes.axhline(plan.limit, color="grey", linestyle="--", label="without privacy")
    predicted = plan.predicted
    reach = [[predicted.value - predicted.low], [predicted.high - predicted.value]]
    axes.errorbar(
        [plan.facts.epsilon], [predicted.value], reach, color="black", marker="*", markersize=10, capsize=4,
        linestyle="none", label=f"this plan ({plan.facts.trust}), nine runs out of ten",
    )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("ε")
    axes.set_ylabel(f"{plan.measure} [{plan.unit}]")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    return axes


def save(plan: Plan, path: Path) -> None:
    """Write the picture."""
    check_kind(path)
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=SIZE, layout="constrained")
    draw(plan, axes)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI)
    plt.close(figure)
