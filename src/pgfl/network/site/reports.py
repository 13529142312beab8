"""What a running site reports: `live.json`, figures for Prometheus, health, and a row for every round."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pgfl.network.agreement import SharedBudget
from pgfl.network.logs import RateLimitedLogger
from pgfl.network.site.effects import Completed, Note, Phase
from pgfl.network.site.peers import Peers
from pgfl.network.site.sessions import ClientSessions, Port
from pgfl.network.site.state import SiteState

LIVE = "live.json"


class LiveFigures(BaseModel):
    """A running site, as of a moment; of one that has just started nothing is known."""

    model_config = ConfigDict(ser_json_inf_nan="constants")
    pid: int = 0
    site: str = ""
    round: int = 0
    rounds: int = 0
    phase: str = ""
    connected: list[str] = Field(default_factory=list)
    waiting_for: list[str] = Field(default_factory=list)
    up: list[str] = Field(default_factory=list)
    missing: str | None = None
    disagreement: float = 0.0
    refused: dict[str, int] = Field(default_factory=dict)
    answers: dict[str, dict[str, int]] = Field(default_factory=dict)  # since the start
    problem: str | None = None
    budgets: dict[str, SharedBudget] = Field(default_factory=dict)

    def write(self, home: Path) -> None:
        """Replace the file in a site's folder; a full disk is no reason to stop for."""
        partial = home / f"{LIVE}.part"
        with suppress(OSError):
            partial.write_text(self.model_dump_json())
            partial.replace(home / LIVE)

    @classmethod
    def read(cls, home: Path) -> LiveFigures:
        """What was written last; what cannot be read counts as nothing."""
        try:
            return cls.model_validate_json((home / LIVE).read_bytes())
        except (OSError, ValidationError):
            return cls()


_REQUEST_SECONDS = 5.0
_MOST_HEADER_BYTES = 8192
_TEXT, _JSON = "text/plain; version=0.0.4; charset=utf-8", "application/json"


@dataclass(frozen=True)
class Figures:
    """What is measured, as of now."""

    site: str
    phase: str
    round: int
    rounds: int
    clients_admitted: int
    clients_connected: int
    neighbours_linked: int
    neighbours_up: int
    disagreement: float
    seconds_since_round: float  # since the last completed round, or the start
    round_seconds: float  # of the last round
    refused: Mapping[str, int] = field(default_factory=dict)
    releases: Mapping[str, int] = field(default_factory=dict)  # the largest number that each client reported
    epsilon_left: Mapping[str, float] = field(default_factory=dict)  # of the clients that tell their budget
    phase_seconds: Mapping[str, float] = field(default_factory=dict)  # spent in each phase since the start
    disk_free_bytes: int = 0
    missing: str | None = None  # what the quorum lacks
    answers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # of each client, by what became of them
    fruitless: int = 0  # rounds in a row in which no answer counted
    longest_round: float = 600.0  # seconds after which a round must be over, whoever is late

    @property
    def problem(self) -> str | None:
        """Why the site does not make progress, in words; None if all is well."""
        if self.phase == "finished":
            return None
        if self.missing:
            return f"round {self.round + 1} waits: {self.missing}"
        if self.seconds_since_round > self.longest_round:
            return f"no round was completed for {self.seconds_since_round:.0f} s"
        if self.fruitless >= FRUITLESS_ROUNDS:
            why = Counter[str]()
            for outcomes in self.answers.values():
                why.update({outcome: count for outcome, count in outcomes.items() if outcome != "accepted"})
            said = f"; most often {why.most_common(1)[0][0]}" if why else ""
            return f"no client's answer counted in the last {self.fruitless} rounds{said}"
        return None


FRUITLESS_ROUNDS = 5  # after so many without an answer that counts a site is not healthy
Label = tuple[tuple[str, str], ...]


class Metric(NamedTuple):
    """One metric of the page: its name, type, help, and its values by label."""

    name: str
    kind: str
    help: str
    values: Mapping[Label, float]


def metrics_page(figures: Figures) -> str:
    """The figures in Prometheus' text format."""
    lines: list[str] = []
    for metric in _metrics(figures):
        lines += [f"# HELP pgfl_{metric.name} {metric.help}", f"# TYPE pgfl_{metric.name} {metric.kind}"]
        for label, value in metric.values.items():
            more = "".join(f',{name}="{_escaped(text)}"' for name, text in label)
            lines.append(f'pgfl_{metric.name}{{site="{_escaped(figures.site)}"{more}}} {value:.17g}')
    return "\n".join(lines) + "\n"


