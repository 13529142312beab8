"""How far one record can move what a client releases, and the clipping that makes the bound true.

Neighbours differ in one replaced record; the number of records D_k is public. The primal problem is strongly convex
with m = ρ + 2λ/|C_s|, so replacing a record moves its exact solution by at most sup ‖∇ℓ(z;w) − ∇ℓ(z';w)‖ / (D_k m),
for any centre a server may have sent. (The paper's Lemma 1 with its proof mended; it needs convexity.)

A linearised step w_{q,s} − ∇f_k(w_{q,s})/ρ moves by at most sup ‖∇ℓ(z;w) − ∇ℓ(z';w)‖ / (D_k ρ), because the model
w_{q,s} and the regulariser are public. With `full_records` = R a client with D_k < R records takes D_k/R of that step,
so that its Δ has R in the place of D_k.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pgfl.array_types import AnyFloats, Bools, Floats
from pgfl.core import equations as eq
from pgfl.core.algorithms import Algorithm
from pgfl.core.client_rules import GradientSteps, LinearisedStep, ProximalStep
from pgfl.errors import PrivacyError
from pgfl.objectives import Bounds, Objective

LABEL_BOUND = 1e6  # where no y_bound is stated: no label may be of a size that shows in how a problem is solved

_BLOCK_BYTES = 4 << 20
_SPLITTER = 134217729.0  # 2²⁷ + 1, cuts a double into two halves whose products are exact


def release_sensitivity(
    objective: Objective,
    algorithm: Algorithm,
    bounds: Bounds,
    counts: ArrayLike,
    modulus: ArrayLike,
    tolerance: ArrayLike = 0.0,
) -> Floats:
    """Δ_k of what a client releases, one per client, for D_k = `counts` rows and m_k = `modulus`.

    An update clipped to ‖w − centre‖ ≤ R has Δ = 2R, whatever the solver does; a convex objective with bounded
    gradients may have less, and so may a linearised step on any objective with bounded gradients. `tolerance` bounds
    the error of the solver or, where nothing is solved, of rounding.
    """
    if bounds.update_norm is None:
        return _unclipped_sensitivity(objective, algorithm, bounds, counts, modulus, tolerance)
    _check_norm("update_norm", bounds.update_norm)
    clipped = np.full(np.broadcast_shapes(*map(np.shape, (counts, modulus))), 2.0 * bounds.update_norm)
    try:
        unclipped = _unclipped_sensitivity(objective, algorithm, bounds, counts, modulus, tolerance)
    except PrivacyError:
        return clipped
    return np.asarray(np.minimum(clipped, unclipped))


def nominal_sensitivity(gradient: float, algorithm: Algorithm, counts: ArrayLike, modulus: ArrayLike) -> Floats:
    """Δ_k if every gradient were at most `gradient`: the paper's calibration, which promises nothing for ridge."""
    return np.asarray(2.0 * gradient * algorithm.reach(np.asarray(modulus)) / np.asarray(counts))


def _unclipped_sensitivity(
    objective: Objective,
    algorithm: Algorithm,
    bounds: Bounds,
    counts: ArrayLike,
    modulus: ArrayLike,
    tolerance: ArrayLike,
) -> Floats:
    rule = algorithm.client_rule
    if isinstance(rule, GradientSteps):
        return _descent_sensitivity(objective, rule, bounds, counts, tolerance)
    if isinstance(rule, LinearisedStep):
        return _linearised_sensitivity(objective, rule, bounds, counts, tolerance)
    if isinstance(rule, ProximalStep):
        return _solution_sensitivity(objective, bounds, counts, modulus, tolerance)
    raise PrivacyError(f"No sensitivity is derived for {type(rule).__name__}; set privacy.update_norm.")


def _solution_sensitivity(
    objective: Objective, bounds: Bounds, counts: ArrayLike, modulus: ArrayLike, tolerance: ArrayLike
) -> Floats:
    """Δ = gradient change/(D m) + 2·tolerance, where ‖ŵ − argmin‖ ≤ tolerance is certified at every solve."""
    records, strength, error = np.broadcast_arrays(
        *(np.asarray(value, dtype=np.float64) for value in (counts, modulus, tolerance))
    )
    _check_records_and_error(records, error)
    if not ((strength > 0.0) & np.isfinite(strength)).all():
        raise PrivacyError("The modulus m = rho + 2 lambda/|C_s| must be above 0 for a bounded sensitivity; raise rho.")
    if not objective.convex:
        raise PrivacyError(
            f"The {objective.kind} objective is not convex, so its updates must be clipped: set update_norm under "
            '[privacy], or take gradient steps (client = "gradient" under [algorithm]).'
        )
    change = _gradient_change(objective, bounds)
    return np.asarray(change / (records * strength) + 2.0 * error, dtype=np.float64)


