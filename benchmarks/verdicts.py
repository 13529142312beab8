"""How often "noise drowns the signal" is right: private classifications by gradient steps, over a grid.

    python benchmarks/verdicts.py             # all of it, two minutes
    python benchmarks/verdicts.py --quick     # two seeds and three ε

Every table is trained at every ε with seeded noise. *Drowned* is what the verdict says from public quantities alone;
held-out rows tell whether that was right: a model is *useless* if its log loss is above that of the shares of the
labels, or its accuracy at most that of the majority. The verdict with held-out rows is counted beside it.
"""

from __future__ import annotations

import argparse
import csv
import runpy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

import pgfl
from pgfl.results.verdict import BAD, UNHEARD_IN_STEPS

EXAMPLES = Path(__file__).parents[1] / "examples" / "tables"
RESULTS = Path(__file__).parent / "results-verdicts.csv"
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
RELEASES = (10, 20, 60)
SEEDS = range(3)
COLUMNS = (
    *("name", "epsilon", "releases", "seed"),
    *("noise_to_reach", "log_loss", "trivial_log_loss", "accuracy", "majority", "kind"),
)
QUICK_EPSILONS, QUICK_SEEDS = (0.5, 2.0, 8.0), range(2)


class Study(NamedTuple):
    """A table, its target's labels, and public bounds of its features."""

    table: pd.DataFrame
    target: str
    labels: Sequence[str]
    bounds: dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Found:
    """One run: how large the noise is beside what data can reach, the verdict, and what held-out rows say."""

    name: str
    epsilon: float
    releases: int
    seed: int
    ratio: float
    drowned: bool
    log_loss: tuple[float, float]
    accuracy: tuple[float, float]
    kind: str = ""

    @property
    def worse_loss(self) -> bool:
        """Whether its probabilities are worse than the shares of the labels."""
        return not self.log_loss[0] < self.log_loss[1]

    @property
    def worse_accuracy(self) -> bool:
        """Whether its labels are no better than the majority."""
        return not self.accuracy[0] > self.accuracy[1]


def real(name: str) -> Study:
    """A table of examples/tables with the bounds that compare.py states for it."""
    study = runpy.run_path(str(EXAMPLES / "compare.py"))["STUDIES"][name]
    table = runpy.run_path(str(EXAMPLES / "make_tables.py"))[name]()
    return Study(table, study.target, study.goal.labels, study.bounds)


def digits(first: int, second: int) -> Study:
    """Two of the ten digits; 64 pixels from 0 to 16."""
    made = runpy.run_path(str(EXAMPLES / "make_tables.py"))
    pictures = made["load_digits"](as_frame=True)
    chosen = np.flatnonzero(np.isin(pictures.target, (first, second)))
    pixels = pictures.data.iloc[chosen].reset_index(drop=True)
    label = np.where(pictures.target.iloc[chosen] == first, "first", "second")
    table = made["placed"](pixels.assign(digit=label), clients=12)
    return Study(table, "digit", ("first", "second"), dict.fromkeys(pixels.columns, (0.0, 16.0)))


def synthetic(clients: int, records: int, features: int) -> Study:
    """Two clusters whose labels follow a logistic model; features are uniform in [−1, 1]."""
    rng = np.random.default_rng([clients, records, features])
    parts = []
    for cluster in range(2):
        rows = rng.uniform(-1.0, 1.0, (clients * records, features))
        slope = 8.0 * rng.normal(size=features) / np.sqrt(features)
        ill = rng.random(len(rows)) < 1.0 / (1.0 + np.exp(-rows @ slope))
        part = pd.DataFrame(rows, columns=[f"x{number}" for number in range(features)])
        client = np.arange(len(rows)) % clients
        places = {
            "client": [f"c{cluster}-{number:03d}" for number in client],
            "server": [f"s{number % 4}" for number in client],
            "cluster": f"q{cluster}",
            "ill": np.where(ill, "yes", "no"),
        }
        parts.append(part.assign(**places))
    return Study(
        pd.concat(parts, ignore_index=True), "ill", ("no", "yes"), {f"x{n}": (-1.0, 1.0) for n in range(features)}
    )


STUDIES: dict[str, Callable[[], Study]] = {
    "breast cancer": lambda: real("breast_cancer"),
    "fair": lambda: real("fair"),
    "digits, 3 or 8": lambda: digits(3, 8),
    "digits, 0 or 1": lambda: digits(0, 1),
    "synthetic, 8 × 20 records of 4": lambda: synthetic(8, 20, 4),
    "synthetic, 8 × 100 records of 4": lambda: synthetic(8, 100, 4),
    "synthetic, 32 × 20 records of 8": lambda: synthetic(32, 20, 8),
    "synthetic, 32 × 100 records of 16": lambda: synthetic(32, 100, 16),
    "synthetic, 100 × 30 records of 30": lambda: synthetic(100, 30, 30),
    "synthetic, 16 × 50 records of 60": lambda: synthetic(16, 50, 60),
    "synthetic, 8 × 400 records of 2": lambda: synthetic(8, 400, 2),
    "synthetic, 200 × 10 records of 4": lambda: synthetic(200, 10, 4),
}


