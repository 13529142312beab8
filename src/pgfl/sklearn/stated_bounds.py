"""Bounds of columns, as a user states them or as training rows have them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pgfl.array_types import Floats

Bounds = tuple[float, float] | list[tuple[float, float]] | ArrayLike
"""One pair (low, high) for all columns, or one pair per column."""


def spanned(values: Floats) -> tuple[float, float]:
    """Bounds of a column's values; a constant gets room on both sides."""
    low, high = float(values.min()), float(values.max())
    room = max(1.0, abs(low))
    return (low, high) if high - low > 1e-12 * room else (low - room, high + room)


def stated_bounds(bounds: Bounds, columns: int) -> list[tuple[float, float]]:
    """One pair (low, high) per column."""
    try:
        pairs = np.asarray(bounds, dtype=np.float64)
    except (TypeError, ValueError):
        pairs = np.empty(0)
    pairs = np.tile(pairs, (columns, 1)) if pairs.shape == (2,) else pairs
    if pairs.shape != (columns, 2) or not np.isfinite(pairs).all() or not (pairs[:, 0] < pairs[:, 1]).all():
        raise ValueError(f"Bounds are one pair (low, high) or {columns} of them, with low < high; got {bounds!r}.")
    return [(float(low), float(high)) for low, high in pairs]
