"""The anchor beside a ledger: a small file with the least number of releases that the ledger has, and their digest.

A ledger whose log was cut short, or that was put back from an older copy, is whole in itself; only something outside
it can tell. The anchor is written after each charge is committed, so a kill leaves a ledger ahead of its anchor, never
behind it, and a ledger that is behind is refused.

It holds two records, written in turn and in place. One that is torn is not read; the other is a release older. The
anchor is not synced with each release, and need not be: the charge is on the disk already, so a power cut can only set
the anchor back, which refuses nothing that is true.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pgfl.errors import LedgerError
from pgfl.privacy.ledger import file as ledger_file

ENDING = ".anchor"


class Anchor(NamedTuple):
    """The digest a ledger's chain starts from, the number of releases charged, and the digest of the last of them."""

    root: bytes
    releases: int
    digest: bytes


def read(path: Path) -> Anchor | None:
    """The anchor of the ledger at `path`, if there is one; refused if nothing in it can be read."""
    place = _place(path)
    try:
        records = [found for line in place.read_bytes().split(b"\n") if (found := _decoded(line))]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LedgerError(f"{place} cannot be read ({error.strerror}); check who may read it.") from None
    if not records:
        raise LedgerError(
            f"{place} is damaged, so nothing tells whether {path.name} is the newest; put back ledger and anchor "
            "together, or leave the federation."
        )
    return max(records, key=lambda record: record.releases)


def begin(path: Path, anchor: Anchor) -> None:
    """The anchor of a new ledger, there before the ledger itself."""
    ledger_file.place(_place(path), 2 * _encoded(anchor))


def advance(path: Path, anchor: Anchor) -> None:
    """Note what the ledger has committed."""
    record = _encoded(anchor)
    try:
        file = os.open(_place(path), os.O_WRONLY)
        try:
            os.pwrite(file, record, len(record) * (anchor.releases % 2))
        finally:
            os.close(file)
    except OSError as error:
        raise LedgerError(
            f"{_place(path)} cannot be written ({error.strerror}); the release is charged but nothing was sent; check "
            "the file and its disk, then start again."
        ) from None


def _encoded(anchor: Anchor) -> bytes:
    """One line, always of the same length."""
    text = f"{anchor.root.hex()} {anchor.releases:020d} {anchor.digest.hex()}"
    return f"{text} {_seal(text)}\n".encode()


def _decoded(line: bytes) -> Anchor | None:
    with suppress(ValueError):
        root, releases, digest, seal = line.decode("ascii").split(" ")
        if seal == _seal(f"{root} {releases} {digest}"):
            return Anchor(bytes.fromhex(root), int(releases), bytes.fromhex(digest))
    return None


def _seal(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _place(path: Path) -> Path:
    return ledger_file.sidecar_path(path, ENDING)
