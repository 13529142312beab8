"""What the table of liars says holds: bounds cost honest networks nothing, and keep lies from ruining them."""

from pathlib import Path

import pytest

ROUNDS = 15


@pytest.fixture
def liars(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    import liars

    return liars


@pytest.mark.proof
@pytest.mark.parametrize("how", [{"client_lie": "huge"}, {"site_lie": "huge"}, {"site_lie": "dissensus"}])
def test_a_lie_that_ruins_everything_costs_little_with_bounds(liars, how):
    honest = liars.outcome("none", rounds=ROUNDS)
    assert liars.outcome("default", rounds=ROUNDS) == liars.outcome("stated", rounds=ROUNDS) == honest < 0.1
    assert liars.outcome("none", **how, rounds=ROUNDS) > 1e3
    assert liars.outcome("stated", **how, rounds=ROUNDS) < 5.0 * honest + 0.01
    assert liars.outcome("default", **how, rounds=ROUNDS) < 5.0 * honest + 0.1
