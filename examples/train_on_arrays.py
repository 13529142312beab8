"""Train on your own arrays: three clients at two servers, in two clusters.

Run it with `python examples/train_on_arrays.py`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pgfl import PGFL, ClientData, Federation, Result, Ridge, train

SLOPES = {"adults": (1.0, 2.0, 3.0), "children": (1.0, 2.0, 2.5)}


def measured(cluster: str, seed: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Features and targets of one client; replace this by your own measurements."""
    features = np.random.default_rng(seed).normal(size=(20, 3))
    return features, features @ np.array(SLOPES[cluster])


def main() -> Result:
    """Train one model per cluster and return everything that was recorded."""
    clients = {
        name: ClientData(server, cluster, *measured(cluster, seed))
        for seed, (name, server, cluster) in enumerate(
            [("ann", "north", "adults"), ("bob", "south", "adults"), ("cem", "south", "children")]
        )
    }
    federation = Federation.from_clients(clients, edges=[("north", "south")])
    return train(federation, PGFL(rho=5.0), Ridge(lam=0.01), rounds=200)


if __name__ == "__main__":
    result = main()
    for cluster in result.cluster_ids:
        print(f"{cluster}: {result.cluster(cluster).round(2)}")
    print(f"prediction for cem: {result.predict([[1.0, 0.0, 0.0]], client='cem')}")
