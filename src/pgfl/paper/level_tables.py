"""The curves against ε as tables: one for each scene, with every level of trust and its interval."""

from __future__ import annotations

from collections.abc import Iterator

from pgfl.paper.items import Effort, Lookup
from pgfl.paper.levels import NAMES, SCENES, Scene, grid, reached
from pgfl.paper.statistics import Interval


def tables(effort: Effort, measured: Lookup) -> list[str]:
    """One table in Markdown for each scene."""
    return ["\n".join(_lines(scene, effort, measured)) for scene in SCENES]


def _lines(scene: Scene, effort: Effort, measured: Lookup) -> Iterator[str]:
    points = list(grid(scene, effort))
    epsilons = list(dict.fromkeys(epsilon for _, epsilon in points))
    unit = "NMSD in dB" if scene.regression else "accuracy in per cent"
    yield f"| {scene.title}: {unit} | clients a pair | " + " | ".join(f"ε = {epsilon:g}" for epsilon in epsilons) + " |"
    yield "|---" * (2 + len(epsilons)) + "|"
    for clients in dict.fromkeys(clients for clients, _ in points):
        for method, name in NAMES.items():
            found = (reached(scene, measured(scene.trial(method, epsilon, clients))) for epsilon in epsilons)
            yield f"| {name} | {clients} | " + " | ".join(map(_cell, found)) + " |"
        limit = _cell(reached(scene, measured(scene.without_privacy(clients))))
        yield f"| without privacy | {clients} | " + " | ".join([limit] * len(epsilons)) + " |"


def _cell(level: Interval) -> str:
    return f"{level.value:.1f} ± {level.high - level.value:.1f}".replace("-", "−")
