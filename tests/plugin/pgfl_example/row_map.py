"""Squares: every feature and its square."""

import itertools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pgfl import RowMap
from pgfl.maps import Group
from pgfl.registry import setting


@dataclass(frozen=True)
class Squares(RowMap):
    """A feature x and `scale`·x², for rows whose columns have bounds."""

    kind: ClassVar[str] = "squares"
    additive: ClassVar[bool] = True

    scale: float = setting(0.5)

    def outputs(self, groups):
        made = []
        for group in groups:
            bound = None if group.squared_norm is None else group.squared_norm + (self.scale * group.squared_norm) ** 2
            names = (*group.names, *(f"{name}²" for name in group.names))
            made.append(Group(group.name, names, bound))
        return tuple(made)

    def apply(self, rows, groups):
        parts, start = [], 0
        for group in groups:
            own = rows[:, start : start + group.size]
            parts += [own, self.scale * own * own]
            start += group.size
        return np.concatenate(parts, axis=1)

    def cost(self, groups):
        return 2.0 * sum(group.size for group in groups)

    def onnx(self, graph, rows, groups):
        squares = graph.do("Mul", graph.do("Mul", rows, rows), graph.constant(self.scale))
        sizes = np.cumsum([0, *(group.size for group in groups)])
        total = int(sizes[-1])
        order = [place + shift for a, b in itertools.pairwise(sizes) for shift in (0, total) for place in range(a, b)]
        return graph.do("Gather", graph.do("Concat", rows, squares, axis=1), graph.constant(np.array(order)), axis=1)
