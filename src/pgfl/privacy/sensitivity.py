"""How far one record can move what a client releases.

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

from pgfl import equations as eq
from pgfl.algorithms.algorithms import Algorithm
from pgfl.algorithms.client_rules import GradientSteps, LinearisedStep, ProximalStep
from pgfl.arrays import Floats
from pgfl.errors import PrivacyError
from pgfl.federation.clipping import check_norm
from pgfl.objectives import Bounds, Objective


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
    check_norm("update_norm", bounds.update_norm)
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
    check_norm("x_norm", bounds.x_norm)
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
