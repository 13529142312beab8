"""Rows of a table as a plan imagines them: from the kinds of its columns and their public bounds, never from a cell.

A number that is scaled from its bounds to [−1, 1] has a mean and a spread of its own, and its distance to the nearer
bound is log-normal. Quantities from 0 upwards mostly lie in the lower half. Columns go together, so that much of what
varies lies in few directions; a category is one 1 among zeros. How far this goes differs between tables and is not
known beforehand. So every made-up table draws it anew, as it was found in public tables with bounds that hold 98 of 100
records (docs/affordable-privacy.md): the spread of predictions shows what not knowing it is worth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from pgfl.arrays import Floats
from pgfl.federation.columns import BooleanColumn, CategoryColumn, NumberColumn
from pgfl.federation.encoding import RowEncoding
from pgfl.maps import Group, Groups, RowMap, length, squared_norm, stages

SPREAD = 0.46  # standard deviation of a typical number within [−1, 1]
SPREADS_VARY = 0.25  # the deviation of its logarithm between columns
MIDDLE, MIDDLES_VARY = -0.05, 0.27  # mean of a number within its bounds, and how it differs between columns
LOW_MIDDLE, LOW_MIDDLES_VARY = -0.37, 0.37  # the same of a quantity from 0 upwards
FURTHEST = 0.85  # of a mean from the middle of its bounds
LOW = 0.1  # a quantity's lower bound is less than this part of its upper one, and not negative
DECAY, DECAYS_VARY = (0.75, 2.0), 0.45
"""The i-th direction has a variance in proportion to i^−decay, the steeper the better labels can be predicted: columns
that say much about one label have much in common. The second number is the deviation of its logarithm."""

COMMON, ALONG, SIGNAL_VARIES = 0.3, 1.6, 0.2
"""Coefficients along a direction are in proportion to its variance to a power. It is about 0 up to a share of explained
variance of `COMMON`, and rises beyond: what can be predicted well is what columns have in common."""

HEAVY = 4  # degrees of freedom of coefficients: a few columns matter most
RARE = 0.05  # the share of cells that are missing, where some may be
TABLES_DRAWN, ROWS_DRAWN = 8, 50  # to see how long mapped rows are
OFTEN = (0.1, 0.85)  # how often a truth value may be true


def from_zero(bounds: tuple[float, float] | None) -> bool:
    """Return whether bounds are those of a quantity from about 0 upwards.

    >>> from_zero((-1.0, 1.0)), from_zero((5.0, 20.0)), from_zero((0.0, 20.0))
    (False, False, True)
    """
    return bounds is not None and 0.0 <= bounds[0] < LOW * bounds[1]


def skewed(normal: Floats, middle: Floats | float, spread: Floats | float) -> Floats:
    """Deviations in units of the spread, so that the distance to the bound that is nearer to the middle is log-normal.

    >>> float(skewed(np.array([-9.0]), -0.5, 0.5)[0])  # hardly a number is further below −0.5 than −1
    -0.999...
    """
    side = np.where(np.asarray(middle) > 0.0, -1.0, 1.0)
    away = np.asarray(spread) / (1.0 - np.abs(middle))
    width = np.sqrt(np.log1p(away**2))
    return np.asarray(side * np.expm1(width * side * normal - width**2 / 2.0) / away)


@dataclass(frozen=True)
class RowShape:
    """How many columns of each kind an encoded row has.

    The first of the `numbers` are `quantities` from 0 upwards. `spread` is that of a typical number.
    """

    numbers: int = 0
    booleans: int = 0
    categories: tuple[int, ...] = ()
    indicators: int = 0
    intercept: bool = False
    quantities: int = 0
    spread: float = SPREAD
    maps: tuple[RowMap, ...] = ()

    @classmethod
    def of(cls, encoding: RowEncoding, spread: float | None = None) -> RowShape:
        """Return the shape of a declared table's rows; a stated `spread` is that of a typical number."""
        numbers = [column for column in encoding.columns if isinstance(column, NumberColumn)]
        truths = [column for column in encoding.columns if isinstance(column, BooleanColumn)]
        return cls(
            len(numbers),
            len(truths),
            tuple(len(column.feature_names) for column in encoding.columns if isinstance(column, CategoryColumn)),
            sum(column.indicator for column in numbers) + sum(column.indicator for column in truths),
            encoding.intercept,
            sum(from_zero(column.bounds) for column in numbers),
            spread or SPREAD,
            encoding.maps,
        )

    @property
    def columns(self) -> int:
        """d, of mapped rows."""
        return length(self._stages[1]) + self.intercept if self.maps else self._plain

    @property
    def _plain(self) -> int:
        """How many features rows have before they are mapped."""
        return self.numbers + self.booleans + sum(self.categories) + self.indicators + self.intercept

    @property
    def typical_length(self) -> float:
        """The norm of a typical row, much below the largest possible one."""
        if self.maps:
            return _drawn_length(self)
        others = self.numbers - self.quantities
        squares = self.numbers * self.spread**2 + self.quantities * (LOW_MIDDLE**2 + LOW_MIDDLES_VARY**2)
        squares += others * (MIDDLE**2 + MIDDLES_VARY**2) + sum(OFTEN) / 2.0 * self.booleans + len(self.categories)
        return math.sqrt(squares + RARE * self.indicators + self.intercept)

    @property
    def longest(self) -> float:
        """The largest norm of a row."""
        if self.maps:
            return math.sqrt((squared_norm(self._stages[1]) or math.inf) + self.intercept)
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
            quantities=(self.quantities + 1) // 2,
        )

    @property
    def _stages(self) -> tuple[tuple[tuple[RowMap, Groups], ...], Groups]:
        """What rows go through, with groups that stand for the columns."""
        numbers = (Group(f"number-{n}", (f"number-{n}",), 1.0, scaled=True) for n in range(self.numbers))
        truths = (Group(f"truth-{n}", (f"truth-{n}",), 1.0) for n in range(self.booleans))
        texts = (
            Group(f"text-{n}", tuple(f"text-{n}={word}" for word in range(size)), 1.0)
            for n, size in enumerate(self.categories)
        )
        gaps = (Group(f"gap-{n}", (f"gap-{n}",), 1.0) for n in range(self.indicators))
        return stages(self.maps, (*numbers, *truths, *texts, *gaps))

    def mapped(self, rows: Floats) -> Floats:
        """Return rows as a model sees them."""
        if not self.maps:
            return rows
        features = rows[:, : self._plain - self.intercept]
        for one, groups in self._stages[0]:
            features = one.apply(features, groups)
        return np.hstack([features, np.ones((len(rows), int(self.intercept)))])

    def table(self, rng: np.random.Generator, explained: float = 0.5) -> MadeUpTable:
        """Return one table that has this shape, with columns that explain such a share of a label's variance."""
        size = max(1, self.numbers + self.booleans + len(self.categories))
        decay = (DECAY[0] + DECAY[1] * explained) * math.exp(DECAYS_VARY * rng.standard_normal())
        directions, _ = np.linalg.qr(rng.standard_normal((size, size)))
        variances = np.arange(1.0, size + 1.0) ** -decay
        mixing = directions * np.sqrt(variances)
        low = np.arange(self.numbers) < self.quantities
        middle = np.where(low, LOW_MIDDLE, MIDDLE)
        middle = middle + np.where(low, LOW_MIDDLES_VARY, MIDDLES_VARY) * rng.standard_normal(self.numbers)
        return MadeUpTable(
            self,
            np.clip(middle, -FURTHEST, FURTHEST),
            self.spread * np.exp(SPREADS_VARY * rng.standard_normal(self.numbers)),
            mixing / np.linalg.norm(mixing, axis=1, keepdims=True),
            directions,
            variances / variances.mean(),
            rng.uniform(*OFTEN, self.booleans),
            tuple(rng.dirichlet(np.full(size, 2.0)) for size in self.categories),
        )


