"""`train`: a federation, an algorithm and an objective in; a result out.

What `train` is given, checked before anything is computed: one sentence for each usual mistake.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pgfl import __version__
from pgfl.algorithms.algorithms import PGFL, Algorithm, stated_rho
from pgfl.algorithms.schedules import Library, Participants, Stop
from pgfl.arrays import AnyArray, DTypeLike, Ints
from pgfl.errors import PrivacyError, UsageError
from pgfl.federation.federation import Federation
from pgfl.metrics import MEASURES, check_wanted
from pgfl.objectives import Objective, Ridge
from pgfl.privacy.card import PrivacyCard
from pgfl.privacy.carried import Statement
from pgfl.privacy.discovery import rest_of
from pgfl.privacy.request import Privacy
from pgfl.results.evidence import Evidence, weigh
from pgfl.results.measures import ClientFigures, Measured, over_runs
from pgfl.results.model import Model
from pgfl.results.result import Columns, EndedBy, Result, RunModels
from pgfl.results.verdict import Verdict, worst_of_runs
from pgfl.results.weights import weights_table
from pgfl.simulate import memory
from pgfl.simulate.alternatives import alternatives
from pgfl.simulate.checkpoint import Checkpoints
from pgfl.simulate.communicator import SINGLE_PROCESS, Communicator, Gathering
from pgfl.simulate.continuing import Continuation, state_of
from pgfl.simulate.curvature import with_curvature
from pgfl.simulate.discovery import Charge, Discovery, check_discovery, found_before
from pgfl.simulate.discovery import discover as discover_clusters
from pgfl.simulate.engines import check_engine, choose_engine, engine_kind
from pgfl.simulate.inference import SEARCHED, SEVERAL_PROCESSES, fits
from pgfl.simulate.notices import warnings
from pgfl.simulate.observers import Observer
from pgfl.simulate.options import Performance, TrainingOptions, as_metrics
from pgfl.simulate.predictions import points
from pgfl.simulate.private_inference import NoisePath, private_fits
from pgfl.simulate.problems import Objectives, check_clusters, classes_of, objective_of, with_classes
from pgfl.simulate.progress import notebook_bar
from pgfl.simulate.recorder import columns
from pgfl.simulate.rho import with_count, with_rho
from pgfl.simulate.simulator import Simulator
from pgfl.suggestions import friendly_signature, kind_of

if TYPE_CHECKING:
    from pgfl.privacy.request import Privacy
    from pgfl.results.state import RecordDigests, TrainingState
    from pgfl.simulate.checkpoint import Checkpoints


ORDER = "train(federation, algorithm, objective)"
PLACES: dict[type, str] = {Federation: "first", Algorithm: "second", Objective: "third"}


def check_federation(federation: object) -> None:
    """Raise unless it is a federation, or a function that makes one for a run."""
    if isinstance(federation, Federation):
        return
    if isinstance(federation, type) or not callable(federation):
        raise UsageError(
            f"The first argument of {ORDER} is a federation, or a function that makes one; got {kind_of(federation)}"
            f"{_advice(federation, Federation)}."
        )
    try:
        inspect.signature(federation).bind(0)
    except TypeError:
        raise UsageError(
            "A function that makes federations takes the number of the run; write `lambda run: …` or `def make(run)`."
        ) from None
    except ValueError:  # a callable without a signature
        return


def make_federation(federation_of: Callable[[int], object], run: int) -> Federation:
    """Return the federation that a function makes for a run."""
    made = federation_of(run)
    if not isinstance(made, Federation):
        raise UsageError(f"The function that makes federations returned {kind_of(made)}; return a Federation.")
    return made


def check_algorithm(algorithm: object) -> None:
    """Raise unless it is an algorithm or left out."""
    if algorithm is None or isinstance(algorithm, Algorithm):
        return
    raise UsageError(
        f"The second argument of {ORDER} is an algorithm such as PGFL(rho=5.0); got {kind_of(algorithm)}"
        f"{_advice(algorithm, Algorithm)}."
    )


def check_objective(objective: object) -> None:
    """Raise unless it is an objective, a mapping from clusters to objectives, or left out."""
    parts = list(objective.values()) if isinstance(objective, Mapping) else [objective]
    wrong = [part for part in parts if not isinstance(part, Objective)]
    if objective is None or (parts and not wrong):
        return
    got = kind_of(wrong[0]) if wrong else "a mapping without clusters"
    raise UsageError(
        f"The third argument of {ORDER} is an objective such as Ridge(lam=0.01), or a mapping from clusters to "
        f"objectives; got {got}{_advice(wrong[0], Objective) if wrong else ''}."
    )


def check_privacy(privacy: object) -> None:
    """Raise unless it is a `Privacy` or left out."""
    if privacy is None or isinstance(privacy, Privacy):
        return
    epsilon = privacy if isinstance(privacy, int | float) and not isinstance(privacy, bool) else 4.0
    example = f"Privacy(epsilon={epsilon}, max_releases=50)"
    raise UsageError(f"privacy takes a Privacy; got {kind_of(privacy)}: write privacy={example}.")


def check_start(start: object, new_clients: object = (), moved_records: object = None) -> None:
    """Raise unless it is an earlier result or left out; and for statements about it that are none."""
    if isinstance(new_clients, str) or not isinstance(new_clients, Collection):
        raise UsageError(f"new_clients takes a list of names; got {kind_of(new_clients)}.")
    if moved_records is not None and not isinstance(moved_records, bool):
        raise UsageError(f"moved_records takes True, False or None; got {kind_of(moved_records)}.")
    if start is None and (new_clients or moved_records is not None):
        raise UsageError("new_clients and moved_records are about an earlier result; give it as start.")
    if start is None or isinstance(start, Result):
        return
    advice = f": write start=Result.load({str(start)!r})" if isinstance(start, str | Path) else ""
    raise UsageError(f"start takes the Result of an earlier training; got {kind_of(start)}{advice}.")


def check_spent_once(federation: Federation, privacy: Privacy | None, runs: int) -> None:
    """Raise if several runs would release models of the same records, with noise that is meant for real use."""
    if privacy is not None and runs > 1 and not federation.generated and privacy.noise_for(federation) == "secure":
        raise PrivacyError(
            f"runs = {runs} releases models of the same records {runs} times, and each time spends the budget; train "
            'once, or with noise="seeded" for a simulation that is not shared.'
        )


def check_helpers(checkpoints: object, progress: object, observers: object = ()) -> None:
    """Raise for checkpoints, a progress report and observers that cannot be used."""
    if checkpoints is not None and not isinstance(checkpoints, Checkpoints):
        raise UsageError(
            f"checkpoints takes a Checkpoints; got {kind_of(checkpoints)}: write "
            "checkpoints=Checkpoints(folder, fingerprint, every=10), from pgfl.simulate.checkpoint."
        )
    if progress is not None and progress is not False and not callable(progress):
        raise UsageError(
            "progress takes a function of the rounds done, the rounds in all and the news, or False for no bar in "
            f"notebooks; got {kind_of(progress)}."
        )
    for one in observers if isinstance(observers, Sequence) else (observers,):
        if not isinstance(one, Observer):
            raise UsageError(f"observers takes a list of objects whose class extends Observer; got {kind_of(one)}.")


def _advice(value: object, wanted: type) -> str:
    """Return what to do with a value that is not what was wanted: put it elsewhere, or make an object of its class."""
    if place := next((place for kind, place in PLACES.items() if isinstance(value, kind)), None):
        return f", which comes {place}"
    if wanted is Federation:
        return "; make one with Federation.from_clients, Federation.read or synthetic_regression"
    return f"; write {value.__name__}()" if isinstance(value, type) and issubclass(value, wanted) else ""


Progress = Callable[[int, int, dict[str, Any]], None]
FederationOfRun = Callable[[int], Federation]
OwnersOfRun = Callable[[int], Ints | None]
OTHER_SEEDS = 1 << 62  # the common model of cluster discovery draws from streams of its own
BATCH_ELEMENTS = 2**18  # elements of features that are run together: more do not stay in cache
BETWEEN_REPORTS = 0.1  # seconds
PROGRESS = ("nmsd", *MEASURES.built_in)
MEMORY_SHOWN = 2**30  # bytes; the progress display shows memory above this size


@friendly_signature("train(federation, PGFL(), Ridge(), rounds=30)")
def train(
    federation: Federation | FederationOfRun,
    algorithm: Algorithm | None = None,
    objective: Objectives | None = None,
    *,
    rounds: int = TrainingOptions.rounds,
    participants: Participants = TrainingOptions.participants,
    privacy: Privacy | None = None,
    seed: int = TrainingOptions.seed,
    runs: int = TrainingOptions.runs,
    record_every: int = TrainingOptions.record_every,
    metrics: Iterable[str] = TrainingOptions.metrics,
    engine: Library = Performance.engine,
    dtype: DTypeLike = TrainingOptions.dtype,
    threads: int | None = Performance.threads,
    stop: Stop = TrainingOptions.stop,
    checkpoints: Checkpoints | None = None,
    resume: bool = False,
    progress: Progress | Literal[False] | None = None,
    observers: Sequence[Observer] = (),
    start: Result | None = None,
    new_clients: Sequence[str] = (),
    moved_records: bool | None = None,
    discover: bool = TrainingOptions.discover,
) -> Result:
    """Train a model for every cluster of a federation.

    A federation is used for all `runs`, or a function gives each Monte Carlo run its own. `objective` is one for all
    clusters or a mapping from cluster ids. With `privacy` the clients' data is clipped to its bounds, releases are
    perturbed and counted, and a client whose budget is spent takes no further part.

    With `start`, an earlier result, training goes on from it for `rounds` more rounds: with more clients or rows if the
    federation has them, and with what every client has already spent. The budget stays that of the first run unless
    `privacy` states a larger epsilon. A client that was not there before starts with the largest earlier account, since
    its records may have been elsewhere; `new_clients` lists those of which no record was ever in this training. Where
    records may have gone from one client to another, `moved_records` has to say whether they have.

    Engines differ in speed, not in results: "numpy" needs nothing else, "numba" is fastest on CPUs and copies no large
    data, "jax" runs on accelerators, "debug" names the client in every error; "auto" is Numba where it is installed and
    pays off, else NumPy, and `result.engine` says which it was. `threads` is as many as pay off unless given; results
    do not depend on it.

    With `discover` the clusters of the federation are not used but found from the clients' data, and `result.clusters`
    says who is in which. With `start` they are kept, and clients that are new choose theirs.

    With `stop="converged"` a single run without privacy ends once its models have converged. `result.verdict` says
    whether they have; a single run that diverges is always stopped.

    In a notebook, training that takes longer than a moment shows a progress bar, unless `progress` is False. Elsewhere
    `progress` is a function of the rounds done, the rounds in all and the newest measures. `observers` are called at
    the start, after every round and at the end (see `Observer`).

    >>> from pgfl import PGFL, Ridge, synthetic_regression, train
    >>> federation = synthetic_regression(servers=4, clients_per_server=6, dimension=5, samples=(4, 8), seed=1)
    >>> result = train(federation, PGFL(rho=5.0, tau=0.2), Ridge(lam=0.01), rounds=40)
    >>> bool(result.curve("nmsd")[0, -1] < 0.1)
    True
    >>> result.client("client-03").shape
    (5,)
    """
    check_federation(federation)
    check_algorithm(algorithm)
    check_objective(objective)
    check_privacy(privacy)
    check_start(start, new_clients, moved_records)
    check_helpers(checkpoints, progress, observers)
    performance = Performance(engine, threads)
    options = TrainingOptions(
        rounds, participants, privacy, seed, runs, record_every, as_metrics(metrics), dtype, stop, performance, discover
    )
    with nullcontext(progress or None) if progress is not None else notebook_bar() as report:
        return train_runs(
            partial(make_federation, federation) if callable(federation) else lambda run: federation,
            algorithm or PGFL(),
            objective or Ridge(),
            replace(options, rounds=options.rounds + (0 if start is None else Continuation(start).round)),
            checkpoints=checkpoints,
            resume=resume,
            progress=report,
            observers=observers,
            start=start,
            stated=Statement(tuple(new_clients), moved_records),
        )


def train_runs(
    federation_of: FederationOfRun,
    algorithm: Algorithm,
    objectives: Objectives,
    options: TrainingOptions,
    *,
    checkpoints: Checkpoints | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    communicator: Communicator = SINGLE_PROCESS,
    owners_of: OwnersOfRun = lambda run: None,
    folder: Path | None = None,
    start: Result | None = None,
    stated: Statement | None = None,
    observers: Sequence[Observer] = (),
) -> Result:
    """Train all runs, some at a time; on several processes, only the first one has the whole result.

    There, `federation_of` gives this process's part of a run and `owners_of` the process of every server. Arrays too
    large for one process's memory are put together in files in `folder`. With `start` the rounds go on from an earlier
    result, and `options.rounds` counts its rounds too; `stated` is what the owner says about its records. `observers`
    are called after every round, last of all.
    """
    began = time.perf_counter()
    earlier = None if start is None else Continuation(start, folder, stated)
    options = options if earlier is None else earlier.options(options)
    communicator.collective(lambda: check_engine(options, communicator.size))
    owners_of(0)
    first = communicator.collective(lambda: _first_federation(federation_of, objectives, options))
    if options.privacy is not None:
        options = replace(options, privacy=options.privacy.completed(first.encoding))
    digests = None
    if options.privacy is not None and options.runs == communicator.size == 1:
        digests = _digests(first, options.privacy, earlier)
    check_wanted(options.metrics, [objective_of(objectives, name) for name in first.cluster_ids])
    objectives = communicator.collective(lambda: with_classes(objectives, first, options.privacy, communicator))
    algorithm = communicator.collective(lambda: with_count(algorithm, first, communicator))
    found = None
    if options.discover:
        communicator.collective(lambda: check_discovery(algorithm, objectives, options, communicator))
        if resume:
            raise UsageError("A run that finds clusters keeps no checkpoints; start it again in another folder.")
        checkpoints = None
        found = _found(first, algorithm, objectives, options, start, stated)
        if options.privacy is not None and start is None:
            options = replace(options, privacy=rest_of(options.privacy, found.reserved, options.rounds))
        if found.choice is not None and (round := found.choice.round(options.rounds)):
            parts, placed = replace(options, rounds=round, discover=False), found.federation
            watching = (Charge(found), *observers)
            begun = train_runs(lambda run: placed, algorithm, objectives, parts, progress=progress, observers=watching)
            if begun.ended_by is not None:  # it diverged, or nobody has anything left to spend
                return found.counted(begun)
            found, earlier = found.after_choice(begun), Continuation(begun)
        first = found.federation
    known = None if earlier is None else earlier.rho
    algorithm = communicator.collective(lambda: with_rho(algorithm, objectives, first, options, communicator, known))
    algorithm = communicator.collective(lambda: with_curvature(algorithm, objectives, first, options, communicator))
    notices: list[str] = []
    options = choose_engine(options, algorithm, objectives, first, communicator, notices)
    batches = _batches(first, objectives, options, communicator)
    notices += warnings(first, algorithm, objectives, options, communicator)
    trained = _ResultBuilder(first, objectives, options, notices)
    watching: list[Observer] = [checkpoints] if checkpoints else []
    watching += [_Reporter(progress)] if progress else []
    watching += observers
    path: NoisePath | None = None
    for numbers in batches:
        owners = [owners_of(run) for run in numbers]
        simulator = Simulator(
            communicator.collective(partial(_federations, first, federation_of, numbers)),
            algorithm,
            objectives,
            options,
            first_run=numbers.start,
            communicator=communicator,
            owners=None if owners[0] is None else [owner for owner in owners if owner is not None],
        )
        path = path or NoisePath.of(simulator)
        simulator.observers = [simulator.monitor, simulator.recorder, *([path] if path else []), *watching]
        if earlier is not None:
            trained.warnings += earlier.apply(simulator)
        if found is not None:
            found.charge(simulator)
        with checkpoints.running() if checkpoints else nullcontext():
            resumed = resume and checkpoints is not None and checkpoints.restore(simulator)
            if earlier is not None:
                earlier.claim(simulator, checkpoints, resumed)
            elif not resumed:
                simulator.recorder.record()
            simulator.run()
        trained.verdicts += simulator.monitor.verdicts(simulator)
        trained.keep_states(simulator, earlier)
        if simulator.ended_by == "budget":
            simulator.recorder.carry_on()
        simulator.close()
        trained.add(simulator, folder)
    result = trained.result(time.perf_counter() - began)
    result.digests = digests
    result = result if found is None else found.counted(result)
    if communicator.first:
        result.fits, result.fits_note = _fits(result, first, algorithm, objectives, options, communicator, path)
        if first.encoding is not None and options.metrics and options.privacy is None and not communicator.launched:
            result.alternatives = alternatives(Model.of(result), first, objectives, options.seed)
        result.seconds = time.perf_counter() - began
    return result if earlier is None else earlier.joined(result)


def _found(
    first: Federation,
    algorithm: Algorithm,
    objectives: Objectives,
    options: TrainingOptions,
    start: Result | None,
    stated: Statement | None,
) -> Discovery:
    """Return the clusters that were found before, or that are found at a model for all clients."""
    assert isinstance(objectives, Objective)
    if start is not None:
        return found_before(first, start, objectives, options, stated.new_clients if stated else ())

    def training(everyone: Federation, privacy: Privacy | None, observers: Sequence[Observer]) -> Result:
        plain = replace(options, privacy=privacy, metrics=(), record_every=options.rounds, discover=False)
        plain = replace(plain, seed=options.seed ^ OTHER_SEEDS, stop="never" if privacy else "converged")
        return train_runs(lambda run: everyone, algorithm, objectives, plain, observers=observers)

    return discover_clusters(first, objectives, options, training)


def _first_federation(federation_of: FederationOfRun, objectives: Objectives, options: TrainingOptions) -> Federation:
    """Return the federation of the first run, if the objectives and the privacy suit it."""
    first = federation_of(0)
    check_clusters(objectives, first.cluster_ids)
    check_spent_once(first, options.privacy, options.runs)
    return first


def _fits(
    result: Result,
    first: Federation,
    algorithm: Algorithm,
    objectives: Objectives,
    options: TrainingOptions,
    communicator: Communicator,
    path: NoisePath | None,
) -> tuple[Columns | None, str]:
    """Return the standard errors of the first run's coefficients, and a note on those that are missing."""
    if first.encoding is None or not first.encoding.is_additive:
        return None, ""
    if communicator.launched:
        return None, SEVERAL_PROCESSES
    model = Model.of(result)
    if options.privacy is not None:
        table, note = private_fits(path, model, options.privacy.bounded(first, options.dtype), objectives)
    else:
        rules = algorithm.client_rule, algorithm.server_rule
        table, note = fits(model, first, objectives, rules[0].full_records, rules[1].personalised)
    searched = table is not None and options.discover
    return table, " ".join(filter(None, (note, SEARCHED if searched else "")))


