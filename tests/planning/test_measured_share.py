"""Which share of a training without privacy a run's held-out rows will show: theory beside simulated held-out rows."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from pgfl.planning import forecast
from pgfl.planning.facts import Facts
from pgfl.planning.moments import Foreseen

FACTS = Facts(servers=1, clients_per_server=1, clusters=1, records=(9, 9), columns=2, x_norm=1.0, epsilon=4.0)
RUNS = 1000


@pytest.fixture(autouse=True)
def twins_are_real(monkeypatch):
    monkeypatch.setattr(forecast, "UNLIKE_SHARE", (0.0, 0.0))


def regression(rng, gain, kept, rows):
    """Shares that held-out rows show, and the chance that theory sees in one of them."""
    signal, rest, away = rng.normal(size=(3, RUNS, rows))
    best = np.sqrt(gain) * signal
    targets = best + np.sqrt(1.0 - gain) * rest
    errors = [((targets - made) ** 2).sum(axis=1) for made in (best + np.sqrt((1.0 - kept) * gain) * away, best)]
    trivial = ((targets - targets.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    return (trivial - errors[0]) / (trivial - errors[1]), 4.0 * (1.0 - gain) / gain


def labels(rng, gain, kept, rows):
    """The same for two labels; how far margins are from the best ones follows from `kept`, their spread from `gain`."""
    normal = rng.normal(size=20_000)

    def loss(away, spread):
        chance, margins = expit(spread * normal), spread * normal + away * rng.normal(size=len(normal))
        return float(np.mean(np.logaddexp(0.0, margins) - chance * margins))

    spread = min(np.linspace(0.1, 4.0, 40), key=lambda one: abs(1.0 - loss(0.0, one) / np.log(2.0) - gain))
    most = np.log(2.0) - loss(0.0, spread)
    away = min(np.linspace(0.0, 3.0, 40), key=lambda one: abs((np.log(2.0) - loss(one, spread)) / most - kept))
    signal, noise = rng.normal(size=(2, RUNS, rows))
    said = (rng.random((RUNS, rows)) < expit(spread * signal)).astype(float)
    errors = [
        (np.logaddexp(0.0, made) - said * made).mean(axis=1)
        for made in (spread * signal + away * noise, spread * signal)
    ]
    share = said.mean(axis=1)
    trivial = -(share * np.log(share) + (1.0 - share) * np.log1p(-share))
    return (trivial - errors[0]) / (trivial - errors[1]), 2.0 / most


@pytest.mark.parametrize("task", [regression, labels])
@pytest.mark.parametrize(("gain", "kept", "rows"), [(0.4, 0.8, 200), (0.3, 0.3, 300), (0.15, 0.7, 800)])
def test_nine_of_ten_runs_show_a_share_within_the_interval(task, gain, kept, rows):
    shown, chance = task(np.random.default_rng(1), gain, kept, rows)
    foreseen = Foreseen(np.array([1.0 - kept * gain]), np.array([kept]), 1.0 - gain, chance)
    found = forecast.share_measured([foreseen], replace(FACTS, test_records=rows))
    assert 0.85 < np.mean((found.low <= shown) & (shown <= found.high)) < 0.95
    assert found.value == pytest.approx(kept, abs=0.05)


def test_without_held_out_rows_or_with_endless_ones_chance_adds_nothing():
    foreseen = Foreseen(np.array([0.7]), np.array([0.6]), 0.5, 4.0)
    for rows in (0, 10**9):
        found = forecast.share_measured([foreseen], replace(FACTS, test_records=rows))
        assert found.low == pytest.approx(0.6, abs=1e-3) and found.high == pytest.approx(0.6, abs=1e-3)
