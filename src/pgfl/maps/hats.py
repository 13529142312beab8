"""Hat functions: a bounded number as a piecewise linear curve, so that a linear model can follow any shape."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pgfl.arrays import Floats
from pgfl.maps.interface import Group, Groups, OnnxGraph, RowMap, length, whole

KNOTS = (2, 1000)
"""The least and the most."""


@dataclass(frozen=True)
class Hats(RowMap):
    """One hat per knot on every number that has bounds; `knots` are equally spaced between the bounds.

    A hat is 1 at its knot and 0 at the others, less its mean under the uniform law. A column that declares its own
    number of knots has these; with `knots` = 0 only such columns are mapped. Other features stay as they are.

    >>> age = Group("age", ("age",), 1.0, scaled=True)
    >>> Hats(3).apply(np.array([[-1.0], [0.5]]), (age,))
    array([[ 0.75, -0.5 , -0.25],
           [-0.25,  0.  ,  0.25]])
    >>> Hats(3).outputs((age,))[0].names
    ('age~1', 'age~2', 'age~3')
    """

    kind: ClassVar[str] = "hats"
    additive: ClassVar[bool] = True

    knots: int = 6

    def __post_init__(self) -> None:
        if self.knots != 0:
            whole("knots", self.knots, *KNOTS)

    def outputs(self, groups: Groups) -> Groups:
        """Return one feature per knot in place of a scaled number."""
        return tuple(self._mapped(group) for group in groups)

    def apply(self, rows: Floats, groups: Groups) -> Floats:
        """Return the hats' heights at every number, less their means."""
        mapped = np.empty((len(rows), length(self.outputs(groups))))
        here = there = 0
        for group in groups:
            count = self.knots_of(group)
            if count:
                mapped[:, there : there + count] = heights(rows[:, here], count)
            rest = group.size - bool(count)
            there += count
            mapped[:, there : there + rest] = rows[:, here + group.size - rest : here + group.size]
            here, there = here + group.size, there + rest
        return mapped

    def cost(self, groups: Groups) -> float:
        """Return four operations per hat."""
        return 4.0 * length(self.outputs(groups))

    def onnx(self, graph: OnnxGraph, rows: str, groups: Groups) -> str:
        """Add max(0, 1 − |x − knot| / distance) − mean for every scaled number."""
        parts, here = [], 0
        for group in groups:
            count, end = self.knots_of(group), here + group.size
            if count:
                number = sliced(graph, rows, here, here + 1)
                gap = graph.do("Abs", graph.do("Sub", number, graph.constant(positions(count)[None])))
                hat = graph.do("Sub", graph.constant(1.0), graph.do("Mul", gap, graph.constant(0.5 * (count - 1))))
                risen = graph.do("Max", hat, graph.do("Mul", hat, graph.constant(0.0)))  # NaN stays NaN
                parts.append(graph.do("Sub", risen, graph.constant(means(count)[None])))
            if here + bool(count) < end:
                parts.append(sliced(graph, rows, here + bool(count), end))
            here = end
        return graph.do("Concat", *parts, axis=1)

    def knots_of(self, group: Group) -> int:
        """Return the number of knots of a column; 0 if it is not mapped."""
        return (self.knots if group.knots is None else group.knots) if group.scaled else 0

    def _mapped(self, group: Group) -> Group:
        count = self.knots_of(group)
        if not count:
            return group
        names = tuple(f"{group.name}~{number}" for number in range(1, count + 1))
        longest = largest_square(count) + len(group.names) - 1  # an indicator adds at most 1
        return replace(group, names=(*names, *group.names[1:]), squared_norm=longest, scaled=False)


def positions(knots: int) -> Floats:
    """Return the knots between −1 and 1."""
    return np.linspace(-1.0, 1.0, knots)


def means(knots: int) -> Floats:
    """Return every hat's mean height under the uniform law: half as much at the ends."""
    found = np.full(knots, 1.0 / (knots - 1))
    found[[0, -1]] *= 0.5
    return found


def heights(numbers: Floats, knots: int) -> Floats:
    """Return one column per hat, centred; numbers outside of [−1, 1] count as its ends."""
    gap = np.abs(np.clip(numbers, -1.0, 1.0)[:, None] - positions(knots))
    return np.maximum(1.0 - gap * (0.5 * (knots - 1)), 0.0) - means(knots)


def largest_square(knots: int) -> float:
    """Return the largest squared norm of centred hats: between knots it is convex, so that at a knot."""
    return float(np.max(np.sum((np.eye(knots) - means(knots)) ** 2, axis=1)))


def sliced(graph: OnnxGraph, rows: str, first: int, last: int) -> str:
    """Return some columns of rows."""
    return graph.do("Slice", rows, *(graph.constant(np.array([number])) for number in (first, last, 1)))
