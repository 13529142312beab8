"""What further rounds of a run depend on, and the guard that its releases are continued in one place only.

The state after the last round, the columns as declarations, digests of the records, and the claims that a run with
float-safe noise was continued or resumed, which are kept with the user.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import os
import secrets
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from pgfl.arrays import AnyArray, AnyFloats, AnyInts
from pgfl.errors import PrivacyError, ResultError
from pgfl.federation.columns import ArrayColumn, BooleanColumn, CategoryColumn, FeatureColumn, NumberColumn
from pgfl.federation.declarations import INDICATOR, REFUSE, Column
from pgfl.federation.encoding import RowEncoding
from pgfl.federation.federation import Federation
from pgfl.files import write_atomically
from pgfl.privacy.carried import Moved


def user_folder(kind: str) -> Path:
    """Return the folder of one kind of notes, in the user's own files."""
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "pgfl" / kind


def path_for(kind: str, state: bytes) -> Path:
    """The place of what is kept about a result, by the content of its state file, wherever that is and was copied."""
    return user_folder(kind) / hashlib.blake2b(state, digest_size=20).hexdigest()


def kept_columns(encoding: RowEncoding) -> dict[str, Column]:
    """Return one declaration per column that has one; bounds and categories that were computed from rows are stated.

    >>> from pgfl.federation.columns import TargetColumn
    >>> kept_columns(RowEncoding((NumberColumn("age", (20.0, 80.0)),), TargetColumn("ill", labels=("no", "yes"))))
    {'age': Column(bounds=(20.0, 80.0)), 'ill': Column(labels=('no', 'yes'))}
    """
    declared = {column.name: _declaration(column) for column in encoding.columns}
    declared[encoding.target.name] = Column(bounds=encoding.target.bounds, labels=encoding.target.labels)
    return {name: column for name, column in declared.items() if column != Column()}


def _declaration(column: FeatureColumn) -> Column:
    if isinstance(column, CategoryColumn):
        missing = INDICATOR if column.missing else REFUSE if column.fill is None else column.fill
        return Column(categories=column.categories, other=column.other, missing=missing)
    if isinstance(column, ArrayColumn):
        return Column()
    assert isinstance(column, NumberColumn | BooleanColumn)
    constant = INDICATOR if column.indicator else REFUSE if column.fill is None else column.fill
    if isinstance(column, BooleanColumn):
        return Column(boolean=True, missing=constant)
    return Column(bounds=column.bounds, missing=constant, knots=column.knots)


STATE = "state.npz"
MOST_NUMBERS = 10_000_000
"""Duals with more numbers than this are not kept: a continuation then restarts from the servers' models."""

MOST_SERVER_NUMBERS = 50_000_000
"""Server states with more numbers than this are not kept, and the run cannot be continued."""

ACCOUNT = ("releases", "rho", "refusals")


@dataclass(frozen=True, eq=False)
class TrainingState:
    """The state of one run.

    `duals` has one row per client of the result; `servers` has the server rule's own arrays, one row per pair of names
    in `pairs`. Both are None where they were too large to keep. `accounts` holds, under `client`, everyone who was ever
    in this training, also those who have left, with what they have spent, how many `records` they had last, and whether
    they `inherited` an account. `played` lists the seeds that rounds were
    drawn with, as (seed, participants, last round). `privacy` and `budget` are those of the run.
    """

    round: int
    algorithm: str
    played: tuple[tuple[int, int | str, int], ...]
    duals: AnyFloats | None = None
    pairs: tuple[tuple[str, str], ...] = ()
    known: AnyArray | None = None
    servers: Mapping[str, AnyFloats] | None = None
    accounts: Mapping[str, AnyArray] | None = None
    privacy: Mapping[str, Any] | None = None
    budget: Mapping[str, Any] | None = None

    def save(self, path: Path) -> None:
        """Write the state to a file."""
        write_atomically(path, self._write)

    @property
    def content(self) -> bytes:
        """The bytes of its file."""
        stream = io.BytesIO()
        self._write(stream)
        return stream.getvalue()

    def _write(self, stream: BinaryIO) -> None:
        page = {
            "round": self.round,
            "algorithm": self.algorithm,
            "played": self.played,
            "pairs": self.pairs,
            "privacy": self.privacy,
            "budget": self.budget,
        }
        arrays: dict[str, Any] = {"page": np.array(json.dumps(page, ensure_ascii=False))}
        if self.duals is not None:
            arrays["duals"] = self.duals
        if self.known is not None:
            arrays["known"] = self.known
        arrays |= {f"servers/{name}": values for name, values in (self.servers or {}).items()}
        arrays |= {f"accounts/{name}": values for name, values in (self.accounts or {}).items()}
        np.savez(stream, **arrays)

    @classmethod
    def load(cls, path: Path) -> TrainingState:
        """Read a state; `folder.load` reports a damaged file."""
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        page = json.loads(str(arrays["page"]))
        return cls(
            round=int(page["round"]),
            algorithm=str(page["algorithm"]),
            played=tuple((int(seed), participants, int(last)) for seed, participants, last in page["played"]),
            duals=arrays.get("duals"),
            pairs=tuple((server, cluster) for server, cluster in page["pairs"]),
            known=arrays.get("known"),
            servers=_under("servers/", arrays) or None,
            accounts=_under("accounts/", arrays) or None,
            privacy=page["privacy"],
            budget=page["budget"],
        )


