"""From the oracle's plain problems to the package's types, so that both run the same thing."""

from __future__ import annotations

import numpy as np

from pgfl import objectives
from pgfl.algorithms import algorithms
from pgfl.arrays import is_jax
from pgfl.federation.federation import ClientData, Federation
from pgfl.simulate.options import Performance, TrainingOptions
from pgfl.simulate.simulator import Replay, Simulator
from tests import oracle


def federation(problem: oracle.Problem) -> Federation:
    return Federation.from_clients(
        {c.id: ClientData(c.server, c.cluster, c.X, c.y, c.c) for c in problem.clients},
        problem.edges,
        servers=problem.servers,
    )


def objective(problem: oracle.Problem):
    kinds = {
        "ridge": lambda o: objectives.Ridge(lam=o.lam, w_norm=o.w_norm),
        "huber": lambda o: objectives.Huber(lam=o.lam, kappa=o.kappa),
        "logistic": lambda o: objectives.Logistic(lam=o.lam),
    }
    return {cluster: kinds[o.kind](o) for cluster, o in problem.objectives.items()}


def algorithm(problem: oracle.Problem):
    kind = algorithms.ALGORITHMS[problem.algorithm]
    if kind is algorithms.FedAvg:
        steps = {"step_size": problem.step, "local_steps": problem.local_steps}
        return kind(**steps, mixing=problem.mixing, full_records=problem.full_records)
    mixing = "metropolis" if kind is algorithms.ExactMixing else problem.mixing
    settings = {"tau": problem.tau, "client": problem.client, "full_records": problem.full_records}
    return kind(rho=problem.rho, mixing=mixing, **settings)


def simulator(
    problem: oracle.Problem, participants=None, noise=None, spent=None, xp=None, chosen=None, **options
) -> Simulator:
    """The simulator of a problem, with the oracle's draws, and the problem's own algorithm unless another is chosen."""
    made = federation(problem)
    replay = Replay(participants or (lambda number: made.client_ids), noise, spent)
    own = {name: options.pop(name) for name in ("engine", "threads") if name in options}
    performance = Performance(**({"engine": "jax"} if xp is not None and is_jax(xp) else {}) | own)
    settings = TrainingOptions(**options, performance=performance)
    return Simulator([made], chosen or algorithm(problem), objective(problem), settings, replay=replay, xp=xp)


def snapshot(played: Simulator) -> dict[str, dict]:
    """Clients' models and duals and servers' models by id, as the oracle's rounds have them."""
    run = played.layout.runs[0]
    fed, state = run.federation, played.state
    ids = [fed.client_ids[k] for k in run.order]
    clusters = fed.cluster_ids if played.algorithm.server_rule.personalised else (oracle.GLOBAL,)
    pairs = [
        (fed.server_ids[s], clusters[q])
        for s, q in zip(played.layout.pair_server, played.layout.pair_cluster, strict=True)
    ]
    known = played.network.known
    return {
        "clients": dict(zip(ids, np.asarray(state.model), strict=True)),
        "duals": dict(zip(ids, played.algorithm.rho * np.asarray(state.dual), strict=True)),
        "servers": {p: m for p, m, k in zip(pairs, np.asarray(state.server_models), known, strict=True) if k},
    }
