"""The oracle against first principles: a reference that is wrong would make every comparison with it worthless."""

from __future__ import annotations

import ast
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.testing import assert_allclose

from tests import oracle
from tests.federations import (
    KINDS,
    SHAPES,
    TURNOUTS,
    Case,
    GaussianNoise,
    GeometricTau,
    cases,
    gaussian_noise,
    random_case,
    random_problem,
    turnout,
)
from tests.oracle import GLOBAL, Client, Objective, Problem, component, run

LOSSES = ("ridge", "huber", "logistic")


def no_tau(n: int) -> float:
    return 0.0


def scalar_client(name: str, server: str, cluster: str, target: float) -> Client:
    """One dimension, one row x = 1: f_k(w) = (target − w)² + λ/|C_s| w²."""
    return Client(name, server, cluster, np.ones((1, 1)), np.array([target]))


def scalar_problem(clients, servers, edges, lam: float = 0.0, **options) -> Problem:
    return Problem(clients, servers, edges, {c.cluster: Objective("ridge", lam) for c in clients}, **options)


def numbers(models) -> dict:
    """One-dimensional models as plain floats."""
    return {key: float(value[0]) for key, value in models.items()}


def largest_difference(first, second) -> float:
    assert first.keys() == second.keys()
    return max((float(np.abs(first[key] - second[key]).max()) for key in first), default=0.0)


def slope_by_differences(function, w: np.ndarray, h: float = 1e-6) -> np.ndarray:
    return np.array([(function(w + h * e) - function(w - h * e)) / (2 * h) for e in np.eye(len(w))])


# --- it is independent -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["oracle.py", "federations.py"])
def test_shares_no_code_with_the_package(name):
    tree = ast.parse((Path(__file__).parent / name).read_text(encoding="utf-8"))
    imported = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    assert imported <= {
        "__future__",
        "collections.abc",
        "dataclasses",
        "itertools",
        "typing",
        "numpy",
        "hypothesis",
        "tests.oracle",
    }


# --- losses and the primal problem -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objective", "y", "w", "loss"),
    [
        (Objective("ridge"), 1.0, 3.0, 4.0),
        (Objective("huber", kappa=2.0), 1.0, 2.5, 2.25),
        (Objective("huber", kappa=2.0), 1.0, 3.0, 4.0),
        (Objective("huber", kappa=2.0), 1.0, -9.0, 36.0),
        (Objective("logistic"), 0.0, 0.0, np.log(2.0)),
        (Objective("logistic"), 1.0, 0.0, np.log(2.0)),
        (Objective("logistic"), 1.0, np.log(3.0), np.log(4.0 / 3.0)),
        (Objective("logistic"), 0.0, np.log(3.0), np.log(4.0)),
        (Objective("logistic"), 0.0, 1000.0, 1000.0),
        (Objective("logistic"), 1.0, -1000.0, 1000.0),
    ],
)
def test_losses_have_the_values_of_the_notes(objective, y, w, loss):
    assert oracle.sample_loss(objective, np.ones(1), y, np.array([w]))[0] == pytest.approx(loss, rel=1e-14)


def test_regulariser_is_lambda_over_all_clients_of_the_server():
    clients = [scalar_client("a", "s", "q", 0), scalar_client("b", "s", "r", 0), scalar_client("c", "p", "q", 0)]
    problem = scalar_problem(clients, ["s", "p"], [], lam=0.6)
    assert [oracle.regulariser(problem, client) for client in clients] == [0.3, 0.3, 0.6]
    assert oracle.f_value(problem, clients[0], np.array([2.0])) == pytest.approx(4.0 + 0.3 * 4.0)


