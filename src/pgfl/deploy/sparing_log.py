"""Log lines that a stranger or a broken client can cause as often as it likes, written at most once a minute."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field

AGAIN_SECONDS = 60.0
_REMEMBERED = 1000  # subjects


@dataclass
class SparingLog:
    """Logs the first line about a subject at once and the next a minute later, with the number of those left out."""

    log: logging.Logger
    _last: dict[str, float] = field(default_factory=dict)
    _left_out: dict[str, int] = field(default_factory=dict)

    def warning(self, about: str, text: str, level: int = logging.WARNING) -> None:
        """Log a line about this subject, or count it."""
        now = time.monotonic()
        if about in self._last and now - self._last[about] < AGAIN_SECONDS:
            self._left_out[about] = self._left_out.get(about, 0) + 1
            return
        if len(self._last) >= _REMEMBERED:
            self._last.clear()
            self._left_out.clear()
        self._last[about] = now
        more = self._left_out.pop(about, 0)
        self.log.log(level, "%s%s", text, f" (and {more} more like this in the last minute)" if more else "")

    def info(self, about: str, text: str) -> None:
        """The same at the level of information."""
        self.warning(about, text, logging.INFO)
