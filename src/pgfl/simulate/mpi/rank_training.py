"""Training on many ranks: every rank plays its own servers' clients, and a round is one neighbourhood collective.

The results are the same bits as those of the numpy engine on one process, however many ranks there are: draws are keyed
by server, sums over a neighbourhood keep their order, and histories are sums that do not depend on order (`Totals`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from pgfl.core.algorithms import Algorithm, Neighbourhood, ServerState
from pgfl.core.federation import Federation
from pgfl.errors import ConfigError
from pgfl.privacy.mechanism import Plan
from pgfl.results.result import Network as Placement
from pgfl.results.result import RunModels
from pgfl.simulate import memory
from pgfl.simulate.engine import AnyBlock, Engine
from pgfl.simulate.flat_layout import Layout, RunLayout
from pgfl.simulate.mpi.communicator import Agreed, Ranks
from pgfl.simulate.mpi.halo import Halo, RankLayout, lay_out_rank
from pgfl.simulate.mpi.rank_checkpoint import RankCheckpoints
from pgfl.simulate.neighbourhoods import NeighbourhoodOfPairs
from pgfl.simulate.problems import Objectives
from pgfl.simulate.recorder import Recorder
from pgfl.simulate.totals import Totals
from pgfl.simulate.training import Batch, Progress, Settings, Training

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class RankEngine(Engine):
    """Plays the rounds of one rank's servers; an engine with other kernels follows it in the order of methods."""

    def __init__(self, ranks: Ranks, layout: RankLayout, *parts: Any, **options: Any) -> None:
        super().__init__(layout, *parts, **options)
        self._ranks = ranks
        self.halo = Halo(layout, ranks, layout.runs[0].federation.dimension, self.dtype)

    def _exchange(self, aggregate: Any, contributing: Mask) -> tuple[ServerState, Any, NeighbourhoodOfPairs]:
        """Publish, hear what the neighbouring ranks published, then see who hears whom."""
        network = self.network
        servers, published = self.algorithm.publish(self.state.servers, aggregate, cast(Neighbourhood, network))
        heard = self.halo.exchange(published, network.published(contributing))
        if not network.complete:
            known = network.known.copy()
            known[self.halo.borrowed] = heard
            network.known = known
        return servers, published, network.neighbourhood(contributing)

    def check_finite(self) -> None:
        """Raise `Diverged` on all ranks if a model of any has left the finite numbers."""
        self._ranks.together(super().check_finite)

    def close(self) -> None:
        """Let go of threads and of what MPI holds."""
        super().close()
        self.halo.close()


class RankTotals(Totals):
    """Sums over all ranks."""

    def __init__(self, layout: Layout, ranks: Ranks) -> None:
        super().__init__(layout)
        self.largest, self.added = ranks.largest, ranks.added  # type: ignore[method-assign]


