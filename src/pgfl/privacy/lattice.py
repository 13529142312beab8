"""The lattice on which sums are exact: whole multiples of 2⁻⁴⁰, with discrete Gaussian noise that OpenDP draws.

A sum of lattice points does not depend on order or rounding, so one record moves it by exactly what it moves its own
summand. Rounding to the lattice can take two neighbours √d·2⁻⁴⁰ further apart; `widened` counts that in.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pgfl.arrays import Floats
from pgfl.errors import PrivacyError

EXPONENT = -40
STEP = 2.0**EXPONENT
LEAST_UNITS = 1000  # below, ε of the discrete Gaussian exceeds the stated one: 4.430 for 4.377 at one lattice unit
MODULUS_BITS = 64
_ULPS = 1e-13  # what rounding in a conversion may add to a sensitivity, relatively
_LARGEST = 2.0 ** (MODULUS_BITS - 2)  # lattice units: half of what a signed number holds

Points = NDArray[np.int64]


def widened(sensitivity: ArrayLike, dimension: int) -> Floats:
    """Δ + √d·2⁻⁴⁰: the sensitivity of a value of `dimension` numbers once it is rounded to the lattice."""
    slack = math.sqrt(dimension) * STEP
    return np.asarray((np.asarray(sensitivity, dtype=np.float64) + slack) * (1.0 + _ULPS), dtype=np.float64)


def to_lattice(values: ArrayLike, summands: int = 1) -> Points:
    """The nearest lattice points, as whole numbers of steps; values of which `summands` could pass 2⁶² are refused."""
    scaled = np.ldexp(np.asarray(values, dtype=np.float64), -EXPONENT)
    if not (np.abs(scaled) < _LARGEST / summands).all():
        raise PrivacyError("A value is not finite, or too large for the lattice of masked sums; nothing was released.")
    return np.rint(scaled).astype(np.int64)


def from_lattice(points: Points) -> Floats:
    """Lattice points as numbers, rounded to double precision."""
    return np.ldexp(points.astype(np.float64), EXPONENT)


def units(sigma: float) -> float:
    """A standard deviation in steps of the lattice; one below `LEAST_UNITS` is refused."""
    found = sigma / STEP
    if not found >= LEAST_UNITS:
        raise PrivacyError(
            f"sigma = {sigma:.3g} is below {LEAST_UNITS * STEP:.3g}, the least that float-safe noise can draw as "
            "stated; spend less in a release or scale the data up."
        )
    return found


def with_noise(points: Points, sigma: float) -> Points:
    """Lattice points (…, d) with discrete Gaussian noise of deviation `sigma`, from the system's randomness."""
    flat = points.reshape(-1)
    noised = np.array(_measurement(len(flat), units(sigma))(flat.tolist()), dtype=np.int64)
    return noised.reshape(points.shape)


@lru_cache(maxsize=4096)
def _measurement(size: int, scale: float) -> Any:
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    return make_gaussian(vector_domain(atom_domain(T="i64"), size=size), l2_distance(T=float), scale=scale)
