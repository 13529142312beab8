"""What is kept with the user, outside of result folders: it outlives them, and is not handed on with them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def user_folder(kind: str) -> Path:
    """The folder of one kind of notes, in the user's own files."""
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "pgfl" / kind


def path_for(kind: str, state: Path) -> Path:
    """The place of what is kept about a result, by the content of its state file, whatever its folder is called."""
    return user_folder(kind) / hashlib.blake2b(state.read_bytes(), digest_size=20).hexdigest()
