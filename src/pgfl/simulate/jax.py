"""The JAX backend: the same blocks and equations, with every solver compiled."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

from pgfl import solvers

COMPILED = (solvers.RidgeInSamples, solvers.RidgeInFeatures, solvers.ConstrainedRidge, solvers.NewtonOnMargins)


@cache
def namespace() -> Any:
    """jax.numpy with double precision on; solvers become pytrees whose `solve` is compiled."""
    jax.config.update("jax_enable_x64", True)
    for solver in COMPILED:
        names = [f.name for f in fields(solver)]
        fixed = [name for name in names if name in ("objective", "radius")]
        jax.tree_util.register_dataclass(solver, [name for name in names if name not in fixed], fixed)
        solver.solve = jax.jit(solver.solve)  # type: ignore[method-assign, assignment]
    return jnp
