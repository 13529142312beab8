"""Make a plan: settings for some twins, judged on others, and what would change with other data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from pgfl.algorithms.algorithms import PGFL
from pgfl.algorithms.schedules import Library
from pgfl.arrays import Floats
from pgfl.config import Config
from pgfl.errors import ConfigError, Diverged
from pgfl.federation.federation import Federation
from pgfl.metrics import deviation
from pgfl.objectives import Huber, Logistic
from pgfl.planning.facts import Facts, are_of_columns, facts_of
from pgfl.planning.forecast import Forecast, Plan, configured, forecast, share_kept, share_measured
from pgfl.planning.kept import kept
from pgfl.planning.map_plan import with_planned_map
from pgfl.planning.search import (
    FEW_TABLE_JUDGING_SEEDS,
    FEW_TABLE_SEEDS,
    LAM,
    MIXING,
    TABLE_JUDGING_SEEDS,
    TABLE_SEEDS,
    Settings,
    best_foreseen,
    foreseen_on,
)
from pgfl.planning.twin import twin
from pgfl.privacy.request import Privacy
from pgfl.privacy.trust import Level
from pgfl.results.result import Result
from pgfl.simulate.engines import engine_kind
from pgfl.simulate.training import train

USELESS = 1e6
PLANNED_LOSSES = ("huber", "logistic", "softmax")
PLANNED_STEPS = {"kind": "pgfl", "client": "gradient", "rho": "auto", "count": "records", "participants": "all"}
"""What a config may state of its algorithm and still leave its settings to a plan, which chooses the same."""
FEWER_COLUMNS = "half the columns"
LIMIT_TAUS = (0.0, 0.01, 0.03, 0.1, 0.3)


def errors(facts: Facts, settings: Settings, seeds: Sequence[int]) -> Floats:
    """Train on twins; return one number per twin: the NMSD or, of predictions, 1 − R² or 1 − AUC."""
    metric = _metric(facts)
    try:
        result = train(
            lambda run: twin(facts, seeds[run]),
            settings.algorithm,
            settings.objective,
            rounds=settings.rounds,
            privacy=privacy_for(facts, settings),
            seed=seeds[0],
            runs=len(seeds),
            metrics=(metric,),
            record_every=settings.rounds,
            engine=_engine(),
        )
    except Diverged:
        return np.full(len(seeds), USELESS)
    found = result.history[metric].reshape(len(seeds), -1)[:, -1]
    return np.asarray(found if metric == "nmsd" else 1.0 - found, dtype=float)


def privacy_for(facts: Facts, settings: Settings) -> Privacy:
    """Return the privacy of a training with these settings, with noise that can be repeated."""
    return Privacy(
        epsilon=facts.epsilon,
        delta=facts.delta,
        zeta=settings.zeta,
        max_releases=settings.releases,
        index="release",
        x_norm=settings.x_norm or facts.x_norm,
        noise="seeded",
        trust=facts.trust,
        contributors=facts.contributors,
        colluders=facts.colluders,
        dropouts=facts.dropouts,
    )


def without_privacy(facts: Facts, seed: int) -> float:
    """Return the error of the same algorithm if nobody added noise, with the best of a few τ."""
    rho = 2.0 * (2.0 if facts.task == "regression" else 0.25) * facts.typical_length**2 / facts.columns
    kappa = None if facts.task == "classification" else facts.label_scale
    metric = _metric(facts)
    objective = Logistic(LAM) if kappa is None else Huber(LAM, kappa=kappa)
    made, found, rounds = twin(facts, seed), [], 150
    for tau in LIMIT_TAUS if facts.clusters > 1 else (0.0,):
        algorithm = PGFL(rho, tau, MIXING, "gradient", facts.records[1])
        result = train(
            made, algorithm, objective, rounds=rounds, metrics=(metric,), record_every=rounds, engine=_engine()
        )
        found.append(_received_nmsd(result, made) if metric == "nmsd" else 1.0 - float(result.history[metric][-1]))
    return min(found)


def _metric(facts: Facts) -> str:
    return "nmsd" if facts.uses_nmsd else "r2" if facts.task == "regression" else "auc"


def _received_nmsd(result: Result, made: Federation) -> float:
    """The NMSD of the models that clients receive, as with privacy; their own come after a step on their own data."""
    models, truth = result.models[0], made.truth
    assert truth is not None
    place = {pair: row for row, pair in enumerate(zip(models.pair_server, models.pair_cluster, strict=True))}
    rows = [place[pair] for pair in zip(made.client_server, made.client_cluster, strict=True)]
    return float(deviation(models.servers[rows], truth[made.client_cluster]).mean())


def _engine() -> Library:
    compiled = engine_kind("numba")
    return "numba" if compiled.installed() and compiled.failure() is None else "numpy"


SEEDS, JUDGING_SEEDS = (1, 2), (11, 12, 13, 14, 15, 16)
FEW_SEEDS, FEW_JUDGING_SEEDS = SEEDS[:1], JUDGING_SEEDS[:3]
LEVELS = (0.25, 1.0, 4.0, 16.0)
USUAL = 4.0  # the ε from which the table is searched
TRUSTS: tuple[Level, ...] = ("local", "masked", "site")  # the weaker the assumption, the earlier
Progress = Callable[[int, int, str], None]
Cell = tuple[Level, float]
STEPS = 1 + len(LEVELS) * len(TRUSTS) + 5  # settings, cells and variants


def plan(source: Config | Facts, *, progress: Progress | None = None, whole: bool = True, **facts: Any) -> Plan:
    """Plan a private training from public facts: no record is read and nothing is spent.

    `source` is a config, of whose table only the columns' names and who is where are read, or `Facts`. Facts that a
    config does not state can be given by name: `expected`, `label_mean`, `label_scale`, `epsilon`, `trust`, and
    `spread`, the standard deviation of a typical number that is scaled from its bounds to [−1, 1]. Without `whole` only
    the settings are chosen and judged, not what other ε, trust or data would give.
    """
    chosen = None
    if isinstance(source, Config):
        source, chosen = with_planned_map(source, **facts)
    stated = facts_of(source, **facts) if isinstance(source, Config) else replace(source, **facts)
    small = stated.planned
    _check_trust(small)
    tell = _Progress(progress)
    own = kept("settings", (small, _searches()), lambda: _judged(small), asdict, _Judged.from_json)
    tell("settings")
    curves: dict[Level, dict[float, float]] = {}
    instead: dict[Cell, Level] = {}
    helps: dict[str, float] = {}
    if whole:
        usual = replace(small, trust=TRUSTS[0], epsilon=USUAL)  # so that the table is the same for every ε and trust
        table = kept("table", (usual, _searches()), lambda: _table(usual, tell), _cells_to_json, _cells_from_json)
        around = kept(
            "around", (small, _searches()), lambda: _around(small, own.settings, table, tell), asdict, _Around.from_json
        )
        reached = {cell: one.typical for cell, one in table.items()}
        reached |= {(trust, small.epsilon): value for trust, value in around.others.items()}
        beside = own.predicted.value - around.here  # how far what is predicted lies from what the same few twins say
        found = {cell: value + beside for cell, value in reached.items()}
        found[small.trust, small.epsilon] = own.predicted.value
        curves, instead = monotone(found, (small.trust, small.epsilon), small)
        sign = -1.0 if small.uses_nmsd else 1.0
        for name, value in around.variants.items():
            gain = sign * (value - around.here)
            helps[name] = gain if name == FEWER_COLUMNS else max(gain, 0.0)  # who has more can leave it unused
        for trust in (trust for trust in curves if trust != small.trust):
            helps[f'trust = "{trust}"'] = sign * (curves[trust][small.epsilon] - own.predicted.value)
    best_limit = limit_beside(curves, small, own.limit)
    made = configured(source, stated, own.settings) if isinstance(source, Config) else None
    shares = own.kept, own.measured
    return Plan(stated, own.settings, own.predicted, best_limit, curves, helps, instead, made, *shares, chosen)


class _Progress:
    """What is reported while a plan is made: how many of the cells and variants are done."""

    def __init__(self, report: Progress | None) -> None:
        self.report, self.done = report, 0

    def __call__(self, what: str) -> None:
        self.done = min(self.done + 1, STEPS)
        if self.report:
            self.report(self.done, STEPS, what)


@dataclass(frozen=True)
class _Judged:
    """The settings of a plan, and what they reach."""

    settings: Settings
    predicted: Forecast
    kept: Forecast | None
    measured: Forecast | None
    limit: float

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> _Judged:
        forecasts = (page[name] for name in ("predicted", "kept", "measured"))
        predicted, share, measured = (None if each is None else Forecast(**each) for each in forecasts)
        assert predicted is not None
        return cls(Settings(**page["settings"]), predicted, share, measured, page["limit"])


@dataclass(frozen=True)
class _Reached:
    """Good settings of one ε and trust, and what they reach on a few twins."""

    settings: Settings
    typical: float


@dataclass(frozen=True)
class _Around:
    """What a plan's own settings reach on the same few twins, and what other trust or facts would reach."""

    here: float
    others: Mapping[Level, float]  # by trust, at the plan's own ε
    variants: Mapping[str, float]

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> _Around:
        return cls(**page)


