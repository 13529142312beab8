"""What the algorithms converge to: exact mixing to the optimum, the plain rule near it, the printed one-step not."""

import numpy as np
import pytest

from pgfl import PGFL, ClientData, ExactMixing, Federation, Huber, OneStep, Ridge, synthetic_regression, train
from pgfl import equations as eq
from pgfl.algorithms.theory import (
    cluster_objective,
    least_steady_rho,
    maximum_cluster_distance,
    steady_decay,
    summed_products,
    theorem_two_bound,
)
from pgfl.errors import ConfigError
from pgfl.metrics import decibels
from tests import bridges, oracle
from tests.federations import random_problem


def distance(federation, algorithm, rounds, every=None, objective=None):
    """Relative squared distance to the exact cluster optimum after `rounds`, in dB."""
    wanted = {"record_every": every or rounds, "metrics": ["distance"]}
    result = train(federation, algorithm, objective or Ridge(lam=0.01), rounds=rounds, **wanted)
    return decibels(result.curve("distance")[0])


def uneven():
    """One large server, many small ones; cluster b lives at the last server only."""
    rng = np.random.default_rng(5)
    truth = {q: rng.standard_normal(10) for q in "ab"}
    clients = {}
    for server, size in enumerate([40, 3, 2, 1, 1, 4]):
        for k in range(size):
            cluster = "b" if server == 5 else "a"
            features = rng.standard_normal((rng.integers(2, 10), 10))
            targets = features @ truth[cluster] + 0.7 * rng.standard_normal(len(features))
            clients[f"{server}-{k:02d}"] = ClientData(f"s{server}", cluster, features, targets)
    return Federation.from_clients(clients, [(f"s{i}", f"s{(i + 1) % 6}") for i in range(6)])


@pytest.mark.parametrize("federation", [synthetic_regression(seed=3), uneven()], ids=["paper", "uneven"])
def test_exact_mixing_reaches_the_cluster_optimum(federation):
    assert distance(federation, ExactMixing(rho=3.0), 1500)[-1] < -150


@pytest.mark.parametrize("objective", [Ridge(lam=0.01), Huber(lam=0.01, kappa=2.0)], ids=lambda o: o.kind)
def test_linearised_steps_with_exact_mixing_reach_the_cluster_optimum(objective):
    algorithm = ExactMixing(rho=6.0, client="gradient")
    assert distance(synthetic_regression(seed=3), algorithm, 500, objective=objective)[-1] < -200


def test_linearised_steps_with_exact_mixing_reach_the_optimum_of_uneven_servers():
    assert distance(uneven(), ExactMixing(rho=3.0, client="gradient"), 1500)[-1] < -150


@pytest.mark.proof
def test_linearised_steps_contribute_what_admm_contributes_with_the_gradient_at_the_public_model():
    """At a fixed point of ADMM the gradients at its own solutions are those at the server's model: both stand still."""
    federation = synthetic_regression(servers=1, clients_per_server=6, clusters=1, dimension=4, samples=(8, 12), seed=2)
    solved, stepped = (train(federation, PGFL(rho=9.0, client=c), Ridge(), rounds=2000) for c in ("admm", "gradient"))
    np.testing.assert_allclose(stepped.models[0].servers, solved.models[0].servers, atol=1e-10)


@pytest.mark.proof
def test_plain_rule_stops_at_a_fixed_point_that_depends_on_rho():
    """As the notes measured: −20.9, −25.6, −29.6 dB at ρ = 1, 3, 10, and no closer with more rounds."""
    federations = [synthetic_regression(seed=0, run=run) for run in range(3)]
    measured = []
    for rho in (1.0, 3.0, 10.0):
        ends = [distance(federation, PGFL(rho=rho), 1500, 500)[-2:] for federation in federations]
        assert np.ptp(ends, axis=1).max() < 0.05, "not yet at the fixed point"
        measured.append(np.mean(ends))
    assert measured == sorted(measured, reverse=True)
    np.testing.assert_allclose(measured, [-20.9, -25.6, -29.6], atol=2.5)


@pytest.mark.parametrize("rho", [0.3, 1.0, 3.0])
def test_corrected_one_step_converges(rho):
    measured = distance(synthetic_regression(seed=1), OneStep(rho=rho), 300, 100)
    assert measured[-1] < min(-20.0, measured[1])


@pytest.mark.parametrize("rho", [0.3, 1.0, 3.0, 10.0])
def test_one_step_as_printed_diverges(rho, monkeypatch):
    """Both signs as in the paper: the package's own step, with the printed update in place of the corrected one."""

    def printed_primal(aggregate, server_dual, own, neighbours, degree, others, tau, rho):
        pull = 0.5 * rho * (degree * own - neighbours)
        return (aggregate - 0.5 * server_dual + pull + tau * others) / (1.0 + tau + rho * degree)

    def printed_dual(server_dual, own, neighbours, degree, rho):
        return server_dual - rho * (degree * own - neighbours)

    monkeypatch.setattr(eq, "server_primal", printed_primal)
    monkeypatch.setattr(eq, "server_dual_update", printed_dual)
    result = train(synthetic_regression(seed=1), OneStep(rho=rho), Ridge(), rounds=300, metrics=["residuals"])
    assert result.verdict.kind == result.ended_by == "diverging"


@pytest.mark.parametrize("kind", ["ridge", "huber", "logistic"])
def test_both_identities_hold_at_every_round(kind):
    """SimpleClientUpdate, and NewExpressionServerModel with everyone taking part, from the simulator's own numbers."""
    problem = random_problem(2, kind, "ordinary", tau=lambda n: 0.0)
    engine = bridges.simulator(problem)
    before = as_round(engine, problem, 0)
    for n in range(1, 21):
        engine.run_round()
        after = as_round(engine, problem, n)
        assert oracle.simple_client_update_residual(problem, before, after) < 1e-8
        assert oracle.new_expression_residual(problem, before, after) < 1e-8
        before = after


