"""What a client does in a round: solve its primal problem, linearise it, or take gradient steps.

A client rule and a server rule (see `server_rules`) make an algorithm; any two can be combined. Arrays have one row
per client.

A rule also says how far one record can move what a client releases. Neighbours differ in one replaced record; the
number of records D_k is public. The primal problem is strongly convex with m = ρ + 2λ/|C_s|, so replacing a record
moves its exact solution by at most sup ‖∇ℓ(z;w) − ∇ℓ(z';w)‖ / (D_k m), for any centre a server may have sent. (Lemma 1
of the paper; we fix a gap in its proof, which needs convexity.)

A linearised step w_{q,s} − ∇f_k(w_{q,s})/ρ moves by at most sup ‖∇ℓ(z;w) − ∇ℓ(z';w)‖ / (D_k ρ), because the model
w_{q,s} and the regulariser are public.

With `full_records` = R a client with D_k < R records has ρ_k = ρR/D_k in the place of ρ, or gradient steps that are
D_k/R as long: its loss f_k weighs D_k/R. Where R is at least every D_k, all records weigh alike instead of all clients,
and nothing else changes: servers average as before. A record's share 1/(D_k ρ_k) = 1/(R ρ) is then the same everywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from pgfl import equations as eq
from pgfl.algorithms.accuracy import DescentPromise, LinearisedPromise, Magnitudes, PrimalPromise, Promise
from pgfl.arrays import Array, Floats
from pgfl.errors import ConfigError, PrivacyError
from pgfl.federation.clipping import check_norm
from pgfl.objectives import Bounds, Objective
from pgfl.registry import Registry, setting

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


class ClientRule(ABC):
    """The client's half of an algorithm.

    `has_dual`: clients keep a dual variable between rounds. `solves`: a step solves the primal problem, which is then
    factored once before training. `has_rho`: ρ is a parameter; otherwise `rho` is 1. `linearised`: a step is one
    gradient step of length 1/ρ, which overshoots where ρ is small. `compiled_form` names the kernels that compute the
    same step; `pure` methods are functions of arrays alone, which JAX may trace (a subclass inherits neither). The
    fields of a dataclass are keys of [algorithm].
    """

    has_dual: ClassVar[bool] = False
    solves: ClassVar[bool] = False
    has_rho: ClassVar[bool] = False
    linearised: ClassVar[bool] = False
    compiled_form: ClassVar[str | None] = None
    pure: ClassVar[bool] = False
    rho: float = 1.0
    full_records: int = 1

    def rho_of(self, records: Array) -> Array:
        """Return ρ_k of clients with so many records."""
        return self.rho if self.full_records == 1 else eq.rho_by_records(self.rho, records, self.full_records)

    def modulus(self, lam: Array, server_clients: Array, records: Array) -> Array:
        """Return m_k = ρ_k + 2λ/|C_s| of clients with so many records; Δ_k is calibrated with the same number."""
        return eq.strong_convexity(self.rho_of(records), lam, server_clients)

    @abstractmethod
    def step(self, problem: Problem, server_model: Array, dual: Array, release: Release) -> ClientStep:
        """Compute the clients' models and release them.

        `server_model` (clients, d) is what each received, `dual` (clients, d) what it kept; `release` adds the noise.
        Return the clean models, which stay, what `release` made of them, and a certified error per client.
        """

    @abstractmethod
    def reach(self, modulus: Array) -> Array:
        """Return how far a client's model moves per unit of change in its gradient, for m = `modulus`."""

    def centre(self, server_model: Array, dual: Array, modulus: Array, records: Array) -> Array:
        """Return the public point that a step starts from and that its result is clipped around: the server's model."""
        return server_model

    def contribution(self, released: Array, dual: Array) -> Array:
        """Return what the server averages: the released model itself."""
        return released

    def settle(self, dual: Array, server_model: Array, released: Array) -> Array:
        """Return the dual after the round, from released quantities only; there is none to update."""
        return dual

    @property
    def gradient_steps(self) -> tuple[float, int, int] | None:
        """(length of a gradient step, records from which on it is that long, number of steps); None for other rules."""
        return None

    def sensitivity(
        self, objective: Objective, bounds: Bounds, counts: ArrayLike, modulus: ArrayLike, tolerance: ArrayLike
    ) -> Floats:
        """Return Δ_k of what a client releases, one per client, for D_k = `counts` rows and m_k = `modulus`.

        `tolerance` bounds the error of the solver or, where nothing is solved, of rounding. Raise `PrivacyError` where
        no Δ holds for all records within the bounds; by default there is none.
        """
        raise PrivacyError(f"No sensitivity is derived for {type(self).__name__}; set privacy.update_norm.")

    def promise(
        self, sizes: Magnitudes, lam: float, server_clients: int, tolerance: float, most_steps: int
    ) -> Promise | None:
        """Return the accuracy that holds for all data within public bounds; None if this rule promises nothing."""
        return None


