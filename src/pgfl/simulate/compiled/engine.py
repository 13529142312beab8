"""The engine with compiled client rounds (`engine = "numba"`): it works on the federation's own rows, uncopied,
but for small runs of ridge regression (`compiled.orthogonal`).

Clients that the kernels do not know (an objective of your own, the norm-constrained ridge, far more rows than
features) are computed as in the NumPy engine, server by server.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from pgfl import metrics
from pgfl.algorithms.algorithms import ServerState
from pgfl.arrays import Array, Linear, pick, put
from pgfl.privacy.noise import SeededNoise
from pgfl.privacy.trust import SeededPairNoise
from pgfl.registry import compiled_form
from pgfl.simulate.compiled import kernels as compiled
from pgfl.simulate.compiled.blocks import PAGE, CompiledBlock, aligned
from pgfl.simulate.compiled.classes import softmax_phase
from pgfl.simulate.compiled.coordinates import (
    Coordinates,
    coordinate_phase,
    expand,
    initial_coordinates,
    pack_coordinates,
    unpack_coordinates,
)
from pgfl.simulate.compiled.gradients import average_and_learn, gradient_phase, gradient_phase_in_registers
from pgfl.simulate.compiled.kind import orthogonal_width
from pgfl.simulate.compiled.noise import (
    ServerStreams,
    add_to_means_and_share,
    draw_release_and_average,
    release_and_average,
)
from pgfl.simulate.compiled.orthogonal import OrthogonalRows, orthogonal_phase, orthogonal_rows
from pgfl.simulate.draws import ServerNormals
from pgfl.simulate.engine import CLIENTS_AT_A_TIME, Engine, Part, Participation, State
from pgfl.simulate.layout import Layout
from pgfl.simulate.neighbourhoods import NeighbourhoodOfPairs


class CompiledEngine(Engine):
    """`Engine` whose client phase and dual update are compiled.

    Where all clients take part in every round, nobody's vectors are read or written for nothing: with ridge problems
    duals and models are kept as coordinates, and with others the dual update is put off until the next round, which
    reads the same numbers. Whoever asks for duals or models has them computed first.
    """

    def __init__(self, layout: Layout, *settings: Any, **more: Any) -> None:
        super().__init__(layout, *settings, **more)
        state = self.state
        state.models, state.duals, released = (aligned(state.models.shape, self.dtype, PAGE // 4 * i) for i in range(3))
        state.released_models = None if state.released_models is None else released
        self._coordinates = self._first_coordinates()
        self._kept, self._averages = (state.models, state.duals), np.empty_like(state.server_models)
        self._most_rows = int(self.communicator.maximum([layout.counts.max(initial=0)])[0])

    def client_phase(self, part: Part, number: int) -> Array:
        """As `Engine.client_phase`, compiled for the blocks that the kernels know."""
        block = part.block
        if not isinstance(block, CompiledBlock) or not len(part.flat):
            return super().client_phase(part, number)
        state, bounds = self.state, part.mean.indptr
        who, fields, averaged = (part.flat, bounds, block.pairs.start), tuple(block.problems), self.noise is None
        means = np.empty((len(bounds) - 1, state.duals.shape[1]), dtype=self.dtype)
        results = (means, part.shares, averaged)
        if not self.algorithm.client_rule.solves:
            stepped = (*who, fields, state.server_models, state.models, *results, *self._reach_records_steps)
            if block.classes is not None:
                softmax_phase(*stepped, block.classes, block.forms)
            elif block.registers is None:
                gradient_phase(*stepped, block.forms)
            else:
                gradient_phase_in_registers(*stepped, block.registers)
        else:
            errors = np.empty(len(part.flat), dtype=self.dtype)
            if (kept := self._coordinates) is not None:
                given = (*who, fields, tuple(kept), state.server_models, errors, means, part.shares)
                if isinstance(kept, OrthogonalRows):
                    orthogonal_phase(*given, kept.registers)
                else:
                    coordinate_phase(*given, block.registers)
            else:
                models = (state.server_models, state.duals, state.models)
                compiled.client_phase(*who, fields, *models, errors, *results, "dual" in state.deferred, block.forms)
            self.check_solved(errors, lambda: self._solved(part), part)
        if self.noise is not None and not self._release_simulated(part, number, means):
            released = self.noise.release(pick(state.model, part.index), part.sigma, part.flat, number)
            put(state.released, slice(None) if part.index is None else part.index, released)
            means[:] = 0.0
            compiled.sum_contributions(part.flat, bounds, state.released, state.dual, means)
            means *= part.shares
        if self.pair_noise is not None and not self._release_simulated_means(part, number, means):
            return self.release_means(part, pick(state.model, part.index), means, number)
        return means

    def _release_simulated(self, part: Part, number: int, means: Array) -> bool:
        """Release with seeded noise, compiled, and average what was released; False if the plain way is to do it."""
        if type(self.noise) is not SeededNoise:
            return False
        state, normals, flat, bounds, sigma = self.state, self.noise.normals, part.flat, part.mean.indptr, part.sigma
        models, duals, shares, released = state.models, state.duals, part.shares, state.released_models
        if isinstance(normals, ServerNormals) and isinstance(normals.fill, ServerStreams):
            streams = normals.fill.states
            servers, (block, within, rows) = self.layout.client_server, normals.place(number)
            return draw_release_and_average(
                flat, bounds, sigma, servers, streams, block, within, rows, models, duals, shares, released, means
            )
        drawn = self.noise.drawn(flat, number, (len(flat), means.shape[1]))
        return release_and_average(flat, bounds, sigma, drawn, models, duals, shares, released, means)

    def _release_simulated_means(self, part: Part, number: int, means: Array) -> bool:
        """As `_release_simulated`, of means whose contributors share their noise."""
        noise, released = self.pair_noise, self.state.released_models
        if type(noise) is not SeededPairNoise or part.sigma is None or released is None:
            return False
        normals, bounds = noise.normals, part.mean.indptr
        if not isinstance(normals, ServerNormals) or not isinstance(normals.fill, ServerStreams):
            return False
        streams = normals.fill.states
        places = part.contributing.nonzero()[0]
        starts = bounds[places]
        deviations = noise.deviations(part.sigma[starts], bounds[places + 1] - starts)
        servers, (block, within, rows) = self.layout.pair_server[part.block.pairs], normals.place(number)
        add_to_means_and_share(
            part.flat, bounds, places, deviations, servers, streams, block, within, rows, means, released
        )
        return True

    def server_phase(self, participation: Participation, means: list[Array], tau: float) -> ServerState:
        """As `Engine.server_phase`; the client phase has settled what was put off."""
        state = self.state
        state.deferred.clear()
        if self._coordinates is not None:
            state.deferred = {"model": self._write_models, "dual": self._write_duals}
        return super().server_phase(participation, means, tau)

    def combine(
        self, servers: ServerState, published: Array, neighbourhood: NeighbourhoodOfPairs, tau: float
    ) -> ServerState:
        """As `Engine.combine`, compiled for the plain average."""
        rule = self.algorithm.server_rule
        if compiled_form(rule) != "average" or not rule.personalised or tau == 0:
            return super().combine(servers, published, neighbourhood, tau)
        share = np.empty((len(published), 1), dtype=self.dtype)
        share[:] = tau * neighbourhood.learns_here
        mixing, clusters = (_parts_of(one) for one in (neighbourhood.mixing, neighbourhood.cluster_mean))
        received, new = np.ascontiguousarray(published), np.empty_like(published)
        average_and_learn(mixing, clusters, received, share[:, 0], self._averages, new)
        return {"model": new}

    def settle(self, part: Part) -> None:
        """As `Engine.settle`, compiled for the blocks that the kernels know."""
        if not isinstance(part.block, CompiledBlock):
            super().settle(part)
        elif self._coordinates is not None:
            return
        elif self._always_everyone:
            self.state.deferred["dual"] = self._settle_everyone
        else:
            self._settle(part)

    def run_round(self) -> State:
        """Run one round; models or duals that were replaced from outside take the place of the coordinates."""
        if self.state.models is not self._kept[0] or self.state.duals is not self._kept[1]:
            self._coordinates = None
        return super().run_round()

    def close(self) -> None:
        """As `Engine.close`; models are written out while the rows are at hand."""
        self.state.models, self._coordinates = self.state.model, None
        super().close()
        self._kept, self._averages = (self.state.models, self.state.duals), self._averages[:0]

    def dual_sizes(self) -> Array:
        """As `Engine.dual_sizes`; duals that nobody has asked for are computed for some clients at a time."""
        kept, state = self._coordinates, self.state
        if kept is None or "dual" not in state.deferred:
            return super().dual_sizes()
        assert self._everyone is not None
        sizes, shared = np.empty(self.layout.clients, dtype=self.dtype), kept.lag + state.server_models
        self._map_blocks(lambda part: self._dual_sizes(part, shared, sizes), self._everyone.parts)
        return sizes

    def extra_state(self) -> dict[str, Array]:
        """Return the coordinates, if they are what the next round starts from."""
        kept = self._coordinates
        return {} if kept is None else pack_coordinates(kept._asdict(), self.layout.counts, self._most_rows)

    def restore(self, extra: Mapping[str, Array]) -> None:
        """Go on from coordinates; without them, the duals are what the next round starts from."""
        self._kept = (self.state.models, self.state.duals)
        if self._coordinates is not None:
            self._coordinates = unpack_coordinates(extra, self._coordinates, self.layout.counts)

    @cached_property
    def _always_everyone(self) -> bool:
        """Whether the next round has the same participants, all of them known to the kernels."""
        return self._everyone_cleanly and all(isinstance(block, CompiledBlock) for block in self.blocks)

    @cached_property
    def _reach_records_steps(self) -> tuple[float, int, int]:
        """The length of the client rule's gradient steps, from how many records on they have it, and their number."""
        steps = self.algorithm.client_rule.gradient_steps
        assert steps is not None, "a compiled rule solves, or takes gradient steps"
        return steps

    @property
    def _everyone_cleanly(self) -> bool:
        """Whether everyone takes part in every round, without noise."""
        clean = self.noise is None and self.pair_noise is None
        return clean and getattr(self.scheduler, "everyone_always", False)

    def _first_coordinates(self) -> Coordinates | OrthogonalRows | None:
        """Return the coordinates of known clients if everyone takes part, is solved, and has the same ridge.

        Whether rows are orthogonalised depends on their run alone, so no bit depends on its batch or its processes.
        """
        rule, blocks = self.algorithm.client_rule, [block for block in self.blocks if isinstance(block, CompiledBlock)]
        if self.algorithm.server_rule.compares_halves or not (
            rule.solves
            and self.algorithm.client_rule.has_dual
            and self._everyone_cleanly
            and blocks
            and blocks[0].ridge
        ):
            return None
        layout, problems, shrinkage = self.layout, blocks[0].problems, np.zeros(self.layout.pairs, dtype=self.dtype)
        shrinkage[layout.client_pair] = problems.ridge_penalty / problems.modulus
        pairs, item = (shrinkage, np.asarray(self.state.server_models)), shrinkage.itemsize
        width = orthogonal_width(max(run.whole.rows for run in layout.runs), layout.model_length, item)
        if not width:
            return initial_coordinates(problems.first, problems.counts, problems.targets, *pairs, layout.pair_server)
        known = [np.arange(block.clients.start, block.clients.stop) for block in blocks]
        rows = aligned((int(layout.counts.sum()), width), self.dtype)
        return orthogonal_rows(problems, known, rows, *pairs, self._pool.map if self._pool else map)

    def _write_models(self) -> None:
        kept = self._coordinates
        assert kept is not None
        self._write(kept.centre, kept.model, self.state.models)

    def _write_duals(self) -> None:
        kept = self._coordinates
        assert kept is not None
        self._write(kept.lag + self.state.server_models, kept.dual, self.state.duals)

    def _write(self, shared: Array, own: Array, out: Array) -> None:
        assert self._everyone is not None
        known = [part for part in self._everyone.parts if isinstance(part.block, CompiledBlock)]
        self._map_blocks(lambda part: self._write_part(part, shared, own, out), known)

    def _write_part(self, part: Part, shared: Array, own: Array, out: Array) -> None:
        self._write_some(part, part.flat, shared, own, out, 0)

    def _write_some(self, part: Part, clients: Array, shared: Array, own: Array, out: Array, first_out: int) -> None:
        kept, counts = self._coordinates, self.layout.counts
        assert kept is not None and isinstance(part.block, CompiledBlock)
        problems = part.block.problems
        rows = (kept.rows, kept.first) if isinstance(kept, OrthogonalRows) else (problems.features, problems.first)
        expand(clients, self.layout.client_pair, *rows, counts, kept.first, shared, own, out, first_out)

    def _dual_sizes(self, part: Part, shared: Array, out: Array) -> None:
        if not isinstance(part.block, CompiledBlock):
            out[part.flat] = metrics.squared_norm(pick(self.state.duals, part.index))
            return
        assert self._coordinates is not None
        kept, dimension = self._coordinates, shared.shape[1]
        for at in range(0, len(part.flat), CLIENTS_AT_A_TIME):
            some = part.flat[at : at + CLIENTS_AT_A_TIME]
            duals = np.empty((len(some), dimension), dtype=self.dtype)
            self._write_some(part, some, shared, kept.dual, duals, int(some[0]))
            out[some] = metrics.squared_norm(duals)

    def _solved(self, part: Part) -> Array:
        """Return the models of those who take part, within a round."""
        if (kept := self._coordinates) is not None:
            self._write_part(part, kept.centre, kept.model, self.state.models)
        return pick(self.state.models, part.index)

    def _settle_everyone(self) -> None:
        assert self._everyone is not None
        for part in self._everyone.parts:
            self._settle(part)

    def _settle(self, part: Part) -> None:
        state, who = self.state, (part.flat, part.mean.indptr, part.block.pairs.start)
        compiled.settle(*who, state.server_models, state.released, state.duals)


def _parts_of(operator: Linear) -> tuple[Array, Array, Array]:
    return operator.indptr, operator.columns, operator.values
