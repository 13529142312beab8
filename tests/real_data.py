"""Four public data sets as federations: rows dealt out to clients at servers, in clusters that differ."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pgfl import ClientData, Federation, Huber, Logistic, Ridge, TestSet
from pgfl.arrays import Floats
from pgfl.objectives import Objective

SERVERS, CLIENTS_PER_SERVER = 4, 4


def diabetes() -> tuple[Floats, Floats, Floats, Objective]:
    """Features, targets, the column that decides the cluster, and the objective."""
    from sklearn.datasets import load_diabetes

    features, targets = load_diabetes(return_X_y=True)
    return features, (targets - targets.mean()) / targets.std(), features[:, 1], Ridge()


def breast_cancer() -> tuple[Floats, Floats, Floats, Objective]:
    """Logistic regression; two clusters by size of the tumour."""
    from sklearn.datasets import load_breast_cancer

    features, targets = load_breast_cancer(return_X_y=True)
    return features, targets.astype(float), features[:, 1], Logistic()


def digits() -> tuple[Floats, Floats, Floats, Objective]:
    """Even or odd; two clusters by how much ink there is."""
    from sklearn.datasets import load_digits

    features, targets = load_digits(return_X_y=True)
    return features[:, features.std(axis=0) > 0], targets % 2.0, features.sum(axis=1), Logistic()


def fair() -> tuple[Floats, Floats, Floats, Objective]:
    """Hours in affairs, on a log scale; two clusters by religiousness."""
    from statsmodels.datasets import fair as source

    table = source.load_pandas().data
    targets = np.log1p(table.pop("affairs").to_numpy())
    features = table.to_numpy(dtype=float)
    return features, targets, table["religious"].to_numpy(dtype=float), Huber()


DATA_SETS: dict[str, Callable[[], tuple[Floats, Floats, Floats, Objective]]] = {
    "diabetes": diabetes,
    "breast_cancer": breast_cancer,
    "digits": digits,
    "fair": fair,
}


def scaled(features: Floats) -> Floats:
    """Columns from their bounds to [−1, 1], and an intercept."""
    low, high = features.min(axis=0), features.max(axis=0)
    return np.column_stack([(2.0 * features - low - high) / (high - low), np.ones(len(features))])


def federation(name: str, *, raw: bool = False, held_out: float = 0.25) -> tuple[Federation, Objective]:
    """The federation of a data set, scaled unless `raw`, with its last rows held out by client; and its objective."""
    features, targets, by, objective = DATA_SETS[name]()
    rows = features if raw else scaled(features)
    order = np.random.default_rng(0).permutation(len(rows))
    rows, targets, cluster = rows[order], targets[order], np.where(by > np.median(by), "high", "low")[order]
    clients: dict[str, ClientData] = {}
    tests: dict[str, list[tuple[Floats, Floats, int]]] = {"high": [], "low": []}
    for number in range(SERVERS * CLIENTS_PER_SERVER):
        own = ("high", "low")[number % 2]
        mine = np.flatnonzero(cluster == own)[number // 2 :: SERVERS * CLIENTS_PER_SERVER // 2]
        kept = len(mine) - int(held_out * len(mine))
        server = f"s{number // CLIENTS_PER_SERVER}"
        clients[f"c{number:02d}"] = ClientData(server, own, rows[mine[:kept]], targets[mine[:kept]])
        tests[own].append((rows[mine[kept:]], targets[mine[kept:]], number))
    sets = {
        own: TestSet(
            np.concatenate([x for x, _, _ in parts]),
            np.concatenate([y for _, y, _ in parts]),
            np.concatenate([np.full(len(y), k) for _, y, k in parts]),
        )
        for own, parts in tests.items()
    }
    edges = [(f"s{s}", f"s{(s + 1) % SERVERS}") for s in range(SERVERS)]
    return Federation.from_clients(clients, edges, tests=sets), objective