@dataclass(frozen=True)
class ProximalStep(ClientRule):
    """Solve the primal problem exactly and keep a dual: the client's side of ADMM.

    With `full_records` = R a client with D < R records is held to its server's model R/D times as strongly.
    """

    rho: float = setting(5.0, gt=0)
    full_records: int = setting(1, ge=1)

    has_dual: ClassVar[bool] = True
    solves: ClassVar[bool] = True
    has_rho: ClassVar[bool] = True
    compiled_form: ClassVar[str | None] = "proximal"
    pure: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_rho(self.rho)
        _check_full_records(self.full_records)

    def centre(self, server_model: Array, dual: Array, modulus: Array, records: Array) -> Array:
        """The centre of the primal problem's quadratic term."""
        return eq.client_centre(server_model, dual, self.rho_of(records), modulus)

    def step(self, problem: Problem, server_model: Array, dual: Array, release: Release) -> ClientStep:
        """Solve the primal problem and release its solution."""
        centre = self.centre(server_model, dual, problem.modulus, problem.records)
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

    def sensitivity(
        self, objective: Objective, bounds: Bounds, counts: ArrayLike, modulus: ArrayLike, tolerance: ArrayLike
    ) -> Floats:
        """Δ = gradient change/(D m) + 2·tolerance, where ‖ŵ − argmin‖ ≤ tolerance is certified at every solve.

        With m_k = ρ max(D, R)/D + 2λ/|C_s| a record's share is at most 1/(max(D, R) ρ); R = `full_records`.
        """
        records, strength, error = np.broadcast_arrays(
            *(np.asarray(value, dtype=np.float64) for value in (counts, modulus, tolerance))
        )
        check_records_and_error(records, error)
        if not ((strength > 0.0) & np.isfinite(strength)).all():
            raise PrivacyError(
                "The modulus m = rho + 2 lambda/|C_s| must be above 0 for a bounded sensitivity; raise rho."
            )
        if not objective.convex:
            raise PrivacyError(
                f"The {objective.kind} objective is not convex, so its updates must be clipped: set update_norm under "
                '[privacy], or take gradient steps (client = "gradient" under [algorithm]).'
            )
        change = gradient_change(objective, bounds)
        return np.asarray(change / (records * strength) + 2.0 * error, dtype=np.float64)

    def promise(
        self, sizes: Magnitudes, lam: float, server_clients: int, tolerance: float, most_steps: int
    ) -> Promise | None:
        """A solution within the tolerance."""
        modulus = float(self.modulus(lam, server_clients, sizes.records))
        return PrimalPromise(sizes, modulus, tolerance, most_steps)


