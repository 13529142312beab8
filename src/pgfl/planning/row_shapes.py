"""Rows of a table as a plan imagines them: from the kinds of its columns and their public bounds, never from a cell.

A number that is scaled from its bounds to [−1, 1] fills only a part of that range. Quantities that cannot be negative
mostly lie near their lower bound, because few are large: their logarithms are spread evenly, so the bounds say where
the middle is. Other numbers lie around a middle of their own. Columns go together, so that most of what varies lies in
few directions; a category is one 1 among zeros. How much of this holds for a table is not known beforehand, so every
made-up table draws it anew: the spread of predictions shows what that is worth.
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

LONG_TAIL = 60.0  # the most that the largest number is over the least one that matters, of a quantity
DEVIATIONS = 6.0  # of a quantity's logarithm, from one bound to the other
OFFSET = 0.35  # how far from the middle of its bounds a number's mean is, as a root mean square
DECAY = 1.5  # the i-th direction of the numbers has a variance in proportion to i^−DECAY
MOST_SIGNAL = 1.0  # coefficients along a direction are in proportion to its variance to a power of at most this
RARE = 0.05  # the share of cells that are missing, where some may be
VARIED = 0.3  # how uncertain spread, offset and decay are: the deviation of their logarithms


def tail_of(bounds: tuple[float, float] | None) -> float:
    """How long the upper tail of a number within its bounds is, if it is a quantity; 0 if it can be negative.

    It is the standard deviation of the number's logarithm.

    >>> tail_of((-1.0, 1.0)), round(tail_of((5.0, 20.0)), 2), round(tail_of((0.0, 20.0)), 2)
    (0.0, 0.23, 0.68)
    """
    if bounds is None or bounds[0] < 0.0 or bounds[1] <= 0.0:
        return 0.0
    return math.log(min(LONG_TAIL, bounds[1] / bounds[0] if bounds[0] > 0.0 else math.inf)) / DEVIATIONS


def quantity(normal: Floats, tail: Floats | float) -> Floats:
    """Quantities scaled from their bounds to [−1, 1], of which the logarithms are normal within the bounds."""
    least = np.exp(-DEVIATIONS * tail)
    return np.asarray((2.0 * np.exp(tail * (normal - DEVIATIONS / 2.0)) - 1.0 - least) / (1.0 - least))


def quantity_moments(tail: float) -> tuple[float, float]:
    """Mean and standard deviation of such a quantity."""
    least, median = math.exp(-DEVIATIONS * tail), math.exp(-DEVIATIONS / 2.0 * tail)
    mean = median * math.exp(tail**2 / 2.0)
    deviation = mean * math.sqrt(math.expm1(tail**2))
    return (2.0 * mean - 1.0 - least) / (1.0 - least), 2.0 * deviation / (1.0 - least)


@dataclass(frozen=True)
class RowShape:
    """How many columns of each kind an encoded row has.

    The first of the `numbers` may be quantities: `tails` says how long their tails are, and `target_tail` that of the
    target. `spread` is that of a typical number around a middle of its own; where it is stated, all numbers are such.
    """

    numbers: int = 0
    booleans: int = 0
    categories: tuple[int, ...] = ()
    indicators: int = 0
    intercept: bool = False
    spread: float = SPREAD
    tails: tuple[float, ...] = ()
    target_tail: float = 0.0

    @classmethod
    def of(cls, encoding: RowEncoding, spread: float | None = None) -> RowShape:
        """The shape of a declared table's rows; a stated `spread` is that of every number."""
        numbers = [column for column in encoding.columns if isinstance(column, NumberColumn)]
        truths = [column for column in encoding.columns if isinstance(column, BooleanColumn)]
        tails = [tail for column in numbers if (tail := tail_of(column.bounds)) > 0.0]
        return cls(
            len(numbers),
            len(truths),
            tuple(len(column.feature_names) for column in encoding.columns if isinstance(column, CategoryColumn)),
            sum(column.indicator for column in numbers) + sum(column.indicator for column in truths),
            encoding.intercept,
            spread or SPREAD,
            tuple(sorted(tails)) if spread is None else (),
            tail_of(encoding.target.bounds),
        )

    @property
    def columns(self) -> int:
        """d."""
        return self.numbers + self.booleans + sum(self.categories) + self.indicators + self.intercept

    @property
    def typical_length(self) -> float:
        """The norm of a typical row, much below the largest possible one."""
        plain = self.spread**2 + OFFSET**2
        squares = (self.numbers - len(self.tails)) * plain + 0.5 * self.booleans + len(self.categories)
        squares += sum(0.5 * (plain + math.hypot(*quantity_moments(tail)) ** 2) for tail in self.tails)
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
            tails=self.tails[::2],
        )

    def table(self, rng: np.random.Generator) -> MadeUpTable:
        """One table that has this shape. How many of its numbers have the long tails that they may have is drawn."""
        spread, offset, decay = (
            value * math.exp(VARIED * rng.standard_normal()) for value in (self.spread, OFFSET, DECAY)
        )
        size = max(self.numbers, 1)
        directions, _ = np.linalg.qr(rng.standard_normal((size, size)))
        variances = np.arange(1.0, size + 1.0) ** -decay
        mixing = directions * np.sqrt(variances)
        mixing /= np.linalg.norm(mixing, axis=1, keepdims=True)
        share = rng.random()
        often = rng.random(self.numbers + 1) < share
        tails = np.concatenate([np.array(self.tails), np.zeros(self.numbers - len(self.tails)), [self.target_tail]])
        tails = np.where(often, tails * np.exp(VARIED * rng.standard_normal(self.numbers + 1)), 0.0)
        return MadeUpTable(
            self,
            offset * rng.standard_normal(self.numbers),
            spread * np.exp(VARIED * rng.standard_normal(self.numbers)),
            tails[:-1],
            float(tails[-1]),
            mixing[: self.numbers],
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
    tails: Floats
    target_tail: float
    mixing: Floats
    directions: Floats
    variances: Floats
    often: Floats
    frequencies: tuple[Floats, ...]

    def rows(self, count: int, rng: np.random.Generator) -> Floats:
        """So many rows, the intercept last."""
        shape = self.shape
        normal = rng.standard_normal((count, len(self.variances))) @ self.mixing.T
        long = self.tails > 0.0
        numbers = self.middle + self.spread * normal
        numbers[:, long] = quantity(normal[:, long], self.tails[long])
        parts = [np.clip(numbers, -1.0, 1.0)]
        parts.append((rng.random((count, shape.booleans)) < self.often).astype(float))
        for frequency in self.frequencies:
            parts.append(np.eye(len(frequency))[rng.choice(len(frequency), count, p=frequency)])
        parts.append((rng.random((count, shape.indicators)) < RARE).astype(float))
        return np.hstack([*parts, np.ones((count, int(shape.intercept)))])

    def coefficients(self, rng: np.random.Generator) -> Floats:
        """Those of labels, which depend more or less on what the columns have in common."""
        shape = self.shape
        power = rng.uniform(0.0, MOST_SIGNAL)
        along = self.directions @ (self.variances**power * rng.standard_normal(len(self.variances)))
        others = rng.standard_normal(shape.columns - shape.numbers)
        return np.concatenate([along[: shape.numbers], others])
