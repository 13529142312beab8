"""Backup of a site, running or not, and its restore into an empty folder."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from pgfl.deploy import identity
from pgfl.deploy.archives import put_back, read_archive, write_archive
from pgfl.deploy.processes import only_one
from pgfl.deploy.site.site_store import STORE, SiteStore
from pgfl.errors import NetworkError
from pgfl.sqlite_files import connect

LOCK, _SETTINGS = "site.lock", "site.toml"
_MEMBERS = frozenset({identity.SITE_KEY, identity.SITE_CERTIFICATE, _SETTINGS, STORE})


def back_up(home: Path, archive: Path) -> int:
    """Write the archive; returns the round that is in it. What is saved meanwhile is in it or not, never in part."""
    with closing(SiteStore.of_site(home)):
        pass  # it is whole, or refused
    files = {name: (home / name).read_bytes() for name in sorted(_MEMBERS - {STORE}) if (home / name).exists()}
    with tempfile.TemporaryDirectory(dir=home, prefix="backup-") as folder:
        copy = Path(folder) / STORE
        with closing(connect(home / STORE, "ro")) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")
        with closing(SiteStore(copy)) as store:
            round = store.last_round()
        files[STORE] = _folded(copy)
    name = identity.SiteCertificate.read(home / identity.SITE_CERTIFICATE).name
    write_archive(archive, "site", name, files)
    return round


def restore(archive: Path, home: Path) -> tuple[str, int]:
    """Put a site back into a folder that has none; returns its name and its round."""
    name, files = read_archive(archive, "site", _MEMBERS)
    if (home / STORE).exists():
        with closing(SiteStore(home / STORE)) as store:
            there = store.last_round()
        raise NetworkError(f"{home / STORE} exists, with round {there}; restore into an empty folder.")
    home.mkdir(parents=True, exist_ok=True)
    with only_one(home / LOCK, f"Site {name}"):
        put_back(home, files)
    with closing(SiteStore.of_site(home)) as store:
        return name, store.last_round()


def _folded(path: Path) -> bytes:
    """The file with its log folded in."""
    with closing(connect(path)) as database:
        database.execute("PRAGMA journal_mode = DELETE")
    return path.read_bytes()
