"""Once nobody near can contribute to a cluster, it rests: it keeps its model instead of drifting into the others."""

from itertools import pairwise

import numpy as np
import pytest

import pgfl
from pgfl import PGFL, ClientData, Federation, Huber, OneStep, Privacy
from pgfl.simulate.options import Performance, TrainingOptions
from pgfl.simulate.simulator import Simulator
from tests import bridges, oracle
from tests.algorithms.test_roles import assert_equal_in_both
from tests.federations import GeometricTau, random_case
from tests.oracle import Client, Objective, Problem
from tests.simulate.test_simulator_against_oracle import assert_same

PERSONALISED = ("pgfl", "pgfl-exact", "pgfl-onestep")
STRONG = GeometricTau(0.4)


def budgeted(seed, algorithm, kind="ridge"):
    """An awkward federation whose clients take part one to four times in 30 rounds."""
    return random_case(seed, kind, None, None, 0.1, algorithm=algorithm, tau=STRONG).with_budgets(seed, 4)


@pytest.mark.parametrize("algorithm", [*PERSONALISED, "fedavg"])
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 9, 14, 15])
def test_the_simulator_equals_the_plain_loops_when_budgets_run_out(algorithm, seed):
    assert_same(budgeted(seed, algorithm), 30)


@pytest.mark.parametrize("algorithm", [*PERSONALISED, "fedavg"])
@pytest.mark.parametrize("seed", [1, 3, 14])
def test_the_roles_equal_the_simulator_when_budgets_run_out(algorithm, seed):
    assert_equal_in_both(budgeted(seed, algorithm))


@pytest.mark.parametrize("engine", ["numba", "jax"])
@pytest.mark.parametrize("algorithm", PERSONALISED)
def test_every_engine_rests(engine, algorithm):
    case = budgeted(4, algorithm)
    plain, other = (bridges.simulator(case.problem, *case.draws, engine=name) for name in ("numpy", engine))
    for _ in range(20):
        np.testing.assert_allclose(other.run_round().server_models, plain.run_round().server_models, rtol=0, atol=1e-9)
        np.testing.assert_array_equal(other.network.rested, plain.network.rested)
    assert plain.network.rested.any()


# --- the case that was found: τ = 0.4, 100 releases, 300 rounds -------------------------------------------------------


FOUND = {"servers": 6, "clients_per_server": 6, "clusters": 3, "dimension": 4, "samples": (20, 30), "x_norm": 1.0}
HUNDRED = Privacy(epsilon=200.0, max_releases=100, index="release", x_norm=1.0)


@pytest.mark.parametrize("algorithm", [PGFL(1.0, 0.4), OneStep(1.0, 0.4)], ids=lambda a: a.kind)
def test_cluster_models_stay_apart_and_stay_put_after_the_budgets_end(algorithm):
    federation = pgfl.synthetic_regression(seed=3, **FOUND)
    simulator = Simulator([federation], algorithm, Huber(kappa=2.0), TrainingOptions(rounds=300, privacy=HUNDRED))
    simulator.run()
    assert (simulator.state.round, simulator.ended_by) == (100, "budget")
    ended = models_by_cluster(simulator)
    for _ in range(200):
        simulator.run_round()
    for before, after in zip(ended, models_by_cluster(simulator), strict=True):
        slack = 1e-9 if isinstance(algorithm, PGFL) else 0.2 * np.ptp(before, axis=0).max()
        assert (after >= before.min(axis=0) - slack).all() and (after <= before.max(axis=0) + slack).all()
    centres = np.array([models.mean(axis=0) for models in models_by_cluster(simulator)])
    first = np.array([models.mean(axis=0) for models in ended])
    assert spread(centres) > 0.9 * spread(first) > 0.01


def models_by_cluster(simulator):
    models, layout = np.array(simulator.state.server_models), simulator.layout
    return [models[layout.pair_cluster == q] for q in range(3)]


def spread(centres):
    return min(np.linalg.norm(a - b) for i, a in enumerate(centres) for b in centres[:i])


# --- who rests, and where ---------------------------------------------------------------------------------------------


def line(places, servers=5):
    """Servers on a line; `places` holds (client, server number, cluster)."""
    rng = np.random.default_rng(0)
    names = [f"s{number}" for number in range(servers)]
    clients = [
        Client(name, names[s], q, rng.normal(size=(4, 2)), rng.normal(size=4) + (3 if q == "a" else -3))
        for name, s, q in places
    ]
    edges = list(pairwise(names))
    return Problem(clients, names, edges, {"a": Objective("ridge"), "b": Objective("ridge")}, tau=STRONG)


