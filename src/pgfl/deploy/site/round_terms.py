"""The terms of a site's rounds: who takes part, how long is waited, who must be there, and the phases of a round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pgfl.deploy.site.round_effects import Snapshot


@dataclass(frozen=True)
class Members:
    """Whom the operator admitted, by name with their clusters, and the neighbours that are linked."""

    clients: Mapping[str, str]
    neighbours: frozenset[str]


@dataclass(frozen=True)
class Rollback:
    """Models to take back, those of the start if there are none, and the rounds of all rollbacks so far."""

    past: Snapshot | None
    rollbacks: tuple[int, ...]


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
