"""`make bench-peers`: other simulators on the paper's round, each in an environment of its own.

A peer is a process that plays a round when it is asked to, so that ours and theirs take turns. After the last round its
models must be ours.
"""

# ruff: noqa: E402 (threads of BLAS are set before NumPy is loaded)
from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from socket import AF_UNIX, socket

for pool in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(pool, "1")

import numpy as np

import harness
import peers_round
from plain_loops import PlainLoop
from rounds import LAM, RHO, TAU, engine, federation

ROOT = harness.HERE.parent
TURNS = 9
TURN_SECONDS = 0.3  # of a fast peer, which plays several rounds a turn
PATIENCE = 900  # seconds until an answer
TOLERANCE = 1e-9


class PeerFailed(Exception):
    """A peer could not be installed, did not answer, or computed something else."""


@dataclass(frozen=True)
class Peer:
    """One simulator: what to install, and the script of its round."""

    title: str
    script: str
    packages: tuple[str, ...]
    goal: str = "≥ 1×"

    def environment(self, name: str) -> Path:
        """Its own virtual environment, built anew where other versions are asked for than it has."""
        folder = ROOT / f".venv-peers-{name}"
        python, stamp, wanted = folder / "bin" / "python", folder / ".installed", " ".join(self.packages)
        if not stamp.exists() or stamp.read_text() != wanted:
            tell(f"{name}: installing {wanted}")
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
            pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
            subprocess.run([*pip, *self.packages], check=True)
            stamp.write_text(wanted)
        return python


PEERS = {
    "flower": Peer(
        "Flower's simulation engine", "peers_flower.py", ("flwr[simulation]==1.41.0", "numpy==2.4.6"), "≥ 5,000×"
    ),
    "flare": Peer("NVIDIA FLARE's simulator", "peers_flare.py", ("nvflare==2.9.0", "numpy==2.4.6")),
    "pfl": Peer("pfl-research's simulated backend", "peers_pfl.py", ("pfl==0.6.0", "numpy==2.4.6")),
    "fedjax": Peer("FedJAX's compiled clients", "peers_fedjax.py", ("fedjax==0.0.17", "jax==0.10.2", "numpy==2.4.6")),
}
REMARKS = [
    "Ours is the NumPy engine in one thread, all included. The peers' clients multiply by an inverse that was made "
    "beforehand, and their one server does the arithmetic of all ten and keeps the duals, which favours them: none of "
    "them has a graph of servers.",
    f"Start-up is from the launch of the process to the end of its first round. The two sides take {TURNS} turns; "
    f"after the last, the peer's models must be those of our engine to {TOLERANCE:g}, or there is no row.",
    "FLARE's simulator keeps a process for each of its clients, so one of its clients stands for the fifteen of a "
    "server, which favours it. With a process a client (its limit of 100 raised) workers gave up connecting to the "
    "server on two busy cores, tried once and stopped after two minutes. pfl-research runs in its NumPy mode, and its "
    "aggregator adds up by server and cluster.",
]


def tell(message: str) -> None:
    sys.stderr.write(message + "\n")
    sys.stderr.flush()