@dataclass(frozen=True)
class LinearisedStep(ClientRule):
    """One gradient step of length 1/ρ from the server's model: the primal problem, linearised; there is no dual.

    An objective whose gradient is bounded only within a domain takes the step from the model projected onto it. With
    `full_records` = R a client with D < R records takes D/R of the step, so that one record moves the step of no client
    further than that of a client with R records: up to R records count alike, instead of clients.
    """

    rho: float = setting(5.0, gt=0)
    full_records: int = setting(1, ge=1)

    has_rho: ClassVar[bool] = True
    linearised: ClassVar[bool] = True
    compiled_form: ClassVar[str | None] = "gradient"
    pure: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_rho(self.rho)
        _check_full_records(self.full_records)

    def step(self, problem: Problem, server_model: Array, dual: Array, release: Release) -> ClientStep:
        """Take the step and release where it leads; nothing is solved, so there is no error to certify."""
        centre = problem.projected(server_model)
        model = eq.linearised_client_step(centre, problem.gradient(centre), self.rho_of(problem.records))
        model = eq.clip_update(model, centre, problem.update_norm)
        return ClientStep(model, release(model), 0.0 * model[..., 0])

    def reach(self, modulus: Array) -> float:
        """1/ρ, for a client with `full_records`; for others it is less, or as much."""
        return eq.linearised_reach(self.rho)

    @property
    def gradient_steps(self) -> tuple[float, int, int]:
        """One step of length 1/ρ."""
        return eq.linearised_reach(self.rho), self.full_records, 1

    def sensitivity(
        self, objective: Objective, bounds: Bounds, counts: ArrayLike, modulus: ArrayLike, tolerance: ArrayLike
    ) -> Floats:
        """Δ = gradient change/(max(D, R) ρ) + 2·rounding, for any loss: both worlds step from one public model.

        With ρ_k = ρ max(D, R)/D a record's share of the step is 1/(D ρ_k) = 1/(max(D, R) ρ); R = `full_records`.
        """
        records, error = np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in (counts, tolerance)))
        check_records_and_error(records, error)
        change = gradient_change(objective, bounds)
        counted = np.maximum(records, self.full_records)
        return np.asarray(change * eq.linearised_reach(self.rho) / counted + 2.0 * error, dtype=np.float64)

    def promise(
        self, sizes: Magnitudes, lam: float, server_clients: int, tolerance: float, most_steps: int
    ) -> Promise | None:
        """The same step as in exact arithmetic, up to a bounded rounding error."""
        return LinearisedPromise(
            sizes, float(self.rho_of(sizes.records)), eq.ridge_penalty(lam, server_clients), tolerance
        )


