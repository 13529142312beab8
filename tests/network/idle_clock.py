"""An event loop whose clock stands while anything happens, and jumps to the next timer when nothing does.

A process that is stopped for seconds, or gets little of the processor, does not change what a test sees: timers only
fire when the sockets of this process have nothing to read and nothing is being computed in another thread.
"""

from __future__ import annotations

import asyncio
import selectors
import threading

TURN = 1e-6  # seconds for every turn of the loop: a timer that is due too early by rounding would be set for ever
GRACE = 0.01  # seconds of real time in which nothing happens, before the clock jumps: bytes on loopback take far less


class IdleClockLoop(asyncio.SelectorEventLoop):
    """Both ends of every connection must be in this loop."""

    def __init__(self):
        self.now, self._computing = 0.0, 0
        super().__init__(_IdleSelector(self))

    def time(self):
        """Seconds that have passed on the clock of this loop."""
        return self.now

    def run_in_executor(self, executor, function, *arguments):
        """As usual; the clock stands until the function returns, except in `let_pass`."""
        future = super().run_in_executor(executor, function, *arguments)
        self._computing += 1
        future.add_done_callback(self._computed)
        return future

    def _computed(self, _=None):
        self._computing -= 1

    def let_pass(self, seconds):
        """Wait for so many seconds of this clock, in a function that `run_in_executor` runs."""
        over = threading.Event()

        def begin():
            self._computing -= 1
            self.call_later(seconds, end)

        def end():
            self._computing += 1
            over.set()

        self.call_soon_threadsafe(begin)
        over.wait()


class _IdleSelector(selectors.DefaultSelector):
    def __init__(self, loop):
        super().__init__()
        self._loop = loop

    def select(self, timeout=None):
        self._loop.now += TURN
        if timeout is None or timeout <= 0.0:
            return super().select(timeout)
        if self._loop._computing:
            return super().select(None)  # the end of a computation wakes the loop
        found = super().select(GRACE)
        if not found:
            self._loop.now += timeout
        return found


def run(scenario):
    """As `asyncio.run`, with this clock."""
    with asyncio.Runner(loop_factory=IdleClockLoop) as runner:
        return runner.run(scenario)
