"""A client's model file, and its backup and restore, in which no release is forgotten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from pgfl import __version__
from pgfl.errors import LedgerError, NetworkError
from pgfl.federation.encoding import RowEncoding
from pgfl.federation.frames import TableFile
from pgfl.files import write_text
from pgfl.network.agreement import task_of
from pgfl.network.client.accounts import PINNED, accepted
from pgfl.network.client.rounds import STATE, sent_clean, unpack_received, unpack_state
from pgfl.network.client.samples import row_encoding
from pgfl.network.client.settings import ClientSettings
from pgfl.network.processes import exclusive_lock
from pgfl.network.protocol import identity
from pgfl.network.rotation import PINS, put_back, read_archive, releases_in, write_archive
from pgfl.privacy.ledger.anchor import ENDING
from pgfl.privacy.ledger.ledger import Ledger
from pgfl.results.model import Model


def model_of_client(settings: ClientSettings) -> Model:
    """The model that the client released last, and the one of its cluster that it was sent for it.

    Both are public: what is released carries its noise, so the file may be shared like the release itself. A client
    that entrusts its contributions to its site releases no model of its own, so the file has its cluster's only.
    """
    offer = accepted(Path(settings.home))
    with Ledger.read(Path(settings.ledger)) as ledger:
        packed, summary = ledger.state(STATE), ledger.summary()
    if offer is None or packed is None:
        raise NetworkError(f"Client {settings.name} has answered no round yet, so it has no model.")
    training, state = unpack_state(packed)
    sent_round, released = state["sent"]
    received, clean = unpack_received(packed), sent_clean(packed)
    if clean and received is None:
        raise NetworkError(f"Client {settings.name} was sent no model of its cluster yet; wait for its second round.")
    kind = offer.training.objective.of(offer.cluster).kind
    privacy = settings.privacy
    return Model(
        cluster_ids=(offer.cluster,),
        objectives=(kind,),
        tasks=(task_of(kind),),
        clusters=np.array([released if received is None else received]),
        client_ids=() if clean else (settings.name,),
        client_cluster=np.zeros(0 if clean else 1, dtype=np.int64),
        clients=np.array([released])[: 0 if clean else 1],
        encoding=_encoding(settings),
        intercept=settings.intercept,
        x_norm=privacy.x_norm if privacy.enabled else None,
        provenance={
            "name": f"client {settings.name}",
            "version": __version__,
            "rounds": sent_round,
            "training": training,
            "private": privacy.enabled,
            "privacy": _spent(summary) if privacy.enabled else None,
        },
    )


def _encoding(settings: ClientSettings) -> RowEncoding:
    """All columns but the target are features."""
    return row_encoding(settings, settings.features(TableFile(settings.data).columns))


def _spent(summary: dict[str, Any]) -> dict[str, Any]:
    return {key: summary[key] for key in ("releases", "epsilon", "delta", "trust")}


LOCK, MOVED = "client.lock", "ledger-moved.json"
_LEDGER, _ANCHOR, _SETTINGS = "ledger.db", f"ledger.db{ENDING}", "client.toml"
_KEPT = (identity.CLIENT_KEY, identity.CLIENT_PUBLIC, PINNED, PINS)
_OF_OLD = "site.crt"  # in archives of an older pgfl
_MEMBERS = frozenset({*_KEPT, _LEDGER, _ANCHOR, _SETTINGS, _OF_OLD})


def back_up(settings: ClientSettings, settings_file: Path, archive: Path, move: bool) -> int | None:
    """Write the archive; returns how many releases moved with the account, None if it stays."""
    home = Path(settings.home)
    with exclusive_lock(home / LOCK, f"Client {settings.name}"):
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
    with exclusive_lock(home / LOCK, f"Client {name}"):
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
