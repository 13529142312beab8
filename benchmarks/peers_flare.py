"""The paper's round on NVIDIA FLARE's simulator, called by its Collab interface: a FLARE client a server's clients.

FLARE's simulator keeps a process for each of its clients, and takes 100 at most unless told otherwise. So one of its
clients stands for a server's fifteen, which favours it: a tenth of the processes and messages.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from nvflare.collab import CollabRecipe, collab
from nvflare.recipe.sim_env import SimEnv

from peers_round import Servers, problem, rounds_on_demand

PREFIX = "server-"


def clients_of(name: str) -> np.ndarray:
    """Which of the paper's clients a FLARE client stands for."""
    return np.flatnonzero(problem().server == int(name.removeprefix(PREFIX)))


@collab.publish
def train(pulls):
    return np.array([problem().solve(k, pulls[k]) for k in clients_of(collab.site_name)])


@collab.main
def main():
    servers = Servers()
    for _ in rounds_on_demand(servers):
        for name, models in collab.clients.train(servers.pulls()):
            servers.client_models[clients_of(name)] = models
        servers.finish(servers.sums())


if __name__ == "__main__":
    names = [f"{PREFIX}{s}" for s in np.unique(problem().server)]
    recipe = CollabRecipe("paper-round", min_clients=len(names))
    recipe.run(SimEnv(clients=names, workspace_root=str(Path.cwd())))
