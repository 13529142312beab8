"""The algorithms, each as pure steps that simulator and roles call alike.

A round of any of them, with arrays whose last axis is the model and whose first is a client or a (server, cluster):

1. client: `client_step` solves the primal problem and releases a model; its server averages `contribution`s.
2. server: `publish` turns that aggregate into what neighbours are told.
3. server: `combine` turns what the neighbourhood published into the new models.
4. client: `settle` closes the dual with the model it gets back.

`publish` and `combine` see the network through a `Neighbourhood`; what a server does not have takes no part in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from pgfl.core import equations as eq
from pgfl.core.schedules import Decaying, Tau, check_tau
from pgfl.core.topology import Mixing
from pgfl.errors import ConfigError

Array = Any
ServerState = dict[str, Array]
Release = Callable[[Array], Array]


class Problem(Protocol):
    """The primal problems of the clients that take part: what a client step needs to know of their data."""

    @property
    def modulus(self) -> Array:
        """m = ρ + 2λ/|C_s|, a column."""
        ...

    @property
    def update_norm(self) -> float | None:
        """How far a model may move from its public centre; None is as far as it likes."""
        ...

    def solve(self, centre: Array) -> tuple[Array, Array]:
        """(argmin, certified error) of every client."""
        ...

    def gradient(self, w: Array) -> Array:
        """∇f_k, with the regulariser."""
        ...


class Neighbourhood(Protocol):
    """Sums over what the neighbours (and the clusters at) a server have; one row a (server, cluster)."""

    @property
    def degree(self) -> Array:
        """|𝒩_s⁻| counting neighbours that have q, where s itself does; a column."""
        ...

    @property
    def adopting(self) -> Array:
        """1 where s knows q only from its neighbours."""
        ...

    @property
    def share(self) -> Array:
        """c_s of exact mixing."""
        ...

    def average(self, values: Array) -> Array:
        """The mixing average over p ∈ 𝒩_s that have the cluster."""
        ...

    def neighbour_sum(self, values: Array) -> Array:
        """Σ over p ∈ 𝒩_s⁻ that have the cluster, where s itself has it; 0 elsewhere."""
        ...

    def neighbour_mean(self, values: Array) -> Array:
        """The plain mean over p ∈ 𝒩_s⁻ that have the cluster."""
        ...

    def other_clusters(self, values: Array) -> tuple[Array, Array]:
        """The mean over r ≠ q that s has, and 1 where there is any, else 0."""
        ...

    def other_clusters_nearby(self, values: Array) -> tuple[Array, Array]:
        """The mean over r ≠ q and p ∈ 𝒩_s that p has, and 1 where there is any, else 0."""
        ...


class ClientStep(NamedTuple):
    """What one client step leaves: the clean model (it stays), the released one, and the solver's certified error."""

    model: Array
    released: Array
    error: Array


@dataclass(frozen=True)
class _Admm:
    """What the ADMM algorithms share: the client's side."""

    rho: float = 5.0
    tau: Tau = 0.0
    mixing: Mixing = "uniform"

    kind: ClassVar[str]
    personalised: ClassVar[bool] = True
    has_dual: ClassVar[bool] = True
    starts_everywhere: ClassVar[bool] = False
    publishes_last_round: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not (np.isfinite(self.rho) and self.rho > 0):
            raise ConfigError(f"algorithm.rho must be a number above 0; got {self.rho}.")
        if not callable(self.tau):
            check_tau(self.tau)

    def client_step(self, problem: Problem, server_model: Array, dual: Array, release: Release) -> ClientStep:
        """Solve the primal problem and perturb its solution."""
        centre = eq.client_centre(server_model, dual, self.rho, problem.modulus)
        model, error = problem.solve(centre)
        model = eq.clip_update(model, centre, problem.update_norm)
        return ClientStep(model, release(model), error)

    def reach(self, modulus: Array) -> Array:
        """How far a client's model moves for every unit that its gradient changes: 1/m."""
        return 1.0 / modulus

    def contribution(self, released: Array, dual: Array) -> Array:
        """What the server averages."""
        return eq.contribution(released, dual)

    def settle(self, dual: Array, server_model: Array, released: Array) -> Array:
        """The dual after the round, from released quantities only."""
        return eq.client_dual_update(dual, server_model, released)


@dataclass(frozen=True)
class PGFL(_Admm):
    """Algorithms 1 and 2: aggregate, average with neighbours, learn from other clusters.

    Private or not is a matter of `release` alone: with the identity it is Algorithm 1, with noise Algorithm 2.
    """

    kind: ClassVar[str] = "pgfl"

    def start(self, zeros: Array) -> ServerState:
        """Servers start without models; zero only stands where nothing is known yet."""
        return {"model": zeros}

    def publish(self, state: ServerState, aggregate: Array, neighbourhood: Neighbourhood) -> tuple[ServerState, Array]:
        """Neighbours are told the aggregate, or the current model where no client took part."""
        return state, aggregate

    def combine(self, state: ServerState, published: Array, neighbourhood: Neighbourhood, tau: float) -> ServerState:
        """Inter-server aggregation, then inter-cluster learning."""
        averaged = eq.inter_server_aggregation(published, neighbourhood.average)
        return {"model": _learn_across_clusters(averaged, neighbourhood, tau)}


