"""What a planted bug is."""

from __future__ import annotations

from dataclasses import dataclass

NOT_KEPT = 3  # how an attack ends that measures more than is claimed; a crash ends otherwise


@dataclass(frozen=True)
class Mutant:
    """One edit: in the definition `where` the syntax `old` becomes `new`; `syntax.py` says how both are found."""

    name: str
    title: str
    why: str
    where: (
        str  # "Class.method", "function" or "CONSTANT" of the package, with "module:" before it if others have it too
    )
    old: str  # an expression, or statements in a row
    new: str  # the same kind; no statement at all removes
    tests: tuple[str, ...] = ()  # pytest ids, run first
    attacks: tuple[str, ...] = ()  # "case/path" of the audit, run first as well
    at: int | None = None  # which of several occurrences, from 1; without it there is only one
    worst: bool = False  # one of the ten that run in `make proofs`
