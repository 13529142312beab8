"""Starting MPI jobs from tests, and ending a rank of one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
MPIEXEC = Path(sys.executable).with_name("mpiexec")
PGFL = (sys.executable, "-c", "import sys; from pgfl.cli import main; sys.argv[0] = 'pgfl'; main()")
SECONDS = 400
MARK = "PGFL_TEST_JOB"


def start(*command: object, **more: str) -> subprocess.Popen:
    paths = os.pathsep.join([str(HERE.parents[1]), str(HERE.parents[1] / "src")])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"} | more
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([str(part) for part in command], env=environment, **pipes)


def finish(process: subprocess.Popen) -> subprocess.CompletedProcess:
    try:
        out, err = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def launch(ranks: int, *command: object, **more: str) -> subprocess.CompletedProcess:
    """`mpiexec -n ranks command …`, to its end."""
    return finish(start(MPIEXEC, "-n", ranks, *command, **more))


def sentences(done: subprocess.CompletedProcess) -> list[str]:
    """What pgfl said on stderr, without what the launcher says."""
    return [line for line in done.stderr.splitlines() if line.startswith("pgfl: ")]


def wait_for(happened, seconds: float = SECONDS):
    """The first true answer of `happened`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answer := happened():
            return answer
        time.sleep(0.02)
    raise TimeoutError


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
