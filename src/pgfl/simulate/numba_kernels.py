"""Client rounds compiled with Numba: one pass over a client's data, straight from the federation, without a copy of it.

Twins of `equations`, `solvers` and `margins` for ridge, Huber and logistic regression, in sample space; tests hold them
equal. Every client is computed by itself and every pair summed in order, so neither threads nor batches change a bit.
"""

# mypy: disable-error-code="untyped-decorator, no-any-return"
from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from pgfl.array_types import Array
from pgfl.objectives import Huber, Logistic
from pgfl.objectives.margin_solver import FIXED_STEPS, STEADY
from pgfl.objectives.solving import HALVINGS, NEWTON_STEPS, ROUNDING, SUFFICIENT_DECREASE

RIDGE, HUBER, LOGISTIC = 0, 1, 2
BOUND = (2.0, *(float(loss.curvature_bound or 0.0) for loss in (Huber(), Logistic())))
FIXED = (2.0, *(float(loss.fixed_curvature or 0.0) for loss in (Huber(), Logistic())))

# Sums may be reordered (to fill vector registers, always in the same way), but NaN and infinity keep their meaning.
compiled = njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})


class Problems(NamedTuple):
    """All clients' problems as flat arrays, with one number per client unless stated otherwise."""

    first: Array  # its first row
    counts: Array
    features: Array  # all rows
    targets: Array
    kind: Array
    kappa: Array
    goal: Array  # the error to reach
    modulus: Array
    rho: Array  # one number for all
    centre_scale: Array  # ρ/m
    ridge_penalty: Array  # 2λ/|C_s|
    at: Array  # where its factor begins
    factors: Array  # D_k² numbers for each client, one client after the other
    slack: Array  # ridge: of the stored inverse; others: the reach of steps with fixed curvature


@compiled
def _gram(features: Array, start: int, rows: int, out: Array) -> None:
    """XXᵀ of one client, row by row."""
    for i in range(rows):
        for j in range(i + 1):
            total = features[start + i, 0] * features[start + j, 0]
            for f in range(1, features.shape[1]):
                total += features[start + i, f] * features[start + j, f]
            out[i * rows + j] = total
            out[j * rows + i] = total


@compiled
def _cholesky(matrix: Array, size: int) -> None:
    """The lower factor, in place of the lower triangle."""
    for j in range(size):
        for i in range(j, size):
            total = matrix[i * size + j]
            for k in range(j):
                total -= matrix[i * size + k] * matrix[j * size + k]
            matrix[i * size + j] = np.sqrt(total) if i == j else total / matrix[j * size + j]


@compiled
def _substitute(lower: Array, vector: Array, size: int) -> None:
    """(L Lᵀ)⁻¹ v, in place."""
    for i in range(size):
        for k in range(i):
            vector[i] -= lower[i * size + k] * vector[k]
        vector[i] /= lower[i * size + i]
    for i in range(size - 1, -1, -1):
        for k in range(i + 1, size):
            vector[i] -= lower[k * size + i] * vector[k]
        vector[i] /= lower[i * size + i]


