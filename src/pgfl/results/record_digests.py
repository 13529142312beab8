"""Digests of the records that were in a float-safe training, to find those that have moved when it goes on.

They confirm guesses at records to whoever has their key, so they are never part of a result folder: digests and key are
kept with the user, as the records are, in a file that nobody else can read. Without it, on another machine, only
numbers of records are compared. Nothing that is published depends on a digest; one can only refuse a training.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from pgfl.array_types import AnyInts
from pgfl.atomic_files import write_atomically
from pgfl.core.federation import Federation
from pgfl.errors import ResultError
from pgfl.privacy.carried_accounts import Moved
from pgfl.results.user_state import path_for

MOST_RECORDS = 1_000_000
"""More records than this are not compared one by one: a second of hashing, and twenty megabytes."""

_BLOCK = 4096  # rows that are turned into bytes at once


@dataclass(frozen=True, eq=False, repr=False)
class RecordDigests:
    """A keyed digest of every record that was ever in a training, and which of `clients` had it last.

    A pickled result has none: like a folder, it may be handed on.
    """

    key: bytes
    clients: tuple[str, ...]
    client: AnyInts
    digest: NDArray[np.uint64]

    @classmethod
    def of(cls, federation: Federation, earlier: RecordDigests | None = None) -> Self | None:
        """The digests of a federation's records, under the key of `earlier` ones; None for very many records."""
        if len(federation.features) > MOST_RECORDS:
            return None
        key = secrets.token_bytes(32) if earlier is None else earlier.key
        digests = [
            int.from_bytes(hashlib.blake2b(row.tobytes(), key=key, digest_size=8).digest(), "little")
            for start in range(0, len(federation.features), _BLOCK)
            for row in _plain_rows(federation, slice(start, start + _BLOCK))
        ]
        client = np.repeat(np.arange(federation.size), federation.counts)
        return cls(key, tuple(federation.client_ids), client, np.array(digests, dtype=np.uint64))

    def moved_to(self, now: RecordDigests) -> Moved:
        """How many records each client has that it did not have last, and that were with another one."""
        before, here = self._holders(), now._holders()
        moved, copied = Counter[str](), Counter[str]()
        for digest, holders in here.items():
            had = before.get(digest)
            if had is not None:
                (copied if had & holders else moved).update(holders - had)
        return Moved(moved, copied)

    def joined(self, now: RecordDigests) -> RecordDigests:
        """Those of a later training, and those of records that are not in it, with who had them last."""
        gone = ~np.isin(self.digest, now.digest)
        clients = (*now.clients, *self.clients)
        client = np.concatenate([now.client, self.client[gone] + len(now.clients)])
        return RecordDigests(now.key, clients, client, np.concatenate([now.digest, self.digest[gone]]))

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()

    def save(self, state: Path) -> None:
        """Keep the digests with the user, for the result whose state this is; if that fails, only counts are known."""
        path = path_for("records", state)
        with contextlib.suppress(OSError, ResultError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(path, self._write)

    def _write(self, stream: BinaryIO) -> None:
        os.fchmod(stream.fileno(), 0o600)
        names, key = np.array(self.clients, dtype=np.str_), np.frombuffer(self.key, dtype=np.uint8)
        np.savez(stream, key=key, clients=names, client=self.client, digest=self.digest)

    @classmethod
    def load(cls, state: Path) -> Self | None:
        """The digests of a result, if this user has them."""
        try:
            with np.load(path_for("records", state), allow_pickle=False) as arrays:
                clients = tuple(arrays["clients"].tolist())
                return cls(arrays["key"].tobytes(), clients, arrays["client"], arrays["digest"])
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):  # missing or damaged: counts remain
            return None

    def _holders(self) -> dict[int, set[str]]:
        holders: dict[int, set[str]] = {}
        for digest, client in zip(self.digest.tolist(), self.client.tolist(), strict=True):
            holders.setdefault(digest, set()).add(self.clients[client])
        return holders


def _plain_rows(federation: Federation, rows: slice) -> NDArray[np.float64]:
    """Features and target of some records as numbers that are equal where the records are: -0 becomes 0."""
    return np.column_stack([federation.features[rows], federation.targets[rows]]).astype("<f8") + 0.0
