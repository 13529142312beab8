"""The last invitation that a client used, kept so that a restart can reconnect without a new one."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from pgfl.deploy.invitations import Invitation


@dataclass(frozen=True)
class Session:
    """A small file that only its owner can read."""

    path: Path

    def save(self, invitation: Invitation) -> None:
        """Keep this invitation in place of any other."""
        self.path.unlink(missing_ok=True)
        with os.fdopen(os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            json.dump({"address": invitation.address, "token": invitation.token}, file)

    def load(self) -> Invitation | None:
        """The invitation that is kept; None if there is none or it cannot be read."""
        try:
            stored = json.loads(self.path.read_text())
            return Invitation(str(stored["address"]), str(stored["token"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def forget(self) -> None:
        """Keep none."""
        self.path.unlink(missing_ok=True)
