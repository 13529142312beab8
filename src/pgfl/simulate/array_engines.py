"""The engines that compute rounds on whole arrays: NumPy's, which needs nothing else, and JAX's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pgfl.arrays import Namespace
from pgfl.errors import MissingExtra
from pgfl.simulate.engine import AnyBlock, Engine
from pgfl.simulate.engines import EngineKind, Setup
from pgfl.simulate.problems import prepare


def array_blocks(setup: Setup) -> Sequence[AnyBlock]:
    """Return all clients' problems as arrays of one library."""
    rule, dtype = setup.algorithm.client_rule, setup.options.dtype
    rho, solved = rule.rho_of(setup.layout.counts), rule.solves
    return prepare(setup.layout, setup.objectives, rho, dtype, setup.xp, setup.update_norm, solved)


class NumpyKind(EngineKind):
    """All clients of a block at once, in NumPy."""

    def namespace(self) -> Namespace:
        """Return NumPy."""
        return np

    def prepare(self, setup: Setup) -> tuple[type[Engine], Sequence[AnyBlock]]:
        """Return the batched engine, and blocks that stay in cache."""
        return Engine, array_blocks(setup)


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

    def prepare(self, setup: Setup) -> tuple[type[Engine], Sequence[AnyBlock]]:
        """Return JAX's engine, and everyone in one block."""
        from pgfl.simulate.jax_engine import JaxEngine

        return JaxEngine, array_blocks(setup)
