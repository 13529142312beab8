"""What a server does in a round: publish to its neighbours, then combine what the neighbourhood published.

Arrays have one row per (server, cluster). A rule sees the network through a `Neighbourhood`; servers that do not have a
model of a cluster take no part in its sums.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from pgfl import equations as eq
from pgfl.arrays import Array
from pgfl.errors import ConfigError

ServerState = dict[str, Array]


class Halves(NamedTuple):
    """The contributions of a pair's participants in two disjoint halves, the same in all rounds.

    Where single contributions are seen, a half is every other client of the pair; where only sums are, a whole server
    is in one half. `first` and `second` sum to the pair's aggregate: each is its half's mean times its `weights`, the
    shares of the participants (P, 2), which are 0 where nobody takes part.
    """

    first: Array
    second: Array
    weights: Array


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

    @property
    def halves(self) -> Halves | None:
        """What the two halves of each pair's participants contributed, for a rule that `compares_halves`."""
        ...

    @property
    def learning(self) -> Array:
        """1 where s has q and q does not rest; a column."""
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

    def at_servers(self, values: Array) -> Array:
        """Rows by server and cluster, (S, Q, …), zeros where a server can have no model of a cluster."""
        ...

    def at_pairs(self, values: Array) -> Array:
        """The rows of pairs again, from those by server and cluster."""
        ...


def half_of_server(name: str) -> int:
    """Return the half of the servers that one belongs to, where only sums are seen: everybody knows it from its name.

    >>> [half_of_server(f"server-{number}") for number in range(4)]
    [0, 1, 0, 1]
    """
    return sum(name.encode()) % 2


class ServerRule(ABC):
    """The server's half of an algorithm.

    `personalised`: a server keeps one model per cluster; otherwise one for all clients. `starts_everywhere`: all
    servers have a model before the first round. `publishes_last_round`: neighbours receive the model of the previous
    round instead of this round's estimate. `plain_average`: a round multiplies differences between servers by the
    mixing weights and nothing else. `exact`: it removes the bias of that average, where τ = 0 and all clients take
    part. `compares_halves`: it looks at two halves of the contributions. `compiled_form` names the kernels that
    compute the same; `pure` methods are functions of arrays alone, which JAX may trace (a subclass inherits neither).
    """

    personalised: bool = True
    starts_everywhere: ClassVar[bool] = False
    publishes_last_round: ClassVar[bool] = False
    plain_average: ClassVar[bool] = False
    exact: ClassVar[bool] = False
    compares_halves: ClassVar[bool] = False
    compiled_form: ClassVar[str | None] = None
    pure: ClassVar[bool] = False

    @property
    def reach_of_estimates(self) -> float:
        """How much further than a contribution the estimate may be that is published with it."""
        return 1.0

    def published_length(self, length: int) -> int:
        """Return how many numbers a published row has, for models of this length."""
        return length

    def shares_of_steps(self, neighbourhood: Neighbourhood) -> Array:
        """Return how much each server's step counts; known before publishing."""
        return 1.0

    def slowed(self, neighbourhood: Neighbourhood) -> Array:
        """Return the part of its aggregate's step that a server takes in a round."""
        return 1.0

    def settled_shares(self, state: ServerState, neighbourhood: Neighbourhood) -> Array | None:
        """Return what clusters have in each other's models; None for a rule that does not learn it."""
        return None

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


class CorrectedRule(ServerRule):
    """A rule whose correction remembers the server's own step; what clusters learn must be part of that step."""

    @abstractmethod
    def local_step(self, state: ServerState, aggregate: Array, neighbourhood: Neighbourhood) -> Array:
        """Return the server's own step."""

    @abstractmethod
    def publish_step(self, state: ServerState, step: Array) -> tuple[ServerState, Array]:
        """Return what `publish` does, given the server's own step."""

    def publish(self, state: ServerState, aggregate: Array, neighbourhood: Neighbourhood) -> tuple[ServerState, Array]:
        """Take the step, then correct it."""
        return self.publish_step(state, self.local_step(state, aggregate, neighbourhood))


@dataclass(frozen=True)
class ExactDiffusion(CorrectedRule):
    """Average with the exact-diffusion correction, which removes the bias of the plain average.

    Every server in a component with clients of q starts at 0 and relays; leaving one out would bias all rounds.
    """

    personalised: bool = True

    starts_everywhere: ClassVar[bool] = True
    exact: ClassVar[bool] = True
    pure: ClassVar[bool] = True

    def shares_of_steps(self, neighbourhood: Neighbourhood) -> Array:
        """c_s."""
        return neighbourhood.share

    def start(self, zeros: Array) -> ServerState:
        """A zero model and a zero step."""
        return {"model": zeros, "step": zeros}

    def local_step(self, state: ServerState, aggregate: Array, neighbourhood: Neighbourhood) -> Array:
        """t = w + c_s (aggregate − w)."""
        return eq.exact_local_step(state["model"], aggregate, neighbourhood.share)

    def publish_step(self, state: ServerState, step: Array) -> tuple[ServerState, Array]:
        """The corrected step t + w − t_previous; w − t_previous is 0 before the first round."""
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

    def slowed(self, neighbourhood: Neighbourhood) -> Array:
        """1/(1 + ρ|𝒩_s⁻|): the update holds on to the models of the round before."""
        return 1.0 / (1.0 + self.rho * neighbourhood.degree)

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