@pytest.mark.parametrize("kind", LOSSES)
def test_derivatives_are_those_of_the_value(kind):
    problem = random_problem(3, kind, "ordinary")
    rng = np.random.default_rng(0)
    for client in problem.clients:
        w = rng.standard_normal(problem.dimension)
        slope = slope_by_differences(lambda v, c=client: oracle.f_value(problem, c, v), w)
        assert_allclose(oracle.f_gradient(problem, client, w), slope, atol=1e-7)
        bend = slope_by_differences(lambda v, c=client: oracle.f_gradient(problem, c, v), w)
        assert_allclose(oracle.f_hessian(problem, client, w), bend, atol=1e-7)


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("reach", [1.0, 100.0])
def test_primal_update_is_the_minimiser(kind, reach):
    """The objective of ClientPrimalUpdate is flat there by differences, and higher all around."""
    rng = np.random.default_rng(1)
    for seed, shape in enumerate(SHAPES):
        problem = random_problem(seed, kind, shape)
        client = problem.clients[seed % len(problem.clients)]
        centre, dual = reach * rng.standard_normal((2, problem.dimension))
        best = oracle.primal(problem, client, centre, dual)

        def value(w, problem=problem, client=client, centre=centre, dual=dual):
            return oracle.primal_value(problem, client, centre, dual, w)

        assert_allclose(slope_by_differences(value, best, 1e-4 * reach), 0.0, atol=1e-5 * reach)
        for _ in range(10):
            away = rng.standard_normal(problem.dimension) * reach * 1e-3
            # m-strong convexity, m ≥ ρ: the value rises by ρ/2‖away‖² at least
            assert value(best + away) - value(best) >= 0.499 * problem.rho * away @ away
        slope = oracle.primal_gradient(problem, client, centre, dual, best)
        assert np.linalg.norm(slope) <= 1e-10 * (1 + reach * problem.rho * 10)


def test_ridge_closed_form_equals_newton_and_a_huber_loss_that_never_bends():
    problem = random_problem(5, "ridge", "ordinary")
    tall = {q: replace(objective, kind="huber", kappa=1e9) for q, objective in problem.objectives.items()}
    rng = np.random.default_rng(2)
    for client in problem.clients:
        centre, dual = rng.standard_normal((2, problem.dimension))
        by_newton = oracle.primal(replace(problem, objectives=tall), client, centre, dual)
        assert_allclose(oracle.primal(problem, client, centre, dual), by_newton, atol=1e-12)


def test_newton_fails_loudly_where_there_is_no_minimum():
    client = Client("c", "s", "q", np.ones((2, 1)), np.ones(2))
    problem = Problem([client], ["s"], [], {"q": Objective("logistic", lam=0.0)})
    with pytest.raises((ArithmeticError, np.linalg.LinAlgError)):
        oracle.cluster_optimum(problem, "q")


# --- the graph -------------------------------------------------------------------------------------------------------


def test_mixing_weights_by_hand():
    star = scalar_problem([scalar_client("c", "a", "q", 0)], list("abcde"), [("a", "b"), ("c", "a"), ("a", "d")])
    assert oracle.mixing_weights(star, "a", "uniform") == {"a": 0.25, "b": 0.25, "c": 0.25, "d": 0.25}
    assert oracle.mixing_weights(star, "b", "uniform") == {"a": 0.5, "b": 0.5}
    assert oracle.mixing_weights(star, "b", "metropolis") == {"a": 0.25, "b": 0.75}
    assert oracle.mixing_weights(star, "e", "metropolis") == {"e": 1.0}
    clients = [scalar_client(f"c{k}", "b" if k else "a", "qr"[k == 3], 0) for k in range(4)]  # in q: 1 at a, 2 at b
    uneven = scalar_problem(clients, list("abc"), [("a", "b"), ("a", "c")])
    assert oracle.mixing_weights(uneven, "a", "clients", "q") == {"a": 0.25, "b": 0.5, "c": 0.25}
    assert oracle.mixing_weights(uneven, "b", "clients", "r") == {"a": 0.5, "b": 0.5}
    assert oracle.mixing_weights(uneven, "b", "clients") == {"a": 0.25, "b": 0.75}
    assert component(star, "d") == set("abcd")
    assert component(star, "e") == {"e"}


@pytest.mark.parametrize("seed", range(4))
def test_metropolis_is_doubly_stochastic(seed):
    problem = random_problem(seed, "ridge", "ordinary")
    rows = {s: oracle.mixing_weights(problem, s, "metropolis") for s in problem.servers}
    for s in problem.servers:
        assert sum(rows[s].values()) == pytest.approx(1.0)
        assert sum(row.get(s, 0.0) for row in rows.values()) == pytest.approx(1.0)


# --- rounds by hand --------------------------------------------------------------------------------------------------


