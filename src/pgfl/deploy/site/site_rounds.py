"""A site's side of the rounds, without I/O: events and the time go in, effects come out.

    waiting ──► collecting answers of round n ──► exchanging with neighbours ──► completed, n + 1 … ──► finished

The clock is an argument, so a test can run years in a second. The arithmetic is the role's. What is decided here:
when a round closes, whose answer counts, which neighbours are waited for, and what a site that fell behind does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from pgfl.array_types import AnyArray
from pgfl.core.roles import Answer, Publication, RoundRequest

Snapshot = Mapping[str, AnyArray]


class SiteRole(Protocol):
    """What the rounds need of a server; the models never leave it except inside requests and publications."""

    def request(self, client: str, round: int) -> RoundRequest:
        """What this client is asked in this round; the same for a repeated question."""
        ...

    def aggregate(self, round: int, answers: Mapping[str, Answer], retired: Collection[str]) -> Publication:
        """Close the collection; returns what is sent to the neighbours. `retired` clients declined for good."""
        ...

    def combine(self, round: int, publications: Mapping[str, Publication]) -> None:
        """Close the round with what the neighbours published."""
        ...

    def snapshot(self) -> Snapshot:
        """All that a later start needs to go on from here."""
        ...


@dataclass(frozen=True)
class Timing:
    """How long a site waits, in seconds, and how old a neighbour's publication may be, in rounds."""

    answers: float = 30.0
    exchange: float = 15.0
    start: float = 60.0
    give_up: float | None = None  # alone for so long: stop (a later start continues); None: wait for ever
    staleness: int = 1


class Phase(StrEnum):
    """Where in a round a site is."""

    WAITING = "waiting"
    COLLECTING = "collecting"
    EXCHANGING = "exchanging"
    FINISHED = "finished"


@dataclass(frozen=True)
class Ask:
    """Send this request to this client."""

    client: str
    request: RoundRequest


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
class Finished:
    """Nothing more will happen."""

    round: int
    reason: str


@dataclass(frozen=True)
class Note:
    """A line for the operator's log."""

    text: str


_KEPT_AHEAD = 3
Effect = Ask | Publish | Completed | Finished | Note
Choose = Callable[[int, list[str]], list[str]]


