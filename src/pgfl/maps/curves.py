"""Curves: a bounded number, and nested hats that bend it. What is smooth is cheap, what is wiggly costs more.

The number itself keeps its full size, so a straight line is learnt as fast as without the map. Every level has twice
the hats of the one before, half as wide and half as high: the ridge penalty, or a few noisy steps, bend a curve only as
far as records ask for it. The norm of a row hardly grows, because hats are low where the number is large.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pgfl.arrays import Floats
from pgfl.errors import ConfigError
from pgfl.maps.hats import sliced
from pgfl.maps.interface import Group, Groups, OnnxGraph, RowMap, length, whole
from pgfl.registry import setting
from pgfl.suggestions import shown

LOWER = 0.5  # every level than the one before


@dataclass(frozen=True)
class Curves(RowMap):
    """Every number that has bounds, and 2^`levels` − 1 hats beside it, of which the widest is `bend` high.

    A small `bend` keeps curves near straight lines. Other features stay as they are.

    >>> age = Group("age", ("age",), 1.0, scaled=True)
    >>> Curves(levels=2, bend=1.0).apply(np.array([[-1.0], [0.0]]), (age,))
    array([[-1.   , -0.5  , -0.125, -0.125],
           [ 0.   ,  0.5  , -0.125, -0.125]])
    >>> Curves(levels=2).outputs((age,))[0].names
    ('age', 'age~1', 'age~2', 'age~3')
    """

    kind: ClassVar[str] = "curves"
    additive: ClassVar[bool] = True

    levels: int = 3
    bend: float = setting(0.5)

    def __post_init__(self) -> None:
        whole("levels", self.levels, 1, 8)
        number = isinstance(self.bend, int | float) and not isinstance(self.bend, bool)
        if not number or not 0 < self.bend < np.inf:
            raise ConfigError(f"`bend` of curves must be a positive number; got {shown(self.bend)}.")

    def outputs(self, groups: Groups) -> Groups:
        """Return the features of every column with the hats behind its number."""
        return tuple(self._mapped(group) for group in groups)

    def apply(self, rows: Floats, groups: Groups) -> Floats:
        """Return the numbers and the hats' heights less their means."""
        mapped = np.empty((len(rows), length(self.outputs(groups))))
        here = there = 0
        for group in groups:
            mapped[:, there] = rows[:, here]
            if group.scaled:
                count = 2**self.levels - 1
                mapped[:, there + 1 : there + 1 + count] = self._heights(rows[:, here])
                there += count
            mapped[:, there + 1 : there + group.size] = rows[:, here + 1 : here + group.size]
            here, there = here + group.size, there + group.size
        return mapped

    def cost(self, groups: Groups) -> float:
        """Return four operations per hat."""
        return 4.0 * length(self.outputs(groups))

    def onnx(self, graph: OnnxGraph, rows: str, groups: Groups) -> str:
        """Add height·(max(0, 1 − |x − centre| / width) − mean) for every scaled number."""
        centre, width, height = self._hats()
        parts, here = [], 0
        for group in groups:
            parts.append(sliced(graph, rows, here, here + 1))
            if group.scaled:
                gap = graph.do("Abs", graph.do("Sub", parts[-1], graph.constant(centre[None])))
                hat = graph.do("Sub", graph.constant(1.0), graph.do("Div", gap, graph.constant(width[None])))
                risen = graph.do("Max", hat, graph.do("Mul", hat, graph.constant(0.0)))  # NaN stays NaN
                centred = graph.do("Sub", risen, graph.constant(0.5 * width[None]))
                parts.append(graph.do("Mul", centred, graph.constant(height[None])))
            if group.size > 1:
                parts.append(sliced(graph, rows, here + 1, here + group.size))
            here += group.size
        return graph.do("Concat", *parts, axis=1)

    def _hats(self) -> tuple[Floats, Floats, Floats]:
        """Return the centre, half the width and the height of every hat."""
        level = np.repeat(np.arange(self.levels), 2 ** np.arange(self.levels))
        place = np.concatenate([np.arange(2**number) for number in range(self.levels)])
        width = np.asarray(0.5**level, dtype=np.float64)
        height = np.asarray(self.bend * LOWER**level, dtype=np.float64)
        return (2 * place + 1) * width - 1.0, width, height

    def _heights(self, numbers: Floats) -> Floats:
        """Return one column per hat; numbers outside of [−1, 1] count as its ends. Its mean there is half its width."""
        centre, width, height = self._hats()
        gap = np.abs(np.clip(numbers, -1.0, 1.0)[:, None] - centre) / width
        return (np.maximum(1.0 - gap, 0.0) - 0.5 * width) * height

    def _mapped(self, group: Group) -> Group:
        if not group.scaled:
            return group
        hats = tuple(f"{group.name}~{number}" for number in range(1, 2**self.levels))
        names = (group.names[0], *hats, *group.names[1:])
        return replace(group, names=names, squared_norm=self._largest_square() + group.size - 1, scaled=False)

    def _largest_square(self) -> float:
        """Return the largest squared norm of a number and its hats: it is convex where no hat bends, so at a bend."""
        bends = np.linspace(-1.0, 1.0, 2**self.levels + 1)
        return float(np.max(bends**2 + np.sum(self._heights(bends) ** 2, axis=1)))
