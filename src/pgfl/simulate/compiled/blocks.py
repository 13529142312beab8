"""The problems of all clients, laid out and factored for the kernels, in blocks of whole servers."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pgfl import equations as eq
from pgfl.arrays import Array, Bools, DTypeLike, Floats
from pgfl.objectives.interface import GOAL, tolerance_for
from pgfl.registry import compiled_form
from pgfl.simulate.compiled import kernels as compiled
from pgfl.simulate.compiled.classes import softmax_values
from pgfl.simulate.compiled.factors import Problems, factor
from pgfl.simulate.compiled.kind import ROWS_PER_FEATURE
from pgfl.simulate.compiled.lanes import BYTES
from pgfl.simulate.compiled.margins import HINGE, HUBER, LOGISTIC, RIDGE, SOFTMAX
from pgfl.simulate.compiled.products import registers_of
from pgfl.simulate.compiled.sparse import Forms, choose_forms
from pgfl.simulate.layout import Layout
from pgfl.simulate.problems import Block, Objectives, block_of, objective_of, pairs_of

KINDS = {"ridge": RIDGE, "huber": HUBER, "logistic": LOGISTIC, "hinge": HINGE, "softmax": SOFTMAX}
"""The kernels' numbers of the compiled forms that objectives declare."""
BLOCKS_PER_THREAD = 8
PAGE = 4096


@dataclass(frozen=True)
class CompiledBlock:
    """Whole servers whose clients the kernels know."""

    clients: slice
    pairs: slice
    tolerance: Floats
    strictest: float
    problems: Problems
    forms: Forms  # in which rows are kept beside the whole ones
    ridge: bool  # whether all clients of the training have ridge problems with the same λ
    classes: int | None  # of softmax regression

    @cached_property
    def registers(self) -> tuple[int, ...] | None:
        """Those of a row, for kernels that keep it there; None where rows are kept in another form or do not fit."""
        return registers_of(self.problems.features) if self.forms == (None, None) else None

    def objective_values(self, models: Array) -> Array:
        """f_k of every client at its model."""
        out = np.empty(self.clients.stop - self.clients.start)
        if self.classes is not None:
            softmax_values(self.clients.start, models, self.problems, self.classes, out)
        else:
            compiled.objective_values(self.clients.start, models, self.problems, out)
        return out


def prepare(
    layout: Layout,
    objectives: Objectives,
    rho: Floats | float,
    dtype: DTypeLike,
    update_norm: float | None = None,
    solved: bool = True,
    threads: int = 1,
) -> list[CompiledBlock | Block]:
    """Factor all problems where they lie, if they are to be `solved`, in blocks of whole servers for the threads."""
    kind, lam, kappa, tolerance = _settings(layout, objectives, dtype)
    dimension = layout.runs[0].federation.dimension
    known = (kind >= 0) & (update_norm is None)
    if solved:
        known &= (layout.counts <= ROWS_PER_FEATURE * dimension) & (kind != SOFTMAX)
    problems = _problems(layout, kind, lam, kappa, tolerance, known & solved, rho, dtype)
    ridge, forms = _one_ridge(layout, objectives), choose_forms(problems.features, problems.first, problems.counts)
    classes = layout.model_length // dimension if (kind == SOFTMAX).any() else None
    blocks: list[CompiledBlock | Block] = []
    for start, stop in _cuts(layout, known, BLOCKS_PER_THREAD * threads if threads > 1 else 1):
        clients = slice(start, stop)
        if known[clients].all():
            own, pairs = tolerance[clients], pairs_of(layout, clients)
            blocks.append(CompiledBlock(clients, pairs, own, float(own.min()), problems, forms, ridge, classes))
        else:
            blocks.append(block_of(layout, clients, objectives, rho, dtype, np, update_norm, solved))
    if solved:
        _factor(problems, [block.clients for block in blocks if isinstance(block, CompiledBlock)], threads)
    return blocks


def _one_ridge(layout: Layout, objectives: Objectives) -> bool:
    """Return whether all clusters have the same ridge, in this batch and process or not."""
    chosen = [objective_of(objectives, name) for run in layout.runs for name in run.federation.cluster_ids]
    return all(compiled_form(one) == "ridge" for one in chosen) and len({one.lam for one in chosen}) == 1


