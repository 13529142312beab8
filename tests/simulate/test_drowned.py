"""With privacy: "noise drowns the signal" where predictions are useless, over a grid of ε, and not elsewhere.

docs/verdict.md has the whole table.
"""

import numpy as np
import pytest

from pgfl import PGFL, Huber, Logistic, Privacy, train
from tests.real_data import federation

DROWNED, HEARD = (
    [("diabetes", 0.5), ("diabetes", 2.0), ("fair", 0.1), ("fair", 0.5), ("breast_cancer", 0.2), ("digits", 0.1)],
    [("diabetes", 32.0), ("diabetes", 128.0), ("fair", 8.0), ("fair", 32.0), ("breast_cancer", 8.0), ("digits", 8.0)],
)


def private(name, epsilon, blind=False, **changes):
    made, objective = federation(name)
    made = made.replace(tests=None) if blind else made
    objective = objective if isinstance(objective, Logistic) else Huber(kappa=1.0)
    x_norm = float(np.sqrt((made.features**2).sum(axis=1)).max())
    privacy = Privacy(epsilon=epsilon, max_releases=60, index="release", x_norm=x_norm, noise="seeded")
    return train(made, PGFL(rho=5.0), objective, privacy=privacy, **{"rounds": 60, "record_every": 60} | changes)


@pytest.mark.proof
@pytest.mark.parametrize(("name", "epsilon"), DROWNED)
def test_useless_runs_are_drowned(name, epsilon):
    result, blind = private(name, epsilon), private(name, epsilon, blind=True)
    assert result.measures[0].whole.value < result.measures[0].whole.baseline + 0.05
    assert result.verdict.kind in ("not useful", "noise drowns the signal")
    assert blind.verdict.kind == "noise drowns the signal"
    figures = blind.verdict.figures
    assert f"noise norm {figures['noise']:.3g}, model norm {figures['size']:.3g}" in blind.verdict.sentence


@pytest.mark.parametrize(("name", "epsilon"), HEARD)
def test_useful_runs_are_not(name, epsilon):
    result, blind = private(name, epsilon), private(name, epsilon, blind=True)
    assert result.measures[0].whole.value > result.measures[0].whole.baseline + 0.05
    assert "noise drowns the signal" not in (result.verdict.kind, blind.verdict.kind)


def test_the_round_in_which_the_budget_was_spent_is_named():
    result = private("fair", 32.0, rounds=90, participants=3)
    assert result.verdict.kind == "budget spent"
    last = int(result.verdict.figures["last_release"])
    assert 60 <= last < 90
    assert f"spent in round {last} of 90" in result.verdict.sentence
    assert "rounds to about" in result.verdict.advice


def test_with_too_small_a_rho_privacy_is_not_blamed():
    made, _ = federation("fair")
    privacy = Privacy(epsilon=1000.0, max_releases=60, index="release", x_norm=3.0, noise="seeded")
    result = train(made, PGFL(rho=0.5), Huber(kappa=1.0), rounds=60, privacy=privacy, record_every=60)
    assert result.measures[0].whole.value < -1.0
    assert (result.verdict.kind, result.verdict.advice[:19]) == ("not useful", "Raise algorithm.rho")
