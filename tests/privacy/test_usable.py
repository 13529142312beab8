"""A budget in words, and those with which nothing can be learned."""

from __future__ import annotations

import re

import numpy as np
import pytest

from pgfl.privacy.budget import Budget
from pgfl.privacy.usable import MOST_SPREAD, noise_in_words, unusable


def budget(zeta=0.99, releases=100, epsilon=4.0):
    return Budget.from_target(epsilon=epsilon, delta=1e-5, zeta=zeta, max_releases=releases)


def test_the_words_are_the_noise_of_the_first_and_the_last_release():
    first, last = map(float, re.findall(r"is ([\d.e+]+) times", noise_in_words(budget(), rounds=60)))
    assert first == pytest.approx(float(budget().sigma(1.0, 1)), rel=1e-2)
    assert last == pytest.approx(float(budget().sigma(1.0, 60)), rel=1e-2)


@pytest.mark.parametrize(("zeta", "releases", "rounds"), [(0.99, 100, 100), (0.99, 1000, None), (1.0, 10**5, None),
                                                           (0.99, 300, 100), (0.9, 100, 100)])  # fmt: skip
def test_budgets_with_which_something_can_be_learned(zeta, releases, rounds):
    assert unusable(budget(zeta, releases), rounds) is None


def test_a_schedule_that_trains_on_noise_is_refused_with_a_better_one():
    """The tutorial's settings, but 2000 rounds: the first noise was 2.5e5 times the sensitivity."""
    why = unusable(budget(releases=2000), rounds=2000)
    zeta, fewer = re.search(r"zeta = ([\d.]+) or more, or max_releases = (\d+)", why).groups()
    assert unusable(budget(float(zeta), 2000), 2000) is None
    assert unusable(budget(releases=int(fewer)), 2000) is None
    better = budget(float(zeta), 2000)
    assert np.sqrt(better.phi(2000) / better.phi(1)) < MOST_SPREAD / 50


def test_a_budget_for_far_more_releases_than_a_training_has_is_refused():
    assert "set max_releases = 10" in unusable(budget(1.0, 10_000), rounds=10)
    assert unusable(budget(1.0, 10_000)) is None, "which training it is for is not known yet"
