"""A plan: the settings for public facts and a target ε, what they will achieve, and what would help most."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import stdtrit

from pgfl.array_types import Floats
from pgfl.config import Config, parse, to_toml
from pgfl.errors import ConfigError
from pgfl.planning.facts import Facts, facts_of
from pgfl.planning.tuning import (
    LAM,
    MOST_RELEASES,
    Score,
    Settings,
    error,
    first_guess,
    tuned,
    without_privacy,
)
from pgfl.privacy.trust import Level

TRIES = 40
FEW_TRIES = 5  # for another size or trust, where the plan's own settings are a good start
CURVE_TRIES, CURVE_SEEDS = 4, 2  # for every point of the curves, which only show how far things are apart
TUNING_SEEDS = (1, 2)
JUDGING_SEEDS = (11, 12, 13, 14)
LEVELS = (0.25, 1.0, 4.0, 16.0)
CONFIDENCE = 0.9
DROWNED_DB = -1.0  # an error above it is hardly less than that of a model of zeros
DROWNED_POINTS = 5.0  # above chance
TRUSTS: tuple[Level, ...] = ("local", "masked", "site")  # the weaker the assumption, the earlier
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Forecast:
    """An expected error with the interval in which one run will lie nine times out of ten."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Plan:
    """What to run, what it will achieve, and what would help; regression in dB of NMSD, classification in per cent."""

    facts: Facts
    settings: Settings
    predicted: Forecast
    limit: float  # without privacy
    by_trust: Mapping[Level, Mapping[float, float]]  # error against ε, for every trust that the federation allows
    helps: Mapping[str, float]  # by how much a change of the facts would improve the result
    config: Config | None = field(default=None, compare=False)

    @property
    def unit(self) -> str:
        """Of every error here."""
        return "dB" if self.facts.task == "regression" else "%"

    @property
    def by_epsilon(self) -> Mapping[float, float]:
        """Error against ε for the plan's own trust."""
        return self.by_trust.get(self.facts.trust, {})

    @property
    def drowned(self) -> bool:
        """Whether the noise will drown the signal."""
        if self.facts.task == "regression":
            return self.predicted.value > DROWNED_DB
        return self.predicted.value < 50.0 + DROWNED_POINTS

    @property
    def explained(self) -> float | None:
        """The share of the labels' variance that models will explain on new records, of a regression."""
        if self.facts.task == "classification":
            return None
        return float(max(0.0, self.facts.expected * (1.0 - 10.0 ** (self.predicted.value / 10.0))))

    @property
    def verdict(self) -> str:
        """One sentence for the user."""
        epsilon = f"ε = {self.facts.epsilon:g}"
        if self.drowned:
            best = max(self.helps, key=lambda name: self.helps[name])
            return f"At {epsilon} the noise will drown the signal: nothing will be learned; what helps most is {best}."
        if self.explained is not None:
            return (
                f"At {epsilon} models will explain about {100 * self.explained:.0f} % of the labels' variance on new "
                f"records ({100 * self.facts.expected:.0f} % without privacy and with endless data)."
            )
        return f"At {epsilon} models will be right on about {self.predicted.value:.0f} % of new records."

    def to_toml(self) -> str:
        """The config that carries the plan out."""
        if self.config is None:
            raise ValueError("This plan was made from facts alone; plan a config to get one back.")
        return to_toml(self.config)

    def described(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "facts": asdict(self.facts),
            "settings": asdict(self.settings) | {"rounds": self.settings.rounds},
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


def plan(source: Config | Facts, *, tries: int = TRIES, progress: Progress | None = None, **facts: Any) -> Plan:
    """Plan a private training from public facts: no record is read and nothing is spent.

    `source` is a config, of whose table only the columns' names and who is where are read, or `Facts`. Facts that a
    config does not state can be given by name: `expected`, `label_scale`, `epsilon`, `trust`.
    """
    stated = facts_of(source, **facts) if isinstance(source, Config) else replace(source, **facts)
    small = stated.planned
    _check_trust(small)
    curves = {(trust, level): replace(small, trust=trust, epsilon=level) for trust in TRUSTS for level in LEVELS}
    curves = {key: other for key, other in curves.items() if _possible(other)}
    variants = {name: other for name, other in _variants(small).items() if _possible(other)}
    total, done = len(TUNING_SEEDS) * (tries + FEW_TRIES * len(variants) + CURVE_TRIES * len(curves)), 0

    def score_for(shape: Facts, what: str) -> Score:
        def score(settings: Settings) -> float:
            nonlocal done
            errors = []
            for seed in TUNING_SEEDS:
                errors.append(error(shape, settings, seed))
                done += 1
                if progress:
                    progress(done, total, what)
            return float(np.mean(errors))

        return score

    settings = tuned(score_for(small, "trying settings"), [first_guess(small)], tries)
    found = _judged(small, settings)
    reached: dict[Any, float] = {}
    locally: dict[float, Settings] = {}
    for (trust, level), other in curves.items():
        first = locally.get(level, settings)  # what is good for local noise is no worse with less of it
        starts = [first, _fed(settings, other.as_if_local / small.as_if_local), first_guess(other)]
        chosen = tuned(score_for(other, f"trust = {trust}, epsilon = {level:g}"), starts, CURVE_TRIES)
        locally.setdefault(level, chosen)
        reached[trust, level] = float(_judged(other, chosen, JUDGING_SEEDS[:CURVE_SEEDS]).mean())
    for name, other in variants.items():
        starts = [settings, _fed(settings, other.as_if_local / small.as_if_local), first_guess(other)]
        reached[name] = float(_judged(other, tuned(score_for(other, name), starts, FEW_TRIES)).mean())
    levels: dict[Level, dict[float, float]] = {}
    for trust, level in curves:
        levels.setdefault(trust, {})[level] = reached[trust, level]
    sign = -1.0 if small.task == "regression" else 1.0
    helps = {name: sign * (reached[name] - float(found.mean())) for name in variants}
    limit = _shown(small, without_privacy(small, JUDGING_SEEDS[0]))
    made = _configured(source, stated, settings) if isinstance(source, Config) else None
    return Plan(stated, settings, _forecast(found), limit, levels, helps, made)


def _possible(facts: Facts) -> bool:
    return facts.trusted.takes_part(facts.per_pair)


def _check_trust(facts: Facts) -> None:
    """Refuse a trust that the clients of a cluster at a server are too few for."""
    if (complaint := facts.trusted.complaint(facts.per_pair)) is not None:
        raise ConfigError(
            f'With privacy.trust = "{facts.trust}" nobody could ever contribute, because {complaint}; lower '
            "privacy.contributors or privacy.colluders, or choose another trust."
        )


def _variants(facts: Facts) -> dict[str, Facts]:
    least, most = facts.records
    weaker = TRUSTS[TRUSTS.index(facts.trust) + 1 :]
    changed = {
        **{f'trust = "{trust}"': replace(facts, trust=trust) for trust in weaker},
        "twice the records per client": replace(facts, records=(2 * least, 2 * most)),
        "twice the clients": replace(facts, clients_per_server=2 * facts.clients_per_server),
        f"ε = {2 * facts.epsilon:g}": replace(facts, epsilon=2.0 * facts.epsilon),
    }
    if facts.columns > 1:
        changed["half the columns"] = replace(facts, columns=(facts.columns + 1) // 2)
    return changed


def _fed(settings: Settings, times: float) -> Settings:
    """The settings with more or fewer releases for an ε that is `times` as large; steps become shorter or longer."""
    releases = int(np.clip(round(settings.releases * times**0.7), 1, MOST_RELEASES))
    return replace(settings, releases=releases, rho=settings.rho * releases / settings.releases)


def _judged(facts: Facts, settings: Settings, seeds: Sequence[int] = JUDGING_SEEDS) -> Floats:
    """What the settings reach on twins that tuning has not seen, one number per twin."""
    return np.array([_shown(facts, error(facts, settings, seed)) for seed in seeds])


def _shown(facts: Facts, found: float) -> float:
    """An error in the unit that a plan shows: NMSD in dB, or accuracy in per cent."""
    return 10.0 * math.log10(found) if facts.task == "regression" else 100.0 * (1.0 - found)


def _forecast(found: Floats) -> Forecast:
    runs, mean = len(found), float(found.mean())
    half = float(stdtrit(runs - 1, 0.5 + CONFIDENCE / 2) * found.std(ddof=1) * math.sqrt(1.0 + 1.0 / runs))
    return Forecast(mean, mean - half, mean + half)


def _configured(config: Config, facts: Facts, settings: Settings) -> Config:
    """The config with the plan's settings in the place of its own."""
    given = config.model_dump(exclude_none=True)
    tau = settings.tau if settings.tau_decay == 1.0 else {"start": settings.tau, "decay": settings.tau_decay}
    loss = {"kind": "logistic"} if settings.kappa is None else {"kind": "huber", "kappa": settings.kappa}
    algorithm = {"kind": "pgfl", "client": "gradient", "rho": settings.rho, "tau": tau, "participants": "all"}
    privacy = {
        "enabled": True,
        "epsilon": facts.epsilon,
        "delta": facts.delta,
        "zeta": settings.zeta,
        "max_releases": settings.releases,
        "index": "release",
        "x_norm": facts.x_norm,
        **{name: getattr(facts, name) for name in ("trust", "contributors", "colluders", "dropouts")},
    }
    kept = {key: given["privacy"][key] for key in ("noise", "y_bound") if given["privacy"].get(key) is not None}
    return parse(
        {
            **given,
            "rounds": settings.rounds,
            "graph": given["graph"] | {"mixing": "metropolis"},
            "objective": loss | {"lam": LAM},
            "algorithm": algorithm,
            "privacy": kept | privacy,
        }
    )
