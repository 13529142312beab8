"""What a plan says, in words and as a picture: settings for a target ε, and what they will achieve."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri, stdtrit

from pgfl.arrays import Floats
from pgfl.config import Config, parse, to_toml
from pgfl.drawing.networks import new_axes
from pgfl.drawing.plots import cluster_colour
from pgfl.errors import ConfigError
from pgfl.planning.facts import Facts
from pgfl.planning.moments import Foreseen
from pgfl.planning.search import LAM, MIXING, Settings, steady_rho
from pgfl.privacy.trust import Level

if TYPE_CHECKING:
    from matplotlib.axes import Axes


SIZE = (6.0, 4.0)
DPI = 150
KINDS = (".png", ".pdf", ".svg")
MARKS = {"local": "o", "masked": "D", "site": "v"}
NAMES = {"local": "local: nobody is trusted", "masked": "masked sums", "site": "site: one's own server is trusted"}


def check_kind(path: Path) -> None:
    """Refuse a file that is no picture, before a plan is made for it."""
    if path.suffix.lower() not in KINDS:
        raise ConfigError(f"A picture is a file that ends in {', '.join(KINDS)}; got {path.name!r}.")


def draw(plan: Plan, axes: Axes | None = None) -> Axes:
    """Curves of all trusts, the limit, and the plan's own prediction with its interval."""
    axes = new_axes(*SIZE) if axes is None else axes
    for number, (trust, curve) in enumerate(plan.by_trust.items()):
        levels = sorted(curve)
        values = [curve[level] for level in levels]
        axes.plot(levels, values, MARKS[trust] + "-", color=cluster_colour(number), label=NAMES[trust], markersize=4)
    axes.axhline(plan.limit, color="grey", linestyle="--", label="without privacy")
    predicted = plan.predicted
    reach = [[predicted.value - predicted.low], [predicted.high - predicted.value]]
    axes.errorbar(
        [plan.facts.epsilon], [predicted.value], reach, color="black", marker="*", markersize=10, capsize=4,
        linestyle="none", label=f"this plan ({plan.facts.trust}), nine runs out of ten",
    )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("ε")
    axes.set_ylabel(f"{plan.measure} [{plan.unit}]")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    return axes


def save(plan: Plan, path: Path) -> None:
    """Write the picture."""
    check_kind(path)
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=SIZE, layout="constrained")
    draw(plan, axes)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI)
    plt.close(figure)


CONFIDENCE = 0.9
UNLIKE = 3.5
"""By how many points runs on a real table differ from its twins beyond what twins differ by, as a deviation."""

UNLIKE_SHARE = (0.02, 0.3)
"""How far the share that real tables keep is from that of their twins, as a deviation: always, and of what is lost."""

CHANCES = ndtri((np.arange(25) + 0.5) / 25)
"""Normal numbers, equally probable."""

LEAST_GAINED = 0.1  # of what is gained without privacy, as held-out rows show it: shares of less say nothing
DROWNED_DB = -1.0  # an error above it is hardly less than that of a model of zeros
DROWNED_POINTS = 5.0  # above chance, or of variance explained
LEAST_KEPT = 0.1  # of what is reached without privacy


