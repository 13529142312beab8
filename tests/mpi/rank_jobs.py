"""Starting MPI jobs from tests, and ending a rank of one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.command_line import finish, start

HERE = Path(__file__).parent
MPIEXEC = Path(sys.executable).with_name("mpiexec")
MARK = "PGFL_TEST_JOB"
YIELDING = {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1", "MPIR_CVAR_POLLS_BEFORE_YIELD": "10"}
"""Ranks that wait leave the processor to others: there are more ranks than cores, and other tests beside them."""


def launch(ranks: int, *command: object, **more: str) -> subprocess.CompletedProcess:
    """`mpiexec -n ranks command …`, to its end."""
    return finish(start(MPIEXEC, "-n", ranks, *command, **YIELDING, **more))


def sentences(done: subprocess.CompletedProcess) -> list[str]:
    """What pgfl said on stderr, without what the launcher says and how far a slow run has come."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("pgfl: ")]
    return [line for line in lines if not re.match(r"pgfl: [^,]+, [\d:]+ left", line)]


def kill_rank(rank: int, mark: str) -> None:
    """kill -9 the process of one rank of the job that was started with this mark in its environment."""
    wanted = {f"{MARK}={mark}".encode(), f"PMI_RANK={rank}".encode()}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and wanted <= set((entry / "environ").read_bytes().split(b"\0")):
                os.kill(int(entry.name), signal.SIGKILL)
                return
        except OSError:
            continue
    raise ProcessLookupError(rank)
