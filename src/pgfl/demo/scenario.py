"""What a demonstration trains: made-up data on a line of sites, the training they agree on, the clients' policies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pgfl.core.federation import Federation
from pgfl.core.topology import line
from pgfl.data.synthetic import synthetic_regression
from pgfl.deploy.agreed_training import Training
from pgfl.deploy.local import LocalNetwork
from pgfl.errors import NetworkError
from pgfl.privacy.trust import CONTRIBUTORS, Level

ObjectiveName = Literal["huber", "ridge", "logistic"]
START_SECONDS = 240.0
DELTA = 1e-5
COMPANY: dict[Level, int] = {
    "local": 1,
    "site": CONTRIBUTORS,
    "masked": 4,
}  # clients of a site in one cluster, at least
CLIENTS: dict[Level, int] = {"local": 2, "site": 2, "masked": 4}  # of each site, unless the user says otherwise


@dataclass(frozen=True)
class Scenario:
    """The size of a demonstration and what it trains."""

    sites: int = 3
    clients: int = 2
    rounds: int = 5
    objective: ObjectiveName = "huber"
    epsilon: float = 20.0
    seed: int = 0
    trust: Level = "local"

    def network(self, folder: Path) -> LocalNetwork:
        """A network in a folder, not prepared yet; its clients record their noise, so that it can be replayed."""
        federation = demo_federation(self.sites, self.clients, self.objective, self.seed, trust=self.trust)
        training = demo_training(federation, self.objective, self.rounds, self.trust)
        privacy = demo_privacy(self.objective, self.epsilon, self.rounds, self.trust)
        return LocalNetwork(folder, federation, training, privacy, demo_timing(), record_noise=True)


def demo_federation(
    sites: int, clients: int, objective: ObjectiveName, seed: int, dimension: int = 5, trust: Level = "local"
) -> Federation:
    """Made-up data on a line of sites, in two clusters where there are enough clients.

    Where only sums over the clients of a site and cluster are noised, there are several of them.
    """
    if trust != "local" and clients < CONTRIBUTORS:
        raise NetworkError(f"With --trust {trust} every site needs at least {CONTRIBUTORS} clients; see --clients.")
    federation = synthetic_regression(
        servers=sites,
        clients_per_server=clients,
        clusters=min(2, sites * clients),
        dimension=dimension,
        samples=(20, 40),
        graph=line(sites),
        seed=seed,
    )
    if trust != "local":
        federation = _in_company(federation, clients, COMPANY[trust])
    if objective == "logistic":
        return federation.replace(targets=(federation.targets > 0).astype(float), truth=None)
    return federation


def _in_company(federation: Federation, clients: int, company: int) -> Federation:
    """The same with the clients of a site put into clusters, `company` at a time, and targets that follow these."""
    assert federation.truth is not None
    groups = np.minimum(np.arange(federation.size) % clients // company, max(clients // company - 1, 0))
    cluster = groups % len(federation.cluster_ids)
    moved = np.repeat(federation.truth[cluster] - federation.truth[federation.client_cluster], federation.counts, 0)
    targets = federation.targets + np.einsum("ij,ij->i", federation.features, moved)
    return federation.replace(client_cluster=cluster, targets=targets, generated=True)


def demo_training(federation: Federation, objective: ObjectiveName, rounds: int, trust: Level = "local") -> Training:
    """The training that the sites agree on. Where the noise of a sum is shared, clients take gradient steps."""
    client = {"client": "admm", "rho": 3.0} if trust == "local" else {"client": "gradient", "rho": 8.0}
    return Training.model_validate(
        {
            "rounds": rounds,
            "dimension": federation.dimension,
            "clusters": tuple(federation.cluster_ids),
            "objective": {"kind": objective, "lam": 0.01},
            "algorithm": {"kind": "pgfl", "tau": {"start": 0.3, "decay": 0.98}, **client},
            "privacy": {"trust": trust},
        }
    )


def demo_timing() -> dict[str, float]:
    """Everyone waits for everyone, however slow this machine is: only a whole round equals the simulator's."""
    return {"start": START_SECONDS, "answers": START_SECONDS, "exchange": START_SECONDS}


def demo_privacy(objective: ObjectiveName, epsilon: float, rounds: int, trust: Level = "local") -> dict[str, Any]:
    """Every client's own policy."""
    bounds: dict[str, float] = {"x_norm": 3.0}
    if objective == "ridge":
        bounds |= {"y_bound": 5.0, "w_norm": 4.0}
    budget = {"epsilon": epsilon, "delta": DELTA, "max_releases": rounds, "zeta": 0.99}
    return {"enabled": True, **budget, **bounds, "trust": trust}
