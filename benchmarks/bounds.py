"""How near a round is to what bounds it: the same arithmetic fused by hand, and reading its rows once.

Rows without a goal: a ratio of 4 means a quarter of the bound. `docs/performance.md` says which bound counts where.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from fused_loop import FusedLoop
from harness import Row, seconds, take_turns
from rounds import LAM, RHO, TAU, engine, federation

GOALS = {"bound-1-numba-arithmetic": "≤ 1.2×"}
CASES = {1: "the paper's round", 20: "20 Monte Carlo runs batched"}


def bounds() -> Iterator[Row]:
    import numba

    numba.set_num_threads(1)
    for runs, told in CASES.items():
        data = [federation(run) for run in range(runs)]
        rows = np.concatenate([one.features for one in data]).reshape(-1)
        for library in ("numpy", "numba"):
            run_round = engine(data, library=library).run_round
            about = f"{told}, {library} engine, one thread", f"bound-{runs}-{library}"
            yield _beside(
                *about, run_round, "its arithmetic alone, fused by hand", FusedLoop(data, RHO, TAU, LAM).run_round
            )
            yield _beside(*about, run_round, "reading its rows once", lambda rows=rows: np.dot(rows, rows))


def _beside(told: str, name: str, ours: Callable[[], object], what: str, limit: Callable[[], object]) -> Row:
    row = f"{name}-{what.split()[1]}"
    for _ in range(20):
        ours(), limit()
    turns = take_turns(ours, limit, 15, (20, 20), time.process_time)
    return Row(row, told, what, GOALS.get(row, "—"), *turns.slower(), seconds(np.median(turns.ours)),
               seconds(np.median(turns.theirs)), clock="CPU")  # fmt: skip
