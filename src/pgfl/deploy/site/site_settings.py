"""`site.toml`, validated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from pgfl.config.schema import NotNegative, Positive, Section
from pgfl.deploy.agreed_training import Name, Training
from pgfl.deploy.settings_files import load_settings
from pgfl.deploy.site.site_rounds import Quorum, Timing

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

    answers: Positive = Timing.answers
    exchange: Positive = Timing.exchange
    start: NotNegative = Timing.start
    give_up: Positive | None = Timing.give_up
    staleness: Annotated[int, Field(ge=0, le=1000)] = Timing.staleness
    linger: NotNegative = Timing.linger
    pace: NotNegative = Timing.pace


class QuorumSettings(Section):
    """Who must be there for a round to open."""

    clients: Annotated[float, Field(ge=0.0, le=1.0)] = Quorum.clients
    neighbours: Annotated[int, Field(ge=0, le=1000)] = Quorum.neighbours
    apart: Annotated[int, Field(ge=0, le=10**9)] = Quorum.apart


class SiteSettings(Section):
    """`site.toml`."""

    name: Name
    home: str = "."
    listen: Listening = Field(default_factory=Listening)
    timing: TimingSettings = Field(default_factory=TimingSettings)
    quorum: QuorumSettings = Field(default_factory=QuorumSettings)
    training: Training


def load_site(path: Path) -> SiteSettings:
    """A site's settings; `home` is taken from the file's folder."""
    settings = load_settings(path, SiteSettings)
    return settings.model_copy(update={"home": str(path.resolve().parent / settings.home)})
