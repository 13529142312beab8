"""Figures of a running site for monitoring: `/metrics` in Prometheus' text format, and `/health`.

It is off unless the operator gives it an address, and it answers nothing but GET requests for these two pages.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from pgfl.deploy.site.round_terms import Phase

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
        return None


Label = tuple[str, str] | None


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
            more = "" if label is None else f',{label[0]}="{_escaped(label[1])}"'
            lines.append(f'pgfl_{metric.name}{{site="{_escaped(figures.site)}"{more}}} {value:.17g}')
    return "\n".join(lines) + "\n"


def _metrics(now: Figures) -> Iterator[Metric]:
    yield Metric("round", "gauge", "The last completed round.", {None: now.round})
    yield Metric("rounds", "gauge", "The rounds of the training.", {None: now.rounds})
    phases = tuple(Phase)
    present: dict[Label, float] = {("phase", phase): float(phase == now.phase) for phase in phases}
    yield Metric("phase", "gauge", "1 for the present phase.", present)
    yield Metric("healthy", "gauge", "1 if the site makes progress or is done.", {None: float(now.problem is None)})
    yield Metric("clients_admitted", "gauge", "Admitted clients.", {None: now.clients_admitted})
    yield Metric("clients_connected", "gauge", "Connected clients.", {None: now.clients_connected})
    yield Metric("neighbours_linked", "gauge", "Linked neighbours.", {None: now.neighbours_linked})
    yield Metric("neighbours_up", "gauge", "Neighbours that are reached.", {None: now.neighbours_up})
    yield Metric("disagreement", "gauge", "Between the site's and its neighbours' models.", {None: now.disagreement})
    yield Metric("round_seconds", "gauge", "Duration of the last round.", {None: now.round_seconds})
    yield Metric("seconds_since_round", "gauge", "Since the last completed round.", {None: now.seconds_since_round})
    refused: dict[Label, float] = {("reason", why): float(count) for why, count in sorted(now.refused.items())}
    yield Metric("refused_total", "counter", "Refused messages and connections.", refused)
    releases: dict[Label, float] = {("client", name): float(count) for name, count in sorted(now.releases.items())}
    yield Metric("client_releases", "gauge", "Releases that a client has made.", releases)
    left = sorted(now.epsilon_left.values())
    if left:
        shown: dict[Label, float] = {("of", "worst"): left[0], ("of", "median"): median(left)}
        yield Metric("epsilon_left", "gauge", "Privacy budget left, of the clients that tell it.", shown)
    spent: dict[Label, float] = {("phase", phase): now.phase_seconds.get(phase, 0.0) for phase in phases}
    yield Metric("phase_seconds_total", "counter", "Time spent in each phase.", spent)
    yield Metric("disk_free_bytes", "gauge", "Free on the disk of the site's folder.", {None: now.disk_free_bytes})


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def health_page(figures: Figures) -> tuple[int, str]:
    """Status 200 if the site makes progress or is done, else 503 with the reason."""
    said = {"site": figures.site, "phase": figures.phase, "round": figures.round, "problem": figures.problem}
    return (503 if figures.problem else 200), json.dumps(said)


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
