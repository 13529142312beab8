"""The verdict on a run: whether its models have converged, and what to change if not.

It is made from quantities that anyone may know: the movement of the server models, which are released, and with privacy
the noise that the budget prescribes. No record and no clean client model is involved.

How the server models of a run move: how far they are from where they are heading, and whether they grow without end.

All of it follows from released models and, with privacy, from the noise that the budget prescribes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, get_args

SPAN = 3  # windows over which the rate of the approach is measured; they double the rounds
GROWTH, AT_ONCE = 5.0, 10.0  # growth of the movement over half a run, or in each of two rounds, that is divergence
LEAST_ROUNDS = 8  # before which only growth at once is divergence
LEAST_LENGTH = 6  # of a window, from which fluctuations average out in it
CORRELATED = 16.0  # how much longer than independent rounds fluctuations need to average out


@dataclass(frozen=True)
class Window:
    """Consecutive rounds whose server models were averaged; all sizes are norms over all models of a run.

    `wander` is the distance to the average of the window before, `step` the movement of the last round, `apart` the
    distance of the last models to the window's average.
    """

    end: int
    length: int
    size: float
    size_now: float
    wander: float
    step: float
    apart: float

    @property
    def centre(self) -> float:
        """The middle of its rounds."""
        return self.end - 0.5 * (self.length - 1)


@dataclass(frozen=True)
class Noise:
    """The noise of a private run, from public quantities: its power in each round, summed over all server models.

    `reach` is how far the clients' data can pull the models over the whole run, by the sensitivities, and
    `in_predictions` the standard deviation of a prediction that the noise of late rounds causes.
    """

    power: Sequence[float]
    reach: float
    last_release: int
    in_predictions: float = 0.0

    @property
    def walk(self) -> float:
        """How far the noise of all rounds moves the models if none of it is forgotten."""
        return math.sqrt(sum(self.power))

    @property
    def to_reach(self) -> float:
        """The noise of the whole run beside how far data can move the models."""
        return self.walk / self.reach if self.reach > 0.0 else math.inf

    @property
    def figures(self) -> dict[str, float]:
        """What every verdict on a private run states."""
        return {"noise": self.walk, "noise_in_predictions": self.in_predictions, "noise_to_reach": self.to_reach}

    def wander(self, first: Window, second: Window) -> float:
        """How far apart the averages of two adjacent windows are because of this noise, if none of it is forgotten."""
        total = 0.0
        for number, power in enumerate(self.power, start=1):
            share = _share_after(number, second) - _share_after(number, first)
            total += share * share * power
        return math.sqrt(total)


def _share_after(number: int, window: Window) -> float:
    """Return the share of a window's rounds that a round's noise is part of."""
    return min(1.0, max(0.0, (window.end - number + 1) / window.length))


@dataclass(frozen=True)
class Distance:
    """How far the models are from where they are heading, relative to their size."""

    drift: float
    spread: float
    rate: float  # of the approach, per round; 0 if there is none
    likely: float = math.inf  # the drift as it most likely is, where `drift` is cautious

    @property
    def total(self) -> float:
        """Both together."""
        return math.hypot(self.drift, self.spread)

    def rounds_to(self, tolerance: float) -> int | None:
        """Return how many more rounds bring the drift below a tolerance, if it shrinks at all."""
        if self.rate <= 0.0 or not math.isfinite(self.drift):
            return None
        return max(1, math.ceil(math.log(max(self.drift / tolerance, math.e)) / self.rate))


def remaining(windows: Sequence[Window], noise: Noise | None = None) -> Distance:
    """The distance that is left: the drift of averages over windows, extrapolated, and the fluctuation around them.

    Averages drift by v in a round, and v shrinks at a rate γ: v/γ is left. Where fast modes still hide slow ones, γ
    itself falls, and the estimate is raised by how much it has fallen, cubed; on real data that errs by at most a
    factor of about two. What random participation and noise explain is no drift.
    """
    last = windows[-1] if windows else None
    if last is None or len(windows) <= 2 * SPAN + 1:
        return Distance(math.inf, 0.0, 0.0)
    if last.size <= 0.0:
        return Distance(0.0 if last.size_now <= 0.0 else math.inf, 0.0, 0.0)
    seen = windows[-2 * SPAN - 2 :]
    speeds = [_speed(one, other, noise) for one, other in pairwise(seen)]
    before, rate = (_rate(seen, speeds, start) for start in (0, SPAN))
    fallen = max(1.0, before / rate) if before > 0.0 < rate else 2.0
    left = 0.0 if speeds[-1] <= 0.0 else speeds[-1] / rate * fallen**3 if rate > 0.0 else math.inf
    if noise is None:
        left = max(left, _hidden(seen[-2], last, speeds[-1]))
    likely = min(left, 1.2 * last.end * speeds[-1])
    if noise is None and likely <= AT_REST * last.size:
        left = likely  # what is left of the movement is rounding, which neither shrinks nor leads anywhere
    return Distance(left / last.size, last.apart / last.size, rate / fallen, likely / last.size)


def _rate(windows: Sequence[Window], speeds: Sequence[float], start: int) -> float:
    """Return how fast the drift shrinks, per round, over `SPAN` windows; 0 if it does not."""
    then, now = speeds[start], speeds[start + SPAN]
    if not then > now > 0.0:
        return 0.0
    return math.log(then / now) / (windows[start + SPAN + 1].centre - windows[start + 1].centre)


def _speed(one: Window, other: Window, noise: Noise | None) -> float:
    """Return how fast the average drifts from one window to the next, beyond what fluctuations explain."""
    long_enough = one.length >= LEAST_LENGTH
    chance = CORRELATED * 0.5 * other.step**2 * (1.0 / one.length + 1.0 / other.length) if long_enough else 0.0
    if noise is not None:
        chance = max(chance, noise.wander(one, other) ** 2)
    return math.sqrt(max(other.wander**2 - chance, 0.0)) / (other.centre - one.centre)


def _hidden(one: Window, last: Window, speed: float) -> float:
    """Return the drift that fluctuations may hide where they explain much of the movement."""
    moved = last.wander / (last.centre - one.centre)
    return 0.5 * last.end * moved if speed < 0.85 * moved else 0.0


def is_diverging(windows: Sequence[Window]) -> bool:
    """Return whether models and their movement grow exponentially: a power of the round does not count."""
    if len(windows) >= 3 and windows[-1].end == windows[-3].end + 2:
        third, second, first = (window.step for window in windows[-3:])
        if first > AT_ONCE * second > 0.0 and second > AT_ONCE * third > 0.0:
            return True
    last = windows[-1]
    if last.end < LEAST_ROUNDS:
        return False
    half = [window for window in windows if window.end <= 0.55 * last.end]
    quarter = [window for window in windows if window.end <= 0.3 * last.end]
    if not half or not quarter:
        return False
    grown = last.step >= GROWTH * half[-1].step and half[-1].step >= quarter[-1].step
    return grown and last.size_now >= 3.0 * half[-1].size_now and last.step >= 1e-3 * last.size_now


Kind = Literal["diverging", "not useful", "noise drowns the signal", "budget spent", "not yet", "useful", "converged"]
WORST_FIRST: tuple[Kind, ...] = get_args(Kind)
GOOD: tuple[Kind, ...] = ("useful", "converged")
BAD: tuple[Kind, ...] = ("diverging", "not useful", "noise drowns the signal")

Tone = Literal["good", "mixed", "bad"]

SKILL = 0.02  # the least share of the trivial error that a model must remove to be called useful without doubt
AT_REST = 1e-4  # relative distance that going on for 1.2 times all rounds at the last pace would cover
SETTLED = 0.05  # relative distance to the limit below which a run has converged
STOPS = 0.02  # the same for stopping early
MOST_ROUNDS = 20  # how many times the rounds a proposal may ask for
BALANCED = (0.06, 0.35)  # the duals' size relative to the models' with a suitable rho: they go with 1/rho
AIM, MOST_CHANGE = 0.08, 10.0  # what a proposed rho aims at, and by how much it may differ
TORN, TORN_BY_NOISE = 1.0, 1.5  # duals as large as the models: clients pull so far apart that the limit is wrong
DROWNED = 0.6  # noise in predictions relative to the targets' spread; R² then is at most 0 or close to it
UNHEARD = 0.45  # for classification, noise relative to how far data can move the models
UNHEARD_IN_STEPS = 0.2  # the same for one gradient step per round, which forgets noise more slowly
USELESS_MOST, USELESS_FROM, USELESS_POWER = 0.55, 0.17, 3.0
"""How many of 648 classifications by gradient steps were worse than trivial, by the noise relative to how far data can
move the models (docs/verdict.md): hardly any of little noise, and about half above 0.3, because data that all pulls the
same way is learned in spite of it."""
UNSTEADY = 0.5  # late noise relative to the models' size


@dataclass(frozen=True)
class Verdict:
    """What became of a run: `sentence` says it, `advice` what to change; `further` holds other findings.

    `figures` are the numbers behind it. Of several `findings`, the worst is the verdict. `measured` is what held-out
    rows or a known truth say about the models, in words, beside a trivial prediction; it is shown with every verdict.
    """

    kind: Kind
    sentence: str
    advice: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    further: tuple[str, ...] = ()
    measured: str = ""
    findings: tuple[Verdict, ...] = field(default=(), compare=False, repr=False)

    @property
    def text(self) -> str:
        """Everything that there is to say, as one paragraph."""
        return " ".join(part for part in (self.sentence, self.support, self.advice, *self.further) if part)

    @property
    def support(self) -> str:
        """A sentence with the figure behind the verdict, where the verdict does not state it itself."""
        if not self.measured or any(self.measured in part for part in (self.sentence, *self.further)):
            return ""
        return f"Measured: {self.measured}."

    @property
    def tone(self) -> Tone:
        """Whether to show it as good, bad or neither; no model that may be no better than its baseline is good."""
        if self.kind in BAD:
            return "bad"
        proved = self.kind in GOOD and self.figures.get("skill", -math.inf) >= SKILL
        return "good" if proved and not self.figures.get("bad_clusters") else "mixed"

    def to_json(self) -> dict[str, Any]:
        """Ready for `summary.json`."""
        figures = {name: value if math.isfinite(value) else None for name, value in self.figures.items()}
        return {
            "kind": self.kind,
            "sentence": self.sentence,
            "advice": self.advice,
            "figures": figures,
            "further": list(self.further),
            "measured": self.measured,
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Verdict:
        """As `to_json` wrote it."""
        figures = {name: math.inf if value is None else value for name, value in given["figures"].items()}
        measured = given.get("measured", "")
        return cls(given["kind"], given["sentence"], given["advice"], figures, tuple(given["further"]), measured)


def joined(findings: Sequence[Verdict]) -> Verdict:
    """Return the worst finding, with the sentences of the others."""
    worst, *others = sorted(findings, key=lambda finding: WORST_FIRST.index(finding.kind))
    figures = {name: value for finding in (*reversed(others), worst) for name, value in finding.figures.items()}
    further = tuple(other.text for other in others if other.kind not in GOOD)
    return replace(worst, figures=figures, further=further, findings=tuple(findings))


def worst_of_runs(verdicts: Sequence[Verdict]) -> Verdict | None:
    """Return the verdict of the worst run; among equals, of the one farthest from its limit."""
    if not verdicts:
        return None
    far = [verdict.figures.get("distance", 0.0) for verdict in verdicts]
    places = [WORST_FIRST.index(verdict.kind) for verdict in verdicts]
    worst = min(range(len(verdicts)), key=lambda run: (places[run], -far[run]))
    if len(verdicts) == 1:
        return verdicts[0]
    same = sum(place == places[worst] for place in places)
    return replace(verdicts[worst], sentence=f"{verdicts[worst].sentence} ({same} of {len(verdicts)} runs.)")


@dataclass(frozen=True)
class Setting:
    """What the advice depends on: rounds run and requested, the algorithm, the task, and the duals.

    `target_scale` is about the standard deviation of targets, as public bounds let one guess it. `pull` is the size of
    the duals relative to the models: how far clients pull apart, in units of 1/ρ; with an `exact` server rule that does
    not move the limit, and neither does it where servers agree, whose `disagreement` is relative to the models' size.
    """

    played: int
    rounds: int
    rho: float | None  # None for an algorithm that takes gradient steps
    task: str
    target_scale: float = 1.0
    pull: float = 0.0
    exact: bool = False
    disagreement: float = math.inf
    linearised: bool = False  # clients take one gradient step per round instead of solving their problems


def judge_run(windows: Sequence[Window], setting: Setting, noise: Noise | None = None) -> Verdict:
    """Return the verdict on one run."""
    if is_diverging(windows):
        return _diverging(windows, setting)
    findings = [_settled(windows, setting, noise)]
    if noise is None:
        return joined(findings)
    verdict = joined([*findings, *_drowned(windows, setting, noise), *_spent(setting, noise)])
    figures = {**verdict.figures, **noise.figures}
    if setting.linearised and setting.task == "classification":
        figures["chance_useless"] = chance_useless(noise.to_reach)
    return replace(verdict, figures=figures)


def chance_useless(noise_to_reach: float) -> float:
    """Return how often a private classification by gradient steps with so much noise is worse than trivial.

    >>> [round(chance_useless(noise), 2) for noise in (0.0, 0.05, 0.17, 1.0, math.inf)]
    [0.0, 0.01, 0.28, 0.55, 0.55]
    """
    least = USELESS_FROM / noise_to_reach if noise_to_reach > 0.0 else math.inf
    return float(USELESS_MOST / (1.0 + least**USELESS_POWER))


def _diverging(windows: Sequence[Window], setting: Setting) -> Verdict:
    last = windows[-1]
    change = "Lower algorithm.step_size" if setting.rho is None else "Raise algorithm.rho"
    return Verdict(
        "diverging",
        f"The run diverges: by round {setting.played} the models have grown to a size of {last.size_now:.3g}, and "
        "each round moves them further than the last.",
        f"{change}, or scale the features to about unit size.",
        {"size": last.size_now, "movement": last.step},
    )


def _settled(windows: Sequence[Window], setting: Setting, noise: Noise | None) -> Verdict:
    """Return whether the models have converged, and how far they are if not."""
    found = remaining(windows, noise)
    figures = {"distance": found.total, "drift": found.drift, "spread": found.spread, "pull": setting.pull}
    if (
        not setting.exact
        and setting.disagreement > SETTLED
        and setting.pull >= (TORN if noise is None else TORN_BY_NOISE)
    ):
        return Verdict(
            "not yet",
            "The clients pull so far apart that the models end up wrong, however many rounds there are.",
            f"Raise algorithm.rho to about {_rho(setting)}.",
            figures,
        )
    if noise is not None and found.drift <= SETTLED:
        sentence = (
            "The models have converged as far as the noise allows: the remaining noise is about "
            f"{_percent(found.spread)} of the models' size."
        )
        return Verdict("converged", sentence, "", figures)
    if found.total <= SETTLED:
        early = " and training stopped there" if setting.played < setting.rounds else ""
        within = _percent(max(found.total, 1e-4))
        sentence = f"The models have converged: after {setting.played} rounds they are within {within} of their limit"
        return Verdict("converged", f"{sentence}{early}.", "", figures)
    if found.drift <= SETTLED:
        return Verdict(
            "not yet",
            f"The models still fluctuate by {_percent(found.spread)} from round to round, because only some clients "
            "take part in each.",
            "Let more clients take part (algorithm.participants)"
            + ("." if setting.rho is None else ", or raise algorithm.rho."),
            figures,
        )
    return Verdict("not yet", _how_far(found, setting), _faster(found, setting, noise), figures)


def _how_far(found: Distance, setting: Setting) -> str:
    if math.isinf(found.likely):
        return (
            f"After {setting.played} rounds it cannot be told yet how far the models are from where they are heading."
        )
    far = math.hypot(min(found.likely, 1.0), found.spread)
    place = (
        f"about {_percent(far)} from where they are heading" if far < 0.9 else "still far from where they are heading"
    )
    return f"The models have not converged after {setting.played} rounds: they are {place}."


def _faster(found: Distance, setting: Setting, noise: Noise | None) -> str:
    """Return what to change for a run that needs more rounds than it had."""
    more = found.rounds_to(0.5 * SETTLED)
    wanted = None if more is None or noise is not None else _rounded_up(setting.played + more)
    if setting.rho is None:
        other = "raise algorithm.step_size"
    elif setting.pull < BALANCED[0]:
        other = f"lower algorithm.rho to about {_rho(setting)}"
    elif setting.pull > BALANCED[1]:
        other = f"raise algorithm.rho to about {_rho(setting)}"
    else:
        other = ""
    if wanted is not None and wanted <= MOST_ROUNDS * setting.played:
        return f"Raise rounds to about {wanted}{f', or {other}' if other else ''}."
    return f"{other[0].upper()}{other[1:]}." if other else "Raise rounds, or scale the features to about unit size."


def _rho(setting: Setting) -> str:
    """Return a proposal for ρ, at which the duals would have a suitable size."""
    assert setting.rho is not None
    factor = min(max(setting.pull / AIM, 1.0 / MOST_CHANGE), MOST_CHANGE)
    return f"{float(f'{setting.rho * factor:.1g}'):g}"


def _drowned(windows: Sequence[Window], setting: Setting, noise: Noise) -> list[Verdict]:
    """Return whether noise makes predictions useless.

    For a regression its expected effect on predictions is compared with the spread of targets, and its effect on the
    models with their size; for a classification, whose margins have no unit, the noise of the whole run is compared
    with how far data can move the models.
    """
    regression, size = setting.task == "regression", windows[-1].size_now if windows else 0.0
    moved = noise.in_predictions
    spread = windows[-1].apart / windows[-1].size if windows and windows[-1].size > 0.0 else 0.0
    limit = UNHEARD_IN_STEPS if setting.linearised else UNHEARD
    drowned = moved >= DROWNED * setting.target_scale or spread >= UNSTEADY if regression else noise.to_reach >= limit
    if not drowned:
        return []
    effect = f"predictions vary by about {moved:.2g}" if regression else "the data can hardly move the models as far"
    return [
        Verdict(
            "noise drowns the signal",
            f"Too noisy: noise norm {noise.walk:.3g}, model norm {size:.3g}; {effect}.",
            "Raise privacy.epsilon, let more clients take part or have more records, use fewer features, or spend the "
            "budget on fewer releases (privacy.max_releases).",
            {"size": size},
        )
    ]


def _spent(setting: Setting, noise: Noise) -> list[Verdict]:
    if noise.last_release >= setting.rounds:
        return []
    return [
        Verdict(
            "budget spent",
            f"The privacy budget was spent in round {noise.last_release} of {setting.rounds}; after that nobody could "
            "contribute.",
            f"Set rounds to about {noise.last_release}, or raise privacy.max_releases or privacy.epsilon.",
            {"last_release": float(noise.last_release)},
        )
    ]


def _percent(share: float) -> str:
    return f"{100.0 * share:.2g} %"


def _rounded_up(number: int) -> int:
    """To two digits.

    >>> _rounded_up(1234)
    1300
    """
    unit = int(10 ** max(len(str(number)) - 2, 0))
    return -(-number // unit) * unit
