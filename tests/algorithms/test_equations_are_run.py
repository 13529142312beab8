"""Every equation is executed by a run, in the simulator and in the roles: none is there for show."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

from pgfl import (
    PGFL,
    Delays,
    ExactMixing,
    FedAvg,
    Huber,
    OneStep,
    Privacy,
    equations,
    metrics,
    synthetic_regression,
    train,
)
from pgfl.algorithms import theory
from pgfl.algorithms.accuracy import Terms
from pgfl.algorithms.roles import Accepted, Client, RoundRequest, Server
from pgfl.algorithms.schedules import Adaptive
from pgfl.lab.paper import theorem2
from pgfl.objectives import Bounds
from pgfl.privacy.noise import SeededNoise

NOTATION = Path(__file__).parents[2] / "docs" / "notation.md"
EQUATIONS = {
    name
    for name, function in inspect.getmembers(equations, inspect.isfunction)
    if function.__module__ == equations.__name__
}
ALGORITHMS = (
    PGFL(2.0, 0.2),
    ExactMixing(2.0),
    OneStep(1.0, 0.1),
    PGFL(2.0, Adaptive(1.0, noised=True)),
    PGFL(9.0, client="gradient", full_records=5),
    FedAvg(0.02, 2),
)
ROUNDS = 3


def watched(monkeypatch, module, names):
    """The names of those functions (or classes) of a module that are called from now on."""
    called = set()

    def watch(name, function):
        def wrapper(*arguments, **named):
            called.add(name)
            return function(*arguments, **named)

        monkeypatch.setattr(module, name, wrapper)

    for name in names:
        watch(name, getattr(module, name))
    return called


SMALL = synthetic_regression(
    servers=3, clients_per_server=3, clusters=2, dimension=3, samples=(2, 4), graph="ring", seed=2
)
GUARANTEED = Privacy(phi0=1e-2, zeta=0.99, x_norm=2.0)
AS_PRINTED = Privacy(phi0=1e-2, zeta=0.99, guarantee="none")


def simulated(algorithm):
    for privacy in (GUARANTEED, AS_PRINTED):
        delays = None if algorithm.client_rule.has_dual else Delays(0.4, 1)
        train(SMALL, algorithm, Huber(), rounds=ROUNDS, privacy=privacy, metrics=["objective"], delays=delays)


def played_by_roles(algorithm):
    """Two sites with a client each, under an owner's terms; noise from the same source as in a simulation."""
    noise = SeededNoise(lambda clients, round, d: np.random.default_rng(round).standard_normal((len(clients), d)))

    def release(model):
        return noise.release(model[None], np.ones(1), np.zeros(1, dtype=np.int64), 1)[0]

    terms = Terms(Bounds(x_norm=2.0))
    clusters = {"a": "one", "b": "two"}
    servers = {
        name: Server(algorithm, 2, set(clusters) - {name}, clusters=["one", "two"], shares={"one": 1.0, "two": 1.0})
        for name in clusters
    }
    clients = {name: Client(Huber(), algorithm, [[1.0, 0.5]], [0.3], update_norm=1.0, terms=terms) for name in clusters}
    accepted = dict.fromkeys(clusters)
    for n in range(1, ROUNDS + 1):
        published = {}
        for name, cluster in clusters.items():
            request = RoundRequest(n, 1, servers[name].model(cluster), accepted[name])
            published[name] = servers[name].aggregate(n, [(cluster, clients[name].answer(request, release))])
        for name, cluster in clusters.items():
            servers[name].combine(n, published)
            accepted[name] = Accepted(n, servers[name].model(cluster))


BY_SITES = {"regularised_loss", "late_contribution"}


@pytest.mark.parametrize(("run", "measured_elsewhere"), [(simulated, set()), (played_by_roles, BY_SITES)])
def test_every_equation_is_executed_by_a_run(run, measured_elsewhere, monkeypatch):
    """A client never computes its loss, which is clean: only a simulation does; late answers are a site's business."""
    called = watched(monkeypatch, equations, EQUATIONS)
    for algorithm in ALGORITHMS:
        run(algorithm)
    assert called == EQUATIONS - measured_elsewhere


def test_measures_and_bounds_with_a_label_are_executed_by_a_run(monkeypatch):
    measures = watched(monkeypatch, metrics, ["deviation"])
    optima = watched(monkeypatch, theory, ["ClusterObjective"])
    train(SMALL, PGFL(), Huber(), rounds=1, metrics=["nmsd", "distance"])
    assert measures | optima == {"deviation", "ClusterObjective"}
    bounds = watched(monkeypatch, theorem2, ["theorem_two_bound"])
    monkeypatch.setattr(theorem2, "ENGINE", "numpy")  # to compile would take longer than to run
    theorem2.Drift(0.2, 5.0, (1,), None).run(0, 1)
    assert bounds == {"theorem_two_bound"}


def test_the_notation_page_names_every_equation():
    named = set(re.findall(r"`equations\.(\w+)`", NOTATION.read_text("utf-8")))
    assert named == EQUATIONS
