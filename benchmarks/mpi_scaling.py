"""How a round scales over MPI ranks on this machine, and what one exchange costs.

    python benchmarks/mpi_scaling.py            a table
    python benchmarks/mpi_scaling.py --json     the same for machines

Weak scaling: every rank brings the same number of clients. Strong scaling: the same clients are split over the ranks.
One and many ranks take turns. A figure is the fastest of several rounds, and the slowest rank decides a round: other
work on the machine only ever makes a round slower. `work` is the processor time of a rank's round without the exchange,
which other processes on the machine disturb least. Efficiency is one rank's time over N ranks', over N for strong
scaling; by the clock, and by work.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import harness

CLIENTS_A_SERVER, CLUSTERS, DIMENSION = 100, 3, 60
ROUNDS, WARM_UP, EXCHANGES = 12, 3, 200
SCALINGS = ("weak", "strong", "tiny")
TINY = 2_000  # clients of a federation whose round is mostly exchange and overhead


def measure(settings: dict[str, Any]) -> dict[str, Any] | None:
    """On every rank: play rounds and exchanges; the first rank has the figures."""
    from pgfl.algorithms.algorithms import PGFL
    from pgfl.federation.synthetic import lay_out, synthetic_regression
    from pgfl.objectives import Ridge
    from pgfl.simulate.mpi.communicator import world
    from pgfl.simulate.mpi.partition import edges_between, partition
    from pgfl.simulate.options import Performance, TrainingOptions
    from pgfl.simulate.simulator import Simulator

    ranks = world()
    servers, kernels = settings["clients"] // CLIENTS_A_SERVER, settings["kernels"]
    shape = {"servers": servers, "clients_per_server": CLIENTS_A_SERVER, "clusters": CLUSTERS, "graph": "random"}
    layout = lay_out(**shape)
    began = time.perf_counter()
    owner = ranks.broadcast(lambda: partition(layout.graph, layout.sizes, ranks.size))
    split = time.perf_counter() - began

    own = np.flatnonzero(owner == ranks.rank)
    part = synthetic_regression(**shape, dimension=DIMENSION, dtype=np.float32, servers_subset=own)
    options = TrainingOptions(dtype=np.float32, performance=Performance(threads=1, engine=kernels))
    engine = Simulator([part], PGFL(tau=0.2), Ridge(), options, communicator=ranks, owners=[owner]).engine

    def slowest(work: Any, times: int, clock: Any = time.perf_counter) -> float:
        best = np.inf
        for _ in range(times):
            ranks.comm.Barrier()
            began = clock()
            work()
            best = min(best, float(ranks.maximum([clock() - began])[0]))
        return best

    slowest(engine.run_round, WARM_UP)
    round_seconds = slowest(engine.run_round, ROUNDS)
    published, everyone = np.array(engine.state.server_models), np.ones(engine.layout.pairs, dtype=bool)
    exchange = slowest(lambda: engine.halo.exchange(published, engine.network, everyone), EXCHANGES)
    engine.halo.exchange = lambda published, network, contributing: None
    work = slowest(engine.run_round, ROUNDS, time.process_time)
    rows = int(ranks.sum([len(engine.halo.borrowed)])[0])
    return {
        **settings,
        "ranks": ranks.size,
        "round": round_seconds,
        "exchange": exchange,
        "work": work,
        "rows_exchanged": rows,
        "bytes_exchanged": rows * (DIMENSION + 1) * 4,
        "edges": len(layout.graph.edges),
        "edges_between_ranks": edges_between(layout.graph, owner),
        "partition": split,
    }


def launch(ranks: int, **settings: Any) -> dict[str, Any]:
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [mpiexec if mpiexec.exists() else "mpiexec", "-n", ranks, sys.executable, __file__]
    done = subprocess.run(
        [*map(str, command), "--worker", json.dumps(settings)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=1800,
    )
    return json.loads(done.stdout)


def take_turns(scaling: str, kernels: str, clients: int, counts: Sequence[int], turns: int) -> list[list[dict]]:
    """Figures of each number of ranks, turn by turn."""
    clients = TINY if scaling == "tiny" else clients
    settings = {"scaling": scaling, "kernels": kernels}
    sizes = [clients * (n if scaling == "weak" else 1) for n in counts]
    return [[launch(n, clients=size, **settings) for n, size in zip(counts, sizes, strict=True)] for _ in range(turns)]


def efficiency(alone: dict[str, Any], many: dict[str, Any], by: str = "round") -> float:
    """One rank's time over that of many, and over their number where they share the same clients."""
    return alone[by] / many[by] / (1 if many["scaling"] == "weak" else many["ranks"])