def _cells_to_json(table: Mapping[Cell, _Reached]) -> list[Any]:
    return [[trust, level, asdict(one.settings), one.typical] for (trust, level), one in table.items()]


def _cells_from_json(page: Sequence[Any]) -> dict[Cell, _Reached]:
    return {(trust, level): _Reached(Settings(**settings), value) for trust, level, settings, value in page}


def _searches() -> tuple[object, ...]:
    """Return what a search depends on besides the facts and the code."""
    return LEVELS, SEEDS, JUDGING_SEEDS, TABLE_SEEDS, TABLE_JUDGING_SEEDS


def _judged(facts: Facts) -> _Judged:
    settings = full_search(facts)
    return _Judged(settings, *judge(facts, settings))


def _table(usual: Facts, tell: Callable[[str], None]) -> dict[Cell, _Reached]:
    """Return what is reached at all usual levels of ε and trust: one search after another, each from the nearest."""
    table: dict[Cell, _Reached] = {}
    known: dict[Facts, Settings] = {}
    for level in sorted(LEVELS, key=lambda level: abs(math.log(level / USUAL))):
        for trust in TRUSTS:
            cell = replace(usual, trust=trust, epsilon=level)
            if possible(cell):
                known[cell] = quick_search(cell, _nearest(cell, known) if known else None)
                table[trust, level] = _Reached(known[cell], typical(cell, known[cell]))
            tell(f"trust = {trust}, epsilon = {level:g}")
    return table


