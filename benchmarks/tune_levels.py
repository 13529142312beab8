"""Tune the settings of the figure of error against ε: `python benchmarks/tune_levels.py --keep tried`.

Every row gets the same: the same settings to start from, the same number of tries at every ε, on the same federations,
which are used for nothing else. A try changes some settings of the best so far; what does clearly worse on the first
federations is not tried on the others. Each ε starts from the best settings of the ε beside it. In the end every row
tries what was found for two others, and what had been found by hand before, each at the ε at which the mean of a pair
is disturbed as much. Writes src/pgfl/paper/level_settings.csv; takes about half an hour of one core. With `--rows`
and `--scenes` only these are tuned, and the others keep the settings of the file. Masked sums and sites were tuned for
themselves in regression only.
"""

# ruff: noqa: E402 (threads of BLAS are set before NumPy is loaded)
from __future__ import annotations

import os

for pool in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(pool, "1")

import argparse
import csv
import json
import math
import time
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from pgfl.errors import PgflError
from pgfl.lab.paper import levels as level_settings
from pgfl.lab.paper.levels import SCENES, TUNED_CLIENTS, Anchor, Kind, Row, Scene, as_noisy, as_text, tuned

FILE = Path(level_settings.__file__).with_name(level_settings.FILE)
EPSILONS = (1.0, 0.25, 4.0, 16.0, 64.0)  # in this order; each starts from the nearest one before it
TRIES: dict[Kind, int] = {"regression": 45, "pairs": 18, "triplets": 12}  # per row and ε
FIRST_SEED = 1000  # of the federations to tune on; those that judge begin at `affordable.JUDGED`
FEDERATIONS: dict[Kind, int] = {"regression": 3, "pairs": 4, "triplets": 2}
START: dict[Kind, Anchor] = {
    "regression": Anchor(1.0, rho=0.5, zeta=0.99, releases=150, tau=0.4, kappa=1.0),
    "pairs": Anchor(1.0, rho=2.0, zeta=0.97, releases=20, tau=0.0),
    "triplets": Anchor(1.0, rho=1.0, zeta=0.97, releases=20, tau=0.4),
}
EARLIER: dict[Kind, tuple[tuple[Anchor, ...], ...]] = {
    "regression": (
        (
            Anchor(0.25, 3.2, 0.9958, 98, 0.61, 0.9963, 2.58),
            Anchor(1.0, 0.375, 0.988, 120, 0.4, 1.0, 1.25),
            Anchor(4.0, 0.64, 0.9925, 460, 0.3, 0.993, 0.8),
            Anchor(16.0, 0.64, 0.993, 460, 0.0, 0.992, 0.8),
        ),
        (Anchor(1.0, 0.7, 0.995, 225, 0.46, 1.0, 0.9), Anchor(4.0, 0.7, 0.993, 300, 0.46, 0.993, 0.9)),
    )
}
"""Found by hand before, on other federations and for local noise, with linearised steps and ADMM: all rows try both."""

CLEARLY = {"regression": 1.02, "pairs": 1.01, "triplets": 1.01}  # times the least error: not tried any further
MOST_RELEASES: dict[Kind, int] = {"regression": 600, "pairs": 120, "triplets": 80}
ROWS: tuple[Row, ...] = ("paper", "local", "fedavg", "masked", "site")  # the longest first
LOCAL: tuple[Row, ...] = ("paper", "local", "fedavg")
SHARED: tuple[Row, ...] = ("masked", "site", "local")
ALIKE: dict[Row, tuple[Row, ...]] = {"paper": LOCAL, "local": LOCAL, "fedavg": LOCAL, "masked": SHARED, "site": SHARED}
"""Whose settings a row tries in the end, its own among them."""

LARGEST_TAU = 0.65
WIDEST, NARROWEST, NARROWER = 0.6, 0.2, 0.95
Found = dict[float, tuple[Anchor, float]]
"""By ε: settings, and the error with them."""


def changed(anchor: Anchor, kind: Kind, row: Row, width: float, chance: np.random.Generator) -> Anchor:
    """Other settings nearby: every setting changes with a probability of one half, and so does the speed of all."""

    def factor() -> float:
        return math.exp(width * chance.standard_normal()) if chance.random() < 0.5 else 1.0

    slower = factor()  # more releases with shorter steps, and everything that changes by the round changes less
    releases = int(np.clip(round(anchor.releases * slower * factor()), 3, MOST_RELEASES[kind]))
    rho = anchor.rho * slower * factor()
    kappa = anchor.kappa * factor() if kind == "regression" else anchor.kappa
    rho *= kappa / anchor.kappa if chance.random() < 0.5 else 1.0
    zeta = 1.0 - min(0.4, (1.0 - anchor.zeta) * factor() / slower)
    tau, decay = anchor.tau, 1.0 - (1.0 - anchor.tau_decay) / slower
    if row != "fedavg":
        if chance.random() < 0.5:
            tau = (
                0.0 if chance.random() < 0.2 else float(np.clip(tau + 0.3 * width * chance.standard_normal(), 0, 0.65))
            )
        if kind == "regression" and chance.random() < 0.5:
            decay = 1.0 if chance.random() < 0.3 else 1.0 - min(0.05, (1.0 - decay + 0.001) * factor())
    return replace(anchor, rho=rho, zeta=zeta, releases=releases, tau=tau, tau_decay=decay, kappa=kappa)


