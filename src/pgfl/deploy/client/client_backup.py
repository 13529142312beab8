"""Backup and restore of a client, whose account is not to come back with fewer releases than were made.

A copy of a ledger is stale as soon as its client makes another release, and would spend again what is spent. So a
backup leaves the ledger out, unless the account *moves* into it: then the folder keeps a note instead of a ledger,
nothing more is released from there, and the archive holds the newest account that there is. It is the owner's part to
restore it once: of two restored copies neither can know of the other, and only an honest site notices, by the releases
that it has received.
"""

from __future__ import annotations

import json
from pathlib import Path

from pgfl.atomic_files import write_text
from pgfl.deploy import identity
from pgfl.deploy.archives import put_back, read_archive, releases_in, write_archive
from pgfl.deploy.client.acceptance import PINNED
from pgfl.deploy.client.client_settings import ClientSettings
from pgfl.deploy.processes import only_one
from pgfl.deploy.rotation import PINS
from pgfl.errors import LedgerError
from pgfl.privacy.ledger import Ledger
from pgfl.privacy.ledger_anchor import ENDING

LOCK, MOVED = "client.lock", "ledger-moved.json"
_LEDGER, _ANCHOR, _SETTINGS = "ledger.db", f"ledger.db{ENDING}", "client.toml"
_KEPT = (identity.CLIENT_KEY, identity.CLIENT_PUBLIC, PINNED, PINS)
_OF_OLD = "site.crt"  # in archives of an older pgfl
_MEMBERS = frozenset({*_KEPT, _LEDGER, _ANCHOR, _SETTINGS, _OF_OLD})


def back_up(settings: ClientSettings, settings_file: Path, archive: Path, move: bool) -> int | None:
    """Write the archive; returns how many releases moved with the account, None if it stays."""
    home = Path(settings.home)
    with only_one(home / LOCK, f"Client {settings.name}"):
        files = {name: (home / name).read_bytes() for name in _KEPT if (home / name).exists()}
        files[_SETTINGS] = settings_file.read_bytes()
        if not move:
            write_archive(archive, "client", settings.name, files)
            return None
        releases = _at_rest(settings)
        files |= {name: (home / name).read_bytes() for name in (_LEDGER, _ANCHOR)}
        note = {"client": settings.name, "releases": releases, "archive": archive.name}
        write_text(home / MOVED, json.dumps(note))  # first: from now on nothing is released from here
        write_archive(archive, "client", settings.name, files)
        for name in (_LEDGER, _ANCHOR):
            (home / name).unlink()
        return releases


def restore(archive: Path, home: Path) -> tuple[str, int | None]:
    """Put a client back; returns its name and, if its account comes along, how many releases are in it."""
    name, files = read_archive(archive, "client", _MEMBERS.__contains__)
    if (home / _LEDGER).exists():
        raise LedgerError(f"{home / _LEDGER} exists; an account is never replaced by one from a backup.")
    note, moved = home / MOVED, None
    if _LEDGER in files:
        moved = releases_in(archive, files, _LEDGER)
        if note.exists() and moved < int(json.loads(note.read_text())["releases"]):
            newer = json.loads(note.read_text())["archive"]
            raise LedgerError(f"{archive} is older than {newer}, into which the account moved last; restore that one.")
    elif note.exists():
        raise LedgerError(f"{archive} has no account; restore the one into which it moved, which {note} names.")
    with only_one(home / LOCK, f"Client {name}"):
        put_back(home, files)
        note.unlink(missing_ok=True)
    return name, moved


def check_not_moved(home: Path) -> None:
    """Refuse to begin a new account where the old one has moved away."""
    if (home / MOVED).exists():
        moved = json.loads((home / MOVED).read_text())
        raise LedgerError(
            f"The account of {moved['client']} moved to the backup {moved['archive']}; put it back with `pgfl client "
            "restore`, or go on where it was restored. If the backup was interrupted, make it again."
        )


def _at_rest(settings: ClientSettings) -> int:
    """Fold the ledger's log in, check all of it, and return how many releases it has."""
    path = Path(settings.ledger)
    if path.resolve() != (Path(settings.home) / _LEDGER).resolve():
        raise LedgerError(f"The ledger is {path}; only one in the client's folder, {_LEDGER}, can move.")
    if not path.exists():
        raise LedgerError(f"{path} does not exist, so there is no account to move; leave --move out.")
    with Ledger.open(path, settings.name) as ledger:
        ledger.verify()
        return ledger.count
