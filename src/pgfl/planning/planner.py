"""Makes a plan: tunes settings on some twins, judges them on others, and asks what would change with other facts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pgfl.array_types import Floats
from pgfl.config import Config
from pgfl.errors import ConfigError
from pgfl.planning.facts import Facts, facts_of
from pgfl.planning.forecast import Plan, configured, forecast
from pgfl.planning.tuning import (
    MOST_RELEASES,
    Settings,
    Trials,
    errors,
    first_guess,
    tuned,
    without_privacy,
)
from pgfl.privacy.trust import Level

TRIES = 40
FEW_TRIES = 4  # for another size or trust, where the plan's own settings are a good start
CURVE_TRIES = 3  # for every point of the curves, which only show how far things are apart
TUNING_SEEDS = (1, 2)
JUDGING_SEEDS = (11, 12, 13, 14, 15, 16)
FEW_SEEDS = JUDGING_SEEDS[:2]
LEVELS = (0.25, 1.0, 4.0, 16.0)
TRUSTS: tuple[Level, ...] = ("local", "masked", "site")  # the weaker the assumption, the earlier
Progress = Callable[[int, int, str], None]


def plan(source: Config | Facts, *, tries: int = TRIES, progress: Progress | None = None, **facts: Any) -> Plan:
    """Plan a private training from public facts: no record is read and nothing is spent.

    `source` is a config, of whose table only the columns' names and who is where are read, or `Facts`. Facts that a
    config does not state can be given by name: `expected`, `label_scale`, `epsilon`, `trust`, and `spread`, the
    standard deviation of a typical number that is scaled from its bounds to [−1, 1].
    """
    stated = facts_of(source, **facts) if isinstance(source, Config) else replace(source, **facts)
    small = stated.planned
    _check_trust(small)
    points = {(trust, level): replace(small, trust=trust, epsilon=level) for trust in TRUSTS for level in LEVELS}
    points = {key: other for key, other in points.items() if possible(other)}
    variants = {name: other for name, other in _variants(small).items() if possible(other)}
    total, done = tries + FEW_TRIES * len(variants) + CURVE_TRIES * len(points), 0

    def search(shape: Facts, starts: Sequence[Settings], tries: int, seeds: Sequence[int], what: str) -> Settings:
        def tried() -> None:
            nonlocal done
            done = min(done + 1, total)
            if progress:
                progress(done, total, what)

        return tuned(Trials(shape, seeds, tried), starts, tries, None if shape.rows is None else shape.x_norm)

    settings = search(small, [first_guess(small)], tries, TUNING_SEEDS, "trying settings")
    found = judged(small, settings)
    curves: dict[Level, dict[float, float]] = {}
    chosen: dict[float, tuple[Level, Settings, float]] = {}
    instead: dict[tuple[Level, float], Level] = {}
    for (trust, level), other in points.items():
        weaker = chosen.get(level)
        fed = _fed(settings, other.as_if_local / small.as_if_local)
        starts = [fed, first_guess(other)] if weaker is None else [weaker[1], fed]
        best = search(other, starts, CURVE_TRIES, TUNING_SEEDS[:1], f"trust = {trust}, epsilon = {level:g}")
        reached = float(judged(other, best, FEW_SEEDS).mean())
        if weaker is None or _better(small, reached, weaker[2]):
            chosen[level] = (trust, best, reached)
        else:  # who trusts more can still do what needs less trust
            instead[trust, level] = weaker[0]
        curves.setdefault(trust, {})[level] = chosen[level][2]
    helps = {}
    for name, other in variants.items():
        starts = [settings, _fed(settings, other.as_if_local / small.as_if_local)]
        reached = float(judged(other, search(other, starts, FEW_TRIES, TUNING_SEEDS[:1], name), FEW_SEEDS).mean())
        helps[name] = (-1.0 if small.by_truth else 1.0) * (reached - float(found[: len(FEW_SEEDS)].mean()))
    limit = shown(small, np.array([without_privacy(small, JUDGING_SEEDS[0])]))[0]
    made = configured(source, stated, settings) if isinstance(source, Config) else None
    predicted = forecast(found, small.rows is not None)
    return Plan(stated, settings, predicted, float(limit), curves, helps, instead, made)


def possible(facts: Facts) -> bool:
    """Whether the clients of a cluster at a server are enough for the trust, on average."""
    return facts.trusted.takes_part(facts.per_pair)


def judged(facts: Facts, settings: Settings, seeds: Sequence[int] = JUDGING_SEEDS) -> Floats:
    """What the settings reach on twins that tuning has not seen, one number per twin."""
    return shown(facts, errors(facts, settings, seeds))


def shown(facts: Facts, found: Floats) -> Floats:
    """Errors in the unit that a plan shows: NMSD in dB, else R² or accuracy in per cent."""
    return np.asarray(10.0 * np.log10(found) if facts.by_truth else 100.0 * (1.0 - found))


def _better(facts: Facts, one: float, other: float) -> bool:
    return one < other if facts.by_truth else one > other


def _check_trust(facts: Facts) -> None:
    """Refuse a trust that the clients of a cluster at a server are too few for."""
    if (complaint := facts.trusted.complaint(facts.per_pair)) is not None:
        raise ConfigError(
            f'With privacy.trust = "{facts.trust}" nobody could ever contribute, because {complaint}; lower '
            "privacy.contributors or privacy.colluders, or choose another trust."
        )


def _variants(facts: Facts) -> dict[str, Facts]:
    changed = {
        **{f'trust = "{trust}"': replace(facts, trust=trust) for trust in TRUSTS if trust != facts.trust},
        "twice the records per client": facts.with_more_records(2),
        "twice the clients": facts.with_more_clients(2),
        f"ε = {2 * facts.epsilon:g}": replace(facts, epsilon=2.0 * facts.epsilon),
    }
    if facts.columns > 1:
        changed["half the columns"] = facts.with_half_the_columns
    return changed


def _fed(settings: Settings, times: float) -> Settings:
    """The settings with more or fewer releases for an ε that is `times` as large; steps become shorter or longer."""
    releases = int(np.clip(round(settings.releases * times**0.7), 1, MOST_RELEASES))
    return replace(settings, releases=releases, rho=settings.rho * releases / settings.releases)