class RankTraining(Training):
    """Plays all runs, one at a time, on all ranks; the first rank has the whole result.

    `owner_of` gives the rank of every server of a run, `federation_of` this rank's part of it. `folder` is where arrays
    that are too large for one rank's memory are put together.
    """

    def __init__(
        self,
        ranks: Ranks,
        owner_of: Callable[[int], Ints],
        federation_of: Callable[[int], Federation],
        algorithm: Algorithm,
        objectives: Objectives,
        settings: Settings,
        checkpoints: RankCheckpoints | None = None,
        progress: Progress | None = None,
        folder: Path | None = None,
    ) -> None:
        if "distance" in settings.metrics:
            raise Agreed(
                ConfigError(
                    'The metric "distance" needs all data in one place; take it out of `metrics` with engine = "mpi".'
                )
            )
        super().__init__(federation_of, algorithm, objectives, settings, checkpoints, progress)
        self.ranks, self.owner_of, self._folder = ranks, owner_of, folder
        self._ids: list[str] = []
        self._places: list[Ints] | None = None

    def _batches(self) -> list[range]:
        first = self._first_federation = self._bounded(0)
        self.ranks.together(lambda: memory.check(self._shape(first, self.ranks.beside), held=first.features.nbytes))
        self._warn(first)
        return [range(run, run + 1) for run in range(self.settings.runs)]

    def _shape(self, federation: Federation, together: int) -> memory.Shape:
        """What this rank holds; those beside it on the machine hold as much."""
        shape = super()._shape(federation, together)
        return replace(shape, pairs=shape.pairs // self.ranks.size)

    def _bounded(self, run: int) -> Federation:
        self.owner_of(run)

        def read() -> Federation:
            federation = super(RankTraining, self)._bounded(run)
            super(RankTraining, self)._check_targets(federation)
            return federation

        return self.ranks.together(read)

    def _check_targets(self, federation: Federation) -> None:
        """Checked when the part was read, where all ranks can agree on an error."""

    def _lay_out(self, federations: list[Federation], first_run: int) -> Layout:
        owner = self.owner_of(first_run)
        return lay_out_rank(federations[0], first_run, owner, self.ranks, self.algorithm.personalised)

    def _privacy(self, layout: Layout) -> tuple[Plan | None, Any]:
        privacy: Callable[[Layout], tuple[Plan | None, Any]] = super()._privacy
        return self.ranks.together(lambda: privacy(layout))

    def _engine(self, layout: Layout, threads: int) -> tuple[type[Engine], Sequence[AnyBlock]]:
        kernels, blocks = super()._engine(layout, threads)
        kind = type("RankEngine", (RankEngine, kernels), {}) if kernels is not Engine else RankEngine
        return cast(type[Engine], partial(kind, self.ranks)), blocks

    def _recorder(self, engine: Engine) -> Recorder:
        return Recorder(engine, self.objectives, self.settings.metrics, RankTotals(engine.layout, self.ranks))

    def _server_sizes(self, federation: Federation) -> Ints:
        return self.ranks.added(federation.server_sizes)

    def _most_records(self, federation: Federation) -> int:
        return int(self.ranks.largest([super()._most_records(federation)])[0])

    def _client_ids(self, federation: Federation) -> Sequence[str]:
        return self._ids

    def _latest(self, recorder: Recorder, plan: Plan | None) -> dict[str, Any]:
        """The measures, which are the whole run's; the spending here would be one rank's."""
        info = super()._latest(recorder, plan)
        info.pop("epsilon", None)
        return info

    def _models(self, batch: Batch, run: RunLayout) -> RunModels:
        """The models of all ranks' clients and servers, in the order of the whole federation; on the first rank."""
        self._gather_places(run.federation)
        here, layout = super()._models(batch, run), batch.layout
        assert isinstance(layout, RankLayout)
        server = layout.numbers[here.pair_server]
        own = layout.owner[server] == self.ranks.rank
        numbers = self.ranks.comm.gather((server[own], here.pair_cluster[own]))
        pair_server, pair_cluster = map(np.concatenate, zip(*numbers, strict=True)) if numbers else ((), ())
        order = np.lexsort((pair_cluster, pair_server))
        places = _split(np.argsort(order), [len(part) for part, _ in numbers]) if numbers else None
        placed = run.federation
        return RunModels(
            clients=None if here.clients is None else self._of_clients(here.clients),
            released=None if here.released is None else self._of_clients(here.released),
            pair_server=np.asarray(pair_server)[order],
            pair_cluster=np.asarray(pair_cluster)[order],
            servers=self.ranks.collected(here.servers[own], places, self._folder),
            present=self.ranks.collected(here.present[own], places, self._folder),
            network=Placement(
                self._of_clients(placed.client_server), self._of_clients(placed.client_cluster), placed.graph.edges
            ),
        )

    def _account(self, batch: Batch, run: RunLayout) -> dict[str, NDArray[Any]]:
        """The privacy account of all ranks' clients."""
        table = super()._account(batch, run)
        del table["client"]
        ids = {"client": np.array(self._ids, dtype=np.str_)}
        return ids | {name: self._of_clients(values) for name, values in table.items()}

    def _of_clients(self, values: NDArray[Any]) -> Any:
        return self.ranks.collected(values, self._places, self._folder)

    def _gather_places(self, federation: Federation) -> None:
        """The first rank learns where every rank's clients are among all: in the order of their ids as text."""
        gathered = self.ranks.comm.gather(federation.client_ids)
        if gathered is None:
            return
        names = [name for part in gathered for name in part]
        order = sorted(range(len(names)), key=names.__getitem__)
        self._ids = [names[index] for index in order]
        place = np.empty(len(names), dtype=np.int64)
        place[order] = np.arange(len(names))
        self._places = _split(place, [len(part) for part in gathered])


def _split(values: Ints, sizes: Sequence[int]) -> list[Ints]:
    return np.split(values, np.cumsum(sizes)[:-1])