def test_two_rounds_of_pgfl_by_hand():
    """d = 1, x = 1, λ = 0, ρ = 2: the primal update is (2y + 2 w_s + φ)/4, halfway to y."""
    clients = [scalar_client("k", "s", "q", 4.0), scalar_client("j", "p", "r", 8.0)]
    problem = scalar_problem(clients, ["s", "p"], [("s", "p")], rho=2.0, tau=lambda n: 0.25 if n == 1 else 0.5)
    _, first, second = run(problem, 2)
    assert numbers(first.clients) == {"k": 2.0, "j": 4.0}
    assert numbers(first.mixed) == {("s", "q"): 2.0, ("p", "q"): 2.0, ("s", "r"): 4.0, ("p", "r"): 4.0}
    # 0.75·2 + 0.25·4 = 2.5 and 0.75·4 + 0.25·2 = 3.5; φ = 2(2.5 − 2) and 2(3.5 − 4)
    assert numbers(first.servers) == {("s", "q"): 2.5, ("p", "q"): 2.5, ("s", "r"): 3.5, ("p", "r"): 3.5}
    assert numbers(first.duals) == {"k": 1.0, "j": -1.0}
    # (8 + 5 + 1)/4 and (16 + 7 − 1)/4; aggregates 3.5 − 1/2 at s, 5.5 + 1/2 at p; the other server repeats its own
    assert numbers(second.clients) == {"k": 3.5, "j": 5.5}
    assert numbers(second.aggregates) == {("s", "q"): 3.0, ("p", "q"): 2.5, ("s", "r"): 3.5, ("p", "r"): 6.0}
    assert numbers(second.mixed) == {("s", "q"): 2.75, ("p", "q"): 2.75, ("s", "r"): 4.75, ("p", "r"): 4.75}
    assert numbers(second.servers) == dict.fromkeys(second.servers, 3.75)
    assert numbers(second.duals) == {"k": 1.0 + 2 * (3.75 - 3.5), "j": -1.0 + 2 * (3.75 - 5.5)}


def test_two_rounds_of_the_one_step_update_by_hand():
    """Corrected signs: w = [agg − ψ/2 + ρ/2 (w_s + w_p) + τ w_r]/(1 + τ + ρ)."""
    clients = [scalar_client("k", "s", "q", 4.0), scalar_client("j", "p", "q", 8.0)]
    problem = scalar_problem(clients, ["s", "p"], [("s", "p")], rho=2.0, algorithm="pgfl-onestep")
    _, first, second = run(problem, 2)
    assert numbers(first.servers) == {("s", "q"): 2.0, ("p", "q"): 4.0}  # nobody to pair with yet
    assert numbers(first.server_duals) == {("s", "q"): -4.0, ("p", "q"): 4.0}
    assert numbers(first.duals) == {"k": 0.0, "j": 0.0}
    # w_k = (8 + 4)/4 = 3 and (16 + 8)/4 = 6; [3 + 2 + 6]/3 and [6 − 2 + 6]/3
    assert numbers(second.servers) == pytest.approx({("s", "q"): 11 / 3, ("p", "q"): 10 / 3})
    assert numbers(second.server_duals) == pytest.approx({("s", "q"): -4 + 2 / 3, ("p", "q"): 4 - 2 / 3})

    _, first, second = run(replace(problem, algorithm="pgfl-onestep-as-printed"), 2)
    assert numbers(first.server_duals) == {("s", "q"): 4.0, ("p", "q"): -4.0}
    # [3 − 2 + (2 − 4)]/3 and [6 + 2 + (4 − 2)]/3
    assert numbers(second.servers) == pytest.approx({("s", "q"): -1 / 3, ("p", "q"): 10 / 3})


def test_the_one_step_update_between_clusters_by_hand():
    """The others are of the round before, over the whole neighbourhood, and count only where they exist."""
    clients = [scalar_client("k", "s", "q", 4.0), scalar_client("j", "p", "r", 8.0)]
    problem = scalar_problem(clients, ["s", "p"], [("s", "p")], rho=2.0, tau=lambda n: 0.5, algorithm="pgfl-onestep")
    _, first, second, third = run(problem, 3)
    assert numbers(first.servers) == {("s", "q"): 2.0, ("p", "r"): 4.0}
    # w_k = 3, j's = 6: (3 + 0.5·4)/1.5 and (6 + 0.5·2)/1.5; each takes over what it lacks from its neighbour
    assert numbers(second.servers) == pytest.approx(
        {("s", "q"): 10 / 3, ("p", "r"): 14 / 3, ("p", "q"): 2, ("s", "r"): 4}
    )
    # at s, q: φ = 2(10/3 − 3) = 2/3, w_k = (8 + 20/3 + 2/3)/4 = 23/6, agg = 23/6 − 1/3 = 7/2, ψ = 2(10/3 − 2) = 8/3,
    # pair 10/3 + 2, others mean(14/3, 4) = 13/3: (7/2 − 4/3 + 16/3 + 13/6)/3.5
    assert numbers(third.servers)["s", "q"] == pytest.approx((7 / 2 - 4 / 3 + 16 / 3 + 13 / 6) / 3.5)


