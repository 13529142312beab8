"""The algorithms: each is a client rule and a server rule, whose steps the simulator and the roles call alike.

One round:

1. client: `client_step` computes a model and releases it; its server averages the clients' `contribution`s.
2. server: `publish` turns that aggregate into what neighbours receive.
3. server: `combine` turns what the neighbourhood published into the new models.
4. client: `settle` updates the dual with the model it gets back.

The parameter ρ of an algorithm: a number, or "auto" until training has chosen one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final, Literal, get_args

from pgfl.algorithms.client_rules import (
    ClientRule,
    ClientStep,
    GradientSteps,
    LinearisedStep,
    Problem,
    ProximalStep,
    Release,
)
from pgfl.algorithms.schedules import Decaying, Tau, check_tau
from pgfl.algorithms.server_rules import (
    ExactDiffusion,
    Neighbourhood,
    NeighbourhoodAverage,
    OneStepUpdate,
    ServerRule,
    ServerState,
)
from pgfl.arrays import Array
from pgfl.errors import ConfigError
from pgfl.federation.graphs import Mixing
from pgfl.suggestions import nearest

AUTO: Final = "auto"
DEFAULT: Final = 5.0


class Rho:
    """The field `rho` of an algorithm: "auto" or a number can be stated, and code that runs rounds reads a number.

    `train` chooses the number before anything reads it, from the curvature of the data or, under privacy, from public
    facts. Until then the field is the text "auto" (see `is_automatic`).
    """

    def __get__(self, instance: object | None, owner: type) -> float:
        return DEFAULT if instance is None else vars(instance)["rho"]

    def __set__(self, instance: object, value: float | Literal["auto"]) -> None:
        if isinstance(value, str) and value != AUTO:
            raise ConfigError(f'algorithm.rho must be a number above 0 or "auto"; got {value!r}.')
        vars(instance)["rho"] = value


def is_automatic(algorithm: object) -> bool:
    """Whether ρ has yet to be chosen."""
    return bool(vars(algorithm).get("rho") == AUTO)


def check_chosen(algorithm: object) -> None:
    """Raise `ConfigError` if ρ has yet to be chosen."""
    if is_automatic(algorithm):
        raise ConfigError('algorithm.rho = "auto" is replaced by a number when training starts; give a number here.')


def stated_rho(algorithm: object) -> float | None:
    """ρ of an algorithm that has this parameter; None for the others."""
    check_chosen(algorithm)
    rho = vars(algorithm).get("rho")
    return None if rho is None else float(rho)


__all__ = [
    "KINDS",
    "PGFL",
    "Algorithm",
    "ClientKind",
    "ClientStep",
    "ExactMixing",
    "FedAvg",
    "Neighbourhood",
    "OneStep",
    "Pair",
    "Problem",
    "Release",
    "ServerState",
    "swap_warning",
]

ClientKind = Literal["admm", "gradient"]
"""How a client of PGFL uses its data: it solves its primal problem, or takes one gradient step."""


def _client_rule(client: ClientKind, rho: float, full_records: int) -> ClientRule:
    known = get_args(ClientKind)
    if client not in known:
        raise ConfigError(f'algorithm.client must be "admm" or "gradient"; got {client!r}{nearest(client, known)}.')
    if client == "gradient":
        return LinearisedStep(rho, full_records)
    if full_records != 1:
        raise ConfigError('full_records is for gradient steps; set client = "gradient" with it, or full_records = 1.')
    return ProximalStep(rho)


class Algorithm(ABC):
    """A client rule and a server rule. A subclass names its parameters and returns the `rules` they stand for."""

    kind: ClassVar[str] = "custom"

    @abstractmethod
    def rules(self) -> tuple[ClientRule, ServerRule]:
        """The two rules; raises `ConfigError` if a parameter is invalid."""

    def __post_init__(self) -> None:
        if not is_automatic(self):
            self.rules()
        if not callable(self.tau):
            check_tau(self.tau)

    @cached_property
    def client_rule(self) -> ClientRule:
        """What its clients do."""
        check_chosen(self)
        return self.rules()[0]

    @cached_property
    def server_rule(self) -> ServerRule:
        """What its servers do."""
        check_chosen(self)
        return self.rules()[1]

    @property
    def rho(self) -> float:
        """ρ of the clients' primal problems; 1 where there are none."""
        return self.client_rule.rho

    @property
    def tau(self) -> Tau:
        """The weight of other clusters: none, unless the algorithm has such a parameter."""
        return 0.0

    @property
    def mixing(self) -> Mixing:
        """The weights of the neighbourhood's average."""
        return "uniform"

    @property
    def has_dual(self) -> bool:
        """Whether clients keep a dual."""
        return self.client_rule.has_dual

    @property
    def personalised(self) -> bool:
        """Whether each cluster has its own model."""
        return self.server_rule.personalised

    @property
    def starts_everywhere(self) -> bool:
        """Whether all servers have a model before the first round."""
        return self.server_rule.starts_everywhere

    @property
    def publishes_last_round(self) -> bool:
        """Whether neighbours receive the model of the previous round."""
        return self.server_rule.publishes_last_round

    def client_step(self, problem: Problem, server_model: Array, dual: Array, release: Release) -> ClientStep:
        """Compute the clients' models and release them."""
        return self.client_rule.step(problem, server_model, dual, release)

    def reach(self, modulus: Array) -> Array:
        """How far a client's model moves per unit of change in its gradient."""
        return self.client_rule.reach(modulus)

    def contribution(self, released: Array, dual: Array) -> Array:
        """What the server averages."""
        return self.client_rule.contribution(released, dual)

    def settle(self, dual: Array, server_model: Array, released: Array) -> Array:
        """The dual after the round, from released quantities only."""
        return self.client_rule.settle(dual, server_model, released)

    def start(self, zeros: Array) -> ServerState:
        """The servers' state before the first round."""
        return self.server_rule.start(zeros)

    def publish(self, state: ServerState, aggregate: Array, neighbourhood: Neighbourhood) -> tuple[ServerState, Array]:
        """The servers' state after aggregation, and what neighbours receive."""
        return self.server_rule.publish(state, aggregate, neighbourhood)

    def combine(self, state: ServerState, published: Array, neighbourhood: Neighbourhood, tau: float) -> ServerState:
        """The servers' state after the round, from what the neighbourhood published."""
        return self.server_rule.combine(state, published, neighbourhood, tau)


