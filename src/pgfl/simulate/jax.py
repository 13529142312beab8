"""The JAX backend: the same blocks and equations, with every solver compiled."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

from pgfl import margins, solvers

Array = Any
COMPILED = (solvers.RidgeInSamples, solvers.RidgeInFeatures, solvers.ConstrainedRidge, margins.OnMargins)
FIXED = ("objective", "radius", "tolerance", "uses_newton")


@cache
def namespace() -> Any:
    """jax.numpy in double precision; solvers become pytrees, so that their `solve` can be compiled."""
    jax.config.update("jax_enable_x64", True)
    for solver in COMPILED:
        names = [f.name for f in fields(solver)]
        fixed = [name for name in names if name in FIXED]
        jax.tree_util.register_dataclass(solver, [name for name in names if name not in fixed], fixed)
    return jnp


@jax.jit
def _solve(prepared: solvers.Prepared, centre: Array, index: Array | None) -> tuple[Array, Array]:
    return prepared.solve(centre, index)


@dataclass(frozen=True)
class Compiled:
    """A prepared batch whose `solve` runs compiled."""

    prepared: solvers.Prepared

    def solve(self, centre: Array, index: Array | None = None) -> tuple[Array, Array]:
        """As the solver's own."""
        model, error = _solve(self.prepared, centre, index)
        return model, error


def compiled(prepared: solvers.Prepared) -> solvers.Prepared:
    """The compiled twin of a solver, or the solver itself where it cannot be compiled (a user's own objective)."""
    return Compiled(prepared) if isinstance(prepared, COMPILED) else prepared
