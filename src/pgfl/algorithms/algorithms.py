"""The algorithms: each is a client rule and a server rule, whose methods the simulator and the roles call alike.

One round:

1. client: `step` computes a model and releases it; its server averages the clients' `contribution`s.
2. server: `publish` turns that aggregate into what neighbours receive.
3. server: `combine` turns what the neighbourhood published into the new models.
4. client: `settle` updates the dual with the model it gets back.

The parameter ρ of an algorithm, or FedAvg's step: a number, or "auto" until training has chosen one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final, Literal, cast

from pgfl.algorithms.client_rules import (
    CLIENT_RULES,
    ClientRule,
    ClientStep,
    GradientSteps,
    Problem,
    Release,
)
from pgfl.algorithms.schedules import Adaptive, Decaying, Tau, check_tau
from pgfl.algorithms.server_rules import (
    ExactDiffusion,
    LearnedWeights,
    Neighbourhood,
    NeighbourhoodAverage,
    OneStepUpdate,
    ServerRule,
    ServerState,
)
from pgfl.errors import ConfigError
from pgfl.federation.graphs import Mixing
from pgfl.registry import Registry, config_keys, setting

AUTO: Final = "auto"
Counted = Literal["clients", "records"]
CLIENTS: Final = "clients"
RECORDS: Final = "records"
DEFAULT: Final = 5.0
DEFAULT_STEP: Final = 0.005


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


class StepSize:
    """The field `step_size` of FedAvg: "auto" or a number can be stated, and code that runs rounds reads a number."""

    def __get__(self, instance: object | None, owner: type) -> float:
        return DEFAULT_STEP if instance is None else vars(instance)["step_size"]

    def __set__(self, instance: object, value: float | Literal["auto"]) -> None:
        if isinstance(value, str) and value != AUTO:
            raise ConfigError(f'algorithm.step_size must be a number above 0 or "auto"; got {value!r}.')
        vars(instance)["step_size"] = value


class InterClusterLearning:
    """The field `tau` of an algorithm: a number, a schedule or "auto" can be stated, which becomes an `Adaptive`."""

    def __get__(self, instance: object | None, owner: type) -> Tau:
        return 0.0 if instance is None else vars(instance)["tau"]

    def __set__(self, instance: object, value: Tau | Literal["auto"]) -> None:
        vars(instance)["tau"] = Adaptive() if isinstance(value, str) and value == AUTO else value


def is_automatic(algorithm: object) -> bool:
    """Whether ρ has yet to be chosen."""
    return bool(vars(algorithm).get("rho") == AUTO)


def steps_automatically(algorithm: object) -> bool:
    """Whether the step of FedAvg has yet to be chosen."""
    return bool(vars(algorithm).get("step_size") == AUTO)


def counts_records(algorithm: object) -> bool:
    """Whether `count` = "records" has yet to become a number, `full_records`."""
    return bool(vars(algorithm).get("count") == RECORDS)


def check_chosen(algorithm: object) -> None:
    """Raise `ConfigError` if ρ, a step or `full_records` have yet to be chosen."""
    for key in ("rho", "step_size"):
        if vars(algorithm).get(key) == AUTO:
            raise ConfigError(
                f'algorithm.{key} = "auto" is replaced by a number when training starts; give a number here.'
            )
    if counts_records(algorithm):
        raise ConfigError(
            'algorithm.count = "records" is replaced by a number when training starts; give full_records here: the '
            "largest number of records of a client."
        )


def stated_rho(algorithm: object) -> float | None:
    """ρ of an algorithm that has this parameter; None for the others."""
    check_chosen(algorithm)
    rho = vars(algorithm).get("rho")
    return None if rho is None else float(rho)


def stated_step(algorithm: object) -> float | None:
    """The step of an algorithm that has this parameter; None for the others."""
    check_chosen(algorithm)
    step = vars(algorithm).get("step_size")
    return None if step is None else float(step)


__all__ = [
    "ALGORITHMS",
    "PGFL",
    "Algorithm",
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


class Algorithm(ABC):
    """A client rule and a server rule. A subclass names its parameters and returns the `rules` they stand for.

    The fields of a dataclass are keys of [algorithm]; `mixing` is that of [graph], unless `needs_mixing` names the only
    weights it works with.
    """

    kind: ClassVar[str] = "custom"
    needs_mixing: ClassVar[Mixing | None] = None

    @abstractmethod
    def rules(self) -> tuple[ClientRule, ServerRule]:
        """Return the two rules; raise `ConfigError` if a parameter is invalid."""

    def __post_init__(self) -> None:
        counted = vars(self).get("count", CLIENTS)
        if counted not in (CLIENTS, RECORDS):
            raise ConfigError(f'algorithm.count must be "clients" or "records"; got {counted!r}.')
        if counted == RECORDS and vars(self).get("full_records", 1) != 1:
            raise ConfigError('algorithm.full_records follows from count = "records"; leave one of them out.')
        if not (is_automatic(self) or steps_automatically(self)):
            self.rules()
        if not (callable(self.tau) or isinstance(self.tau, Adaptive)):
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


@dataclass(frozen=True)
class Pair(Algorithm):
    """Any client rule with any server rule.

    >>> Pair(GradientSteps(), ExactDiffusion(), mixing="metropolis").client_rule.has_dual
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

    Only `release` makes it private: with the identity it is Algorithm 1, with noise Algorithm 2. `client` names a
    client rule, or is one: with "gradient" a client takes one gradient step instead of solving its problem: that is
    cheaper, and loses less to noise. `full_records` is the number of records from which on a client counts in full;
    with `count` = "records" instead of "clients" it is that of the largest client, so that all records count alike.
    With `tau` "auto" the weights between clusters are estimated as rounds go on (see `LearnedWeights`).
    """

    rho: Rho = Rho()
    tau: InterClusterLearning = InterClusterLearning()
    mixing: Mixing = "uniform"
    client: str | ClientRule = "admm"
    full_records: int = setting(1, ge=1)
    count: Counted = CLIENTS

    kind: ClassVar[str] = "pgfl"

    def rules(self) -> tuple[ClientRule, ServerRule]:
        """The client's step, and what the servers of this algorithm do."""
        server = self.server()
        if isinstance(self.tau, Adaptive):
            server = LearnedWeights(server, self.rho, self.tau.curvature, self.tau.noised)
        return self._client(), server

    def server(self) -> ServerRule:
        """The neighbourhood's average."""
        return NeighbourhoodAverage()

    def _client(self) -> ClientRule:
        if not isinstance(self.client, str):
            if self.client.has_rho and self.client.rho != self.rho:
                raise ConfigError(f"The client rule has rho = {self.client.rho:g}; give the algorithm the same.")
            return self.client
        kind = CLIENT_RULES[self.client]
        keys = config_keys(kind)
        if self.full_records != 1 and "full_records" not in keys:
            raise ConfigError(f'The client rule "{self.client}" has no full_records; leave it out.')
        return kind(**{name: getattr(self, name) for name in ("rho", "full_records") if name in keys})


