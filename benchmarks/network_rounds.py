"""A site and its clients as real processes: a round, the start, memory."""

from __future__ import annotations

import mmap
import os
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from harness import Row, quartiles, seconds
from pgfl.demo import demo_federation, demo_training
from pgfl.federation.graphs import empty
from pgfl.federation.synthetic import synthetic_regression
from pgfl.network.agreement import Training
from pgfl.network.local import LocalNetwork

DIMENSION, ENDLESS, SITE = 60, 10**6, "server-0"
WARM_UP, ROUNDS, STARTS = 20, 220, 3
POLICIES = {
    "private": {"enabled": True, "phi0": 1e-7, "zeta": 1.0, "max_releases": ENDLESS, "x_norm": 8.0},
    "without noise": {"enabled": False},
}


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


def rounds(clients: int) -> Iterator[Row]:
    """A round, and the start."""
    crowd = f"{clients} client{'s' if clients > 1 else ''}"
    for policy in POLICIES:
        with training_site(clients, policy, ROUNDS) as (network, began):
            history = network.history(SITE)
        own = np.array([row["seconds"] for row in history if row["round"] > WARM_UP])
        start = next(row["finished"] for row in history if row["round"] == 1) - began
        ours = f"{seconds(float(np.median(own)))}, p95 {seconds(float(np.quantile(own, 0.95)))}"
        yield Row(
            f"round-{clients}-{policy}", f"a round with {crowd}, {policy}: seconds", "—", "—", *quartiles(own), ours,
            "—", clock="wall",
        )  # fmt: skip
        yield Row(
            f"start-{clients}-{policy}", f"from start to first round with {crowd}, {policy}: seconds", "—", "—",
            *[start] * 3, seconds(start), "—", clock="wall",
        )  # fmt: skip


def memory() -> Iterator[Row]:
    """A client that trains."""
    with training_site(1, "private", 100) as (network, _):
        client = network.running["client-0"].pid
        everyone = [int(process) for child in network.running.values() for process in tree(child.pid)]
        whole = sum(megabytes_among(int(process), everyone) for process in tree(client))
        if "jaxlib" in Path(f"/proc/{client}/maps").read_text():
            raise AssertionError("a client has loaded JAX")
    yield Row(
        "memory-client", "memory of a client, all its processes: MB", "—", "≤ 50 MB",
        *[whole] * 3, f"{whole:.0f} MB", "—",
    )  # fmt: skip


def megabytes_among(process: int, everyone: Sequence[int]) -> float:
    """Memory of a process, pages of files divided among these processes, whatever else on the machine uses them."""
    users = Counter(page for each in everyone for page in _file_pages(each))
    rollup = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    own = sum(int(line.split()[1]) for line in rollup if line.startswith("Anonymous:")) / 1024
    return own + sum(1 / users[page] for page in _file_pages(process)) * mmap.PAGESIZE / 2**20


def _file_pages(process: int) -> set[tuple[str, int]]:
    """The pages of files that are in a process's memory, unchanged: file and number."""
    found = set()
    with Path(f"/proc/{process}/pagemap").open("rb") as pages:
        for line in Path(f"/proc/{process}/maps").read_text().splitlines():
            span, _, offset, _, inode, *name = line.split(maxsplit=5)
            if inode == "0":
                continue
            first, end = (int(address, 16) // mmap.PAGESIZE for address in span.split("-"))
            pages.seek(8 * first)
            entries = np.frombuffer(pages.read(8 * (end - first)), np.uint64)
            shared = (entries >> np.uint64(61)) & np.uint64(5) == 5  # present, and of a file
            found |= {(name[0], int(offset, 16) // mmap.PAGESIZE + int(i)) for i in np.flatnonzero(shared)}
    return found


def start() -> Iterator[Row]:
    """Three sites with two clients each, from the first process to the last site's first round, after a warm-up."""
    with cached_bytecode():
        figures = np.array([_started() for _ in range(1 + STARTS)])[1:]
    lasted, processor = figures.T
    yield Row(
        "start-3x2", "from start to first round with 3 sites of 2 clients, private: seconds", "—", "≤ 3 s",
        *quartiles(lasted), seconds(float(np.median(lasted))), "—", clock="wall",
    )  # fmt: skip
    yield Row(
        "start-3x2-cpu", "processor time of that start, all 9 processes: seconds", "—", "—",
        *quartiles(processor), seconds(float(np.median(processor))), "—", clock="CPU",
    )  # fmt: skip


def _started() -> tuple[float, float]:
    """The seconds to the first round, and the processor time of all processes until then."""
    federation = demo_federation(3, 2, "huber", seed=3)
    with tempfile.TemporaryDirectory() as folder:
        network = LocalNetwork(
            Path(folder), federation, demo_training(federation, "huber", ENDLESS), POLICIES["private"]
        )
        network.prepare()
        began = time.time()
        try:
            network.start()
            network.wait(lambda: all(network.round_of(s) for s in federation.server_ids), 600, "the first round")
            running = [process for child in network.running.values() for process in tree(child.pid)]
            processor = sum(map(processor_seconds, running))
            return max(network.history(s)[0]["finished"] for s in federation.server_ids) - began, processor
        finally:
            network.stop()


@contextmanager
def cached_bytecode() -> Iterator[None]:
    """Inside, processes keep the bytecode of modules, as Python does unless it is told otherwise."""
    with tempfile.TemporaryDirectory() as folder:
        before = dict(os.environ)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def processor_seconds(process: int) -> float:
    """What a process has used of the processor."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def tree(pid: int) -> list[int]:
    """A process and all that descend from it."""
    children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout.split()
    return [pid, *(each for child in children for each in tree(int(child)))]


def proportional_megabytes(pid: int) -> float:
    """Memory of a process, shared pages divided among those who share them."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0  # it is over
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
