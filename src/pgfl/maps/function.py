"""A Python function of one row as a map, in a simulation only: nobody could check elsewhere that it is the same one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pgfl.arrays import AnyFloats, Floats
from pgfl.errors import ConfigError
from pgfl.maps.interface import Group, Groups, OnnxGraph, RowMap, length


@dataclass(frozen=True)
class Function(RowMap):
    """What `call` returns for one row, an array of the row's features. What is not finite becomes 0.

    Rows are given one at a time, so that none can reach another one's features. `public` declares that nothing in it
    was learnt from these records, which privacy asks for.

    >>> Function(lambda row: [row.max(), row @ row]).apply(np.array([[3.0, 4.0]]), (Group("x", ("a", "b"), None),))
    array([[ 4., 25.]])
    """

    kind: ClassVar[str] = "function"

    call: Callable[[Floats], AnyFloats | list[float]]
    public: bool = False

    def outputs(self, groups: Groups) -> Groups:
        """Return one group without a bound, as long as what becomes of a row of zeros."""
        count = len(self._row(np.zeros(length(groups))))
        return (Group("function", tuple(f"function-{number}" for number in range(1, count + 1)), None),)

    def apply(self, rows: Floats, groups: Groups) -> Floats:
        """Return what the function makes of every row."""
        mapped = np.empty((len(rows), length(self.outputs(groups))))
        for number, row in enumerate(rows):
            made = self._row(row.copy())
            if made.shape != mapped.shape[1:]:
                raise ConfigError(
                    f"The function of a map gave {len(made)} numbers for a row and {mapped.shape[1]} for another; it "
                    "must give as many for each."
                )
            mapped[number] = made
        return np.nan_to_num(mapped, copy=False, nan=0.0, posinf=0.0, neginf=0.0)

    def cost(self, groups: Groups) -> float:
        """Return one operation per feature: nobody knows."""
        return float(length(groups) + length(self.outputs(groups)))

    def described(self) -> dict[str, Any]:
        """Refuse: a function is no constant."""
        raise _kept_here()

    def onnx(self, graph: OnnxGraph, rows: str, groups: Groups) -> str:
        """Refuse: a function has no operators."""
        raise _kept_here()

    def _row(self, row: Floats) -> Floats:
        return np.ravel(np.asarray(self.call(row), dtype=np.float64))


def _kept_here() -> ConfigError:
    return ConfigError(
        "A Python function as a map is for a simulation that stores nothing; export it to ONNX and name the file, as "
        'in map = { kind = "onnx", file = "encoder.onnx", sha256 = "…" }.'
    )
