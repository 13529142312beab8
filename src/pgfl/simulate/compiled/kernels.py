"""Client rounds compiled with Numba: one pass over a client's data, straight from the federation, without a copy of it.

Twins of `core.equations` and `core.client_rules` for ridge, Huber and logistic regression, in sample space; tests hold
them equal. Every client is computed by itself, every pair summed in order: neither threads nor batches change a bit.
"""

from __future__ import annotations

import numpy as np

from pgfl.arrays import Array
from pgfl.errors import KernelError
from pgfl.simulate.compiled.cache import compiled, inlined
from pgfl.simulate.compiled.factors import Problems
from pgfl.simulate.compiled.lanes import lanes_of
from pgfl.simulate.compiled.margins import RIDGE, fixed_steps, loss, newton
from pgfl.simulate.compiled.products import (
    add_contribution,
    add_difference,
    pack_centre,
    pack_padded,
    pack_settled_centre,
    padded_zeros,
    residual,
    rows_times,
    symmetric_times,
    unpack_padded,
)
from pgfl.simulate.compiled.sparse import Forms, add_products_with, products_with

# mypy: disable-error-code="no-any-return"


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
    shares: Array,
    averaged: bool,
    unsettled: bool,
    forms: Forms,
) -> None:
    """ClientPrimalUpdate of those who take part and, if `averaged`, the mean of their w_k − φ_k/ρ for every pair.

    w_k = c + Xᵀa with c = (w_{q,s} + φ_k/ρ)·ρ/m; the objective decides a from Xc. If `unsettled`, the dual update of
    the round before comes first: the same numbers are at hand. The participants of the block's i-th
    pair are `clients[bounds[i] : bounds[i + 1]]`. `fields` are those of `Problems` as a plain tuple, whose type Numba
    finds faster. `forms` are those of `compiled.sparse`.
    """
    problems = Problems(*fields)
    x, dimension, targets = problems.features.reshape(-1), problems.features.shape[1], problems.targets
    models, duals = server_models.reshape(-1), dual.reshape(-1)
    own_models, pair_means = model.reshape(-1), means.reshape(-1)
    lanes, most, one = lanes_of(x), _most(problems.counts, clients), problems.rho.dtype.type(1.0)
    vector, sums = padded_zeros(x, dimension, lanes), padded_zeros(x, dimension, lanes)
    once = padded_zeros(x, dimension, lanes)
    image, moves = np.empty(most + lanes, x.dtype), np.empty(most + lanes, x.dtype)
    margin, z, work, matrix = np.empty(most), np.empty(most), np.empty((4, most)), np.empty(most * most)
    for place in range(len(bounds) - 1):
        own = (first_pair + place) * dimension
        sums[:] = 0.0
        for i in range(bounds[place], bounds[place + 1]):
            k = clients[i]
            start, rows, at, at_dual = problems.first[k], problems.counts[k], problems.at[k], k * dimension
            scale = problems.centre_scale[k]
            if unsettled:
                pack_settled_centre(models, own, duals, at_dual, own_models, scale, dimension, lanes, vector)
            else:
                pack_centre(models, own, duals, at_dual, scale, dimension, lanes, vector)
            products_with(x, forms, k, start, rows, vector, once, dimension, lanes, image)
            if problems.kind[k] == RIDGE:
                errors[i] = problems.slack[k] * np.sqrt(residual(targets, start, rows, image, lanes))
                symmetric_times(problems.factors, at, rows, image, lanes, moves)
            else:
                y, loss_of = targets[start : start + rows], (problems.kind[k], problems.kappa[k])
                goal, modulus, reach = problems.goal[k], problems.modulus[k], problems.slack[k]
                margin[:rows] = image[:rows]
                if reach > 0:
                    factors = problems.factors
                    errors[i] = fixed_steps(
                        *loss_of, factors, at, y, rows, modulus, goal, reach, margin, z, work, moves
                    )
                else:
                    eps, gram = np.finfo(x.dtype).eps, problems.factors[at : at + rows * rows]
                    errors[i] = newton(*loss_of, gram, y, rows, modulus, goal, margin, z, work, matrix, eps)
                moves[:rows] = z[:rows]
            add_products_with(x, forms, k, start, rows, moves, dimension, lanes, vector)
            if averaged:
                add_contribution(vector, duals, at_dual, dimension, lanes, sums)
            unpack_padded(vector, one, dimension, lanes, own_models, at_dual)
        if averaged:
            unpack_padded(sums, shares[place, 0], dimension, lanes, pair_means, place * dimension)


@compiled
def sum_contributions(clients: Array, bounds: Array, released: Array, dual: Array, means: Array) -> None:
    """The sum of w̃_k − φ_k/ρ over the participants of every pair of a block."""
    dimension, lanes = means.shape[1], lanes_of(means)
    models, duals, sums = released.reshape(-1), dual.reshape(-1), means.reshape(-1)
    for place in range(len(bounds) - 1):
        for i in range(bounds[place], bounds[place + 1]):
            at = clients[i] * dimension
            add_difference(models, at, duals, at, dimension, lanes, sums, place * dimension)


@compiled
def settle(clients: Array, bounds: Array, first_pair: int, server_models: Array, released: Array, dual: Array) -> None:
    """ClientDualUpdate of those who took part: φ_k/ρ += w_{q,s} − w_k."""
    dimension, lanes = dual.shape[1], lanes_of(dual)
    received, models, duals = server_models.reshape(-1), released.reshape(-1), dual.reshape(-1)
    for place in range(len(bounds) - 1):
        own = (first_pair + place) * dimension
        for i in range(bounds[place], bounds[place + 1]):
            at = clients[i] * dimension
            add_difference(received, own, models, at, dimension, lanes, duals, at)


def try_out() -> None:
    """Call a small kernel: a machine that can compile or load none is noticed before a training begins."""
    received, released, dual = np.ones((1, 8)), np.full((1, 8), 0.25), np.zeros((1, 8))
    settle(np.arange(1), np.array([0, 1]), 0, received, released, dual)
    if not (dual == 0.75).all():
        raise KernelError("A compiled kernel computes something wrong.")


@compiled
def objective_values(start: int, models: Array, problems: Problems, out: Array) -> None:
    """f_k, regulariser included, of the clients from `start` on."""
    x, dimension = problems.features.reshape(-1), problems.features.shape[1]
    first, counts, targets, kind, kappa = (
        problems.first,
        problems.counts,
        problems.targets,
        problems.kind,
        problems.kappa,
    )
    lanes, one = lanes_of(x), problems.rho.dtype.type(1.0)
    vector, image = padded_zeros(x, dimension, lanes), np.empty(counts.max() + lanes, x.dtype)
    for i in range(len(models)):
        k, w = start + i, models[i]
        pack_padded(w, 0, one, dimension, lanes, vector)
        rows_times(x, first[k] * dimension, counts[k], vector, dimension, lanes, image)
        total, square = 0.0, 0.0
        for r in range(counts[k]):
            total += loss(kind[k], kappa[k], image[r], targets[first[k] + r])
        for f in range(dimension):
            square += w[f] * w[f]
        out[i] = total / counts[k] + 0.5 * problems.ridge_penalty[k] * square


@inlined
def _most(counts: Array, clients: Array) -> int:
    """Return the most rows that any of the clients has."""
    most = 1
    for k in clients:
        most = max(most, counts[k])
    return most
