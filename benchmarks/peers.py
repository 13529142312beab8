"""`make bench-peers`: other simulators on the paper's round, each in an environment of its own."""

# ruff: noqa: E402 (threads of BLAS are set before NumPy is loaded)
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

for pool in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(pool, "1")

import numpy as np

import harness
from plain_loops import PlainLoop
from rounds import LAM, RHO, TAU, engine, federation

ROOT = harness.HERE.parent
ROUNDS = 6
PEERS = {
    "flower": ("peers_flower.py", ["flwr[simulation]==1.41.0"], "≥ 5,000×"),
    "fedjax": ("peers_fedjax.py", ["fedjax"], "≥ 1×"),
}


def environment(name: str, packages: list[str]) -> Path:
    """The peer's own virtual environment, built once."""
    folder = ROOT / f".venv-peers-{name}"
    if not (folder / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        subprocess.run([*pip, "numpy", *packages], check=True)
    return folder / "bin" / "python"


def write_problem(path: Path) -> None:
    """The clients' factored problems and the network, for a peer to load."""
    data = federation()
    loop = PlainLoop(data, RHO, TAU, LAM).factor()
    np.savez(
        path,
        inverse=np.array([inverse for inverse, _ in loop.factors or []]),
        right=np.array([right for _, right in loop.factors or []]),
        server=data.client_server,
        cluster=data.client_cluster,
        clusters=loop.clusters,
        mixing=data.graph.weights("uniform").toarray(),
        rho=RHO,
        tau=TAU,
    )


def steady(seconds: list[float]) -> np.ndarray:
    """A peer's rounds after the first, which starts its workers."""
    return np.array(seconds[1:])


def measure(name: str, script: str, packages: list[str], goal: str) -> harness.Row:
    python = environment(name, packages)
    with tempfile.TemporaryDirectory() as folder:
        problem, out = Path(folder) / "problem.npz", Path(folder) / "seconds.json"
        write_problem(problem)
        subprocess.run(
            [python, harness.HERE / script, problem, str(ROUNDS), out], check=True, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        told = json.loads(out.read_text())
    theirs = steady(told["seconds"])
    ours = engine([federation()])
    for _ in range(50):
        ours.play()
    own = []
    for _ in range(25):
        began = time.perf_counter()
        for _ in range(100):
            ours.play()
        own.append((time.perf_counter() - began) / 100)
    ratios = np.median(theirs) / np.array(own)
    low, middle, high = np.percentile(ratios, [25, 50, 75])
    return harness.Row(
        name, "the paper's round, NumPy alone", f"{name}'s simulation, same mathematics, steady state", goal,
        middle, low, high, harness.seconds(float(np.median(own))), harness.seconds(float(np.median(theirs))),
        f"{told['seconds'][0]:.1f} s its first round", "wall",
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PEERS, nargs="+")
    parser.add_argument("--json", action="store_true", help="figures for machines")
    chosen = parser.parse_args()
    rows, remarks = [], []
    for name in chosen.only or PEERS:
        try:
            rows.append(measure(name, *PEERS[name]))
        except (subprocess.CalledProcessError, OSError) as error:
            remarks.append(f"{name} could not be installed or run here: {error}.")
    remarks.append("NVIDIA FLARE 2.9 and pfl-research 0.6 install beside these; no round was written for them yet.")
    remarks.append(
        "Flower's and FedJAX's servers keep the duals, which favours them: a client only solves its problem."
    )
    return harness.show("peers", harness.publish("peers", rows, remarks), chosen.json)


if __name__ == "__main__":
    sys.exit(main())
