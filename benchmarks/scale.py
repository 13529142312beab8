"""A million clients: time beside the fused loop and a bare read of the data, memory, growth from 10³ on; tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from harness import Row, seconds, take_turns

SERVERS, CLIENTS_PER_SERVER = 10_000, 100
SIZES = (1_000, 10_000, 100_000, 1_000_000)


def data(servers: int, **more):
    from rounds import federation

    return federation(servers=servers, clients_per_server=CLIENTS_PER_SERVER, dtype=np.float32, **more)


def million() -> Iterator[Row]:
    import numba

    from fused_loop import FusedLoop
    from rounds import LAM, RHO, TAU, engine

    cores = len(os.sched_getaffinity(0))
    numba.set_num_threads(cores)
    made = data(SERVERS)
    began = time.perf_counter()
    ours = engine([made], library="numba", dtype=np.float32, threads=cores)
    ours.run_round()
    start_up = time.perf_counter() - began
    limit = FusedLoop([made], RHO, TAU, LAM)
    limit.run_round()
    ours.run_round(), limit.run_round()
    assert np.abs(limit.model - ours.state.model).max() < 1e-3
    turns = take_turns(ours.run_round, limit.run_round, 9)
    yield Row("million", "a round of 1,000,000 clients at 10,000 servers, d = 60, D 2–9, float32, all of it",
              "the round fused by hand with Numba", "≤ 2×", *turns.slower(), seconds(np.median(turns.ours)),
              seconds(np.median(turns.theirs)), f"{start_up:.0f} s to factor", "wall")  # fmt: skip
    flat = made.features.reshape(-1)
    turns = take_turns(ours.run_round, lambda: np.dot(flat, flat), 9)
    yield Row("million-read", "the same", "reading the data once from memory, one thread", "≤ 2.5×", *turns.slower(),
              seconds(np.median(turns.ours)), seconds(np.median(turns.theirs)), clock="wall")  # fmt: skip


def growth() -> Iterator[Row]:
    measured = [apart("train_as_a_user", size) for size in SIZES]
    single = [apart("train_as_a_user", size, 1) for size in SIZES]
    for row, name, key, found, goal in (
        ("growth-seconds", "time a round, as many threads as pay off,", "seconds", measured, "≤ 1.05"),
        ("growth-one-thread", "time a round, one thread at every size,", "seconds", single, "—"),
        ("growth-grown", "memory beyond the interpreter's", "grown", measured, "≤ 1.05"),
    ):
        exponent = float(np.polyfit(np.log(SIZES), np.log([m[key] for m in found]), 1)[0])
        shown = ", ".join(f"{m[key]:.3g}" if key == "grown" else seconds(m[key]) for m in found)
        yield Row(row, f"growth of {name} from 10³ to 10⁶ clients: fitted exponent", "linear", goal, exponent,
                  exponent, exponent, shown, "—", clock="wall" if key == "seconds" else "")  # fmt: skip
    largest = measured[-1]
    yield _memory("million-memory", "memory of a whole `train` of 1,000,000 clients", "≤ 2×", largest["peak"], largest)


def ten_million() -> Iterator[Row]:
    """A federation of 10⁷ clients whose 13 GB of rows are mapped from a file, beside one of 10⁶, mapped as well."""
    found = {}
    for clients in (1_000_000, 10_000_000):
        with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_STORE")) as folder:
            found[clients] = apart("train_mapped", clients, folder, shown=True)
    small, large = found.values()
    ratio = large["seconds"] / small["seconds"]
    held = f"{seconds(large['seconds'])}; {large['held'] / 2**30:.1f} GiB beside {large['data'] / 1e9:.1f} GB of rows"
    yield Row("ten-million", "a round of 10,000,000 clients at 100,000 servers, float32, rows mapped from a file",
              "the round of 1,000,000 clients, mapped as well", "≤ 12×", ratio, ratio, ratio, held,
              seconds(small["seconds"]), f"{large['all']:.0f} s for all of it, 8 rounds", "wall")  # fmt: skip


def parquet(clients: int = 200_000) -> Iterator[Row]:
    import polars as pl

    made = data(clients // CLIENTS_PER_SERVER)
    client = np.repeat(np.arange(made.size), np.diff(made.offsets))
    shuffled = np.random.default_rng(0).permutation(len(client))
    where = {"server": made.client_server, "cluster": made.client_cluster}
    ids = {"client": client[shuffled]} | {name: of[client[shuffled]] for name, of in where.items()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clients.parquet"
        columns = {f"x{i}": made.features[shuffled, i] for i in range(made.dimension)}
        pl.DataFrame(ids | {"y": made.targets[shuffled]} | columns).write_parquet(path)
        found = apart("read_table", str(path))
    told = f"memory of reading {clients:,} clients from a shuffled Parquet file, beyond the interpreter's"
    yield _memory("parquet", told, "≤ 2×", found["grown"], found)


def _memory(name: str, told: str, goal: str, held: float, found: dict[str, float]) -> Row:
    ratio = held / found["data"]
    return Row(name, told, "its data, float32", goal, ratio, ratio, ratio, f"{held / 2**30:.2f} GiB",
               f"{found['data'] / 2**30:.2f} GiB")  # fmt: skip


def apart(function: str, *arguments: object, shown: bool = False) -> dict[str, float]:
    """What a function of this file measures in a process of its own, so that memory is its own."""
    here = Path(__file__)
    given = ", ".join(map(repr, arguments))
    code = f"import sys; sys.path.insert(0, {str(here.parent)!r}); import scale; scale.{function}({given})"
    told = None if shown else subprocess.PIPE
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, stderr=told, text=True)
    return json.loads(done.stdout)


def memory(name: str) -> int:
    """Bytes that the kernel keeps of this process's memory under a name."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def train_as_a_user(clients: int, threads: int | None = None) -> None:
    """Train `clients` clients as a user would, and print the fastest round and the memory."""
    from pgfl import PGFL, Ridge, train

    train(data(1), rounds=1, engine="numba", dtype=np.float32)
    before = memory("VmRSS")
    made = data(clients // CLIENTS_PER_SERVER)
    stamps = timed_rounds()
    rounds = 12 if clients > 100_000 else 40
    train(made, PGFL(5.0, 0.4), Ridge(0.01), rounds=rounds, record_every=rounds, metrics=("nmsd", "residuals"),
          engine="numba", dtype=np.float32, threads=threads)  # fmt: skip
    _print_memory(before, made.features.nbytes, seconds=min(stamps))


def train_mapped(clients: int, folder: str, rounds: int = 8) -> None:
    """Train on rows that are mapped from a file, showing progress; print the median round and the memory."""
    from pgfl import PGFL, Ridge, train

    began, stamps, held = time.perf_counter(), timed_rounds(), [0]

    def shown(done: int, all: int) -> None:
        if done % max(1, all // 10) == 0:
            sys.stderr.write(f"{clients:,} clients: {done:,} of {all:,} servers generated\n")

    def reported(done: int, all: int, measures: object) -> None:
        held.append(memory("RssAnon"))
        sys.stderr.write(f"{clients:,} clients: round {done} of {all}, {time.perf_counter() - began:.0f} s\n")

    made = data(clients // CLIENTS_PER_SERVER, store=Path(folder) / "rows", progress=shown)
    os.sync()  # or the rows would still be on their way to the disk while rounds are measured
    train(made, PGFL(5.0, 0.4), Ridge(0.01), rounds=rounds, record_every=rounds, metrics=("nmsd",), engine="numba",
          dtype=np.float32, progress=reported)  # fmt: skip
    _print_memory(0, made.features.nbytes, seconds=float(np.median(stamps[1:])), held=max(held),
                  all=time.perf_counter() - began)  # fmt: skip


def timed_rounds() -> list[float]:
    """The seconds of every round that is played from now on."""
    from pgfl.simulate.engine import Engine

    stamps: list[float] = []
    played = Engine.run_round

    def timed(self):
        began = time.perf_counter()
        state = played(self)
        stamps.append(time.perf_counter() - began)
        return state

    Engine.run_round = timed
    return stamps


def read_table(path: str) -> None:
    """Read a table, and print the memory that it took."""
    import polars as pl

    from pgfl import Federation

    pl.DataFrame({"x": [1.0]}).lazy().collect()
    before = memory("VmRSS")
    made = Federation.read(path, dtype=np.float32)
    _print_memory(before, made.features.nbytes)


def _print_memory(before: int, data: int, **more: float) -> None:
    peak = memory("VmHWM")
    print(json.dumps({"peak": peak, "grown": peak - before, "data": data, **more}))
