"""Clipping of rows and labels to public bounds, which makes the bounds on sensitivity true.

Lengths are compared in exact arithmetic where plain rounding cannot tell, so that no row is longer than its bound.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pgfl.arrays import AnyFloats, Bools, Floats
from pgfl.errors import PrivacyError

LABEL_BOUND = 1e6  # where no y_bound is stated: no label may be of a size that shows in how a problem is solved
_BLOCK_BYTES = 4 << 20
_SPLITTER = 134217729.0  # 2²⁷ + 1, cuts a double into two halves whose products are exact


def clip_rows(features: ArrayLike, x_norm: float) -> AnyFloats:
    """Rows scaled back to ‖x‖ ≤ x_norm, in exact arithmetic and as NumPy computes it; the others are left alone.

    Returns the same array if there is nothing to clip, and works in blocks, so that a copy is the most it costs.

    >>> clip_rows([[3.0, 4.0], [6.0, 8.0]], 5.0).round(9)
    array([[3., 4.], [3., 4.]])
    """
    check_norm("x_norm", x_norm)
    given = np.asarray(features)
    if given.ndim == 0 or given.shape[-1] == 0:
        raise PrivacyError("Rows to clip need at least one column.")
    if given.dtype not in (np.float32, np.float64):
        given = given.astype(np.float64)
    rows = given.reshape(-1, given.shape[-1])
    clipped = None
    step = max(1, _BLOCK_BYTES // (8 * rows.shape[1]))
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        norms = _norms(block)
        if not np.isfinite(norms).all():
            at = start + int(np.argmin(np.isfinite(norms)))
            raise PrivacyError(f"Row {at} holds a value that is not a finite number, so it cannot be clipped.")
        over = norms > x_norm
        near = np.flatnonzero(~over & (norms > x_norm * (1.0 - _rounding(block))))
        over[near] = _longer(block[near], x_norm)
        long = np.flatnonzero(over)
        if len(long):
            if clipped is None:
                clipped = rows.copy()
            shrink = just_below(x_norm, block) / norms[long]
            clipped[start + long] = block[long].astype(np.float64) * shrink[:, None]
    return given if clipped is None else clipped.reshape(given.shape)


def clip_labels(targets: ArrayLike, y_bound: float) -> AnyFloats:
    """Labels moved into [−y_bound, y_bound]; the same array if all are."""
    check_norm("y_bound", y_bound)
    given = np.asarray(targets)
    if given.dtype not in (np.float32, np.float64):
        given = given.astype(np.float64)
    if not np.isfinite(given).all():
        at = int(np.argmin(np.isfinite(given).ravel()))
        raise PrivacyError(f"Label {at} is not a finite number, so it cannot be clipped.")
    limit = given.dtype.type(y_bound)
    if float(limit) > y_bound:
        limit = np.nextafter(limit, given.dtype.type(0.0))
    return given if (np.abs(given) <= limit).all() else np.clip(given, -limit, limit)


def clip_weights(weights: AnyFloats, cap: float) -> AnyFloats:
    """Weights of at most `cap`; the same array if all are."""
    check_norm("weight_cap", cap)
    limit = weights.dtype.type(cap)
    if float(limit) > cap:
        limit = np.nextafter(limit, weights.dtype.type(0.0))
    return weights if (weights <= limit).all() else np.minimum(weights, limit)


def just_below(x_norm: float, rows: AnyFloats) -> float:
    """Return the length to give to rows that shall have the norm x_norm: rounding cannot make them longer than that."""
    return x_norm * (1.0 - 2.0 * _rounding(rows))


def _rounding(block: AnyFloats) -> float:
    """Return a bound on the relative error of a norm, and of a scaled row's, in the block's own precision."""
    return float((block.shape[1] + 16) * np.finfo(block.dtype).eps)


def _norms(block: AnyFloats) -> Floats:
    """Euclidean row norms in double precision; rescaled where squares over- or underflow."""
    wide = block.astype(np.float64, copy=False)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        norms = np.linalg.norm(wide, axis=1)
        extreme = np.flatnonzero(~(norms < 1e150) | (norms < 1e-150))
        if len(extreme):
            size = np.max(np.abs(wide[extreme]), axis=1)
            unit = wide[extreme] / np.where((size > 0.0) & np.isfinite(size), size, 1.0)[:, None]
            norms[extreme] = size * np.linalg.norm(unit, axis=1)
    return np.asarray(norms, dtype=np.float64)


def _longer(block: AnyFloats, limit: float) -> Bools:
    """Whether ‖x‖ > limit, with squares exact and sums in twice the working precision, as plain rounding cannot tell.

    Dekker's product and Knuth's sum, down the columns (Ogita, Rump and Oishi's Dot2).
    """
    fraction, exponent = np.frexp(limit)
    columns = np.ldexp(block.T.astype(np.float64, order="C"), -exponent)
    total, carry = _square(np.full(len(block), -fraction))
    total, carry = -total, -carry
    for column in columns:
        square, low = _square(column)
        summed = total + square
        part = summed - total
        carry += (total - (summed - part)) + (square - part) + low
        total = summed
    return np.asarray(total + carry > 0.0)


def _square(x: Floats) -> tuple[Floats, Floats]:
    """x² as an unevaluated sum of two doubles."""
    square = x * x
    big = _SPLITTER * x
    high = big - (big - x)
    low = x - high
    return square, ((high * high - square) + 2.0 * high * low) + low * low


def check_norm(name: str, value: float | None) -> None:
    """Raise unless a bound is a positive number."""
    if value is None or not (value > 0.0 and np.isfinite(value)):
        raise PrivacyError(f"{name} must be a positive number, not {value!r}; set it under [privacy].")
