"""Figures as text, the same on the screen and on the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from pgfl.metrics import MEASURES
from pgfl.privacy.card import power

if TYPE_CHECKING:
    from pgfl.results.result import Result

SPENDING = {
    "releases": "releases",
    "rho": "ρ of zCDP",
    "epsilon": "ε, exact",
    "epsilon_paper": "ε, the paper's formula",
    "refused": "releases refused",
}
"""The columns of the privacy table that are shown, and their labels."""


class _Labels(dict[str, str]):
    def __missing__(self, name: str) -> str:
        """What another package calls its metric."""
        return (MEASURES[name].label if name in MEASURES else "") or name


LABELS = _Labels(
    {
        "nmsd": "NMSD",
        "r2": "R²",
        "mae": "MAE",
        "rmse": "RMSE",
        "accuracy": "accuracy",
        "auc": "AUC",
        "log_loss": "log loss",
        "objective": "objective",
    }
)
"""What a metric is called on the screen and on the page."""

DECIMALS = ("r2", "auc", "log_loss")


def figure(metric: str, value: float) -> str:
    """Return a measured value in its usual unit.

    >>> figure("nmsd", 0.01), figure("accuracy", 0.914), figure("r2", 0.5), figure("objective", 1.5)
    ('-20.00 dB', '91.4 %', '0.500', '1.5')
    """
    if not math.isfinite(value):
        return "–"
    if metric == "nmsd":
        return f"{10 * math.log10(value):.2f} dB" if value > 0 else "−∞ dB"
    if metric in DECIMALS:
        return f"{round(value, 3) + 0.0:.3f}"
    return f"{100 * value:.1f} %" if metric == "accuracy" else f"{value:.4g}"


def short(value: float | None) -> str:
    """Return a figure of the privacy table; None is what JSON cannot hold."""
    return "∞" if value is None else f"{value:.4g}"


def spent(result: Result) -> list[tuple[str, str, str]]:
    """Return what clients spent: the labels, the worst client's figures and the median client's; each ε with its δ."""
    card, spending = result.privacy_card, result.spending()
    labels = SPENDING | ({"epsilon": f"ε, exact, at δ = {power(card.delta)}"} if card and card.guaranteed else {})
    return [
        (label, short(figures["worst"]), short(figures["median"]))
        for name, label in labels.items()
        if (figures := spending.get(name))
    ]


def news(info: Mapping[str, Any]) -> str:
    """Return the figures that a progress bar shows besides rounds.

    >>> news({"nmsd": 0.1, "accuracy": 0.914, "epsilon": 0.25, "memory_gib": 2.31})
    'NMSD -10.00 dB  accuracy 91.4 %  spent ε 0.25  2.3 GiB'
    """
    parts: dict[str, tuple[str, Callable[[float], str]]] = {
        **{name: (f"{LABELS[name]} {{}}", partial(figure, name)) for name in ("nmsd", *MEASURES.built_in)},
        "epsilon": ("spent ε {}", short),
        "memory_gib": ("{} GiB", "{:.1f}".format),
    }
    return "  ".join(words.format(form(info[key])) for key, (words, form) in parts.items() if key in info)
