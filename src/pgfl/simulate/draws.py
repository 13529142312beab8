"""The privacy of a simulation: its random draws, every client's sensitivity, and the plan that accounts for it."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock, local
from typing import TYPE_CHECKING, Any

import numpy as np

from pgfl.algorithms.algorithms import Algorithm
from pgfl.algorithms.schedules import Participants
from pgfl.arrays import AnyFloats, DTypeLike, Floats, Ints
from pgfl.objectives import Objective
from pgfl.objectives.interface import tolerance_for
from pgfl.privacy.request import Privacy
from pgfl.simulate.engines import FillRows, engine_kind
from pgfl.simulate.layout import Layout
from pgfl.simulate.problems import Objectives, objective_of
from pgfl.streams import Purpose, Streams

if TYPE_CHECKING:
    from pgfl.privacy.mechanism import Plan
    from pgfl.privacy.noise import NoiseSource
    from pgfl.privacy.trust import PairNoise
    from pgfl.simulate.options import TrainingOptions


ROWS_AHEAD = 64  # starting a stream costs as much as drawing some hundred numbers, so several rounds share one


class ServerNormals:
    """`normals(clients, round, dimension)`: the j-th participant of a server gets the j-th row of its server's draw.

    With `server_of`, the server of every pair, `clients` are pairs.

    How many rounds share a generator depends on the setting `participants` alone, so a draw does not depend on what
    else is simulated. Large servers are drawn round by round, straight into the answer. `fill` draws
    the same numbers in another way.
    """

    def __init__(
        self,
        layout: Layout,
        participants: Participants,
        seed: int,
        dtype: DTypeLike = np.float64,
        server_of: Ints | None = None,
        fill: FillRows | None = None,
    ) -> None:
        self._layout, self._seed, self._own = layout, seed, local()
        self._server_of = layout.client_server if server_of is None else server_of
        self._dtype: Any = dtype
        self._rows = None if participants == "all" else participants
        self._rounds = 1 if self._rows is None else max(1, ROWS_AHEAD // self._rows)
        self._cached: tuple[int, AnyFloats] | None = None
        self.fill = fill
        self._lock = Lock()

    def __call__(self, clients: Ints, round: int, dimension: int) -> AnyFloats:
        """(A, d) numbers for the clients (ascending flat places) that take part in a round."""
        if self._rounds == 1:
            server = self._server_of[clients]
            return self._draw_directly(server, _run_bounds(server), round, dimension)
        block, within = divmod(round - 1, self._rounds)
        with self._lock:
            drawn = self._draw_round(block, within, dimension)
        if len(clients) == drawn.shape[0] * drawn.shape[1]:
            return drawn.reshape(-1, dimension)
        server = self._server_of[clients]
        whole = drawn[server[0] : server[-1] + 1] if len(server) else drawn[:0]
        if len(clients) == whole.shape[0] * whole.shape[1]:
            return np.asarray(whole.reshape(-1, dimension))
        rank = np.arange(len(clients)) - server.searchsorted(server)
        return np.asarray(drawn[server, rank])

    def place(self, round: int) -> tuple[int, int, int]:
        """Return (block, within, rows): the block of rounds that share streams, the round's number within it, and the
        rows that it has for each server; 0 rows means as many as take part.
        """
        return (round, 0, 0) if self._rounds == 1 else (*divmod(round - 1, self._rounds), self._rows or 0)

    def _draw_directly(self, server: Ints, bounds: Ints, round: int, dimension: int) -> AnyFloats:
        out = np.empty((len(server), dimension), dtype=self._dtype)
        if self.fill is not None:
            self.fill(server[bounds[:-1]], bounds, round, out)
            return out
        for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            self._stream(int(server[start]), round).standard_normal(out=out[start:stop], dtype=self._dtype)
        return out

    def _draw_round(self, block: int, within: int, dimension: int) -> AnyFloats:
        """(server, participant, d) for a round of a block."""
        if self._cached is None or self._cached[0] != block:
            self._cached = (block, self._draw_block(block, dimension))
        return np.asarray(self._cached[1][within])

    def _draw_block(self, block: int, dimension: int) -> AnyFloats:
        """(round of the block, server, participant, d), so that a round lies together."""
        shape = (self._rounds, self._rows or 0, dimension)
        out = np.empty((self._rounds, self._layout.servers, *shape[1:]), dtype=self._dtype)
        for server in range(self._layout.servers):
            out[:, server] = self._stream(server, block).standard_normal(shape, dtype=self._dtype)
        return out

    def _stream(self, server: int, round: int) -> np.random.Generator:
        if not hasattr(self._own, "streams"):
            self._own.streams = Streams(self._seed, Purpose.PRIVACY_NOISE)
        streams: Streams = self._own.streams
        run, own = self._layout.server_keys[server]
        return streams.at(run, own, round)


def _run_bounds(values: Ints) -> Ints:
    """Return where each run of equal values begins, and the end."""
    begins = np.ones(len(values) + 1, dtype=bool)
    np.not_equal(values[1:], values[:-1], out=begins[1:-1])
    return np.flatnonzero(begins) if len(values) else np.zeros(1, dtype=np.int64)


def constrain(objectives: Objectives, privacy: Privacy | None) -> Objectives:
    """Return the objectives with the constraints that their guarantee needs."""
    if privacy is None:
        return objectives
    if isinstance(objectives, Objective):
        return privacy.constrained(objectives)
    return {name: privacy.constrained(objective) for name, objective in objectives.items()}


@dataclass(frozen=True)
class Calibration:
    """The plan of all clients, and the source of the noise: of each client's, or of each pair's."""

    plan: Plan
    noise: NoiseSource | None = None
    pair_noise: PairNoise | None = None


def calibrate(
    layout: Layout, algorithm: Algorithm, objectives: Objectives, privacy: Privacy, options: TrainingOptions
) -> Calibration:
    """Return what a private training of this layout needs."""
    from pgfl.privacy.mechanism import Pace
    from pgfl.privacy.noise import SecureNoise, SeededNoise

    trust = privacy.trusted
    trust.check(algorithm)
    deltas = _sensitivities(layout, algorithm, objectives, privacy, options)
    secure = privacy.noise_for(layout.runs[0].federation) == "secure"
    if trust.aggregates:
        return _calibrate_pairs(layout, privacy, options, deltas, secure)
    normals = ServerNormals(layout, options.participants, options.seed, options.dtype, fill=_fill(layout, options))
    noise = SecureNoise(layout.model_length) if secure else SeededNoise(normals)
    plan = privacy.plan(noise.widen(deltas), options.rounds)
    if (delays := options.delays) is not None:
        slow = delays.slow(layout.members, layout.server_keys, options.seed)
        plan.pace = Pace(slow, plan.budget.at_pace(delays.rounds + 1))
    noise.check(plan.least_sigma)
    return Calibration(plan, noise)


def _fill(layout: Layout, options: TrainingOptions) -> FillRows | None:
    return engine_kind(options.performance.engine).fill_rows(layout, options.seed, options.dtype)


def _calibrate_pairs(
    layout: Layout, privacy: Privacy, options: TrainingOptions, deltas: Floats, secure: bool
) -> Calibration:
    """Return the calibration where the clients of a pair share their noise."""
    from pgfl.privacy import lattice
    from pgfl.privacy.trust import LatticePairNoise, SeededPairNoise, SharedNoise

    trust, most = privacy.trusted, None if options.participants == "all" else options.participants
    shared = SharedNoise(trust, layout.client_pair, most, layout.model_length if secure else 0)
    noise: PairNoise
    if secure:
        noise, deltas = LatticePairNoise(trust, shared.least_share), lattice.widened(deltas, layout.model_length)
    else:
        drawn_for, fill = layout.pair_server, _fill(layout, options)
        noise = SeededPairNoise(trust, ServerNormals(layout, "all", options.seed, options.dtype, drawn_for, fill))
    plan = privacy.plan(deltas, options.rounds, shared)
    noise.check(plan.least_sigma)
    return Calibration(plan, pair_noise=noise)


def _sensitivities(
    layout: Layout, algorithm: Algorithm, objectives: Objectives, privacy: Privacy, options: TrainingOptions
) -> Floats:
    deltas = np.empty(layout.clients)
    for run in layout.runs:
        cluster = run.federation.client_cluster[run.order]
        for q in np.unique(cluster):
            objective = objective_of(objectives, run.federation.cluster_ids[q])
            chosen = np.flatnonzero(cluster == q) + run.clients.start
            counts = layout.counts[chosen]
            modulus = algorithm.client_rule.modulus(objective.lam, layout.server_clients[chosen], counts)
            tolerance = tolerance_for(objective, options.dtype, np)
            deltas[chosen] = privacy.sensitivity(objective, algorithm, counts, modulus, tolerance)
    return deltas
