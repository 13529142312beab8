"""The table `[log]` of `site.toml` and `client.toml`, and the logging that it describes."""

from __future__ import annotations

import datetime
import json
import logging
import os
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from pgfl.config.schema import Positive, Section

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
