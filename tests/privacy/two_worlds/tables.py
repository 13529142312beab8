"""Clients' policies, and pairs of tables that differ in one record, chosen to be as far apart as a record can bring."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

FAR = 1e20
WIDE = {"local_steps": 10**6, **{key: [0.0, 1e308] for key in ("rho", "lam", "kappa", "step_size")}}


@dataclass(frozen=True)
class Table:
    features: Any
    targets: Any


@dataclass(frozen=True)
class Config:
    """What both worlds share: the owner's settings; and the two tables in which they differ."""

    objective: str
    intercept: bool
    x_norm: float
    y_bound: float | None
    w_norm: float | None
    phi0: float
    zeta: float
    max_releases: int
    tables: tuple[Table, Table] = field(repr=False)
    limits: dict[str, Any] = field(default_factory=lambda: WIDE)
    theme: str = "anything"

    @property
    def unlucky(self):
        """How often the fast solver fails, in either world on its own."""
        return 0.4 if self.theme == "fallback" else 0.0

    @property
    def task(self):
        return "classification" if self.objective == "logistic" else "regression"

    @property
    def dimension(self):
        return self.tables[0].features.shape[1] + self.intercept

    @property
    def records(self):
        return len(self.tables[0].targets)

    @property
    def fine(self):
        """Whether the owner wants solutions so accurate that the fast solver often misses it."""
        return self.limits.get("tolerance", 1.0) < 1e-10

    @property
    def smoothness(self):
        return (0.25 if self.objective == "logistic" else 2.0) * self.x_norm**2

    @property
    def direction(self):
        """Where the record that differs points to in the first world; a good direction for a hostile centre."""
        first, second = (table.features for table in self.tables)
        row = int(np.argmax((first != second).any(axis=1)))
        return np.append(_unit(first[row]), [1.0] * self.intercept)

    def gradients(self, kappa, w):
        """The mean gradient at a model in each world, as near as an attacker needs it who knows both tables."""
        return [self._gradient(table, kappa, w) for table in self.tables]

    def _gradient(self, table, kappa, w):
        rows = np.column_stack([table.features, np.ones((len(table.targets), int(self.intercept)))])
        rows = np.array([_unit(row) * min(math.hypot(*row), self.x_norm) for row in rows])
        if self.objective == "logistic":
            slopes = 0.5 + 0.5 * np.tanh(0.5 * (rows @ w)) - table.targets
        else:
            bound = np.inf if self.y_bound is None else self.y_bound
            slopes = np.clip(2.0 * (rows @ w - np.clip(table.targets, -bound, bound)), -2.0 * kappa, 2.0 * kappa)
        return slopes @ rows / len(rows)


def hostile_config(rng):
    """A policy and two tables; in some sequences all is chosen for one attack."""
    theme = str(rng.choice(["anything", "edges", "rounding", "fallback"], p=[0.55, 0.15, 0.15, 0.15]))
    objective = str(rng.choice(["huber", "logistic"] if theme == "rounding" else ["ridge", "huber", "logistic"]))
    unbounded = objective != "ridge" and rng.random() < 0.4
    return Config(
        objective=objective,
        intercept=bool(theme != "edges" and rng.random() < 0.4),
        x_norm=float(rng.choice([1.0, 1.0, 1.0, 0.1, 10.0, 1e-3])),
        y_bound=None if unbounded else float(rng.choice([1.0, 10.0, 1e3])),
        w_norm=float(rng.choice([1.0, 5.0, 100.0])) if objective == "ridge" else None,
        phi0=float(10.0 ** rng.uniform(-3, 1)),
        zeta=float(rng.choice([1.0, 0.99, 0.8])),
        max_releases=int(rng.choice([1, 2, 3, 30], p=[0.05, 0.05, 0.1, 0.8])),
        tables=neighbours(rng, objective != "logistic", theme),
        limits=_limits(rng, theme),
        theme=theme,
    )


