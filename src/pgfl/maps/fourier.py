"""Random Fourier features (Rahimi and Recht, 2007): a linear model in them is a smooth function of the whole row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from pgfl.arrays import Floats
from pgfl.errors import ConfigError
from pgfl.maps.interface import Group, Groups, OnnxGraph, RowMap, length, whole
from pgfl.registry import setting
from pgfl.streams import SEED_LIMIT, Purpose, stream
from pgfl.suggestions import shown


@dataclass(frozen=True)
class Fourier(RowMap):
    """Cosines and sines of `features` / 2 random directions: inner products approximate exp(−‖x − x'‖² / (2 width²)).

    Every row has the norm 1, whatever its columns' bounds. The directions follow from `seed`, which is public.

    >>> row = np.array([[0.5, -0.5]])
    >>> mapped = Fourier(features=8).apply(row, (Group("x", ("a", "b"), None),))
    >>> mapped.shape, float(np.linalg.norm(mapped).round(12))
    ((1, 8), 1.0)
    """

    kind: ClassVar[str] = "fourier"

    features: int = setting(256)
    width: float = setting(1.0)
    seed: int = setting(0)

    def __post_init__(self) -> None:
        whole("features", self.features, 2, 1_000_000)
        whole("seed", self.seed, 0, SEED_LIMIT - 1)
        if self.features % 2:
            raise ConfigError(f"`features` of fourier must be even, cosines and sines; got {self.features}.")
        number = isinstance(self.width, int | float) and not isinstance(self.width, bool)
        if not number or not 0 < self.width < np.inf:
            raise ConfigError(f"`width` of fourier must be a positive number; got {shown(self.width)}.")

    def outputs(self, groups: Groups) -> Groups:
        """Return one group of norm 1, a little more for rounding."""
        names = tuple(f"fourier-{number}" for number in range(1, self.features + 1))
        return (Group("fourier", names, 1.0 + 1e-9),)

    def apply(self, rows: Floats, groups: Groups) -> Floats:
        """Return √(2/features)·(cos Wx, sin Wx)."""
        angle = np.einsum("nd,md->nm", rows, self._directions(rows.shape[1]))
        mapped: Floats = np.sin(np.concatenate([angle + 0.5 * np.pi, angle], axis=1))
        return mapped * float(np.sqrt(2.0 / self.features))

    def cost(self, groups: Groups) -> float:
        """Return the product, and about twenty operations per sine."""
        return self.features * (length(groups) + 20.0)

    def onnx(self, graph: OnnxGraph, rows: str, groups: Groups) -> str:
        """Add a product and a sine."""
        angle = graph.do("MatMul", rows, graph.constant(self._directions(length(groups)).T))
        both = graph.do("Concat", graph.do("Add", angle, graph.constant(0.5 * np.pi)), angle, axis=1)
        return graph.do("Mul", graph.do("Sin", both), graph.constant(float(np.sqrt(2.0 / self.features))))

    def _directions(self, columns: int) -> Floats:
        return _directions(self.features // 2, columns, float(self.width), self.seed)


@lru_cache(maxsize=4)
def _directions(count: int, columns: int, width: float, seed: int) -> Floats:
    drawn: Floats = stream(seed, 0, Purpose.MAP).standard_normal((count, columns)) / width
    drawn.flags.writeable = False
    return drawn
