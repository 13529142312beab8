"""One simulator for every use: federations, an algorithm and objectives in; rounds, and observers of them, out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from pgfl import equations as eq
from pgfl.algorithms.algorithms import Algorithm
from pgfl.algorithms.schedules import Delays, Scheduler
from pgfl.arrays import AnyArray, Array, Bools, Ints, Namespace
from pgfl.federation.federation import Federation
from pgfl.results.result import EndedBy, RunModels
from pgfl.results.result import Network as Placement
from pgfl.simulate.array_engines import array_blocks
from pgfl.simulate.communicator import SINGLE_PROCESS, Communicator, Gathering
from pgfl.simulate.delays import DelayedEngine
from pgfl.simulate.draws import Calibration, calibrate, constrain
from pgfl.simulate.engine import Draw, Engine, PairReleaser, Releaser, Spent, State
from pgfl.simulate.engines import Setup, choose_engine, engine_kind
from pgfl.simulate.layout import Layout, RunLayout, lay_out
from pgfl.simulate.monitor import Monitor
from pgfl.simulate.neighbourhoods import Network
from pgfl.simulate.observers import Observer
from pgfl.simulate.options import TrainingOptions
from pgfl.simulate.problems import Objectives, model_length, objective_of, with_weights
from pgfl.simulate.recorder import Recorder

if TYPE_CHECKING:
    from pgfl.privacy.mechanism import Plan


@dataclass(frozen=True)
class Replay:
    """Participants, noise and spent clients that were recorded elsewhere, all by the clients' ids."""

    participants: Callable[[int], Collection[str]]  # of a round
    noise: Callable[[int, str], Array | None] | None = None  # of a round and a client; None is no noise
    spent: Callable[[int], Collection[str]] | None = None  # who can never contribute again, from a round on
    pair_noise: Callable[[int, str, str], Array | None] | None = None  # of a round, a server and a cluster's mean


