"""What a client does in a round: solve its primal problem, linearise it, or take gradient steps.

A client rule and a server rule (see `server_rules`) make an algorithm; any two can be combined. Arrays have one row
per client.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from pgfl import equations as eq
from pgfl.algorithms.accuracy import DescentPromise, LinearisedPromise, Magnitudes, PrimalPromise, Promise
from pgfl.arrays import Array
from pgfl.errors import ConfigError

Release = Callable[[Array], Array]


class Problem(Protocol):
    """The primal problems of the participating clients: what a client step needs to know about their data."""

    @property
    def modulus(self) -> Array:
        """m = ρ + 2λ/|C_s|, a column."""
        ...

    @property
    def update_norm(self) -> float | None:
        """The largest allowed distance of a model from its public centre; None if there is no limit."""
        ...

    @property
    def records(self) -> Array:
        """D_k, a column, or one number if it is the same for all."""
        ...

    def solve(self, centre: Array) -> tuple[Array, Array]:
        """(argmin, certified error) of every client."""
        ...

    def gradient(self, w: Array) -> Array:
        """∇f_k, with the regulariser."""
        ...

    def projected(self, w: Array) -> Array:
        """w, moved into the domain of each client's objective: the gradient is bounded only there."""
        ...


class ClientStep(NamedTuple):
    """The result of a client step: the clean model, which stays, the released one, and the solver's certified error."""

    model: Array
    released: Array
    error: Array


class ClientRule(Protocol):
    """The client's half of an algorithm."""

    @property
    def has_dual(self) -> bool:
        """Whether clients keep a dual variable between rounds."""
        ...

    @property
    def solves(self) -> bool:
        """Whether a step solves the primal problem, which is then factored once before training."""
        ...

    @property
    def rho(self) -> float:
        """ρ of the primal problem; 1 where there is none."""
        ...

    def centre(self, server_model: Array, dual: Array, modulus: Array) -> Array:
        """The public point that a step starts from and that its result is clipped around."""
        ...

    def step(self, problem: Problem, server_model: Array, dual: Array, release: Release) -> ClientStep:
        """Compute the client's model and release it."""
        ...

    def reach(self, modulus: Array) -> Array:
        """How far a client's model moves per unit of change in its gradient."""
        ...

    def contribution(self, released: Array, dual: Array) -> Array:
        """What the server averages."""
        ...

    def settle(self, dual: Array, server_model: Array, released: Array) -> Array:
        """The dual after the round, from released quantities only."""
        ...

    def promise(
        self, sizes: Magnitudes, lam: float, server_clients: int, tolerance: float, most_steps: int
    ) -> Promise | None:
        """The accuracy that holds for all data within public bounds; None if this rule promises nothing."""
        ...


@dataclass(frozen=True)
class ProximalStep:
    """Solve the primal problem exactly and keep a dual: the client's side of ADMM."""

    rho: float = 5.0

    has_dual: ClassVar[bool] = True
    solves: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_rho(self.rho)

    def centre(self, server_model: Array, dual: Array, modulus: Array) -> Array:
        """The centre of the primal problem's quadratic term."""
        return eq.client_centre(server_model, dual, self.rho, modulus)

    def step(self, problem: Problem, server_model: Array, dual: Array, release: Release) -> ClientStep:
        """Solve the primal problem and release its solution."""
        centre = self.centre(server_model, dual, problem.modulus)
        model, error = problem.solve(centre)
        model = eq.clip_update(model, centre, problem.update_norm)
        return ClientStep(model, release(model), error)

    def reach(self, modulus: Array) -> Array:
        """1/m."""
        return eq.primal_reach(modulus)

    def contribution(self, released: Array, dual: Array) -> Array:
        """The released model less the scaled dual."""
        return eq.contribution(released, dual)

    def settle(self, dual: Array, server_model: Array, released: Array) -> Array:
        """The dual update with the released model."""
        return eq.client_dual_update(dual, server_model, released)

    def promise(
        self, sizes: Magnitudes, lam: float, server_clients: int, tolerance: float, most_steps: int
    ) -> Promise | None:
        """A solution within the tolerance."""
        modulus = float(eq.strong_convexity(self.rho, lam, server_clients))
        return PrimalPromise(sizes, modulus, tolerance, most_steps)


