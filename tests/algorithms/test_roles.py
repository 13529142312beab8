"""The roles over an in-memory transport equal the simulator, given the same noise and participants."""

from dataclasses import dataclass

import numpy as np
import pytest

from pgfl import PGFL, Huber
from pgfl.algorithms.algorithms import Algorithm, Pair
from pgfl.algorithms.client_rules import GradientSteps, ProximalStep
from pgfl.algorithms.roles import Accepted, Client, RoundRequest, Server
from pgfl.algorithms.server_rules import ExactDiffusion, NeighbourhoodAverage, OneStepUpdate
from pgfl.errors import ConfigError, DataError
from tests import bridges, oracle
from tests.federations import random_case
from tests.in_memory import InMemoryNetwork


@pytest.mark.parametrize("algorithm", ["pgfl", "pgfl-exact", "pgfl-onestep", "fedavg"])
@pytest.mark.parametrize("kind", ["ridge", "huber", "logistic"])
@pytest.mark.parametrize("seed", [1, 3, 8, 14])
def test_roles_equal_simulator(algorithm, kind, seed):
    assert_equal_in_both(random_case(seed, kind, None, "few", True, algorithm=algorithm))


@pytest.mark.parametrize("algorithm", ["pgfl", "pgfl-exact", "pgfl-onestep"])
@pytest.mark.parametrize("kind", ["ridge", "huber", "logistic", "ball"])
@pytest.mark.parametrize("seed", [1, 14])
def test_roles_equal_simulator_with_linearised_steps(algorithm, kind, seed):
    assert_equal_in_both(random_case(seed, kind, None, "few", True, algorithm=algorithm, client="gradient"))


@pytest.mark.parametrize("algorithm", ["pgfl", "fedavg"])
@pytest.mark.parametrize("seed", [1, 3, 8, 14])
def test_roles_equal_simulator_where_neighbours_count_by_their_clients(algorithm, seed):
    assert_equal_in_both(random_case(seed, "huber", None, "few", True, algorithm=algorithm, mixing="clients"))


NEW_PAIRS = {
    "gradient steps with exact mixing": Pair(GradientSteps(0.02, 3), ExactDiffusion(), mixing="metropolis"),
    "a proximal step with one model for all": Pair(ProximalStep(2.0), NeighbourhoodAverage(personalised=False)),
    "gradient steps with the one-step update": Pair(GradientSteps(0.02, 2), OneStepUpdate(rho=0.5), tau=0.1),
}


@pytest.mark.parametrize("pair", NEW_PAIRS)
@pytest.mark.parametrize("kind", ["ridge", "huber"])
def test_any_client_rule_goes_with_any_server_rule(pair, kind):
    assert_equal_in_both(random_case(3, kind, None, "few", True), NEW_PAIRS[pair])


def test_a_new_algorithm_is_a_class_of_parameters_and_its_rules():
    @dataclass(frozen=True)
    class ExactGradient(Algorithm):
        step_size: float = 0.02
        mixing: str = "metropolis"

        def rules(self):
            return GradientSteps(self.step_size), ExactDiffusion()

    assert_equal_in_both(random_case(8, "ridge", None, "few", True), ExactGradient())
    with pytest.raises(ConfigError, match=r"algorithm\.step_size"):
        ExactGradient(step_size=0.0)


def assert_equal_in_both(case, algorithm=None):
    """The simulator and the roles end up with the same models and duals, known to the same servers."""
    engine = bridges.simulator(case.problem, *case.draws, chosen=algorithm)
    network = InMemoryNetwork(case.problem, *case.draws, chosen=algorithm)
    for n in range(1, 31):
        engine.run_round()
        network.play(n)
    expected = bridges.snapshot(engine)
    for (server, cluster), model in expected["servers"].items():
        actual = network.servers[server].model(cluster)
        assert actual is not None
        np.testing.assert_allclose(actual, model, atol=1e-10 * (1 + np.abs(model).max()), rtol=0)
    if engine.algorithm.client_rule.has_dual:
        for name, dual in network.duals().items():
            np.testing.assert_allclose(dual, expected["duals"][name], atol=1e-10 * (1 + np.abs(dual).max()), rtol=0)
    held = {(s, q) for s, server in network.servers.items() for q in server.state()["clusters"]}
    names = {(s, q if q != oracle.GLOBAL else "everyone") for s, q in expected["servers"]}
    assert held == names


def client():
    rng = np.random.default_rng(0)
    return Client(Huber(lam=0.1), PGFL(rho=2.0), rng.standard_normal((3, 4)), rng.standard_normal(3))


def ask(n, accepted=None):
    return RoundRequest(n, 5, np.ones(4), accepted)


def test_dual_advances_only_when_acceptance_is_confirmed_and_only_once():
    one = client()
    one.answer(ask(1), lambda m: m)
    assert (one.answer(ask(2), lambda m: m).dual == 0).all(), "round 1 was never accepted"
    sent = one.sent[1]
    accepted = Accepted(2, np.full(4, 0.5))
    dual = one.answer(ask(3, accepted), lambda m: m).dual
    np.testing.assert_allclose(dual, 0.5 - sent)
    np.testing.assert_array_equal(one.answer(ask(4, accepted), lambda m: m).dual, dual)


def test_client_resumes_from_its_state():
    one, other = client(), client()
    one.answer(ask(1), lambda m: m)
    other.restore(one.state())
    accepted = Accepted(1, np.full(4, 0.5))
    for resumed in (one, other):
        resumed.last = resumed.answer(ask(2, accepted), lambda m: m)
    np.testing.assert_array_equal(one.last.model, other.last.model)
    np.testing.assert_array_equal(one.last.dual, other.last.dual)


def test_server_goes_on_with_the_neighbours_that_answer():
    rng = np.random.default_rng(1)
    middle, left = Server(PGFL(rho=1.0), 2, ["left", "right"]), Server(PGFL(rho=1.0), 2, ["middle"])
    answers = {name: client_answer(rng.standard_normal(2)) for name in ("middle", "left")}
    published = {"left": left.aggregate(1, [("q", answers["left"])])}
    middle.aggregate(1, [("q", answers["middle"])])
    middle.combine(1, published)
    np.testing.assert_allclose(middle.model("q"), (answers["middle"].model + answers["left"].model) / 2)


def client_answer(model):
    from pgfl.algorithms.roles import Answer

    return Answer(1, model, np.zeros(len(model)))


@pytest.mark.parametrize(
    ("request_", "word"), [(RoundRequest(1, 0, None), "at least one"), (RoundRequest(1, 5, np.ones(3)), "coefficients")]
)
def test_requests_that_make_no_sense_are_refused(request_, word):
    with pytest.raises(DataError, match=word):
        client().answer(request_, lambda m: m)
