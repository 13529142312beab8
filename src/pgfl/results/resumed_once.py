"""The rounds of a run with float-safe noise are released once: not again from an older checkpoint, nor from a copy.

Whenever a run goes on from a checkpoint, this is noted with the user under the run's own random id, before anything is
released: the round, and the folder. A run that stops at a checkpoint notes the round alone, and goes on wherever it is
resumed first. The note outlives the folder, and only grows. So a checkpoint from which a run went on is used again in
the same folder alone, where a kill may have lost the rounds after it, and an older one nowhere. While a run goes on, no
other process goes on with it, in its own folder neither.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pgfl.errors import PrivacyError, ResultError
from pgfl.results.user_state import user_folder


@contextmanager
def one_process(run_id: str, folder: Path) -> Iterator[None]:
    """Within, this process alone goes on with a run; the kernel ends that with the process, however it ends."""
    path = user_folder("resumed") / f"{run_id}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise _not_written(path, error) from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PrivacyError(
                f"The run in {folder} goes on in another process, and two would release its rounds twice; wait for it "
                "or stop it."
            ) from None
        yield
    finally:
        os.close(lock)


def is_kept(run_id: str) -> bool:
    """Whether anything that a run released was kept: its checkpoints are noted, and so is its end."""
    return (user_folder("resumed") / run_id).exists()


def note_checkpoint(run_id: str, round: int, folder: Path, *, stops: bool = False) -> None:
    """Note that a run goes on from its checkpoint of `round` in `folder`, or stops there; once it did, nowhere else."""
    path = user_folder("resumed") / run_id
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a+", encoding="utf-8") as note:
            fcntl.flock(note, fcntl.LOCK_EX)  # held until the note is closed
            note.seek(0)
            last, place = _last(note.read())
            if round < last or (round == last and place not in ("", str(folder))):
                raise PrivacyError(
                    f"The run in {folder} was already resumed {f'in {place}' if place else 'and stopped'} at round "
                    f"{last}; from round {round} here it would forget what was released since; go on there."
                )
            note.write(f"{round} {'' if stops else folder}\n")
            note.flush()
            os.fsync(note.fileno())
    except OSError as error:
        raise _not_written(path, error) from None


def _not_written(path: Path, error: OSError) -> ResultError:
    return ResultError(
        f"{path} cannot be written ({error.strerror or error}), and without it a copy of this run could be resumed "
        "beside it; make it writable, or set XDG_STATE_HOME to a folder that is."
    )


def _last(text: str) -> tuple[int, str]:
    """Round and folder of the last whole line; one that a kill cut short was not followed by a release."""
    lines = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
    round, _, folder = (lines[-1] if lines else "-1 \n").rstrip("\n").partition(" ")
    return int(round), folder
