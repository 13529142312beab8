"""A made-up table to try the Your data view with: blood pressure of children and adults at three places."""

from __future__ import annotations

import csv
import random
from pathlib import Path

NAME, TARGET = "sample-visits.csv", "pressure"
CLIENTS, ROWS = 24, 30


def write_sample(folder: Path) -> Path:
    """Write the table, the same every time, and return its path."""
    draw, path = random.Random(7), folder / NAME
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["client", "server", "cluster", "age", "bmi", "sex", TARGET])
        for client in range(CLIENTS):
            child = client % 3 == 0
            for _ in range(ROWS):
                age, bmi = draw.uniform(4, 17) if child else draw.uniform(20, 85), draw.gauss(19 if child else 26, 3)
                sex = draw.choice("fm")
                pressure = 95 + (0.8 if child else 0.45) * age + 0.6 * bmi + 3 * (sex == "m") + draw.gauss(0, 6)
                group, place = ("children" if child else "adults"), ("north", "south", "west")[client % 4 % 3]
                rows.writerow([f"p{client:02}", place, group, f"{age:.0f}", f"{bmi:.1f}", sex, f"{pressure:.0f}"])
    return path
