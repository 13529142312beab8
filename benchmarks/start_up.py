"""What it costs to begin: `import pgfl` and `pgfl --help`, beside `import numpy`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np

from harness import Row, quartiles, seconds, take_turns

TRAINING = """
from pgfl import PGFL, Ridge, synthetic_regression, train
data = synthetic_regression(servers=3, clients_per_server=3, dimension=5, samples=(2, 4), graph="ring")
train(data, PGFL(), Ridge(), rounds=2, engine={engine!r})
"""
HELP = "import sys; sys.argv = ['pgfl', '--help']; from pgfl.cli import main; main()"


def python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def children() -> float:
    """CPU seconds that finished child processes have used."""
    return sum(os.times()[2:4])


def imports() -> Iterator[Row]:
    for name, code in (("import pgfl", "import pgfl"), ("import pgfl and use it", "from pgfl import train, Ridge"),
                       ("pgfl --help", HELP)):  # fmt: skip
        turns = take_turns(lambda code=code: python(code), lambda: python("import numpy"), 9, clock=children)
        yield Row(name, f"`{name}`", "`import numpy`: seconds more", "≤ 0.3 s",
                  *quartiles(turns.ours - turns.theirs),
                  seconds(np.median(turns.ours)), seconds(np.median(turns.theirs)), clock="CPU")  # fmt: skip


def compiled_start() -> Iterator[Row]:
    """A training of two rounds in a fresh process, whose kernels lie in the user's cache."""
    numba, numpy = (TRAINING.format(engine=engine) for engine in ("numba", "numpy"))
    python(numba)
    turns = take_turns(lambda: python(numba), lambda: python(numpy), 9, clock=children)
    yield Row("compiled-start", "start of a training with the numba engine, warm cache", "NumPy's: seconds more",
              "≤ 0.5 s", *quartiles(turns.ours - turns.theirs), seconds(np.median(turns.ours)),
              seconds(np.median(turns.theirs)), clock="CPU")  # fmt: skip
