"""A site's side of the rounds, without I/O: events and the time go in, effects come out.

    waiting ──► collecting answers of round n ──► exchanging with neighbours ──► completed, n + 1 … ──► finished
                           └─► unmasking sums, if there are any ─┘

The clock is an argument, so a test can run years in a second. The arithmetic is the role's. What is decided here:
when a round closes, whose answer counts, which neighbours are waited for, and what a site that fell behind does.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from statistics import median_low

from pgfl.algorithms.accuracy import Refusal
from pgfl.algorithms.roles import Answer, Publication, RoundRequest
from pgfl.masking.terms import Reason
from pgfl.network.site.effects import (
    Ask,
    Changed,
    Completed,
    Effect,
    Finished,
    Members,
    Note,
    Phase,
    Publish,
    Quorum,
    Rollback,
    Send,
    Timing,
)
from pgfl.network.site.masked_pairs import MaskedPairs
from pgfl.network.site.role import SiteRole

_KEPT_AHEAD = 3
_LONGEST_BACK_OFF = 64  # rounds that a silent client sits out
_REMEMBERED_ANSWERS = 64  # that say how long one usually takes
_LEAST_ANSWERS = 4  # before which nothing is usual
_REASONS = frozenset(map(str, (*Refusal, *Reason)))  # whatever else a client says is not repeated
Choose = Callable[[int, list[str]], list[str]]


@dataclass
class SiteRounds:
    """The state machine. Every method returns the effects to carry out, in order."""

    role: SiteRole
    rounds: int  # the number of the last round
    neighbours: set[str]
    admitted: set[str]
    timing: Timing
    quorum: Quorum = field(default_factory=Quorum)
    choose: Choose = lambda round, connected: connected
    masked: MaskedPairs | None = None
    round: int = 0  # the last completed round
    idle: float = 0.0  # seconds from the last completed round to the start, of a site that was started again
    phase: Phase = Phase.WAITING
    refused: Counter[str] = field(default_factory=Counter)
    answers: dict[str, Counter[str]] = field(default_factory=dict)  # of each client, by what became of them
    fruitless: int = 0  # the last rounds, in a row, in which clients were asked and no answer counted
    deadline: float | None = None
    connected: set[str] = field(default_factory=set)
    up: set[str] = field(default_factory=set)
    retired: set[str] = field(default_factory=set)  # clients that declined for good
    invited: frozenset[tuple[str, str]] = frozenset()  # kind and name of those who can still come by an invitation
    apart: int = 0  # the last rounds, in a row, that were trained with too few neighbours
    _ready_peers: set[str] = field(default_factory=set)
    _suspects: set[str] = field(default_factory=set)
    _received: dict[str, dict[int, Publication]] = field(default_factory=dict)
    _asked: dict[str, RoundRequest] = field(default_factory=dict)
    _answers: dict[str, Answer] = field(default_factory=dict)
    _outstanding: dict[str, RoundRequest] = field(default_factory=dict)  # of earlier rounds, still unanswered
    _late: dict[str, tuple[Answer, RoundRequest]] = field(default_factory=dict)  # for the next aggregate
    _durations: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_ANSWERS))  # of answers, seconds
    _close_by: float = math.inf
    _frames: dict[str, bytes] = field(default_factory=dict)  # requests for masked answers
    _contributed: set[str] = field(default_factory=set)  # clients whose masked answers are here
    _declined: set[str] = field(default_factory=set)
    _retired_then: tuple[str, ...] = ()  # when this round was aggregated
    _opened: bool = False
    _start_by: float = 0.0
    _start_over: bool = False
    _opened_at: float = -math.inf
    _in_step: tuple[int, float] | None = None  # the last round that was in step with a neighbour, and when it ended
    _fastest: float = 0.0  # seconds of the fastest round here; 0 while there was none
    _noted: str | None = None
    _alone_since: float | None = None
    _pause_until: float | None = None
    _misses: dict[str, tuple[int, int]] = field(default_factory=dict)  # rounds missed in a row, and sat out until
    _next_members: Members | None = None  # they count between rounds
    _rollback: Rollback | None = None  # with them

    @property
    def current(self) -> int:
        """The round that is under way, or the last one if none is."""
        return self.round if self.phase in (Phase.WAITING, Phase.FINISHED) else self.round + 1

    @property
    def pending(self) -> set[str]:
        """Clients that were asked and have neither answered nor declined."""
        return set(self._asked) - set(self._answers) - self._contributed - self._declined

    @property
    def awaited(self) -> set[str]:
        """Neighbours whose publication of this round is still waited for."""
        return {
            peer
            for peer in (self.up & self._staying) - self._suspects
            if self._newest(peer) < self.current and self.current not in self._received.get(peer, {})
        }

    @property
    def _staying(self) -> set[str]:
        """Neighbours that are not about to be unlinked."""
        return self.neighbours if self._next_members is None else self.neighbours & self._next_members.neighbours

    @property
    def able(self) -> set[str]:
        """Clients that can be asked."""
        return (self.connected & self.admitted) - self.retired

    @property
    def ready(self) -> bool:
        """Whether enough of this site's own clients are there, so that its neighbours may begin."""
        if self._opened:
            return True
        everyone = self.admitted - self.retired <= self.connected and not self._expected("client")
        return everyone or (self._start_over and self._missing_clients() is None)

    @property
    def missing(self) -> str | None:
        """What the quorum for the next round lacks, in words; None if it is there."""
        return self._missing_clients() or self._missing_neighbours()

    def _expected(self, kind: str) -> int:
        """How many who are invited are waited for like members: all of them until the first round of the training."""
        return 0 if self._opened or self.round else sum(invited == kind for invited, _ in self.invited)

    def _missing_clients(self) -> str | None:
        expected = len(self.admitted - self.retired) + self._expected("client")
        needed = math.ceil(self.quorum.clients * expected)
        if len(self.able) >= needed:
            return None
        return f"{len(self.able)} of {expected} clients are connected, {needed} are needed"

    def _missing_neighbours(self) -> str | None:
        if unconfirmed := self._unconfirmed():
            return unconfirmed
        level = {peer for peer in self.up & self.neighbours & self._ready_peers if self._is_level(peer)}
        if self.round + 2 >= self.rounds:  # those who are done may be gone, but their last models are here
            level |= {peer for peer in self.neighbours if self.rounds in self._received.get(peer, {})}
        if self.apart < self.quorum.apart or len(level) >= self._needed_neighbours:
            return None
        expected = len(self.neighbours) + self._expected("site")
        return (
            f"{len(level)} of {expected} neighbours are here and at round {self.round}, "
            f"{self._needed_neighbours} are needed"
        )

    @property
    def _needed_neighbours(self) -> int:
        return min(self.quorum.neighbours, len(self.neighbours) + self._expected("site"))

    def _is_level(self, peer: str) -> bool:
        return self._newest(peer) >= self.round - self.timing.staleness

    def start(self, now: float) -> list[Effect]:
        """Begin to wait for clients and neighbours."""
        self._start_by = now + self.timing.start
        self._in_step = (self.round, now - self.idle) if self.round else None
        return self._advance(now)

    def tick(self, now: float) -> list[Effect]:
        """Advance to the time `now`; to be called at `deadline`."""
        return self._advance(now)

    def change(self, members: Members, now: float, rollback: Rollback | None = None) -> list[Effect]:
        """Take over new members, or a rollback, from the next round on.

        The round under way keeps its members, but waits for nobody who leaves.
        """
        self._next_members, self._rollback = members, rollback
        self._declined |= self.pending - members.clients.keys()
        if self.phase is Phase.FINISHED and rollback is not None:
            self.phase = Phase.WAITING
        if self.phase is Phase.FINISHED:
            return self._adopt()
        return self._advance(now)

    def _adopt(self) -> list[Effect]:
        members, self._next_members = self._next_members, None
        assert members is not None
        admitted, neighbours, self.invited = set(members.clients), set(members.neighbours), members.invited
        self.role.adopt(members)
        changed = Changed(
            round=(self.round if self._rollback is None else self._rollback.round) + 1,
            admitted=tuple(sorted(admitted - self.admitted)),
            expelled=tuple(sorted(self.admitted - admitted)),
            linked=tuple(sorted(neighbours - self.neighbours)),
            unlinked=tuple(sorted(self.neighbours - neighbours)),
            rolled_back=self._rollback is not None,
        )
        if self._rollback is not None:
            self.role.roll_back(self._rollback)
            self.round, self.rounds = self._rollback.round, self._rollback.last
            self._rollback = None
            for known in (self._misses, self._outstanding, self._late):
                known.clear()
            self._received.clear()  # what neighbours published before belongs to what was taken back
        for left in changed.unlinked:
            self._received.pop(left, None)
        self.admitted, self.neighbours = admitted, neighbours
        self.connected &= admitted
        for gone in (self._outstanding.keys() | self._late.keys()) - admitted:
            self._outstanding.pop(gone, None)
            self._late.pop(gone, None)
        self.up &= neighbours
        self._suspects &= neighbours
        self._ready_peers &= neighbours
        return [changed]

    def on_client_connected(self, client: str, now: float) -> list[Effect]:
        """Handle a new stream; a pending request is sent again."""
        if client not in self.admitted:
            return self._refuse("unadmitted", f"client {client}", "is not admitted here")
        self.connected.add(client)
        self.retired.discard(client)
        self._misses.pop(client, None)
        again: list[Effect] = []
        if self.phase is Phase.COLLECTING and client in self.pending:
            again.append(self._question(client))
        elif client in self._outstanding:
            again.append(Ask(client, self._outstanding[client]))
        return again + self._advance(now)

    def on_client_disconnected(self, client: str, now: float) -> list[Effect]:
        """Handle a lost stream; its answer is waited for until the deadline, as it may come back."""
        self.connected.discard(client)
        return self._advance(now)

    def on_answer(self, client: str, round: int, answer: Answer, now: float) -> list[Effect]:
        """Handle an answer; only the first to the open request of the current round counts."""
        who = f"client {client}"
        if client in self._outstanding and self._outstanding[client].round == round:
            return self._on_late_answer(client, answer, now)
        if self.phase is not Phase.COLLECTING or round != self.current:
            return self._refuse("late", who, f"answered round {round}, now is {self.current}: not counted")
        if client not in self._asked:
            return self._refuse("unasked", who, f"answered round {round} without being asked")
        if client in self._answers or client in self._declined:
            return self._refuse("duplicate", who, f"answered round {round} again; the first answer stands")
        if refusal := self.role.judge(client, answer):
            self._declined.add(client)
            self.count(client, "refused: beyond its bound")
            return self._refuse("bound", who, f"is refused in round {round}: {refusal}") + self._advance(now)
        self._answers[client] = answer
        self._durations.append(now - self._opened_at)
        self._misses.pop(client, None)
        return self._advance(now)

    def _on_late_answer(self, client: str, answer: Answer, now: float) -> list[Effect]:
        """Handle the answer to an earlier round: it was paid for, so it counts in the next aggregate."""
        request = self._outstanding.pop(client)
        self._misses.pop(client, None)
        self._durations.append(now - self._opened_at + self.timing.pace)  # at least: it was asked before this round
        if refusal := self.role.judge(client, answer, request):
            self.count(client, "refused: beyond its bound")
            return self._refuse("bound", f"client {client}", f"is refused: {refusal}") + self._advance(now)
        self._late[client] = answer, request
        return self._advance(now)

    def on_malformed_answer(self, client: str, now: float) -> list[Effect]:
        """Handle an answer that cannot be read: no other one is waited for."""
        self.count(client, "refused: malformed")
        if self.phase is Phase.COLLECTING and client in self.pending:
            self._declined.add(client)
        return self._advance(now)

    def on_decline(self, client: str, round: int, final: bool, reason: str, now: float) -> list[Effect]:
        """Handle a refusal of this round or, if it is `final` (budget spent), of all rounds."""
        if final:
            self.retired.add(client)
        self.count(client, f"declined: {reason if reason in _REASONS else 'for another reason'}")
        if self.phase is Phase.COLLECTING and round == self.current and client in self.pending:
            self._declined.add(client)
            self._misses.pop(client, None)
        if client in self._outstanding and self._outstanding[client].round == round:
            del self._outstanding[client]
        if self.masked is not None and round == self.current:
            self.masked.drop(client, unprepared=reason == Reason.UNPREPARED)
        declines = Note(f"client {client} declines round {round}: {reason}", about=f"declined {client} {reason}")
        return [declines, *self._advance(now)]

    def on_masked_answer(self, client: str, round: int, take: Callable[[], bool], now: float) -> list[Effect]:
        """Handle a masked answer; `take` hands it over, and returns False if it is not what was asked for."""
        if self.phase is not Phase.COLLECTING or round != self.current or client not in self._frames:
            return self._refuse(
                "late", f"client {client}", f"answered round {round}, now is {self.current}: not counted"
            )
        if client not in self._contributed and client not in self._declined and take():
            self._contributed.add(client)
            self._misses.pop(client, None)
        return self._advance(now)

    def count(self, client: str, outcome: str) -> None:
        """Count what became of a request to a client."""
        self.answers.setdefault(client, Counter())[outcome] += 1

    def on_masked_message(self, handle: Callable[[], Sequence[Effect]], now: float) -> list[Effect]:
        """Handle any other message of masked sums with `handle`."""
        return [*handle(), *self._advance(now)]

    def on_budgets_spent(self, clients: Collection[str], now: float) -> list[Effect]:
        """Retire clients whose accounts at this site are spent."""
        new = sorted(set(clients) & self.admitted - self.retired)
        self.retired |= set(new)
        notes: list[Effect] = [Note(f"client {client} has spent its privacy budget at this site") for client in new]
        return notes + self._advance(now)

    def on_peer_up(self, peer: str, now: float, ready: bool = True) -> list[Effect]:
        """Handle a working link; the neighbour is `ready` when enough of its own clients are connected."""
        self.up.add(peer)
        (self._ready_peers.add if ready else self._ready_peers.discard)(peer)
        return self._advance(now)

    def on_peer_down(self, peer: str, now: float) -> list[Effect]:
        """Handle a broken link; the neighbour is not waited for until it is back."""
        self.up.discard(peer)
        return self._advance(now)

    def on_publication(self, peer: str, round: int, publication: Publication, now: float) -> list[Effect]:
        """Handle a neighbour's publication; a round that it published before is refused as a replay."""
        if peer not in self.neighbours:
            return self._refuse("unlinked", f"site {peer}", "is not linked")
        if round > self.rounds:
            return self._refuse("beyond", f"site {peer}", f"published round {round}, beyond the last, {self.rounds}")
        received = self._received.setdefault(peer, {})
        if round < self._newest(peer) > self._credible(now) + 1:  # it was never there: it took its claim back
            received.clear()
        if round in received or round < self._newest(peer) - self.timing.staleness:
            return self._refuse("replayed", f"site {peer}", f"published round {round} again; the first one stands")
        received[round] = publication
        for old in sorted(received)[: -(self.timing.staleness + _KEPT_AHEAD)]:
            del received[old]
        self._suspects.discard(peer)  # it is at work: waited for, it can catch up; else it would run behind for ever
        return self._doubt(peer, round, now) + self._advance(now)

    def _doubt(self, peer: str, round: int, now: float) -> list[Effect]:
        """Name a neighbour whose claim is not followed, or not yet."""
        if round <= max(self._credible(now), self.current) + 1:
            return []
        claim = f"claims round {round}, now is {self.current}: not followed, because no other neighbour confirms it"
        return self._refuse("ahead", f"site {peer}", claim)

    def _advance(self, now: float) -> list[Effect]:
        """Advance as far as the state allows; each turn of the loop ends a phase, so it terminates."""
        phases = {
            Phase.WAITING: self._wait, Phase.COLLECTING: self._collect, Phase.UNMASKING: self._unmask,
            Phase.EXCHANGING: self._exchange,
        }  # fmt: skip
        effects: list[Effect] = [] if self.masked is None else list(self.masked.proceed(self.able, now))
        while self.phase in phases:
            step = phases[self.phase](now)
            if step is None:
                break
            effects += step
        return effects

    def _wait(self, now: float) -> list[Effect] | None:
        if self._next_members is not None:
            return self._adopt()
        if self.round >= self.rounds:
            return self._finish("all rounds are done", training_over=True)
        if self.admitted and self.admitted <= self.retired and not self.neighbours:
            return self._finish("every client has spent its privacy budget", training_over=True)
        self._start_over = now >= self._start_by
        if self.missing:
            return self._wait_or_give_up(now)
        catching_up = self._catch_up(now)
        if catching_up is not None:
            return catching_up
        able, peers = self.able, self.up & self.neighbours
        if not able and not peers:
            return self._wait_or_give_up(now)
        self._alone_since = self._noted = None
        if not self._opened:
            here = self.admitted - self.retired <= self.connected and self.neighbours <= self.up & self._ready_peers
            everyone = here and not self._expected("client") and not self._expected("site")
            until = now if everyone else self._start_by
        elif able and able <= self._outstanding.keys() and not self._late:
            until = self._opened_at + self.timing.answers  # everyone is still computing: rounds must not race by
        elif (able and not self._nobody_to_ask()) or (peers - self._suspects and not able):
            until = now
        else:  # nobody to ask and nobody in time: rounds must not race by
            until = self._pause_until = self._pause_until or now + self.timing.exchange
        until = max(until, self._opened_at + self.timing.pace)
        if now < until:
            self.deadline = until
            return None
        return self._open(now) if self.masked is None else self._open_prepared(self.masked, now)

    def _open_prepared(self, masked: MaskedPairs, now: float) -> list[Effect] | None:
        """Open a round once its masked sums are prepared; one that has a cohort left does not wait for the next."""
        begun: list[Effect] = list(masked.prepare(self.able, now))
        until = masked.preparing(self.able)
        if until is not None:
            self.deadline = until
            return begun or None
        return begun + self._open(now)

    def _nobody_to_ask(self) -> bool:
        """Whether only clients are here whose masked sums could be prepared and failed."""
        return self._opened and self.masked is not None and self.masked.stuck(self.able)

    def _wait_or_give_up(self, now: float) -> list[Effect] | None:
        """Wait because too few are connected, or give up after a time."""
        why = self.missing if self.able or self.up else "no client and no neighbour is left"
        self.deadline = None if self._start_over else self._start_by
        if self.timing.give_up is not None:
            self._alone_since = now if self._alone_since is None else self._alone_since
            until = self._alone_since + self.timing.give_up
            if now >= until:
                return self._finish(why or "too few are here")
            self.deadline = until if self.deadline is None else min(until, self.deadline)
        if self._start_over and why != self._noted:
            self._noted = why
            return [Note(f"round {self.round + 1} waits: {why}")]
        return None

    def _open(self, now: float) -> list[Effect]:
        self.phase = Phase.COLLECTING
        self._opened = True
        self._opened_at = now
        self._pause_until = None
        self.deadline = self._close_by = now + self.timing.answers
        able = sorted(self._due())
        chosen = self.choose(self.current, able) if able else []
        again = [client for client in sorted(self._outstanding) if self._is_due(client) or not able]
        self._forget_round()
        self._asked = {client: self.role.request(client, self.current) for client in chosen}
        self._frames = {} if self.masked is None else self.masked.open(self._asked)
        repeated: list[Effect] = [Ask(client, self._outstanding[client]) for client in again if client in self.able]
        for client in again:
            self._miss(client)
        return repeated + [self._question(client) for client in self._asked]

    def _question(self, client: str) -> Effect:
        """What a client is asked in this round."""
        if client in self._frames:
            return Send(client, self._frames[client])
        return Ask(client, self._asked[client])

    def _forget_round(self) -> None:
        if self.masked is not None:
            self.masked.forget()
        self._asked, self._answers, self._frames, self._contributed, self._declined = {}, {}, {}, set(), set()

    def _collect(self, now: float) -> list[Effect] | None:
        settled = len(self._answers) + len(self._contributed) + len(self._declined)  # each client once
        self.deadline = self._closing_time(settled)
        if settled < len(self._asked) and now < self.deadline:
            return None
        late = sorted(self.pending)
        notes: list[Effect] = []
        for client in late:
            self.count(client, "late")
            self._miss(client)
            when = f"asked again in round {self._misses[client][1] + 1}"
            if not self._belongs_to_a_sum(client):
                self._outstanding[client] = self._asked[client]
                when = "its answer counts when it comes"
            text = f"round {self.current} closes without {client} after {now - self._opened_at:.3g} s; {when}"
            notes.append(Note(text, about=f"straggler {client}"))
        if self.masked is None or not self.masked.busy:
            return notes + self._publish(now)
        self.phase = Phase.UNMASKING
        self.deadline = now + self.timing.answers
        return notes + list(self.masked.advance(self.connected, over=True))

    def _unmask(self, now: float) -> list[Effect] | None:
        """The stages of masked sums after the contributions; each may take as long as answers may."""
        assert self.masked is not None
        over = self.deadline is not None and now >= self.deadline
        effects: list[Effect] = list(self.masked.advance(self.connected, over))
        if not self.masked.busy:
            return effects + self._publish(now)
        if effects:
            self.deadline = now + self.timing.answers
        return effects or None

    def _closing_time(self, settled: int) -> float:
        """When this round closes without the others: early, once a quorum has answered and the usual time is over."""
        usual = median_low(self._durations) if len(self._durations) >= _LEAST_ANSWERS else math.inf
        if self._frames or any(self._belongs_to_a_sum(client) for client in self.pending):
            return self._close_by  # a masked sum needs its cohort, and what is paid for must be able to count
        if settled < max(1.0, self.quorum.clients * len(self._asked)):
            return self._close_by
        return min(self._close_by, self._opened_at + max(self.timing.pace, self.timing.patience * usual))

    def _belongs_to_a_sum(self, client: str) -> bool:
        """Whether a client's answer is part of a noised sum, which is made once: later it cannot count."""
        return client in self._frames or self.role.entrusted(client)

    def _miss(self, client: str) -> None:
        misses, _ = self._misses.get(client, (0, 0))
        self._misses[client] = misses + 1, self.current + min(2**misses, _LONGEST_BACK_OFF)

    def _is_due(self, client: str) -> bool:
        return self._misses.get(client, (0, 0))[1] < self.current

    def _due(self) -> set[str]:
        """Clients that are asked now.

        Nobody is asked, and charged, while its last answer is on the way. A client that let masked rounds pass in
        silence sits out 1, 2, 4, … rounds; as seldom an unanswered request is repeated.
        """
        free = self.able - self._outstanding.keys() - self._late.keys()
        due = {client for client in free if self._is_due(client)}
        return due or free

    def _publish(self, now: float) -> list[Effect]:
        self._retired_then = tuple(sorted(self.retired))
        late, self._late = self._late, {}
        publication = self.role.aggregate(self.current, self._answers, self._retired_then, late)
        self.phase = Phase.EXCHANGING
        self.deadline = now + self.timing.exchange
        notes: list[Effect] = []
        for client, times in self.role.outliers.items():
            self.count(client, "refused: far from the others")
            why = f"is refused in round {self.current}: it is {times:.3g} times as far from the model as usual"
            notes += self._refuse("bound", f"client {client}", why)
        return [*notes, Publish(self.current, publication)]

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
        self.apart = 0 if len(present) >= self._needed_neighbours else self.apart + 1
        for client in self.role.used:
            self.count(client, "accepted")
        if self._asked:
            self.fruitless = 0 if self.role.used else self.fruitless + 1
            self._fastest = min(self._fastest or math.inf, now - self._opened_at)
        if not self.neighbours or any(self._newest(peer) <= self.current + 1 for peer in present):
            self._in_step = self.current, now
        self.round = self.current
        self.phase = Phase.WAITING
        self.deadline = None
        effects.append(
            Completed(
                round=self.round,
                snapshot=self.role.snapshot(),
                accepted=tuple(sorted(self.role.used)),
                late=tuple(sorted(self.pending)),
                neighbours=tuple(present),
                absent=tuple(sorted(self.neighbours - set(present))),
                retired=self._retired_then,
            )
        )
        self._forget_round()
        return effects

    def _credible(self, now: float) -> int:
        """The round up to which neighbours are believed to be ahead.

        What two neighbours claim is believed, and nobody alone can raise it. A single one is believed as far as rounds
        can have gone on since this site was last in step with anybody, at its own least time for a round. A site that
        never was has nothing to compare with: it believes its only neighbour, and waits for a second if it has several.
        """
        claims = sorted((self._newest(peer) for peer in self.neighbours), reverse=True)
        ahead, agreed = (*claims, 0, 0)[:2]
        return max(agreed, min(ahead, self._plausible(now)))

    def _plausible(self, now: float) -> int:
        if self._in_step is None:
            return self.rounds if len(self.neighbours) == 1 else 0
        (round, then), shortest = self._in_step, self.timing.pace or self._fastest
        return round + int((now - then) / shortest) if shortest else round

    def _unconfirmed(self) -> str | None:
        """What a site that was in step with nobody yet waits for: a second neighbour that says which round it is."""
        if self._in_step is not None:
            return None
        claims = [peer for peer in sorted(self.neighbours) if self._newest(peer) > 1]
        others = sorted(self.neighbours - set(claims))
        if len(claims) != 1 or not others:
            return None
        return (
            f"site {claims[0]} says that it is round {self._newest(claims[0])}, and this site is new; "
            f"{' or '.join(others)} must confirm it (unlink {claims[0]} if it is wrong)"
        )

    def _catch_up(self, now: float) -> list[Effect] | None:
        """If neighbours are rounds ahead, adopt their newest round without asking any client."""
        believed = self._credible(now)
        ahead = min(believed, self.rounds - 1)  # the last round is never skipped: nobody's claim ends the training
        if believed <= self.round + 1 or ahead <= self.round:
            return None
        behind = self.round
        self.round = ahead - 1
        self.phase = Phase.EXCHANGING
        self.deadline = None
        self._forget_round()
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

    def _finish(self, reason: str, training_over: bool = False) -> list[Effect]:
        self.phase = Phase.FINISHED
        self.deadline = None
        return [Finished(self.round, reason, training_over)]

    def _refuse(self, why: str, who: str, text: str) -> list[Effect]:
        self.refused[why] += 1
        return [Note(f"{who} {text}", about=f"{why} {who}")]