@dataclass(frozen=True)
class ExactMixing(PGFL):
    """PGFL with the exact-diffusion correction: at τ = 0, if all clients take part, it reaches the optimum."""

    mixing: Mixing = "metropolis"

    kind: ClassVar[str] = "pgfl-exact"
    needs_mixing: ClassVar[Mixing | None] = "metropolis"

    def server(self) -> ServerRule:
        """Exact diffusion."""
        return ExactDiffusion()


@dataclass(frozen=True)
class OneStep(PGFL):
    """The one-step ADMM server update with the server dual ψ, from the neighbours' models of the previous round."""

    kind: ClassVar[str] = "pgfl-onestep"

    def server(self) -> ServerRule:
        """The one-step update with the same ρ."""
        return OneStepUpdate(cast("float", self.rho))


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """FedAvg on the server graph: one model for all clients, local gradient steps, averages of averages.

    The mean is over participants, not weighted by D_k, because the paper's risk weighs clients, not samples; `count` =
    "records" weighs samples. `step_size` "auto" chooses the step as ρ is chosen for PGFL.
    """

    step_size: StepSize = StepSize()
    local_steps: int = setting(5, ge=1)
    mixing: Mixing = "uniform"
    full_records: int = setting(1, ge=1)
    count: Counted = CLIENTS

    kind: ClassVar[str] = "fedavg"

    def rules(self) -> tuple[ClientRule, ServerRule]:
        """Gradient steps, and the neighbourhood's average of one model."""
        return GradientSteps(self.step_size, self.local_steps, self.full_records), NeighbourhoodAverage(
            personalised=False
        )


ALGORITHMS = Registry[type[Algorithm]](
    "algorithms", "algorithm", {cls.kind: cls for cls in (PGFL, ExactMixing, OneStep, FedAvg)}
)


def swap_warning(tau: Tau, clusters: int) -> str | None:
    """Above τ = (Q − 1)/Q a cluster weighs the others more than itself: clusters swap."""
    start = tau.start if isinstance(tau, Decaying) else tau
    if callable(start) or isinstance(start, Adaptive) or clusters < 2 or start <= (clusters - 1) / clusters:
        return None
    return (
        f"With {clusters} clusters, tau = {start} is above {(clusters - 1) / clusters:.3g}: every cluster weighs each "
        "other one more than itself, so clusters swap models; lower tau."
    )
