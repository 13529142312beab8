"""Error against ε for the three levels of trust, next to the paper's algorithm, FedAvg and one model for all."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from importlib.resources import files
from typing import Literal

import numpy as np

from pgfl.algorithms.algorithms import PGFL, Algorithm, FedAvg
from pgfl.algorithms.schedules import Decaying
from pgfl.lab.paper.experiments import DigitData, Experiment, Measured, RegressionData, Trial
from pgfl.lab.paper.items import Effort, Lookup
from pgfl.lab.paper.judging import Claim, Interval, claim, interval
from pgfl.lab.paper.plots import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, RED, Lines, Look, Series
from pgfl.metrics import decibels
from pgfl.objectives import Hinge, Huber, Objective
from pgfl.privacy.request import Privacy
from pgfl.privacy.trust import Level, Trust

Kind = Literal["regression", "pairs", "triplets"]
Row = Literal["paper", "fedavg", "local", "masked", "site"]
"""What is tuned for itself: the paper's client step, FedAvg's, and the linearised one at every level of trust."""

TUNED_CLIENTS = 5
"""Clients per pair of the federations on which settings were tuned."""

FILE = "level_settings.csv"


@dataclass(frozen=True)
class Anchor:
    """Good settings at an ε."""

    epsilon: float
    rho: float  # FedAvg: one over the length of all local steps together
    zeta: float
    releases: int
    tau: float
    tau_decay: float = 1.0
    kappa: float = 1.0  # regression only


@cache
def tuned(kind: Kind, row: Row) -> tuple[Anchor, ...]:
    """The settings of a row, by ascending ε."""
    text = files("pgfl.lab.paper").joinpath(FILE).read_text("utf-8")
    lines = [line for line in csv.DictReader(text.splitlines()) if (line["scene"], line["row"]) == (kind, row)]
    numbers = [{each.name: float(line[each.name]) for each in fields(Anchor)} for line in lines]
    found = (Anchor(**{**line, "releases": int(line["releases"])}) for line in numbers)  # type: ignore[arg-type]
    return tuple(sorted(found, key=lambda anchor: anchor.epsilon))


def as_text(found: Iterable[tuple[Kind, Row, Anchor, float, int]]) -> str:
    """The file of settings: scene and row, the settings, the error that tuning saw, and the number of tries."""
    names = ["scene", "row", *(each.name for each in fields(Anchor)), "tuning_error", "tries"]
    lines = [",".join(names)]
    for kind, row, anchor, error, tries in found:
        values = [f"{value:.5g}" for value in (*asdict(anchor).values(), error)]
        lines.append(",".join([kind, row, *values, str(tries)]))
    return "\n".join(lines) + "\n"


def between(anchors: tuple[Anchor, ...], epsilon: float) -> Anchor:
    """Settings between two anchors, on logarithmic scales; those of the nearest one beyond the ends."""
    at = [math.log(anchor.epsilon) for anchor in anchors]
    here = math.log(epsilon)

    def value(name: str, of: float = 0.0) -> float:
        values = [abs(of - getattr(anchor, name)) for anchor in anchors]
        if min(values) <= 0.0:
            return float(abs(of - np.interp(here, at, values)))
        return float(abs(of - math.exp(np.interp(here, at, np.log(values)))))

    decays = (value("zeta", 1.0), value("tau_decay", 1.0))
    return Anchor(epsilon, value("rho"), decays[0], round(value("releases")), value("tau"), decays[1], value("kappa"))


def tables(effort: Effort, measured: Lookup) -> list[str]:
    """One table in Markdown for each scene."""
    return ["\n".join(_lines(scene, effort, measured)) for scene in SCENES]


def _lines(scene: Scene, effort: Effort, measured: Lookup) -> Iterator[str]:
    points = list(grid(scene, effort))
    epsilons = list(dict.fromkeys(epsilon for _, epsilon in points))
    unit = "NMSD in dB" if scene.regression else "accuracy in per cent"
    yield f"| {scene.title}: {unit} | clients a pair | " + " | ".join(f"ε = {epsilon:g}" for epsilon in epsilons) + " |"
    yield "|---" * (2 + len(epsilons)) + "|"
    for clients in dict.fromkeys(clients for clients, _ in points):
        for method, name in NAMES.items():
            found = (reached(scene, measured(scene.trial(method, epsilon, clients))) for epsilon in epsilons)
            yield f"| {name} | {clients} | " + " | ".join(map(_cell, found)) + " |"
        limit = _cell(reached(scene, measured(scene.without_privacy(clients))))
        yield f"| without privacy | {clients} | " + " | ".join([limit] * len(epsilons)) + " |"


def _cell(level: Interval) -> str:
    return f"{level.value:.1f} ± {level.high - level.value:.1f}".replace("-", "−")


Method = Literal["paper", "fedavg", "local", "masked", "site", "central"]
CLUSTERS = 3
X_NORM = 1.0 + 1e-9  # above the norm of every row by more than rounding, so that nothing has to be settled exactly
FEWEST_RUNS, MORE_RUNS = 4, 3
LIMIT_ROUNDS: dict[Kind, int] = {"regression": 500, "pairs": 100, "triplets": 100}  # at least, without privacy
LONGEST = 0.95  # of FedAvg's longest local step, 2/(L + 2λ)
NAMES: dict[Method, str] = {
    "paper": "the paper's client step, nobody trusted",
    "fedavg": "FedAvg, nobody trusted",
    "local": "linearised, nobody trusted",
    "masked": "linearised, masked sums",
    "site": "linearised, site trusted",
    "central": "linearised, one trusted server",
}
LOOKS: dict[Method, Look] = {
    "paper": Look(RED, "-", "s"),
    "fedavg": Look(ORANGE, ":", "^"),
    "local": Look(BLUE, "-", "o"),
    "masked": Look(GREEN, "-", "D"),
    "site": Look(PURPLE, "--", "v"),
    "central": Look(INK, "-.", "x"),
}
TRUST: dict[Row, Level] = {
    "paper": "local", "fedavg": "local", "local": "local", "masked": "masked", "site": "site",
}  # fmt: skip


def noise_of_mean(row: Row, clients: int) -> float:
    """The deviation of the noise in the mean of so many clients of a pair, relative to that of one local client."""
    trust = Trust(TRUST[row])
    return math.sqrt(trust.excess(clients)) / clients if trust.aggregates else 1.0 / math.sqrt(clients)


def as_noisy(anchors: tuple[Anchor, ...], row: Row, other: Row, epsilon: float) -> Anchor:
    """Another row's settings, at the ε at which its noise is as strong as this row's, with five clients a pair."""
    return between(anchors, epsilon * noise_of_mean(other, TUNED_CLIENTS) / noise_of_mean(row, TUNED_CLIENTS))


@dataclass(frozen=True)
class Scene:
    """Data, the ε that are tried, and how many servers there are for each number of clients per pair."""

    kind: Kind
    title: str
    epsilons: tuple[float, ...]
    servers: Mapping[int, int]
    quick: float  # the ε of a quick run
    most_records: int

    @property
    def regression(self) -> bool:
        """Whether NMSD is measured, not accuracy."""
        return self.kind == "regression"

    def data(self, clients: int, servers: int) -> RegressionData | DigitData:
        """So many clients per pair, on average."""
        graph = "random" if servers > 3 else "complete"
        size = {"servers": servers, "clients_per_server": CLUSTERS * clients, "graph": graph}
        if self.regression:
            return RegressionData(observation_noise=0.7, x_norm=1.0, samples=(50, 100), **size)  # type: ignore[arg-type]
        return DigitData(self.kind, **size)  # type: ignore[arg-type]

    def trial(self, method: Method, epsilon: float, clients: int) -> Trial:
        """One point of a curve."""
        servers = self.servers[clients]
        if method == "central":
            clients, servers = clients * servers, 1
        row: Row = "site" if method == "central" else method
        as_if_five = epsilon * noise_of_mean(row, TUNED_CLIENTS) / noise_of_mean(row, clients)
        return self.trained(row, epsilon, self._settings(row, as_if_five), self.data(clients, servers))

    def _settings(self, row: Row, epsilon: float) -> Anchor:
        """Those that were tuned for the row itself, or else for local noise that is as strong."""
        own = tuned(self.kind, row)
        return between(own, epsilon) if own else as_noisy(tuned(self.kind, "local"), row, "local", epsilon)

    def trained(self, row: Row, epsilon: float, chosen: Anchor, data: RegressionData | DigitData) -> Trial:
        """A private training with these settings."""
        privacy = Privacy(
            epsilon=epsilon,
            zeta=chosen.zeta,
            max_releases=chosen.releases,
            index="release",
            x_norm=X_NORM,
            trust=TRUST[row],
        )
        return self._trial(data, self._algorithm(row, chosen), chosen, privacy)

    def runs(self, effort: Effort, clients: int) -> int:
        """How many runs of every point; runs with few images differ most."""
        more = MORE_RUNS if self.kind == "pairs" and clients == min(self.servers) and not effort.quick else 1
        return max(FEWEST_RUNS, more * effort.digits)

    def without_privacy(self, clients: int) -> Trial:
        """The limit: the same network and the steps of the largest ε, without noise."""
        chosen = tuned(self.kind, "local")[-1]
        chosen = replace(chosen, releases=max(chosen.releases, LIMIT_ROUNDS[self.kind]))
        algorithm = self._algorithm("local", chosen)
        return self._trial(self.data(clients, self.servers[clients]), algorithm, chosen, None)

    def _objective(self, chosen: Anchor) -> Objective:
        return Huber(0.001, kappa=chosen.kappa) if self.regression else Hinge(0.0)

    def _algorithm(self, row: Row, chosen: Anchor) -> Algorithm:
        if row == "fedavg":
            longest = LONGEST * 2.0 / (2.002 if self.regression else 1.0)
            steps = math.ceil(1.0 / (chosen.rho * longest))
            return FedAvg(step_size=1.0 / (chosen.rho * steps), local_steps=steps, mixing="metropolis")
        tau = chosen.tau if chosen.tau_decay == 1.0 or chosen.tau == 0.0 else Decaying(chosen.tau, chosen.tau_decay)
        if row == "paper":
            return PGFL(chosen.rho, tau, "metropolis", "admm")
        return PGFL(chosen.rho, tau, "clients", "gradient", self.most_records)

    def _trial(
        self,
        data: RegressionData | DigitData,
        algorithm: Algorithm,
        chosen: Anchor,
        privacy: Privacy | None,
    ) -> Trial:
        metric = "nmsd" if self.regression else "accuracy"
        return Trial(
            data,
            algorithm,
            self._objective(chosen),
            privacy=privacy,
            rounds=chosen.releases,
            metrics=(metric,),
            record_every=chosen.releases,
            received=True,
        )


REGRESSION_SIZES, PAIRS_SIZES, TRIPLETS_SIZES = {5: 10, 15: 4, 33: 4}, {5: 10, 15: 6, 33: 4}, {5: 10, 15: 4, 33: 2}
SCENES = (
    Scene(
        "regression",
        "regression, 50 to 100 records",
        (0.25, 1.0, 4.0, 16.0),
        REGRESSION_SIZES,
        1.0,
        100,
    ),
    Scene(
        "pairs",
        "pairs of digits, 4 to 8 images",
        (0.25, 1.0, 2.5, 16.0),
        PAIRS_SIZES,
        2.5,
        8,
    ),
    Scene(
        "triplets",
        "triplets of digits, 36 to 72 images",
        (0.25, 1.0, 4.0, 16.0),
        TRIPLETS_SIZES,
        1.0,
        72,
    ),
)


@dataclass(frozen=True)
class Expected:
    """What trials before this had reached, to be reached or passed."""

    scene: Kind
    method: Method
    clients: int
    epsilon: float
    reached: float


EXPECTED = (
    Expected("regression", "local", 5, 1.0, -4.9),
    Expected("regression", "local", 5, 4.0, -18.0),
    Expected("regression", "masked", 5, 1.0, -13.1),
    Expected("regression", "masked", 5, 4.0, -22.1),
    Expected("regression", "masked", 33, 1.0, -20.9),
    Expected("regression", "masked", 33, 4.0, -28.7),
    Expected("pairs", "local", 5, 2.5, 66.1),
    Expected("pairs", "masked", 5, 2.5, 74.0),
    Expected("pairs", "masked", 33, 2.5, 86.7),
    Expected("triplets", "local", 5, 1.0, 77.5),
    Expected("triplets", "masked", 5, 1.0, 83.5),
    Expected("triplets", "masked", 33, 1.0, 88.9),
)


@dataclass(frozen=True)
class Gain:
    """So many decibels at ε = 1 over another row, in regression."""

    key: str
    claim: str
    method: Method
    over: Method
    clients: int
    least: float


MASKED = "masked sums of {0} clients a pair gain {1:g} dB over the paper's client step"
GAINS = (
    Gain("gain-5", MASKED, "masked", "paper", 5, 10.0),
    Gain("gain-33", MASKED, "masked", "paper", 33, 18.0),
    Gain("fedavg-5", "with nobody trusted linearised steps do better than FedAvg", "local", "fedavg", 5, 0.0),
)


def grid(scene: Scene, effort: Effort) -> Iterator[tuple[int, float]]:
    """Clients per pair and ε; of a quick run only the smallest federation and one ε."""
    for clients in scene.servers:
        for epsilon in scene.epsilons:
            if not effort.quick or (clients == 5 and epsilon == scene.quick):
                yield clients, epsilon


def experiments(effort: Effort) -> dict[Experiment, int]:
    """All points of all curves, with their numbers of runs; those on the same data one after the other."""
    found: dict[Experiment, int] = {}
    for scene in SCENES:
        points = list(grid(scene, effort))
        for clients in dict.fromkeys(clients for clients, _ in points):
            own = [epsilon for size, epsilon in points if size == clients]
            trials = [scene.trial(method, epsilon, clients) for method in NAMES for epsilon in own]
            found |= dict.fromkeys([scene.without_privacy(clients), *trials], scene.runs(effort, clients))
    return found


def note(effort: Effort) -> str:
    """What a reader of the curves has to know."""
    runs = "; ".join(
        f"{scene.kind} " + ", ".join(str(scene.runs(effort, clients)) for clients in scene.servers) for scene in SCENES
    )
    return (
        f"Runs of every point against ε, by ascending number of clients: {runs}. With linearised steps a client counts "
        "in proportion to its records (`full_records`), and a server among its neighbours in proportion to its clients "
        '(`mixing = "clients"`). “Without privacy” is the same network and algorithm without '
        "noise; its plain averages stop a little beside the optimum, so that one trusted server, which averages "
        "nothing, can end below it; it has the settings of sites. Clients are placed at random: where 5 clients a pair "
        "are said, pairs have 1 to 9 or more."
    )


def panels(effort: Effort, measured: Lookup) -> list[Lines]:
    """One panel for every scene and number of clients per pair."""
    found = []
    for scene in SCENES:
        for clients in {clients: None for clients, _ in grid(scene, effort)}:
            epsilons = [epsilon for size, epsilon in grid(scene, effort) if size == clients]
            series = [_curve(scene, method, clients, epsilons, measured) for method in NAMES]
            limit = reached(scene, measured(scene.without_privacy(clients)))
            flat = np.full(len(epsilons), limit.value)
            series.append(Series("without privacy", np.array(epsilons), flat, look=Look(GREY, "--")))
            label = "NMSD [dB]" if scene.regression else "accuracy [%]"
            title = f"{scene.title}, {clients} clients a pair"
            found.append(Lines(title, r"$\varepsilon$", label, series, log_x=len(epsilons) > 1, error_bars=True))
    return found


def claims(effort: Effort, measured: Lookup) -> list[Claim]:
    """Every expected row, and the gains over the paper's algorithm."""
    scenes = {scene.kind: scene for scene in SCENES}
    points = {(scene.kind, clients, epsilon) for scene in SCENES for clients, epsilon in grid(scene, effort)}
    found = [
        _reached(scenes[row.scene], row, measured)
        for row in EXPECTED
        if (row.scene, row.clients, row.epsilon) in points
    ]
    regression = scenes["regression"]
    found += [_gain(regression, row, measured) for row in GAINS if ("regression", row.clients, 1.0) in points]
    return found


