"""A run with float-safe noise is continued once: a second continuation would not know what the first one spends.

Where it goes on is noted twice: in its folder, and with the user, under the digest of its state. The second note
outlives the folder, so that a copy of it, or one put back from a backup, is recognised.
"""

from __future__ import annotations

from pathlib import Path

from pgfl.errors import PrivacyError, ResultError
from pgfl.results.training_state import STATE
from pgfl.results.user_state import path_for

NOTE = "continued.txt"
IN_MEMORY = "another training in Python"


def claim(folder: Path, owner: str) -> None:
    """Note that the run in `folder` goes on in `owner`; a second continuation of the same accounts is refused."""
    for note in (folder / NOTE, path_for("continued", folder / STATE)):
        try:
            note.parent.mkdir(parents=True, exist_ok=True)
            with open(note, "x", encoding="utf-8") as stream:
                stream.write(f"{owner}\n")
        except FileExistsError:
            first = note.read_text("utf-8").strip()
            if first != owner:
                raise already_continued(str(folder), first) from None
        except OSError as error:
            raise ResultError(
                f"{note} cannot be written ({error.strerror or error}), and without it a second continuation would "
                "forget what this one spends; make it writable, or set XDG_STATE_HOME to a folder that is."
            ) from None


def already_continued(what: str, first: str) -> PrivacyError:
    """The error for a second continuation."""
    return PrivacyError(
        f"{what} was already continued in {first}, and what is spent there would be forgotten here; go on from there."
    )
