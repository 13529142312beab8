"""Many clients at one site: two hundred real ones, as processes of their own."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from harness import Row, quartiles, seconds
from network_rounds import SITE, cached_bytecode, one_site, proportional_megabytes, tree

CROWD, WARM_UP, ROUNDS = 200, 3, 13


def crowd() -> Iterator[Row]:
    """From the first process to some rounds in which everybody answers; what they take of the memory then."""
    with cached_bytecode(), tempfile.TemporaryDirectory() as folder:
        network = one_site(Path(folder), CROWD, "private")
        began = time.time()
        try:
            network.start(SITE)
            for client in network.federation.client_ids:
                network.start(client)
                time.sleep(0.2)  # so that they do not all import at once
            network.wait(lambda: network.round_of(SITE) >= ROUNDS, 400, f"round {ROUNDS}")
            clients = [network.running[client].pid for client in network.federation.client_ids]
            each = np.array([sum(map(proportional_megabytes, tree(pid))) for pid in clients])
            history = network.history(SITE)
        finally:
            network.stop()
    everyone = [row for row in history if len(row["accepted"]) == CROWD and row["round"] > WARM_UP]
    own = np.array([row["seconds"] for row in everyone])
    first = next(row["finished"] for row in history if row["round"] == 1) - began
    yield Row(
        f"crowd-{CROWD}", f"a private round with {CROWD} real clients at one site: seconds", "—", "—",
        *quartiles(own), f"{seconds(float(np.median(own)))}, {len(everyone)} rounds with all", "—", clock="wall",
    )  # fmt: skip
    yield Row(
        f"crowd-{CROWD}-start", f"from start to first round with {CROWD} real clients, five started a second: seconds",
        "—", "—", *[first] * 3, seconds(first), "—", clock="wall",
    )  # fmt: skip
    yield Row(
        f"crowd-{CROWD}-memory", f"memory of each of {CROWD} real clients: MB", "—", "≤ 100 MB",
        *quartiles(each), f"{np.median(each):.0f} MB, {each.sum() / 1024:.1f} GiB all", "—",
    )  # fmt: skip
