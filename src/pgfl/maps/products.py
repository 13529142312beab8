"""Products of pairs of columns: how one column matters may depend on another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import numpy as np

from pgfl.arrays import Floats
from pgfl.errors import ConfigError
from pgfl.maps.interface import Group, Groups, OnnxGraph, RowMap, length
from pgfl.registry import setting
from pgfl.suggestions import quoted, shown

MOST_FEATURES = 1_000_000


@dataclass(frozen=True)
class Products(RowMap):
    """Every feature of one column times every feature of another, after the features themselves.

    `pairs` lists pairs of columns; without it all pairs are multiplied. Products count `scale` times: with less, a
    model uses them only where many records ask for it. They pay where noise is small.

    >>> rows = np.array([[0.5, 1.0, 0.0]])
    >>> columns = (Group("age", ("age",), 1.0, scaled=True), Group("sex", ("sex=f", "sex=m"), 1.0))
    >>> Products().apply(rows, columns), Products().outputs(columns)[-1].names
    (array([[0.5, 1. , 0. , 0.5, 0. ]]), ('age·sex=f', 'age·sex=m'))
    """

    kind: ClassVar[str] = "products"

    pairs: tuple[tuple[str, str], ...] | None = None
    scale: float = setting(1.0)

    def __post_init__(self) -> None:
        number = isinstance(self.scale, int | float) and not isinstance(self.scale, bool)
        if not number or not 0 < self.scale < np.inf:
            raise ConfigError(f"`scale` of products must be a positive number; got {shown(self.scale)}.")
        for pair in self.pairs or ():
            if not (isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(name, str) for name in pair)):
                raise ConfigError(
                    f'`pairs` of products lists pairs of columns, as in [["age", "sex"]]; got {shown(pair)}.'
                )
            if pair[0] == pair[1]:
                raise ConfigError(f"`pairs` of products names {quoted(pair[0])} twice in a pair; name two columns.")

    def outputs(self, groups: Groups) -> Groups:
        """Return the columns, and one group per pair."""
        made = [*groups]
        for one, other in self._pairs(groups):
            a, b = groups[one], groups[other]
            known = a.squared_norm is not None and b.squared_norm is not None
            square = a.squared_norm * b.squared_norm * self.scale**2 if known else None  # type: ignore[operator]
            names = tuple(f"{left}·{right}" for left in a.names for right in b.names)
            made.append(Group(f"{a.name}·{b.name}", names, square))
        if length(tuple(made)) > MOST_FEATURES:
            raise ConfigError(
                f"Products of all pairs are {length(tuple(made)):,} features; choose some with `pairs`, or fewer knots."
            )
        return tuple(made)

    def apply(self, rows: Floats, groups: Groups) -> Floats:
        """Return the rows with the products after them."""
        starts = _starts(groups)
        mapped = np.empty((len(rows), length(self.outputs(groups))))
        mapped[:, : rows.shape[1]] = rows
        place = rows.shape[1]
        for one, other in self._pairs(groups):
            left = rows[:, starts[one] : starts[one + 1], None]
            right = rows[:, None, starts[other] : starts[other + 1]]
            width = left.shape[1] * right.shape[2]
            mapped[:, place : place + width] = (left * right).reshape(len(rows), width) * self.scale
            place += width
        return mapped

    def cost(self, groups: Groups) -> float:
        """Return one operation per feature."""
        return float(length(self.outputs(groups)))

    def onnx(self, graph: OnnxGraph, rows: str, groups: Groups) -> str:
        """Add one multiplication of gathered columns."""
        starts = _starts(groups)
        left: list[int] = []
        right: list[int] = []
        for one, other in self._pairs(groups):
            a, b = range(starts[one], starts[one + 1]), range(starts[other], starts[other + 1])
            left += [i for i in a for _ in b]
            right += [j for _ in a for j in b]
        if not left:
            return rows
        gathered = [graph.do("Gather", rows, graph.constant(np.array(places)), axis=1) for places in (left, right)]
        scaled = graph.do("Mul", graph.do("Mul", *gathered), graph.constant(float(self.scale)))
        return graph.do("Concat", rows, scaled, axis=1)

    def _pairs(self, groups: Groups) -> Iterator[tuple[int, int]]:
        if self.pairs is None:
            yield from combinations(range(len(groups)), 2)
            return
        place = {group.name: number for number, group in enumerate(groups)}
        for pair in self.pairs:
            if unknown := [name for name in pair if name not in place]:
                raise ConfigError(f"`pairs` of products names {quoted(unknown[0])}, which is no column; name another.")
            yield place[pair[0]], place[pair[1]]


def _starts(groups: Groups) -> list[int]:
    return [0, *np.cumsum([group.size for group in groups]).tolist()]
