"""What a planted bug is."""

from __future__ import annotations

from dataclasses import dataclass

NOT_KEPT = 3  # how an attack ends that measures more than is claimed; a crash ends otherwise


@dataclass(frozen=True)
class Mutant:
    """One edit: in `file` of src/pgfl the text `old`, which stands there once, becomes `new`."""

    name: str
    title: str
    why: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ()  # pytest ids, run first
    attacks: tuple[str, ...] = ()  # "case/path" of the audit, run first as well
    worst: bool = False  # one of the ten that run with all other tests
