"""What a site's rounds ask for: effects, which are data, carried out by the site that runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pgfl.array_types import AnyArray
from pgfl.core.roles import Publication, RoundRequest

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


def asked(effects: Iterable[Effect]) -> dict[str, RoundRequest]:
    """The questions among some effects, by client."""
    return {effect.client: effect.request for effect in effects if isinstance(effect, Ask)}
