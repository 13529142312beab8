"""Backups of a site's or a client's folder: one private tar file, whole or absent, that is read with suspicion."""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from pgfl import __version__
from pgfl.atomic_files import write_atomically
from pgfl.errors import NetworkError
from pgfl.privacy.ledger_anchor import ENDING

_ABOUT = "backup.json"
_MOST_BYTES = 1 << 34


def write_archive(path: Path, kind: str, name: str, files: Mapping[str, bytes]) -> None:
    """An archive of these files that only its owner can read; a file that exists is never replaced."""
    if path.exists():
        raise NetworkError(f"{path} exists already; a backup never replaces another one, choose another name.")
    about = {"kind": kind, "name": name, "pgfl": __version__, "made": time.time()}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for member, content in {_ABOUT: json.dumps(about).encode(), **files}.items():
            entry = tarfile.TarInfo(member)
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))
    _write_private(path, packed.getvalue())


def read_archive(path: Path, kind: str, is_member: Callable[[str], bool]) -> tuple[str, dict[str, bytes]]:
    """The name of whose archive it is, and its files; anything that `write_archive` cannot have written is refused."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path, mode="r:gz") as archive:
            for entry in archive:
                known = entry.name == _ABOUT or is_member(entry.name)
                if not known or not entry.isfile() or entry.size > _MOST_BYTES:
                    raise NetworkError(f"{path} holds {entry.name!r}, which no backup of a {kind} has; do not use it.")
                content = archive.extractfile(entry)
                assert content is not None  # as it is a file
                found[entry.name] = content.read()
        about = json.loads(found.pop(_ABOUT))
        if about["kind"] != kind:
            raise NetworkError(f"{path} is the backup of a {about['kind']}, not of a {kind}.")
        return str(about["name"]), found
    except OSError as error:
        raise NetworkError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (tarfile.TarError, EOFError, ValueError, KeyError) as error:
        raise NetworkError(f"{path} is no backup of a {kind}, or it is damaged; use another one.") from error


def put_back(home: Path, files: Mapping[str, bytes]) -> list[str]:
    """Write the files that the folder does not have; one that is there and differs is refused before any is written."""
    home.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if (home / name).exists() and (home / name).read_bytes() != content:
            raise NetworkError(f"{home / name} exists and differs from the backup's; restore into an empty folder.")
    missing = [name for name in files if not (home / name).exists()]
    for name in missing:
        (home / name).parent.mkdir(mode=0o700, exist_ok=True)
        _write_private(home / name, files[name])
    return missing


def releases_in(path: Path, files: Mapping[str, bytes], ledger: str) -> int:
    """How many releases a ledger in an archive has, by its anchor, which it is checked against when it is opened."""
    lines = [line.split(b" ") for line in files.get(f"{ledger}{ENDING}", b"").splitlines()]
    try:
        return max(int(fields[1]) for fields in lines)
    except (ValueError, IndexError) as error:
        raise NetworkError(f"{path} has a ledger without its anchor; use another backup.") from error


def _write_private(path: Path, content: bytes) -> None:
    def write(file: BinaryIO) -> None:
        os.fchmod(file.fileno(), 0o600)
        file.write(content)

    write_atomically(path, write)
