"""The engine with compiled client rounds (`engine = "numba"`): it works on the federation's own rows, uncopied.

Clients that the kernels do not know (an objective of your own, the norm-constrained ridge, far more rows than
features) are computed as in the NumPy engine, server by server.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pgfl.array_types import Array, Bools, DTypeLike, Floats
from pgfl.arrays import pick, put
from pgfl.core import equations as eq
from pgfl.objectives import Huber, Logistic, Objective, Ridge
from pgfl.objectives.solving import GOAL, tolerance_for
from pgfl.simulate import numba_kernels as compiled
from pgfl.simulate.engine import Engine, Part
from pgfl.simulate.flat_layout import Layout
from pgfl.simulate.numba_kernels import Problems
from pgfl.simulate.problems import Block, Objectives, block_of, objective_of, pairs_of

KINDS: dict[type[Objective], int] = {Ridge: compiled.RIDGE, Huber: compiled.HUBER, Logistic: compiled.LOGISTIC}
ROWS_PER_FEATURE = 2  # with more rows per feature, sample space is the wrong space
BLOCKS_PER_THREAD = 8


@dataclass(frozen=True)
class CompiledBlock:
    """Whole servers whose clients the kernels know."""

    clients: slice
    pairs: slice
    tolerance: Floats
    strictest: float
    problems: Problems

    def objective_values(self, models: Array) -> Array:
        """f_k of every client at its model."""
        out = np.empty(self.clients.stop - self.clients.start)
        compiled.objective_values(self.clients.start, models, self.problems, out)
        return out


class FastEngine(Engine):
    """`Engine` whose client phase and dual update are compiled."""

    def client_phase(self, part: Part, number: int) -> Array:
        """As `Engine.client_phase`, compiled for the blocks that the kernels know."""
        block = part.block
        if not isinstance(block, CompiledBlock) or not len(part.flat):
            return super().client_phase(part, number)
        state, bounds = self.state, part.mean.indptr
        means = np.zeros((len(bounds) - 1, state.dual.shape[1]), dtype=self.dtype)
        who, fields, averaged = (part.flat, bounds, block.pairs.start), tuple(block.problems), self.noise is None
        if self.algorithm.client_rule.solves:
            errors = np.empty(len(part.flat), dtype=self.dtype)
            compiled.client_phase(*who, fields, state.server_models, state.dual, state.model, errors, means, averaged)
            self.check_solved(errors, lambda: pick(state.model, part.index), part)
        else:
            compiled.linearised_client_phase(*who, fields, state.server_models, state.model, means, averaged)
        if self.noise is not None:
            released = self.noise.release(pick(state.model, part.index), part.sigma, part.flat, number)
            put(state.released, slice(None) if part.index is None else part.index, released)
            compiled.sum_contributions(part.flat, bounds, state.released, state.dual, means)
        means *= part.shares
        if self.pair_noise is not None:
            return self.released_means(part, pick(state.model, part.index), means, number)
        return means

    def settle(self, part: Part) -> None:
        """As `Engine.settle`, compiled for the blocks that the kernels know."""
        if not isinstance(part.block, CompiledBlock):
            return super().settle(part)
        state = self.state
        compiled.settle(
            part.flat, part.mean.indptr, part.block.pairs.start, state.server_models, state.released, state.dual
        )
        return None


def prepare(
    layout: Layout,
    objectives: Objectives,
    rho: float,
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
        known &= layout.counts <= ROWS_PER_FEATURE * dimension
    problems = _problems(layout, kind, lam, kappa, tolerance, known & solved, rho, dtype)
    blocks: list[CompiledBlock | Block] = []
    for start, stop in _cuts(layout, known, BLOCKS_PER_THREAD * threads if threads > 1 else 1):
        clients = slice(start, stop)
        if known[clients].all():
            own = tolerance[clients]
            blocks.append(CompiledBlock(clients, pairs_of(layout, clients), own, float(own.min()), problems))
        else:
            blocks.append(block_of(layout, clients, objectives, rho, dtype, np, update_norm, solved))
    if solved:
        _factor(problems, [block.clients for block in blocks if isinstance(block, CompiledBlock)], threads)
    return blocks


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
            free = getattr(objective, "w_norm", None) is None
            kind[chosen] = KINDS.get(type(objective), -1) if free else -1
            lam[chosen], kappa[chosen] = objective.lam, getattr(objective, "kappa", 1.0)
            tolerance[chosen] = tolerance_for(objective, dtype, np) if objective.convex else np.inf
    return kind, lam, kappa, tolerance


def _problems(
    layout: Layout,
    kind: NDArray[np.int8],
    lam: Array,
    kappa: Array,
    tolerance: Array,
    factored: Bools,
    rho: float,
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
    at = np.cumsum(sizes) - sizes
    return Problems(
        first=first,
        counts=layout.counts,
        features=_joined(rows, dtype),
        targets=_joined(targets, dtype),
        kind=kind,
        kappa=kappa,
        goal=(GOAL * tolerance).astype(dtype),
        modulus=modulus,
        rho=np.asarray(rho, dtype=dtype),
        centre_scale=(rho / modulus).astype(dtype),
        ridge_penalty=eq.ridge_penalty(lam, layout.server_clients).astype(dtype),
        at=at,
        factors=np.empty(int(sizes.sum()), dtype=dtype),
        slack=np.zeros(layout.clients, dtype=dtype),
    )


def _joined(arrays: list[Array], dtype: DTypeLike) -> Array:
    """One run's array as it is; several small ones behind each other."""
    return np.ascontiguousarray(arrays[0] if len(arrays) == 1 else np.concatenate(arrays), dtype=dtype)


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
        compiled.factor(np.arange(clients.start, clients.stop), problems)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(one, blocks))
