"""The contract of a client rule: what it releases, and how far one record can move it."""

import numpy as np
import pytest

from pgfl import Bounds, GradientSteps, Huber, Logistic, NeighbourhoodAverage, Pair, Privacy
from pgfl.algorithms.client_rules import CLIENT_RULES, ClientRule
from pgfl.errors import PrivacyError
from tests.neighbours import Searched, furthest

RULES = {name: CLIENT_RULES[name]() for name in CLIENT_RULES} | {"steps": GradientSteps(0.05, 3)}
CLIENTS, DIMENSION = 6, 4


@pytest.fixture(params=RULES)
def rule(request):
    return RULES[request.param]


class Quadratic:
    """Clients whose losses are ½‖w − target‖²: a `Problem` with closed forms."""

    def __init__(self, targets, rho, update_norm=None):
        self.targets, self.modulus, self.update_norm = targets, np.full((len(targets), 1), rho), update_norm
        self.records = np.full((len(targets), 1), 10.0)

    def solve(self, centre):
        return (self.targets + self.modulus * centre) / (1.0 + self.modulus), np.zeros(len(centre))

    def gradient(self, w):
        return w - self.targets

    def projected(self, w):
        return w


@pytest.fixture
def parts(rule):
    """A problem, the server's models and the clients' duals."""
    rng = np.random.default_rng(5)
    targets, received = rng.normal(size=(2, CLIENTS, DIMENSION))
    dual = rng.normal(size=received.shape) if rule.has_dual else np.zeros_like(received)
    return Quadratic(targets, rule.rho), received, dual


def test_a_step_returns_clean_models_what_was_released_and_errors(rule, parts):
    problem, received, dual = parts
    kept = received.copy(), dual.copy()
    step = rule.step(problem, received, dual, lambda model: model + 1.0)
    assert step.model.shape == step.released.shape == received.shape and step.error.shape == (CLIENTS,)
    assert np.array_equal(step.released, step.model + 1.0)
    assert np.array_equal(received, kept[0]) and np.array_equal(dual, kept[1])
    assert rule.contribution(step.released, dual).shape == received.shape
    settled = rule.settle(dual, received, step.released)
    assert settled.shape == dual.shape and (rule.has_dual or np.array_equal(settled, dual))


def test_a_step_is_clipped_around_its_public_centre(rule, parts):
    problem, received, dual = parts
    near = Quadratic(100.0 * problem.targets, rule.rho, update_norm=0.01)
    centre = rule.centre(received, dual, near.modulus, near.records)
    away = rule.step(near, received, dual, lambda model: model).model - centre
    assert np.linalg.norm(away, axis=1) == pytest.approx(np.full(CLIENTS, 0.01), rel=1e-6)


def test_a_model_moves_no_further_than_its_reach(rule, parts):
    """Targets that move by v move every gradient by v, and a model by at most reach · ‖v‖."""
    problem, received, dual = parts
    moved = Quadratic(problem.targets + 1.0, rule.rho)
    one, other = (rule.step(each, received, dual, lambda model: model).model for each in (problem, moved))
    furthest = np.linalg.norm(one - other, axis=1).max()
    assert 0.0 < furthest <= np.max(rule.reach(problem.modulus)) * DIMENSION**0.5 * (1.0 + 1e-12)


@pytest.mark.parametrize("objective", [Huber(lam=0.1, kappa=0.7), Logistic(lam=0.1)], ids=lambda one: one.kind)
def test_no_neighbours_are_further_apart_than_the_sensitivity(rule, objective):
    def label(genes):
        return genes if objective.task == "regression" else (genes > 0).astype(float)

    algorithm = Pair(rule, NeighbourhoodAverage())
    searched = Searched(objective, algorithm, Privacy(phi0=1.0, x_norm=1.5), label, largest_model=100.0)
    found, _ = furthest(searched, generations=10)
    assert 0.3 < found <= 1.0 + 1e-9


def test_more_records_more_tolerance_and_no_bound(rule):
    few, many = rule.sensitivity(Huber(), Bounds(x_norm=1.0), [4, 400], [rule.rho, rule.rho], 0.0)
    assert many < few
    assert rule.sensitivity(Huber(), Bounds(x_norm=1.0), [4], [rule.rho], 1e-3) == pytest.approx(few + 2e-3)
    with pytest.raises(PrivacyError):
        rule.sensitivity(Huber(), Bounds(), [4], [rule.rho], 0.0)


def test_a_rule_without_a_sensitivity_needs_clipping():
    class Plain(ClientRule):
        def step(self, problem, server_model, dual, release):
            raise NotImplementedError

        def reach(self, modulus):
            return 1.0

    with pytest.raises(PrivacyError, match=r"No sensitivity is derived for Plain; set privacy\.update_norm\."):
        Plain().sensitivity(Huber(), Bounds(x_norm=1.0), 4, 1.0, 0.0)
