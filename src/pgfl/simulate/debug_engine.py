"""The debug engine: clients one by one in plain NumPy, and every error with the client, the stage and the round.

It is for algorithms and objectives of your own: whatever they raise says where. Results are those of the NumPy engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pgfl import equations as eq
from pgfl.algorithms.algorithms import ServerState
from pgfl.arrays import AnyArray, Array, Bools, Namespace, pick, put
from pgfl.errors import PgflError, StageError
from pgfl.simulate.array_engines import array_blocks
from pgfl.simulate.engine import AnyBlock, Engine, Part, State
from pgfl.simulate.engines import EngineKind, Setup
from pgfl.simulate.neighbourhoods import NeighbourhoodOfPairs
from pgfl.simulate.problems import Block

if TYPE_CHECKING:
    from pgfl.simulate.layout import Layout


Stage = Literal["solve", "release", "aggregate", "publish", "combine", "settle"]


class DebugKind(EngineKind):
    """Clients one by one, in one process."""

    distributed = False

    def namespace(self) -> Namespace:
        """Return NumPy."""
        return np

    def prepare(self, setup: Setup) -> tuple[type[Engine], Sequence[AnyBlock]]:
        """Return the debug engine, and the same blocks as NumPy's."""
        return DebugEngine, array_blocks(setup)


class DebugEngine(Engine):
    """`Engine` with a loop over clients in place of arrays of them."""

    def __init__(self, layout: Layout, *settings: Any, **more: Any) -> None:
        super().__init__(layout, *settings, **(more | {"threads": 1}))
        self._round = 0

    def run_round(self) -> State:
        """Run one round."""
        self._round = self.state.round + 1
        return super().run_round()

    def client_phase(self, part: Part, number: int) -> Array:
        """As `Engine.client_phase`, client by client."""
        if not len(part.flat):
            return None
        state = self.state
        models = self._solved(part)
        state.models = put(state.models, part.index, models)
        released = models if self.noise is None else self._released(part, models)
        means = self._means(part, released)
        if self.pair_noise is not None:
            with self._stage("release"):
                return self.release_means(part, models, means, number)
        if self.noise is not None:
            state.released = put(state.released, part.index, released)
        return means

    def publish(self, aggregate: Array, contributing: Bools) -> tuple[ServerState, Array, NeighbourhoodOfPairs]:
        """As `Engine.publish`."""
        with self._stage("publish"):
            return super().publish(aggregate, contributing)

    def combine(
        self, servers: ServerState, published: Array, neighbourhood: NeighbourhoodOfPairs, tau: float
    ) -> ServerState:
        """As `Engine.combine`."""
        with self._stage("combine"):
            return super().combine(servers, published, neighbourhood, tau)

    def settle(self, part: Part) -> None:
        """As `Engine.settle`, client by client."""
        state = self.state
        for place, pair in zip(part.flat.tolist(), part.pair.tolist(), strict=True):
            own = slice(place, place + 1)
            with self._stage("settle", place):
                received = state.server_models[pair : pair + 1]
                state.duals[own] = self.algorithm.client_rule.settle(state.duals[own], received, state.released[own])

    def _solved(self, part: Part) -> AnyArray:
        """Return the clean models of those who take part, within their tolerances."""
        state, block = self.state, part.block
        assert isinstance(block, Block)
        models, errors = [], []
        for place, pair in zip(part.flat.tolist(), part.pair.tolist(), strict=True):
            received, dual = state.server_models[pair : pair + 1], state.duals[place : place + 1]
            problem = block.problem(np.array([place - block.clients.start]))
            with self._stage("solve", place):
                step = self.algorithm.client_rule.step(problem, received, dual, lambda model: model)
                models.append(np.asarray(step.model))
                errors.append(np.max(step.error))
        solutions = np.concatenate(models)
        self.check_solved(np.array(errors), lambda: solutions, part)
        return solutions

    def _released(self, part: Part, models: AnyArray) -> AnyArray:
        """Return the models with noise, which is drawn for whole servers; after an error, find out whose it was."""
        assert self.noise is not None
        try:
            return np.asarray(self.noise.release(models, part.sigma, part.flat, self._round))
        except Exception:
            for i, place in enumerate(part.flat.tolist()):
                own = slice(i, i + 1)
                with self._stage("release", place):
                    self.noise.release(models[own], pick(part.sigma, own), part.flat[own], self._round)
            with self._stage("release"):
                raise

    def _means(self, part: Part, released: AnyArray) -> Array:
        """Return the mean of what the clients of each pair contribute."""
        contributions = []
        for i, place in enumerate(part.flat.tolist()):
            with self._stage("aggregate", place):
                dual = self.state.duals[place : place + 1]
                contributions.append(self.algorithm.client_rule.contribution(released[i : i + 1], dual))
        with self._stage("aggregate"):
            return eq.server_aggregation(np.concatenate(contributions), part.mean)

    @contextmanager
    def _stage(self, stage: Stage, place: int | None = None) -> Iterator[None]:
        """Within, every error becomes a `StageError` that names the round, the stage and the client."""
        try:
            yield
        except StageError:
            raise
        except Exception as error:
            client = None if place is None else self.layout.client(place)
            said = str(error) if isinstance(error, PgflError) else f"{type(error).__name__}: {error}"
            raise StageError(said, self._round, stage, client) from error