@dataclass(frozen=True)
class Forecast:
    """An expected error with the interval in which one run will lie nine times out of ten."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Plan:
    """What to run, what it will achieve, and what would help.

    Figures are R² or AUC in per cent; for a regression on generated data NMSD in dB. `kept` is the share of what is
    reached without privacy, of a table, and `measured` that share as the held-out rows of one run will show it.
    """

    facts: Facts
    settings: Settings
    predicted: Forecast
    limit: float  # without privacy
    by_trust: Mapping[Level, Mapping[float, float]]  # error against ε, for every trust that the federation allows
    helps: Mapping[str, float]  # by how much a change of the facts would improve the result
    instead: Mapping[tuple[Level, float], Level] = field(default_factory=dict)  # where less trust does better
    config: Config | None = field(default=None, compare=False)
    kept: Forecast | None = None
    measured: Forecast | None = None
    chosen_map: Choice | None = None

    @property
    def unit(self) -> str:
        """Of every error here."""
        return "dB" if self.facts.uses_nmsd else "%"

    @property
    def measure(self) -> str:
        """What every error here is."""
        return "NMSD" if self.facts.uses_nmsd else "R²" if self.facts.task == "regression" else "AUC"

    @property
    def by_epsilon(self) -> Mapping[float, float]:
        """Error against ε for the plan's own trust."""
        return self.by_trust.get(self.facts.trust, {})

    @property
    def drowned(self) -> bool:
        """Whether the models will be too noisy to use."""
        if self.kept is not None:
            return self.kept.value < LEAST_KEPT
        if self.facts.uses_nmsd:
            return self.predicted.value > DROWNED_DB
        chance = 0.0 if self.facts.task == "regression" else 50.0
        return self.predicted.value < chance + DROWNED_POINTS

    @property
    def doubtful(self) -> bool:
        """Whether they may be."""
        return self.kept is not None and self.kept.low < 0.0

    @property
    def explained(self) -> float | None:
        """The share of the labels' variance that models will explain on new records, of a regression."""
        if self.facts.task == "classification":
            return None
        if not self.facts.uses_nmsd:
            return max(0.0, self.predicted.value / 100.0)
        return float(max(0.0, self.facts.expected * (1.0 - 10.0 ** (self.predicted.value / 10.0))))

    @property
    def verdict(self) -> str:
        """One sentence for the user."""
        epsilon, new = f"ε = {self.facts.epsilon:g}", "on new records"
        if self.drowned:
            best = max(self.helps, key=lambda name: self.helps[name], default=None)
            helps = f"what helps most is {best}" if best else "`pgfl plan` says what would help"
            return f"At {epsilon} the models will be too noisy to use; {helps}."
        doubt = ", but they may also be too noisy to use" if self.doubtful else ""
        if self.kept is not None and not self.facts.expected_stated:
            return (
                f"At {epsilon} models will keep about {100 * self.kept.value:.0f} % of what they would learn without "
                f"privacy{doubt} ({100 * max(self.kept.low, 0.0):.0f} to {100 * self.kept.high:.0f} %)."
            )
        if self.explained is not None:
            return (
                f"At {epsilon} models will explain about {100 * self.explained:.0f} % of the labels' variance {new} "
                f"({self._limit} without privacy){doubt}."
            )
        return (
            f"At {epsilon} models will have an AUC of about {self.predicted.value / 100.0:.2f} {new} "
            f"({self.limit / 100.0:.2f} without privacy){doubt}."
        )

    @property
    def _limit(self) -> str:
        return f"{100 * self.facts.expected if self.facts.uses_nmsd else self.limit:.0f} %"

    @property
    def choices(self) -> tuple[Choice, ...]:
        """What the plan sets, and why."""
        first = () if self.chosen_map is None else (self.chosen_map,)
        return (*first, *choices(self.facts, self.settings, self.facts.rows is not None))

    @property
    def advice(self) -> str | None:
        """What a user of a table could state to get a better plan."""
        facts, missing = self.facts, []
        if facts.rows is None:
            return None
        labels = facts.task == "classification"
        if not facts.expected_stated:
            missing.append(f"the {self.measure} that is reached without privacy (--expect {0.8 if labels else 0.4})")
        if facts.label_mean is None and facts.labels == 2:
            missing.append(
                "how often the second label occurs (--label-mean 0.3)"
                if labels
                else "the target's mean on the scale on which its bounds are -1 and 1 (--label-mean -0.2)"
            )
        if not labels and not facts.label_stated:
            missing.append("its deviation on that scale (--label-scale 0.4)")
        return f"These are guesses; state what you know: {'; '.join(missing)}." if missing else None

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw error against ε for every trust beside the limit without privacy, on `ax` if it is given."""

        return draw(self, ax)

    def to_toml(self) -> str:
        """Return the config that carries the plan out."""
        if self.config is None:
            raise ValueError("This plan was made from facts alone; plan a config to get one back.")
        return to_toml(self.config)

    def described(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "facts": asdict(self.facts),
            "settings": asdict(self.settings) | {"rounds": self.settings.rounds},
            "measure": self.measure,
            "unit": self.unit,
            "predicted": asdict(self.predicted),
            "kept": None if self.kept is None else asdict(self.kept),
            "measured": None if self.measured is None else asdict(self.measured),
            "explained": self.explained,
            "without_privacy": self.limit,
            "by_epsilon": {f"{level:g}": value for level, value in self.by_epsilon.items()},
            "by_trust": {
                trust: {f"{level:g}": value for level, value in curve.items()} for trust, curve in self.by_trust.items()
            },
            "helps": dict(self.helps),
            "choices": [asdict(choice) for choice in self.choices],
            "verdict": self.verdict,
        }


def forecast(found: Floats, facts: Facts) -> Forecast:
    """Return what to expect of one more run, given what some twins reached.

    Twins of a table differ as much as such tables may; some of them end far below the others, so quantiles are taken.
    No twin is exact and a run is measured by few records, so the interval is wider than theirs.
    """
    if facts.rows is not None:
        middle, low, high = (float(np.quantile(found, at)) for at in (0.5, 0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2))
        beyond = float(ndtri(0.5 + CONFIDENCE / 2)) * math.hypot(UNLIKE, _chance(middle / 100.0, facts))
        return Forecast(
            middle, middle - math.hypot(middle - low, beyond), min(middle + math.hypot(high - middle, beyond), 100.0)
        )
    runs, mean = len(found), float(found.mean())
    half = float(stdtrit(runs - 1, 0.5 + CONFIDENCE / 2)) * float(found.std(ddof=1)) * math.sqrt(1.0 + 1.0 / runs)
    return Forecast(mean, mean - half, mean + half)


def share_kept(found: Floats) -> Forecast:
    """Return the share of what is reached without privacy, given that of some twins."""
    return _nine_of_ten(found, 1.0)


def share_measured(found: Sequence[Foreseen], facts: Facts) -> Forecast:
    """Return which share the held-out rows of one run will show, given what is foreseen of some twins.

    Few rows show it by chance only, the more so the less there is to learn; and a real table is no twin.
    """
    rows, (always, of_lost) = facts.test_records or math.inf, UNLIKE_SHARE
    kept, chance = np.array([(each.kept[0], each.chance) for each in found]).T[:, :, None, None]
    lost = np.maximum(1.0 - kept, 0.0)
    by_chance = np.sqrt((chance * lost + 2.0 * lost**2) / rows + always**2 + (of_lost * np.minimum(lost, 1.0)) ** 2)
    gained = np.maximum(1.0 + np.sqrt((chance + 2.0) / rows) * CHANCES, LEAST_GAINED)
    return _nine_of_ten((1.0 - (1.0 - kept + by_chance * CHANCES[:, None]) / gained).ravel(), math.inf)


def _nine_of_ten(found: Floats, most: float) -> Forecast:
    """Return the median, and the interval that has nine of ten."""
    middle, low, high = (float(np.quantile(found, at)) for at in (0.5, 0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2))
    return Forecast(middle, low, min(high, most))


def _chance(value: float, facts: Facts) -> float:
    """Return the standard deviation, in points, of R² or AUC that so few records measure."""
    if not facts.test_records:
        return 0.0
    share = min(max(value, 0.0), 1.0)
    if facts.task == "regression":
        return 100.0 * math.sqrt(4.0 * share * (1.0 - share) ** 2 / facts.test_records)
    mean = facts.label_mean or 1.0 / facts.labels
    return 100.0 * math.sqrt(share * (1.0 - share) / max(facts.test_records * min(mean, 1.0 - mean), 1.0))


@dataclass(frozen=True)
class Choice:
    """One key that a plan sets, and why."""

    key: str
    value: object
    reason: str


def choices(facts: Facts, settings: Settings, own_records: bool) -> tuple[Choice, ...]:
    """Return all that a plan sets: the one place from which configs, `pgfl init` and `--explain` take it."""
    least = steady_rho(facts, settings.x_norm or facts.x_norm)
    found = [
        Choice("rounds", settings.rounds, "one per release: everyone takes part in every round"),
        Choice("graph.mixing", MIXING, "neighbours count by their clients: a mean of few is noisy"),
        Choice("objective.kind", settings.objective.kind, "a loss with bounded slopes, which noise can hide"),
        Choice("objective.lam", LAM, "noise already keeps coefficients small"),
    ]
    if settings.kappa is not None:
        found.append(Choice("objective.kappa", settings.kappa, "residuals beyond it pull no harder: less noise"))
    found += [
        Choice("algorithm.kind", "pgfl", "servers average with their neighbours"),
        Choice("algorithm.client", "gradient", "one gradient step, which loses less to noise than solving"),
        Choice("algorithm.rho", settings.rho, f"step length; above {least:.3g} no rows overshoot"),
        _tau(facts, settings, own_records),
        Choice("algorithm.count", "records", "rows count alike: no small client sets everyone's noise")
        if own_records
        else Choice("algorithm.full_records", settings.full_records, "records count alike"),
        Choice("algorithm.participants", "all", "the more take part, the more noise averages out"),
        Choice("privacy.zeta", settings.zeta, "late releases are felt longest: their noise is less, by so much each"),
        Choice("privacy.max_releases", settings.releases, "they share the budget: more are noisier, fewer learn less"),
        Choice("privacy.index", "release", "noise falls with releases, not with rounds"),
    ]
    if settings.x_norm is not None:
        why = f"bounds allow rows of {facts.x_norm:.3g}; few are that long, and all would pay for them"
        found.append(Choice("privacy.x_norm", settings.x_norm, why))
    elif not own_records:
        found.append(Choice("privacy.x_norm", facts.x_norm, "the longest row"))
    return tuple(found)


def _tau(facts: Facts, settings: Settings, own_records: bool) -> Choice:
    """Return how clusters learn from each other; nobody knows beforehand how much those of a table differ."""
    if facts.clusters == 1:
        return Choice("algorithm.tau", 0.0, "there is one cluster")
    if own_records:
        return Choice("algorithm.tau", "auto", "clusters share as far as their released models agree, which costs no ε")
    if settings.tau == 0.0:
        return Choice("algorithm.tau", 0.0, "clusters learn alone: they differ more than noise disturbs them")
    tau = settings.tau if settings.tau_decay == 1.0 else {"start": settings.tau, "decay": settings.tau_decay}
    return Choice("algorithm.tau", tau, "clusters borrow from each other, most while there is most noise")


def configured(config: Config, facts: Facts, settings: Settings) -> Config:
    """Return the config with the plan's settings in the place of its own."""
    given = tomllib.loads(to_toml(config))
    kept = {key: given["privacy"][key] for key in ("noise", "y_bound", "x_norm") if key in given["privacy"]}
    classes = {key: given["objective"][key] for key in ("classes",) if key in given["objective"]}
    trust = {name: getattr(facts, name) for name in ("trust", "contributors", "colluders", "dropouts")}
    given |= {"objective": classes if settings.labels > 2 else {}, "algorithm": {}}
    given["privacy"] = kept | {"enabled": True, "epsilon": facts.epsilon, "delta": facts.delta} | trust
    for choice in choices(facts, settings, config.data.own_records):
        section, _, key = choice.key.rpartition(".")
        (given[section] if section else given)[key] = choice.value
    return parse(given)
