"""From the oracle's plain problems to the package's types, so that both run the same thing."""

from __future__ import annotations

import numpy as np

from pgfl import objectives
from pgfl.arrays import is_jax
from pgfl.core import algorithms
from pgfl.core.federation import ClientData, Federation
from pgfl.simulate.engine import Engine
from pgfl.simulate.flat_layout import lay_out
from pgfl.simulate.jax_engine import JaxEngine
from pgfl.simulate.problems import prepare
from tests import oracle


def federation(problem: oracle.Problem) -> Federation:
    return Federation.from_clients(
        {c.id: ClientData(c.server, c.cluster, c.X, c.y) for c in problem.clients},
        problem.edges,
        servers=problem.servers,
    )


def objective(problem: oracle.Problem):
    kinds = {
        "ridge": lambda o: objectives.Ridge(lam=o.lam),
        "huber": lambda o: objectives.Huber(lam=o.lam, kappa=o.kappa),
        "logistic": lambda o: objectives.Logistic(lam=o.lam),
    }
    return {cluster: kinds[o.kind](o) for cluster, o in problem.objectives.items()}


def algorithm(problem: oracle.Problem):
    kind = algorithms.KINDS[problem.algorithm]
    if kind is algorithms.FedAvg:
        return kind(step=problem.step, local_steps=problem.local_steps, mixing=problem.mixing)
    mixing = "metropolis" if kind is algorithms.ExactMixing else problem.mixing
    return kind(rho=problem.rho, tau=problem.tau, mixing=mixing)


class Turnout:
    """The oracle's participants, as a scheduler over flat positions."""

    def __init__(self, run, participants):
        self.run, self.participants = run, participants

    def draw(self, number):
        ids = self.run.federation.client_ids
        chosen = self.participants(number) if self.participants else set(ids)
        return np.array([i for i, k in enumerate(self.run.order) if ids[k] in chosen], dtype=np.int64)


class GivenNoise:
    """The oracle's noise, as a noise source; stands in for the account as well, which is not what is compared."""

    label = "given"

    def __init__(self, run, noise):
        self.run, self.noise = run, noise

    def release(self, models, sigma, clients, number):
        ids = [self.run.federation.client_ids[k] for k in self.run.order[clients]]
        extra = [self.noise(number, k) for k in ids]
        return models + np.array([np.zeros(models.shape[1]) if e is None else e for e in extra])


def engine(problem: oracle.Problem, participants=None, noise=None, xp=np, chosen=None, **settings) -> Engine:
    """The simulator of a problem, with the problem's own algorithm unless another one is chosen."""
    chosen = chosen or algorithm(problem)
    layout = lay_out([federation(problem)], personalised=chosen.personalised)
    blocks = prepare(layout, objective(problem), chosen.rho, np.float64, xp)
    source = GivenNoise(layout.runs[0], noise) if noise else None
    turnout = Turnout(layout.runs[0], participants)
    return (JaxEngine if is_jax(xp) else Engine)(layout, blocks, chosen, turnout, noise=source, xp=xp, **settings)


def snapshot(played: Engine) -> dict[str, dict]:
    """Clients' models and duals and servers' models by id, as the oracle's rounds have them."""
    run = played.layout.runs[0]
    fed, state = run.federation, played.state
    ids = [fed.client_ids[k] for k in run.order]
    clusters = fed.cluster_ids if played.algorithm.personalised else (oracle.GLOBAL,)
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
