"""What a plan says, in words and as a picture: settings for a target ε, and what they will achieve."""

from __future__ import annotations

import math
from collections.abc import Mapping
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
from pgfl.planning.search import LAM, MIXING, Settings
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

DROWNED_DB = -1.0  # an error above it is hardly less than that of a model of zeros
DROWNED_POINTS = 5.0  # above chance, or of variance explained


@dataclass(frozen=True)
class Forecast:
    """An expected error with the interval in which one run will lie nine times out of ten."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Plan:
    """What to run, what it will achieve, and what would help.

    Figures are accuracies in per cent, for a regression on a table R² in per cent, on generated data NMSD in dB.
    """

    facts: Facts
    settings: Settings
    predicted: Forecast
    limit: float  # without privacy
    by_trust: Mapping[Level, Mapping[float, float]]  # error against ε, for every trust that the federation allows
    helps: Mapping[str, float]  # by how much a change of the facts would improve the result
    instead: Mapping[tuple[Level, float], Level] = field(default_factory=dict)  # where less trust does better
    config: Config | None = field(default=None, compare=False)

    @property
    def unit(self) -> str:
        """Of every error here."""
        return "dB" if self.facts.uses_nmsd else "%"

    @property
    def measure(self) -> str:
        """What every error here is."""
        return "NMSD" if self.facts.uses_nmsd else "R²" if self.facts.task == "regression" else "accuracy"

    @property
    def by_epsilon(self) -> Mapping[float, float]:
        """Error against ε for the plan's own trust."""
        return self.by_trust.get(self.facts.trust, {})

    @property
    def drowned(self) -> bool:
        """Whether the models will be too noisy to use."""
        if self.facts.uses_nmsd:
            return self.predicted.value > DROWNED_DB
        chance = 0.0 if self.facts.task == "regression" else 50.0
        return self.predicted.value < chance + DROWNED_POINTS

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
        epsilon = f"ε = {self.facts.epsilon:g}"
        if self.drowned:
            best = max(self.helps, key=lambda name: self.helps[name])
            return f"At {epsilon} the models will be too noisy to use; what helps most is {best}."
        if self.explained is not None:
            low, high = self.predicted.low, self.predicted.high
            if not self.facts.uses_nmsd and low < DROWNED_POINTS:
                return (
                    f"At {epsilon} models may explain {100 * self.explained:.0f} % of the labels' variance on new "
                    f"records, but may also be too noisy to use ({low:.0f} to {high:.0f} %)."
                )
            return (
                f"At {epsilon} models will explain about {100 * self.explained:.0f} % of the labels' variance on new "
                f"records ({100 * self.facts.expected:.0f} % without privacy and with unlimited data)."
            )
        return f"At {epsilon} models will be right on about {self.predicted.value:.0f} % of new records."

    @property
    def advice(self) -> str | None:
        """What a user of a table could state to get a better plan."""
        facts = self.facts
        if facts.rows is None or (facts.label_mean is not None and (facts.label_stated or facts.task != "regression")):
            return None
        if facts.task == "classification":
            return "How often the second label occurs is a guess here; if you know it, state it: --label-mean 0.3."
        return (
            "The target's mean and deviation are guesses here; if you know them, state them on the scale on which its "
            "bounds are -1 and 1: --label-mean -0.2 --label-scale 0.4."
        )

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
            "explained": self.explained,
            "without_privacy": self.limit,
            "by_epsilon": {f"{level:g}": value for level, value in self.by_epsilon.items()},
            "by_trust": {
                trust: {f"{level:g}": value for level, value in curve.items()} for trust, curve in self.by_trust.items()
            },
            "helps": dict(self.helps),
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


def _chance(value: float, facts: Facts) -> float:
    """Return the standard deviation, in points, of R² or accuracy that so few records measure."""
    if not facts.test_records:
        return 0.0
    share = min(max(value, 0.0), 1.0)
    variance = 4.0 * share * (1.0 - share) ** 2 if facts.task == "regression" else share * (1.0 - share)
    return 100.0 * math.sqrt(variance / facts.test_records)


def configured(config: Config, facts: Facts, settings: Settings) -> Config:
    """Return the config with the plan's settings in the place of its own."""
    given = config.model_dump(exclude_none=True)
    tau = settings.tau if settings.tau_decay == 1.0 else {"start": settings.tau, "decay": settings.tau_decay}
    loss = {"kind": "logistic"} if settings.kappa is None else {"kind": "huber", "kappa": settings.kappa}
    algorithm: dict[str, Any] = {
        "kind": "pgfl",
        "client": "gradient",
        "rho": settings.rho,
        "tau": tau,
        "participants": "all",
    }
    if settings.full_records > 1:
        algorithm["full_records"] = settings.full_records
    privacy = {
        "enabled": True,
        "epsilon": facts.epsilon,
        "delta": facts.delta,
        "zeta": settings.zeta,
        "max_releases": settings.releases,
        "index": "release",
        "x_norm": settings.x_norm or facts.x_norm,
        **{name: getattr(facts, name) for name in ("trust", "contributors", "colluders", "dropouts")},
    }
    kept = {key: given["privacy"][key] for key in ("noise", "y_bound") if given["privacy"].get(key) is not None}
    return parse(
        {
            **given,
            "rounds": settings.rounds,
            "graph": given["graph"] | {"mixing": MIXING},
            "objective": loss | {"lam": LAM},
            "algorithm": algorithm,
            "privacy": kept | privacy,
        }
    )
