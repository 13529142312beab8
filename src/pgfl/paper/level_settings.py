"""The tuned settings of the figure of error against ε, and what lies between them."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Literal

import numpy as np

Kind = Literal["regression", "pairs", "triplets"]
Row = Literal["paper", "fedavg", "local", "masked", "site"]
"""What is tuned for itself: the paper's client step, FedAvg's, and the linearised one at every level of trust."""

TUNED_CLIENTS = 5
"""Clients per pair of the federations on which settings were tuned."""

FILE = "level_settings.csv"


@dataclass(frozen=True)
class Anchor:
    """Good settings at an ε."""

    epsilon: float
    rho: float  # FedAvg: one over the length of all local steps together
    zeta: float
    releases: int
    tau: float
    tau_decay: float = 1.0
    kappa: float = 1.0  # regression only


@cache
def tuned(kind: Kind, row: Row) -> tuple[Anchor, ...]:
    """The settings of a row, by ascending ε."""
    text = files("pgfl.paper").joinpath(FILE).read_text("utf-8")
    lines = [line for line in csv.DictReader(text.splitlines()) if (line["scene"], line["row"]) == (kind, row)]
    numbers = [{each.name: float(line[each.name]) for each in fields(Anchor)} for line in lines]
    found = (Anchor(**{**line, "releases": int(line["releases"])}) for line in numbers)  # type: ignore[arg-type]
    return tuple(sorted(found, key=lambda anchor: anchor.epsilon))


def as_text(found: Iterable[tuple[Kind, Row, Anchor, float, int]]) -> str:
    """The file of settings: scene and row, the settings, the error that tuning saw, and the number of tries."""
    names = ["scene", "row", *(each.name for each in fields(Anchor)), "tuning_error", "tries"]
    lines = [",".join(names)]
    for kind, row, anchor, error, tries in found:
        values = [f"{value:.5g}" for value in (*asdict(anchor).values(), error)]
        lines.append(",".join([kind, row, *values, str(tries)]))
    return "\n".join(lines) + "\n"


def between(anchors: tuple[Anchor, ...], epsilon: float) -> Anchor:
    """Settings between two anchors, on logarithmic scales; those of the nearest one beyond the ends."""
    at = [math.log(anchor.epsilon) for anchor in anchors]
    here = math.log(epsilon)

    def value(name: str, of: float = 0.0) -> float:
        values = [abs(of - getattr(anchor, name)) for anchor in anchors]
        if min(values) <= 0.0:
            return float(abs(of - np.interp(here, at, values)))
        return float(abs(of - math.exp(np.interp(here, at, np.log(values)))))

    decays = (value("zeta", 1.0), value("tau_decay", 1.0))
    return Anchor(epsilon, value("rho"), decays[0], round(value("releases")), value("tau"), decays[1], value("kappa"))
