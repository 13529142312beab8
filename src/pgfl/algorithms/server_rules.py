"""What a server does in a round: publish to its neighbours, then combine what the neighbourhood published.

Arrays have one row per (server, cluster). A rule sees the network through a `Neighbourhood`; servers that do not have a
model of a cluster take no part in its sums.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

from pgfl import equations as eq
from pgfl.arrays import Array

ServerState = dict[str, Array]


class Neighbourhood(Protocol):
    """Sums over the models that a server's neighbours have; one row per (server, cluster)."""

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
        """The mean over r ≠ q that s has, and 1 where q learns from it: 0 if there is none, or q rests."""
        ...

    def other_clusters_nearby(self, values: Array) -> tuple[Array, Array]:
        """The mean over r ≠ q and p ∈ 𝒩_s that p has, and 1 where q learns from it: 0 if there is none, or q rests."""
        ...


class ServerRule(ABC):
    """The server's half of an algorithm.

    `personalised`: a server keeps one model per cluster; otherwise one for all clients. `starts_everywhere`: all
    servers have a model before the first round. `publishes_last_round`: neighbours receive the model of the previous
    round instead of this round's estimate. `plain_average`: a round multiplies differences between servers by the
    mixing weights and nothing else. `exact`: it removes the bias of that average, where τ = 0 and all clients take
    part. `compiled_form` names the kernels that compute the same; `pure` methods are functions of arrays alone, which
    JAX may trace (a subclass inherits neither).
    """

    personalised: bool = True
    starts_everywhere: ClassVar[bool] = False
    publishes_last_round: ClassVar[bool] = False
    plain_average: ClassVar[bool] = False
    exact: ClassVar[bool] = False
    compiled_form: ClassVar[str | None] = None
    pure: ClassVar[bool] = False

    @abstractmethod
    def start(self, zeros: Array) -> ServerState:
        """Return the state before the first round; `zeros` has the shape of the models, which are its "model"."""

    @abstractmethod
    def publish(self, state: ServerState, aggregate: Array, neighbourhood: Neighbourhood) -> tuple[ServerState, Array]:
        """Return the state after aggregation, and what neighbours receive.

        `aggregate` is the mean of the clients' contributions, or the current model where no client took part. Of the
        neighbourhood only `share` is known yet.
        """

    @abstractmethod
    def combine(self, state: ServerState, published: Array, neighbourhood: Neighbourhood, tau: float) -> ServerState:
        """Return the state after the round, from what the neighbourhood published; `tau` weighs other clusters."""


@dataclass(frozen=True)
class NeighbourhoodAverage(ServerRule):
    """Average the aggregates of the neighbourhood, then learn from other clusters."""

    personalised: bool = True

    plain_average: ClassVar[bool] = True
    compiled_form: ClassVar[str | None] = "average"
    pure: ClassVar[bool] = True

    def start(self, zeros: Array) -> ServerState:
        """Servers start without models; zeros stand in for unknown ones."""
        return {"model": zeros}

    def publish(self, state: ServerState, aggregate: Array, neighbourhood: Neighbourhood) -> tuple[ServerState, Array]:
        """Neighbours receive the aggregate, or the current model where no client took part."""
        return state, aggregate

    def combine(self, state: ServerState, published: Array, neighbourhood: Neighbourhood, tau: float) -> ServerState:
        """Inter-server aggregation, then inter-cluster learning."""
        averaged = eq.inter_server_aggregation(published, neighbourhood.average)
        return {"model": _learn_across_clusters(averaged, neighbourhood, tau) if self.personalised else averaged}


@dataclass(frozen=True)
class ExactDiffusion(ServerRule):
    """Average with the exact-diffusion correction, which removes the bias of the plain average.

    Every server in a component with clients of q starts at 0 and relays; leaving one out would bias all rounds.
    """

    personalised: bool = True

    starts_everywhere: ClassVar[bool] = True
    exact: ClassVar[bool] = True
    pure: ClassVar[bool] = True

    def start(self, zeros: Array) -> ServerState:
        """A zero model and a zero step."""
        return {"model": zeros, "step": zeros}

    def publish(self, state: ServerState, aggregate: Array, neighbourhood: Neighbourhood) -> tuple[ServerState, Array]:
        """The corrected step t + w − t_previous; w − t_previous is 0 before the first round."""
        step = eq.exact_local_step(state["model"], aggregate, neighbourhood.share)
        return {**state, "step": step}, eq.exact_correction(step, state["model"], state["step"])

    def combine(self, state: ServerState, published: Array, neighbourhood: Neighbourhood, tau: float) -> ServerState:
        """Mix the corrected steps, then learn from other clusters."""
        averaged = eq.inter_server_aggregation(published, neighbourhood.average)
        mixed = eq.exact_mixing_average(published, averaged)
        return {**state, "model": _learn_across_clusters(mixed, neighbourhood, tau) if self.personalised else mixed}


@dataclass(frozen=True)
class OneStepUpdate(ServerRule):
    """The one-step ADMM update with the server dual ψ, from the neighbours' models of the previous round."""

    rho: float
    personalised: bool = True

    publishes_last_round: ClassVar[bool] = True
    pure: ClassVar[bool] = True

    def start(self, zeros: Array) -> ServerState:
        """No model, no dual, no aggregate."""
        return {"model": zeros, "dual": zeros, "aggregate": zeros}

    def publish(self, state: ServerState, aggregate: Array, neighbourhood: Neighbourhood) -> tuple[ServerState, Array]:
        """Neighbours receive the model of the previous round; the aggregate is kept for `combine`."""
        return {**state, "aggregate": aggregate}, state["model"]

    def combine(self, state: ServerState, published: Array, neighbourhood: Neighbourhood, tau: float) -> ServerState:
        """Update ψ of the previous round from the same messages, then the model."""
        neighbours = neighbourhood.neighbour_sum(published)
        dual = eq.server_dual_update(state["dual"], published, neighbours, neighbourhood.degree, self.rho)
        others, learning = neighbourhood.other_clusters_nearby(published)
        updated = eq.server_primal(
            state["aggregate"], dual, published, neighbours, neighbourhood.degree, others, tau * learning, self.rho
        )
        model = eq.adopt_from_neighbours(updated, neighbourhood.neighbour_mean(published), neighbourhood.adopting)
        return {**state, "dual": dual, "model": model}


def _learn_across_clusters(mixed: Array, neighbourhood: Neighbourhood, tau: float) -> Array:
    if isinstance(tau, float) and tau == 0:
        return mixed
    others, learning = neighbourhood.other_clusters(mixed)
    return eq.inter_cluster_learning(mixed, others, tau * learning)
