"""The life of a site's process: its tasks, and why it ends. A site is alive or it has ended: never half alive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from pgfl.errors import NetworkError, SiteCrashed

log = logging.getLogger(__name__)


class SiteLife:
    """From `begin`, within a running loop, until `over` has a reason or an error."""

    def __init__(self, current_round: Callable[[], int]) -> None:
        self._current_round = current_round
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self) -> None:
        """Begin to live in the loop that runs."""
        self.loop = asyncio.get_running_loop()
        self.over: asyncio.Future[str] = self.loop.create_future()

    def stop(self, reason: str) -> None:
        """End soon; what is saved stays saved, and the next start goes on from there."""
        if not self.over.done():
            self.over.set_result(reason)

    def fail(self, error: BaseException) -> None:
        """End with an error, and with a code that makes a service manager start the site again."""
        if self.over.done():
            return
        if isinstance(error, NetworkError):
            why = str(error)
        else:
            log.error("round %d failed", self._current_round(), exc_info=error)
            why = f"Round {self._current_round()} failed ({type(error).__name__}: {error}); please report it."
        failure = SiteCrashed(f"{why} Started again, the site goes on from its last completed round.")
        failure.__cause__ = error
        self.over.set_exception(failure)

    def keep(self, task: asyncio.Task[None]) -> None:
        """Keep a task that the site cannot do without: if it fails, so does the site."""
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)

    async def end_tasks(self) -> None:
        """Cancel all tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
