"""What theory expects is what trainings on twins reach, and what it finds best is better than hand-tuned settings."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from pgfl import metrics
from pgfl.config import load_config
from pgfl.lab.paper.levels import between, tuned
from pgfl.metrics import decibels
from pgfl.planning.facts import Facts, facts_of
from pgfl.planning.moments import Labels, Moments
from pgfl.planning.planner import errors
from pgfl.planning.row_shapes import RowShape
from pgfl.planning.search import Point, Settings, best_foreseen
from pgfl.planning.twin import twin

UNSEEN = (301, 302)  # in tuning, and in the design of the plan
PAPER = facts_of(load_config("private-huber"))


def hand_tuned(facts: Facts) -> Settings:
    """The settings of the reproduction, which were tuned for this scene."""
    found = between(tuned("regression", facts.trust), facts.epsilon)
    return Settings(found.rho, found.zeta, found.releases, found.tau, found.tau_decay, found.kappa, None, 100)


def expected(facts: Facts, settings: Settings, seed: int) -> float:
    length = settings.x_norm or facts.x_norm
    moments = Moments(facts, twin(facts, seed), length)
    return float(moments.errors(Point.candidates(Point.of(settings).at[None, :], facts, length))[0])


@pytest.mark.proof
@pytest.mark.parametrize(
    ("epsilon", "trust"), [pytest.param(1.0, "local", marks=pytest.mark.proof), (1.0, "masked"), (4.0, "local")]
)
def test_theory_expects_what_trainings_reach(epsilon, trust):
    facts = replace(PAPER, epsilon=epsilon, trust=trust)
    settings = hand_tuned(facts)
    reached = decibels(errors(facts, settings, UNSEEN).mean())
    assert decibels(np.mean([expected(facts, settings, seed) for seed in UNSEEN])) == pytest.approx(reached, abs=2.0)


@pytest.mark.proof
@pytest.mark.parametrize(("epsilon", "trust"), [(1.0, "masked"), (4.0, "local")])
def test_what_theory_finds_best_is_better_than_hand_tuned_settings(epsilon, trust):
    facts = replace(PAPER, epsilon=epsilon, trust=trust)
    found, by_hand = best_foreseen(facts, (1,)), hand_tuned(facts)
    reached, before = (decibels(errors(facts, settings, UNSEEN).mean()) for settings in (found, by_hand))
    assert reached < before - 0.5


def test_noise_that_is_twice_as_strong_is_expected_to_do_more_harm():
    settings = hand_tuned(replace(PAPER, epsilon=4.0))
    strong, weak = (expected(replace(PAPER, epsilon=epsilon), settings, 1) for epsilon in (2.0, 4.0))
    assert decibels(strong) > decibels(weak) + 2.0


def test_a_search_from_other_settings_is_never_worse_than_these():
    facts = Facts(servers=4, clients_per_server=6, clusters=2, records=(40, 60), columns=6, x_norm=1.0, epsilon=2.0)
    start = best_foreseen(replace(facts, epsilon=1.0), (1,))
    warm = best_foreseen(facts, (1,), start)
    assert expected(facts, warm, 1) <= 1.1 * expected(facts, start, 1)


@pytest.mark.parametrize(
    ("share", "known", "mean", "correlation"),
    [(0.5, 0.8, 0.0, 0.7), (0.07, 0.9, -1.0, 0.6), (0.3, 0.6, 0.4, -0.2), (0.93, 0.6, 1.5, 1.0)],
)
def test_theory_measures_labels_by_normal_margins(share, known, mean, correlation):
    """`known` is the correlation of the best margins with the number whose sign is the label; also of rare labels."""
    behind, own = np.random.default_rng(1).standard_normal((2, 200_000))
    margins = known * correlation * behind + np.sqrt(1.0 - (known * correlation) ** 2) * own
    labels = (behind > norm.ppf(1.0 - share)).astype(float)
    found = Labels(share, known * norm.pdf(norm.ppf(share)))
    one = np.array([correlation])
    assert found.auc(one)[0] == pytest.approx(float(metrics.auc(margins[:, None], labels)[0]), abs=0.02)
    lost = float(np.mean(np.logaddexp(0.0, mean - 1.0 + margins) - labels * (mean - 1.0 + margins)))
    assert found.log_loss(-1.0, np.array([mean]), np.ones(1), one)[0] == pytest.approx(lost, abs=0.01)
    assert found.log_loss(None, one, one, np.ones(1))[0] < found.entropy


@pytest.mark.proof
@pytest.mark.parametrize(("share", "epsilon"), [(0.5, 2.0), (0.06, 4.0)])
def test_theory_expects_the_auc_that_trainings_reach(share, epsilon):
    """Frequent and rare labels; trainings on some twins, theory on the same ones."""
    rows = RowShape(numbers=4, booleans=1, intercept=True, quantities=2, categories=(2,))
    facts = Facts(
        servers=4, clients_per_server=8, clusters=2, records=(100, 100), columns=8, x_norm=2.0, epsilon=epsilon,
        task="classification", expected=0.8, label_mean=share, rows=rows,
    )  # fmt: skip
    settings, seeds = best_foreseen(facts, (1, 2)), range(301, 309)
    reached = errors(facts, settings, seeds).mean()
    assert np.mean([expected(facts, settings, seed) for seed in seeds]) == pytest.approx(reached, abs=0.04)
    assert reached < 0.36