def runs(
    study: Study, name: str, epsilons: Sequence[float], releases: Sequence[int], seeds: Sequence[int]
) -> Iterator[Found]:
    """Every run of one table."""
    columns = {column: pgfl.Column(bounds=ends) for column, ends in study.bounds.items()}
    federation = pgfl.Federation.read(
        study.table,
        target=study.target,
        columns=columns | {study.target: pgfl.Column(labels=list(study.labels))},
        features=list(study.bounds),
        test=0.25,
        graph="complete",
        intercept=True,
    )
    for epsilon, most, seed in product(epsilons, releases, seeds):
        privacy = pgfl.Privacy(epsilon=epsilon, max_releases=most, index="release", noise="seeded")
        result = pgfl.train(
            federation, pgfl.PGFL(rho="auto", client="gradient"), pgfl.Logistic(), rounds=most, privacy=privacy,
            seed=seed, record_every=most,
        )  # fmt: skip
        assert result.verdict is not None
        measured = {each.name: (each.whole.value, each.whole.baseline) for each in result.measures}
        ratio = result.verdict.figures.get("noise_to_reach", np.nan)
        yield Found(
            name, epsilon, most, seed, ratio, ratio >= UNHEARD_IN_STEPS, measured["log_loss"], measured["accuracy"],
            result.verdict.kind,
        )  # fmt: skip


def confusion(found: Sequence[Found]) -> str:
    """How often the verdict says drowned, beside what held-out rows say, as Markdown."""
    kinds = {
        "useless: log loss above, accuracy at most the trivial one's": (True, True),
        "log loss above only": (True, False),
        "accuracy at most the majority's only": (False, True),
        "useful: both better": (False, False),
    }
    lines = ["| held-out rows | drowned | not drowned | verdict with held-out rows is bad |", "|---|---|---|---|"]
    for title, kind in kinds.items():
        some = [each for each in found if (each.worse_loss, each.worse_accuracy) == kind]
        said, bad = sum(each.drowned for each in some), sum(each.kind in BAD for each in some)
        lines.append(f"| {title} | {said} | {len(some) - said} | {bad} |")
    return "\n".join(lines)


def by_ratio(
    found: Sequence[Found], edges: Sequence[float] = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 1.0, np.inf)
) -> str:
    """How many runs are useless, by the size of the noise beside what data can reach."""
    lines = [
        "| noise / reach | runs | log loss above the trivial one's | accuracy at most the majority's |",
        "|---|---|---|---|",
    ]
    for low, high in pairwise(edges):
        some = [each for each in found if low <= each.ratio < high]
        if some:
            loss, accuracy = (
                np.mean([getattr(each, name) for each in some]) for name in ("worse_loss", "worse_accuracy")
            )
            lines.append(f"| {low:g} to {high:g} | {len(some)} | {loss:.0%} | {accuracy:.0%} |")
    return "\n".join(lines)


def by_table(found: Sequence[Found]) -> str:
    """Medians over seeds and releases: log loss beside the trivial one's, accuracy beside the majority's."""
    epsilons = sorted({each.epsilon for each in found})
    lines = [
        f"| table | {' | '.join(f'ε = {epsilon:g}' for epsilon in epsilons)} |",
        "|---" * (len(epsilons) + 1) + "|",
    ]
    for name in dict.fromkeys(each.name for each in found):
        cells = []
        for epsilon in epsilons:
            some = [each for each in found if (each.name, each.epsilon) == (name, epsilon)]
            useless = sum(each.worse_loss or each.worse_accuracy for each in some)
            cells.append(f"{sum(each.drowned for each in some)} / {useless} of {len(some)}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def keep(path: Path, found: Sequence[Found]) -> None:
    """Write all runs."""
    with path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for each in found:
            measured = (f"{value:.6g}" for value in (each.ratio, *each.log_loss, *each.accuracy))
            table.writerow([each.name, each.epsilon, each.releases, each.seed, *measured, each.kind])


def kept_runs(path: Path) -> list[Found]:
    """Return the runs of an earlier call."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = []
    for row in rows:
        ratio, loss, trivial_loss, accuracy, majority = (float(row[name]) for name in COLUMNS[4:9])
        place = row["name"], float(row["epsilon"]), int(row["releases"]), int(row["seed"])
        measured = (loss, trivial_loss), (accuracy, majority)
        found.append(Found(*place, ratio, ratio >= UNHEARD_IN_STEPS, *measured, row["kind"]))
    return found


def main(arguments: Sequence[str] | None = None) -> list[Found]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three ε and two seeds")
    parser.add_argument("--keep", type=Path, default=RESULTS, help="the file of all runs")
    parser.add_argument("--report", action="store_true", help="run nothing; only the tables of what was kept")
    options = parser.parse_args(arguments)
    epsilons, seeds = (QUICK_EPSILONS, QUICK_SEEDS) if options.quick else (EPSILONS, SEEDS)
    found = kept_runs(options.keep) if options.report else []
    for name, make in () if options.report else STUDIES.items():
        found += runs(make(), name, epsilons, RELEASES, seeds)
        print(f"{len(found)} runs, the last of {name}", flush=True)
    if not options.report and not options.quick:
        keep(options.keep, found)
    for title, page in (
        ("verdict", confusion),
        ("by size of noise", by_ratio),
        ("drowned / worse, by table", by_table),
    ):
        print(f"\n{title}\n\n{page(found)}")
    return found


if __name__ == "__main__":
    main()
