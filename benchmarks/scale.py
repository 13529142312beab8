"""A million clients: time beside the fused loop and a bare read of the data, memory, and growth from 10³ on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from harness import Row, seconds, take_turns

SERVERS, CLIENTS_PER_SERVER = 10_000, 100
SIZES = (1_000, 10_000, 100_000, 1_000_000)


def data(servers: int):
    from rounds import federation

    return federation(servers=servers, clients_per_server=CLIENTS_PER_SERVER, dtype=np.float32)


def million() -> Iterator[Row]:
    import numba

    from fused_loop import FusedLoop
    from rounds import LAM, RHO, TAU, engine

    cores = len(os.sched_getaffinity(0))
    numba.set_num_threads(cores)
    made = data(SERVERS)
    began = time.perf_counter()
    ours = engine([made], library="numba", dtype=np.float32, threads=cores)
    ours.play()
    start_up = time.perf_counter() - began
    limit = FusedLoop([made], RHO, TAU, LAM)
    limit.play()
    ours.play(), limit.play()
    assert np.abs(limit.model - ours.state.model).max() < 1e-3
    turns = take_turns(ours.play, limit.play, 9)
    yield Row("million", "a round of 1,000,000 clients at 10,000 servers, d = 60, D 2–9, float32, all of it",
              "the round fused by hand with Numba", "≤ 2×", *turns.slower(), seconds(np.median(turns.ours)),
              seconds(np.median(turns.theirs)), f"{start_up:.0f} s to factor", "wall")  # fmt: skip
    flat = made.features.reshape(-1)
    turns = take_turns(ours.play, lambda: np.dot(flat, flat), 9)
    yield Row("million-read", "the same", "reading the data once from memory, one thread", "≤ 20×", *turns.slower(),
              seconds(np.median(turns.ours)), seconds(np.median(turns.theirs)), clock="wall")  # fmt: skip


def growth() -> Iterator[Row]:
    measured = [_apart(size) for size in SIZES]
    clients = np.log([m["clients"] for m in measured])
    for name, key in (("time a round", "seconds"), ("memory beyond the interpreter's", "grown")):
        exponent = float(np.polyfit(clients, np.log([m[key] for m in measured]), 1)[0])
        shown = ", ".join(f"{m[key]:.3g}" for m in measured)
        yield Row(f"growth-{key}", f"growth of {name} from 10³ to 10⁶ clients: fitted exponent", "linear", "≤ 1.05",
                  exponent, exponent, exponent, shown, "—", clock="CPU")  # fmt: skip
    largest = measured[-1]
    ratio = largest["peak"] / largest["data"]
    yield Row("million-memory", "memory of a whole `train` of 1,000,000 clients", "its data, float32", "≤ 2×", ratio,
              ratio, ratio, f"{largest['peak'] / 2**30:.2f} GiB", f"{largest['data'] / 2**30:.2f} GiB")  # fmt: skip


def _apart(clients: int) -> dict[str, float]:
    """One size in a process of its own, so that memory is its own."""
    here = Path(__file__)
    code = f"import sys; sys.path.insert(0, {str(here.parent)!r}); import scale; scale.measure({clients})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def memory(name: str) -> int:
    """Bytes that the kernel keeps of this process's memory under a name."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def measure(clients: int) -> None:
    """Train `clients` clients as a user would, and print time a round and peak memory."""
    from pgfl import PGFL, Ridge, train

    train(data(1), rounds=1, engine="numba", dtype=np.float32)
    before = memory("VmRSS")
    made = data(clients // CLIENTS_PER_SERVER)
    stamps: list[float] = []
    rounds = 12 if clients > 100_000 else 40
    from pgfl.simulate.engine import Engine

    played = Engine.play

    def timed(self):
        began = time.process_time()
        state = played(self)
        stamps.append(time.process_time() - began)
        return state

    Engine.play = timed
    train(made, PGFL(5.0, 0.4), Ridge(0.01), rounds=rounds, record_every=rounds, metrics=("nmsd", "residuals"),
          engine="numba", dtype=np.float32)  # fmt: skip
    peak = memory("VmHWM")
    print(json.dumps({"clients": clients, "seconds": min(stamps), "peak": peak, "grown": peak - before,
                      "data": made.features.nbytes}))  # fmt: skip