def _limits(rng, theme):
    """Mostly so wide that any training passes; else what an owner has who states none."""
    if theme == "anything" and rng.random() < 0.2:
        return {}
    limits = dict(WIDE, solver_steps=int(rng.choice([100, 1000, 10_000], p=[0.3, 0.6, 0.1])))
    if rng.random() < 0.25:
        limits["tolerance"] = float(10.0 ** rng.uniform(-12.7, -11.2))
    elif rng.random() < (0.7 if theme == "edges" else 0.2):
        limits["tolerance"] = float(10.0 ** (rng.uniform(-12, -7) if theme == "edges" else rng.uniform(-15, 2)))
    return limits


def neighbours(rng, regression, theme):
    """Two tables of 1 to 8 records, sometimes of more, with 1 to 4 columns that differ in one record."""
    records, columns = int(rng.integers(1, 9)), int(rng.integers(1, 5))
    if theme in ("rounding", "fallback") or rng.random() < 0.1:
        records = int(rng.integers(20, 60))
    features, targets = _rows(rng, records, columns), (rng.random(records) < 0.5).astype(float)
    if regression and rng.random() < 0.7:
        targets = _labels(rng, records)
    if theme in ("rounding", "fallback"):  # all pull the same way, as far from the centre as they can
        features, targets = np.abs(features), np.full(records, 1e3 if regression else float(rng.integers(2)))
    at = int(rng.integers(records))
    one, other = _records(rng, columns, theme) if regression else _two_classes(rng, columns, theme)
    worlds = []
    for row, label in (one, other):
        x, y = features.copy(), targets.copy()
        x[at], y[at] = row, label
        worlds.append(Table(x, y))
    return worlds[0], worlds[1]


def _rows(rng, records, columns):
    scale = rng.choice([1.0, 1.0, 1e-8, 1e5, 1e150, 1e300, 1e-310], size=(records, 1))
    return rng.standard_normal((records, columns)) * scale


def _labels(rng, records):
    return rng.choice([-1.0, 1.0], records) * 10.0 ** rng.choice([0.0, -3.0, 1.0, 5.0, 20.0], records)


def _records(rng, columns, theme):
    """Two records of a regression: opposite pulls, turned rows, a row that vanishes, anything."""
    x, y = _unit(rng.standard_normal(columns)), float(10.0 ** rng.choice([0.0, 1.0, 3.0, 20.0]))
    kind = rng.integers(6) if theme != "edges" else rng.integers(3, 5)
    if kind == 0:
        return (1e3 * x, y), (1e3 * x * (1 - 1e-9), -y)
    if kind == 1:
        return (1e3 * x, y), (-1e3 * x + 1e-3, y)
    if kind == 2:
        return (1e3 * x, -y), (1e3 * _across(rng, x), y)
    if kind == 3:
        return (0.0 * x, 0.0), (1e3 * x, y)
    if kind == 4:
        return (0.3 * x, 0.5), (1e300 * x, FAR)
    return (rng.standard_normal(columns), rng.standard_normal()), (rng.standard_normal(columns), y)


def _two_classes(rng, columns, theme):
    x = _unit(rng.standard_normal(columns))
    kind = rng.integers(4) if theme != "edges" else 2
    if kind == 0:
        return (1e3 * x, 0.0), (0.99e3 * x, 1.0)
    if kind == 1:
        across = _across(rng, x)
        return (1e3 * (across + 1e-2 * x), 0.0), (1e3 * (across - 1e-2 * x), 1.0)
    if kind == 2:
        return (0.0 * x, 1.0), (1e3 * x, 0.0)
    return (rng.standard_normal(columns), 1.0), (rng.standard_normal(columns), float(rng.random() < 0.5))


def _unit(x):
    size = np.abs(x).max()
    return x / size / np.linalg.norm(x / size) if size > 0 else x


def _across(rng, x):
    """A direction at a right angle to x; where there is none, −x/2."""
    if len(x) == 1:
        return -0.5 * x
    other = rng.standard_normal(len(x))
    return _unit(other - (other @ x) * x)
