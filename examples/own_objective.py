"""An objective of one's own: give the loss, let JAX differentiate it, train privately.

The loss is the soft absolute deviation √(1 + r²) − 1. Its slope is below 1, so one record's gradient is at most ‖x‖:
that is all privacy needs to know. Run it with `python examples/own_objective.py`.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

import pgfl

jax.config.update("jax_enable_x64", True)


def mean_loss(w, features, targets):
    residual = features @ w - targets
    return jnp.mean(jnp.sqrt(1.0 + residual**2) - 1.0)


value_and_gradient = jax.jit(jax.value_and_grad(mean_loss))


@dataclass(frozen=True)
class SoftAbsolute(pgfl.Objective):
    lam: float = 0.01
    tolerance: float = 1e-7

    def value_and_gradient(self, w, features, targets, counts):
        value, gradient = value_and_gradient(w, features, targets)
        return float(value), np.asarray(gradient)

    def gradient_bound(self, bounds):
        return bounds.x_norm


def main():
    federation = pgfl.synthetic_regression(
        servers=3, clients_per_server=4, clusters=2, dimension=4, samples=(50, 50), x_norm=2.0, graph="ring"
    )
    settings = {"algorithm": pgfl.PGFL(rho=2.0, tau=0.2), "objective": SoftAbsolute(), "rounds": 15}
    open_ = pgfl.train(federation, **settings)
    privacy = pgfl.Privacy(epsilon=8.0, delta=1e-5, max_releases=15, index="release", zeta=1.0, x_norm=2.0)
    private = pgfl.train(federation, privacy=privacy, **settings)
    return open_.curve("nmsd")[0, -1], private.curve("nmsd")[0, -1], private.spending()["epsilon"]["worst"]


if __name__ == "__main__":
    without, with_privacy, epsilon = main()
    print(f"NMSD without privacy {without:.4f}, with privacy {with_privacy:.4f} (epsilon {epsilon:.2f} at delta 1e-5)")
