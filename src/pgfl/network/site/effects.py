"""The settings of a site's rounds, and the effects that they ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pgfl.algorithms.roles import Publication, RoundRequest
from pgfl.arrays import AnyArray


@dataclass(frozen=True)
class Members:
    """Whom the operator admitted, by name with their clusters, the neighbours that are linked, and who is invited."""

    clients: Mapping[str, str]
    neighbours: frozenset[str]
    invited: frozenset[tuple[str, str]] = frozenset()  # kind and name


@dataclass(frozen=True)
class Rollback:
    """Models to take back, those of the start if there are none, and the rounds of all rollbacks so far.

    Rounds go on after `round`, a number that was never used, up to `last`: those that were played are played anew.
    """

    past: Snapshot | None
    rollbacks: tuple[int, ...]
    round: int
    last: int


@dataclass(frozen=True)
class Timing:
    """How long a site waits, in seconds, and how old a neighbour's publication may be, in rounds."""

    answers: float = 30.0
    exchange: float = 15.0
    start: float = 60.0
    give_up: float | None = None  # alone for so long: stop (a later start continues); None: wait for ever
    staleness: int = 1
    linger: float = 3600.0  # after the last round, for those who were away
    pace: float = 1.0  # the least time from the opening of one round to the next
    patience: float = 3.0  # times the usual time of an answer after which a round closes without the others


@dataclass(frozen=True)
class Quorum:
    """Who must be there for a round to open; with the defaults nobody's budget is spent on training alone."""

    clients: float = 0.5  # of the admitted clients that have budget left, as a share
    neighbours: int = 1  # that are reached, ready and at the same round; fewer if fewer are linked
    apart: int = 0  # rounds in a row that may be trained with fewer neighbours


class Phase(StrEnum):
    """Where in a round a site is."""

    WAITING = "waiting"
    COLLECTING = "collecting"
    UNMASKING = "unmasking"
    EXCHANGING = "exchanging"
    FINISHED = "finished"


Snapshot = Mapping[str, AnyArray]


@dataclass(frozen=True)
class Ask:
    """Send this request to this client."""

    client: str
    request: RoundRequest


@dataclass(frozen=True)
class Send:
    """Send these bytes to this client: a message of masked sums."""

    client: str
    frame: bytes


@dataclass(frozen=True)
class Publish:
    """Send this publication to all neighbours."""

    round: int
    publication: Publication


@dataclass(frozen=True)
class Completed:
    """A round is over: save the snapshot and who was accepted before anything else happens."""

    round: int
    snapshot: Snapshot
    accepted: tuple[str, ...]
    late: tuple[str, ...]
    neighbours: tuple[str, ...]
    absent: tuple[str, ...]
    retired: tuple[str, ...]


@dataclass(frozen=True)
class Changed:
    """The members have changed; the new ones count from `round` on."""

    round: int
    admitted: tuple[str, ...] = ()
    expelled: tuple[str, ...] = ()
    linked: tuple[str, ...] = ()
    unlinked: tuple[str, ...] = ()
    rolled_back: bool = False


@dataclass(frozen=True)
class Finished:
    """Nothing more will happen here: the training is over, or this site gives up and a later start goes on."""

    round: int
    reason: str
    training_over: bool = False


@dataclass(frozen=True)
class Note:
    """A line for the operator's log; lines about one subject that others can cause are logged sparingly."""

    text: str
    about: str | None = field(default=None, compare=False)


Effect = Ask | Send | Publish | Completed | Changed | Finished | Note
Handle = Callable[[Callable[[], list[Effect]]], None]
"""Carries out an event, and the effects that it has."""