def _settings(
    layout: Layout, objectives: Objectives, dtype: DTypeLike
) -> tuple[NDArray[np.int8], Array, Array, Floats]:
    """Kind (−1 if unknown), λ, κ and tolerance of every client."""
    kind, lam = np.empty(layout.clients, dtype=np.int8), np.empty(layout.clients, dtype=dtype)
    kappa, tolerance = np.ones(layout.clients, dtype=dtype), np.empty(layout.clients)
    for run in layout.runs:
        cluster = run.federation.client_cluster[run.order]
        for q in np.unique(cluster):
            objective = objective_of(objectives, run.federation.cluster_ids[q])
            chosen = np.flatnonzero(cluster == q) + run.clients.start
            form = compiled_form(objective) if objective.domain is None else None
            kind[chosen] = KINDS.get(form or "", -1)
            lam[chosen], kappa[chosen] = objective.lam, objective.residual_scale or 1.0
            tolerance[chosen] = tolerance_for(objective, dtype, np) if objective.convex else np.inf
    return kind, lam, kappa, tolerance


def _problems(
    layout: Layout,
    kind: NDArray[np.int8],
    lam: Array,
    kappa: Array,
    tolerance: Array,
    factored: Bools,
    rho: Floats | float,
    dtype: DTypeLike,
) -> Problems:
    rows = [run.federation.features for run in layout.runs]
    targets = [run.federation.targets for run in layout.runs]
    before = np.cumsum([0, *map(len, rows)])
    first = np.concatenate(
        [run.federation.offsets[run.order] + start for run, start in zip(layout.runs, before, strict=False)]
    )
    modulus = eq.strong_convexity(rho, lam, layout.server_clients).astype(dtype)
    sizes = np.where(factored, layout.counts, 0) ** 2
    at, register = np.cumsum(sizes) - sizes, BYTES // np.dtype(dtype).itemsize
    return Problems(
        first=first,
        counts=layout.counts,
        features=_joined(rows, dtype),
        targets=np.concatenate([*targets, np.zeros(register)]).astype(dtype, copy=False),
        kind=kind,
        kappa=kappa,
        goal=(GOAL * tolerance).astype(dtype),
        modulus=modulus,
        rho=np.asarray(np.min(rho), dtype=dtype),
        centre_scale=(rho / modulus).astype(dtype),
        ridge_penalty=eq.ridge_penalty(lam, layout.server_clients).astype(dtype),
        at=at,
        factors=np.zeros(int(sizes.sum()) + register * factored.any(), dtype=dtype),
        slack=np.zeros(layout.clients, dtype=dtype),
    )


def _joined(arrays: list[Array], dtype: DTypeLike) -> Array:
    """Return one run's array as it is; several small ones behind each other."""
    if len(arrays) == 1:
        return np.ascontiguousarray(arrays[0], dtype=dtype)
    return np.concatenate(arrays, out=aligned((sum(map(len, arrays)), *arrays[0].shape[1:]), dtype))


def aligned(shape: tuple[int, ...], dtype: DTypeLike, within_page: int = 0) -> Array:
    """Return zeros that begin at a place within a page of memory: a multiple of a register's size is read fastest.

    Arrays that a kernel reads and writes at once should differ in it: a processor that compares the last twelve bits of
    addresses takes one for the other and waits.
    """
    size = np.dtype(dtype).itemsize * math.prod(shape)
    room = np.zeros(size + PAGE, dtype=np.uint8)
    start = (within_page - room.ctypes.data) % PAGE
    return room[start : start + size].view(dtype).reshape(shape)


def _cuts(layout: Layout, known: Bools, pieces: int) -> list[tuple[int, int]]:
    """Cuts between servers: where the kernels' knowledge ends or begins, and into pieces of about equal many rows."""
    starts = np.searchsorted(layout.client_server, np.unique(layout.client_server))
    whole = np.logical_and.reduceat(known, starts)
    rows = np.cumsum(layout.counts)
    piece = (rows[starts] * pieces - 1) // rows[-1]
    change = np.flatnonzero((np.diff(whole) != 0) | (np.diff(piece) != 0)) + 1
    edges = [0, *starts[change].tolist(), layout.clients]
    return list(pairwise(edges))


def _factor(problems: Problems, blocks: list[slice], threads: int) -> None:
    def one(clients: slice) -> None:
        factor(np.arange(clients.start, clients.stop), problems)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(one, blocks))
