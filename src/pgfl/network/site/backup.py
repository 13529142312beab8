"""A site's model file, and its backup and restore into an empty folder."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from contextlib import closing, nullcontext
from pathlib import Path

import numpy as np

from pgfl import __version__
from pgfl.algorithms.roles import EVERYONE
from pgfl.errors import LedgerError, NetworkError
from pgfl.federation.columns import NumberColumn, TargetColumn
from pgfl.federation.encoding import PlaceColumns, RowEncoding
from pgfl.files import connect, write_text
from pgfl.network.agreement import task_of
from pgfl.network.processes import exclusive_lock
from pgfl.network.protocol import identity
from pgfl.network.rotation import put_back, read_archive, releases_in, write_archive
from pgfl.network.site.role import models_in
from pgfl.network.site.settings import SiteSettings
from pgfl.network.site.status import entrusted_account
from pgfl.network.site.store import LOCK, STORE, SiteStore
from pgfl.network.site.trustee import LEDGERS
from pgfl.privacy.ledger.anchor import ENDING
from pgfl.privacy.ledger.ledger import Ledger
from pgfl.results.model import Model

MOST_COLUMNS = 10_000


def model_of_site(settings: SiteSettings) -> Model:
    """The site's models of all clusters that it knows, as of its last completed round.

    A site does not know the columns of its clients' tables: features are called x0, x1, …, in the order of a client's
    columns, and an intercept is the last of them.
    """
    with closing(SiteStore(Path(settings.home) / STORE)) as store:
        saved, clients = store.load_state(), store.clients()
    accounts = {name: entrusted_account(Path(settings.home), name) for name in clients}
    held = {} if saved is None else models_in(saved[1])
    training = settings.training
    clusters = [cluster for cluster in training.clusters if cluster in held or EVERYONE in held]
    if saved is None or not clusters:
        raise NetworkError(f"Site {settings.name} has no model yet; wait for its first round.")
    kinds = [training.objective.of(cluster).kind for cluster in clusters]
    rows = np.array([held.get(cluster, held.get(EVERYONE, {}))["model"] for cluster in clusters])
    return Model(
        cluster_ids=tuple(clusters),
        objectives=tuple(kinds),
        tasks=tuple(task_of(kind) for kind in kinds),
        clusters=rows,
        server_ids=(settings.name,),
        pair_server=np.zeros(len(clusters), dtype=np.int64),
        pair_cluster=np.arange(len(clusters)),
        servers=rows,
        encoding=_numbered(training.dimension) if training.map is None else None,
        provenance={
            "name": f"site {settings.name}",
            "version": __version__,
            "rounds": saved[0],
            "training": training.digest,
            "privacy": {
                "trust": training.privacy.trust,
                "releases": {name: client.releases for name, client in clients.items()},
                "epsilon": {name: account["epsilon"] for name, account in accounts.items()},
            },
        },
    )


def _numbered(dimension: int) -> RowEncoding | None:
    """Features by their numbers; none where there are too many to be columns of a table."""
    if dimension > MOST_COLUMNS:
        return None
    columns = tuple(NumberColumn(f"x{number}") for number in range(dimension))
    return RowEncoding(columns, TargetColumn("y"), False, PlaceColumns(None, None, None))


MOVED, _SETTINGS = "site-moved.json", "site.toml"
_MEMBERS = frozenset({identity.SITE_KEY, identity.SITE_CERTIFICATE, _SETTINGS, STORE})


def back_up(home: Path, archive: Path, move: bool = False) -> tuple[int, int | None]:
    """Write the archive; returns its round and, if the site moves into it, how many accounts do.

    What is saved meanwhile is in it or not, never in part. A site that moves must not run.
    """
    check_not_moved(home)
    with closing(SiteStore.of_site(home)):
        pass  # it is whole, or refused
    name = identity.SiteCertificate.read(home / identity.SITE_CERTIFICATE).name
    with exclusive_lock(home / LOCK, f"Site {name}") if move else nullcontext():
        files = {part: (home / part).read_bytes() for part in sorted(_MEMBERS - {STORE}) if (home / part).exists()}
        with tempfile.TemporaryDirectory(dir=home, prefix="backup-") as folder:
            copy = Path(folder) / STORE
            with closing(connect(home / STORE, "ro")) as source, closing(sqlite3.connect(copy)) as target:
                source.backup(target)
                target.execute("PRAGMA journal_mode = DELETE")
            with closing(SiteStore(copy)) as store:
                round = store.last_round()
            files[STORE] = _folded(copy)
        if not move:
            write_archive(archive, "site", name, files)
            return round, None
        accounts = _accounts_at_rest(home)
        files |= {f"{LEDGERS}/{path.name}": path.read_bytes() for client in accounts for path in _parts(home, client)}
        note = {"site": name, "archive": archive.name, "accounts": accounts}
        write_text(home / MOVED, json.dumps(note))  # first: from now on nothing is spent from here
        write_archive(archive, "site", name, files)
        for client in accounts:
            for path in _parts(home, client):
                path.unlink()
        return round, len(accounts)


def restore(archive: Path, home: Path) -> tuple[str, int, int]:
    """Put a site back into a folder that has none, or that it moved out of; returns its name, round and accounts."""
    name, files = read_archive(archive, "site", _is_member)
    accounts = {Path(part).stem: releases_in(archive, files, part) for part in files if _is_ledger(part)}
    note = home / MOVED
    if note.exists():
        _check_newest(archive, accounts, json.loads(note.read_text()))
        files = {part: content for part, content in files.items() if part.startswith(LEDGERS)}
    elif (home / STORE).exists():
        with closing(SiteStore(home / STORE)) as store:
            there = store.last_round()
        raise NetworkError(f"{home / STORE} exists, with round {there}; restore into an empty folder.")
    home.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(home / LOCK, f"Site {name}"):
        put_back(home, files)
        note.unlink(missing_ok=True)
    with closing(SiteStore.of_site(home)) as store:
        store.revoke_all()  # codes that were used after the backup would be good again
        return name, store.last_round(), len(accounts)


def check_not_moved(home: Path) -> None:
    """Refuse to go on where the site has moved away."""
    if (home / MOVED).exists():
        moved = json.loads((home / MOVED).read_text())
        raise NetworkError(
            f"Site {moved['site']} moved to the backup {moved['archive']}; put it back with `pgfl site restore`, or go "
            "on where it was restored. If the backup was interrupted, remove the unfinished archive and "
            f"{home / MOVED}, and make it again."
        )


def _check_newest(archive: Path, accounts: dict[str, int], note: dict[str, dict[str, int]]) -> None:
    for client, releases in note["accounts"].items():
        if accounts.get(client, -1) < releases:
            raise LedgerError(
                f"{archive} is older than {note['archive']}, into which the site moved last: it would give budget of "
                f"{client} back that is spent; restore that one."
            )


def _accounts_at_rest(home: Path) -> dict[str, int]:
    """Fold the logs of the accounts in, check all of them, and return how many releases each has."""
    found = {}
    for path in sorted((home / LEDGERS).glob("*.db")):
        with Ledger.open(path, path.stem) as ledger:
            ledger.verify()
            found[path.stem] = ledger.count
    return found


def _parts(home: Path, client: str) -> list[Path]:
    ledger = home / LEDGERS / f"{client}.db"
    return [ledger, ledger.with_name(f"{ledger.name}{ENDING}")]


def _is_member(part: str) -> bool:
    return part in _MEMBERS or _is_ledger(part.removesuffix(ENDING))


def _is_ledger(part: str) -> bool:
    folder, _, file = part.partition("/")
    client = file.removesuffix(".db")
    return folder == LEDGERS and client != file and bool(identity.NAME.fullmatch(client))


def _folded(path: Path) -> bytes:
    """The file with its log folded in."""
    with closing(connect(path)) as database:
        database.execute("PRAGMA journal_mode = DELETE")
    return path.read_bytes()
