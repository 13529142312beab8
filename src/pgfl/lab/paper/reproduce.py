"""Runs items of the reproduction and writes pictures, tables, claims and a page."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgfl.errors import ConfigError
from pgfl.lab.paper import claims_page as page
from pgfl.lab.paper import registry
from pgfl.lab.paper.experiments import Experiment
from pgfl.lab.paper.items import Effort, Item
from pgfl.lab.paper.judging import Claim
from pgfl.lab.paper.outcome import Outcome, writing
from pgfl.lab.paper.registry import ALL, ONLY_BY_NAME
from pgfl.lab.paper.runner import Kept, Runner
from pgfl.suggestions import nearest

CLAIMS = "claims.json"
Progress = Callable[[float, float, str], None]


@dataclass(frozen=True)
class Reproduction:
    """The outcomes, and the folder they were written to."""

    outcomes: Sequence[Outcome]
    effort: Effort
    folder: Path

    @property
    def claims(self) -> list[Claim]:
        """Of all items."""
        return [claim for outcome in self.outcomes for claim in outcome.claims]

    def as_json(self) -> dict[str, object]:
        """For `claims.json` and for machines."""
        return {
            "runs": {"regression": self.effort.regression, "digits": self.effort.digits, "maps": self.effort.grid},
            "quick": self.effort.quick,
            "claims": [
                {"item": outcome.name} | claim.as_json() for outcome in self.outcomes for claim in outcome.claims
            ],
        }


def _command(names: Sequence[str], effort: Effort) -> str:
    """The command line that does the same."""
    usual = Effort.of(None, effort.quick, None).regression
    runs = [] if effort.regression == usual else [f"--runs {effort.regression}"]
    return " ".join(["pgfl reproduce", *names, *(["--quick"] if effort.quick else []), *runs])


def chosen(names: Sequence[str]) -> list[Item]:
    """The items of these names, in the order of the paper; "all" are those that need not be named."""
    known = registry.items()
    for name in names:
        if name != ALL and name not in known:
            raise ConfigError(
                f"There is no item {name!r}{nearest(name, known)}; choose from {', '.join([*known, ALL])}."
            )
    wanted = {*names, *(name for name in known if ALL in names and name not in ONLY_BY_NAME)}
    return [item for name, item in known.items() if name in wanted]


def reproduce(
    names: Sequence[str],
    effort: Effort,
    folder: Path,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    keep: Path | None = None,
) -> Reproduction:
    """Measure, judge, draw and write. `progress` receives (done, total, the current item).

    With `keep`, every measurement is a file of that folder as soon as it is made, and those that are there are not
    made again: work that was interrupted goes on where it stopped.
    """
    items = chosen(names)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CLAIMS).touch()
    if effort.mnist is not None:
        registry.check_digits(effort.mnist)
    wanted: dict[Experiment, int] = {}
    for item in items:
        for experiment, runs in item.experiments(effort).items():
            wanted[experiment] = max(runs, wanted.get(experiment, 0))
    done, doing = 0.0, ""

    def advance(cost: float) -> None:
        nonlocal done
        done += cost
        if progress is not None:
            progress(done, runner.cost, doing)

    outcomes: list[Outcome] = []
    kept = None if keep is None else Kept(keep)
    runner = Runner(wanted, workers or min(os.cpu_count() or 1, len(wanted) or 1), advance, kept)
    with runner:
        for item in items:
            doing = item.name
            advance(0.0)
            outcome = item.outcome(effort, runner.measured)
            outcome.save(folder)
            outcomes.append(outcome)
    found = Reproduction(outcomes, effort, folder)
    with writing(folder):
        text = json.dumps(found.as_json(), indent=2, ensure_ascii=False)
        (folder / CLAIMS).write_text(text + "\n", encoding="utf-8")
        page.write(_command(names, effort), found.outcomes, effort, folder)
    return found