def rested(problem, participants, spent, rounds):
    """The (server, cluster) that rested in each round."""
    simulator = bridges.simulator(problem, participants, None, spent)
    layout, found = simulator.layout, []
    names = [(problem.servers[s], "ab"[q]) for s, q in zip(layout.pair_server, layout.pair_cluster, strict=True)]
    for _ in range(rounds):
        simulator.run_round()
        found.append({name for name, rests in zip(names, simulator.network.rested, strict=True) if rests})
    return found


def until(last, early, late):
    """A function of the round: `early` up to and with the round `last`, then `late`."""
    return lambda n: early if n <= last else late


def test_rest_spreads_over_servers_that_only_relay():
    """Otherwise they would go on learning from other clusters, and pull those that rest."""
    problem = line([("ann", 0, "a"), ("bob", 4, "b")])
    found = rested(problem, until(5, {"ann", "bob"}, {"bob"}), until(5, set(), {"ann"}), 12)
    assert not any(found[:5])
    assert [len(rest) for rest in found[5:]] == [2, 3, 4, 5, 5, 5, 5]
    assert found[5] == {("s0", "a"), ("s1", "a")} and {q for rest in found for _, q in rest} == {"a"}


def test_a_cluster_with_a_client_left_nearby_goes_on():
    problem = line([("ann", 0, "a"), ("abe", 2, "a"), ("bob", 4, "b")])
    everyone = {"ann", "abe", "bob"}
    *_, last = rested(problem, until(3, everyone, everyone - {"ann"}), until(3, set(), {"ann"}), 9)
    assert last == {("s0", "a")}  # s1 has abe's server next to it


def test_a_momentary_absence_is_no_rest():
    """Nobody takes part for many rounds, but everybody could: servers go on as the paper has it."""
    problem = line([("ann", 0, "a"), ("bob", 1, "b")], servers=2)
    seldom = lambda n: {"ann", "bob"} if n % 10 == 1 else set()  # noqa: E731
    assert not any(rested(problem, seldom, lambda n: set(), 9))
    expected = oracle.run(problem, 9, seldom)
    played = bridges.simulator(problem, seldom, None, lambda n: set())
    state = played.run(9)
    for row, key in enumerate([("s0", "a"), ("s0", "b"), ("s1", "a"), ("s1", "b")]):
        np.testing.assert_allclose(state.server_models[row], expected[-1].servers[key], rtol=0, atol=1e-12)
    apart = [np.linalg.norm(np.subtract(n.servers["s0", "a"], n.servers["s0", "b"])) for n in expected[1:]]
    assert apart[-1] < 0.01 * apart[0], "with tau = 0.4 the clusters approach each other until someone takes part"


def test_what_rests_can_still_be_learnt_from():
    problem = line([("ann", 0, "a"), ("bob", 0, "b")], servers=1)
    draws = (until(1, {"ann", "bob"}, {"bob"}), None, until(1, set(), {"ann"}))
    simulator = bridges.simulator(problem, *draws)
    resting = simulator.run_round().server_models[0].copy()
    after = simulator.run_round().server_models
    expected = oracle.run(problem, 2, *draws)[-1]
    np.testing.assert_array_equal(after[0], resting)
    np.testing.assert_allclose(after[1], 0.6 * expected.mixed["s0", "b"] + 0.4 * resting, atol=1e-12)


@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_rest_spreads_from_a_pair_that_is_too_small_from_the_start(engine):
    """Nothing about accounts changes from round to round, and still rest goes one server further in each."""
    rng = np.random.default_rng(0)
    places = [("ann", 0, "a"), *((f"bob{i}", 4, "b") for i in range(4))]
    names = [f"s{number}" for number in range(5)]
    clients = {name: ClientData(names[s], q, rng.normal(size=(9, 2)), rng.normal(size=9)) for name, s, q in places}
    federation = Federation.from_clients(clients, edges=list(pairwise(names)), servers=names)
    privacy = Privacy(x_norm=1.0, phi0=1e-3, trust="masked", contributors=3)
    options = TrainingOptions(10, "all", privacy, performance=Performance(engine=engine))
    simulator = Simulator([federation], PGFL(1.0, tau=0.3, client="gradient"), Huber(), options)
    found = []
    for _ in range(6):
        simulator.run_round()
        found.append(np.count_nonzero(simulator.network.rested))
    assert found == [2, 3, 4, 5, 5, 5]
