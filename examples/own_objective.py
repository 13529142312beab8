"""An objective of your own: write the loss, let JAX differentiate it, and train with privacy.

The loss is the soft absolute deviation √(1 + r²) − 1. Its slope is below 1, so the gradient of one record is at most
‖x‖; privacy needs no more than this bound. Run it with `python examples/own_objective.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import pgfl

Floats = NDArray[np.float64]

jax.config.update("jax_enable_x64", True)


def mean_loss(w: jax.Array, features: jax.Array, targets: jax.Array) -> jax.Array:
    """The mean soft absolute deviation of one client."""
    residual = features @ w - targets
    return jnp.mean(jnp.sqrt(1.0 + residual**2) - 1.0)


differentiated: Callable[[Floats, Floats, Floats], tuple[jax.Array, jax.Array]] = jax.jit(jax.value_and_grad(mean_loss))


@dataclass(frozen=True)
class SoftAbsolute(pgfl.Objective):
    """The soft absolute deviation."""

    lam: float = 0.01
    tolerance: float = 1e-7

    def value_and_gradient(self, w: Floats, features: Floats, targets: Floats, counts: Floats) -> tuple[float, Floats]:
        """The mean loss of one client and its gradient."""
        value, gradient = differentiated(w, features, targets)
        return float(value), np.asarray(gradient)

    def gradient_bound(self, bounds: pgfl.Bounds) -> float | None:
        """‖x‖, because the slope of the loss is below 1."""
        return bounds.x_norm


def main() -> tuple[float, float, float]:
    """The NMSD without and with privacy, and the ε that was spent."""
    federation = pgfl.synthetic_regression(
        servers=3, clients_per_server=4, clusters=2, dimension=4, samples=(50, 50), x_norm=2.0, graph="ring"
    )
    algorithm, objective = pgfl.PGFL(rho=2.0, tau=0.2), SoftAbsolute()
    privacy = pgfl.Privacy(epsilon=8.0, delta=1e-5, max_releases=15, index="release", zeta=1.0, x_norm=2.0)
    clean = pgfl.train(federation, algorithm, objective, rounds=15)
    private = pgfl.train(federation, algorithm, objective, rounds=15, privacy=privacy)
    epsilon = private.spending()["epsilon"]["worst"]
    assert epsilon is not None, "a private run states what it spent"
    return float(clean.curve("nmsd")[0, -1]), float(private.curve("nmsd")[0, -1]), epsilon


if __name__ == "__main__":
    without, with_privacy, epsilon = main()
    print(f"NMSD without privacy {without:.4f}, with privacy {with_privacy:.4f} (epsilon {epsilon:.2f} at delta 1e-5)")