def _linearised_sensitivity(
    objective: Objective, rule: LinearisedStep, bounds: Bounds, counts: ArrayLike, rounding: ArrayLike
) -> Floats:
    """Δ = gradient change/(max(D, R) ρ) + 2·rounding, for any loss: both worlds step from one public model.

    With ρ_k = ρ max(D, R)/D a record's share of the step is 1/(D ρ_k) = 1/(max(D, R) ρ); R = `full_records`.
    """
    records, error = np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in (counts, rounding)))
    _check_records_and_error(records, error)
    change = _gradient_change(objective, bounds)
    counted = np.maximum(records, rule.full_records)
    return np.asarray(change * eq.linearised_reach(rule.rho) / counted + 2.0 * error, dtype=np.float64)


def _gradient_change(objective: Objective, bounds: Bounds) -> float:
    """sup ‖∇ℓ(z;w) − ∇ℓ(z';w)‖ as the objective states it; raises where there is none."""
    name = objective.kind
    _check_norm("x_norm", bounds.x_norm)
    change = objective.gradient_change(bounds)
    if change is None:
        raise PrivacyError(
            f"The {name} objective has no bounded gradient under these bounds, so no noise makes it private: set the "
            "bounds it needs (ridge: y_bound and w_norm), or choose huber or logistic, or state its gradient_bound."
        )
    if not (change > 0.0 and np.isfinite(change)):
        raise PrivacyError(
            f"The {name} objective states a gradient change of {change!r}; it must be a positive number."
        )
    return change


def _check_records_and_error(records: Floats, error: Floats) -> None:
    if not (records >= 1.0).all():
        raise PrivacyError("Every client needs at least one record before its releases can be calibrated.")
    if not ((error >= 0.0) & np.isfinite(error)).all():
        raise PrivacyError("The solver's tolerance must be a finite number that is not negative.")


def _descent_sensitivity(
    objective: Objective, rule: GradientSteps, bounds: Bounds, counts: ArrayLike, rounding: ArrayLike
) -> Floats:
    """Steps on a convex smooth loss do not spread apart while step ≤ 2/L, so Δ = steps · step · change/D.

    What rounding may add in either world comes on top.
    """
    change, smoothness = objective.gradient_change(bounds), objective.smoothness(bounds)
    if not objective.convex and rule.local_steps > 1:
        raise PrivacyError(
            f"Several gradient steps on {objective.kind} can spread apart, because it is not convex; set "
            "algorithm.local_steps = 1 or privacy.update_norm."
        )
    if change is None or smoothness is None or objective.domain is not None:
        raise PrivacyError(
            f"Gradient steps on {objective.kind} have no bounded update; set privacy.update_norm, or use huber."
        )
    if rule.step_size > 2.0 / (smoothness + 2.0 * objective.lam):
        raise PrivacyError(
            f"The step {rule.step_size:g} is too long for a bounded sensitivity; use at most "
            f"{2.0 / (smoothness + 2.0 * objective.lam):.3g}, or set privacy.update_norm."
        )
    records, error = np.asarray(counts), np.asarray(rounding)
    return np.asarray(rule.reach(1.0) * change / records + 2.0 * error, dtype=float)


def clip_rows(features: ArrayLike, x_norm: float) -> AnyFloats:
    """Rows scaled back to ‖x‖ ≤ x_norm, in exact arithmetic and as NumPy computes it; the others are left alone.

    Returns the same array if there is nothing to clip, and works in blocks, so that a copy is the most it costs.

    >>> clip_rows([[3.0, 4.0], [6.0, 8.0]], 5.0).round(9)
    array([[3., 4.], [3., 4.]])
    """
    _check_norm("x_norm", x_norm)
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
    _check_norm("y_bound", y_bound)
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


def just_below(x_norm: float, rows: AnyFloats) -> float:
    """The length to give to rows that shall have the norm x_norm: rounding cannot make them longer than that."""
    return x_norm * (1.0 - 2.0 * _rounding(rows))


def _rounding(block: AnyFloats) -> float:
    """A bound on the relative error of a norm, and of a scaled row's, in the block's own precision."""
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


def _check_norm(name: str, value: float | None) -> None:
    if value is None or not (value > 0.0 and np.isfinite(value)):
        raise PrivacyError(f"{name} must be a positive number, not {value!r}; set it under [privacy].")