@dataclass(frozen=True)
class ExactMixing(_Admm):
    """PGFL with the exact-diffusion correction: at τ = 0, with everyone taking part, it reaches the optimum."""

    mixing: Mixing = "metropolis"

    kind: ClassVar[str] = "pgfl-exact"
    starts_everywhere: ClassVar[bool] = True

    def start(self, zeros: Array) -> ServerState:
        """Every server of a component with clients of q starts at 0 and relays; leaving one out would bias for ever."""
        return {"model": zeros, "step": zeros}

    def publish(self, state: ServerState, aggregate: Array, neighbourhood: Neighbourhood) -> tuple[ServerState, Array]:
        """The corrected step t + w − t_previous; w − t_previous is 0 before the first round."""
        step = eq.exact_local_step(state["model"], aggregate, neighbourhood.share)
        return {**state, "step": step}, eq.exact_correction(step, state["model"], state["step"])

    def combine(self, state: ServerState, published: Array, neighbourhood: Neighbourhood, tau: float) -> ServerState:
        """Half of the average, half of one's own: Ā = (I + A)/2."""
        mixed = 0.5 * (published + eq.inter_server_aggregation(published, neighbourhood.average))
        return {**state, "model": _learn_across_clusters(mixed, neighbourhood, tau)}


@dataclass(frozen=True)
class OneStep(_Admm):
    """The one-step ADMM server update with the server dual ψ, from the neighbours' models of the round before."""

    kind: ClassVar[str] = "pgfl-onestep"
    publishes_last_round: ClassVar[bool] = True

    def start(self, zeros: Array) -> ServerState:
        """No model, no dual, no aggregate."""
        return {"model": zeros, "dual": zeros, "aggregate": zeros}

    def publish(self, state: ServerState, aggregate: Array, neighbourhood: Neighbourhood) -> tuple[ServerState, Array]:
        """Neighbours are told the model of the round before; the aggregate stays at home until `combine`."""
        return {**state, "aggregate": aggregate}, state["model"]

    def combine(self, state: ServerState, published: Array, neighbourhood: Neighbourhood, tau: float) -> ServerState:
        """Close ψ of the round before with the same messages, then the one-step update."""
        neighbours = neighbourhood.neighbour_sum(published)
        dual = eq.server_dual_update(state["dual"], published, neighbours, neighbourhood.degree, self.rho)
        others, any_other = neighbourhood.other_clusters_nearby(published)
        updated = eq.server_primal(
            state["aggregate"], dual, published, neighbours, neighbourhood.degree, others, tau * any_other, self.rho
        )
        adopted = neighbourhood.neighbour_mean(published)
        return {**state, "dual": dual, "model": updated + neighbourhood.adopting * (adopted - updated)}


@dataclass(frozen=True)
class FedAvg:
    """FedAvg on the server graph: one model for everyone, local gradient steps, averages of averages.

    The mean is over participants, not weighted by D_k, because the paper's risk weighs clients, not samples.
    """

    step: float = 0.005
    local_steps: int = 5
    mixing: Mixing = "uniform"

    kind: ClassVar[str] = "fedavg"
    personalised: ClassVar[bool] = False
    has_dual: ClassVar[bool] = False
    starts_everywhere: ClassVar[bool] = False
    publishes_last_round: ClassVar[bool] = False
    rho: ClassVar[float] = 1.0
    tau: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.step) and self.step > 0):
            raise ConfigError(f"algorithm.step must be a number above 0; got {self.step}.")
        if not (isinstance(self.local_steps, int) and self.local_steps >= 1):
            raise ConfigError(f"algorithm.local_steps must be a whole number from 1 up; got {self.local_steps}.")

    def client_step(self, problem: Problem, server_model: Array, dual: Array, release: Release) -> ClientStep:
        """`local_steps` gradient steps from the server's model."""
        model = server_model
        for _ in range(self.local_steps):
            model = eq.gradient_step(model, problem.gradient(model), self.step)
        model = eq.clip_update(model, server_model, problem.update_norm)
        return ClientStep(model, release(model), 0.0 * model[..., 0])

    def reach(self, modulus: Array) -> float:
        """How far a client's model moves for every unit that its gradient changes: step by step."""
        return self.step * self.local_steps

    def contribution(self, released: Array, dual: Array) -> Array:
        """The released model itself."""
        return released

    def settle(self, dual: Array, server_model: Array, released: Array) -> Array:
        """There is no dual."""
        return dual

    def start(self, zeros: Array) -> ServerState:
        """Servers start without a model."""
        return {"model": zeros}

    def publish(self, state: ServerState, aggregate: Array, neighbourhood: Neighbourhood) -> tuple[ServerState, Array]:
        """The mean of the clients' models."""
        return state, aggregate

    def combine(self, state: ServerState, published: Array, neighbourhood: Neighbourhood, tau: float) -> ServerState:
        """The average over the neighbourhood."""
        return {"model": eq.inter_server_aggregation(published, neighbourhood.average)}


Algorithm = PGFL | ExactMixing | OneStep | FedAvg
KINDS: dict[str, type[Algorithm]] = {cls.kind: cls for cls in (PGFL, ExactMixing, OneStep, FedAvg)}


def _learn_across_clusters(mixed: Array, neighbourhood: Neighbourhood, tau: float) -> Array:
    if isinstance(tau, float) and tau == 0:
        return mixed
    others, any_other = neighbourhood.other_clusters(mixed)
    return eq.inter_cluster_learning(mixed, others, tau * any_other)


def swap_warning(tau: Tau, clusters: int) -> str | None:
    """Above τ = (Q − 1)/Q a cluster weighs the others more than itself: clusters swap."""
    start = tau.start if isinstance(tau, Decaying) else tau
    if callable(start) or clusters < 2 or start <= (clusters - 1) / clusters:
        return None
    return (
        f"With {clusters} clusters, tau = {start} is above {(clusters - 1) / clusters:.3g}: every cluster weighs each "
        "other one more than itself, so clusters swap models; lower tau."
    )
