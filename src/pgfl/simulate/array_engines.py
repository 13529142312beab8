"""The engines that compute rounds on whole arrays: NumPy's, which needs nothing else, and JAX's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pgfl.algorithms.algorithms import Algorithm
from pgfl.arrays import Namespace
from pgfl.errors import MissingExtra
from pgfl.simulate.engine import AnyBlock, Engine
from pgfl.simulate.engines import EngineKind
from pgfl.simulate.options import TrainingOptions
from pgfl.simulate.problems import Objectives, prepare

if TYPE_CHECKING:
    from pgfl.simulate.layout import Layout


def array_blocks(
    layout: Layout, objectives: Objectives, algorithm: Algorithm, options: TrainingOptions, xp: Namespace
) -> Sequence[AnyBlock]:
    """Return all clients' problems as arrays of one library."""
    update_norm = options.privacy.update_norm if options.privacy else None
    return prepare(layout, objectives, algorithm.rho, options.dtype, xp, update_norm, algorithm.client_rule.solves)


class NumpyKind(EngineKind):
    """All clients of a block at once, in NumPy."""

    def namespace(self) -> Namespace:
        """Return NumPy."""
        return np

    def prepare(
        self,
        layout: Layout,
        objectives: Objectives,
        algorithm: Algorithm,
        options: TrainingOptions,
        xp: Namespace,
        threads: int,
    ) -> tuple[type[Engine], Sequence[AnyBlock]]:
        """Return the batched engine, and blocks that stay in cache."""
        return Engine, array_blocks(layout, objectives, algorithm, options, xp)


class JaxKind(EngineKind):
    """Phases of a round compiled by JAX, for accelerators."""

    distributed = False

    def namespace(self) -> Namespace:
        """Return jax.numpy."""
        try:
            from pgfl.simulate import jax_engine
        except ImportError as error:
            raise MissingExtra("The jax engine needs JAX; install it with pip install 'pgfl[jax]'.") from error
        return jax_engine.namespace()

    def prepare(
        self,
        layout: Layout,
        objectives: Objectives,
        algorithm: Algorithm,
        options: TrainingOptions,
        xp: Namespace,
        threads: int,
    ) -> tuple[type[Engine], Sequence[AnyBlock]]:
        """Return JAX's engine, and everyone in one block."""
        from pgfl.simulate.jax_engine import JaxEngine

        return JaxEngine, array_blocks(layout, objectives, algorithm, options, xp)
