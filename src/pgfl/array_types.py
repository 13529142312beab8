"""The array types of the package: the one place that says what an array may be."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array: TypeAlias = Any
"""An array of any library that follows the array API standard: NumPy, JAX or array-api-strict."""

Namespace: TypeAlias = Any
"""The module of such a library, for instance `numpy`."""

Floats: TypeAlias = NDArray[np.float64]
AnyFloats: TypeAlias = NDArray[np.floating[Any]]
Ints: TypeAlias = NDArray[np.int64]
AnyInts: TypeAlias = NDArray[np.integer[Any]]
Bools: TypeAlias = NDArray[np.bool_]
AnyArray: TypeAlias = NDArray[Any]

__all__ = ["AnyArray", "AnyFloats", "AnyInts", "Array", "Bools", "DTypeLike", "Floats", "Ints", "Namespace"]
