"""Named arrays as bytes, for a column of the store."""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np

from pgfl.array_types import AnyArray

State = Mapping[str, AnyArray]


def pack(arrays: State) -> bytes:
    """Arrays as bytes."""
    packed = io.BytesIO()
    np.savez(packed, **dict(arrays))  # type: ignore[arg-type]
    return packed.getvalue()


def unpack(packed: bytes) -> dict[str, AnyArray]:
    """The arrays again."""
    with np.load(io.BytesIO(packed), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
