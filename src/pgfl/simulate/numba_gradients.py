"""Gradient steps of clients, compiled. Twins of `gradient_step` and, with one step of 1/ρ, `linearised_client_step`.

A step of length η is w ← (1 − 2ηλ/|C_s|) w − η Xᵀℓ′/D_k; with fewer than `full_records` it is shorter, as
`rho_by_records` says. Where a row fits into registers, a step loads it once: it is multiplied by the model, and what
its loss says is added to the step while it is still there.
"""

# mypy: disable-error-code="no-any-return"
from __future__ import annotations

import numpy as np

from pgfl.array_types import Array
from pgfl.simulate.numba_compiled import compiled, inlined
from pgfl.simulate.numba_factors import Problems
from pgfl.simulate.numba_lanes import (
    lanes_of,
    load_spaced,
    nothing_in,
    spread_like,
    store_spaced,
    total,
    without_repeats,
)
from pgfl.simulate.numba_margins import RIDGE, slope
from pgfl.simulate.numba_products import add_spaced, scaled, spaced, spaced_zeros, unspaced
from pgfl.simulate.numba_rows import Forms, add_products_with, products_with


@compiled
def gradient_phase(
    clients: Array,
    bounds: Array,
    first_pair: int,
    fields: tuple[Array, ...],
    server_models: Array,
    model: Array,
    means: Array,
    shares: Array,
    averaged: bool,
    full_reach: float,
    full_records: int,
    steps: int,
    forms: Forms,
) -> None:
    """Gradient steps of those who take part from their server's model and, if `averaged`, the mean for every pair.

    The participants of the block's i-th pair are `clients[bounds[i] : bounds[i + 1]]`.
    """
    problems = Problems(*fields)
    x, dimension = problems.features.reshape(-1), problems.features.shape[1]
    models, own_models, pair_means = server_models.reshape(-1), model.reshape(-1), means.reshape(-1)
    lanes, one = lanes_of(x), problems.rho.dtype.type(1.0)
    new, sums = spaced_zeros(x, dimension, lanes), spaced_zeros(x, dimension, lanes)
    once, most = spaced_zeros(x, dimension, lanes), 1
    for k in clients:
        most = max(most, problems.counts[k])
    moves = np.empty(most + lanes, x.dtype)
    for place in range(len(bounds) - 1):
        own = (first_pair + place) * dimension
        sums[:] = 0.0
        for i in range(bounds[place], bounds[place + 1]):
            k = clients[i]
            start, rows, reach = problems.first[k], problems.counts[k], _reach(problems, k, full_reach, full_records)
            spaced(models, own, one, dimension, lanes, new)
            for _ in range(steps):
                products_with(x, forms, k, start, rows, new, once, dimension, lanes, moves)
                for r in range(rows):
                    moves[r] = _move(problems, k, start + r, moves[r], reach)
                scaled(new, _kept(problems, k, reach), lanes)
                add_products_with(x, forms, k, start, rows, moves, dimension, lanes, new)
            unspaced(new, one, dimension, lanes, own_models, k * dimension)
            if averaged:
                add_spaced(new, dimension, lanes, sums)
        if averaged:
            unspaced(sums, shares[place, 0], dimension, lanes, pair_means, place * dimension)


@compiled
def gradient_phase_in_registers(
    clients: Array,
    bounds: Array,
    first_pair: int,
    fields: tuple[Array, ...],
    server_models: Array,
    model: Array,
    means: Array,
    shares: Array,
    averaged: bool,
    full_reach: float,
    full_records: int,
    steps: int,
    registers: tuple[int, ...],
) -> None:
    """As `gradient_phase`, of whole rows that fit into as many registers as the tuple has places."""
    problems = Problems(*fields)
    x, dimension = problems.features.reshape(-1), problems.features.shape[1]
    models, own_models, pair_means = server_models.reshape(-1), model.reshape(-1), means.reshape(-1)
    for place in range(len(bounds) - 1):
        sums = nothing_in(registers, x)
        received = load_spaced(sums, models, (first_pair + place) * dimension, dimension)
        for i in range(bounds[place], bounds[place + 1]):
            k, new = clients[i], received
            first, reach = problems.first[k], _reach(problems, k, full_reach, full_records)
            for _ in range(steps):
                once = without_repeats(new, dimension)
                new = new * spread_like(new, _kept(problems, k, reach))
                for r in range(first, first + problems.counts[k]):
                    row = load_spaced(new, x, r * dimension, dimension)
                    new = new + row * spread_like(new, _move(problems, k, r, total(row * once), reach))
            store_spaced(own_models, k * dimension, new, dimension)
            sums = sums + new
        if averaged:
            mean = sums * spread_like(sums, shares[place, 0])
            store_spaced(pair_means, place * dimension, mean, dimension)


@inlined
def _reach(problems: Problems, k: int, full_reach: float, full_records: int) -> float:
    """The length of a client's steps."""
    rows = problems.counts[k]
    return full_reach * rows / max(rows, full_records)


@inlined
def _kept(problems: Problems, k: int, reach: float) -> float:
    """What a step leaves of the model: 1 − 2ηλ/|C_s|."""
    return problems.rho.dtype.type(1.0 - reach * problems.ridge_penalty[k])


@inlined
def _move(problems: Problems, k: int, row: int, margin: float, reach: float) -> float:
    """How far a step goes along a row: −η ℓ′/D_k."""
    kind, target = problems.kind[k], problems.targets[row]
    bend = 2.0 * (margin - target) if kind == RIDGE else slope(kind, problems.kappa[k], margin, target)
    return problems.rho.dtype.type(-reach / problems.counts[k] * bend)
