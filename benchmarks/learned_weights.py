"""Learned weights beside every fixed τ, on fresh federations: `tau = "auto"` judged cell by cell.

    python -m benchmarks.learned_weights --runs 10
    python -m benchmarks.learned_weights --cells strangers-masked-1 families-local-4 --runs 10
    python -m benchmarks.learned_weights --table

A cell is a row of clusters, trust and ε (`free`: no privacy). What is measured goes to results-weights.csv at
once, and is not measured again, so that the command can be stopped; `--table` prints what is there. Seeds begin at
20,000: nothing was chosen on them. Change the rule of the weights, and the file must go.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

from pgfl.lab.paper.judging import Interval, difference_db
from pgfl.lab.paper.learned_weights import FAR_BETTER, NEAR_ALONE, NEAR_BEST, ROWS, TAUS, Cell
from pgfl.metrics import decibels

FIRST_SEED = 20_000
FILE = Path(__file__).with_name("results-weights.csv")
FIELDS = ("cell", "tau", "seed", "nmsd")
ALL_TAUS: tuple[float | str, ...] = ("auto", *TAUS)
CELLS = {
    **{f"{row}-{trust}-{epsilon:g}": Cell(row, "all", epsilon, trust) for epsilon in (1.0, 4.0)
       for trust in ("masked", "local") for row in ROWS if row != "records"},
    **{f"{row}-free": Cell(row) for row in ROWS},
}  # fmt: skip
Found = dict[tuple[str, str, int], float]


def read() -> Found:
    """What has been measured."""
    if not FILE.exists():
        return {}
    with FILE.open(newline="") as file:
        return {(row["cell"], row["tau"], int(row["seed"])): float(row["nmsd"]) for row in csv.DictReader(file)}


def measure(name: str, runs: int) -> None:
    """Measure what is missing of a cell, every τ on the same federations."""
    found = read()
    for seed in range(FIRST_SEED, FIRST_SEED + runs):
        for tau in ALL_TAUS:
            if (name, str(tau), seed) in found:
                continue
            value = float(CELLS[name].trial(tau).run(seed, 1)["nmsd"][0, -1])
            new = not FILE.exists()
            with FILE.open("a", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                if new:
                    writer.writerow(FIELDS)
                writer.writerow((name, tau, seed, f"{value:.6g}"))


def shown(one: Interval) -> str:
    """A difference in dB with its interval."""
    return f"{one.value:+.2f} [{one.low:+.2f}, {one.high:+.2f}]"


def line(name: str, found: Found) -> str | None:
    """One line of the table, from the seeds that every τ has been measured on."""
    seeds = [seed for seed in sorted({key[2] for key in found}) if all((name, str(t), seed) in found for t in ALL_TAUS)]
    if len(seeds) < 2:
        return None
    errors = {tau: np.array([found[name, str(tau), seed] for seed in seeds]) for tau in ALL_TAUS}
    best = min(TAUS, key=lambda tau: float(errors[tau].mean()))
    alone, beside = (difference_db(errors["auto"], errors[tau]) for tau in (0.0, best))
    wanted = FAR_BETTER if CELLS[name].row == "families" else NEAR_BEST
    verdicts = [
        "met" if one.below(most) else "missed" if one.above(most) else "open"
        for one, most in ((alone, NEAR_ALONE), (beside, wanted))
    ]
    return (
        f"| {name} | {len(seeds)} | {decibels(errors['auto'].mean()):.1f} | {shown(alone)} | {verdicts[0]} "
        f"| {best:g} | {shown(beside)} | {verdicts[1]} |"
    )


def main() -> None:
    """Parse the command line, measure, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="*", choices=list(CELLS), default=list(CELLS))
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--table", action="store_true", help="measure nothing")
    options = parser.parse_args()
    print("| cell | runs | learned, dB | relative to τ = 0 | at most 0.1 | best τ | relative | 0.3, families −5 |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.cells:
        if not options.table:
            measure(name, options.runs)
        if (text := line(name, read())) is not None:
            print(text, flush=True)


if __name__ == "__main__":
    main()