def test_two_rounds_of_exact_mixing_by_hand():
    """Two servers: Ā = [[¾, ¼], [¼, ¾]]; p has no client, so t_p = w_p."""
    problem = scalar_problem(
        [scalar_client("k", "s", "q", 4.0)], ["s", "p", "z"], [("s", "p")], rho=2.0, algorithm="pgfl-exact"
    )
    start, first, second = run(problem, 2)
    assert numbers(start.servers) == {("s", "q"): 0.0, ("p", "q"): 0.0}  # z cannot be reached by q
    assert numbers(first.servers) == {("s", "q"): 1.5, ("p", "q"): 0.5}
    assert numbers(first.duals) == {"k": -1.0}
    # w_k = (8 + 3 − 1)/4 = 2.5, t = (2.5 + 0.5, 0.5); t + w − t_before = (3 + 1.5 − 2, 0.5 + 0.5 − 0)
    assert numbers(second.aggregates) == {("s", "q"): 3.0, ("p", "q"): 0.5}
    assert numbers(second.servers) == {("s", "q"): 0.75 * 2.5 + 0.25, ("p", "q"): 0.25 * 2.5 + 0.75}


def test_exact_mixing_weighs_a_server_by_its_members_and_steps_by_its_participants():
    clients = [scalar_client("i", "s", "q", 4.0), scalar_client("j", "s", "q", 12.0), scalar_client("k", "p", "q", 8.0)]
    problem = scalar_problem(clients, ["s", "p"], [("s", "p")], rho=2.0, algorithm="pgfl-exact")
    _, first, second = run(problem, 2, participants=lambda n: {"i", "k"} if n == 1 else {"j"})
    assert numbers(first.aggregates) == {("s", "q"): 2.0, ("p", "q"): 0.5 * 4.0}  # c = 1 and ½ though one of each came
    assert numbers(first.servers) == {("s", "q"): 2.0, ("p", "q"): 2.0}
    assert numbers(second.aggregates) == {("s", "q"): 7.0, ("p", "q"): 2.0}


def test_three_clusters_and_absent_neighbours_by_hand():
    """A star with Metropolis weights: leaves hear themselves with ¾, the centre with ¼, the centre all with ¼."""
    clients = [scalar_client("k", "b", "q", 4.0), scalar_client("j", "a", "r", 8.0), scalar_client("i", "a", "u", 16.0)]
    edges = [("a", "b"), ("a", "c"), ("a", "d")]
    problem = scalar_problem(clients, list("abcd"), edges, rho=2.0, tau=lambda n: 0.5, mixing="metropolis")
    _, first, second = run(problem, 2)
    # a hears q only from b, b hears r and u only from a: what is absent leaves its weight to the others
    assert numbers(first.mixed) == {
        **{("a", "q"): 2.0, ("b", "q"): 2.0},
        **{(s, "r"): 4.0 for s in "abcd"},
        **{(s, "u"): 8.0 for s in "abcd"},
    }
    # q: ½·2 + ¼(4 + 8) = 4; r with q: ½·4 + ¼(2 + 8) = 4.5, without: ½·4 + ½·8 = 6; u: ½·8 + ¼(2 + 4), ½·8 + ½·4
    assert numbers(first.servers) == {
        **{("a", "q"): 4.0, ("b", "q"): 4.0, ("a", "r"): 4.5, ("b", "r"): 4.5, ("c", "r"): 6.0, ("d", "r"): 6.0},
        **{("a", "u"): 5.5, ("b", "u"): 5.5, ("c", "u"): 6.0, ("d", "u"): 6.0},
    }
    # k: φ = 2(4 − 2) = 4, w_k = (8 + 8 + 4)/4 = 5, agg = 5 − 2 = 3; a still has 4, c and d hear it from a alone
    assert numbers(second.mixed)["b", "q"] == 0.75 * 3 + 0.25 * 4
    assert numbers(second.mixed)["a", "q"] == pytest.approx((0.25 * 4 + 0.25 * 3) / 0.5)
    assert numbers(second.mixed)["c", "q"] == 4.0


