"""Files that are whole or absent: written beside their place, synchronised, then renamed into it."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from pgfl.errors import ResultError

TEMPORARY = ".part"


def write_atomically(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Put what `write` writes at `path`; a kill or a full disk at any moment leaves the old file as it was."""
    target = Path(path)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}{TEMPORARY}")
    try:
        with open(draft, "xb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, target)
        synchronise(target.parent)
    except OSError as error:
        raise ResultError(_why_not_written(target, error)) from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Put UTF-8 text at `path`, whole or not at all."""
    write_atomically(path, lambda stream: stream.write(text.encode("utf-8")))


def make_folder(path: str | os.PathLike[str]) -> Path:
    """The folder, made with its parents where it is missing."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ResultError(f"{folder} is a file; choose a folder for the result.") from None
    except OSError as error:
        raise ResultError(_why_not_written(folder, error)) from error
    return folder


def remove_drafts(folder: Path) -> None:
    """Remove what a kill in the middle of a write left behind."""
    for draft in folder.glob(f".*{TEMPORARY}"):
        draft.unlink(missing_ok=True)


def synchronise(folder: Path) -> None:
    """Make the rename itself durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _why_not_written(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"The disk is full, so {path} was not written and what was there before is kept; free some space."
    return f"{path} cannot be written: {error.strerror or error}; choose another folder with --out."
