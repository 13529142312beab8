"""`live.json`: what a running site writes about itself for `pgfl site status` and the demo; losing it loses nothing."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pgfl.deploy.shared_budget import SharedBudget

LIVE = "live.json"


class LiveFigures(BaseModel):
    """A running site, as of a moment; of one that has just started nothing is known."""

    model_config = ConfigDict(ser_json_inf_nan="constants")
    pid: int = 0
    site: str = ""
    round: int = 0
    rounds: int = 0
    phase: str = ""
    connected: list[str] = Field(default_factory=list)
    waiting_for: list[str] = Field(default_factory=list)
    up: list[str] = Field(default_factory=list)
    missing: str | None = None
    disagreement: float = 0.0
    refused: dict[str, int] = Field(default_factory=dict)
    budgets: dict[str, SharedBudget] = Field(default_factory=dict)

    def write(self, home: Path) -> None:
        """Replace the file in a site's folder; a full disk is no reason to stop for."""
        partial = home / f"{LIVE}.part"
        with suppress(OSError):
            partial.write_text(self.model_dump_json())
            partial.replace(home / LIVE)

    @classmethod
    def read(cls, home: Path) -> LiveFigures:
        """What was written last; what cannot be read counts as nothing."""
        try:
            return cls.model_validate_json((home / LIVE).read_bytes())
        except (OSError, ValidationError):
            return cls()
