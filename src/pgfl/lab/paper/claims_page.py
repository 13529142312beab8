"""`reproduction.md`: the verdicts and the pictures on one page, made by the command."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from pgfl.lab.paper.conditions import REASONS
from pgfl.lab.paper.items import Effort
from pgfl.lab.paper.judging import Claim
from pgfl.lab.paper.outcome import Outcome
from pgfl.lab.paper.plots import words


def write(command: str, outcomes: Sequence[Outcome], effort: Effort, folder: Path) -> Path:
    """The page of a folder of pictures, beside it: FOLDER.md."""
    path = folder.parent / f"{folder.name}.md"
    path.write_text("\n".join(_lines(command, outcomes, effort, folder.name)) + "\n", encoding="utf-8")
    return path


def _lines(command: str, outcomes: Sequence[Outcome], effort: Effort, place: str) -> Iterator[str]:
    yield "# The paper, reproduced"
    yield ""
    yield f"Written by `{command}`; do not edit. {_counts(effort)}"
    yield ""
    yield (
        "Runs are paired: in every run two settings share data, network, participants and noise. A claim is judged on "
        "their difference, which is known more precisely than either curve; bands and error bars in pictures belong "
        "to single curves. Intervals are 95 % t intervals over runs; several intervals that must hold together share "
        "the 5 %. A claim that its interval does not support *does not hold*. *Holds where …* is read from a map, "
        "whose CSV is linked."
    )
    yield ""
    yield "## Verdicts"
    yield ""
    yield "| item | claim | measured | value [95 % interval] | verdict |"
    yield "|---|---|---|---|---|"
    for outcome in outcomes:
        for claim in outcome.claims:
            yield _row(outcome, claim, place)
    yield ""
    yield "## Settings that the paper leaves out"
    yield ""
    yield "| what | choice | why |"
    yield "|---|---|---|"
    for what, choice, why in REASONS:
        yield f"| {_cell(what)} | {_cell(choice)} | {_cell(why)} |"
    yield ""
    for outcome in outcomes:
        yield f"## {outcome.name}: {outcome.title}"
        yield ""
        yield f"![{outcome.title}]({place}/{outcome.name}.png)"
        yield ""
        yield f"[PDF]({place}/{outcome.name}.pdf) · [CSV]({place}/{outcome.name}.csv)"
        yield ""
        for note in outcome.notes:
            yield note
            yield ""
        if outcome.maps:
            yield (
                "Where the claim holds: blue cells support it, red cells contradict it; a number in brackets cannot be "
                "distinguished from the limit."
            )
            yield ""
            yield f"![map]({place}/{outcome.name}-map.png)"
            yield ""
            yield f"[PDF]({place}/{outcome.name}-map.pdf) · [CSV]({place}/{outcome.name}-map.csv)"
            yield ""


def _counts(effort: Effort) -> str:
    return (
        f"Monte Carlo runs: {effort.regression} per regression curve, {effort.digits} per classification curve, "
        f"{effort.grid} per cell of a map."
    )


def _row(outcome: Outcome, claim: Claim, place: str) -> str:
    map_link = f" ([map]({place}/{claim.map}))" if claim.map else ""
    verdict = f"**{claim.sentence}**{map_link}"
    cells = (outcome.name, claim.claim, claim.measured, value_text(claim), verdict)
    return "| " + " | ".join(map(_cell, cells)) + " |"


def value_text(claim: Claim) -> str:
    """The number with its interval and unit."""
    value, low, high = (_number(x) for x in (claim.value, claim.low, claim.high))
    return f"{value} [{low}, {high}] {claim.unit}".rstrip()


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "–" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    digits = 2 if abs(value) < 100 else 0
    text = f"{value:.{digits}f}" if abs(value) >= 0.01 or value == 0 else f"{value:.1e}"
    return text.replace("-", "−")


def _cell(text: str) -> str:
    return re.sub(r"(?<![\w-])-(?=\d)", "−", words(text)).replace("|", "\\|")
