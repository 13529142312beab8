"""Three real tables with and without privacy: the measure of nine runs each, and the verdicts that pgfl gave.

    python examples/tables/compare.py

Bounds are what a person who knows the field would state; none is read from the records.
"""

import runpy
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pgfl

Bounds = dict[str, tuple[float, float]]

DIABETES: Bounds = {
    "age": (18, 90), "bmi": (15, 50), "bp": (50, 150), "s1": (50, 350), "s2": (20, 300), "s3": (10, 120),
    "s4": (1, 10), "s5": (3, 7), "s6": (50, 150),
}  # fmt: skip
FAIR: Bounds = {
    "rate_marriage": (1, 5), "age": (17, 45), "yrs_married": (0, 25), "children": (0, 6), "religious": (1, 4),
    "educ": (8, 20), "occupation": (1, 6), "occupation_husb": (1, 6),
}  # fmt: skip
LARGEST = {
    "radius": 30, "texture": 40, "perimeter": 200, "area": 2500, "smoothness": 0.2, "compactness": 0.5,
    "concavity": 0.5, "concave points": 0.25, "symmetry": 0.4, "fractal dimension": 0.1,
}  # fmt: skip
CANCER: Bounds = {f"mean {name}": (0, most) for name, most in LARGEST.items()}
EPSILONS = (None, 8.0, 4.0, 1.0)
SEEDS = tuple(range(9))


class Study(NamedTuple):
    """What is predicted in a table, public facts about its columns, the loss, and the measure that is shown."""

    target: str
    bounds: Bounds
    goal: pgfl.Column
    loss: pgfl.Objective
    measure: str


STUDIES = {
    "diabetes": Study("progression", DIABETES, pgfl.Column(bounds=(0, 400)), pgfl.Huber(), "r2"),
    "breast_cancer": Study("diagnosis", CANCER, pgfl.Column(labels=["benign", "malignant"]), pgfl.Logistic(), "auc"),
    "fair": Study("affair", FAIR, pgfl.Column(labels=["no", "yes"]), pgfl.Logistic(), "auc"),
}


class Row(NamedTuple):
    """The figure of all clients at one ε: its median over the seeds and its ends, and how often each verdict came."""

    table: str
    measure: str
    epsilon: float | None
    median: float
    least: float
    most: float
    verdicts: Counter[str]


def main() -> list[Row]:
    """One row per table and ε, printed as Markdown."""
    found = [row for name in STUDIES for row in compared(name)]
    print("| table | measure | ε | all clients: median (least to most) | verdicts |\n|---|---|---|---|---|")
    for row in found:
        epsilon = "none" if row.epsilon is None else f"{row.epsilon:g}"
        figure = f"{row.median:.3f}"
        if row.epsilon is not None:
            figure += f" ({row.least:.3f} to {row.most:.3f})"
        verdicts = ", ".join(f"{verdict} {times}" for verdict, times in sorted(row.verdicts.items()))
        print(f"| {row.table} | {row.measure} | {epsilon} | {figure} | {verdicts} |")
    return found


def compared(name: str, epsilons: Sequence[float | None] = EPSILONS, seeds: Sequence[int] = SEEDS) -> list[Row]:
    """One table at each ε; None is without privacy, where nothing is random."""
    study = STUDIES[name]
    table = runpy.run_path(str(Path(__file__).with_name("make_tables.py")))[name]()
    columns = {column: pgfl.Column(bounds=ends) for column, ends in study.bounds.items()}
    federation = pgfl.Federation.read(
        table, target=study.target, columns=columns | {study.target: study.goal}, features=list(study.bounds),
        test=0.2, graph="complete", intercept=True,
    )  # fmt: skip
    rows: list[Row] = []
    for epsilon in epsilons:
        runs = [trained(federation, study, epsilon, seed) for seed in (seeds if epsilon is not None else (0,))]
        figures = [next(m.whole.value for m in run.measures if m.name == study.measure) for run in runs]
        verdicts: Counter[str] = Counter(run.verdict.kind for run in runs if run.verdict)
        rows.append(Row(name, study.measure, epsilon, median(figures), min(figures), max(figures), verdicts))
    return rows


def trained(federation: pgfl.Federation, study: Study, epsilon: float | None, seed: int) -> pgfl.Result:
    """One training. Noise is seeded, so that the table can be repeated; for use it must not be."""
    if epsilon is None:
        return pgfl.train(federation, pgfl.ExactMixing(rho="auto"), study.loss, rounds=300, engine="numpy")
    privacy = pgfl.Privacy(epsilon=epsilon, max_releases=20, index="release", noise="seeded")
    algorithm = pgfl.PGFL(rho="auto", client="gradient")
    return pgfl.train(federation, algorithm, study.loss, rounds=20, privacy=privacy, seed=seed, engine="numpy")


if __name__ == "__main__":
    main()
