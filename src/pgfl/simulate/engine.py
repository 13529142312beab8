"""The batched engine: a round of all clients of all runs at once.

The arithmetic is the algorithms'; this file moves arrays, asks who takes part, and keeps the account of privacy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Protocol, TypeVar

import numpy as np

from pgfl import equations as eq
from pgfl import metrics
from pgfl.algorithms.algorithms import Algorithm, ServerState
from pgfl.algorithms.schedules import tau_at
from pgfl.algorithms.server_rules import Halves
from pgfl.arrays import AnyFloats, Array, Bools, DTypeLike, Floats, Ints, Linear, Namespace, keep_rows, pick, put
from pgfl.errors import Diverged, SolverError
from pgfl.objectives.interface import norm
from pgfl.simulate.communicator import SINGLE_PROCESS, Communicator
from pgfl.simulate.layout import Layout
from pgfl.simulate.neighbourhoods import NeighbourhoodOfPairs, Network
from pgfl.simulate.problems import Block, BlockProblem, mean_of_pairs

DIVERGED = 1e12
CHECK_EVERY = 8
CLIENTS_AT_A_TIME = 2**12  # whose vectors are made or copied to be measured
T = TypeVar("T")


class Draw(Protocol):
    """Who takes part, as `core.schedules.Scheduler` decides it."""

    def draw(self, round: int) -> Ints:
        """Return the flat places of the participants of a round, ascending."""
        ...


class PrivacyAccount(Protocol):
    """What an engine asks of `privacy.mechanism.Plan`."""

    def charged(self, clients: Ints, round: int) -> tuple[Ints, Floats]:
        """Charge clients for a round, before anything is released; return who releases, and with which σ."""
        ...


Spent = Callable[[int], Bools | None]
"""Which clients can never contribute again, from a round on; None if all can."""


class Releaser(Protocol):
    """Turns clean models into released ones: what an engine needs of `privacy.noise.NoiseSource`."""

    def release(self, models: Array, sigma: Array, clients: Ints, round: int) -> Array:
        """Return the released model of every client."""
        ...


class PairReleaser(Protocol):
    """Turns contributors' models into released means: what an engine needs of `privacy.trust.PairNoise`."""

    def release(self, models: Array, means: Array, starts: Ints, sigma: Floats, pairs: Ints, round: int) -> Array:
        """Return the released means of some pairs."""
        ...


class AnyBlock(Protocol):
    """Whole servers that are computed in one go."""

    @property
    def clients(self) -> slice:
        """Its clients' places among all."""
        ...

    @property
    def pairs(self) -> slice:
        """Its pairs' places among all."""
        ...

    @property
    def tolerance(self) -> Floats:
        """How exactly each client's problem must be solved."""
        ...

    @property
    def strictest(self) -> float:
        """The least of these tolerances."""
        ...

    def objective_values(self, models: Array) -> Array:
        """f_k of every client at its model."""
        ...


@dataclass
class State:
    """Everything that a round changes: clients' models (clean and released) and duals, and the servers' state.

    Where only the means of pairs are released, `released` has for each client the mean that it contributed to last.
    An engine may put off what no round needs; `deferred` brings it up to date when somebody asks for it.
    """

    round: int
    models: Array
    released_models: Array | None  # None where the models are released as they are
    duals: Array
    servers: ServerState
    deferred: dict[Literal["model", "dual"], Callable[[], None]] = field(default_factory=dict)

    @property
    def model(self) -> Array:
        """w_k of every client."""
        self._compute_deferred("model")
        return self.models

    @model.setter
    def model(self, values: Array) -> None:
        self.models = values
        self.released = self.released_models if self.released_models is not None else values
        self.deferred.pop("model", None)

    @property
    def released(self) -> Array:
        """What every client released last."""
        return self.model if self.released_models is None else self.released_models

    @released.setter
    def released(self, values: Array) -> None:
        self.released_models = None if values is self.models else values

    @property
    def dual(self) -> Array:
        """φ_k/ρ of every client."""
        self._compute_deferred("dual")
        return self.duals

    @dual.setter
    def dual(self, values: Array) -> None:
        self.duals = values
        self.deferred.pop("dual", None)

    @property
    def server_models(self) -> Array:
        """w_{q,s} of every pair; zero where it is not known."""
        return self.servers["model"]

    def _compute_deferred(self, name: Literal["model", "dual"]) -> None:
        if work := self.deferred.pop(name, None):
            work()


