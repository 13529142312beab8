"""Rows of a table as a plan imagines them: from the kinds of its columns and their public bounds, never from a cell.

A number that is scaled from its bounds to [−1, 1] fills only a part of that range, around a middle of its own; columns
go together, so that most of what varies lies in few directions; a category is one 1 among zeros. How much of this holds
for a table is not known beforehand, so every made-up table draws it anew: the spread of predictions shows what that is
worth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from pgfl.array_types import Floats
from pgfl.core.encoded_columns import BooleanColumn, CategoryColumn, NumberColumn
from pgfl.core.row_encoding import RowEncoding

SPREAD = 0.35
"""Standard deviation of a number within [−1, 1]: about a third, if bounds are wide enough for nearly all records."""

OFFSET = 0.35  # how far from the middle of its bounds a number's mean is, as a root mean square
DECAY = 1.5  # the i-th direction of the numbers has a variance in proportion to i^−DECAY
SIGNAL = 1.0  # coefficients along a direction are in proportion to its variance to this power
RARE = 0.05  # the share of cells that are missing, where some may be
VARIED = 0.3  # how uncertain spread, offset and decay are: the deviation of their logarithms


@dataclass(frozen=True)
class RowShape:
    """How many columns of each kind an encoded row has; `spread` is that of a typical number."""

    numbers: int = 0
    booleans: int = 0
    categories: tuple[int, ...] = ()
    indicators: int = 0
    intercept: bool = False
    spread: float = SPREAD

    @classmethod
    def of(cls, encoding: RowEncoding, spread: float = SPREAD) -> RowShape:
        """The shape of a declared table's rows."""
        numbers = [column for column in encoding.columns if isinstance(column, NumberColumn)]
        truths = [column for column in encoding.columns if isinstance(column, BooleanColumn)]
        return cls(
            len(numbers),
            len(truths),
            tuple(len(column.feature_names) for column in encoding.columns if isinstance(column, CategoryColumn)),
            sum(column.indicator for column in numbers) + sum(column.indicator for column in truths),
            encoding.intercept,
            spread,
        )

    @property
    def columns(self) -> int:
        """d."""
        return self.numbers + self.booleans + sum(self.categories) + self.indicators + self.intercept

    @property
    def typical_length(self) -> float:
        """The norm of a typical row, much below the largest possible one."""
        squares = self.numbers * (self.spread**2 + OFFSET**2) + 0.5 * self.booleans + len(self.categories)
        return math.sqrt(squares + RARE * self.indicators + self.intercept)

    @property
    def longest(self) -> float:
        """The largest norm of a row."""
        return math.sqrt(self.numbers + self.booleans + len(self.categories) + self.indicators + self.intercept)

    @property
    def halved(self) -> RowShape:
        """Half of the columns of every kind."""
        return replace(
            self,
            numbers=(self.numbers + 1) // 2,
            booleans=(self.booleans + 1) // 2,
            categories=self.categories[::2],
            indicators=(self.indicators + 1) // 2,
        )

    def table(self, rng: np.random.Generator) -> MadeUpTable:
        """One table that has this shape."""
        spread, offset, decay = (
            value * math.exp(VARIED * rng.standard_normal()) for value in (self.spread, OFFSET, DECAY)
        )
        size = max(self.numbers, 1)
        directions, _ = np.linalg.qr(rng.standard_normal((size, size)))
        variances = np.arange(1.0, size + 1.0) ** -decay
        variances *= size / variances.sum()
        mixing = directions * np.sqrt(variances)
        return MadeUpTable(
            self,
            offset * rng.standard_normal(self.numbers),
            spread / np.linalg.norm(mixing, axis=1) * np.exp(VARIED * rng.standard_normal(self.numbers)),
            directions,
            variances,
            rng.uniform(0.2, 0.8, self.booleans),
            tuple(rng.dirichlet(np.full(size, 2.0)) for size in self.categories),
        )


@dataclass(frozen=True, eq=False)
class MadeUpTable:
    """What a table is like beyond its shape; rows are drawn from it."""

    shape: RowShape
    middle: Floats
    spread: Floats
    directions: Floats
    variances: Floats
    often: Floats
    frequencies: tuple[Floats, ...]

    def rows(self, count: int, rng: np.random.Generator) -> Floats:
        """So many rows, the intercept last."""
        shape = self.shape
        numbers = rng.standard_normal((count, len(self.variances))) @ (self.directions * np.sqrt(self.variances)).T
        parts = [np.clip(self.middle + self.spread * numbers[:, : shape.numbers], -1.0, 1.0)]
        parts.append((rng.random((count, shape.booleans)) < self.often).astype(float))
        for frequency in self.frequencies:
            parts.append(np.eye(len(frequency))[rng.choice(len(frequency), count, p=frequency)])
        parts.append((rng.random((count, shape.indicators)) < RARE).astype(float))
        return np.hstack([*parts, np.ones((count, int(shape.intercept)))])

    def coefficients(self, rng: np.random.Generator) -> Floats:
        """Those of labels, which depend most on what the columns have in common."""
        shape = self.shape
        along = self.directions @ (self.variances**SIGNAL * rng.standard_normal(len(self.variances)))
        others = rng.standard_normal(shape.columns - shape.numbers)
        return np.concatenate([along[: shape.numbers], others])