class Simulator:
    """Run rounds of one or several runs at once, and call the observers.

    The first federation is run number `first_run`. A `replay` takes the place of the random draws. On several
    processes `federations` hold the own clients of each run and `owners` the process of every server. `xp` is the array
    library where it is not the engine's.

    >>> from pgfl import PGFL, Ridge, synthetic_regression
    >>> federation = synthetic_regression(servers=4, clients_per_server=6, dimension=5, samples=(4, 8), seed=1)
    >>> simulator = Simulator([federation], PGFL(), Ridge(), TrainingOptions(rounds=3))
    >>> simulator.run().round
    3
    >>> simulator.models().servers.shape
    (12, 5)
    """

    def __init__(
        self,
        federations: Sequence[Federation],
        algorithm: Algorithm,
        objectives: Objectives,
        options: TrainingOptions | None = None,
        *,
        observers: Sequence[Observer] = (),
        first_run: int = 0,
        replay: Replay | None = None,
        communicator: Communicator = SINGLE_PROCESS,
        owners: Sequence[Ints] | None = None,
        xp: Namespace | None = None,
    ) -> None:
        self.options, self.algorithm, self.communicator = options or TrainingOptions(), algorithm, communicator
        self.observers: list[Observer] = list(observers)
        for federation in federations:
            objectives = with_weights(objectives, federation, self.options.privacy, communicator)
        self.objectives = constrain(objectives, self.options.privacy)
        if xp is None:
            self.options = choose_engine(self.options, algorithm, self.objectives, federations[0], communicator)
        self._kind = engine_kind(self.options.performance.engine)
        self._xp = self._kind.namespace() if xp is None else xp
        length, bounded = communicator.collective(lambda: self._checked(federations))
        self.layout = lay_out(bounded, first_run, algorithm.server_rule.personalised, owners, communicator, length)
        private = self._privacy()
        self.plan = private.plan if private else None
        self.engine = self._engine(private, replay)
        self._foreseen: tuple[int, Bools | None] | None = None
        self._spent_seen: Bools | None = None
        self.ended_by: EndedBy | None = None
        self.spent_at: list[int | None] = [None] * len(self.layout.runs)

    @property
    def state(self) -> State:
        """The models of clients and servers after the last round."""
        return self.engine.state

    @property
    def network(self) -> Network:
        """What every server knows."""
        return self.engine.network

    @property
    def noise(self) -> str | None:
        """The kind of noise: "seeded", "secure", or None without privacy."""
        privacy = self.options.privacy
        return privacy.noise_for(self.layout.runs[0].federation) if privacy else None

    @cached_property
    def monitor(self) -> Monitor:
        """Follows the server models for the verdict; it is an observer as well."""
        return Monitor(self, stops=self.options.stop == "converged")

    @cached_property
    def recorder(self) -> Recorder:
        """Measures the current state; it is an observer as well."""
        options = self.options
        return Recorder(self.engine, self.objectives, options.metrics, options.record_every, options.rounds)

    def run_round(self) -> State:
        """Run one round, and call the observers."""
        state = self.engine.run_round()
        self._check_end()
        for observer in self.observers:
            observer.on_round(self)
        return state

    def run(self, rounds: int | None = None) -> State:
        """Run until a round is reached (the options' last one unless another is given), or training ends before."""
        last, state = self.options.rounds if rounds is None else rounds, self.state
        self._spent_seen = None
        self._check_end()
        for observer in self.observers:
            observer.on_start(self)
        while state.round < last and self.ended_by is None:
            state = self.run_round()
        if self.ended_by != "diverging":
            self.engine.check_finite()
        for observer in self.observers:
            observer.on_end(self)
        return state

    def end(self, reason: EndedBy) -> None:
        """Stop after this round; observers call this."""
        self.ended_by = reason

    def _check_end(self) -> None:
        """Note which runs are over because no client of any process can ever contribute again; then freeze them.

        `spent_at` is the last round of each run that is over. Training is `ended_by` the budget once all runs are.
        """
        round, runs = self.state.round, self.layout.runs
        if self.plan is None or round >= self.options.rounds:
            return
        spent = self.plan.spent_if_any(round + 1)
        self._foreseen = (round + 1, spent)
        if self.communicator.size == 1 and spent is self._spent_seen:
            return
        self._spent_seen = spent
        able = np.ones(self.layout.clients, dtype=bool) if spent is None else ~spent
        left = self.communicator.sum([np.count_nonzero(able[run.clients]) for run in runs])
        for number, clients in enumerate(left.tolist()):
            if not clients and self.spent_at[number] is None:
                self.spent_at[number] = round
        over = np.array([at is not None for at in self.spent_at])
        if over.all():
            self.end("budget")
        elif over.any():
            self.engine.frozen = np.repeat(over, [run.pairs.stop - run.pairs.start for run in runs])

    def _spent_from(self, round: int) -> Bools | None:
        """Return who can never contribute again from a round on, if anyone; usually seen when the last round ended."""
        assert self.plan is not None
        foreseen, self._foreseen = self._foreseen, None
        return foreseen[1] if foreseen is not None and foreseen[0] == round else self.plan.spent_if_any(round)

    def close(self) -> None:
        """Free what only further rounds need; models and accounts stay."""
        self.engine.close()

    def models(self, run: int = 0, gathering: Gathering | None = None) -> RunModels:
        """Return the current models of a run (counted from this simulator's first), in the order of its federation."""
        place, state, layout = self.layout.runs[run], self.state, self.layout
        gathered, federation = gathering or self.gathering(run), place.federation
        clean = np.asarray(state.model[place.clients])[place.position]
        released = None if self.plan is None else self._released(place, self.plan)
        own = np.flatnonzero(layout.own_server[layout.pair_server[place.pairs]]) + place.pairs.start
        server = layout.server_number[layout.pair_server[own]]
        pairs = (server, layout.pair_cluster[own], np.asarray(state.server_models)[own], self.network.known[own])
        if not self.algorithm.server_rule.personalised:
            pairs = _for_every_cluster(*pairs, clusters=len(federation.cluster_ids))
        pair_server, pair_cluster, servers, present = gathered.pairs(*pairs)
        return RunModels(
            clients=None if self.noise == "secure" else gathered.clients(clean),
            released=None if released is None else gathered.clients(released),
            pair_server=pair_server,
            pair_cluster=pair_cluster,
            servers=servers,
            present=present,
            network=Placement(
                gathered.clients(federation.client_server),
                gathered.clients(federation.client_cluster),
                federation.graph.edges,
            ),
            encoding=federation.encoding,
        )

    def weights(self, run: int = 0) -> AnyArray | None:
        """Return what clusters have in each other's models, averaged over servers; None where it is not learned."""
        rule, layout, place = self.algorithm.server_rule, self.layout, self.layout.runs[run]
        shares = rule.settled_shares(self.state.servers, self.network)  # type: ignore[arg-type]
        if shares is None:
            return None
        rows, count = self.network.server_rows, len(place.federation.cluster_ids)
        own = np.flatnonzero(layout.own_server[place.servers]) + place.servers.start
        total, seen = np.zeros((count, count)), np.zeros((count, 1))
        for server in own.tolist():
            here = np.flatnonzero(rows[server] < layout.pairs)
            clusters = layout.pair_cluster[rows[server, here]]
            total[np.ix_(clusters, clusters)] += np.asarray(shares[server])[np.ix_(here, here)]
            seen[clusters] += 1.0
        summed = self.communicator.sum(np.concatenate([total, seen], axis=1))
        return np.asarray(summed[:, :-1] / np.maximum(summed[:, -1:], 1.0))

    def account(self, run: int = 0, gathering: Gathering | None = None) -> dict[str, AnyArray]:
        """Return the privacy account of a run: one row per client."""
        assert self.plan is not None
        place, gathered = self.layout.runs[run], gathering or self.gathering(run)
        table = self.plan.table(self.state.round)
        columns = {name: gathered.clients(values[place.clients][place.position]) for name, values in table.items()}
        return {"client": np.array(gathered.client_ids, dtype=np.str_)} | columns

    def gathering(self, run: int = 0) -> Gathering:
        """Return what brings the rows of all processes together."""
        return self.communicator.gathering(self.layout.runs[run].federation, None)

    def _released(self, place: RunLayout, plan: Plan) -> AnyArray:
        """Return the last released model of every client; NaN for one that never took part."""
        released = np.array(self.state.released[place.clients])[place.position]
        released[plan.releases[place.clients][place.position] == 0] = np.nan
        return released

    def _checked(self, federations: Sequence[Federation]) -> tuple[int, list[Federation]]:
        """Return the length of a model, and the federations within the bounds of privacy."""
        length = model_length(self.objectives, federations[0])
        return length, [self._bounded(federation) for federation in federations]

    def _bounded(self, federation: Federation) -> Federation:
        """Return the federation within the bounds of privacy, with targets that its objectives can use."""
        privacy = self.options.privacy
        bounded = privacy.bounded(federation, self.options.dtype) if privacy else federation
        self._check_targets(bounded)
        return bounded

    def _check_targets(self, federation: Federation) -> None:
        suitable = np.ones(len(federation.targets), dtype=bool)
        for q, name in enumerate(federation.cluster_ids):
            mine = np.repeat(federation.client_cluster == q, federation.counts)
            suitable[mine] = objective_of(self.objectives, name).suitable(federation.targets[mine])
        if not suitable.all():
            client = int(np.searchsorted(federation.offsets, np.argmin(suitable), side="right")) - 1
            objective = objective_of(self.objectives, federation.cluster_ids[federation.client_cluster[client]])
            objective.check_targets(federation.rows(client)[1], f"Client {federation.client_id(client)}: ")

    def _privacy(self) -> Calibration | None:
        options, privacy = self.options, self.options.privacy
        if privacy is None:
            return None
        return self.communicator.collective(
            lambda: calibrate(self.layout, self.algorithm, self.objectives, privacy, options)
        )

    def _engine(self, private: Calibration | None, replay: Replay | None) -> Engine:
        options, layout = self.options, self.layout
        scheduler: Draw = Scheduler(options.participants, layout.members, layout.server_keys, options.seed)
        spent = self._spent_from if self.plan else None
        noise: Releaser | None = private.noise if private else None
        pair_noise: PairReleaser | None = private.pair_noise if private else None
        if replay is not None:
            recorded = scheduler = _RecordedParticipants(layout, replay)
            noise = noise if replay.noise is None else _RecordedNoise(layout, replay.noise)
            pair_noise = pair_noise if replay.pair_noise is None else _RecordedPairNoise(layout, replay.pair_noise)
            spent = spent if replay.spent is None else recorded.spent
        numbers = int(layout.counts.sum()) * layout.runs[0].federation.dimension
        threads = options.performance.threads or self._kind.useful_threads(numbers)
        setup = Setup(layout, self.objectives, self.algorithm, options, self._xp, threads)
        if options.delays is not None:
            return self._delayed_engine(setup, options.delays, noise, spent)
        engine, blocks = self._kind.prepare(setup)
        return engine(
            layout,
            blocks,
            self.algorithm,
            scheduler,
            privacy=self.plan,
            noise=noise,
            pair_noise=pair_noise,
            spent=spent,
            dtype=options.dtype,
            xp=self._xp,
            threads=threads,
            communicator=self.communicator,
        )

    def _delayed_engine(self, setup: Setup, delays: Delays, noise: Releaser | None, spent: Spent | None) -> Engine:
        layout, seed = self.layout, self.options.seed
        slow = delays.slow(layout.members, layout.server_keys, seed)
        return DelayedEngine(
            layout,
            array_blocks(setup),
            self.algorithm,
            slow,
            delays.rounds,
            privacy=self.plan,
            noise=noise,
            spent=spent,
            dtype=self.options.dtype,
            threads=setup.threads,
            communicator=self.communicator,
        )