@dataclass(frozen=True)
class Part:
    """A block's share of a round: who of it takes part, and how they are averaged."""

    block: AnyBlock
    active: Ints | None  # places within the block; None is everyone
    flat: Ints  # the same clients' places among all
    index: Ints | slice | None  # the cheapest way to pick and put them; None where the block is all there is
    pair: Ints  # the (server, cluster) of each of them
    mean: Linear
    contributing: Bools
    sigma: Floats | None

    @cached_property
    def problem(self) -> BlockProblem:
        """The problems of those who take part."""
        assert isinstance(self.block, Block)
        return self.block.problem(self.active)

    @cached_property
    def shares(self) -> AnyFloats:
        """1 over the number of participants of every pair, a column."""
        taking_part = np.maximum(self.mean.indptr[1:] - self.mean.indptr[:-1], 1)
        return np.asarray(1.0 / taking_part, dtype=self.mean.values.dtype)[:, None]


@dataclass(frozen=True)
class Participation:
    """Who takes part in a round, block by block, and which pairs have a participant."""

    parts: list[Part]
    contributing: Bools
    complete: bool  # whether every pair has a participant


class Engine:
    """Run rounds on a flat layout."""

    def __init__(
        self,
        layout: Layout,
        blocks: Sequence[AnyBlock],
        algorithm: Algorithm,
        scheduler: Draw,
        *,
        privacy: PrivacyAccount | None = None,
        noise: Releaser | None = None,
        pair_noise: PairReleaser | None = None,
        spent: Spent | None = None,
        dtype: DTypeLike = np.float64,
        xp: Namespace = np,
        threads: int = 1,
        communicator: Communicator = SINGLE_PROCESS,
    ) -> None:
        self.layout, self.algorithm, self.scheduler = layout, algorithm, scheduler
        self.blocks: Sequence[AnyBlock] = blocks
        self.privacy, self.noise, self.pair_noise, self._spent = privacy, noise, pair_noise, spent
        self.dtype, self.xp = dtype, xp
        self.network = Network(layout, algorithm, dtype, xp)
        self._pool = ThreadPoolExecutor(threads) if threads > 1 and len(blocks) > 1 else None
        self._everyone: Participation | None = None
        self._last_received: tuple[Array, Part, Array] | None = None
        length = layout.model_length
        width = algorithm.server_rule.published_length(length)
        self.communicator, self.halo = communicator, communicator.halo(layout, width, dtype)
        clients, pairs = (xp.asarray(np.zeros((n, length), dtype)) for n in (layout.clients, layout.pairs))
        released = None if noise is None and pair_noise is None else clients + 0.0
        self.state = State(0, clients, released, clients + 0.0, algorithm.server_rule.start(pairs))
        self.previous_servers = pairs
        self.frozen: Bools | None = None  # pairs of runs that are over while others of the batch go on
        self.participants: Ints = np.empty(0, dtype=np.int64)

    def run_round(self) -> State:
        """Run one round."""
        state, number = self.state, self.state.round + 1
        participation = self._participation(number)
        known = self.network.known
        contributions = self._map_blocks(lambda part: self.client_phase(part, number), participation.parts)
        previous, tau = state.servers, tau_at(self.algorithm.tau, number)
        servers = self.server_phase(participation, contributions, tau)
        if self.frozen is not None:
            servers = {name: self._keep_frozen_runs(values, previous[name]) for name, values in servers.items()}
            self.network.known = np.where(self.frozen, known, self.network.known)
        self.previous_servers = self._keep_frozen_runs(previous["model"], self.previous_servers)
        state.servers, state.round = servers, number
        if self.algorithm.client_rule.has_dual:
            self._map_blocks(self.settle, participation.parts)
        if number % CHECK_EVERY == 0:
            self.check_finite()
        return state

    def server_phase(self, participation: Participation, means: list[Array], tau: float) -> ServerState:
        """Return the servers' state after the round, from the means of what their clients contribute."""
        if self.algorithm.server_rule.compares_halves:
            self.network.halves = self._halves(participation, means)
        aggregate = self._aggregate(participation, means)
        servers, published, neighbourhood = self.publish(aggregate, participation.contributing)
        servers = self.combine(servers, published, neighbourhood, tau)
        if not self.network.complete:
            known = self.xp.asarray(self.network.known[:, None].astype(self.dtype))
            servers["model"] = keep_rows(servers["model"], known)
        return servers

    def combine(
        self, servers: ServerState, published: Array, neighbourhood: NeighbourhoodOfPairs, tau: float
    ) -> ServerState:
        """Return the servers' state after the round, as the algorithm says."""
        return self.algorithm.server_rule.combine(servers, published, neighbourhood, tau)

    def _keep_frozen_runs(self, values: Array, kept: Array) -> Array:
        """Return `values`, but `kept` in runs that are over, so that no run depends on its batch."""
        return values if self.frozen is None else self.xp.where(self.xp.asarray(self.frozen[:, None]), kept, values)

    def publish(self, aggregate: Array, contributing: Bools) -> tuple[ServerState, Array, NeighbourhoodOfPairs]:
        """Publish what servers aggregated; return their state, all published rows and who published.

        The rows of other processes are received here; before, only shares are known.
        """
        network = self.network
        servers, published = self.algorithm.server_rule.publish(self.state.servers, aggregate, network)  # type: ignore[arg-type]
        self.halo.exchange(published, network, contributing)
        return servers, published, network.neighbourhood(contributing)

    def check_finite(self) -> None:
        """Raise `Diverged`, naming the runs, if a model of any process is not finite or has grown beyond reason."""
        self.communicator.collective(self._check_own)

    def _check_own(self) -> None:
        models = np.asarray(self.state.server_models)
        if np.abs(models).max(initial=0.0) < DIVERGED:
            return
        bad = [run.number for run in self.layout.runs if not np.abs(models[run.pairs]).max(initial=0.0) < DIVERGED]
        advice = "raise algorithm.rho" if self.algorithm.client_rule.has_rho else "lower algorithm.step_size"
        raise Diverged(
            f"Training diverged by round {self.state.round} in run {', '.join(map(str, bad[:5]))}: the models grew "
            f"past {DIVERGED:g}; {advice}, or scale the features to about unit size."
        )

    def close(self) -> None:
        """Free threads, the halo and what only further rounds need; models and what servers know stay."""
        if self._pool:
            self._pool.shutdown()
        self.halo.close()
        self.blocks, self._everyone, self._last_received = [], None, None
        self.state.dual = self.state.duals[:0] + 0

    def _map_blocks(self, work: Callable[[Part], T], parts: list[Part]) -> list[T]:
        return list(self._pool.map(work, parts) if self._pool else map(work, parts))

    def _participation(self, number: int) -> Participation:
        if self._spent is not None:
            self.network.note_spent(self._spent(number))
        active, sigma = self.scheduler.draw(number), None
        if self.privacy is not None:
            active, sigma = self.privacy.charged(active, number)
        self.participants = active
        everyone = len(active) == self.layout.clients and sigma is None
        if everyone and self._everyone:
            return self._everyone
        parts = self._parts(active, sigma)
        contributing = np.zeros(self.layout.pairs, dtype=bool)
        for part in parts:
            contributing[part.block.pairs] = part.contributing
        participation = Participation(parts, contributing, bool(contributing.all()))
        if everyone:
            self._everyone = participation
        return participation

    def _parts(self, active: Ints, sigma: Floats | None) -> list[Part]:
        cuts = np.searchsorted(active, [block.clients.start for block in self.blocks] + [self.layout.clients]).tolist()
        client_pair = self.layout.client_pair[active]
        parts = []
        for block, start, stop in zip(self.blocks, cuts[:-1], cuts[1:], strict=True):
            flat, pair = active[start:stop], client_pair[start:stop]
            whole = stop - start == block.clients.stop - block.clients.start
            places = None if whole else flat - block.clients.start
            index = (None if len(self.blocks) == 1 else block.clients) if whole else flat
            mean, contributing = mean_of_pairs(block.pairs, pair, self.dtype)
            noise = None if sigma is None else sigma[start:stop]
            parts.append(Part(block, places, flat, index, pair, mean, contributing, noise))
        return parts

    def client_phase(self, part: Part, number: int) -> Array:
        """Run the client step of one block; return the mean of what its clients contribute for each of its pairs."""
        if not len(part.flat):
            return None
        state = self.state
        dual = pick(state.duals, part.index)

        def release(models: Array) -> Array:
            if self.noise is None:
                return models
            return self.xp.asarray(self.noise.release(np.asarray(models), part.sigma, part.flat, number))

        step = self.algorithm.client_rule.step(part.problem, self._received(part), dual, release)
        self.check_solved(step.error, lambda: step.model, part)
        state.models = put(state.models, part.index, step.model)
        means = eq.server_aggregation(self.algorithm.client_rule.contribution(step.released, dual), part.mean)
        if self.pair_noise is not None:
            return self.release_means(part, step.model, means, number)
        if self.noise is not None:
            state.released = put(state.released, part.index, step.released)
        return means

    def release_means(self, part: Part, models: Array, means: Array, number: int) -> Array:
        """Return the means of one block with the noise of their pairs: nothing else of the models is released."""
        assert self.pair_noise is not None
        rows, clean = np.flatnonzero(part.contributing), np.asarray(means)
        starts, pairs = part.mean.indptr[rows], rows + part.block.pairs.start
        sigma = np.zeros(len(rows)) if part.sigma is None else part.sigma[starts]
        noised = np.zeros_like(clean)
        noised[rows] = self.pair_noise.release(np.asarray(models), clean[rows], starts, sigma, pairs, number)
        released, state = self.xp.asarray(noised), self.state
        state.released = put(state.released, part.index, pick(released, part.pair - part.block.pairs.start))
        return released

    def dual_sizes(self) -> Array:
        """‖φ_k/ρ‖² of every client."""
        return metrics.squared_norm(np.asarray(self.state.dual))

    def extra_state(self) -> dict[str, Array]:
        """Return what the next round needs besides `state`, for checkpoints; names begin with pairs_ or clients_."""
        return {}

    def restore(self, extra: Mapping[str, Array]) -> None:
        """Go on from `extra_state()`, after the state was restored."""

    def _halves(self, participation: Participation, means: list[Array]) -> Halves:
        """Return what two halves of the participants contribute; where only sums are seen, whole servers are halves."""
        layout, xp, length = self.layout, self.xp, self.layout.model_length
        sums, weights = np.zeros((2, layout.pairs, length), self.dtype), np.zeros((layout.pairs, 2), self.dtype)
        for part, mean in zip(participation.parts, means, strict=True):
            if mean is None:
                continue
            own = part.block.pairs
            if self.pair_noise is not None:
                taken = (layout.pair_half[own, None] == np.arange(2)) & part.contributing[:, None]
                weights[own] = taken
                sums[:, own] = taken.T[:, :, None] * np.asarray(mean)
                continue
            contributed = np.asarray(self._contributed(part))
            share, half = part.shares[part.pair - own.start, 0], layout.client_half[part.flat]
            places, cells = 2 * (part.pair - own.start) + half, 2 * (own.stop - own.start)
            entries = Linear.from_entries(places, np.arange(len(places)), share, cells, len(places))
            sums[:, own] = entries(contributed).reshape(-1, 2, length).swapaxes(0, 1)
            weights[own] = np.bincount(places, weights=share, minlength=cells).reshape(-1, 2)
        return Halves(xp.asarray(sums[0]), xp.asarray(sums[1]), xp.asarray(weights))

    def _contributed(self, part: Part) -> Array:
        """Return what each participant of a block contributed in this round, whose duals are not settled yet."""
        state = self.state
        released = state.models if state.released_models is None else state.released_models
        return self.algorithm.client_rule.contribution(pick(released, part.index), pick(state.duals, part.index))

    def _aggregate(self, participation: Participation, means: list[Array]) -> Array:
        """Return the participants' mean for every pair, and the current model where there is none."""
        if participation.complete:
            return means[0] if len(means) == 1 else self.xp.concat(means)
        if not participation.contributing.any():
            return self.state.server_models
        if self.xp is np:
            current, mean = self.state.server_models, means[0]
            if mean is not None and (mean.shape, mean.dtype) == (current.shape, current.dtype):
                mean[~participation.contributing] = current[~participation.contributing]
                return mean
            aggregate = current.copy()
            for part, mean in zip(participation.parts, means, strict=True):
                if mean is not None:
                    np.copyto(aggregate[part.block.pairs], mean, where=part.contributing[:, None])
            return aggregate
        present = [
            pick(mean, np.flatnonzero(part.contributing))
            for part, mean in zip(participation.parts, means, strict=True)
            if mean is not None
        ]
        return put(self.state.server_models + 0.0, np.flatnonzero(participation.contributing), self.xp.concat(present))

    def settle(self, part: Part) -> None:
        """Update the duals of one block's participants."""
        if not len(part.flat):
            return
        state = self.state
        released = state.models if state.released_models is None else state.released_models
        dual, released = pick(state.duals, part.index), pick(released, part.index)
        state.duals = put(
            state.duals, part.index, self.algorithm.client_rule.settle(dual, self._received(part), released)
        )

    def _received(self, part: Part) -> Array:
        """w_{q,s} for every participant; cached between rounds while the same clients take part."""
        models, last = self.state.server_models, self._last_received
        if last is None or last[0] is not models or last[1] is not part:
            self._last_received = last = (models, part, pick(models, part.pair))
        return last[2]

    def check_solved(self, errors: Array, models: Callable[[], Array], part: Part) -> None:
        """Every primal problem within its stated tolerance: absolute where privacy counts on it, else relative."""
        found = np.asarray(errors)
        if found[found.argmax()] <= part.block.strictest:
            return
        found = np.broadcast_to(found, len(part.flat))
        allowed = pick(part.block.tolerance, part.active)
        scale = 1.0 if self.privacy is not None else 1.0 + np.asarray(norm(models()))
        wrong = ~(found <= allowed * scale) & np.isfinite(allowed)
        if wrong.any():
            worst = int(np.argmax(np.where(wrong, found / (allowed * scale), 0.0)))
            raise SolverError(
                f"The primal problem of {self.layout.client(part.flat[worst])} was solved only to {found[worst]:.1e}, "
                f"not to objective.tolerance = {allowed[worst]:.1e}; scale the features to about unit size, raise "
                "algorithm.rho, or raise the tolerance."
            )