def _metrics(now: Figures) -> Iterator[Metric]:
    yield Metric("round", "gauge", "The last completed round.", {(): now.round})
    yield Metric("rounds", "gauge", "The rounds of the training.", {(): now.rounds})
    phases = tuple(Phase)
    present: dict[Label, float] = {(("phase", phase),): float(phase == now.phase) for phase in phases}
    yield Metric("phase", "gauge", "1 for the present phase.", present)
    yield Metric("healthy", "gauge", "1 if the site makes progress or is done.", {(): float(now.problem is None)})
    yield Metric("clients_admitted", "gauge", "Admitted clients.", {(): now.clients_admitted})
    yield Metric("clients_connected", "gauge", "Connected clients.", {(): now.clients_connected})
    yield Metric("neighbours_linked", "gauge", "Linked neighbours.", {(): now.neighbours_linked})
    yield Metric("neighbours_up", "gauge", "Neighbours that are reached.", {(): now.neighbours_up})
    yield Metric("disagreement", "gauge", "Between the site's and its neighbours' models.", {(): now.disagreement})
    yield Metric("round_seconds", "gauge", "Duration of the last round.", {(): now.round_seconds})
    yield Metric("seconds_since_round", "gauge", "Since the last completed round.", {(): now.seconds_since_round})
    refused: dict[Label, float] = {(("reason", why),): float(count) for why, count in sorted(now.refused.items())}
    yield Metric("refused_total", "counter", "Refused messages and connections.", refused)
    releases: dict[Label, float] = {(("client", name),): float(count) for name, count in sorted(now.releases.items())}
    yield Metric("client_releases", "gauge", "Releases that a client has made.", releases)
    answers: dict[Label, float] = {}
    for client, outcomes in sorted(now.answers.items()):
        for outcome, count in sorted(outcomes.items()):
            kind, _, reason = outcome.partition(": ")
            answers[("client", client), ("outcome", kind), ("reason", reason)] = float(count)
    yield Metric("answers_total", "counter", "Requests to a client, by what became of them.", answers)
    yield Metric("fruitless_rounds", "gauge", "Last rounds without an answer that counts.", {(): now.fruitless})
    left = sorted(now.epsilon_left.values())
    if left:
        shown: dict[Label, float] = {(("of", "worst"),): left[0], (("of", "median"),): median(left)}
        yield Metric("epsilon_left", "gauge", "Privacy budget left, of the clients that tell it.", shown)
    spent: dict[Label, float] = {(("phase", phase),): now.phase_seconds.get(phase, 0.0) for phase in phases}
    yield Metric("phase_seconds_total", "counter", "Time spent in each phase.", spent)
    yield Metric("disk_free_bytes", "gauge", "Free on the disk of the site's folder.", {(): now.disk_free_bytes})


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def health_page(figures: Figures) -> tuple[int, str]:
    """Status 200 if the site makes progress or is done, else 503 with the reason."""
    said = {"site": figures.site, "phase": figures.phase, "round": figures.round, "problem": figures.problem}
    return (503 if figures.problem else 200), json.dumps({**said, "answers": figures.answers}, default=dict)


