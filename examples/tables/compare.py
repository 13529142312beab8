"""Three real tables with and without privacy: the measure of each run, and the verdict that pgfl gave.

    python examples/tables/compare.py

Bounds are what a person who knows the field would state; none is read from the records.
"""

import runpy
from pathlib import Path
from typing import NamedTuple

import pgfl

Bounds = dict[str, tuple[float, float]]
Row = tuple[str, str, float | None, float, str]

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


def main() -> list[Row]:
    """One row per table and ε: its name, the measure, ε, the figure of all clients, and the verdict."""
    found = [row for name in STUDIES for row in compared(name)]
    print("| table | measure | ε | all clients | verdict |\n|---|---|---|---|---|")
    for name, measure, epsilon, figure, verdict in found:
        print(f"| {name} | {measure} | {'none' if epsilon is None else f'{epsilon:g}'} | {figure:.3f} | {verdict} |")
    return found


def compared(name: str, epsilons: tuple[float | None, ...] = EPSILONS) -> list[Row]:
    """One table at each ε; None is without privacy."""
    target, bounds, goal, loss, measure = STUDIES[name]
    table = runpy.run_path(str(Path(__file__).with_name("make_tables.py")))[name]()
    columns = {column: pgfl.Column(bounds=ends) for column, ends in bounds.items()} | {target: goal}
    federation = pgfl.read_federation(
        table, target=target, columns=columns, features=list(bounds), test=0.2, graph="complete", intercept=True
    )
    rows: list[Row] = []
    for epsilon in epsilons:
        privacy = None if epsilon is None else pgfl.Privacy(epsilon=epsilon, max_releases=20, index="release")
        algorithm = pgfl.ExactMixing(rho="auto") if epsilon is None else pgfl.PGFL(rho="auto", client="gradient")
        rounds = 300 if epsilon is None else 20
        result = pgfl.train(federation, algorithm, loss, rounds=rounds, privacy=privacy)
        figure = next(found.whole.value for found in result.measures if found.name == measure)
        rows.append((name, measure, epsilon, figure, result.verdict.kind if result.verdict else ""))
    return rows


if __name__ == "__main__":
    main()
