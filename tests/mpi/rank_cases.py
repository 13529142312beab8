"""Configs that train on any number of ranks, and the table that some of them read."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from pgfl.config import Config, parse
from pgfl.metrics import DEFAULT_METRICS

SMALL = {"servers": 7, "clients_per_server": 6, "dimension": 8, "samples": (2, 9)}
RANDOM = {"kind": "random", "average_degree": 2.5}
PRIVATE = {"enabled": True, "phi0": 0.01, "zeta": 0.99, "x_norm": 1.0, "index": "release", "max_releases": 9}

CASES: dict[str, dict] = {
    "ridge": {"algorithm": {"tau": 0.2}},
    "ridge, few take part": {"algorithm": {"tau": 0.2, "participants": 2}, "runs": 2},
    "huber": {"objective": {"kind": "huber"}, "algorithm": {"tau": {"start": 0.4, "decay": 0.9}, "participants": 4}},
    "exact": {"algorithm": {"kind": "pgfl-exact", "rho": 3.0}},
    "exact, few take part": {"algorithm": {"kind": "pgfl-exact", "tau": 0.1, "participants": 1}},
    "one step": {"algorithm": {"kind": "pgfl-onestep", "tau": 0.1}, "graph": {"kind": "line"}},
    "one step, few take part": {"algorithm": {"kind": "pgfl-onestep", "tau": 0.1, "participants": 1}},
    "learned weights": {"algorithm": {"tau": "auto", "rho": 3.0}},
    "learned weights, few take part": {
        "algorithm": {"tau": "auto", "client": "gradient", "rho": 30.0, "full_records": 5, "participants": 2}
    },
    "linearised": {"algorithm": {"client": "gradient", "rho": 30.0, "tau": 0.2, "participants": 2}, "runs": 2},
    "linearised, exact": {"algorithm": {"client": "gradient", "kind": "pgfl-exact", "rho": 30.0}},
    "numba, linearised": {
        "engine": "numba",
        "objective": {"kind": "huber"},
        "algorithm": {"client": "gradient", "rho": 30.0, "participants": 4},
    },
    "private, linearised": {
        "objective": {"kind": "huber"},
        "algorithm": {"client": "gradient", "rho": 1.0, "participants": 3},
        "privacy": PRIVATE,
    },
    "site": {
        "objective": {"kind": "huber"},
        "algorithm": {"client": "gradient", "rho": 1.0, "tau": 0.1},
        "privacy": PRIVATE | {"trust": "site"},
    },
    "masked, few take part": {
        "engine": "numba",
        "objective": {"kind": "huber"},
        "algorithm": {"client": "gradient", "rho": 1.0, "participants": 4},
        "privacy": PRIVATE | {"trust": "masked"},
    },
    "late answers": {
        "objective": {"kind": "huber"},
        "algorithm": {"client": "gradient", "rho": 1.0, "tau": 0.1, "delays": {"clients": 0.4, "rounds": 2}},
        "privacy": PRIVATE,
    },
    "fedavg": {"algorithm": {"kind": "fedavg", "participants": 2}, "graph": {"kind": "star"}},
    "single precision": {"dtype": "float32", "algorithm": {"tau": 0.2, "participants": 2}},
    "threads": {"threads": 2, "objective": {"kind": "huber"}},
    "numba": {"engine": "numba", "algorithm": {"tau": 0.2, "participants": 4}, "runs": 2},
    "numba, single precision": {"engine": "numba", "dtype": "float32", "objective": {"kind": "huber"}},
    "private": {
        "objective": {"kind": "huber"},
        "algorithm": {"tau": 0.1, "participants": 3},
        "graph": {"mixing": "metropolis"} | RANDOM,
        "privacy": PRIVATE,
    },
    "private ridge, all take part": {"privacy": PRIVATE | {"y_bound": 9.0, "w_norm": 20.0, "index": "round"}},
    "budgets run out": {
        "data": {"kind": "table", "table": "clients.csv"},
        "graph": {"edges": "edges.csv", "servers": ("relay",)},
        "objective": {"kind": "logistic"},
        "algorithm": {"tau": 0.4, "participants": 2},
        "privacy": PRIVATE | {"max_releases": 2, "noise": "seeded"},
        "rounds": 30,
    },
    "table": {
        "data": {"kind": "table", "table": "clients.csv", "test": "test.csv", "intercept": True},
        "graph": {"edges": "edges.csv", "servers": ("relay",)},
        "objective": {"kind": "logistic"},
        "algorithm": {"tau": 0.1, "participants": 2},
    },
    "digits": {
        "data": {"kind": "mnist", "servers": 4, "clients_per_server": 4},
        "graph": {"kind": "ring"},
        "objective": {"kind": "logistic"},
        "algorithm": {"tau": 0.1, "participants": 3},
        "rounds": 3,
    },
    "by clients": {
        "data": {"kind": "table", "table": "clients.csv"},
        "graph": {"edges": "edges.csv", "servers": ("relay",), "mixing": "clients"},
        "objective": {"kind": "logistic"},
        "algorithm": {"tau": 0.1, "participants": 2},
    },
    "uneven rows": {
        "data": {"kind": "table", "table": "uneven.csv"},
        "graph": {"kind": "ring"},
        "algorithm": {"tau": 0.1, "participants": 3},
    },
    "many rows": {
        "data": SMALL | {"samples": (1, 60), "dimension": 4},
        "objective": {"clusters": {"cluster-1": {"kind": "huber"}}},
        "algorithm": {"participants": 5},
    },
}


def config(name: str, folder: Path, **changes: object) -> Config:
    common = {"data": SMALL, "graph": RANDOM, "rounds": 12, "record_every": 5, "seed": 3, "metrics": DEFAULT_METRICS}
    return parse(common | CASES[name] | changes, folder)


def write_tables(folder: Path) -> None:
    """A federation in which everything is uneven: a relay without clients, a part of its own, clients of all sizes."""
    rng = np.random.default_rng(5)
    header = ["client", "server", "cluster", "y", "a", "b", "c"]
    places = {
        "aalborg": "xxyyyyx",
        "bergen": "y",
        "cork": "xyxy",
        "derry": "zzxzyx",
        "essen": "xx",
        "far-a": "xz",
        "far-b": "zzz",
    }
    clients = [(server, cluster) for server, clusters in places.items() for cluster in clusters]
    names = [f"k{number}" for number in rng.permutation(len(clients))]  # their order as text cuts across servers
    rows = []
    for name, (server, cluster) in zip(names, clients, strict=True):
        for _ in range(rng.integers(1, 7)):
            x = rng.normal(size=3).round(3)
            rows.append([name, server, cluster, int(x.sum() + rng.normal() > (cluster == "x")), *x])
    tests = [["", "", cluster, int(x.sum() > 0), *x] for cluster in "xz" for x in rng.normal(size=(12, 3)).round(3)]
    edges = [("aalborg", "relay"), ("relay", "bergen"), ("relay", "cork"), ("cork", "derry"), ("derry", "essen")]
    uneven = [
        [f"k{server}-{client}", f"s{server}", "xy"[client % 2], *rng.normal(size=31).round(3)]
        for server in range(6)
        for client in range(5)
        for _ in range(rng.integers(1, 3 + 2 * server))  # the longest clients of two ranks differ
    ]
    _write(folder / "uneven.csv", [*header[:4], *(f"x{i}" for i in range(30))], uneven)
    _write(folder / "clients.csv", header, [rows[i] for i in rng.permutation(len(rows))])
    _write(folder / "test.csv", header, tests)
    _write(folder / "edges.csv", ["source", "target"], [*edges, ("far-a", "far-b")])


def _write(path: Path, header: list[str], rows: list) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([header, *rows])
