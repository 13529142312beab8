"""All clients' problems as flat arrays, and what is factored of them once. Twins of `RidgeSolver` and `OnMargins`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pgfl.arrays import Array
from pgfl.objectives.margins import STEADY
from pgfl.simulate.compiled.cache import compiled, part
from pgfl.simulate.compiled.margins import BOUND, FIXED, RIDGE, cholesky, substitute

# mypy: disable-error-code="no-any-return"


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
    factors: Array  # D_k² numbers for each client, one client after the other, and room for a register
    slack: Array  # ridge: of the stored inverse; others: the reach of steps with fixed curvature


@part
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
        cholesky(lower, rows)
        for j in range(rows):
            unit[:rows] = 0.0
            unit[j] = 1.0
            substitute(lower, unit, rows)
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