def _reached(scene: Scene, row: Expected, measured: Lookup) -> Claim:
    unit = "dB" if scene.regression else "%"
    level = reached(scene, measured(scene.trial(row.method, row.epsilon, row.clients)))
    holds = level.value <= row.reached if scene.regression else level.value >= row.reached
    return claim(
        f"affordable.trust.{scene.kind}-{row.method}-{row.clients}-{row.epsilon:g}",
        f"{NAMES[row.method]}, {row.clients} clients a pair, ε = {row.epsilon:g}: reaches {row.reached:g} {unit} in "
        f"{scene.title} (ours)",
        "NMSD" if scene.regression else "accuracy", level, unit, holds, row.reached,
    )  # fmt: skip


def _gain(scene: Scene, row: Gain, measured: Lookup) -> Claim:
    ours, theirs = (measured(scene.trial(method, 1.0, row.clients)) for method in (row.method, row.over))
    gain = interval(decibels(ours["nmsd"][:, -1]) - decibels(theirs["nmsd"][:, -1]))
    return claim(
        f"affordable.trust.{row.key}", f"at ε = 1 {row.claim.format(row.clients, row.least)} (ours)",
        f"NMSD relative to {NAMES[row.over].removesuffix(', nobody trusted')}",
        gain, "dB", gain.high <= -row.least, -row.least,
    )  # fmt: skip


def _curve(scene: Scene, method: Method, clients: int, epsilons: list[float], measured: Lookup) -> Series:
    points = [reached(scene, measured(scene.trial(method, epsilon, clients))) for epsilon in epsilons]
    value, low, high = (np.array([getattr(point, name) for point in points]) for name in ("value", "low", "high"))
    return Series(NAMES[method], np.array(epsilons), value, low, high, LOOKS[method])


def reached(scene: Scene, found: Measured) -> Interval:
    """The level after the last round: dB of the mean NMSD, or per cent."""
    if not scene.regression:
        return interval(100.0 * found["accuracy"][:, -1])
    nmsd = found["nmsd"][:, -1]
    linear, mean = interval(nmsd), float(decibels(nmsd.mean()))
    half = 10.0 / math.log(10.0) * (linear.high - linear.value) / linear.value
    return Interval(mean, mean - half, mean + half, linear.runs)
