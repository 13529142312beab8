"""A site and its clients as real processes, beside bare Flower: a round, the start, memory."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import bare_flower
from harness import Row, quartiles, seconds
from pgfl.core.topology import empty
from pgfl.data.synthetic import synthetic_regression
from pgfl.deploy.agreed_training import Training
from pgfl.deploy.local import LocalNetwork

DIMENSION, ENDLESS, SITE = 60, 10**6, "server-0"
BARE_ROUNDS, WARM_UP, ROUNDS = 3, 20, 220
POLICIES = {
    "private": {"enabled": True, "phi0": 1e-7, "zeta": 1.0, "max_releases": ENDLESS, "x_norm": 8.0},
    "without noise": {"enabled": False},
}
FLOWER_ALONE = "import sys, flwr.supernode.runtime.run_clientapp; print('ready', flush=True); sys.stdin.read()"


def one_site(folder: Path, clients: int, policy: str) -> LocalNetwork:
    """One site, set up and not started."""
    federation = synthetic_regression(
        servers=1, clients_per_server=clients, clusters=1, dimension=DIMENSION, samples=(20, 20), graph=empty(1)
    )
    training = Training.model_validate(
        {"rounds": ENDLESS, "dimension": DIMENSION, "clusters": ("cluster-0",), "objective": {"kind": "huber"}}
    )
    network = LocalNetwork(folder, federation, training, POLICIES[policy])
    network.prepare()
    return network


@contextmanager
def training_site(clients: int, policy: str, rounds: int) -> Iterator[tuple[LocalNetwork, float]]:
    """A site that has done so many rounds and goes on; with the moment of its start."""
    with tempfile.TemporaryDirectory() as folder:
        network = one_site(Path(folder), clients, policy)
        began = time.time()
        try:
            network.start()
            network.wait(lambda: network.round_of(SITE) >= rounds, 600, f"round {rounds}")
            yield network, began
        finally:
            network.stop()


def beside_flower(clients: int) -> Iterator[Row]:
    """Ours and bare Flower one after the other, in one run."""
    bare = bare_flower.run(clients, BARE_ROUNDS)
    their_round = float(np.median(bare.rounds))
    crowd = f"{clients} client{'s' if clients > 1 else ''}"
    for policy in POLICIES:
        with training_site(clients, policy, ROUNDS) as (network, began):
            history = network.history(SITE)
        own = np.array([row["seconds"] for row in history if row["round"] > WARM_UP])
        start = next(row["finished"] for row in history if row["round"] == 1) - began
        ours = f"{seconds(float(np.median(own)))}, p95 {seconds(float(np.quantile(own, 0.95)))}"
        yield Row(
            f"round-{clients}-{policy}", f"a round with {crowd}, {policy}", "a bare Flower round of the same shape",
            "≥ 500×" if clients == 10 else "—", *quartiles(their_round / own), ours,
            seconds(their_round), clock="wall",
        )  # fmt: skip
        yield Row(
            f"start-{clients}-{policy}", f"from start to first round with {crowd}, {policy}", "bare Flower", "≤ 1.2×",
            *[start / bare.start] * 3, seconds(start), seconds(bare.start), clock="wall",
        )  # fmt: skip


def memory() -> Iterator[Row]:
    """A client that trains, beside what Flower takes without it."""
    bare = bare_flower.run(1, 2).node_megabytes
    alone = subprocess.Popen([sys.executable, "-c", FLOWER_ALONE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert alone.stdout is not None
        alone.stdout.readline()
        with training_site(1, "private", 100) as (network, _):
            client = network.running["client-0"].pid
            libraries = bare_flower.proportional_megabytes(alone.pid)
            process = bare_flower.proportional_megabytes(client)
            whole = sum(map(bare_flower.proportional_megabytes, bare_flower.tree(client)))
            if "jaxlib" in Path(f"/proc/{client}/maps").read_text():
                raise AssertionError("a client has loaded JAX")
    finally:
        alone.kill()
        alone.wait()
    for name, what, beside, ours, theirs in (
        ("memory-node", "memory of a client with its SuperNode: MB more", "a node of bare Flower at rest", whole, bare),
        (
            "memory-process", "memory of a client's process: MB more",
            "a process that has imported Flower's client runtime", process, libraries,
        ),
    ):  # fmt: skip
        yield Row(name, what, beside, "≤ 100 MB", *[ours - theirs] * 3, f"{ours:.0f} MB", f"{theirs:.0f} MB")