def test_fedavg_by_hand():
    """∇f = 2(w − y): with step ¼ a local step goes halfway to y."""
    clients = [scalar_client("k", "s", "q", 4.0), scalar_client("j", "s", "r", 8.0), scalar_client("i", "p", "r", 16.0)]
    problem = scalar_problem(clients, ["s", "p"], [("s", "p")], algorithm="fedavg", step=0.25, local_steps=2)
    _, first, second = run(problem, 2, participants=lambda n: {"k", "j"} if n == 1 else {"i"})
    assert numbers(first.clients) == {"k": 3.0, "j": 6.0, "i": 0.0}
    assert numbers(first.servers) == {("s", GLOBAL): 4.5, ("p", GLOBAL): 4.5}
    assert numbers(second.clients)["i"] == 16.0 - (16.0 - 4.5) / 4
    assert numbers(second.servers)["s", GLOBAL] == pytest.approx((4.5 + 13.125) / 2)
    assert numbers(second.duals) == {"k": 0.0, "j": 0.0, "i": 0.0}


# --- who has a model, and who takes part -----------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["pgfl", "pgfl-onestep"])
def test_a_model_travels_one_edge_a_round_and_never_to_where_no_edge_leads(algorithm):
    clients = [scalar_client("k", "a", "q", 4.0), scalar_client("j", "z", "r", 1.0)]
    problem = scalar_problem(clients, list("abcdz"), [("a", "b"), ("b", "c"), ("c", "d")], algorithm=algorithm)
    history = run(problem, 6)
    first_hop = {"pgfl": 1, "pgfl-onestep": 2}[algorithm]  # the one-step update hears its neighbours a round late
    for hops, s in enumerate("bcd"):
        assert [(s, "q") in now.servers for now in history] == [n >= first_hop + hops for n in range(7)]
    assert all(set(now.servers) & {("z", "q"), ("a", "r")} == set() for now in history)
    assert numbers(run(replace(problem, tau=lambda n: 0.9), 6)[6].servers)["z", "r"] == pytest.approx(
        numbers(history[6].servers)["z", "r"]
    )


@pytest.mark.parametrize("algorithm", ["pgfl", "pgfl-exact", "pgfl-onestep", "fedavg"])
def test_a_round_without_anyone_moves_no_client(algorithm):
    problem = random_problem(0, "ridge", "ordinary", algorithm=algorithm)
    everyone = {client.id for client in problem.clients}
    history = run(problem, 6, participants=lambda n: everyone if n <= 3 else set())
    assert largest_difference(history[3].clients, history[6].clients) == 0
    assert largest_difference(history[3].duals, history[6].duals) == 0
    nobody = run(problem, 3, participants=lambda n: set())
    assert all(not np.any(model) for model in nobody[3].servers.values())
    assert (algorithm == "pgfl-exact") == bool(nobody[3].servers)


@pytest.mark.parametrize("algorithm", ["pgfl", "pgfl-exact", "pgfl-onestep", "fedavg"])
def test_only_participants_move(algorithm):
    case = random_case(1, "huber", "ordinary", "half", noise=0.1, algorithm=algorithm)
    history = run(case.problem, 8, *case.draws)
    for before, after in pairwise(history):
        for client in case.problem.clients:
            same = np.array_equal(before.clients[client.id], after.clients[client.id])
            assert same == (client.id not in case.participants(after.n))
            if client.id not in after.active:
                assert np.array_equal(before.duals[client.id], after.duals[client.id])


def test_the_dual_is_built_from_what_was_released():
    case = random_case(2, "ridge", "ordinary", "all", noise=0.5)
    before, after = run(case.problem, 1, *case.draws)
    for client in case.problem.clients:
        moved = after.duals[client.id] - before.duals[client.id]
        received = after.servers[client.server, client.cluster]
        assert_allclose(received - moved / case.problem.rho, after.released[client.id], atol=1e-12)
        assert np.abs(after.released[client.id] - after.clients[client.id]).max() > 1e-3


