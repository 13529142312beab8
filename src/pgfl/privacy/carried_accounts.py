"""The accounts that a continued training starts with. Their unit is one record, wherever it moves between trainings.

Accounts go by client, and records may have moved: a client is renamed, split or merged, or was away and comes back. So
no client starts with less than any of its records can have lost. One whose name was not there in the training before
starts with the largest account of all, unless its owner lists it as new. One that shrank, or grew by records that were
elsewhere before, is refused until the owner states whether records have moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pgfl.array_types import AnyArray, AnyInts
from pgfl.did_you_mean import nearest
from pgfl.errors import PrivacyError

ADVICE = (
    "state moved_records = false if no record has gone from one client to another, or moved_records = true to start "
    "all clients from the largest earlier account"
)


@dataclass(frozen=True)
class Statement:
    """What the owner states about records since the training before.

    `new_clients` hold no record that was ever in this training. `moved_records` says whether records have gone from one
    client to another; where it is None, a change that may be a move is refused.
    """

    new_clients: Sequence[str] = ()
    moved_records: bool | None = None


@dataclass(frozen=True)
class Moved:
    """How many records of each client were with another one before, and not with it.

    `moved` ones are there no more. `copied` ones still are: they may be on their way, or equal by chance.
    """

    moved: Mapping[str, int]
    copied: Mapping[str, int]

    def to(self, name: str) -> int:
        """All of a client's."""
        return self.moved.get(name, 0) + self.copied.get(name, 0)


@dataclass(frozen=True)
class Holders:
    """The clients of a training and the number of records that each has, which is public.

    `moved` is None where records cannot be compared.
    """

    names: Sequence[str]
    records: AnyInts
    moved: Moved | None = None


def carried_accounts(
    earlier: Mapping[str, AnyArray], last: Sequence[str], now: Holders, stated: Statement
) -> dict[str, AnyArray]:
    """What every client of `now` starts with: `releases`, `rho`, `refusals`, and whether this is `inherited`.

    `earlier` holds the accounts of everyone who was ever in this training, `last` the clients of the training before.
    """
    before = {name: number for number, name in enumerate(earlier["client"].tolist())}
    own = set() if stated.moved_records else before.keys() & (before if stated.moved_records is False else set(last))
    _check_new(before, now, stated)
    if stated.moved_records is None:
        _check_unmoved(before, earlier.get("records"), now, own)
    new, most = set(stated.new_clients), {name: earlier[name].max() for name in ("releases", "rho")}
    inherited = earlier.get("inherited", np.zeros(len(before), dtype=bool))
    start: dict[str, AnyArray] = {
        "releases": np.zeros(len(now.names), dtype=np.int32),
        "rho": np.zeros(len(now.names)),
        "refusals": np.zeros(len(now.names), dtype=np.int32),
        "inherited": np.zeros(len(now.names), dtype=bool),
    }
    for place, name in enumerate(now.names):
        number = before.get(name)
        if number is not None:
            start["refusals"][place] = earlier["refusals"][number]
        if name not in new:
            for column, largest in most.items():
                start[column][place] = earlier[column][number] if name in own else largest
            start["inherited"][place] = name not in own or inherited[number]
    return start


def _check_new(before: Mapping[str, int], now: Holders, stated: Statement) -> None:
    """Refuse a list of new clients where one is not there, has a history, or holds records that have one."""
    names = set(now.names)
    for name in stated.new_clients:
        if name not in names:
            raise PrivacyError(f"There is no client {name!r}{nearest(name, now.names)}; correct new_clients.")
        if name in before:
            raise PrivacyError(
                f"Client {name!r} has been in this training before, and its account stays; take it off new_clients."
            )
        if now.moved is None:
            continue
        by_chance = stated.moved_records is False  # what others still have is equal, and has not gone anywhere
        if moved := now.moved.moved.get(name, 0) if by_chance else now.moved.to(name):
            raise PrivacyError(f"{_moved(name, moved)}, so it is not new; take it off new_clients.")


def _check_unmoved(before: Mapping[str, int], records: AnyInts | None, now: Holders, own: set[str]) -> None:
    """Refuse what may be moved records, or is, at a client that keeps its `own` account."""
    if records is None:
        raise PrivacyError(f"The earlier result has no numbers of records to compare with: {ADVICE}.")
    grown, names = None, set(now.names)
    for name, count in zip(now.names, now.records.tolist(), strict=True):
        if name not in own:
            continue
        had = int(records[before[name]])
        if count < had:
            raise PrivacyError(f"Client {name!r} had {had} records and has {count}: {ADVICE}.")
        if now.moved is not None and (moved := now.moved.to(name)):
            raise PrivacyError(f"{_moved(name, moved)}: {ADVICE}.")
        grown = grown or (name if count > had else None)
    away = [name for name in before if name not in own or name not in names]
    if grown is not None and away and now.moved is None:
        raise PrivacyError(f"Client {grown!r} grew and {away[0]!r} is or was away: {ADVICE}.")


def _moved(name: str, records: int) -> str:
    return f"Client {name!r} holds records that were with other clients before ({records})"
