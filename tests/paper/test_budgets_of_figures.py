"""Budgets change none of the paper's figures: in none of their trainings is a client ever spent.

So no cluster rests and no training ends early, and every curve is that of the algorithm as the paper has it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pgfl.lab.paper.conditions import PRINTED, TAU
from pgfl.lab.paper.experiments import DigitData, FeatureRanks, Trial
from pgfl.lab.paper.items import Effort
from pgfl.lab.paper.registry import items
from pgfl.simulate import neighbourhoods
from pgfl.simulate.options import TrainingOptions
from pgfl.simulate.simulator import Simulator

FIGURES = [f"fig{number}" for number in range(1, 10)]


def trials(name: str) -> list[Trial]:
    """All trainings of a figure at full effort."""
    experiments = items()[name].experiments(Effort())
    found = [experiment for experiment in experiments if isinstance(experiment, Trial)]
    others = [experiment for experiment in experiments if not isinstance(experiment, Trial)]
    assert all(isinstance(experiment, FeatureRanks) for experiment in others), "which trains nothing"
    return found


@pytest.mark.parametrize("name", FIGURES)
def test_nobody_is_spent_before_the_last_round_of_a_figure(name: str) -> None:
    """Not even a client that takes part in every round."""
    private = {(trial.privacy, trial.rounds): trial for trial in trials(name) if trial.privacy is not None}
    assert bool(private) == (name not in ("fig1", "fig2")), "those two are without privacy"
    for (privacy, rounds), trial in private.items():
        small = replace(trial.data, servers=2, clients_per_server=3, graph="complete")
        small = small if isinstance(small, DigitData) else replace(small, samples=(2, 2))
        options = TrainingOptions(rounds=rounds, privacy=privacy)
        plan = Simulator([small.federation(0, 0)], trial.algorithm, trial.objective, options).plan
        assert plan is not None
        everyone = np.arange(6)
        for round in range(1, rounds + 1):
            assert not plan.spent(round).any() and plan.admit(everyone, round).all(), (privacy, round)
            plan.spend(everyone, round)


@pytest.mark.parametrize("participants", ["all", 3])
def test_a_figure_s_curve_has_the_same_bits_without_the_rule(
    monkeypatch: pytest.MonkeyPatch, participants: object
) -> None:
    trial = replace(PRINTED.pgfl(TAU), participants=participants, rounds=60)
    assert trial.privacy is not None
    with_rule = trial.run(0, 2)
    monkeypatch.setattr(neighbourhoods, "rests", lambda able, exhausted: np.zeros_like(able))
    monkeypatch.setattr(Simulator, "_check_end", lambda self: None)
    for name, values in trial.run(0, 2).items():
        np.testing.assert_array_equal(values, with_rule[name], name)
