"""A run with float-safe noise is continued once: a second continuation would not know what the first one spends.

Where it goes on is noted twice: in its folder, and with the user, under the digest of its state. The second note
outlives the folder, so that a copy of it, or one put back from a backup, is recognised. A continuation that ended
before anything was kept may begin again where it was.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from pgfl.errors import PrivacyError, ResultError
from pgfl.results.resumed_once import is_kept, one_process
from pgfl.results.training_state import STATE
from pgfl.results.user_state import path_for

NOTE = "continued.txt"
IN_MEMORY = "another training in Python"


@dataclass(frozen=True)
class Owner:
    """Where a run goes on, under which id, and whether it does so from a checkpoint of its own."""

    place: str
    run_id: str = ""
    resumed: bool = False

    def may_follow(self, first: Owner) -> bool:
        """Whether this is the same continuation, or the first one has left nothing."""
        if self.place != first.place:
            return False
        if self.resumed or not self.run_id:
            return self.run_id == first.run_id or not first.run_id
        if not first.run_id:  # noted by an older version
            return False
        with one_process(first.run_id, Path(first.place)):
            return not is_kept(first.run_id)


def claim(folder: Path, owner: Owner) -> None:
    """Note that the run in `folder` goes on with `owner`; a second continuation of the same accounts is refused."""
    for note in (folder / NOTE, path_for("continued", folder / STATE)):
        try:
            note.parent.mkdir(parents=True, exist_ok=True)
            with open(note, "a+", encoding="utf-8") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX)  # held until the note is closed
                stream.seek(0)
                place, _, run_id = stream.read().rstrip("\n").partition("\n")
                if place and not owner.may_follow(Owner(place, run_id)):
                    raise already_continued(str(folder), place)
                stream.truncate(0)
                stream.write(f"{owner.place}\n{owner.run_id}\n" if owner.run_id else f"{owner.place}\n")
                stream.flush()
                os.fsync(stream.fileno())
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