def test_ids_and_orders_mean_nothing():
    case = random_case(6, "logistic", "ordinary", "half", noise=0.1)
    problem = case.problem
    shuffled = replace(
        problem,
        clients=problem.clients[::-1],
        servers=problem.servers[::-1],
        edges=[(b, a) for a, b in problem.edges[::-1]],
    )
    there, back = run(problem, 10, *case.draws)[10], run(shuffled, 10, *case.draws)[10]
    assert largest_difference(there.servers, back.servers) < 1e-12
    assert largest_difference(there.duals, back.duals) < 1e-12


# --- identities and limits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_identities_of_the_notes_hold_at_every_round(kind, shape):
    case = random_case(SHAPES.index(shape) + 16, kind, shape, noise=0.1)
    history = run(case.problem, 12, *case.draws)
    for before, after in pairwise(history):
        assert oracle.simple_client_update_residual(case.problem, before, after) < 1e-10
        assert oracle.new_expression_residual(case.problem, before, after) < 1e-10


def test_the_identities_notice_a_wrong_model():
    problem = random_problem(0, "ridge", "ordinary")
    _, before, after = run(problem, 2)
    someone = problem.clients[0].id
    wrong = replace(after, clients={**after.clients, someone: after.clients[someone] + 1e-6})
    assert oracle.simple_client_update_residual(problem, before, wrong) > 1e-7
    key = next(iter(after.servers))
    wrong = replace(after, servers={**after.servers, key: after.servers[key] + 1e-6})
    assert oracle.new_expression_residual(problem, before, wrong) > 1e-7
    del wrong.servers[key]
    assert oracle.new_expression_residual(problem, before, wrong) == np.inf


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_on_one_server_the_duals_of_a_cluster_sum_to_zero(noise):
    case = random_case(4, "huber", "single-server", "all", noise=noise, tau=no_tau)
    for after in run(case.problem, 10, *case.draws)[1:]:
        for q in case.problem.clusters:
            total = sum(after.duals[client.id] for client in case.problem.clients if client.cluster == q)
            assert_allclose(total, 0.0, atol=1e-10)
        assert max(np.abs(dual).max() for dual in after.duals.values()) > 1e-3


@pytest.mark.proof
@pytest.mark.parametrize("kind", LOSSES)
def test_one_server_reaches_the_central_optimum(kind):
    problem = random_problem(7, kind, "single-server", tau=no_tau, rho=2.0)
    problem = replace(problem, objectives={q: replace(o, lam=0.5) for q, o in problem.objectives.items()})
    assert oracle.distance_to_optimum(problem, run(problem, 10)[10].servers) > -150
    assert oracle.distance_to_optimum(problem, run(problem, 300)[300].servers) < -200


def test_ridge_optimum_is_that_of_the_stacked_least_squares():
    problem = random_problem(8, "ridge", "many-rows")
    for q in problem.clusters:
        members = [client for client in problem.clients if client.cluster == q]
        rows = [client.X / np.sqrt(len(client.y)) for client in members]
        targets = [client.y / np.sqrt(len(client.y)) for client in members]
        lam = sum(oracle.regulariser(problem, client) for client in members)
        X = np.vstack([*rows, np.sqrt(lam) * np.eye(problem.dimension)])
        y = np.concatenate([*targets, np.zeros(problem.dimension)])
        assert_allclose(oracle.cluster_optimum(problem, q), np.linalg.lstsq(X, y, rcond=None)[0], atol=1e-10)


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(name, marks=pytest.mark.proof)
        for name in ("uneven-servers", "ordinary", "cluster-at-one-server", "disconnected")
    ],
)
def test_exact_mixing_reaches_the_optimum_and_the_plain_rule_does_not(shape):
    problem = random_problem(10, "ridge", shape, tau=no_tau, rho=3.0, algorithm="pgfl-exact")
    assert oracle.distance_to_optimum(problem, run(problem, 1500)[1500].servers) < -150
    plain = replace(problem, algorithm="pgfl")
    assert oracle.distance_to_optimum(plain, run(plain, 1500)[1500].servers) > -60


