"""What Figs. 1 to 6 share: NMSD against the round or against a setting, its looks, and the maps around a setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pgfl.array_types import Floats
from pgfl.paper.conditions import PRINTED, Kind
from pgfl.paper.experiments import Experiment, Measured
from pgfl.paper.items import Effort, epsilon_text
from pgfl.paper.maps import Grid
from pgfl.paper.plots import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, Lines, Look, Series
from pgfl.paper.statistics import Interval, band_db, interval, rounds_to

LEVEL_DB = -10.0  # convergence speed is the number of rounds until this NMSD
ROUNDS_AGAINST_A_SETTING = 200  # of Figs. 4 and 6
TAU_ZERO, TAU_FIXED = r"PGFL, $\tau = 0$", r"PGFL, $\tau = 0.4$"
LOOKS = {
    TAU_ZERO: Look(BLUE, "-", "o"),
    TAU_FIXED: Look(RED, "-", "s"),
    "FedAvg": Look(GREEN, "--", "^"),
    "decreasing": Look(PURPLE, "-.", "d"),
    rf"{TAU_ZERO}, $\mathcal{{E}} = \emptyset$": Look(GREY, ":", "o"),
    rf"{TAU_FIXED}, $\mathcal{{E}} = \emptyset$": Look(ORANGE, ":", "s"),
}
ROUND, NMSD = "round $n$", "NMSD [dB]"


def final(found: Measured) -> Floats:
    """NMSD at the last round, run by run."""
    return np.asarray(found["nmsd"][:, -1])


def at_round(found: Measured, round: int) -> Floats:
    """NMSD at a round, run by run."""
    return np.asarray(found["nmsd"][:, round])


def slower(a: Measured, b: Measured, among: int = 1) -> Interval:
    """How many rounds more a needs to come down to `LEVEL_DB`; a run that never does counts as just past the end."""
    return interval(rounds_to(a["nmsd"], LEVEL_DB) - rounds_to(b["nmsd"], LEVEL_DB), among)


def noise_and_privacy(effort: Effort, kind: Kind, taus: Sequence[float], **changes: Any) -> Grid:
    """A map around a kind's setting, observation noise × φ⁽⁰⁾; a cell holds a trial for every τ."""

    def cell(noise: float, phi0: float) -> list[Experiment]:
        moved = replace(kind, privacy=replace(kind.privacy, phi0=phi0))
        return [moved.pgfl(tau, observation_noise=noise, **changes) for tau in taus]

    if kind is PRINTED:
        noises = effort.thinned((0.1, 0.4, 0.7, 1.0, 1.3), (0.1, 1.0))
        phis = effort.thinned((0.003, 0.03, 0.3), (0.03,))
    else:
        noises = effort.thinned((0.1, 1.0), (1.0,))
        phis = effort.thinned((0.01, 0.1, 1.0, 10.0, 100.0), (0.1, 100.0))
    return Grid("observation noise (sd)", r"$\phi^{(0)}$", noises, phis, cell)


def maps_and_curves(effort: Effort, maps: Sequence[Grid], curves: Sequence[Experiment]) -> dict[Experiment, int]:
    """How often each is run; what is in both is run as often as a curve."""
    wanted: dict[Experiment, int] = {}
    for grid in maps:
        wanted |= grid.experiments(effort.grid)
    return wanted | dict.fromkeys(curves, effort.regression)


def points_against(
    title: str, x_label: str, found: dict[float, Measured], colour: str, *, log: bool = False,
    marks: tuple[tuple[float, str], ...] = (),
) -> Lines:  # fmt: skip
    """The last round's NMSD against a setting, with the ε of each point where there is one and it differs."""
    y, low, high = np.array([band_db(final(one)[:, None]) for one in found.values()])[:, :, 0].T
    epsilons = [float(one["epsilon"].max()) for one in found.values()]
    same = max(epsilons) - min(epsilons) < 1e-6 * max(epsilons) if np.isfinite(epsilons).all() else False
    labelled = not same and bool(np.isfinite(epsilons).all())
    labels = tuple(rf"$\varepsilon$ = {epsilon_text(one)}" for one in epsilons) if labelled else ()
    name = rf"$\varepsilon$ = {epsilon_text(max(epsilons))}" if same else ""
    series = Series(name, np.array(list(found)), y, low, high, Look(colour, "-", "o"))
    return Lines(
        title,
        x_label,
        f"{NMSD} after {ROUNDS_AGAINST_A_SETTING} rounds",
        [series],
        log_x=log,
        marks=marks,
        point_labels=labels,
        error_bars=True,
    )