@dataclass(frozen=True)
class LinearisedStep:
    """One gradient step of length 1/ρ from the server's model: the primal problem, linearised; there is no dual.

    An objective whose gradient is bounded only within a domain takes the step from the model projected onto it. With
    `full_records` = R a client with D < R records takes D/R of the step, so that one record moves the step of no client
    further than that of a client with R records: up to R records count alike, instead of clients.
    """

    rho: float = 5.0
    full_records: int = 1

    has_dual: ClassVar[bool] = False
    solves: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_rho(self.rho)
        if not (isinstance(self.full_records, int) and self.full_records >= 1):
            raise ConfigError(f"algorithm.full_records must be a whole number from 1 up; got {self.full_records}.")

    def centre(self, server_model: Array, dual: Array, modulus: Array) -> Array:
        """The server's model."""
        return server_model

    def rho_of(self, records: Array) -> Array:
        """ρ of clients with so many records."""
        return self.rho if self.full_records == 1 else eq.rho_by_records(self.rho, records, self.full_records)

    def step(self, problem: Problem, server_model: Array, dual: Array, release: Release) -> ClientStep:
        """Take the step and release where it leads; nothing is solved, so there is no error to certify."""
        centre = problem.projected(server_model)
        model = eq.linearised_client_step(centre, problem.gradient(centre), self.rho_of(problem.records))
        model = eq.clip_update(model, centre, problem.update_norm)
        return ClientStep(model, release(model), 0.0 * model[..., 0])

    def reach(self, modulus: Array) -> float:
        """1/ρ, for a client with `full_records`; for others it is less, or as much."""
        return eq.linearised_reach(self.rho)

    def contribution(self, released: Array, dual: Array) -> Array:
        """The released model itself."""
        return released

    def settle(self, dual: Array, server_model: Array, released: Array) -> Array:
        """There is no dual to update."""
        return dual

    def promise(
        self, sizes: Magnitudes, lam: float, server_clients: int, tolerance: float, most_steps: int
    ) -> Promise | None:
        """The same step as in exact arithmetic, up to a bounded rounding error."""
        return LinearisedPromise(
            sizes, float(self.rho_of(sizes.records)), eq.ridge_penalty(lam, server_clients), tolerance
        )


@dataclass(frozen=True)
class GradientSteps:
    """Take local gradient steps from the server's model; there is no dual."""

    step_size: float = 0.005
    local_steps: int = 5

    has_dual: ClassVar[bool] = False
    solves: ClassVar[bool] = False
    rho: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.step_size) and self.step_size > 0):
            raise ConfigError(f"algorithm.step must be a number above 0; got {self.step_size}.")
        if not (isinstance(self.local_steps, int) and self.local_steps >= 1):
            raise ConfigError(f"algorithm.local_steps must be a whole number from 1 up; got {self.local_steps}.")

    def centre(self, server_model: Array, dual: Array, modulus: Array) -> Array:
        """The server's model."""
        return server_model

    def step(self, problem: Problem, server_model: Array, dual: Array, release: Release) -> ClientStep:
        """Take `local_steps` gradient steps from the server's model."""
        model = server_model
        for _ in range(self.local_steps):
            model = eq.gradient_step(model, problem.gradient(model), self.step_size)
        model = eq.clip_update(model, server_model, problem.update_norm)
        return ClientStep(model, release(model), 0.0 * model[..., 0])

    def reach(self, modulus: Array) -> float:
        """The length of all steps together."""
        return eq.descent_reach(self.step_size, self.local_steps)

    def contribution(self, released: Array, dual: Array) -> Array:
        """The released model itself."""
        return released

    def settle(self, dual: Array, server_model: Array, released: Array) -> Array:
        """There is no dual to update."""
        return dual

    def promise(
        self, sizes: Magnitudes, lam: float, server_clients: int, tolerance: float, most_steps: int
    ) -> Promise | None:
        """The same steps as in exact arithmetic, up to a bounded rounding error."""
        penalty = eq.ridge_penalty(lam, server_clients)
        return DescentPromise(sizes, self.step_size, self.local_steps, penalty, tolerance)


def _check_rho(rho: float) -> None:
    if not (np.isfinite(rho) and rho > 0):
        raise ConfigError(f"algorithm.rho must be a number above 0; got {rho}.")
