"""Clients whose answers are late, counted as a site counts them: NumPy's engine with answers that are on their way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pgfl import equations as eq
from pgfl.algorithms.algorithms import Algorithm
from pgfl.algorithms.schedules import late_weight, rounds_counted
from pgfl.arrays import Array, Bools, Floats, Ints, pick, put
from pgfl.errors import ConfigError
from pgfl.simulate.engine import AnyBlock, Engine, Part, Participation
from pgfl.simulate.layout import Layout


class _Free:
    """A schedule: everyone is asked whose last answer has been counted."""

    def __init__(self, clients: int) -> None:
        self.asked_in = np.zeros(clients, dtype=np.int64)  # the round of an answer that is on its way, or 0

    def draw(self, round: int) -> Ints:
        """Return the places of those who are asked."""
        return np.flatnonzero(self.asked_in == 0)


class DelayedEngine(Engine):
    """`Engine` with clients that answer `late` rounds after they were asked.

    Such a client computes, and is charged, in the round in which it is asked. What it contributes is its update, at the
    models of the rounds that count it (`rounds_counted`, `late_weight`). Parts of a round are those who are counted.
    """

    def __init__(
        self,
        layout: Layout,
        blocks: Sequence[AnyBlock],
        algorithm: Algorithm,
        slow: Bools,
        late: int,
        **settings: Any,
    ) -> None:
        if algorithm.client_rule.has_dual:
            raise ConfigError(
                "algorithm.delays needs clients without a dual: a late answer moves today's model, which only an "
                'update from the model that was sent can; set algorithm.client = "gradient".'
            )
        free = _Free(layout.clients)
        super().__init__(layout, blocks, algorithm, free, **settings)
        self._asked_in, self._slow, self._late = free.asked_in, slow, late
        self._updates = np.zeros_like(self.state.models)  # on their way
        self._arrived = np.zeros_like(self.state.models)  # the last update that came of everyone
        self._until = np.zeros(layout.clients, dtype=np.int64)  # the last round that it counts in
        self._weight: Floats = np.ones(layout.pairs)  # of late updates in this round
        self._counted = np.zeros_like(self.state.models)  # what everyone contributes to this round
        self._questions: dict[int, Part] = {}  # who is asked, by the first client of the block

    def client_phase(self, part: Part, number: int) -> Array:
        """Ask some clients of a block; return the mean of what is counted now for each of its pairs."""
        self._ask(self._questions[part.block.clients.start], number)
        if not len(part.flat):
            return None
        late = self._slow[part.flat]
        received = pick(self.state.server_models, part.pair[late])
        weight = self._weight[part.pair[late], None].astype(self.dtype)
        self._counted[part.flat[late]] = eq.late_contribution(self._arrived[part.flat[late]], received, weight)
        return eq.server_aggregation(self._contributed(part), part.mean)

    def extra_state(self) -> dict[str, Array]:
        """Return the answers that are on their way, and those that count still."""
        return {
            "clients_asked_in": self._asked_in,
            "clients_updates": self._updates,
            "clients_arrived": self._arrived,
            "clients_until": self._until,
        }

    def restore(self, extra: Mapping[str, Array]) -> None:
        """Go on with them."""
        self._asked_in[:] = extra["clients_asked_in"]
        self._updates[:] = extra["clients_updates"]
        self._arrived[:] = extra["clients_arrived"]
        self._until[:] = extra["clients_until"]

    def _participation(self, number: int) -> Participation:
        due = np.flatnonzero((self._asked_in > 0) & (self._asked_in + self._late <= number))
        asked = super()._participation(number)
        self._questions = {part.block.clients.start: part for part in asked.parts}
        self._arrived[due], self._asked_in[due] = self._updates[due], 0
        self._until[due] = number - 1 + rounds_counted(self._late, planned=self._late + 1)
        in_time, pair = self.participants[~self._slow[self.participants]], self.layout.client_pair
        fresh = np.bincount(pair[in_time], minlength=self.layout.pairs)
        old = np.flatnonzero(self._until >= number)
        old = old[np.isin(old, due) | (fresh[pair[old]] > 0)]
        self._weight = late_weight(fresh, np.bincount(pair[old], minlength=self.layout.pairs))
        parts = self._parts(np.sort(np.concatenate([in_time, old])), None)
        contributing = np.zeros(self.layout.pairs, dtype=bool)
        for part in parts:
            contributing[part.block.pairs] = part.contributing
        return Participation(parts, contributing, bool(contributing.all()))

    def _ask(self, part: Part, number: int) -> None:
        """Compute and release what these clients answer; that of slow ones is on its way."""
        if not len(part.flat):
            return
        state, rule = self.state, self.algorithm.client_rule

        def release(models: Array) -> Array:
            return models if self.noise is None else self.noise.release(models, part.sigma, part.flat, number)

        received, dual = pick(state.server_models, part.pair), pick(state.duals, part.index)
        step = rule.step(part.problem, received, dual, release)
        self.check_solved(step.error, lambda: step.model, part)
        state.models = put(state.models, part.index, step.model)
        if self.noise is not None:
            state.released = put(state.released, part.index, step.released)
        contributions = np.asarray(rule.contribution(step.released, dual))
        self._counted[part.flat] = contributions
        slow = self._slow[part.flat]
        self._updates[part.flat[slow]] = (contributions - received)[slow]
        self._asked_in[part.flat[slow]] = number

    def _contributed(self, part: Part) -> Array:
        """Return what each of those who are counted contributes."""
        return pick(self._counted, part.index)