MEMORY = 2.0  # of the lasting averages, in memories of the models themselves
LEAST_ROUNDS = 8.0  # that are remembered: with fewer, what far servers know would be forgotten on its way
LEAST_MASS = 1e-6  # of a half, below which it has contributed next to nothing
MASSES = 5  # of the four averages, and that of all rounds
COLUMNS = MASSES + 1  # and how far uphill it was to what other clusters would have taught


class _Kept(NamedTuple):
    """What servers remember, (S, Q, …): two halves' estimates, recent and lasting, masses, and 1 where all is known."""

    recent: tuple[Array, Array]
    lasting: tuple[Array, Array]
    masses: list[Array]
    active: Array


@dataclass(frozen=True)
class LearnedWeights(ServerRule):
    """Another rule, after which clusters learn from each other with weights that are estimated as rounds go on.

    Whatever is computed from released models costs no privacy. A server remembers where the gradients of two halves of
    the clients lead, once for as long as models remember a step and once twice as long, and publishes that with
    its models, so that the averages are those of the whole network. How far clusters are apart and how well they are
    known follows from the halves: see `equations.cluster_weights`. `curvature` is the mean curvature of the losses.

    Where releases are `noised`, a step towards other clusters must go downhill for the gradients that come after it:
    noise is shared to average it, but models that are far from their optima must not be pulled together on their way.
    """

    base: ServerRule
    rho: float
    curvature: float | None
    noised: bool = False

    compares_halves: ClassVar[bool] = True

    @property
    def starts_everywhere(self) -> bool:  # type: ignore[override]
        """As the other rule."""
        return self.base.starts_everywhere

    @property
    def publishes_last_round(self) -> bool:  # type: ignore[override]
        """As the other rule."""
        return self.base.publishes_last_round

    @property
    def plain_average(self) -> bool:  # type: ignore[override]
        """As the other rule."""
        return self.base.plain_average

    @property
    def exact(self) -> bool:  # type: ignore[override]
        """As the other rule."""
        return self.base.exact

    @property
    def kept(self) -> tuple[float, float]:
        """What the recent and the lasting averages keep in a round: models keep ρ/(ρ + h̄) of an error."""
        if self.curvature is None:
            raise ConfigError('algorithm.tau = "auto" is replaced when training starts; use train().')
        rounds = max(self.rho / self.curvature, LEAST_ROUNDS)
        return rounds / (1.0 + rounds), MEMORY * rounds / (1.0 + MEMORY * rounds)

    @property
    def reach_of_estimates(self) -> float:
        """ρ/h̄, at least 1."""
        return max(1.0, self.rho / self.curvature) if self.curvature else 1.0

    def published_length(self, length: int) -> int:
        """A model, four averages, their masses and how far uphill it was."""
        return self.base.published_length(length) + 4 * length + COLUMNS

    def start(self, zeros: Array) -> ServerState:
        """The other rule's state, and empty averages."""
        xp = zeros.__array_namespace__()
        blank = xp.zeros((*zeros.shape[:-1], 4 * zeros.shape[-1] + COLUMNS), dtype=zeros.dtype)
        return {**self.base.start(zeros), "memory": blank}

    def publish(self, state: ServerState, aggregate: Array, neighbourhood: Neighbourhood) -> tuple[ServerState, Array]:
        """What the other rule publishes, and the averages with this round's estimates."""
        xp, halves, (recent, lasting) = aggregate.__array_namespace__(), neighbourhood.halves, self.kept
        assert halves is not None and self.curvature is not None
        share = self.base.shares_of_steps(neighbourhood)
        weights = [share * halves.weights[..., half : half + 1] for half in (0, 1)]
        given = [
            eq.half_estimate(state["model"], share * half, weight, self.rho, self.curvature)
            for half, weight in zip((halves.first, halves.second), weights, strict=True)
        ]
        memory, length, ones = state["memory"], aggregate.shape[-1], 0.0 * weights[0] + 1.0
        rose = 0.0 * ones
        if self.noised:
            steps = neighbourhood.at_pairs(self._suggested(state["model"], memory, neighbourhood))
            both, whole = share * (halves.first + halves.second), weights[0] + weights[1]
            rose = eq.uphill(state["model"], both, whole, steps, self.rho, self.curvature)
        parts = [
            eq.remembered(memory[..., : 2 * length], xp.concat(given, axis=-1), recent),
            eq.remembered(memory[..., 2 * length : 4 * length], xp.concat(given, axis=-1), lasting),
            eq.remembered(memory[..., 4 * length : -4], xp.concat(weights, axis=-1), recent),
            eq.remembered(memory[..., -4:-2], xp.concat(weights, axis=-1), lasting),
            eq.remembered(memory[..., -2:], xp.concat([ones, rose], axis=-1), recent),
        ]
        rest = {name: values for name, values in state.items() if name != "memory"}
        if isinstance(self.base, CorrectedRule):  # learning after the correction would add up from round to round
            step = self._learned(self.base.local_step(rest, aggregate, neighbourhood), memory, neighbourhood)
            rest, published = self.base.publish_step(rest, step)
        else:
            rest, published = self.base.publish(rest, aggregate, neighbourhood)
        return {**rest, "memory": memory}, xp.concat([published, *parts], axis=-1)

    def combine(self, state: ServerState, published: Array, neighbourhood: Neighbourhood, tau: float) -> ServerState:
        """The other rule's models, mixed with the weights that the averages of the neighbourhood suggest."""
        length = state["model"].shape[-1]
        rest = {name: values for name, values in state.items() if name != "memory"}
        rest = self.base.combine(rest, published[..., :length] + 0.0, neighbourhood, 0.0)
        memory = neighbourhood.average(published[..., length:] + 0.0)
        if not isinstance(self.base, CorrectedRule):
            rest["model"] = self._learned(rest["model"], memory, neighbourhood)
        return {**rest, "memory": memory}

    def _learned(self, models: Array, memory: Array, neighbourhood: Neighbourhood) -> Array:
        return neighbourhood.at_pairs(neighbourhood.at_servers(models) + self._steps(models, memory, neighbourhood))

    def _steps(self, models: Array, memory: Array, neighbourhood: Neighbourhood) -> Array:
        """The steps towards other clusters that are taken, (S, Q, d)."""
        steps = self._suggested(models, memory, neighbourhood)
        return self._share(steps, memory, neighbourhood)[..., None, None] * steps if self.noised else steps

    def _suggested(self, models: Array, memory: Array, neighbourhood: Neighbourhood) -> Array:
        """The steps that the weights of a round lead to."""
        held = neighbourhood.at_servers(models)
        return eq.learn_by_weights(self._weights(memory, neighbourhood), held) - held

    def _share(self, steps: Array, memory: Array, neighbourhood: Neighbourhood) -> Array:
        """How much of the suggested steps servers take, (S,)."""
        kept = self._kept_of(memory, neighbourhood)
        rose = neighbourhood.at_servers(memory)[..., -1] / (kept.masses[0] + kept.masses[1])
        variance = eq.variance_of_mean(*kept.recent, kept.masses[0], kept.masses[1])
        return eq.downhill_share(rose * kept.active, steps, variance * kept.active)

    def settled_shares(self, state: ServerState, neighbourhood: Neighbourhood) -> Array:
        """What each cluster's own data have in every model once rounds have settled: (I + R/h̄)⁻¹, (S, Q, Q)."""
        memory = state["memory"]
        weights = self._weights(memory, neighbourhood, settled=True)
        if not self.noised:
            return weights
        share = self._share(self._suggested(state["model"], memory, neighbourhood), memory, neighbourhood)
        eye = weights.__array_namespace__().eye(weights.shape[-1], dtype=weights.dtype)
        return eye + share[..., None, None] * (weights - eye)

    def _kept_of(self, memory: Array, neighbourhood: Neighbourhood) -> _Kept:
        length = (memory.shape[-1] - COLUMNS) // 4
        kept, learning = neighbourhood.at_servers(memory), neighbourhood.at_servers(neighbourhood.learning)[..., 0]
        masses = [kept[..., 4 * length + place] for place in range(MASSES)]
        xp = kept.__array_namespace__()
        seen = learning > 0
        for mass in masses[:4]:
            seen = seen & (mass > LEAST_MASS)
        active = xp.astype(seen, kept.dtype)
        masses = [mass * active + (1.0 - active) for mass in masses]
        estimates = [
            kept[..., place * length : (place + 1) * length] / mass[..., None] for place, mass in enumerate(masses[:4])
        ]
        return _Kept((estimates[0], estimates[1]), (estimates[2], estimates[3]), masses, active)

    def _weights(self, memory: Array, neighbourhood: Neighbourhood, *, settled: bool = False) -> Array:
        """The weights between the clusters of every server, (S, Q, Q): of one round or, `settled`, of all."""
        assert self.curvature is not None
        recent, lasting = self.kept
        slowed = self.base.slowed(neighbourhood) if not settled else 1.0
        step = neighbourhood.at_servers(slowed + 0.0 * memory[..., -1:])[..., 0] / self.rho
        kept = self._kept_of(memory, neighbourhood)
        masses = kept.masses
        ratio = (1.0 - lasting) / (1.0 + lasting) * (1.0 + recent) / (1.0 - recent)
        taken = step * (masses[0] + masses[1]) / masses[4] if not settled else 0.0 * step + 1.0 / self.curvature
        return eq.cluster_weights(
            kept.recent,
            kept.lasting,
            (masses[0], masses[1]),
            (masses[2], masses[3]),
            kept.active,
            self.curvature,
            taken,
            ratio,
        )
