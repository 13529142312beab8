"""What a site needs to run Flower 1.41 in a process of its own.

Flower carries membership: which nodes are there, with which keys, and the message that invites a node. Its engine,
which would run code that a SuperLink ships, is never started. It leans on flwr's internals, hence the exact pin in
pyproject.toml.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
PATIENCE = 2.0  # seconds that Flower's processes get to end by themselves; their state is in files


def environment(home: Path) -> dict[str, str]:
    """For Flower's processes: its folder is ours; telemetry and update checks are off unless the user set them."""
    return {**{name: os.environ.get(name, off) for name, off in QUIET.items()}, "FLWR_HOME": str(home.resolve())}


def secret_file(path: Path) -> Path:
    """A file with a fresh secret that only its owner can read."""
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(32))
    return path