@lru_cache(maxsize=64)
def _drawn_length(shape: RowShape) -> float:
    """Return the norm of a typical mapped row, as drawn."""
    rng = np.random.default_rng(0)
    squares = [
        float(np.mean(np.sum(shape.mapped(shape.table(rng).rows(ROWS_DRAWN, rng)) ** 2, axis=1)))
        for _ in range(TABLES_DRAWN)
    ]
    return math.sqrt(float(np.mean(squares)))


@dataclass(frozen=True, eq=False)
class MadeUpTable:
    """What a table is like beyond its shape; rows are drawn from it."""

    shape: RowShape
    middle: Floats
    spread: Floats
    mixing: Floats
    directions: Floats
    variances: Floats
    often: Floats
    frequencies: tuple[Floats, ...]

    @property
    def size(self) -> int:
        """How many columns go together: all but indicators and the intercept."""
        return len(self.variances)

    def rows(self, count: int, rng: np.random.Generator, shift: Floats | float = 0.0) -> Floats:
        """So many rows, the intercept last; `shift` moves what is behind the columns, in their deviations."""
        shape = self.shape
        normal = rng.standard_normal((count, self.size)) @ self.mixing.T + shift
        first, last = shape.numbers, shape.numbers + shape.booleans
        parts = [np.clip(self.middle + self.spread * skewed(normal[:, :first], self.middle, self.spread), -1.0, 1.0)]
        place = ndtr(normal)
        parts.append((place[:, first:last] < self.often).astype(float))
        for column, frequency in enumerate(self.frequencies, last):
            chosen = np.searchsorted(np.cumsum(frequency)[:-1], place[:, column])
            parts.append(np.eye(len(frequency))[chosen])
        parts.append((rng.random((count, shape.indicators)) < RARE).astype(float))
        return np.hstack([*parts, np.ones((count, int(shape.intercept)))])

    def coefficients(self, rng: np.random.Generator, explained: float = 0.5) -> Floats:
        """Those of labels, which depend more or less on what the columns have in common; that of the intercept is 0."""
        shape = self.shape
        power = ALONG * max(0.0, explained - COMMON) + SIGNAL_VARIES * rng.standard_normal()
        along = self.directions @ (self.variances**power * rng.standard_t(HEAVY, self.size))
        along /= max(float(np.sqrt(np.mean(along**2))), 1e-12)
        others = rng.standard_normal(sum(shape.categories) + shape.indicators)
        return np.concatenate([along[: shape.numbers + shape.booleans], others, np.zeros(int(shape.intercept))])