def _for_every_cluster(
    server: AnyArray, cluster: AnyArray, *rows: AnyArray, clusters: int
) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray]:
    """Return one model for all clusters of a server, as one row for each of them."""
    models, present = (np.repeat(values, clusters, axis=0) for values in rows)
    return np.repeat(server, clusters), np.tile(np.arange(clusters), len(cluster)), models, present


class _RecordedParticipants:
    """A schedule that lets the recorded clients take part, and knows which of them were spent."""

    def __init__(self, layout: Layout, replay: Replay) -> None:
        (run,) = layout.runs
        self._participants, self._spent = replay.participants, replay.spent
        self._place = {run.federation.client_id(client): place for place, client in enumerate(run.order.tolist())}

    def draw(self, round: int) -> Ints:
        """Return the flat places of the clients that took part."""
        return np.sort(self._places(self._participants(round)))

    def spent(self, round: int) -> Bools:
        """Return which clients were spent before a round."""
        found = np.zeros(len(self._place), dtype=bool)
        found[self._places(self._spent(round) if self._spent else ())] = True
        return found

    def _places(self, names: Collection[str]) -> Ints:
        return np.array([self._place[name] for name in names], dtype=np.int64)


class _RecordedNoise:
    """A source of noise that adds the recorded noise."""

    def __init__(self, layout: Layout, noise: Callable[[int, str], Array | None]) -> None:
        (run,) = layout.runs
        self._run, self._noise = run, noise

    def release(self, models: Array, sigma: Array, clients: Ints, round: int) -> Array:
        """Return the models with the noise of their clients in this round."""
        names = [self._run.federation.client_id(int(client)) for client in self._run.order[clients]]
        drawn = [self._noise(round, name) for name in names]
        noise = np.array([np.zeros(models.shape[1]) if row is None else row for row in drawn])
        return eq.privacy_noise_addition(models, noise)


class _RecordedPairNoise:
    """Adds the recorded noise to the means of pairs."""

    def __init__(self, layout: Layout, noise: Callable[[int, str, str], Array | None]) -> None:
        self._layout, self._noise = layout, noise

    def release(self, models: Array, means: Array, starts: Ints, sigma: Array, pairs: Ints, round: int) -> Array:
        """Return the means with the noise of their pairs in this round."""
        layout, (run,) = self._layout, self._layout.runs
        servers = layout.server_number[layout.pair_server[pairs]].tolist()
        clusters = layout.pair_cluster[pairs].tolist()
        drawn = [
            self._noise(round, run.federation.server_ids[server], run.federation.cluster_ids[cluster])
            for server, cluster in zip(servers, clusters, strict=True)
        ]
        noise = np.array([np.zeros(means.shape[1]) if row is None else row for row in drawn])
        return eq.privacy_noise_addition(means, noise)