@compiled
def factor(clients: Array, problems: Problems) -> None:
    """What a client's problem needs every round, with κ = b̄/(D m) and b̄ the fixed curvature, for ridge its own.

    For ridge κ(I + κXXᵀ)⁻¹; `slack`·‖Xc − y‖ bounds what it gets wrong, because ‖Xᵀκ(I + κXXᵀ)⁻¹‖ ≤ √κ/2. For the
    others `matrix` and `reach` of `OnMargins`.
    """
    first, counts, features = problems.first, problems.counts, problems.features
    kind, modulus, at = problems.kind, problems.modulus, problems.at
    factors, slack = problems.factors, problems.slack
    most = 0
    for k in clients:
        most = max(most, counts[k])
    lower, unit = np.empty(most * most), np.empty(most)
    for k in clients:
        rows = counts[k]
        own = factors[at[k] : at[k] + rows * rows]
        _gram(features, first[k], rows, own)
        total, fixed = rows * modulus[k], FIXED[kind[k]]
        scale = fixed / total
        if kind[k] != RIDGE:
            square = 0.0
            for i in range(rows * rows):
                square += own[i] * own[i]
            size = np.sqrt(square)
            if max(fixed, BOUND[kind[k]] - fixed) * size > STEADY * (total + fixed * size):
                slack[k] = 0.0
                continue
            slack[k] = np.sqrt(size) / total
        for i in range(rows):
            for j in range(rows):
                lower[i * rows + j] = scale * own[i * rows + j] + (1.0 if i == j else 0.0)
        shifted = lower[: rows * rows].copy()
        _cholesky(lower, rows)
        for j in range(rows):
            unit[:rows] = 0.0
            unit[j] = 1.0
            _substitute(lower, unit, rows)
            for i in range(rows):
                own[i * rows + j] = scale * unit[i] if kind[k] == RIDGE else unit[i]
        if kind[k] != RIDGE:
            continue
        excess = 0.0
        for i in range(rows):
            for j in range(rows):
                off = -1.0 if i == j else 0.0
                for f in range(rows):
                    off += shifted[i * rows + f] * own[f * rows + j] / scale
                excess += off * off
        slack[k] = 0.5 * np.sqrt(scale * excess)


@compiled
def _slope(kind: int, kappa: float, margin: float, target: float) -> float:
    if kind == HUBER:
        return min(max(2.0 * (margin - target), -2.0 * kappa), 2.0 * kappa)
    return _chance(margin) - target


@compiled
def _chance(margin: float) -> float:
    shrunk = np.exp(-abs(margin))
    return 1.0 / (1.0 + shrunk) if margin >= 0 else shrunk / (1.0 + shrunk)


@compiled
def _curvature(kind: int, kappa: float, margin: float, target: float) -> float:
    if kind == HUBER:
        return 2.0 if abs(margin - target) <= kappa else 0.0
    chance = _chance(margin)
    return chance * (1.0 - chance)


@compiled
def _loss(kind: int, kappa: float, margin: float, target: float) -> float:
    if kind == RIDGE:
        return (margin - target) ** 2
    if kind == HUBER:
        size = abs(margin - target)
        inner = min(size, kappa)
        return inner * (2.0 * size - inner)
    return max(margin, 0.0) + np.log1p(np.exp(-abs(margin))) - target * margin


@compiled
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


@compiled
def _fixed_steps(
    kind: int,
    kappa: float,
    matrix: Array,
    targets: Array,
    rows: int,
    modulus: float,
    goal: float,
    reach: float,
    margin: Array,
    z: Array,
    work: Array,
) -> float:
    """`OnMargins.fixed_steps` for one client; `margin` is Xc and becomes Xw. Returns the certified error."""
    e, v, bend, error = work[0], work[1], FIXED[kind], 0.0
    for i in range(rows):
        z[i] = 0.0
    for attempt in range(FIXED_STEPS + 1):
        square = 0.0
        for i in range(rows):
            e[i] = _slope(kind, kappa, margin[i], targets[i]) + z[i]
            square += e[i] * e[i]
        error = reach * np.sqrt(square)
        if not error > goal or attempt == FIXED_STEPS:
            break
        _image(matrix, e, rows, v)
        for i in range(rows):
            z[i] -= v[i]
            margin[i] -= (e[i] - v[i]) / bend
    for i in range(rows):
        z[i] /= modulus * rows
    return error