def _digests(first: Federation, privacy: Privacy, earlier: Continuation | None) -> RecordDigests | None:
    """Return the digests of all records so far, where noise protects them."""
    if privacy.noise_for(first) != "secure":
        return None
    from pgfl.results.state import RecordDigests

    digests = RecordDigests.of(first, None if earlier is None else earlier.start.digests)
    return digests if earlier is None else earlier.compare(digests)


def _federations(first: Federation, federation_of: FederationOfRun, numbers: range) -> list[Federation]:
    return [first if run == 0 else federation_of(run) for run in numbers]


def _batches(
    first: Federation, objectives: Objectives, options: TrainingOptions, communicator: Communicator
) -> list[range]:
    """Runs that are run together: about as many as stay in cache, and one at a time on several processes."""
    size = len(first.features) * first.dimension
    together = 1 if communicator.launched else max(1, min(options.runs, BATCH_ELEMENTS // max(size, 1)))
    shape = memory.Shape(
        clients=first.size,
        rows=len(first.features),
        dimension=first.dimension,
        pairs=len(first.server_ids) * min(len(first.cluster_ids), first.size) // communicator.size,
        runs_together=together * communicator.local_size,
        dtype=np.dtype(options.dtype).name,
        engine=options.performance.engine,
        private=options.privacy is not None,
        classes=classes_of(objectives) or 1,
        sparse_share=engine_kind(options.performance.engine).sparse_share(first.features, options.dtype),
    )
    communicator.collective(lambda: memory.check(shape, held=first.features.nbytes))
    return [range(start, min(start + together, options.runs)) for start in range(0, options.runs, together)]


@dataclass
class _ResultBuilder:
    """What is kept of the batches that have ended."""

    first: Federation
    objectives: Objectives
    options: TrainingOptions
    warnings: list[str]
    client_ids: Sequence[str] = ()
    rho: float | None = None
    models: list[RunModels] = field(default_factory=list)
    privacy: list[dict[str, AnyArray]] = field(default_factory=list)
    shown: list[dict[str, float]] = field(default_factory=list)
    clean: list[dict[str, float]] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    measures: list[list[Measured]] = field(default_factory=list)
    client_measures: dict[str, AnyArray] | None = None
    held_out: dict[str, AnyArray] | None = None
    states: list[TrainingState] = field(default_factory=list)
    noise: str | None = None
    terms: PrivacyCard | None = None
    spent_at: list[int | None] = field(default_factory=list)
    ended_by: list[EndedBy | None] = field(default_factory=list)
    weights: list[AnyArray] = field(default_factory=list)

    def keep_states(self, simulator: Simulator, earlier: Continuation | None) -> None:
        """Keep what further rounds of a batch would start from."""
        states = (state_of(simulator, run, earlier) for run in simulator.layout.runs)
        self.states += [state for state in states if state is not None]

    def add(self, simulator: Simulator, folder: Path | None) -> None:
        """Keep the models, accounts and measures of a batch."""
        self.rho = stated_rho(simulator.algorithm)
        self.noise = simulator.noise
        self.terms = simulator.plan.card(simulator.noise or "") if simulator.plan else None
        self.spent_at += simulator.spent_at
        self.ended_by.append(simulator.ended_by)
        for number, run in enumerate(simulator.layout.runs):
            gathering = simulator.communicator.gathering(run.federation, folder)
            self.client_ids = self.client_ids or gathering.client_ids
            self.models.append(simulator.models(number, gathering))
            if (learned := simulator.weights(number)) is not None:
                self.weights.append(learned)
            if simulator.plan is not None:
                self.privacy.append(simulator.account(number, gathering))
            self._measure(simulator, number, gathering)
        self.shown += simulator.recorder.shown
        self.clean += simulator.recorder.clean

    def _measure(self, simulator: Simulator, number: int, gathering: Gathering) -> None:
        """Keep what the clients of a run have learned, where there are held-out rows."""
        run, several = simulator.layout.runs[number], self.options.runs > 1
        own = simulator.recorder.client_figures(number, only_wanted=several)  # the others take time in every run
        found = [ClientFigures(one.name, *(gathering.clients(values) for values in one.columns)) for one in own]
        network = self.models[-1].network
        rows = gathering.clients(simulator.recorder.held_out.own_rows(number)) if found else np.empty(0, np.int64)
        if not found or network is None or not simulator.communicator.first:
            return
        cluster_ids, named = run.federation.cluster_ids, None if simulator.plan else self.client_ids
        cluster = network.client_cluster
        tables = [one.measured(cluster, cluster_ids, named, MEASURES[one.name].lower_is_better, rows) for one in found]
        self.measures.append([table for table in tables if table is not None])
        if run.number == 0:
            self.held_out = points(simulator.recorder.held_out.tasks[number], self.models[-1], cluster_ids)
        if run.number == 0 and named is not None:
            self.client_measures = {
                "client": np.array(self.client_ids, dtype=np.str_),
                "cluster": np.array(cluster_ids, dtype=np.str_)[cluster],
                "rows": np.asarray(rows, dtype=np.int64),
                **{one.name: one.on_own for one in found},
            }

    def result(self, seconds: float) -> Result:
        shown = columns(self.shown)
        clean = {} if self.noise == "secure" else columns(self.clean)
        measures = over_runs(self.measures)
        history = shown if self.options.privacy else {**shown, **clean}
        return Result(
            client_ids=self.client_ids,
            server_ids=self.first.server_ids,
            cluster_ids=self.first.cluster_ids,
            objectives=[objective_of(self.objectives, name).kind for name in self.first.cluster_ids],
            tasks=[objective_of(self.objectives, name).task for name in self.first.cluster_ids],
            encoding=self.first.encoding,
            x_norm=self.options.privacy.x_norm if self.options.privacy else None,
            dtype=np.dtype(self.options.dtype).name,
            engine=self.options.performance.engine,
            classes=classes_of(self.objectives),
            rho=self.rho,
            models=self.models,
            history=history,
            clean_history=clean if self.noise == "seeded" else None,
            privacy=self.privacy,
            noise=self.noise,
            terms=self.terms and replace(self.terms, date=date.today().isoformat(), version=__version__),
            ended_by=self.ended_by[0] if len(set(self.ended_by)) == 1 else None,
            spent_at=self.spent_at,
            warnings=self.warnings,
            states=self.states,
            seconds=seconds,
            verdict=weigh(worst_of_runs(self.verdicts), _evidence(measures, history), self.options.privacy is not None),
            measures=measures,
            client_measures=self.client_measures,
            held_out=self.held_out,
            weights=weights_table(self.weights, self.first.cluster_ids),
        )


def _evidence(measures: Sequence[Measured], history: Columns) -> Evidence | None:
    """Return what held-out rows and, of generated data, the truth say about the models that may be shown."""
    rounds = np.unique(history.get("round", np.empty(0)))
    error = history["nmsd"].reshape(-1, len(rounds)).mean(axis=0) if "nmsd" in history else None
    return Evidence.of(measures, rounds, error)


class _Reporter(Observer):
    """An observer that reports the progress of all runs, at most every tenth of a second."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._due = progress, 0.0

    def on_round(self, simulator: Simulator) -> None:
        """Report how many rounds are done, and the newest measures."""
        options, runs = simulator.options, simulator.layout.runs
        round = options.rounds if simulator.ended_by else simulator.state.round
        if round < options.rounds and time.monotonic() < self._due:
            return
        self._due = time.monotonic() + BETWEEN_REPORTS
        done = runs[0].number * options.rounds + len(runs) * round
        self._progress(done, options.runs * options.rounds, _latest(simulator))


def _latest(simulator: Simulator) -> dict[str, Any]:
    """Return the newest measures, memory and, in a single process, the largest ε spent."""
    recorder, plan = simulator.recorder, simulator.plan
    rows = recorder.clean if plan is None else recorder.shown
    info: dict[str, Any] = {name: rows[-1][name] for name in PROGRESS if rows and name in rows[-1]}
    if (held := memory.resident()) is not None and held >= MEMORY_SHOWN:
        info["memory_gib"] = held / 2**30
    if plan is not None and plan.guarantee == "required" and simulator.communicator.size == 1:
        from pgfl.privacy.accounting import exact_epsilon

        info["epsilon"] = float(exact_epsilon(plan.rho.max(), plan.delta))
    return info
