"""What people pass where arrays are needed: made into arrays, or refused in one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from pgfl.array_types import AnyFloats, AnyInts
from pgfl.did_you_mean import kind_of
from pgfl.errors import DataError


def numbers(owner: str, values: ArrayLike) -> AnyFloats:
    """Anything that NumPy can read as an array of floating-point numbers; such an array is returned as it is.

    >>> numbers("The table", [[1, 2]])
    array([[1., 2.]])
    """
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        return values
    try:
        found = np.asarray(values)
        if found.dtype.kind in "biufO":
            return np.asarray(found, dtype=found.dtype if found.dtype.kind == "f" else float)
    except (TypeError, ValueError):
        pass
    raise DataError(f"{owner} has a value that is not a number, or rows of unequal length.")


def column_of(targets: AnyFloats) -> AnyFloats:
    """The numbers of a table with one column, which is how targets often come; anything else as it is."""
    return targets[:, 0] if targets.ndim == 2 and targets.shape[1] == 1 else targets


def whole_numbers(name: str, values: ArrayLike) -> AnyInts:
    """A list of whole numbers as an array; `name` is the field that it is for."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        return values
    found = np.asarray(values)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise DataError(
            f"The field {name} of a federation takes whole numbers, such as [0, 0, 1]; got {kind_of(values)}."
        )
    return found.astype(np.int64, copy=False)


def ids_of(name: str, ids: Sequence[str]) -> tuple[str, ...]:
    """A list of ids as a tuple; `name` is the field that it is for."""
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise DataError(f'The field {name} of a federation is a list of ids, such as ["north"]; got {kind_of(ids)}.')
    return ids if isinstance(ids, tuple) else tuple(ids)
