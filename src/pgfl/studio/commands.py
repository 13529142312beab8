"""The program's own commands, started by the page: what it does, anyone can do at a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

COMMAND = "from pgfl.cli import main; main()"
STOPPED = 130


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """What was wrong, as the command said it."""
        lines = [line.removeprefix("pgfl: ") for line in self.err.strip().splitlines() if line.strip()]
        return lines[-1] if lines else f"The command ended with code {self.code}."


class Command:
    """A `pgfl` command that is going on; it can be stopped as Ctrl-C does."""

    def __init__(self, arguments: Sequence[str], folder: Path) -> None:
        self.arguments, self._folder = list(arguments), folder
        self._process: asyncio.subprocess.Process | None = None

    @property
    def running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self._process is not None and self._process.returncode is None

    async def finished(self) -> Ended:
        """Start it, and wait until it has ended."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-c", COMMAND, *self.arguments, cwd=self._folder,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            out, err = await self._process.communicate()
        finally:
            self.kill()
        return Ended(self._process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace"))

    def stop(self) -> None:
        """Interrupt it; a run keeps a checkpoint to go on from."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """End it at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
