"""What a demonstration trains: made-up data on a line of sites, the training they agree on, the clients' policies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pgfl.core.federation import Federation
from pgfl.core.topology import line
from pgfl.data.synthetic import synthetic_regression
from pgfl.deploy.agreed_training import Training
from pgfl.deploy.local import LocalNetwork

ObjectiveName = Literal["huber", "ridge", "logistic"]
START_SECONDS = 240.0
DELTA = 1e-5


@dataclass(frozen=True)
class Scenario:
    """The size of a demonstration and what it trains."""

    sites: int = 3
    clients: int = 2
    rounds: int = 5
    objective: ObjectiveName = "huber"
    epsilon: float = 20.0
    seed: int = 0

    def network(self, folder: Path) -> LocalNetwork:
        """A network in a folder, not prepared yet; its clients record their noise, so that it can be replayed."""
        federation = demo_federation(self.sites, self.clients, self.objective, self.seed)
        training = demo_training(federation, self.objective, self.rounds)
        privacy = demo_privacy(self.objective, self.epsilon, self.rounds)
        return LocalNetwork(folder, federation, training, privacy, demo_timing(), record_noise=True)


def demo_federation(sites: int, clients: int, objective: ObjectiveName, seed: int, dimension: int = 5) -> Federation:
    """Made-up data on a line of sites, in two clusters where there are two clients."""
    federation = synthetic_regression(
        servers=sites,
        clients_per_server=clients,
        clusters=min(2, sites * clients),
        dimension=dimension,
        samples=(20, 40),
        graph=line(sites),
        seed=seed,
    )
    if objective == "logistic":
        return federation.replace(targets=(federation.targets > 0).astype(float), truth=None)
    return federation


def demo_training(federation: Federation, objective: ObjectiveName, rounds: int) -> Training:
    """The training that the sites agree on."""
    return Training.model_validate(
        {
            "rounds": rounds,
            "dimension": federation.dimension,
            "clusters": tuple(federation.cluster_ids),
            "objective": {"kind": objective, "lam": 0.01},
            "algorithm": {"kind": "pgfl", "rho": 3.0, "tau": {"start": 0.3, "decay": 0.98}},
        }
    )


def demo_timing() -> dict[str, float]:
    """Everyone waits for everyone, however slow this machine is: only a whole round equals the simulator's."""
    return {"start": START_SECONDS, "answers": START_SECONDS, "exchange": START_SECONDS}


def demo_privacy(objective: ObjectiveName, epsilon: float, rounds: int) -> dict[str, Any]:
    """Every client's own policy."""
    bounds: dict[str, float] = {"x_norm": 3.0}
    if objective == "ridge":
        bounds |= {"y_bound": 5.0, "w_norm": 4.0}
    return {"enabled": True, "epsilon": epsilon, "delta": DELTA, "max_releases": rounds, "zeta": 0.99, **bounds}
