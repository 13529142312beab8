"""Signals that terminate a process."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def sigterm_as_keyboard_interrupt() -> Iterator[None]:
    """Inside, turn SIGTERM and SIGHUP (a closed terminal) into KeyboardInterrupt, so that clean-up runs."""
    term, hang_up = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if hang_up is signal.SIG_DFL:  # nohup ignores it
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, term)
        signal.signal(signal.SIGHUP, hang_up)
