"""`reproduction.md`: the verdicts on one page, and the pictures on pages below it, made by the command."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pgfl.lab.paper.conditions import REASONS
from pgfl.lab.paper.items import Effort
from pgfl.lab.paper.judging import Claim, Standing, Verdict, standing
from pgfl.lab.paper.outcome import Outcome
from pgfl.lab.paper.plots import words

_SIGNS = {"holds": "✔", "here": "◐", "elsewhere": "▲", "fails": "✘"}
MARKS: dict[Standing, str] = {
    kind: f'<span class="{name}">{sign}</span>'
    for kind, (name, sign) in zip(get_args(Standing), _SIGNS.items(), strict=True)
}
"""A sign for every standing; the site gives it a colour, amber for what holds elsewhere only."""
MEANINGS: dict[Standing, str] = {
    "holds": "at the drawn setting, and all around it where there is a map",
    "holds at the drawn setting": "but not everywhere on the map around it",
    "not at the drawn setting": "but elsewhere on the map, or under a condition that the verdict names",
    "does not hold": "its interval does not support it, or contradicts it",
}
OURS = "(ours)"
"""What stands behind a claim that the paper does not make."""
WEAK = 10.0
"""An ε above which the factor e^ε that it allows is beyond any meaning."""


def scoreboard(claims: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the table of how many claims came out how, from the rows of `claims.json`."""
    lines = ["| | claims of the paper | our own | |", "|---|---|---|---|"]
    for kind, mark in MARKS.items():
        same = [row for row in claims if standing(row["verdict"], row["here"]) == kind]
        own = sum(OURS in row["claim"] for row in same)
        lines.append(f"| {mark} **{kind}** | {len(same) - own} | {own} | {MEANINGS[kind]} |")
    return lines


def in_short(claims: Sequence[Mapping[str, Any]]) -> str:
    """Return the same in half a sentence: how many hold, hold in part and do not.

    >>> in_short([{"verdict": "holds"}, {"verdict": "holds"}, {"verdict": "holds where …"}])
    '2 hold, 1 in part and 0 do not'
    """
    counts = [sum(row["verdict"] == verdict for row in claims) for verdict in get_args(Verdict)]
    return f"{counts[0]} hold, {counts[2]} in part and {counts[1]} do not"


def weak_privacy(text: str) -> str | None:
    """Return a sentence about an ε in the legends of a figure that promises next to nothing; None without one.

    >>> weak_privacy("PGFL, ε = 113")[:53]
    '**ε = 113 is no meaningful privacy:** it allows the p'
    >>> weak_privacy("PGFL, ε = 8") is None
    True
    """
    largest = max((float(number) for number in re.findall(r"ε = (\d+(?:\.\d+)?)", text)), default=0.0)
    if largest <= WEAK:
        return None
    factor = f"a factor of 10^{largest / math.log(10):.0f}"
    return (
        f"**ε = {largest:g} is no meaningful privacy:** it allows the probability of what is seen to change by "
        f"{factor} with one record. The figure shows what the noise of this setting does to learning, not what "
        "privacy costs."
    )


PAGES = {
    "figures": ("Figures of the paper", r"fig\d+|network"),
    "theorems": ("Theorems of the paper", r"theorem\d+"),
    "further": ("Beyond the paper", ".*"),
}
"""Pages of pictures by file name: a title, and which items stand there unless a page before has them."""


def write(command: str, outcomes: Sequence[Outcome], effort: Effort, folder: Path) -> Path:
    """Write the page of a folder of pictures beside it, FOLDER.md, and the pages with the pictures into the folder."""
    path = folder.parent / f"{folder.name}.md"
    path.write_text("\n".join(_lines(command, outcomes, effort, folder.name)) + "\n", encoding="utf-8")
    for page, (title, _) in PAGES.items():
        if own := [outcome for outcome in outcomes if page_of(outcome.name) == page]:
            lines = (f"# {title}", "", f"The verdicts are on [one page](../{folder.name}.md).", "", *_pictures(own))
            (folder / f"{page}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def page_of(item: str) -> str:
    """Return the page on which the pictures of an item stand.

    >>> page_of("fig3"), page_of("theorem1"), page_of("affordable")
    ('figures', 'theorems', 'further')
    """
    return next(page for page, (_, pattern) in PAGES.items() if re.fullmatch(pattern, item))


def _lines(command: str, outcomes: Sequence[Outcome], effort: Effort, place: str) -> Iterator[str]:
    yield "# The paper, reproduced"
    yield ""
    yield from scoreboard([claim.as_json() for outcome in outcomes for claim in outcome.claims])
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
    yield "## Pictures"
    yield ""
    for outcome in outcomes:
        yield f"- [{outcome.name}]({place}/{page_of(outcome.name)}.md): {outcome.title}"


def _pictures(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The picture of every item, its notes and its map."""
    for outcome in outcomes:
        yield f"## {outcome.name}: {outcome.title}"
        yield ""
        yield f"![{outcome.title}]({outcome.name}.png)"
        yield ""
        yield f"[PDF]({outcome.name}.pdf) · [CSV]({outcome.name}.csv)"
        yield ""
        drawn = "\n".join(str(row) for panel in outcome.panels for row in panel.rows())
        for note in (*outcome.notes, *((weak,) if (weak := weak_privacy(words(drawn))) else ())):
            yield note
            yield ""
        if outcome.maps:
            yield (
                "Where the claim holds: blue cells support it, red cells contradict it; a number in brackets cannot be "
                "distinguished from the limit."
            )
            yield ""
            yield f"![map]({outcome.name}-map.png)"
            yield ""
            yield f"[PDF]({outcome.name}-map.pdf) · [CSV]({outcome.name}-map.csv)"
            yield ""


def _counts(effort: Effort) -> str:
    return (
        f"Monte Carlo runs: {effort.regression} per regression curve, {effort.digits} per classification curve, "
        f"{effort.grid} per cell of a map."
    )


def _row(outcome: Outcome, claim: Claim, place: str) -> str:
    map_link = f" ([map]({place}/{claim.map}))" if claim.map else ""
    verdict = f"{MARKS[standing(claim.verdict, claim.here)]} **{claim.sentence}**{map_link}"
    item = f"[{outcome.name}]({place}/{page_of(outcome.name)}.md)"
    cells = (item, claim.claim, claim.measured, value_text(claim), verdict)
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
