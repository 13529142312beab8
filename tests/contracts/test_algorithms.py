"""The contract of an algorithm and its server rule."""

import numpy as np
import pytest

from pgfl import Ridge, synthetic_regression, train
from pgfl.algorithms.algorithms import ALGORITHMS
from pgfl.config import parse
from pgfl.registry import config_keys

SERVERS, DIMENSION = 4, 3


class Everyone:
    """A `Neighbourhood` of servers that are all connected and have one cluster."""

    degree = np.full((SERVERS, 1), SERVERS - 1.0)
    adopting = np.zeros((SERVERS, 1))
    share = np.full((SERVERS, 1), 1.0)

    def average(self, values):
        return np.tile(values.mean(axis=0), (SERVERS, 1))

    def neighbour_sum(self, values):
        return values.sum(axis=0) - values

    def neighbour_mean(self, values):
        return self.neighbour_sum(values) / (SERVERS - 1)

    def other_clusters(self, values):
        return np.zeros_like(values), np.zeros((SERVERS, 1))

    other_clusters_nearby = other_clusters


@pytest.fixture(params=list(ALGORITHMS))
def algorithm(request):
    return ALGORITHMS[request.param]()


def test_states_keep_their_parts_and_inputs_are_left_alone(algorithm):
    rule, rng = algorithm.server_rule, np.random.default_rng(2)
    zeros, aggregate = np.zeros((SERVERS, DIMENSION)), rng.normal(size=(SERVERS, DIMENSION))
    given = aggregate.copy()
    state = rule.start(zeros)
    assert np.array_equal(state["model"], zeros)
    for _ in range(3):
        kept = {name: values.copy() for name, values in state.items()}
        after, published = rule.publish(state, aggregate, Everyone())
        new = rule.combine(after, published, Everyone(), 0.0)
        assert published.shape == zeros.shape and new.keys() == after.keys() == state.keys()
        assert all(values.shape == zeros.shape and np.isfinite(values).all() for values in new.values())
        assert all(np.array_equal(state[name], values) for name, values in kept.items())
        assert np.array_equal(aggregate, given) and not zeros.any()
        state = new


def test_servers_that_aggregate_the_same_agree_on_it(algorithm):
    """What all aggregate again and again becomes everyone's model."""
    rule = algorithm.server_rule
    aggregate = np.tile(np.arange(1.0, DIMENSION + 1.0), (SERVERS, 1))
    state = rule.start(np.zeros_like(aggregate))
    for _ in range(500):
        after, published = rule.publish(state, aggregate, Everyone())
        state = rule.combine(after, published, Everyone(), 0.0)
    assert state["model"] == pytest.approx(aggregate, rel=1e-6)


def test_training_comes_near_to_the_truth(algorithm):
    federation = synthetic_regression(servers=3, clients_per_server=4, dimension=4, samples=(40, 50), graph="ring")
    errors = train(federation, algorithm, Ridge(), rounds=80).curve("nmsd")[0]
    assert errors[-1] < 0.3 and errors[-1] < errors[0]


def test_its_fields_are_keys_of_a_config(algorithm):
    settings = parse({"algorithm": {"kind": algorithm.kind}}).algorithm
    made = settings.build(algorithm.mixing)
    assert made == algorithm
    assert all(settings.uses(key) for key in config_keys(type(algorithm)) if key != "mixing")
