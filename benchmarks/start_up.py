"""What it costs to begin: `import pgfl` and `pgfl --help`, beside `import numpy`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

from harness import Row, seconds, take_turns

HELP = "import sys; sys.argv = ['pgfl', '--help']; from pgfl.cli import main; main()"


def python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def children() -> float:
    """CPU seconds that finished child processes have used."""
    return sum(os.times()[2:4])


def imports() -> Iterator[Row]:
    for name, code in (("import pgfl", "import pgfl"), ("import pgfl and use it", "from pgfl import train, Ridge"),
                       ("pgfl --help", HELP)):  # fmt: skip
        turns = take_turns(lambda code=code: python(code), lambda: python("import numpy"), 9, clock=children)
        more = sorted(turns.ours - turns.theirs)
        yield Row(name, f"`{name}`", "`import numpy`: seconds more", "≤ 0.3 s", more[4], more[2], more[6],
                  seconds(sorted(turns.ours)[4]), seconds(sorted(turns.theirs)[4]), clock="CPU")  # fmt: skip
