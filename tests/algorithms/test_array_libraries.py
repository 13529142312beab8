"""One small network under NumPy, array-api-strict and JAX: the same equations, the same numbers."""

import itertools

import array_api_strict
import numpy as np
import pytest

from pgfl import PGFL, FedAvg, Huber, Logistic, Privacy, Ridge, synthetic_regression, train
from pgfl.algorithms.algorithms import OneStep
from pgfl.algorithms.schedules import Decaying
from pgfl.simulate import jax_engine as pgfl_jax
from tests import bridges
from tests.federations import random_case

LIBRARIES = {"array-api-strict": lambda: array_api_strict, "jax": pgfl_jax.namespace}
KINDS, ALGORITHMS = ("ridge", "huber", "logistic"), ("pgfl", "pgfl-exact", "pgfl-onestep", "fedavg")
EVERY_PAIR = list(itertools.product(KINDS, ALGORITHMS))
# JAX compiles each pair for seconds: every solver, every server rule and every gradient once; `CASES` train more pairs.
COMPILED_PAIRS = [*zip(KINDS, ALGORITHMS[:3], strict=True), *((kind, "fedavg") for kind in KINDS)]
ROUNDS, COMPILED_ROUNDS = 5, 2  # each has another number of clients, which JAX compiles anew


@pytest.mark.parametrize(
    ("kind", "algorithm", "library"),
    [
        *((*pair, "array-api-strict") for pair in EVERY_PAIR),
        *((*pair, "jax") for pair in COMPILED_PAIRS),
    ],
)
def test_libraries_agree(kind, algorithm, library):
    assert_libraries_agree(library, random_case(0, kind, "ordinary", "half", True, algorithm=algorithm))


@pytest.mark.parametrize("library", ["array-api-strict", "jax"])
@pytest.mark.parametrize(("algorithm", "kind"), [("pgfl", "ball"), ("pgfl-exact", "huber"), ("pgfl-onestep", "mixed")])
def test_libraries_agree_on_linearised_steps(library, algorithm, kind):
    case = random_case(0, kind, "ordinary", "half", True, algorithm=algorithm, client="gradient")
    assert_libraries_agree(library, case)


def assert_libraries_agree(library, case):
    played = [bridges.simulator(case.problem, *case.draws, xp=xp) for xp in (np, LIBRARIES[library]())]
    for _ in range(COMPILED_ROUNDS if library == "jax" else ROUNDS):
        for engine in played:
            engine.run_round()
    expected, actual = map(bridges.snapshot, played)
    for name in ("clients", "duals", "servers"):
        assert actual[name].keys() == expected[name].keys()
        for key, value in expected[name].items():
            np.testing.assert_allclose(actual[name][key], value, atol=1e-9 * (1 + np.abs(value).max()), rtol=0)


def federation(run=0):
    made = synthetic_regression(servers=4, clients_per_server=6, dimension=6, samples=(1, 5), seed=4, run=run)
    return made.replace(targets=(made.targets > 0).astype(float), generated=True)


CASES = {
    "scheduled": (PGFL(tau=0.2), Logistic(), {"participants": 2}),
    "everyone": (OneStep(tau=Decaying(0.3, 0.9)), Huber(), {}),
    "private": (PGFL(), Huber(), {"participants": 2, "privacy": Privacy(x_norm=1.0, phi0=1e-2, zeta=0.99)}),
    "budget": (PGFL(), Huber(), {"privacy": Privacy(x_norm=1.0, phi0=1e-2, zeta=1.0, max_releases=2)}),
    "linearised": (PGFL(rho=9.0, tau=0.2, client="gradient"), Huber(), {"participants": 2}),
    "private, linearised": (PGFL(client="gradient"), Huber(), {"privacy": Privacy(x_norm=1.0, phi0=1e-2, zeta=0.99)}),
    "fedavg": (FedAvg(step_size=0.01), Ridge(), {"participants": 3}),
    "objectives": (PGFL(), {"cluster-0": Ridge(), "cluster-1": Huber(), "cluster-2": Logistic()}, {"participants": 3}),
}


@pytest.mark.proof
@pytest.mark.parametrize(
    "case",
    [name if name in ("private", "linearised") else pytest.param(name, marks=pytest.mark.proof) for name in CASES],
)
def test_training_agrees_under_jax(case):
    algorithm, objective, settings = CASES[case]
    both = [
        train(federation, algorithm, objective, rounds=ROUNDS, runs=2, engine=engine, **settings)
        for engine in ("numpy", "jax")
    ]
    for mine, theirs in zip(both[0].models, both[1].models, strict=True):
        np.testing.assert_allclose(theirs.clients, mine.clients, atol=1e-9)
        np.testing.assert_allclose(theirs.servers, mine.servers, atol=1e-9)
    for name, values in both[0].history.items():
        np.testing.assert_allclose(both[1].history[name], values, atol=1e-8)


@pytest.mark.proof
@pytest.mark.parametrize("client", [pytest.param("admm", marks=pytest.mark.proof), "gradient"])
def test_rounds_are_compiled_once_under_jax(client):
    pgfl_jax.namespace()
    pieces = (pgfl_jax._client_phase, pgfl_jax._contributions, pgfl_jax._server_phase, pgfl_jax._settled)
    for piece in pieces:
        piece.clear_cache()
    train(federation, PGFL(tau=0.2, client=client), Logistic(), rounds=12, participants=2, engine="jax")
    assert pgfl_jax._client_phase._cache_size() > 0
    assert max(piece._cache_size() for piece in pieces) <= 2, "servers know all or not: nothing else changes shape"