def test_exact_mixing_conserves_what_makes_it_exact():
    """Σ_s (w_s − t_s) stays 0 where τ = 0, whoever takes part."""
    case = random_case(10, "ridge", "servers-without-clients", "few", noise=0.1, tau=no_tau, algorithm="pgfl-exact")
    for after in run(case.problem, 20, *case.draws)[1:]:
        for q in case.problem.clusters:
            gap = sum(after.servers[key] - after.aggregates[key] for key in after.servers if key[1] == q)
            assert_allclose(gap, 0.0, atol=1e-12)


@pytest.mark.proof
@pytest.mark.parametrize("rho", [0.3, 1.0, 3.0, 10.0])
def test_server_primal_diverges_as_printed_and_settles_when_corrected(rho):
    problem = random_problem(43, "ridge", "many-rows", tau=no_tau, rho=rho, algorithm="pgfl-onestep")
    history = run(problem, 1000)
    assert oracle.distance_to_optimum(problem, history[1000].servers) < -20
    assert largest_difference(history[999].servers, history[1000].servers) < 1e-3
    for q in problem.clusters:
        assert_allclose(sum(psi for (_, r), psi in history[1000].server_duals.items() if r == q), 0.0, atol=1e-9)
    printed = replace(problem, algorithm="pgfl-onestep-as-printed")
    assert oracle.distance_to_optimum(printed, run(printed, 300)[300].servers) > 1000


@pytest.mark.proof
def test_the_corrected_server_primal_settles_where_every_server_counts_alike():
    """Its fixed point is a consensus with Σ_s mean_k ∇f_k = 0: servers, not clients, have equal weight."""
    problem = random_problem(43, "huber", "many-rows", tau=no_tau, rho=1.0, algorithm="pgfl-onestep")
    models = run(problem, 600)[600].servers
    for q in problem.clusters:
        agreed = models[problem.servers[0], q]
        total = np.zeros(problem.dimension)
        for s in problem.servers:
            assert_allclose(models[s, q], agreed, atol=1e-9)
            slopes = [oracle.f_gradient(problem, c, agreed) for c in problem.clients if (c.server, c.cluster) == (s, q)]
            total += np.mean(slopes, axis=0) if slopes else 0.0
        assert_allclose(total, 0.0, atol=1e-8)


def test_fedavg_with_one_local_step_at_one_server_is_gradient_descent():
    problem = random_problem(12, "logistic", "single-server", algorithm="fedavg", local_steps=1)
    w = np.zeros(problem.dimension)
    for after in run(problem, 20)[1:]:
        w = w - problem.step * np.mean([oracle.f_gradient(problem, client, w) for client in problem.clients], axis=0)
        assert_allclose(after.servers[problem.servers[0], GLOBAL], w, atol=1e-12)


def test_nmsd_by_hand():
    clients = [scalar_client("a", "s", "q", 0), scalar_client("b", "s", "q", 0), scalar_client("c", "s", "r", 0)]
    problem = scalar_problem(clients, ["s"], [])
    models = {"a": np.array([1.0]), "b": np.array([2.0]), "c": np.array([5.0])}
    assert oracle.nmsd(problem, models, {"q": np.array([2.0]), "r": np.array([4.0])}) == pytest.approx(
        (1 / 4 + 1 / 16) / 3
    )


# --- the federations are as awkward as they say ----------------------------------------------------------------------


def claims(problem: Problem) -> dict[str, bool]:
    """Which of the shapes a problem has."""
    placed = [client.server for client in problem.clients]
    homes = {q: {c.server for c in problem.clients if c.cluster == q} for q in problem.clusters}
    degrees = sorted(len(oracle.neighbours(problem, s)) for s in problem.servers)
    samples = [len(client.y) for client in problem.clients]
    connected = len(component(problem, problem.servers[0])) == len(problem.servers)
    lonely = [s for s in problem.servers if not oracle.neighbours(problem, s)]
    return {
        "ordinary": connected and len(problem.servers) > 2 and len(problem.clusters) == 3,
        "servers-without-clients": set(placed) < set(problem.servers),
        "cluster-at-one-server": any(len(home) == 1 for home in homes.values()) and len(homes) > 1,
        "isolated-server": any(0 < sum(s in home for home in homes.values()) < len(homes) for s in lonely),
        "disconnected": not connected and not lonely,
        "no-edges": not problem.edges and len(problem.servers) > 1,
        "single-server": len(problem.servers) == 1,
        "one-cluster": len(problem.clusters) == 1,
        "cluster-per-client": len(problem.clusters) == len(problem.clients),
        "one-row": set(samples) == {1},
        "many-rows": min(samples) > problem.dimension,
        "one-dimension": problem.dimension == 1,
        "constant-features": all(np.any(np.ptp(client.X, axis=0) == 0) for client in problem.clients),
        "one-class": any(len(c.y) > 1 and len(set(c.y)) == 1 for c in problem.clients),
        "star": degrees == [1] * (len(degrees) - 1) + [len(degrees) - 1],
        "uneven-servers": max(placed.count(s) for s in placed) >= 0.6 * len(placed),
    }


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_are_what_they_are_called(shape):
    for seed in range(5):
        assert claims(random_problem(seed, "logistic", shape))[shape]