@dataclass
class MetricsServer:
    """Serves both pages; `figures` is called for every request."""

    figures: Callable[[], Figures]

    async def start(self, address: str) -> int:
        """Listen; returns the port."""
        host, _, port = address.rpartition(":")
        self._server = await asyncio.start_server(self._serve, host.strip("[]"), int(port), limit=_MOST_HEADER_BYTES)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening."""
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                status, kind, body = self._answer(head.split(b" ")[:2])
                reason = {200: "OK", 404: "Not Found", 503: "Service Unavailable"}[status]
                header = f"HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                writer.write(f"{header}Connection: close\r\n\r\n".encode() + body)
                await writer.drain()

    def _answer(self, request: list[bytes]) -> tuple[int, str, bytes]:
        match request:
            case [b"GET", b"/metrics"]:
                return 200, _TEXT, metrics_page(self.figures()).encode()
            case [b"GET", b"/health"]:
                status, said = health_page(self.figures())
                return status, _JSON, said.encode()
        return 404, _TEXT, b"there are /metrics and /health\n"


@dataclass
class PhaseClock:
    """How long the site has been in each phase."""

    _spent: dict[str, float] = field(default_factory=dict)
    _phase: str = "waiting"
    _since: float = field(default_factory=time.monotonic)

    def enter(self, phase: str) -> None:
        """The site is in this phase now."""
        now = time.monotonic()
        self._spent[self._phase] = self._spent.get(self._phase, 0.0) + now - self._since
        self._phase, self._since = phase, now

    def seconds(self, phase: str) -> dict[str, float]:
        """Of every phase, up to now."""
        self.enter(phase)
        return dict(self._spent)


@dataclass
class RoundClock:
    """When the last round was completed, and how long it took."""

    completed: float = field(default_factory=time.monotonic)
    seconds: float = 0.0

    def tick(self) -> float:
        """A round is complete; returns its seconds."""
        now = time.monotonic()
        self.completed, self.seconds = now, now - self.completed
        return self.seconds

    @property
    def since(self) -> float:
        """Seconds since the last completed round."""
        return time.monotonic() - self.completed


log = logging.getLogger(__name__)
_OVERTIME_SECONDS = 60.0  # for computing and saving a round


class Reports:
    """Reads all parts of a site, and changes none of them."""

    def __init__(self, state: SiteState, sessions: ClientSessions, peers: Peers, port: Port) -> None:
        self._state, self._sessions, self._peers, self._port = state, sessions, peers, port
        self._rounds, self._role = state.rounds, state.role
        self._clock = RoundClock()
        self.phases = PhaseClock()
        self._limited_log = RateLimitedLogger(log)

    def note(self, note: Note) -> None:
        """Log a line."""
        if note.about:
            self._limited_log.info(note.about, note.text)
        else:
            log.info("%s", note.text)

    def round_row(self, done: Completed) -> dict[str, Any]:
        """The row of a completed round in the site's record."""
        return {
            "accepted": list(done.accepted),
            "late": list(done.late),
            "neighbours": list(done.neighbours),
            "absent": list(done.absent),
            "retired": list(done.retired),
            "clipped": sorted(self._role.clipped),
            "sat_out": self._sat_out(done.round),
            "over_cap": sorted(self._over_cap),
            "disagreement": float(done.snapshot["disagreement"]),
            "seconds": self._clock.tick(),
            "refused": self._refused(),
        }

    def log_round(self, done: Completed) -> None:
        """One line for a completed round, and one for each cluster that sat it out."""
        log.info(
            "round %d: %d accepted%s%s%s, disagreement %.3g",
            done.round,
            len(done.accepted),
            f", clipped {', '.join(sorted(self._role.clipped))}" if self._role.clipped else "",
            f", late {', '.join(done.late)}" if done.late else "",
            f", without site {', '.join(done.absent)}" if done.absent else "",
            float(done.snapshot["disagreement"]),
        )
        for pair, why in self._sat_out(done.round).items():
            self._limited_log.info(f"sat out {pair} {why}", f"cluster {pair} sat round {done.round} out: {why}")

        for client in sorted(self._over_cap):
            self._limited_log.info(
                f"over cap {client}",
                f"client {client} sits out: it asks for more than {self._state.training.privacy.noise_cap:g} times the "
                "noise, or states more than so many times the bounds, of the median client of its cluster",
            )

    @property
    def _over_cap(self) -> set[str]:
        """The clients that state more than the agreed training allows."""
        judge = self._state.masked or self._state.trustee
        return set() if judge is None else judge.over_cap

    def _sat_out(self, round: int) -> dict[str, str]:
        if self._state.masked is not None:
            return self._state.masked.sat_out(round)
        return {} if self._state.trustee is None else dict(self._state.trustee.sat_out)

    def _refused(self) -> dict[str, int]:
        counted = (self._rounds, self._sessions.streams, self._peers.service, self._port)
        return dict(sum((part.refused for part in counted), Counter[str]()))

    def figures(self) -> Figures:
        """What is measured, as of now."""
        timing, rounds = self._state.settings.timing, self._rounds
        releases = {name: client.releases for name, client in self._state.store.clients().items()}
        return Figures(
            site=self._state.settings.name,
            phase=rounds.phase,
            round=rounds.round,
            rounds=rounds.rounds,
            clients_admitted=len(rounds.admitted),
            clients_connected=len(rounds.connected),
            neighbours_linked=len(rounds.neighbours),
            neighbours_up=len(rounds.up),
            disagreement=self._role.disagreement,
            seconds_since_round=self._clock.since,
            round_seconds=self._clock.seconds,
            refused=self._refused(),
            releases=releases,
            epsilon_left={
                name: budget.epsilon_left(releases[name])
                for name, budget in self._sessions.budgets.items()
                if budget is not None and name in releases
            },
            phase_seconds=self.phases.seconds(rounds.phase),
            disk_free_bytes=shutil.disk_usage(self._state.home).free,
            missing=rounds.missing if rounds.phase is Phase.WAITING else None,
            answers=rounds.answers,
            fruitless=rounds.fruitless,
            longest_round=timing.start + timing.answers + timing.exchange + timing.pace + _OVERTIME_SECONDS,
        )

    def write_live(self) -> None:
        """Write `live.json` anew."""
        rounds = self._rounds
        collecting = rounds.phase is Phase.COLLECTING
        LiveFigures(
            pid=os.getpid(),
            site=self._state.settings.name,
            round=rounds.round,
            rounds=rounds.rounds,
            phase=rounds.phase,
            connected=sorted(rounds.connected),
            waiting_for=sorted(rounds.pending if collecting else rounds.awaited),
            up=sorted(rounds.up),
            missing=rounds.missing if rounds.phase is Phase.WAITING else None,
            disagreement=self._role.disagreement,
            refused=self._refused(),
            answers={client: dict(outcomes) for client, outcomes in rounds.answers.items()},
            problem=self.figures().problem,
            budgets={name: budget for name, budget in self._sessions.budgets.items() if budget is not None},
        ).write(self._state.home)
