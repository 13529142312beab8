"""Where the noise of a release comes from: fast and seeded for simulations, float-safe for whatever leaves a device.

A Gaussian drawn in floating point is not private whatever its seed: which floats it can reach depends on the value
under it. OpenDP rounds the value to a lattice and adds a discrete Gaussian on it, with exact arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from pgfl import equations as eq
from pgfl.arrays import AnyFloats, AnyInts, Floats
from pgfl.errors import PrivacyError
from pgfl.privacy import lattice

Normals = Callable[[Any, int, int], AnyFloats]

_CACHED = 4096


class NoiseSource(Protocol):
    """Releases models with Gaussian noise."""

    label: str

    def widen(self, sensitivity: ArrayLike) -> Floats:
        """The sensitivity to calibrate with: Δ, plus what this source itself adds to it."""

    def check(self, sigma: ArrayLike) -> None:
        """Refuse deviations that this source cannot draw as stated: ask before anything is charged or computed."""

    def release(self, models: ArrayLike, sigma: ArrayLike, clients: AnyInts, round: int) -> Floats:
        """Models (A, d) with noise of standard deviation σ (A,) on every coordinate."""


class SeededNoise:
    """w̃ = w + σz with reproducible standard normals `normals(clients, round, d)` (A, d): for simulations only."""

    label = "seeded"

    def __init__(self, normals: Normals) -> None:
        self.normals = normals

    def widen(self, sensitivity: ArrayLike) -> Floats:
        """Δ as it is."""
        return np.asarray(sensitivity, dtype=np.float64)

    def check(self, sigma: ArrayLike) -> None:
        """Any positive number will do."""
        _check_sigma(np.asarray(sigma, dtype=np.float64))

    def release(self, models: ArrayLike, sigma: ArrayLike, clients: AnyInts, round: int) -> Floats:
        """Add ξ_k ~ N(0, σ_k² I) to every model."""
        clean, scale = _checked(models, sigma)
        scaled: Floats = self.drawn(clients, round, clean.shape) * scale[:, None]
        return np.asarray(eq.privacy_noise_addition(clean, scaled))

    def drawn(self, clients: AnyInts, round: int, shape: tuple[int, ...]) -> AnyFloats:
        """z_k of every client, for models of this shape."""
        noise = self.normals(clients, round, shape[1])
        if noise.shape != shape:
            raise PrivacyError(f"The noise has shape {noise.shape} and the models {shape}; nothing was released.")
        return noise


class SecureNoise:
    """OpenDP's float-safe Gaussian for models of one dimension, behind a guard; its randomness is the system's.

    OpenDP accepts a wrong length, NaN and infinity silently, so they are refused here.
    """

    label = "secure"

    def __init__(self, dimension: int) -> None:
        if dimension < 1:
            raise PrivacyError(f"A model has at least one coordinate, not {dimension}.")
        self.dimension = dimension
        self._measurement = lru_cache(maxsize=_CACHED)(_maker(dimension))

    def widen(self, sensitivity: ArrayLike) -> Floats:
        """Δ + √d·2⁻⁴⁰: rounding to the lattice can take two neighbours further apart."""
        return lattice.widened(sensitivity, self.dimension)

    @property
    def least_sigma(self) -> float:
        """The least σ at which the discrete noise is as private as the Gaussian that the account states."""
        return lattice.LEAST_UNITS * lattice.STEP

    def check(self, sigma: ArrayLike) -> None:
        """Refuse a σ below `least_sigma`; it depends on public quantities alone, so a refusal reveals nothing."""
        scale = np.asarray(sigma, dtype=np.float64)
        _check_sigma(scale)
        if (scale < self.least_sigma).any():
            raise PrivacyError(
                f"sigma = {scale.min():.3g} is below {self.least_sigma:.3g}, the least that float-safe noise can draw "
                "as stated; spend less in a release or scale the data up."
            )

    def release(self, models: ArrayLike, sigma: ArrayLike, clients: AnyInts, round: int) -> Floats:
        """Each model through its own measurement."""
        clean, scale = _checked(models, sigma)
        if clean.shape[1] != self.dimension:
            raise PrivacyError(
                f"A model has {clean.shape[1]} coordinates but the noise is for {self.dimension}; nothing was released."
            )
        self.check(scale)
        released = np.empty_like(clean)
        for row, (model, deviation) in enumerate(zip(clean.tolist(), scale.tolist(), strict=True)):
            released[row] = self._measurement(deviation)(model)
        return released

    def spent(self, sigma: float, sensitivity: float) -> float:
        """ρ of one release by OpenDP's own privacy map, for a plain sensitivity (not widened)."""
        return float(self._measurement(float(sigma)).map(float(sensitivity)))


def _checked(models: ArrayLike, sigma: ArrayLike) -> tuple[Floats, Floats]:
    """Models (A, d) and deviations (A,) in double precision, or a refusal."""
    given = np.asarray(models)
    if given.dtype.kind != "f":
        raise PrivacyError(f"Models to release must be floating-point numbers, not {given.dtype}.")
    scale = np.asarray(sigma, dtype=np.float64)
    if given.ndim != 2 or scale.shape != given.shape[:1]:
        raise PrivacyError(
            f"Models must be (clients, dimension) with one sigma per client, not {given.shape} with {scale.shape}."
        )
    clean = given.astype(np.float64, copy=False)
    square = np.vdot(clean, clean)  # one pass, and finite only if every coordinate is
    if not (math.isfinite(square) or np.isfinite(clean).all()):
        raise PrivacyError("A model to release holds NaN or infinity; nothing was released.")
    _check_sigma(scale)
    return clean, scale


def _check_sigma(scale: Floats) -> None:
    if not ((scale > 0.0) & np.isfinite(scale)).all():
        raise PrivacyError("sigma must be a positive number for every client; nothing was released.")


def _maker(dimension: int) -> Callable[[float], Any]:
    """A function from σ to OpenDP's measurement; the domain is built once.

    OpenDP's prelude would also import scikit-learn and pandas where they are installed, which a device need not hold.
    """
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    domain = vector_domain(atom_domain(T=float, nan=False), size=dimension)
    metric = l2_distance(T=float)

    def measurement(sigma: float) -> Any:
        return make_gaussian(domain, metric, scale=sigma, k=lattice.EXPONENT)

    return measurement
