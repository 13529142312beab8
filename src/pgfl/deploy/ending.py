"""How a process learns that it is to end: by a signal, or because what started it is gone."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from functools import cache

_PIPE = "PGFL_PARENTS_PIPE"
_PATIENCE = 20.0  # seconds; then a process whose parent is gone is ended as an accident would


def when_told_to_end(end: Callable[[], object]) -> None:
    """Call `end` at the first SIGTERM or SIGINT, in a thread of its own.

    A signal interrupts the main thread anywhere, even while it handles the signal before. A handler that waits for a
    lock may therefore wait for itself; `SimpleQueue.put` never waits.
    """
    told: queue.SimpleQueue[None] = queue.SimpleQueue()

    def wait() -> None:
        told.get()
        end()

    threading.Thread(target=wait, name="told to end", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told.put(None))


def when_parent_is_gone(end: Callable[[], object], patience: float = _PATIENCE) -> None:
    """Call `end` when the pgfl process that started this one is gone; nothing else that starts it has a part in this.

    Where `end` has not ended this process when patience is over, it ends at once.
    """
    if (pipe := os.environ.pop(_PIPE, None)) is None:
        return

    def wait() -> None:
        os.read(int(pipe), 1)  # nobody writes: it returns when the other end is closed
        try:
            end()
        finally:
            time.sleep(patience)
            os._exit(1)

    threading.Thread(target=wait, name="parent is gone", daemon=True).start()


def parents_pipe() -> tuple[int, dict[str, str]]:
    """For a child to inherit: the end of a pipe whose other end this process holds open as long as it lives."""
    end, _ = _pipe(os.getpid())
    return end, {_PIPE: str(end)}


@cache
def _pipe(_process: int) -> tuple[int, int]:
    """One for all children of a process; a fork has its own."""
    return os.pipe()