def _around(facts: Facts, settings: Settings, table: Mapping[Cell, _Reached], tell: Callable[[str], None]) -> _Around:
    """Return what other trust or facts would reach, in searches from what is known."""
    known = {replace(facts, trust=trust, epsilon=level): one.settings for (trust, level), one in table.items()}
    known[facts] = settings
    others, variants = {}, {}
    for trust in TRUSTS:
        cell = replace(facts, trust=trust)
        if trust != facts.trust and possible(cell) and (trust, facts.epsilon) not in table:
            others[trust] = typical(cell, quick_search(cell, _nearest(cell, known)))
    for name, other in _variants(facts).items():
        if possible(other):
            variants[name] = typical(other, quick_search(other, settings))
        tell(name)
    return _Around(typical(facts, settings), others, variants)


def is_open(config: Config) -> bool:
    """Return whether a private config of a table leaves its settings to a plan: it states bounds, and none of them."""
    privacy, algorithm, objective = config.privacy, config.algorithm, config.objective
    plain = config.data.own_records and config.continues is None and not config.data.has_weights
    wanted = privacy.enabled and privacy.epsilon is not None and privacy.guarantee == "required"
    loss = objective.kind in PLANNED_LOSSES and objective.model_fields_set <= {"kind", "classes"}
    steps = all(getattr(algorithm, key) == PLANNED_STEPS.get(key) for key in algorithm.model_fields_set)
    noise = not {"zeta", "w_norm", "update_norm"} & privacy.model_fields_set and privacy.max_releases == config.rounds
    if not (plain and wanted and loss and steps and noise) or "rounds" in config.model_fields_set:
        return False
    encoding = config.data.public_encoding()
    if encoding is None or encoding.x_norm is None or encoding.target.y_bound is None:
        return False
    return encoding.is_plain or are_of_columns(encoding)


def _nearest(facts: Facts, known: Mapping[Facts, Settings]) -> Settings:
    """Return the settings that were found for the facts whose noise is most alike."""
    own = facts.equivalent_local_epsilon
    return known[min(known, key=lambda one: abs(math.log(one.equivalent_local_epsilon / own)))]


def monotone(
    found: Mapping[Cell, float], own: Cell, facts: Facts
) -> tuple[dict[Level, dict[float, float]], dict[Cell, Level]]:
    """Return figures by trust and ε of which none is worse than one with less trust or ε; that of `own` stays.

    Who has more ε or trust can do what needs less of it. Second, where less trust does better, and which.
    """
    better = min if facts.uses_nmsd else max
    worse = max if facts.uses_nmsd else min
    order, fixed = {trust: number for number, trust in enumerate(TRUSTS)}, found.get(own)
    curves: dict[Level, dict[float, float]] = {}
    instead: dict[Cell, Level] = {}
    for trust, level in sorted(found, key=lambda cell: (order[cell[0]], cell[1])):
        value, more = found[trust, level], (order[trust] - order[own[0]], level - own[1])
        if fixed is not None and max(more) <= 0.0:
            value = worse(value, fixed)
        elif fixed is not None and min(more) >= 0.0:
            value = better(value, fixed)
        earlier = [(curves[other][level], other) for other in curves if other != trust and level in curves[other]]
        if earlier and better(value, earlier[-1][0]) == earlier[-1][0] != value:
            value, instead[trust, level] = earlier[-1][0], instead.get((earlier[-1][1], level), earlier[-1][1])
        curve = curves.setdefault(trust, {})
        curve[level] = better([value, *curve.values()])
    same = {cell: trust for cell, trust in instead.items() if curves[cell[0]][cell[1]] == curves[trust][cell[1]]}
    return curves, same


