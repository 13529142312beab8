"""Gradient steps of softmax regression, compiled: one pass over rows per class. Twin of `Softmax.gradient`."""

from __future__ import annotations

import numpy as np

from pgfl.arrays import Array
from pgfl.simulate.compiled.cache import compiled, inlined
from pgfl.simulate.compiled.factors import Problems
from pgfl.simulate.compiled.lanes import lanes_of
from pgfl.simulate.compiled.products import (
    add_padded,
    pack_padded,
    padded_length,
    padded_zeros,
    rows_times,
    scaled,
    unpack_padded,
)
from pgfl.simulate.compiled.sparse import Forms, add_products_with, products_with


@compiled
def softmax_phase(
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
    classes: int,
    forms: Forms,
) -> None:
    """As `gradient_phase`, of models that hold d numbers for every class, class after class."""
    problems = Problems(*fields)
    x, dimension = problems.features.reshape(-1), problems.features.shape[1]
    models, own_models, pair_means = server_models.reshape(-1), model.reshape(-1), means.reshape(-1)
    lanes, one = lanes_of(x), problems.rho.dtype.type(1.0)
    width, padded = classes * dimension, padded_length(dimension, lanes)
    new, sums = padded_zeros(x, classes * padded, lanes), padded_zeros(x, classes * padded, lanes)
    once, most = padded_zeros(x, dimension, lanes), 1
    for k in clients:
        most = max(most, problems.counts[k])
    room = most + lanes
    moves = np.empty(classes * room, x.dtype)
    for place in range(len(bounds) - 1):
        own = (first_pair + place) * width
        sums[:] = 0.0
        for i in range(bounds[place], bounds[place + 1]):
            k = clients[i]
            start, rows = problems.first[k], problems.counts[k]
            reach = full_reach * rows / max(rows, full_records)
            kept = problems.rho.dtype.type(1.0 - reach * problems.ridge_penalty[k])
            for c in range(classes):
                pack_padded(models, own + c * dimension, one, dimension, lanes, new[c * padded : (c + 1) * padded])
            for _ in range(steps):
                for c in range(classes):
                    column, image = new[c * padded : (c + 1) * padded], moves[c * room : (c + 1) * room]
                    products_with(x, forms, k, start, rows, column, once, dimension, lanes, image)
                for r in range(rows):
                    _towards_label(moves, r, room, classes, problems.targets[start + r], -reach / rows)
                for c in range(classes):
                    column, image = new[c * padded : (c + 1) * padded], moves[c * room : (c + 1) * room]
                    scaled(column, kept, lanes)
                    add_products_with(x, forms, k, start, rows, image, dimension, lanes, column)
            for c in range(classes):
                column = new[c * padded : (c + 1) * padded]
                unpack_padded(column, one, dimension, lanes, own_models, k * width + c * dimension)
                if averaged:
                    add_padded(column, dimension, lanes, sums[c * padded : (c + 1) * padded])
        if averaged:
            for c in range(classes):
                at = place * width + c * dimension
                unpack_padded(sums[c * padded : (c + 1) * padded], shares[place, 0], dimension, lanes, pair_means, at)


@inlined
def _towards_label(moves: Array, row: int, room: int, classes: int, target: float, scale: float) -> None:
    """Replace a row's margins by scale · (p − e_y)."""
    highest, total = moves[row], 0.0
    for c in range(1, classes):
        highest = max(highest, moves[c * room + row])
    for c in range(classes):
        chance = np.exp(np.float64(moves[c * room + row] - highest))
        moves[c * room + row] = chance
        total += chance
    for c in range(classes):
        chance = moves[c * room + row] / total
        moves[c * room + row] = scale * (chance - (1.0 if c == target else 0.0))


@compiled
def softmax_values(start: int, models: Array, problems: Problems, classes: int, out: Array) -> None:
    """f_k, regulariser included, of the clients from `start` on."""
    x, dimension = problems.features.reshape(-1), problems.features.shape[1]
    lanes, one = lanes_of(x), problems.rho.dtype.type(1.0)
    room = problems.counts.max() + lanes
    vector, margins = padded_zeros(x, dimension, lanes), np.empty(classes * room, x.dtype)
    for i in range(len(models)):
        k, w = start + i, models[i]
        first, rows = problems.first[k], problems.counts[k]
        for c in range(classes):
            pack_padded(w, c * dimension, one, dimension, lanes, vector)
            rows_times(x, first * dimension, rows, vector, dimension, lanes, margins[c * room : (c + 1) * room])
        loss, square = 0.0, 0.0
        for r in range(rows):
            highest, total = margins[r], 0.0
            for c in range(1, classes):
                highest = max(highest, margins[c * room + r])
            for c in range(classes):
                total += np.exp(np.float64(margins[c * room + r] - highest))
            loss += highest + np.log(total) - margins[int(problems.targets[first + r]) * room + r]
        for f in range(len(w)):
            square += w[f] * w[f]
        out[i] = loss / rows + 0.5 * problems.ridge_penalty[k] * square