def scaling(clients: int = 50_000, turns: int = 5) -> Iterator[harness.Row]:
    """Weak and strong scaling on two ranks, and what an exchange between them costs."""
    exchanges = []
    for name, told in (("weak", "as many clients again on a second rank"), ("strong", "the same clients on two ranks")):
        found = take_turns(name, "numba", clients, (1, 2), turns)
        one, two = (np.array([turn[i]["round"] for turn in found]) for i in (0, 1))
        exchanges += [turn[1] for turn in found]
        measured = np.percentile([efficiency(*turn) for turn in found], [50, 25, 75])
        yield harness.Row(f"mpi-{name}", f"a round of {clients:,} clients on one rank: efficiency with {told}",
                          "one rank, one thread a rank", "—", *measured, harness.seconds(float(np.median(two))),
                          harness.seconds(float(np.median(one))), clock="wall")  # fmt: skip
    micros = np.percentile([1e6 * turn["exchange"] for turn in exchanges], [50, 25, 75])
    rows = "–".join(f"{rows:,}" for rows in sorted({turn["rows_exchanged"] for turn in exchanges}))
    yield harness.Row("mpi-exchange", f"an exchange of two ranks, {rows} rows of 61 numbers: µs", "—", "—", *micros,
                      f"{micros[0]:.0f} µs", "—", clock="wall")  # fmt: skip


def table(rows: list[dict[str, Any]], cores: int) -> str:
    lines = [
        f"Python {platform.python_version()}, NumPy {np.__version__}, {cores} cores; ridge, d = {DIMENSION}, "
        f"{CLIENTS_A_SERVER} clients a server, D_k 2–9, float32, all take part, random graph of degree 3.",
        "",
        "| scaling | kernels | ranks | clients | round | work | a client | efficiency | by work | exchange | rows |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        lines.append(
            f"| {row['scaling']} | {row['kernels']} | {row['ranks']} | {row['clients']:,} "
            f"| {row['round'] * 1e3:.1f} ms | {row['work'] * 1e3:.1f} ms "
            f"| {row['work'] * row['ranks'] / row['clients'] * 1e9:.0f} ns "
            f"| {row['efficiency']:.0%} | {row['efficiency_by_work']:.0%} "
            f"| {row['exchange'] * 1e6:.0f} µs | {row['rows_exchanged']:,} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--clients", type=int, default=50_000, help="clients of a rank (weak) or of all (strong)")
    parser.add_argument("--repeat", type=int, default=3, help="how often one and many ranks take turns")
    parser.add_argument("--kernels", nargs="+", default=["numpy", "numba"], help="numpy, numba")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        figures = measure(json.loads(options.worker))
        from mpi4py import MPI

        if MPI.COMM_WORLD.rank == 0:
            print(json.dumps(figures))
        return
    cores = harness.machine()["cores"]
    counts = sorted({1, 2, *(n for n in (4, 8, 16, 32, 64) if n <= cores)})
    rows = []
    for kernels in options.kernels:
        for scaling in SCALINGS:
            turns = take_turns(scaling, kernels, options.clients, counts, options.repeat)
            best = [dict(column[0]) for column in zip(*turns, strict=True)]
            for row, column in zip(best, zip(*turns, strict=True), strict=True):
                row |= {name: min(other[name] for other in column) for name in ("round", "work", "exchange")}
                row["efficiency"] = efficiency(best[0], row)
                row["efficiency_by_work"] = efficiency(best[0], row, "work")
            rows += best
    print(json.dumps(rows, indent=2) if options.json else table(rows, cores))


if __name__ == "__main__":
    main()