@dataclass(frozen=True)
class Pair(Algorithm):
    """Any client rule with any server rule.

    >>> Pair(GradientSteps(), ExactDiffusion(), mixing="metropolis").has_dual
    False
    """

    client: ClientRule
    server: ServerRule
    tau: Tau = 0.0
    mixing: Mixing = "uniform"

    def rules(self) -> tuple[ClientRule, ServerRule]:
        """The two that were given."""
        return self.client, self.server


@dataclass(frozen=True)
class PGFL(Algorithm):
    """Algorithms 1 and 2: aggregate, average with neighbours, learn from other clusters.

    Only `release` makes it private: with the identity it is Algorithm 1, with noise Algorithm 2. With
    `client="gradient"` a client takes one gradient step instead of solving its problem: that is cheaper, and loses less
    to noise. `full_records` is then the number of records from which on a client's step counts in full.
    """

    rho: Rho = Rho()
    tau: Tau = 0.0
    mixing: Mixing = "uniform"
    client: ClientKind = "admm"
    full_records: int = 1

    kind: ClassVar[str] = "pgfl"

    def rules(self) -> tuple[ClientRule, ServerRule]:
        """The client's step, and the neighbourhood's average."""
        return _client_rule(self.client, self.rho, self.full_records), NeighbourhoodAverage()


@dataclass(frozen=True)
class ExactMixing(Algorithm):
    """PGFL with the exact-diffusion correction: at τ = 0, if all clients take part, it reaches the optimum."""

    rho: Rho = Rho()
    tau: Tau = 0.0
    mixing: Mixing = "metropolis"
    client: ClientKind = "admm"
    full_records: int = 1

    kind: ClassVar[str] = "pgfl-exact"

    def rules(self) -> tuple[ClientRule, ServerRule]:
        """The client's step, and exact diffusion."""
        return _client_rule(self.client, self.rho, self.full_records), ExactDiffusion()


@dataclass(frozen=True)
class OneStep(Algorithm):
    """The one-step ADMM server update with the server dual ψ, from the neighbours' models of the previous round."""

    rho: Rho = Rho()
    tau: Tau = 0.0
    mixing: Mixing = "uniform"
    client: ClientKind = "admm"
    full_records: int = 1

    kind: ClassVar[str] = "pgfl-onestep"

    def rules(self) -> tuple[ClientRule, ServerRule]:
        """The client's step, and the one-step update with the same ρ."""
        return _client_rule(self.client, self.rho, self.full_records), OneStepUpdate(self.rho)


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """FedAvg on the server graph: one model for all clients, local gradient steps, averages of averages.

    The mean is over participants, not weighted by D_k, because the paper's risk weighs clients, not samples.
    """

    step: float = 0.005
    local_steps: int = 5
    mixing: Mixing = "uniform"

    kind: ClassVar[str] = "fedavg"

    def rules(self) -> tuple[ClientRule, ServerRule]:
        """Gradient steps, and the neighbourhood's average of one model."""
        return GradientSteps(self.step, self.local_steps), NeighbourhoodAverage(personalised=False)


KINDS: dict[str, type[Algorithm]] = {cls.kind: cls for cls in (PGFL, ExactMixing, OneStep, FedAvg)}


def swap_warning(tau: Tau, clusters: int) -> str | None:
    """Above τ = (Q − 1)/Q a cluster weighs the others more than itself: clusters swap."""
    start = tau.start if isinstance(tau, Decaying) else tau
    if callable(start) or clusters < 2 or start <= (clusters - 1) / clusters:
        return None
    return (
        f"With {clusters} clusters, tau = {start} is above {(clusters - 1) / clusters:.3g}: every cluster weighs each "
        "other one more than itself, so clusters swap models; lower tau."
    )
