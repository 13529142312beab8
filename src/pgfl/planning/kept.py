"""What was planned once, kept on this machine: a plan is a function of public facts alone, so their digest names it.

A file holds settings and forecasts. Nothing in it depends on a record, and nothing in it is executed when it is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pgfl.errors import ResultError
from pgfl.files import user_cache, write_text

Found = TypeVar("Found")

MOST_KEPT = 500  # of a few kilobytes
SOURCES = ("planning", "privacy", "objectives", "maps", "federation", "algorithms")
"""The packages that decide what is planned: plans of other versions of them are made anew."""


def kept(
    what: str, of: object, make: Callable[[], Found], encode: Callable[[Found], Any], decode: Callable[[Any], Found]
) -> Found:
    """Return what was made of the same before, or make it and keep it; `repr` of what it is made of says if it is."""
    path = folder() / f"{what}-{hashlib.sha256(f'{sources()} {of!r}'.encode()).hexdigest()[:32]}.json"
    try:
        return decode(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError, KeyError):  # there is none, or a damaged one
        pass
    found = make()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(encode(found)))
        _forget_the_oldest(path.parent)
    except (OSError, ResultError):
        pass  # the next process plans again
    return found


def folder() -> Path:
    """Return the folder of this user's plans."""
    return user_cache() / "plans"


@cache
def sources() -> str:
    """Return a digest of all that decides what is planned."""
    package = Path(__file__).parents[1]
    files = sorted(path for name in SOURCES for path in (package / name).rglob("*.py"))
    return hashlib.sha256(b"".join([np.__version__.encode(), *(path.read_bytes() for path in files)])).hexdigest()


def _forget_the_oldest(place: Path) -> None:
    files = sorted(place.glob("*.json"), key=lambda path: path.stat().st_mtime)
    for path in files[:-MOST_KEPT]:
        path.unlink(missing_ok=True)
