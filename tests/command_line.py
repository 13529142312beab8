"""The command line as tests run it: inside the test's process, or in a process of its own."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pgfl import cli

ROOT = Path(__file__).parents[1]
PGFL = (sys.executable, "-c", "import sys; from pgfl.cli import main; sys.argv[0] = 'pgfl'; main()")
SECONDS = 400  # more than any command of a test needs on a machine under load


class Ran(NamedTuple):
    """What a command line left behind."""

    code: int
    out: str
    err: str


def run(*arguments: object) -> Ran:
    """Run `pgfl` with these arguments inside this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.execute([str(argument) for argument in arguments])
    return Ran(code, out.getvalue(), err.getvalue())


def refused(*arguments: object, code: int = 2) -> str:
    """The one sentence on stderr with which a command line fails; nothing is on stdout."""
    ran = run(*arguments)
    assert (ran.code, ran.out) == (code, ""), ran
    return one_sentence(ran.err)


def one_sentence(err: str) -> str:
    """The only line of stderr, which is a whole sentence."""
    (line,) = err.strip().splitlines()
    assert line.startswith("pgfl: ")
    assert line.endswith((".", "?"))
    return line


def process(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `pgfl` with these arguments in a process of its own, to its end."""
    return finish(start(*PGFL, *arguments))


def start(*command: object, **environment: str) -> subprocess.Popen[str]:
    """Start any program with this source tree on its path; the caller finishes or kills it."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    variables = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"} | environment
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([str(part) for part in command], env=variables, **pipes)


def finish(started: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """What a started program printed and its exit code; it is killed if it does not end in time."""
    try:
        out, err = started.communicate(timeout=SECONDS)
    finally:
        started.kill()
    return subprocess.CompletedProcess(started.args, started.returncode, out, err)


def wait_for(happened: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """The first true answer of `happened`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answer := happened():
            return answer
        time.sleep(0.005)
    raise TimeoutError