@dataclass
class SiteRounds:
    """The state machine. Every method returns the effects to carry out, in order."""

    role: SiteRole
    rounds: int
    neighbours: set[str]
    admitted: set[str]
    timing: Timing
    choose: Choose = lambda round, connected: connected
    round: int = 0  # the last completed round
    phase: Phase = Phase.WAITING
    refused: Counter[str] = field(default_factory=Counter)
    deadline: float | None = None
    connected: set[str] = field(default_factory=set)
    up: set[str] = field(default_factory=set)
    retired: set[str] = field(default_factory=set)  # clients that declined for good
    _suspects: set[str] = field(default_factory=set)
    _received: dict[str, dict[int, Publication]] = field(default_factory=dict)
    _asked: dict[str, RoundRequest] = field(default_factory=dict)
    _answers: dict[str, Answer] = field(default_factory=dict)
    _declined: set[str] = field(default_factory=set)
    _retired_then: tuple[str, ...] = ()  # when this round was aggregated
    _opened: bool = False
    _start_by: float = 0.0
    _alone_since: float | None = None
    _pause_until: float | None = None

    @property
    def current(self) -> int:
        """The round that is under way, or the last one if none is."""
        return self.round + 1 if self.phase in (Phase.COLLECTING, Phase.EXCHANGING) else self.round

    @property
    def pending(self) -> set[str]:
        """Clients that were asked and have neither answered nor declined."""
        return set(self._asked) - set(self._answers) - self._declined

    @property
    def awaited(self) -> set[str]:
        """Neighbours whose publication of this round is still waited for."""
        return {
            peer
            for peer in (self.up & self.neighbours) - self._suspects
            if self._newest(peer) < self.current and self.current not in self._received.get(peer, {})
        }

    def start(self, now: float) -> list[Effect]:
        """Begin to wait for clients and neighbours."""
        self._start_by = now + self.timing.start
        return self._advance(now)

    def tick(self, now: float) -> list[Effect]:
        """The time is now; call it when `deadline` has come."""
        return self._advance(now)

    def admit(self, client: str, now: float) -> list[Effect]:
        """The operator admitted another client; it takes part from the next round on."""
        self.admitted.add(client)
        return self._advance(now)

    def link(self, peer: str, now: float) -> list[Effect]:
        """The operator linked another neighbour."""
        self.neighbours.add(peer)
        return self._advance(now)

    def client_connected(self, client: str, now: float) -> list[Effect]:
        """A client's stream is open; a question that it has not answered yet is put again."""
        if client not in self.admitted:
            return self._refuse("unadmitted", f"client {client} is not admitted here")
        self.connected.add(client)
        self.retired.discard(client)
        again: list[Effect] = []
        if self.phase is Phase.COLLECTING and client in self.pending:
            again.append(Ask(client, self._asked[client]))
        return again + self._advance(now)

    def client_gone(self, client: str, now: float) -> list[Effect]:
        """A client's stream broke; its answer is waited for until the deadline, it may be back."""
        self.connected.discard(client)
        return self._advance(now)

    def answered(self, client: str, round: int, answer: Answer, now: float) -> list[Effect]:
        """An answer came in; only the first to the open question of the current round counts."""
        if self.phase is not Phase.COLLECTING or round != self.current:
            return self._refuse("late", f"client {client} answered round {round}, now is {self.current}: not counted")
        if client not in self._asked:
            return self._refuse("unasked", f"client {client} answered round {round} without being asked")
        if client not in self.pending:
            return self._refuse("duplicate", f"client {client} answered round {round} again; the first answer stands")
        self._answers[client] = answer
        return self._advance(now)

    def declined(self, client: str, round: int, final: bool, reason: str, now: float) -> list[Effect]:
        """A client takes no part in this round, or (budget spent) in none."""
        if final:
            self.retired.add(client)
        if self.phase is Phase.COLLECTING and round == self.current and client in self.pending:
            self._declined.add(client)
        return [Note(f"client {client} declines round {round}: {reason}"), *self._advance(now)]

    def peer_up(self, peer: str, now: float) -> list[Effect]:
        """The link to a neighbour works."""
        self.up.add(peer)
        return self._advance(now)

    def peer_down(self, peer: str, now: float) -> list[Effect]:
        """The link to a neighbour broke; it is not waited for until it is back."""
        self.up.discard(peer)
        return self._advance(now)

    def published(self, peer: str, round: int, publication: Publication, now: float) -> list[Effect]:
        """A neighbour's publication arrived; a round that it published before is refused as a replay."""
        if peer not in self.neighbours:
            return self._refuse("unlinked", f"site {peer} is not linked")
        if round > self.rounds:
            return self._refuse("beyond", f"site {peer} published round {round}, beyond the last, {self.rounds}")
        received = self._received.setdefault(peer, {})
        if round in received or round < self._newest(peer) - self.timing.staleness:
            return self._refuse("replayed", f"site {peer} published round {round} again; the first one stands")
        received[round] = publication
        for old in sorted(received)[: -(self.timing.staleness + _KEPT_AHEAD)]:
            del received[old]
        self._suspects.discard(peer)  # it is at work: waited for, it can catch up; else it would run behind for ever
        return self._advance(now)

    def _advance(self, now: float) -> list[Effect]:
        """As far as the present state allows; each turn of the loop ends a phase, so it ends."""
        phases = {Phase.WAITING: self._wait, Phase.COLLECTING: self._collect, Phase.EXCHANGING: self._exchange}
        effects: list[Effect] = []
        while self.phase in phases:
            step = phases[self.phase](now)
            if step is None:
                break
            effects += step
        return effects

    def _wait(self, now: float) -> list[Effect] | None:
        if self.round >= self.rounds:
            return self._finish("all rounds are done")
        catching_up = self._catch_up()
        if catching_up is not None:
            return catching_up
        able, peers = self.connected - self.retired, self.up & self.neighbours
        if not able and not peers:
            spent = self.admitted and self.admitted <= self.retired and not self.neighbours
            return self._finish("every client has spent its privacy budget") if spent else self._alone(now)
        self._alone_since = None
        if not self._opened:
            everyone = self.admitted - self.retired <= self.connected and self.neighbours <= self.up
            until = now if everyone else self._start_by
        elif able or peers - self._suspects:
            until = now
        else:  # nobody to ask and nobody in time: rounds must not race by
            until = self._pause_until = self._pause_until or now + self.timing.exchange
        if now < until:
            self.deadline = until
            return None
        return self._open(now)

    def _alone(self, now: float) -> list[Effect] | None:
        if self.timing.give_up is None:
            self.deadline = None
            return None
        self._alone_since = now if self._alone_since is None else self._alone_since
        self.deadline = self._alone_since + self.timing.give_up
        return self._finish("no client and no neighbour is left") if now >= self.deadline else None

    def _open(self, now: float) -> list[Effect]:
        self.phase = Phase.COLLECTING
        self._opened = True
        self._pause_until = None
        self.deadline = now + self.timing.answers
        able = sorted((self.connected & self.admitted) - self.retired)
        chosen = self.choose(self.current, able) if able else []
        self._asked = {client: self.role.request(client, self.current) for client in chosen}
        self._answers, self._declined = {}, set()
        return [Ask(client, request) for client, request in self._asked.items()]

    def _collect(self, now: float) -> list[Effect] | None:
        if self.pending and (self.deadline is None or now < self.deadline):
            return None
        late = sorted(self.pending)
        notes: list[Effect] = [Note(f"round {self.current} closes without {client}") for client in late]
        return notes + self._publish(now)

    def _publish(self, now: float) -> list[Effect]:
        self._retired_then = tuple(sorted(self.retired))
        publication = self.role.aggregate(self.current, self._answers, self._retired_then)
        self.phase = Phase.EXCHANGING
        self.deadline = now + self.timing.exchange
        return [Publish(self.current, publication)]

    def _exchange(self, now: float) -> list[Effect] | None:
        awaited = self.awaited
        if awaited and (self.deadline is None or now < self.deadline):
            return None
        self._suspects |= awaited
        effects: list[Effect] = [
            Note(f"round {self.current} goes on without site {peer}, which is late") for peer in sorted(awaited)
        ]
        present = {}
        for peer in sorted(self.neighbours):
            publication = self._usable(peer)
            if publication is not None:
                present[peer] = publication
        self.role.combine(self.current, present)
        self.round = self.current
        self.phase = Phase.WAITING
        self.deadline = None
        effects.append(
            Completed(
                round=self.round,
                snapshot=self.role.snapshot(),
                accepted=tuple(sorted(self._answers)),
                late=tuple(sorted(self.pending)),
                neighbours=tuple(present),
                absent=tuple(sorted(self.neighbours - set(present))),
                retired=self._retired_then,
            )
        )
        self._asked, self._answers, self._declined = {}, {}, set()
        return effects

    def _catch_up(self) -> list[Effect] | None:
        """Neighbours are rounds ahead: take their newest round over without asking any client, then go on with them."""
        ahead = max((self._newest(peer) for peer in self.neighbours), default=0)
        if ahead <= self.round + 1:
            return None
        behind = self.round
        self.round = ahead - 1
        self.phase = Phase.EXCHANGING
        self.deadline = None
        self._asked, self._answers, self._declined = {}, {}, set()
        self._opened = True
        self._suspects |= {peer for peer in self.neighbours if self._newest(peer) < ahead}
        self._retired_then = tuple(sorted(self.retired))
        publication = self.role.aggregate(ahead, {}, self._retired_then)
        return [
            Note(f"catching up from round {behind} to {ahead} with the neighbours' models"),
            Publish(ahead, publication),
        ]

    def _newest(self, peer: str) -> int:
        return max(self._received.get(peer, {}), default=0)

    def _usable(self, peer: str) -> Publication | None:
        """This round's publication, or the newest one that is not too old."""
        received = self._received.get(peer, {})
        if self.current in received:
            return received[self.current]
        newest = self._newest(peer)
        return received[newest] if newest and newest >= self.current - self.timing.staleness else None

    def _finish(self, reason: str) -> list[Effect]:
        self.phase = Phase.FINISHED
        self.deadline = None
        return [Finished(self.round, reason)]

    def _refuse(self, why: str, text: str) -> list[Effect]:
        self.refused[why] += 1
        return [Note(text)]


def asked(effects: Iterable[Effect]) -> dict[str, RoundRequest]:
    """The questions among some effects, by client."""
    return {effect.client: effect.request for effect in effects if isinstance(effect, Ask)}
