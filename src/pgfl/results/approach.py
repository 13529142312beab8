"""How the server models of a run move: how far they are from where they are heading, and whether they grow without end.

All of it follows from released models and, with privacy, from the noise that the budget prescribes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

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
    """The share of a window's rounds that a round's noise is part of."""
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
        """How many more rounds bring the drift below a tolerance, if it shrinks at all."""
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
    return Distance(left / last.size, last.apart / last.size, rate / fallen, likely / last.size)


def _rate(windows: Sequence[Window], speeds: Sequence[float], start: int) -> float:
    """How fast the drift shrinks, per round, over `SPAN` windows; 0 if it does not."""
    then, now = speeds[start], speeds[start + SPAN]
    if not then > now > 0.0:
        return 0.0
    return math.log(then / now) / (windows[start + SPAN + 1].centre - windows[start + 1].centre)


def _speed(one: Window, other: Window, noise: Noise | None) -> float:
    """How fast the average drifts from one window to the next, beyond what fluctuations explain."""
    long_enough = one.length >= LEAST_LENGTH
    chance = CORRELATED * 0.5 * other.step**2 * (1.0 / one.length + 1.0 / other.length) if long_enough else 0.0
    if noise is not None:
        chance = max(chance, noise.wander(one, other) ** 2)
    return math.sqrt(max(other.wander**2 - chance, 0.0)) / (other.centre - one.centre)


def _hidden(one: Window, last: Window, speed: float) -> float:
    """The drift that fluctuations may hide where they explain much of the movement."""
    moved = last.wander / (last.centre - one.centre)
    return 0.5 * last.end * moved if speed < 0.85 * moved else 0.0


def is_diverging(windows: Sequence[Window]) -> bool:
    """Whether models and their movement grow exponentially: a power of the round does not count."""
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