def as_round(engine, problem, n):
    state = bridges.snapshot(engine)
    return oracle.Round(
        n=n,
        active={c.id for c in problem.clients} if n else set(),
        clients=state["clients"],
        released=state["clients"] if n else {},
        duals=state["duals"],
        servers=state["servers"],
        aggregates={},
        mixed=state["servers"],
        server_duals={},
    )


def test_duals_of_one_server_sum_to_zero():
    problem = random_problem(1, "ridge", "single-server", algorithm="pgfl", tau=lambda n: 0.0)
    engine = bridges.simulator(problem)
    clusters = {c.id: c.cluster for c in problem.clients}
    for _ in range(10):
        engine.run_round()
        duals = bridges.snapshot(engine)["duals"]
        for cluster in problem.clusters:
            assert np.abs(sum(d for k, d in duals.items() if clusters[k] == cluster)).max() < 1e-9


def test_cluster_optimum_is_stationary_and_equals_the_oracle():
    for kind in ("ridge", "huber", "logistic"):
        problem = random_problem(4, kind, "ordinary")
        federation, objectives = bridges.federation(problem), bridges.objective(problem)
        for q, name in enumerate(federation.cluster_ids):
            exact = cluster_objective(federation, objectives[name], q)
            assert np.abs(exact.gradient(exact.minimiser())).max() < 1e-10
            np.testing.assert_allclose(exact.minimiser(), oracle.cluster_optimum(problem, name), atol=1e-7)


def test_theorem_two_bound_is_the_printed_sum():
    def tau(n):
        return 0.4 * 0.9**n

    printed = [
        sum(np.prod([1 - tau(j) for j in range(i + 1, n + 1)]) * tau(i) * 3.0 for i in range(1, n + 1))
        for n in range(8)
    ]
    np.testing.assert_allclose(theorem_two_bound(tau, 7, 3.0), printed)
    assert maximum_cluster_distance(np.array([[0.0, 0], [3, 4], [0, 1]])) == 25.0


@pytest.mark.parametrize("objective", [Ridge(0.3), Huber(0.3, kappa=0.5)], ids=lambda o: o.kind)
def test_a_solved_primal_problem_is_the_simple_client_update(objective):
    """Equation (25): w_k = w_{q,s} + φ_k/ρ − ∇f_k(w_k)/ρ."""
    rng = np.random.default_rng(8)
    features, targets = rng.standard_normal((1, 4, 7)), rng.standard_normal((1, 4))
    model, dual, rho, counts = rng.standard_normal((1, 7)), rng.standard_normal((1, 7)), 1.7, np.array([4.0])
    weight = np.array([eq.strong_convexity(rho, objective.lam, 5)])
    centre = eq.client_centre(model, dual, rho, weight[:, None])
    solved, _ = objective.prepare(features, targets, counts, weight).solve(centre)
    gradient = objective.gradient(solved, features, targets, counts) + 2.0 * objective.lam / 5 * solved
    np.testing.assert_allclose(solved, model + dual - gradient / rho, atol=1e-9)


# --- the decay of the noise that wastes nothing ----------------------------------------------------------------------


def last_error(zeta, keeps, releases):
    """The variance that noise of the schedule leaves in the last model, for a total of Σ φ = 1 and Δ² = 2."""
    n = np.arange(1, releases + 1)
    phi = zeta ** -n.astype(float)
    phi /= phi.sum()
    return float(np.sum(keeps ** (2.0 * (releases - n)) / phi))


@pytest.mark.parametrize("keeps", [0.8, 0.93, 0.99])
def test_no_decay_of_the_noise_wastes_less_than_the_contraction_of_a_round(keeps):
    releases = 400
    least = last_error(keeps, keeps, releases)
    assert all(least <= last_error(zeta, keeps, releases) for zeta in np.linspace(0.6, 1.0, 81))
    assert steady_decay(curvature=(1.0 - keeps) * 3.0, rho=3.0) == pytest.approx(keeps)


@pytest.mark.parametrize("rho", [0.2, 1.0, 5.0])
def test_matched_noise_costs_what_one_output_perturbation_costs(rho):
    """A step has Δ/ρ, a solution Δ/μ: with ζ = 1 − μ/ρ the last model carries the same variance, whatever ρ is."""
    curvature, releases = 0.05, 1000
    keeps = steady_decay(curvature, rho)
    assert last_error(keeps, keeps, releases) / rho**2 == pytest.approx(1.0 / curvature**2, rel=1e-3)


def test_a_client_that_takes_part_in_every_fifth_round_sees_five_contractions_per_release():
    assert steady_decay(0.1, 1.0, releases_per_round=0.2) == pytest.approx(0.9**5)
    with pytest.raises(ConfigError, match="curvature"):
        steady_decay(1.0, 1.0)


def test_the_least_steady_rho_is_half_the_largest_curvature_of_the_mean_loss():
    made = synthetic_regression(servers=1, clients_per_server=5, clusters=1, dimension=4, samples=(6, 9), seed=2)
    hessian = sum(2.0 * x.T @ x / len(x) for x, _ in map(made.rows, (0, 1, 3))) / 3
    products = summed_products(made, np.array([True, True, False, True, False]))
    assert least_steady_rho(products, 3, curvature=2.0) == pytest.approx(np.linalg.eigvalsh(hessian)[-1] / 2)
