"""Losses of a margin in sample space, one client at a time. Twins of `margin_losses` and of `OnMargins`."""

from __future__ import annotations

import math

import numpy as np

from pgfl.arrays import Array
from pgfl.objectives import Hinge, Huber, Logistic
from pgfl.objectives.interface import HALVINGS, NEWTON_STEPS, ROUNDING, SUFFICIENT_DECREASE
from pgfl.objectives.margins import FIXED_STEPS
from pgfl.simulate.compiled.cache import inlined, part
from pgfl.simulate.compiled.lanes import lanes_of, power_of_two
from pgfl.simulate.compiled.products import symmetric_times

# mypy: disable-error-code="no-any-return"


RIDGE, HUBER, LOGISTIC, HINGE, SOFTMAX = 0, 1, 2, 3, 4
BOUND = (2.0, *(float(loss.curvature_bound or 0.0) for loss in (Huber(), Logistic(), Hinge())))
FIXED = (2.0, *(float(loss.fixed_curvature or 0.0) for loss in (Huber(), Logistic(), Hinge())))
LN2 = math.log(2.0)
LARGEST = 700.0  # its e^−t is still a normal number
TAYLOR = tuple(1.0 / math.factorial(n) for n in range(13, -1, -1))


@part
def cholesky(matrix: Array, size: int) -> None:
    """The lower factor, in place of the lower triangle."""
    for j in range(size):
        for i in range(j, size):
            total = matrix[i * size + j]
            for k in range(j):
                total -= matrix[i * size + k] * matrix[j * size + k]
            matrix[i * size + j] = np.sqrt(total) if i == j else total / matrix[j * size + j]


@part
def substitute(lower: Array, vector: Array, size: int) -> None:
    """(L Lᵀ)⁻¹ v, in place."""
    for i in range(size):
        for k in range(i):
            vector[i] -= lower[i * size + k] * vector[k]
        vector[i] /= lower[i * size + i]
    for i in range(size - 1, -1, -1):
        for k in range(i + 1, size):
            vector[i] -= lower[k * size + i] * vector[k]
        vector[i] /= lower[i * size + i]


@part
def slope(kind: int, kappa: float, margin: float, target: float) -> float:
    """ℓ′ with respect to the margin."""
    if kind == HUBER:
        return min(max(2.0 * (margin - target), -2.0 * kappa), 2.0 * kappa)
    if kind == HINGE:
        return (1.0 - 2.0 * target) * min(max(_short(margin, target), 0.0), 1.0)
    return _chance(margin) - target


@part
def _short(margin: float, target: float) -> float:
    return 1.0 - (2.0 * target - 1.0) * margin


@part
def _chance(margin: float) -> float:
    shrunk = np.exp(-abs(margin))
    return 1.0 / (1.0 + shrunk) if margin >= 0 else shrunk / (1.0 + shrunk)


@part
def _curvature(kind: int, kappa: float, margin: float, target: float) -> float:
    if kind == HUBER:
        return 2.0 if abs(margin - target) <= kappa else 0.0
    if kind == HINGE:
        return 1.0 if 0.0 < _short(margin, target) < 1.0 else 0.0
    chance = _chance(margin)
    return chance * (1.0 - chance)


@part
def loss(kind: int, kappa: float, margin: float, target: float) -> float:
    """ℓ of one row."""
    if kind == RIDGE:
        return (margin - target) ** 2
    if kind == HUBER:
        size = abs(margin - target)
        inner = min(size, kappa)
        return inner * (2.0 * size - inner)
    if kind == HINGE:
        short = max(_short(margin, target), 0.0)
        inner = min(short, 1.0)
        return inner * (short - 0.5 * inner)
    return max(margin, 0.0) + np.log1p(np.exp(-abs(margin))) - target * margin


@part
def _image(gram: Array, vector: Array, rows: int, out: Array) -> float:
    """out = G v; returns vᵀGv, the squared norm of Xᵀv."""
    square = 0.0
    for i in range(rows):
        total = 0.0
        for j in range(rows):
            total += gram[i * rows + j] * vector[j]
        out[i] = total
        square += total * vector[i]
    return max(square, 0.0)


