"""The runs that were trained on a table before, so that nobody spends on its records twice without knowing.

What two trainings spend on the same records adds up, and neither knows of the other unless one continues it. Notes go
by the place of the table, never by what it holds, and are kept with the user.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from pgfl.results.state import path_for

KIND = "tables"


def note_run(table: Path, folder: Path, *, goes_on: bool) -> str | None:
    """Note that `folder` is trained on a table; return a sentence on earlier runs that it does not go on from."""
    path = path_for(KIND, str(table.resolve()).encode())
    own, earlier = str(folder.resolve()), list[str]()
    with contextlib.suppress(OSError):  # nothing is refused for it, so it may be missing
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(path, "a+", encoding="utf-8") as note:
            note.write(f"{own}\n")  # before it is read: of two runs at once, one at least is told of the other
            note.flush()
            note.seek(0)
            earlier = [line for line in dict.fromkeys(note.read().splitlines()) if line != own]
    if goes_on or not earlier:
        return None
    where = f"in {earlier[-1]}" if len(earlier) == 1 else f"{len(earlier)} times, last in {earlier[-1]}"
    return (
        f"{table} was trained on before, {where}, and what every run spends on its records adds up; continue that run "
        "with --continue to have one account of all."
    )
