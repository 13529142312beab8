"""Starting MPI jobs from tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MPIEXEC = Path(sys.executable).with_name("mpiexec")
PGFL = [sys.executable, "-c", "import sys; from pgfl.cli import main; sys.argv[0] = 'pgfl'; main()"]
SECONDS = 120


def environment(**more: str) -> dict[str, str]:
    paths = [str(HERE), str(HERE.parents[1] / "src")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"} | more


def start(*command: object, cwd: Path | None = None, **more: str) -> subprocess.Popen:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([str(part) for part in command], cwd=cwd, env=environment(**more), **pipes)


def finish(process: subprocess.Popen) -> subprocess.CompletedProcess:
    try:
        out, err = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.fixture
def launch():
    """Run `mpiexec -n ranks command …` to its end."""
    return lambda ranks, *command, **more: finish(start(MPIEXEC, "-n", ranks, *command, **more))
