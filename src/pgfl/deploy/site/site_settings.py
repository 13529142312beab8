"""`site.toml`, validated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from pgfl.config.schema import NotNegative, Positive, Section
from pgfl.deploy.agreed_training import Name, Training
from pgfl.deploy.settings_files import load_settings

Port = Annotated[int, Field(ge=1, le=65535)]


class Listening(Section):
    """Where a site listens, and how others reach it."""

    host: str = "127.0.0.1"
    public: str | None = None  # what clients and neighbours call; host if not given
    flower: Port = 9092
    clients: Port = 9093
    peers: Port = 9094


class TimingSettings(Section):
    """How long a site waits, in seconds, and how old a neighbour's publication may be, in rounds."""

    answers: Positive = 30.0
    exchange: Positive = 15.0
    start: NotNegative = 60.0
    give_up: Positive | None = None
    staleness: Annotated[int, Field(ge=0, le=1000)] = 1
    linger: NotNegative = 3600.0


class SiteSettings(Section):
    """`site.toml`."""

    name: Name
    home: str = "."
    listen: Listening = Field(default_factory=Listening)
    timing: TimingSettings = Field(default_factory=TimingSettings)
    training: Training


def load_site(path: Path) -> SiteSettings:
    """A site's settings; `home` is taken from the file's folder."""
    settings = load_settings(path, SiteSettings)
    return settings.model_copy(update={"home": str(path.resolve().parent / settings.home)})
