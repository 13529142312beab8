"""What the cells of a table mean: empty, true or false, a whole number, a number between bounds."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from pgfl.array_types import Bools, Floats

Texts = NDArray[np.object_]
Bound = tuple[float, float]
TRUE, FALSE = ("true", "yes", "1", "t", "y"), ("false", "no", "0", "f", "n")
_WHOLE_WITH_POINT = re.compile(r"[-+]?\d+\.0+")


def scaled(values: Floats, bounds: Bound) -> Floats:
    """Numbers from [low, high] to [−1, 1]; those outside are clipped."""
    middle, half = centre(bounds)
    return np.clip((values - middle) / half, -1.0, 1.0)


def centre(bounds: Bound) -> tuple[float, float]:
    """The middle of an interval and half its length."""
    low, high = bounds
    return low + 0.5 * (high - low), 0.5 * (high - low)


def empty_cells(values: Texts) -> Bools:
    """Where a column of text has no cell."""
    return np.array([value is None for value in values], dtype=bool)


def plain_text(text: str) -> str:
    """A category or label as it is compared: a whole number has no point, however a program has written it.

    >>> plain_text("1.0"), plain_text("1.50"), plain_text("007"), plain_text("v1.0")
    ('1', '1.50', '007', 'v1.0')
    """
    return text.partition(".")[0] if _WHOLE_WITH_POINT.fullmatch(text) else text


def truth_value(text: str) -> bool | None:
    """What a cell of a boolean column means; None if it is neither true nor false.

    >>> truth_value("Yes"), truth_value("0.0"), truth_value("2")
    (True, False, None)
    """
    word = text.lower().removesuffix(".0")
    return word in TRUE if word in TRUE or word in FALSE else None