def _under(prefix: str, arrays: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    return {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}


def nothing_to_go_on_with(folder: Path | None) -> ResultError:
    """Return the error for a result that was saved without a state."""
    return ResultError(
        f"{folder or 'This result'} keeps no state to go on with: an older version or several processes wrote it, or "
        "it is very large; start a new run."
    )


NOTE = "continued.txt"
IN_MEMORY = "another training in Python"


@dataclass(frozen=True)
class Owner:
    """Where a run goes on, under which id, and whether it does so from a checkpoint of its own."""

    place: str
    run_id: str = ""
    resumed: bool = False

    def may_follow(self, first: Owner) -> bool:
        """Whether this is the same continuation, or the first one has left nothing."""
        if self.place != first.place:
            return False
        if self.resumed or not self.run_id:
            return self.run_id == first.run_id or not first.run_id
        if not first.run_id:  # noted by an older version
            return False
        with one_process(first.run_id, Path(first.place)):
            return not is_kept(first.run_id)


def claim(folder: Path, owner: Owner) -> None:
    """Note that the run in `folder` goes on with `owner`; a second continuation of the same accounts is refused."""
    _claim((folder / NOTE, path_for("continued", (folder / STATE).read_bytes())), owner, str(folder))


def claim_in_memory(state: TrainingState, owner: Owner) -> None:
    """The same for a result that is in no folder: copies of it, pickled or not, go on from the same accounts."""
    _claim((path_for("continued", state.content),), owner, "This result")


def note_continued(folder: Path) -> None:
    """Note in the folder of a result that went on before it was saved; what the user keeps knows of it already."""
    _claim((folder / NOTE,), Owner(IN_MEMORY), str(folder))


def _claim(notes: Sequence[Path], owner: Owner, what: str) -> None:
    for note in notes:
        try:
            note.parent.mkdir(parents=True, exist_ok=True)
            with open(note, "a+", encoding="utf-8") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX)  # held until the note is closed
                stream.seek(0)
                place, _, run_id = stream.read().rstrip("\n").partition("\n")
                if place and not owner.may_follow(Owner(place, run_id)):
                    raise already_continued(what, place)
                stream.truncate(0)
                stream.write(f"{owner.place}\n{owner.run_id}\n" if owner.run_id else f"{owner.place}\n")
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise ResultError(
                f"{note} cannot be written ({error.strerror or error}), and without it a second continuation would "
                "forget what this one spends; make it writable, or set XDG_STATE_HOME to a folder that is."
            ) from None


def already_continued(what: str, first: str) -> PrivacyError:
    """Return the error for a second continuation."""
    return PrivacyError(
        f"{what} was already continued in {first}, and what is spent there would be forgotten here; go on from there."
    )


@contextmanager
def one_process(run_id: str, folder: Path) -> Iterator[None]:
    """Within, this process alone goes on with a run; the kernel ends that with the process, however it ends."""
    path = user_folder("resumed") / f"{run_id}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise _not_written(path, error) from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PrivacyError(
                f"The run in {folder} goes on in another process, and two would release its rounds twice; wait for it "
                "or stop it."
            ) from None
        yield
    finally:
        os.close(lock)


def is_kept(run_id: str) -> bool:
    """Whether anything that a run released was kept: its checkpoints are noted, and so is its end."""
    return (user_folder("resumed") / run_id).exists()


def note_checkpoint(run_id: str, round: int, folder: Path, *, stops: bool = False) -> None:
    """Note that a run goes on from its checkpoint of `round` in `folder`, or stops there; once it did, nowhere else."""
    path = user_folder("resumed") / run_id
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a+", encoding="utf-8") as note:
            fcntl.flock(note, fcntl.LOCK_EX)  # held until the note is closed
            note.seek(0)
            last, place = _last(note.read())
            if round < last or (round == last and place not in ("", str(folder))):
                raise PrivacyError(
                    f"The run in {folder} was already resumed {f'in {place}' if place else 'and stopped'} at round "
                    f"{last}; from round {round} here it would forget what was released since; go on there."
                )
            note.write(f"{round} {'' if stops else folder}\n")
            note.flush()
            os.fsync(note.fileno())
    except OSError as error:
        raise _not_written(path, error) from None


def _not_written(path: Path, error: OSError) -> ResultError:
    return ResultError(
        f"{path} cannot be written ({error.strerror or error}), and without it a copy of this run could be resumed "
        "beside it; make it writable, or set XDG_STATE_HOME to a folder that is."
    )


