"""What theory expects is what trainings on twins reach, and what it finds best is as good as hand-tuned settings."""

from dataclasses import replace

import numpy as np
import pytest

from pgfl.config import load
from pgfl.core.metrics import decibels
from pgfl.paper.level_settings import between, tuned
from pgfl.planning.facts import Facts, facts_of
from pgfl.planning.moments import Moments
from pgfl.planning.search import Point, best_foreseen
from pgfl.planning.settings import Settings
from pgfl.planning.tuning import errors
from pgfl.planning.twin import twin

UNSEEN = (301, 302)  # in tuning, and in the design of the plan
PAPER = facts_of(load("private-huber"))


def hand_tuned(facts: Facts) -> Settings:
    """The settings of the reproduction, which were tuned for this scene."""
    found = between(tuned("regression", facts.trust), facts.epsilon)
    return Settings(found.rho, found.zeta, found.releases, found.tau, found.tau_decay, found.kappa, None, 100)


def expected(facts: Facts, settings: Settings, seed: int) -> float:
    moments = Moments(facts, twin(facts, seed), settings.x_norm or facts.x_norm)
    return float(moments.errors(Point.candidates(Point.of(settings).at[None, :], facts))[0])


@pytest.mark.parametrize(("epsilon", "trust"), [(1.0, "local"), (1.0, "masked"), (4.0, "local")])
def test_theory_expects_what_trainings_reach(epsilon, trust):
    facts = replace(PAPER, epsilon=epsilon, trust=trust)
    settings = hand_tuned(facts)
    reached = decibels(errors(facts, settings, UNSEEN).mean())
    assert decibels(np.mean([expected(facts, settings, seed) for seed in UNSEEN])) == pytest.approx(reached, abs=2.0)


@pytest.mark.parametrize(("epsilon", "trust"), [(1.0, "masked"), (4.0, "local")])
def test_what_theory_finds_best_is_about_as_good_as_hand_tuned_settings(epsilon, trust):
    facts = replace(PAPER, epsilon=epsilon, trust=trust)
    found, by_hand = best_foreseen(facts, (1,)), hand_tuned(facts)
    reached, before = (decibels(errors(facts, settings, UNSEEN).mean()) for settings in (found, by_hand))
    assert reached < before + 1.5


def test_noise_that_is_twice_as_strong_is_expected_to_do_more_harm():
    settings = hand_tuned(replace(PAPER, epsilon=4.0))
    strong, weak = (expected(replace(PAPER, epsilon=epsilon), settings, 1) for epsilon in (2.0, 4.0))
    assert decibels(strong) > decibels(weak) + 2.0


def test_a_search_from_other_settings_is_never_worse_than_these():
    facts = Facts(servers=4, clients_per_server=6, clusters=2, records=(40, 60), columns=6, x_norm=1.0, epsilon=2.0)
    start = best_foreseen(replace(facts, epsilon=1.0), (1,))
    warm = best_foreseen(facts, (1,), start)
    assert expected(facts, warm, 1) <= 1.1 * expected(facts, start, 1)