class Playing:
    """A peer's process at the other end of a line."""

    def __init__(self, name: str, process: subprocess.Popen, listening: socket, log: Path) -> None:
        self.name, self.process, self.log, self.rounds = name, process, log, 0
        listening.settimeout(1.0)
        self.line = Connection(self._waiting(listening.accept)[0].detach())

    def play(self, rounds: int) -> float:
        """Let it play; its own seconds a round."""
        self.line.send(rounds)
        self.rounds += rounds
        return self._answer()

    def models(self) -> np.ndarray:
        """End it; the clients' models that it has come to."""
        self.line.send(0)
        return self._answer()

    def _answer(self):
        def once():
            if not self.line.poll(1.0):
                raise TimeoutError
            return self.line.recv()

        return self._waiting(once)

    def _waiting(self, attempt):
        began = time.monotonic()
        while time.monotonic() - began < PATIENCE:
            try:
                return attempt()
            except TimeoutError:
                if self.process.poll() is not None:
                    break
            except EOFError:
                break
        last = self.log.read_text(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        raise PeerFailed(f"{self.name} ended or did not answer within {PATIENCE} s; its last line was: {last[0]}")


@contextmanager
def playing(name: str, python: Path, script: Path) -> Iterator[Playing]:
    """The peer's process, with the problem and a line to us; ended when it is no longer needed."""
    with tempfile.TemporaryDirectory() as folder, socket(AF_UNIX) as listening:
        problem, line, log = (Path(folder) / each for each in ("problem.npz", "line", "log"))
        write_problem(problem)
        listening.bind(str(line))
        listening.listen(1)
        told = {peers_round.PROBLEM: str(problem), peers_round.LINE: str(line), "PYTHONPATH": str(harness.HERE)}
        with log.open("w") as out:
            process = subprocess.Popen(
                [python, script], stdout=out, stderr=out, env=os.environ | told, cwd=folder, start_new_session=True
            )
        try:
            yield Playing(name, process, listening, log)
            process.wait(60)
        except subprocess.TimeoutExpired:
            pass
        finally:
            process.kill()
            process.wait()


def write_problem(path: Path) -> None:
    """The clients' factored problems and the network, for a peer to load."""
    data = federation()
    loop = PlainLoop(data, RHO, TAU, LAM).factor()
    inverse, right = zip(*loop.factors, strict=True)
    network = {"server": data.client_server, "cluster": data.client_cluster, "clusters": loop.clusters}
    mixing = data.graph.weights("uniform").toarray()
    np.savez(path, inverse=inverse, right=right, mixing=mixing, rho=RHO, tau=TAU, **network)


def check(name: str, theirs: np.ndarray, rounds: int) -> None:
    """Refuse a peer whose models are not ours after as many rounds."""
    ours = engine([federation()])
    for _ in range(rounds):
        ours.run_round()
    apart = np.abs(theirs[ours.layout.runs[0].order] - ours.state.model).max()
    if not apart <= TOLERANCE:
        raise PeerFailed(f"{name}'s models are {apart:.1e} from ours after {rounds} rounds: not the same mathematics")


def measure(name: str, peer: Peer, python: Path) -> harness.Row:
    ours = engine([federation()])
    for _ in range(50):
        ours.run_round()
    began = time.perf_counter()
    with playing(name, python, harness.HERE / peer.script) as other:
        tell(f"{name}: starting")
        other.play(1)
        start_up = time.perf_counter() - began
        tell(f"{name}: first round over after {start_up:.1f} s")
        often = max(1, int(TURN_SECONDS / other.play(1)))

        def theirs() -> None:
            tell(f"{name}: {harness.seconds(other.play(often))} a round")

        turns = harness.take_turns(ours.run_round, theirs, TURNS, (1000, 1))
        turns.theirs /= often
        check(name, other.models(), other.rounds)
    return harness.Row(
        name, "the paper's round, NumPy alone", f"{peer.title} ({peer.packages[0]}), same mathematics, steady state",
        peer.goal, *turns.faster(), harness.seconds(float(np.median(turns.ours))),
        harness.seconds(float(np.median(turns.theirs))), f"{start_up:.1f} s", "wall",
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PEERS, nargs="+", help="measure some of the peers anew")
    parser.add_argument("--json", action="store_true", help="figures for machines")
    chosen = parser.parse_args()
    rows, remarks = [], list(REMARKS)
    for name in chosen.only or PEERS:
        try:
            rows.append(measure(name, PEERS[name], PEERS[name].environment(name)))
            tell(f"{name}: {rows[-1].ratio:.3g} times")
        except (PeerFailed, subprocess.CalledProcessError, OSError) as error:
            tell(str(error))
            remarks.append(f"No row for {name}: {error}.")
    return harness.show("peers", harness.publish("peers", rows, remarks, keep=bool(chosen.only)), chosen.json)


if __name__ == "__main__":
    sys.exit(main())
