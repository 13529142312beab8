"""Logging of sites and clients: settings, and a rate limit on lines that strangers can cause."""

from __future__ import annotations

import datetime
import json
import logging
import os
import time
from dataclasses import dataclass, field
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from pgfl.config.section import Positive, Section

INTERVAL_SECONDS = 60.0
_MOST_SUBJECTS = 1000


@dataclass
class RateLimitedLogger:
    """Log a subject at most once a minute, with the number of lines that were suppressed."""

    log: logging.Logger
    _last: dict[str, float] = field(default_factory=dict)
    _suppressed: dict[str, int] = field(default_factory=dict)

    def warning(self, about: str, text: str, level: int = logging.WARNING) -> None:
        """Log a line about this subject, or count it as suppressed."""
        now = time.monotonic()
        if about in self._last and now - self._last[about] < INTERVAL_SECONDS:
            self._suppressed[about] = self._suppressed.get(about, 0) + 1
            return
        if len(self._last) >= _MOST_SUBJECTS:
            self._last.clear()
            self._suppressed.clear()
        self._last[about] = now
        more = self._suppressed.pop(about, 0)
        self.log.log(level, "%s%s", text, f" (and {more} more like this in the last minute)" if more else "")

    def info(self, about: str, text: str) -> None:
        """Log like `warning`, at level INFO."""
        self.warning(about, text, logging.INFO)


_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_MEGABYTE = 1 << 20


class LogSettings(Section):
    """What is logged, how, and where; without a file on standard error, for a service manager to keep."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"
    file: str | None = None
    megabytes: Positive = 10.0  # then the file is rotated
    keep: Annotated[int, Field(ge=1, le=1000)] = 5  # rotated files


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, logger, message and, if there is one, the exception."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line."""
        when = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line = {
            "time": when.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def start_logging(settings: LogSettings, home: Path) -> None:
    """Log as the settings say: of pgfl from their level on; of everything else warnings only, whatever level it has."""
    handler: logging.Handler = logging.StreamHandler()
    if settings.file is not None:
        handler = _PrivateRotatingFile(
            home / settings.file, maxBytes=int(settings.megabytes * _MEGABYTE), backupCount=settings.keep
        )
    handler.setFormatter(JsonLines() if settings.format == "json" else logging.Formatter(_TEXT))
    handler.addFilter(lambda record: record.name.startswith("pgfl") or record.levelno >= logging.WARNING)
    logging.basicConfig(level=settings.level.upper(), handlers=[handler], force=True)


class _PrivateRotatingFile(RotatingFileHandler):
    """Rotated by size; only its owner can read it."""

    def _open(self):  # type: ignore[no-untyped-def]
        Path(self.baseFilename).parent.mkdir(parents=True, exist_ok=True)
        return open(os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8")