def _last(text: str) -> tuple[int, str]:
    """Round and folder of the last whole line; one that a kill cut short was not followed by a release."""
    lines = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
    round, _, folder = (lines[-1] if lines else "-1 \n").rstrip("\n").partition(" ")
    return int(round), folder


RECORDS = "records"
MOST_RECORDS = 1_000_000
"""More records than this are not compared one by one: a second of hashing, and twenty megabytes."""

_BLOCK = 4096  # rows that are turned into bytes at once


@dataclass(frozen=True, eq=False, repr=False)
class RecordDigests:
    """A keyed digest of every record that was ever in a training, and which of `clients` had it last.

    `held_out` has those of all records that were ever held out, of which exact figures were shown. A pickled result has
    no digests: like a folder, it may be handed on.
    """

    key: bytes
    clients: tuple[str, ...]
    client: AnyInts
    digest: NDArray[np.uint64]
    held_out: NDArray[np.uint64]

    @classmethod
    def of(cls, federation: Federation, earlier: RecordDigests | None = None) -> Self | None:
        """Return the digests of a federation's records, under the key of `earlier` ones; None for very many records."""
        if len(federation.features) > MOST_RECORDS:
            return None
        key = secrets.token_bytes(32) if earlier is None else earlier.key
        tests = (federation.tests or {}).values()
        client = np.repeat(np.arange(federation.size), federation.counts)
        held_out = [_keyed(key, test.features, test.targets) for test in tests]
        return cls(
            key,
            tuple(federation.client_ids),
            client,
            _keyed(key, federation.features, federation.targets),
            np.unique(np.concatenate([np.empty(0, dtype=np.uint64), *held_out])),
        )

    def moved_to(self, now: RecordDigests) -> Moved:
        """Return how many records each client has that it did not have last, and that were with another one."""
        before, here = self._holders(), now._holders()
        moved, copied = Counter[str](), Counter[str]()
        for digest, holders in here.items():
            had = before.get(digest)
            if had is not None:
                (copied if had & holders else moved).update(holders - had)
        return Moved(moved, copied)

    def shown_since(self, now: RecordDigests) -> int:
        """Return how many records were only trained on before and are held out, or the other way around."""
        shown = np.setdiff1d(now.held_out, self.held_out), np.setdiff1d(now.digest, self.digest)
        return int(np.isin(shown[0], self.digest).sum() + np.isin(shown[1], self.held_out).sum())

    def joined(self, now: RecordDigests) -> RecordDigests:
        """Return those of a later training, and those of records that are not in it, with who had them last."""
        gone = ~np.isin(self.digest, now.digest)
        clients = (*now.clients, *self.clients)
        client = np.concatenate([now.client, self.client[gone] + len(now.clients)])
        digest = np.concatenate([now.digest, self.digest[gone]])
        return RecordDigests(now.key, clients, client, digest, np.union1d(now.held_out, self.held_out))

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()

    def save(self, state: Path) -> None:
        """Keep the digests with the user, for the result whose state this is; if that fails, only counts are known."""
        with contextlib.suppress(OSError, ResultError):
            path = path_for(RECORDS, state.read_bytes())
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(path, self._write)

    def _write(self, stream: BinaryIO) -> None:
        os.fchmod(stream.fileno(), 0o600)
        names, key = np.array(self.clients, dtype=np.str_), np.frombuffer(self.key, dtype=np.uint8)
        np.savez(stream, key=key, clients=names, client=self.client, digest=self.digest, held_out=self.held_out)

    @classmethod
    def load(cls, state: Path) -> Self | None:
        """Return the digests of a result, if this user has them."""
        try:
            with np.load(path_for(RECORDS, state.read_bytes()), allow_pickle=False) as arrays:
                clients, key = tuple(arrays["clients"].tolist()), arrays["key"].tobytes()
                return cls(key, clients, arrays["client"], arrays["digest"], arrays["held_out"])
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):  # missing or damaged: counts remain
            return None

    def _holders(self) -> dict[int, set[str]]:
        holders: dict[int, set[str]] = {}
        for digest, client in zip(self.digest.tolist(), self.client.tolist(), strict=True):
            holders.setdefault(digest, set()).add(self.clients[client])
        return holders


def _keyed(key: bytes, features: AnyFloats, targets: AnyFloats) -> NDArray[np.uint64]:
    """Return the keyed digest of every record."""
    digests = [
        int.from_bytes(hashlib.blake2b(row.tobytes(), key=key, digest_size=8).digest(), "little")
        for start in range(0, len(features), _BLOCK)
        for row in _plain_rows(features[start : start + _BLOCK], targets[start : start + _BLOCK])
    ]
    return np.array(digests, dtype=np.uint64)


def _plain_rows(features: AnyFloats, targets: AnyFloats) -> NDArray[np.float32]:
    """Features and targets as numbers that are equal where records are, in whatever precision: -0 becomes 0.

    A record is the same whatever its weight, or another weight would make its earlier releases forgotten.
    """
    with np.errstate(over="ignore"):
        return np.column_stack([features, targets]).astype("<f4") + np.float32(0.0)