def full_search(facts: Facts) -> Settings:
    """Return the settings of which theory expects most, on a few twins."""
    return best_foreseen(facts, SEEDS if facts.rows is None else TABLE_SEEDS)


def quick_search(facts: Facts, start: Settings | None) -> Settings:
    """Good settings for other facts than those of `start`, if any, in a shorter search on fewer twins."""
    return best_foreseen(facts, FEW_SEEDS if facts.rows is None else FEW_TABLE_SEEDS, start)


def possible(facts: Facts) -> bool:
    """Return whether the clients of a cluster at some server are enough for the trust."""
    return facts.trusted.takes_part(facts.largest_pair)


def judge(facts: Facts, settings: Settings) -> tuple[Forecast, Forecast | None, Forecast | None, float]:
    """Return what the settings reach; of a table the share of what is reached without privacy, as it is and as one run
    measures it; and what that is."""
    if facts.rows is None:
        limit = shown(facts, np.array([without_privacy(facts, JUDGING_SEEDS[0])]))[0]
        return forecast(evaluate_on_twins(facts, settings), facts), None, None, float(limit)
    found = foreseen_on(facts, settings, TABLE_JUDGING_SEEDS)
    limit = float(np.median(shown(facts, np.array([each.limit for each in found]))))
    kept = share_kept(np.array([each.kept[0] for each in found]))
    predicted = forecast(shown(facts, np.array([each.error[0] for each in found])), facts)
    return predicted, kept, share_measured(found, facts), limit


def evaluate_on_twins(facts: Facts, settings: Settings, seeds: Sequence[int] | None = None) -> Floats:
    """Return what the settings reach on twins that the search has not seen, one number per twin.

    Of generated data they are trained on; of a table theory says it, because as many would take minutes.
    """
    if facts.rows is None:
        return shown(facts, errors(facts, settings, seeds or JUDGING_SEEDS))
    found = foreseen_on(facts, settings, seeds or TABLE_JUDGING_SEEDS)
    return shown(facts, np.array([each.error[0] for each in found]))


def typical(facts: Facts, settings: Settings) -> float:
    """Return what the settings reach on a few of these twins: the mean, or of tables, which differ more, the median."""
    if facts.rows is None:
        return float(evaluate_on_twins(facts, settings, FEW_JUDGING_SEEDS).mean())
    return float(np.median(evaluate_on_twins(facts, settings, FEW_TABLE_JUDGING_SEEDS)))


def limit_beside(curves: Mapping[Level, Mapping[float, float]], facts: Facts, found: float) -> float:
    """What is reached without privacy: what was found, or what is reached in spite of noise, if that is better."""
    best = min if facts.uses_nmsd else max
    return best([float(found), *(reached for curve in curves.values() for reached in curve.values())])


def shown(facts: Facts, found: Floats) -> Floats:
    """Errors in the unit that a plan shows: NMSD in dB, else R² or AUC in per cent."""
    return np.asarray(10.0 * np.log10(found) if facts.uses_nmsd else 100.0 * (1.0 - found))


def _check_trust(facts: Facts) -> None:
    """Refuse a trust that the clients of a cluster at a server are too few for."""
    if (complaint := facts.trusted.complaint(facts.largest_pair)) is not None:
        raise ConfigError(
            f'With privacy.trust = "{facts.trust}" nobody could ever contribute, because {complaint}; lower '
            "privacy.contributors or privacy.colluders, or choose another trust."
        )


def _variants(facts: Facts) -> dict[str, Facts]:
    changed = {
        "twice the records per client": facts.with_more_records(2),
        "twice the clients": facts.with_more_clients(2),
        f"ε = {2 * facts.epsilon:g}": replace(facts, epsilon=2.0 * facts.epsilon),
    }
    if facts.columns > 1:
        changed[FEWER_COLUMNS] = facts.with_half_the_columns
    if facts.with_tighter_bounds != facts:
        changed["bounds that hold nearly all records and no more"] = facts.with_tighter_bounds
    return changed