@dataclass(frozen=True)
class GradientSteps(ClientRule):
    """Take local gradient steps from the server's model; there is no dual.

    With `full_records` = R the steps of a client with D < R records are D/R as long.
    """

    step_size: float = setting(0.005, gt=0)
    local_steps: int = setting(5, ge=1)
    full_records: int = setting(1, ge=1)

    compiled_form: ClassVar[str | None] = "gradient"
    pure: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (np.isfinite(self.step_size) and self.step_size > 0):
            raise ConfigError(f"algorithm.step_size must be a number above 0; got {self.step_size}.")
        if not (isinstance(self.local_steps, int) and self.local_steps >= 1):
            raise ConfigError(f"algorithm.local_steps must be a whole number from 1 up; got {self.local_steps}.")
        _check_full_records(self.full_records)

    def step_of(self, records: Array) -> Array:
        """Return the length of a step of clients with so many records."""
        return self.step_size / self.rho_of(records) if self.full_records > 1 else self.step_size

    def step(self, problem: Problem, server_model: Array, dual: Array, release: Release) -> ClientStep:
        """Take `local_steps` gradient steps from the server's model."""
        model, step = server_model, self.step_of(problem.records)
        for _ in range(self.local_steps):
            model = eq.gradient_step(model, problem.gradient(model), step)
        model = eq.clip_update(model, server_model, problem.update_norm)
        return ClientStep(model, release(model), 0.0 * model[..., 0])

    def reach(self, modulus: Array) -> float:
        """The length of all steps together."""
        return eq.descent_reach(self.step_size, self.local_steps)

    @property
    def gradient_steps(self) -> tuple[float, int, int]:
        """`local_steps` steps."""
        return self.step_size, self.full_records, self.local_steps

    def sensitivity(
        self, objective: Objective, bounds: Bounds, counts: ArrayLike, modulus: ArrayLike, tolerance: ArrayLike
    ) -> Floats:
        """Steps on a convex smooth loss do not spread apart while step ≤ 2/L, so Δ = steps · step · change/max(D, R).

        Steps of clients with D < R = `full_records` are shorter. What rounding may add in either world comes on top.
        """
        change, smoothness = objective.gradient_change(bounds), objective.smoothness(bounds)
        if not objective.convex and self.local_steps > 1:
            raise PrivacyError(
                f"Several gradient steps on {objective.kind} can spread apart, because it is not convex; set "
                "algorithm.local_steps = 1 or privacy.update_norm."
            )
        if change is None or smoothness is None or objective.domain is not None:
            raise PrivacyError(
                f"Gradient steps on {objective.kind} have no bounded update; set privacy.update_norm, or use huber."
            )
        if self.step_size > 2.0 / (smoothness + 2.0 * objective.lam):
            raise PrivacyError(
                f"The step {self.step_size:g} is too long for a bounded sensitivity; use at most "
                f"{2.0 / (smoothness + 2.0 * objective.lam):.3g}, or set privacy.update_norm."
            )
        records, error = np.maximum(np.asarray(counts), self.full_records), np.asarray(tolerance)
        return np.asarray(self.reach(1.0) * change / records + 2.0 * error, dtype=float)

    def promise(
        self, sizes: Magnitudes, lam: float, server_clients: int, tolerance: float, most_steps: int
    ) -> Promise | None:
        """The same steps as in exact arithmetic, up to a bounded rounding error."""
        penalty = eq.ridge_penalty(lam, server_clients)
        return DescentPromise(sizes, float(self.step_of(sizes.records)), self.local_steps, penalty, tolerance)


def _check_rho(rho: float) -> None:
    if not (np.isfinite(rho) and rho > 0):
        raise ConfigError(f"algorithm.rho must be a number above 0; got {rho}.")


def _check_full_records(full_records: int) -> None:
    if not (isinstance(full_records, int) and full_records >= 1):
        raise ConfigError(f"algorithm.full_records must be a whole number from 1 up; got {full_records}.")


def gradient_change(objective: Objective, bounds: Bounds) -> float:
    """sup ‖∇ℓ(z;w) − ∇ℓ(z';w)‖ as the objective states it; raises where there is none."""
    name = objective.kind
    check_norm("x_norm", bounds.x_norm)
    change = objective.gradient_change(bounds)
    if change is None:
        raise PrivacyError(
            f"The {name} objective has no bounded gradient under these bounds, so no noise makes it private: set the "
            "bounds it needs (ridge: y_bound and w_norm), or choose huber or logistic, or state its gradient_bound."
        )
    if not (change > 0.0 and np.isfinite(change)):
        raise PrivacyError(
            f"The {name} objective states a gradient change of {change!r}; it must be a positive number."
        )
    return change


def check_records_and_error(records: Floats, error: Floats) -> None:
    """Raise unless every client has a record and every error is a number that is not negative."""
    if not (records >= 1.0).all():
        raise PrivacyError("Every client needs at least one record before its releases can be calibrated.")
    if not ((error >= 0.0) & np.isfinite(error)).all():
        raise PrivacyError("The solver's tolerance must be a finite number that is not negative.")


CLIENT_RULES = Registry[type[ClientRule]](
    "client_rules", "client rule", {"admm": ProximalStep, "gradient": LinearisedStep}
)
"""What `algorithm.client` can name."""
