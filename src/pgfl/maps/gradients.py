"""Histograms of gradients (after Dalal and Triggs, 2005): which way edges run in every part of an image."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pgfl.arrays import Floats
from pgfl.errors import ConfigError
from pgfl.maps.interface import Group, Groups, OnnxGraph, RowMap, whole

ORIENTATIONS = 8
SOFTENING = 1e-3  # of a block's energy: blocks with fainter edges count less
JUST_BELOW = 1.0 - 1e-6  # what rounding to single precision can lengthen a row by is less


@dataclass(frozen=True)
class Gradients(RowMap):
    """Eight soft orientations of central differences, summed over cells of `cell` × `cell` pixels.

    Blocks of 2 × 2 cells are divided by their norm; then come the square root, less the row's mean, and a length of
    1. An image without an edge becomes zeros. Images of 28 × 28 pixels give 288 features with `cell` = 7, and 1,152
    with `cell` = 4, which is better where there is little noise.

    >>> image = Group("pixel", tuple(f"pixel-{n}" for n in range(784)), 784.0, shape=(28, 28))
    >>> [len(Gradients(cell).outputs((image,))[0].names) for cell in (7, 4)]
    [288, 1152]
    """

    kind: ClassVar[str] = "gradients"

    cell: int = 7

    def __post_init__(self) -> None:
        whole("cell", self.cell, 2, 1000)

    def outputs(self, groups: Groups) -> Groups:
        """Return one group whose rows have the norm 1."""
        down, across = self._cells(groups)
        names = tuple(
            f"edge-{y}-{x}-{cell}-{orientation}"
            for y in range(1, down)
            for x in range(1, across)
            for cell in range(1, 5)
            for orientation in range(1, ORIENTATIONS + 1)
        )
        return (Group("edges", names, 1.0),)

    def apply(self, rows: Floats, groups: Groups) -> Floats:
        """Return the histograms. Sums are written out, so that no row's bits depend on the other rows."""
        down, across = self._cells(groups)
        height, width = groups[0].shape or (0, 0)
        image = np.zeros((len(rows), height + 2, width + 2))
        image[:, 1:-1, 1:-1] = rows.reshape(-1, height, width)
        horizontal = image[:, 1:-1, 2:] - image[:, 1:-1, :-2]
        vertical = image[:, 2:, 1:-1] - image[:, :-2, 1:-1]
        least = np.sqrt(horizontal * horizontal + vertical * vertical) * np.sqrt(0.5)
        sums = np.empty((len(rows), down, across, ORIENTATIONS))
        for number, (along, upwards) in enumerate(directions()):
            edge = np.maximum(horizontal * along + vertical * upwards - least, 0.0)
            strips = sum(edge[:, start :: self.cell] for start in range(1, self.cell)) + edge[:, :: self.cell]
            sums[..., number] = (
                sum(strips[:, :, start :: self.cell] for start in range(1, self.cell)) + strips[:, :, :: self.cell]
            )
        squares = sums * sums
        energy = sum(squares[..., number] for number in range(1, ORIENTATIONS)) + squares[..., 0]
        blocks = np.stack([sums[:, down_by, across_by] for down_by, across_by in corners()], axis=3)
        norm = sum(energy[:, down_by, across_by] for down_by, across_by in corners())
        roots = np.sqrt(blocks / np.sqrt(norm + SOFTENING)[:, :, :, None, None])
        flat = np.ascontiguousarray(roots.reshape(len(rows), -1))
        flat -= np.mean(flat, axis=1, keepdims=True)
        longest = np.sqrt(np.einsum("nd,nd->n", flat, flat))
        flat *= (JUST_BELOW / np.where(longest > 0.0, longest, 1.0))[:, None]
        return flat

    def cost(self, groups: Groups) -> float:
        """Return about six operations per pixel and orientation."""
        return 6.0 * ORIENTATIONS * groups[0].size

    def onnx(self, graph: OnnxGraph, rows: str, groups: Groups) -> str:
        """Add the same steps on N × orientations × height × width values."""
        down, across = self._cells(groups)
        height, width = groups[0].shape or (0, 0)

        def whole_numbers(*values: int) -> str:
            return graph.constant(np.array(values, dtype=np.int64))

        def part(value: str, *ranges: tuple[int, int, int]) -> str:
            axes, starts, ends = zip(*ranges, strict=True)
            return graph.do("Slice", value, whole_numbers(*starts), whole_numbers(*ends), whole_numbers(*axes))

        image = graph.do("Reshape", rows, whole_numbers(-1, 1, height, width))
        padded = graph.do("Pad", image, whole_numbers(0, 0, 1, 1, 0, 0, 1, 1), graph.constant(0.0))
        inner_y, inner_x = (2, 1, height + 1), (3, 1, width + 1)
        horizontal = graph.do("Sub", part(padded, inner_y, (3, 2, width + 2)), part(padded, inner_y, (3, 0, width)))
        vertical = graph.do("Sub", part(padded, (2, 2, height + 2), inner_x), part(padded, (2, 0, height), inner_x))
        squares = graph.do("Add", *(graph.do("Mul", value, value) for value in (horizontal, vertical)))
        least = graph.do("Mul", graph.do("Sqrt", squares), graph.constant(float(np.sqrt(0.5))))
        facing = np.array(list(directions())).T.reshape(2, 1, ORIENTATIONS, 1, 1)
        turned = [
            graph.do("Mul", value, graph.constant(one))
            for value, one in zip((horizontal, vertical), facing, strict=True)
        ]
        edge = graph.do("Sub", graph.do("Add", *turned), least)
        risen = graph.do("Max", edge, graph.do("Mul", edge, graph.constant(0.0)))
        cut = graph.do("Reshape", risen, whole_numbers(-1, ORIENTATIONS, down, self.cell, across, self.cell))
        sums = graph.do("ReduceSum", cut, whole_numbers(3, 5), keepdims=0)
        ends = ((0, down - 1), (1, down)), ((0, across - 1), (1, across))
        blocks = graph.do(
            "Concat",
            *(
                graph.do("Unsqueeze", part(sums, (2, *ends[0][y]), (3, *ends[1][x])), whole_numbers(1))
                for y in range(2)
                for x in range(2)
            ),
            axis=1,
        )  # N × 4 × orientations × blocks down × blocks across
        norm = graph.do("ReduceSumSquare", blocks, axes=[1, 2], keepdims=1)
        softened = graph.do("Sqrt", graph.do("Add", norm, graph.constant(SOFTENING)))
        roots = graph.do("Transpose", graph.do("Sqrt", graph.do("Div", blocks, softened)), perm=[0, 3, 4, 1, 2])
        flat = graph.do("Reshape", roots, whole_numbers(-1, (down - 1) * (across - 1) * 4 * ORIENTATIONS))
        centred = graph.do("Sub", flat, graph.do("ReduceMean", flat, axes=[1], keepdims=1))
        longest = graph.do("ReduceL2", centred, axes=[1], keepdims=1)
        positive = graph.do("Greater", longest, graph.constant(0.0))
        length = graph.do("Where", positive, longest, graph.constant(np.array([[1.0]])))
        return graph.do("Mul", graph.do("Div", centred, length), graph.constant(JUST_BELOW))

    def _cells(self, groups: Groups) -> tuple[int, int]:
        if len(groups) != 1 or groups[0].shape is None:
            raise ConfigError('The map "gradients" takes images; use it with [data] of kind "images" or "mnist".')
        height, width = groups[0].shape
        if height % self.cell or width % self.cell or min(height, width) < 2 * self.cell:
            raise ConfigError(
                f"`cell` = {self.cell} does not divide images of {height} × {width} pixels into two or more cells each "
                "way; choose another."
            )
        return height // self.cell, width // self.cell


def directions() -> Iterator[tuple[float, float]]:
    """Return the eight orientations as (horizontal, vertical)."""
    for number in range(ORIENTATIONS):
        angle = 2.0 * np.pi * number / ORIENTATIONS
        yield float(np.cos(angle)), float(np.sin(angle))


def corners() -> Iterator[tuple[slice, slice]]:
    """Return which cells are at each place of a block."""
    for down in (slice(None, -1), slice(1, None)):
        for across in (slice(None, -1), slice(1, None)):
            yield down, across