@pytest.mark.parametrize("kind", KINDS)
def test_problems_are_well_formed_and_repeatable(kind):
    for seed in range(len(SHAPES)):
        problem, again = random_problem(seed, kind), random_problem(seed, kind)
        assert len({client.id for client in problem.clients}) == len(problem.clients)
        assert {client.server for client in problem.clients} <= set(problem.servers)
        assert set(problem.objectives) == set(problem.clusters)
        assert len({frozenset(edge) for edge in problem.edges}) == len(problem.edges)
        assert all(a != b and {a, b} <= set(problem.servers) for a, b in problem.edges)
        for client, twin in zip(problem.clients, again.clients, strict=True):
            assert client[:3] == twin[:3]
            assert np.array_equal(client.X, twin.X)
            assert np.array_equal(client.y, twin.y)
            if problem.objectives[client.cluster].kind == "logistic":
                assert set(client.y) <= {0.0, 1.0}
    assert len({objective.kind for objective in problem.objectives.values()}) == (3 if kind == "mixed" else 1)


@pytest.mark.parametrize("kind", TURNOUTS)
def test_turnouts_are_pure_and_as_called(kind):
    problem = random_problem(0, "ridge", "ordinary")
    everyone = {client.id for client in problem.clients}
    busy = {client.server for client in problem.clients}
    ask = turnout(problem, kind, 5)
    rounds = [ask(n) for n in range(1, 41)]
    assert rounds == [turnout(problem, kind, 5)(n) for n in range(1, 41)]
    assert all(active <= everyone for active in rounds)
    home = {client.id: client.server for client in problem.clients}
    if kind == "all":
        assert all(active == everyone for active in rounds)
    elif kind == "one-per-server":
        assert all(sorted(home[client] for client in active) == sorted(busy) for active in rounds)
        assert set().union(*rounds) == everyone
    else:
        assert any({home[client] for client in active} < busy for active in rounds)
        assert kind != "few" or set() in rounds


def test_noise_is_pure_and_decays():
    problem = random_problem(0, "ridge", "ordinary")
    someone = problem.clients[0].id
    draw = gaussian_noise(problem, 0.5, 3)
    assert np.array_equal(draw(7, someone), gaussian_noise(problem, 0.5, 3)(7, someone))
    assert not np.array_equal(draw(7, someone), draw(8, someone))
    assert gaussian_noise(problem, 0.0, 3)(7, someone) is None
    wide = GaussianNoise(0.5, 3, (someone,), 20_000, zeta=0.9)
    assert np.var(wide(10, someone)) == pytest.approx(0.25 * 0.9**10, rel=0.05)
    assert GeometricTau(0.4, 0.98)(1) == pytest.approx(0.392)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(case=cases())
def test_a_comparison_to_1e_8_means_something(case: Case):
    """Disturbing every release by 1e-12 moves nothing by 1e-9 in 50 rounds, and the models stay of ordinary size."""
    problem = case.problem
    tremor = GaussianNoise(1e-12, 1, tuple(client.id for client in problem.clients), problem.dimension, zeta=1.0)

    def disturbed(n, client):
        xi = case.noise(n, client)
        return tremor(n, client) if xi is None else xi + tremor(n, client)

    calm = run(problem, 50, *case.draws)[50]
    moved = run(problem, 50, case.participants, disturbed)[50]
    assert largest_difference(calm.servers, moved.servers) < 1e-9
    assert largest_difference(calm.duals, moved.duals) < 1e-9
    assert all(np.abs(model).max() < 100 for model in calm.servers.values())
