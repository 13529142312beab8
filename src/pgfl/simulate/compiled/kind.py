"""What the compiled engine says of itself without importing Numba: what it supports, what it saves, what it takes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from pgfl.arrays import Array, DTypeLike, Namespace
from pgfl.errors import KernelError, MissingExtra
from pgfl.objectives import OBJECTIVES
from pgfl.registry import compiled_form
from pgfl.simulate.array_engines import array_blocks
from pgfl.simulate.engine import AnyBlock, Engine
from pgfl.simulate.engines import EngineKind, FillRows, Setup, Training
from pgfl.simulate.options import cores
from pgfl.simulate.problems import objective_of

if TYPE_CHECKING:
    from pgfl.simulate.layout import Layout
    from pgfl.simulate.memory import Shape


STEPS_ONLY = ("softmax",)  # of which there are kernels for gradient steps, but none that solve primal problems
ROWS_PER_FEATURE = 2  # with more rows per feature, sample space is the wrong space
START = 1.0  # seconds that must be saved: loading Numba and its kernels takes 0.4 with bytecode, 1.1 without
SAVED = {"steps": (3e-5, 2e-10), "ridge": (3e-5, 1.5e-9), "others": (2.5e-4, 4e-10)}
"""Seconds that compiled rounds save, per round and per number of the participants' rows.

They were measured once; only their order of magnitude matters.
"""
NUMBERS_PER_THREAD = 2**20  # with fewer, a thread costs more than it gains
COMPILER = 2**26  # bytes of Numba while it compiles
COPIED = 2**28  # bytes up to which the kernels keep an orthogonalised copy of a run's rows (`compiled.orthogonal`)
MOST_REGISTERS = 16  # of such a row: longer ones do not stay in registers
REGISTER = 64  # bytes; those of `compiled.lanes`, which only Numba can import


@cache
def failure() -> str | None:
    """Return why kernels cannot be imported, compiled or loaded though Numba is installed; None if they can."""
    try:
        from pgfl.simulate.compiled import engine as _  # noqa: F401
        from pgfl.simulate.compiled import kernels

        kernels.try_out()
    except Exception as error:  # kernels use private parts of Numba, which may fail in any way
        return f"{type(error).__name__}: {error}".splitlines()[0].rstrip(".")
    return None


def orthogonal_width(rows: int, dimension: int, item: int) -> int:
    """Return the padded length of an orthogonalised row of numbers of `item` bytes; 0 if no copy is kept."""
    registers = 1
    while registers * REGISTER < dimension * item:
        registers *= 2
    return registers * REGISTER // item if registers <= MOST_REGISTERS and rows * registers * REGISTER <= COPIED else 0


class CompiledKind(EngineKind):
    """Client rounds compiled with Numba, on the federation's own rows."""

    fixed_bytes = COMPILER

    @property
    def start_seconds(self) -> float:  # type: ignore[override]
        """Seconds that loading Numba and the kernels takes."""
        return START

    def namespace(self) -> Namespace:
        """Return NumPy, if the kernels can be used."""
        if not self.installed():
            raise MissingExtra("The numba engine needs Numba; install it with pip install 'pgfl[fast]'.")
        if (reason := self.failure()) is not None:
            raise KernelError(
                f"The compiled kernels cannot be used ({reason}); choose the engine numpy, or install a Numba that "
                "they were tested with: pip install 'pgfl[fast]'."
            )
        return np

    def prepare(self, setup: Setup) -> tuple[type[Engine], Sequence[AnyBlock]]:
        """Return the compiled engine, with blocks for its threads; NumPy's for a client rule that it does not know."""
        rule = setup.algorithm.client_rule
        if compiled_form(rule) is None:
            return Engine, array_blocks(setup)
        from pgfl.simulate.compiled import blocks
        from pgfl.simulate.compiled.engine import CompiledEngine

        rho = rule.rho_of(setup.layout.counts)
        known = (setup.layout, setup.objectives, rho, setup.options.dtype, setup.update_norm, rule.solves)
        return CompiledEngine, blocks.prepare(*known, setup.threads)

    def supports(self, training: Training) -> bool:
        """Return whether the kernels cover a training's clients, or nearly all of them."""
        rule, first, privacy = training.algorithm.client_rule, training.first, training.options.privacy
        if compiled_form(rule) is None or (privacy is not None and privacy.update_norm is not None):
            return False
        wide = not rule.solves or training.rows / max(training.clients, 1) <= ROWS_PER_FEATURE * first.dimension
        chosen = (objective_of(training.objectives, name) for name in first.cluster_ids)
        unsolved = STEPS_ONLY if rule.solves else ()
        return wide and all(compiled_form(one) not in (None, *unsolved) and one.domain is None for one in chosen)

    def supports_objective(self, kind: str) -> bool:
        """Return whether there are kernels of this objective."""
        return OBJECTIVES[kind].compiled_form is not None

    def seconds_saved(self, training: Training) -> float:
        """Return the seconds saved per round and per number of the participants' rows, over all rounds."""
        options, (per_round, per_number) = training.options, SAVED[_work(training)]
        numbers = training.participating_rows * training.first.dimension
        return options.rounds * options.runs * (per_round + per_number * numbers)

    def installed(self) -> bool:
        """Return whether Numba is installed."""
        return find_spec("numba") is not None

    def failure(self) -> str | None:
        """Return why the kernels cannot be used."""
        return failure()

    def useful_threads(self, numbers: int) -> int:
        """Return one thread for each so many numbers, up to one per core."""
        return max(1, min(cores(), numbers // NUMBERS_PER_THREAD))

    def fill_rows(self, layout: Layout, seed: int, dtype: DTypeLike) -> FillRows | None:
        """Return compiled streams, which draw in double precision only."""
        if np.dtype(dtype) != np.float64:
            return None
        from pgfl.simulate.compiled.noise import ServerStreams

        return ServerStreams(layout, seed)

    def row_copies(self, compressed: float) -> float:
        """Return 1: kernels read the federation's own rows."""
        return 1.0

    def kernel_bytes(self, shape: Shape) -> int:
        """Return the bytes of coordinates of clients and pairs, and of rows without zeros."""
        item, index = np.dtype(shape.dtype).itemsize, 4 if shape.rows < 2**31 else 8
        registers, width = -(-shape.dimension * item // REGISTER), orthogonal_width(shape.rows, shape.dimension, item)
        row = (6 + width) * item if width else 4 * item + index
        coordinates = shape.rows * row + shape.clients * (8 + item) + 6 * REGISTER
        pairs = shape.pairs * ((2 * shape.dimension + 1) * item + 8)
        share = shape.sparse_share
        without_zeros = (shape.rows + 1) * (8 + share * registers * (REGISTER + 4)) if share else 0.0
        return coordinates + pairs + int(without_zeros)

    def sparse_share(self, features: Array, dtype: DTypeLike) -> float:
        """Return the largest share of registers that may be kept, if the first rows are mostly zeros."""
        if not self.installed():
            return 0.0
        from pgfl.simulate.compiled.sparse import SAMPLED_ROWS, SPARSE_SHARE, mostly_zeros

        return SPARSE_SHARE if mostly_zeros(np.ascontiguousarray(features[:SAMPLED_ROWS], dtype=dtype)) else 0.0


def _work(training: Training) -> str:
    """Return what the clients do in a round, as `SAVED` names it."""
    if not training.algorithm.client_rule.solves:
        return "steps"
    names = training.first.cluster_ids
    return (
        "ridge"
        if all(compiled_form(objective_of(training.objectives, name)) == "ridge" for name in names)
        else "others"
    )
