"""Signals that end a process."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_like_ctrl_c() -> Iterator[None]:
    """Inside, SIGTERM and a closed terminal end this process as Ctrl-C does, so that it can clean up."""
    term, hang_up = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if hang_up is signal.SIG_DFL:  # nohup ignores it
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, term)
        signal.signal(signal.SIGHUP, hang_up)