@part
def fixed_steps(
    kind: int,
    kappa: float,
    factors: Array,
    at: int,
    targets: Array,
    rows: int,
    modulus: float,
    goal: float,
    reach: float,
    margin: Array,
    z: Array,
    work: Array,
    moves: Array,
) -> float:
    """`OnMargins.fixed_steps` for one client; `margin` is Xc and becomes Xw. Returns the certified error.

    The client's matrix begins at `at`. All arrays but `targets` have room for one register more.
    """
    e, given, lanes = work[0], np.empty(rows, factors.dtype), lanes_of(factors)
    per_bend, error = 1.0 / FIXED[kind], 0.0
    for i in range(rows):
        z[i] = 0.0
    for attempt in range(FIXED_STEPS + 1):
        error = reach * np.sqrt(_slopes(kind, kappa, margin, targets, rows, z, e))
        if not error > goal or attempt == FIXED_STEPS:
            break
        for i in range(rows):
            given[i] = e[i]
        symmetric_times(factors, at, rows, given, lanes, moves)
        for i in range(rows):
            z[i] -= moves[i]
            margin[i] -= (e[i] - moves[i]) * per_bend
    for i in range(rows):
        z[i] /= modulus * rows
    return error


@inlined
def _slopes(kind: int, kappa: float, margin: Array, targets: Array, rows: int, z: Array, e: Array) -> float:
    """e = ℓ′ + z; returns ‖e‖². Logistic slopes fill registers, too."""
    square = 0.0
    if kind != LOGISTIC:
        for i in range(rows):
            e[i] = slope(kind, kappa, margin[i], targets[i]) + z[i]
            square += e[i] * e[i]
        return square
    for i in range(rows):
        e[i] = _chance_in_lanes(margin[i])
    for i in range(rows):
        e[i] += z[i] - targets[i]
        square += e[i] * e[i]
    return square


@inlined
def _chance_in_lanes(margin: float) -> float:
    """`_chance` in steps that fill vector registers: e^−t = 2ⁿ e^r with |r| ≤ ln(2)/2, and Taylor's series for e^r."""
    size = min(abs(margin), LARGEST)
    n = np.int64(-0.5 - size * (1.0 / LN2))  # truncated, and so rounded to the nearest
    r = -size - n * LN2
    series = TAYLOR[0]
    for coefficient in TAYLOR[1:]:
        series = series * r + coefficient
    shrunk = series * power_of_two(n)
    return (1.0 if margin >= 0 else shrunk) / (1.0 + shrunk)


@part
def newton(
    kind: int,
    kappa: float,
    gram: Array,
    targets: Array,
    rows: int,
    modulus: float,
    goal: float,
    margin: Array,
    z: Array,
    work: Array,
    matrix: Array,
    eps: float,
) -> float:
    """`_Newton` for one client; `margin` is Xc and becomes Xw. Returns ‖∇‖/m, the certified error.

    The step solves (BG + m)δ = −e with e = h′/D + m z through the symmetric m + B½GB½.
    """
    error, image, step, moved = work[0], work[1], work[2], work[3]
    for i in range(rows):
        z[i] = 0.0
    size, length = 0.0, 0.0
    for attempt in range(NEWTON_STEPS + 1):
        for i in range(rows):
            error[i] = slope(kind, kappa, margin[i], targets[i]) / rows + modulus * z[i]
        length = np.sqrt(_image(gram, error, rows, image)) / modulus
        if not length > goal or attempt == NEWTON_STEPS:
            break
        for i in range(rows):
            moved[i] = np.sqrt(_curvature(kind, kappa, margin[i], targets[i]) / rows)
        for i in range(rows):
            for j in range(i + 1):
                matrix[i * rows + j] = moved[i] * gram[i * rows + j] * moved[j] + (modulus if i == j else 0.0)
            step[i] = moved[i] * image[i]
        cholesky(matrix, rows)
        substitute(matrix, step, rows)
        descent = 0.0
        for i in range(rows):
            step[i] = (moved[i] * step[i] - error[i]) / modulus
            descent += step[i] * image[i]
        bend = _image(gram, step, rows, moved)
        value, lean = 0.0, 0.0
        for i in range(rows):
            value += loss(kind, kappa, margin[i], targets[i]) / rows
            lean += z[i] * moved[i]
        allowed = ROUNDING * eps * (abs(value) + 0.5 * modulus * size + 1.0)
        t, good = 1.0, False
        for _ in range(HALVINGS + 1):
            risen = modulus * (t * lean + 0.5 * t * t * bend) - value
            for i in range(rows):
                risen += loss(kind, kappa, margin[i] + t * moved[i], targets[i]) / rows
            if risen <= SUFFICIENT_DECREASE * t * descent + allowed:
                good = True
                break
            t *= 0.5
        if not good:
            break
        for i in range(rows):
            z[i] += t * step[i]
            margin[i] += t * moved[i]
        size += 2.0 * t * lean + t * t * bend
    return length
