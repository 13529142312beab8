"""The batched simulator equals the plain loops, on awkward federations, for every algorithm and objective."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests import bridges, oracle
from tests.federations import SHAPES, cases, random_case

ALGORITHMS = ("pgfl", "pgfl-exact", "pgfl-onestep", "fedavg")
ROUNDS = 50


def assert_same(case, rounds, tolerance=1e-8):
    expected = oracle.run(case.problem, rounds, *case.draws)
    played = bridges.simulator(case.problem, *case.draws)
    for reference in expected[1:]:
        played.run_round()
        actual = bridges.snapshot(played)
        assert actual["servers"].keys() == reference.servers.keys(), reference.n
        for name in ("clients", "duals", "servers"):
            if name == "duals" and case.problem.algorithm == "fedavg":
                continue
            for key, value in getattr(reference, name).items():
                scale = 1.0 + np.abs(value).max()
                assert np.abs(actual[name][key] - value).max() <= tolerance * scale, (reference.n, name, key)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("kind", ["ridge", "logistic", "huber", "mixed"])
@pytest.mark.parametrize("seed", range(0, 16, 4))
def test_awkward_federations_agree_over_fifty_rounds(algorithm, kind, seed):
    offset = ALGORITHMS.index(algorithm)
    assert_same(random_case(seed + offset, kind, algorithm=algorithm), ROUNDS)


@pytest.mark.parametrize("algorithm", ALGORITHMS[:3])
@pytest.mark.parametrize("kind", ["ridge", "logistic", "huber", "mixed", "ball"])
@pytest.mark.parametrize("seed", [0, 8])
def test_linearised_steps_agree_over_fifty_rounds(algorithm, kind, seed):
    offset = ALGORITHMS.index(algorithm)
    assert_same(random_case(seed + offset, kind, algorithm=algorithm, client="gradient"), ROUNDS)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("client", ["admm", "gradient"])
@pytest.mark.parametrize("kind", ["ridge", "logistic", "huber"])
def test_counting_records_agrees_with_weighted_losses(algorithm, client, kind):
    """The oracle weighs every f_k by D_k/R; the simulator changes ρ_k, or the length of steps."""
    changes = {} if algorithm == "fedavg" else {"client": client}
    for full in (3, 60):
        case = random_case(5, kind, None, "few", 0.1, algorithm=algorithm, full_records=full, **changes)
        assert_same(case, 20)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("client", ["admm", "gradient"])
@pytest.mark.parametrize("kind", ["ridge", "logistic", "huber"])
def test_weights_of_records_agree(algorithm, client, kind):
    """Some weigh nothing, some three times as much; the oracle multiplies each loss."""
    changes = {} if algorithm == "fedavg" else {"client": client}
    case = random_case(6, kind, None, "few", 0.1, algorithm=algorithm, full_records=4, **changes)
    rng = np.random.default_rng(1)
    weighed = [one._replace(c=rng.choice([0.0, 0.5, 1.0, 3.0], len(one.y))) for one in case.problem.clients]
    assert_same(replace(case, problem=replace(case.problem, clients=weighed)), 20)


@pytest.mark.parametrize("shape", SHAPES)
def test_linearised_steps_agree_in_every_shape_with_scheduling_and_noise(shape):
    assert_same(random_case(3, "ball", shape, "few", True, algorithm="pgfl", client="gradient"), ROUNDS)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_agrees_with_scheduling_and_noise(shape):
    assert_same(random_case(3, "ridge", shape, "few", True, algorithm="pgfl"), ROUNDS)


@given(cases(kinds=["ridge", "logistic"], algorithms=ALGORITHMS))
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_any_federation_agrees(case):
    assert_same(case, 12)


@given(cases(kinds=["ridge", "logistic", "mixed"], algorithms=ALGORITHMS[:3], clients=("gradient",)))
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_any_federation_agrees_with_linearised_steps(case):
    assert_same(case, 12)