class Search:
    """The search for one row of one scene."""

    def __init__(self, scene: Scene, row: Row) -> None:
        self.scene, self.row = scene, row
        self.data = scene.data(TUNED_CLIENTS, scene.servers[TUNED_CLIENTS])

    def errors(self, epsilon: float, anchor: Anchor, least: list[float]) -> list[float]:
        """NMSD or the share of wrong labels, federation by federation, until it is clearly worse than the least."""
        trial, found = self.scene.trained(self.row, epsilon, anchor, self.data), list[float]()
        for number in range(FEDERATIONS[self.scene.kind]):
            try:
                measured = trial.run(FIRST_SEED + number, 1)
            except PgflError:
                return [math.inf]
            found.append(float(measured["nmsd"][0, -1] if self.scene.regression else 1.0 - measured["accuracy"][0, -1]))
            if least and np.mean(found) > CLEARLY[self.scene.kind] * np.mean(least[: len(found)]):
                break
        return found

    def at(self, epsilon: float, starts: Sequence[Anchor], tries: int) -> tuple[Anchor, float]:
        """The best of so many tries, those to start from included."""
        key = [FIRST_SEED, ROWS.index(self.row), EPSILONS.index(epsilon)]
        chance = np.random.default_rng(key if len(starts) == 1 else [*key, len(starts)])
        best, least, width = START[self.scene.kind], list[float](), WIDEST
        for number in range(tries):
            started = number >= len(starts)
            other = changed(best, self.scene.kind, self.row, width, chance) if started else starts[number]
            found = self.errors(epsilon, replace(other, epsilon=epsilon), least)
            if not least or (len(found) == FEDERATIONS[self.scene.kind] and np.mean(found) < np.mean(least)):
                best, least = replace(other, epsilon=epsilon), found
            elif started:
                width = max(NARROWEST, NARROWER * width)
        return best, float(np.mean(least))


def tune(scene: Scene, row: Row, file: Path, tries: int, before: Mapping[Row, tuple[Anchor, ...]]) -> Found:
    """All ε of one row; what is in the file already is not tuned again, so an interrupted search goes on.

    With `before`, what was found for some rows, it starts from all of these; else from the ε beside it.
    """
    warnings.simplefilter("ignore")
    done: Found = {}
    for kept in json.loads(file.read_text()) if file.exists() else []:
        done[kept["anchor"]["epsilon"]] = Anchor(**kept["anchor"]), kept["error"]
    search = Search(scene, row)
    for epsilon in EPSILONS:
        if epsilon in done:
            continue
        nearest = min(done, key=lambda other: abs(math.log(other / epsilon)), default=None)
        others = sorted(before, key=lambda each: each != row)
        starts = [as_noisy(before[other], row, other, epsilon) for other in others]
        starts += [as_noisy(found, row, "local", epsilon) for found in EARLIER.get(scene.kind, ()) if before]
        starts = starts or [START[scene.kind] if nearest is None else done[nearest][0]]
        began = time.process_time()
        done[epsilon] = search.at(epsilon, starts, tries)
        print(f"{scene.kind} {row} {time.process_time() - began:.0f} s {done[epsilon]}", flush=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps([{"anchor": asdict(anchor), "error": error} for anchor, error in done.values()]))
    return done


def _starts(kind: Kind) -> int:
    """From how many settings the last tries start: those of three rows, and those that were found before."""
    return len(LOCAL) + len(EARLIER.get(kind, ()))


def _as_written() -> dict[tuple[Kind, Row], Found]:
    """What stands in the file of settings."""
    with FILE.open(encoding="utf-8") as file:
        errors = {
            (line["scene"], line["row"], float(line["epsilon"])): line["tuning_error"] for line in csv.DictReader(file)
        }
    return {
        (scene.kind, row): {
            anchor.epsilon: (anchor, float(errors[scene.kind, row, anchor.epsilon]))
            for anchor in tuned(scene.kind, row)
        }
        for scene in SCENES
        for row in ROWS
    }


def main() -> None:
    """Parse, tune twice, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, default=Path("tuned"), help="where an interrupted search goes on")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS)
    parser.add_argument("--scenes", nargs="+", choices=TRIES, default=TRIES)
    chosen = parser.parse_args()
    jobs = [(scene, row) for scene in SCENES for row in ROWS if scene.kind in chosen.scenes and row in chosen.rows]
    found = _as_written()
    with ProcessPoolExecutor(chosen.workers, mp_context=get_context("spawn")) as pool:
        for name in ("own", "all"):
            futures = {}
            for scene, row in jobs:
                others = {other: found[scene.kind, other] for other in ALIKE[row]} if name == "all" else {}
                before = {other: tuple(by[epsilon][0] for epsilon in sorted(by)) for other, by in others.items()}
                tries = _starts(scene.kind) if before else TRIES[scene.kind]
                file = chosen.keep / f"{scene.kind}-{row}-{name}.json"
                futures[scene.kind, row] = pool.submit(tune, scene, row, file, tries, before)
            found |= {which: future.result() for which, future in futures.items()}
    lines = (
        (*which, *by[epsilon], TRIES[which[0]] + _starts(which[0]) - 1)
        for which, by in found.items()
        for epsilon in sorted(by)
    )
    FILE.write_text(as_text(lines), "utf-8")
    print(f"written: {FILE}")


if __name__ == "__main__":
    main()
