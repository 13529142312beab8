"""What a continued private training starts with: the budget, and the accounts of all records.

The unit of an account is one record, wherever it moves between trainings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace

import numpy as np

from pgfl.arrays import AnyArray, AnyInts
from pgfl.errors import PrivacyError
from pgfl.privacy import accounting
from pgfl.privacy.budget import Budget
from pgfl.privacy.request import Privacy
from pgfl.suggestions import nearest

KEPT = ("phi0", "phi1", "zeta", "delta", "index", "guarantee", "trust", "colluders")
"""What a continuation cannot change; a larger epsilon has to be stated instead."""


@dataclass(frozen=True)
class ContinuedPrivacy(Privacy):
    """Privacy whose budget is carried over from an earlier run, whatever the number of rounds."""

    carried: Budget | None = None

    def budget(self, rounds: int) -> Budget:
        """The carried one."""
        assert self.carried is not None
        return self.carried


@dataclass(frozen=True)
class Spent:
    """What an earlier run leaves: its request, its budget, its rounds, and the most that any client has spent."""

    asked: Privacy
    budget: Budget
    rounds: int
    rho: float
    releases: int


def continued(spent: Spent, asked: Privacy | None, rounds: int) -> ContinuedPrivacy:
    """The privacy of a training that goes on to round `rounds`.

    It has the schedule and the budget of the first run. Only a larger `epsilon`, stated in `asked`, allows more: what
    is left of it is spread over the new rounds. Bounds may change.
    """
    first = spent.asked
    if asked is None or (asked.epsilon, asked.phi0, asked.phi1) == (first.epsilon, first.phi0, first.phi1):
        request = asked or first
        _check_kept(first, request, (*KEPT, "max_releases"))
        return carrying(request, _longer(spent.budget, rounds))
    _check_kept(first, asked, KEPT[2:])
    if asked.epsilon is None:
        raise PrivacyError(
            "The noise schedule of the first run stays in force; to spend more, state a larger privacy.epsilon."
        )
    if first.epsilon is not None and asked.epsilon < first.epsilon:
        raise PrivacyError(
            f"The first run promised epsilon = {first.epsilon:g} and may have spent it; {asked.epsilon:g} cannot be "
            "promised any more."
        )
    return carrying(asked, _larger(spent, asked, rounds))


def _check_kept(first: Privacy, asked: Privacy, names: tuple[str, ...]) -> None:
    for name in names:
        before, now = getattr(first, name), getattr(asked, name)
        if before != now:
            raise PrivacyError(
                f"privacy.{name} was {before} in the first run and is {now}; it cannot change in a continuation."
            )


def carrying(request: Privacy, budget: Budget) -> ContinuedPrivacy:
    """The request with a budget that was made elsewhere."""
    plain = {field.name: getattr(request, field.name) for field in fields(Privacy)}
    return ContinuedPrivacy(**plain, carried=budget)


def _longer(budget: Budget, rounds: int) -> Budget:
    """The same schedule for more rounds; one that was made for a target ends where the target ends."""
    if budget.rho_budget is not None or budget.last is None:
        return budget
    return replace(budget, last=max(budget.last, rounds))


def _larger(spent: Spent, asked: Privacy, rounds: int) -> Budget:
    """A schedule that spends what a larger ε leaves in the new rounds."""
    assert asked.epsilon is not None
    total = accounting.exact_rho(asked.epsilon, asked.delta)
    left, more = total - spent.rho, rounds - spent.rounds
    if not left > 0.0:
        so_far = float(accounting.exact_epsilon(spent.rho, asked.delta))
        raise PrivacyError(f"epsilon = {so_far:.4g} is already spent; state an epsilon above it to go on.")
    made = spent.rounds if asked.index == "round" else spent.releases
    phi0 = left / float(accounting.growth(asked.zeta, made + 1, made + more))
    limit = None if spent.budget.max_releases is None else spent.releases + more
    if asked.max_releases is not None and asked.max_releases != spent.asked.max_releases:
        if asked.max_releases <= spent.releases:
            raise PrivacyError(
                f"A client has released {spent.releases} models already, which privacy.max_releases = "
                f"{asked.max_releases} does not allow; it counts those of all rounds."
            )
        limit = asked.max_releases
    return Budget(phi0, asked.zeta, asked.delta, limit, total * (1.0 + accounting.MARGIN), asked.index, made + more)


def to_json(privacy: Privacy, budget: Budget) -> dict[str, dict[str, object]]:
    """The request and the budget of a run, as JSON holds them."""
    request = {field.name: getattr(privacy, field.name) for field in fields(Privacy)}
    return {"privacy": request, "budget": asdict(budget)}


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
