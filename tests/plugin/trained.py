"""Trainings with everything that the example package registers; run in a process that sees it installed."""

import sys
from pathlib import Path

import numpy as np

from pgfl import Model, load_config, run
from pgfl.cli import execute
from pgfl.config import warnings
from pgfl.demo import demo_federation, largest_difference
from pgfl.network.agreement import Training
from pgfl.network.local import LocalNetwork
from pgfl.simulate.engines import engine_kind
from tests.network.inprocess import train_in_process

CONFIG = """
rounds = 12
engine = "counting"
metrics = ["nmsd", "median_error"]

[data]
servers = 5
clients_per_server = 4
dimension = 6
samples = [20, 30]
x_norm = 3.0
test_samples = 40

[graph]
kind = "wheel"

[objective]
kind = "pseudo-huber"
width = 1.5

[algorithm]
kind = "pgfl-lazy"
client = "damped"
rho = 20.0
damping = 0.5
stay = 0.1
tau = 0.1

[privacy]
epsilon = 4.0
x_norm = 3.0
"""


def simulated(folder):
    """Train privately from a config, and write the whole result."""
    path = folder / "config.toml"
    path.write_text(CONFIG)
    config = load_config(path)
    assert not warnings(config)
    built = config.algorithm.build(config.graph.mixing)
    assert (built.client_rule.damping, built.server_rule.stay) == (0.5, 0.1)
    assert execute(["count", str(path)]) == 0
    result = run(config)
    assert result.engine == "counting" and engine_kind("counting").prepared
    assert result.curve("median_error").shape == (1, len(result.rounds))
    assert [one.name for one in result.measures][-1] == "median_error"
    assert 3.9 < result.spending()["epsilon"]["worst"] <= 4.0
    result.save(folder / "out")
    assert "median error" in (folder / "out" / "report.html").read_text("utf-8")
    mapped(folder)


def mapped(folder):
    """Train a table with the other package's row map, and read its model back."""
    rows = [f"c{i % 6},{i % 7 / 7.0},{(i % 7 / 7.0) ** 2}" for i in range(60)]
    (folder / "rows.csv").write_text("\n".join(["client,x,y", *rows]))
    path = folder / "mapped.toml"
    data = '[data]\nkind = "table"\ntable = "rows.csv"\nmap = { kind = "squares", scale = 0.25 }'
    path.write_text(f"rounds = 5\n{data}\n[data.columns]\nx = {{ bounds = [0, 1] }}\ny = {{ bounds = [0, 1] }}\n")
    result = run(load_config(path))
    assert result.feature_names == ("x", "x²")
    result.save(folder / "mapped")
    assert Model.load(folder / "mapped").encoding.maps[0].scale == 0.25


def on_devices(folder):
    """Train privately over a network, and compare with the simulator."""
    federation = demo_federation(2, 2, "huber", seed=2)
    settings = {
        "rounds": 4,
        "dimension": federation.dimension,
        "clusters": tuple(federation.cluster_ids),
        "objective": {"kind": "pseudo-huber", "lam": 0.01, "width": 1.5},
        "algorithm": {"kind": "pgfl-lazy", "client": "damped", "rho": 8.0, "damping": 0.5, "stay": 0.1, "tau": 0.2},
    }
    training = Training.model_validate(settings)
    assert Training.parse(training.text) == training
    privacy = {"enabled": True, "epsilon": 20.0, "delta": 1e-5, "max_releases": 4, "zeta": 0.99, "x_norm": 3.0}
    limits = {"objectives": ["pseudo-huber"], "algorithms": ["pgfl-lazy"]}
    network = LocalNetwork(folder, federation, training, privacy, record_noise=True, limits=limits)
    assert set(train_in_process(network).values()) == {"all rounds are done"}
    assert largest_difference(network) <= 1e-10
    assert all(np.isfinite(network.arrays(site)[1]["state.model"]).all() for site in federation.server_ids)


if __name__ == "__main__":
    {"simulated": simulated, "on_devices": on_devices}[sys.argv[1]](Path(sys.argv[2]))