@compiled
def _newton(
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
            error[i] = _slope(kind, kappa, margin[i], targets[i]) / rows + modulus * z[i]
        length = np.sqrt(_image(gram, error, rows, image)) / modulus
        if not length > goal or attempt == NEWTON_STEPS:
            break
        for i in range(rows):
            moved[i] = np.sqrt(_curvature(kind, kappa, margin[i], targets[i]) / rows)
        for i in range(rows):
            for j in range(i + 1):
                matrix[i * rows + j] = moved[i] * gram[i * rows + j] * moved[j] + (modulus if i == j else 0.0)
            step[i] = moved[i] * image[i]
        _cholesky(matrix, rows)
        _substitute(matrix, step, rows)
        descent = 0.0
        for i in range(rows):
            step[i] = (moved[i] * step[i] - error[i]) / modulus
            descent += step[i] * image[i]
        bend = _image(gram, step, rows, moved)
        value, lean = 0.0, 0.0
        for i in range(rows):
            value += _loss(kind, kappa, margin[i], targets[i]) / rows
            lean += z[i] * moved[i]
        allowed = ROUNDING * eps * (abs(value) + 0.5 * modulus * size + 1.0)
        t, good = 1.0, False
        for _ in range(HALVINGS + 1):
            risen = modulus * (t * lean + 0.5 * t * t * bend) - value
            for i in range(rows):
                risen += _loss(kind, kappa, margin[i] + t * moved[i], targets[i]) / rows
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


@compiled
def _dots(features: Array, start: int, rows: int, vector: Array, out: Array) -> None:
    """X v of one client."""
    for r in range(rows):
        x = features[start + r]
        total = x[0] * vector[0]
        for f in range(1, len(vector)):
            total += x[f] * vector[f]
        out[r] = total


@compiled
def _add_rows(features: Array, start: int, rows: int, moves: Array, out: Array) -> None:
    """out += Xᵀ a of one client, two rows at a time."""
    for r in range(0, rows - 1, 2):
        x, y = features[start + r], features[start + r + 1]
        a, b = moves[r], moves[r + 1]
        for f in range(len(out)):
            out[f] += a * x[f] + b * y[f]
    if rows % 2:
        x, a = features[start + rows - 1], moves[rows - 1]
        for f in range(len(out)):
            out[f] += a * x[f]


@compiled
def client_phase(
    clients: Array,
    bounds: Array,
    first_pair: int,
    fields: tuple[Array, ...],
    server_models: Array,
    dual: Array,
    model: Array,
    errors: Array,
    means: Array,
    averaged: bool,
) -> None:
    """ClientPrimalUpdate of those who take part and, if `averaged`, the sum of their w_k − φ_k/ρ for every pair.

    The participants of the block's i-th pair are `clients[bounds[i] : bounds[i + 1]]`. `fields` are those of
    `Problems` as a plain tuple, whose type Numba finds faster.
    """
    problems = Problems(*fields)
    first, counts, features, targets = problems.first, problems.counts, problems.features, problems.targets
    kind, kappa, goal, modulus = problems.kind, problems.kappa, problems.goal, problems.modulus
    centre_scale, at, factors, slack = problems.centre_scale, problems.at, problems.factors, problems.slack
    dimension = features.shape[1]
    most = 1
    for k in clients:
        most = max(most, counts[k])
    centre, new = np.empty(dimension, features.dtype), np.empty(dimension, features.dtype)
    image, moves = np.empty(most, features.dtype), np.empty(most, features.dtype)
    margin, z, work, matrix = np.empty(most), np.empty(most), np.empty((4, most)), np.empty(most * most)
    eps = np.finfo(features.dtype).eps
    for place in range(len(bounds) - 1):
        received, mean = server_models[first_pair + place], means[place]
        for i in range(bounds[place], bounds[place + 1]):
            k = clients[i]
            start, rows, own_dual, scale = first[k], counts[k], dual[k], centre_scale[k]
            for f in range(dimension):
                centre[f] = (received[f] + own_dual[f]) * scale
            _dots(features, start, rows, centre, image)
            own, y = factors[at[k] : at[k] + rows * rows], targets[start : start + rows]
            if kind[k] == RIDGE:
                square = 0.0
                for r in range(rows):
                    image[r] = y[r] - image[r]
                    square += image[r] * image[r]
                for r in range(rows):
                    total = own[r * rows] * image[0]
                    for j in range(1, rows):
                        total += own[r * rows + j] * image[j]
                    moves[r] = total
                errors[i] = slack[k] * np.sqrt(square)
            else:
                for r in range(rows):
                    margin[r] = image[r]
                if slack[k] > 0:
                    errors[i] = _fixed_steps(
                        kind[k], kappa[k], own, y, rows, modulus[k], goal[k], slack[k], margin, z, work
                    )
                else:
                    errors[i] = _newton(
                        kind[k], kappa[k], own, y, rows, modulus[k], goal[k], margin, z, work, matrix, eps
                    )
                for r in range(rows):
                    moves[r] = z[r]
            for f in range(dimension):
                new[f] = centre[f]
            _add_rows(features, start, rows, moves, new)
            own_model = model[k]
            for f in range(dimension):
                own_model[f] = new[f]
            if averaged:
                for f in range(dimension):
                    mean[f] += new[f] - own_dual[f]


@compiled
def linearised_client_phase(
    clients: Array,
    bounds: Array,
    first_pair: int,
    fields: tuple[Array, ...],
    server_models: Array,
    model: Array,
    means: Array,
    averaged: bool,
) -> None:
    """`linearised_client_step` of those who take part and, if `averaged`, the sum of their models for every pair.

    The participants of the block's i-th pair are `clients[bounds[i] : bounds[i + 1]]`.
    """
    problems = Problems(*fields)
    first, counts, features, targets = problems.first, problems.counts, problems.features, problems.targets
    kind, kappa, penalty, reach = problems.kind, problems.kappa, problems.ridge_penalty, 1.0 / problems.rho[()]
    dimension = features.shape[1]
    most = 1
    for k in clients:
        most = max(most, counts[k])
    new, moves = np.empty(dimension, features.dtype), np.empty(most, features.dtype)
    for place in range(len(bounds) - 1):
        received, mean = server_models[first_pair + place], means[place]
        for i in range(bounds[place], bounds[place + 1]):
            k = clients[i]
            start, rows, ridge = first[k], counts[k], kind[k] == RIDGE
            _dots(features, start, rows, received, moves)
            scale = -reach / rows
            for r in range(rows):
                margin, target = moves[r], targets[start + r]
                moves[r] = scale * (2.0 * (margin - target) if ridge else _slope(kind[k], kappa[k], margin, target))
            kept = 1.0 - reach * penalty[k]
            for f in range(dimension):
                new[f] = kept * received[f]
            _add_rows(features, start, rows, moves, new)
            own_model = model[k]
            for f in range(dimension):
                own_model[f] = new[f]
            if averaged:
                for f in range(dimension):
                    mean[f] += new[f]


@compiled
def sum_contributions(clients: Array, bounds: Array, released: Array, dual: Array, means: Array) -> None:
    """The sum of w̃_k − φ_k/ρ over the participants of every pair of a block."""
    for place in range(len(bounds) - 1):
        mean = means[place]
        for i in range(bounds[place], bounds[place + 1]):
            k = clients[i]
            for f in range(len(mean)):
                mean[f] += released[k, f] - dual[k, f]


@compiled
def settle(clients: Array, bounds: Array, first_pair: int, server_models: Array, released: Array, dual: Array) -> None:
    """ClientDualUpdate of those who took part."""
    for place in range(len(bounds) - 1):
        received = server_models[first_pair + place]
        for i in range(bounds[place], bounds[place + 1]):
            k = clients[i]
            for f in range(len(received)):
                dual[k, f] += received[f] - released[k, f]


@compiled
def objective_values(start: int, models: Array, problems: Problems, out: Array) -> None:
    """f_k, regulariser included, of the clients from `start` on."""
    first, counts, features, targets = problems.first, problems.counts, problems.features, problems.targets
    kind, kappa, ridge_penalty = problems.kind, problems.kappa, problems.ridge_penalty
    image = np.empty(counts.max(), features.dtype)
    for i in range(len(models)):
        k, w = start + i, models[i]
        _dots(features, first[k], counts[k], w, image)
        loss, square = 0.0, 0.0
        for r in range(counts[k]):
            loss += _loss(kind[k], kappa[k], image[r], targets[first[k] + r])
        for f in range(len(w)):
            square += w[f] * w[f]
        out[i] = loss / counts[k] + 0.5 * ridge_penalty[k] * square
