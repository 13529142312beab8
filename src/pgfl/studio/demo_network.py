"""The demonstration network behind the Network view: real processes, started, watched, killed and brought back."""

from __future__ import annotations

import queue
import shutil
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pgfl.errors import PgflError

if TYPE_CHECKING:
    from pgfl.network.local import LocalNetwork


BETWEEN_LOOKS = 0.5  # seconds
ROUNDS = 300
EPSILON = 20.0
RECORDS = (200, 400)  # of a client; with 20 to 40, the noise of 300 releases drowns the models
ANSWERS, PACE = 8.0, 0.5  # seconds: how long a site waits for a client, and how long a round takes at least
State = Literal["off", "starting", "running", "ended"]


@dataclass(frozen=True)
class ClientNow:
    """One client of the demonstration."""

    name: str
    site: str
    cluster: str
    alive: bool
    releases: int
    epsilon: float | None
    budget: float


@dataclass(frozen=True)
class SiteNow:
    """One site of the demonstration."""

    name: str
    round: int
    connected: int
    clients: int
    waiting_for: tuple[str, ...]
    late: tuple[str, ...]
    disagreement: float | None
    history: tuple[tuple[int, float], ...]
    errors: tuple[tuple[int, float], ...] = ()  # relative to the truth, in the rounds that were looked at


@dataclass(frozen=True)
class NetworkNow:
    """The whole network at a moment."""

    state: State = "off"
    problem: str = ""
    rounds: int = ROUNDS
    sites: tuple[SiteNow, ...] = ()
    clients: tuple[ClientNow, ...] = ()
    edges: tuple[tuple[str, str], ...] = ()


@dataclass
class DemoNetwork:
    """A network in a thread of its own: its processes live as long as the thread that starts them."""

    sites: int = 3
    clients: int = 2
    now: NetworkNow = field(default_factory=NetworkNow)
    _wishes: queue.SimpleQueue[Callable[[LocalNetwork], None] | None] = field(default_factory=queue.SimpleQueue)
    _thread: threading.Thread | None = None

    def start(self, sites: int, clients: int) -> None:
        """Start so many sites with so many clients each, unless a network runs already."""
        if self._thread is not None and self._thread.is_alive():
            if self.now.state != "ended":
                return
            self._thread.join()  # its processes have ended, and its folder is being deleted
        self.sites, self.clients = sites, clients
        self._wishes = queue.SimpleQueue()
        self.now = NetworkNow("starting")
        self._thread = threading.Thread(target=self._run, daemon=True, name="demo network")
        self._thread.start()

    def kill(self, client: str) -> None:
        """End a client at once, as an accident would."""
        self._wishes.put(lambda network: network.kill(client) if client in network.running else None)

    def bring_back(self, client: str) -> None:
        """Start a client again, with the ledger that it had."""
        self._wishes.put(lambda network: None if client in network.running else network.start(client))

    def stop(self, patience: float = 30.0) -> None:
        """End all processes."""
        self._wishes.put(None)
        if self._thread is not None:
            self._thread.join(patience)

    def _run(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="pgfl-studio-network-"))
        try:
            from pgfl.demo import START_SECONDS, Scenario

            network = Scenario(self.sites, self.clients, ROUNDS, epsilon=EPSILON, samples=RECORDS).network(folder)
            timing = {"start": START_SECONDS, "answers": ANSWERS, "exchange": START_SECONDS, "pace": PACE}
            network = replace(network, timing=timing)
            try:
                network.prepare()
                network.start()
                self._watch(network)
            finally:
                network.stop()
            self.now = replace(self.now, state="ended")
        except (PgflError, OSError) as error:
            self.now = replace(self.now, state="ended", problem=str(error))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _watch(self, network: LocalNetwork) -> None:
        while not network.ended().keys() >= set(network.federation.server_ids):
            self.now = look_at(network, self.now)
            try:
                wish = self._wishes.get(timeout=BETWEEN_LOOKS)
            except queue.Empty:
                continue
            if wish is None:
                return
            wish(network)
        self.now = look_at(network, self.now)


def look_at(network: LocalNetwork, before: NetworkNow) -> NetworkNow:
    """Return what the files of the sites and clients say now; errors are added to those that were seen before."""
    from pgfl.demo import errors, ledger_summary, progress

    federation, seen = network.federation, {site.name: dict(site.errors) for site in before.sites}
    for site, (round, error) in errors(network).items():
        seen.setdefault(site, {})[round] = error
    sites = []
    for site in federation.server_ids:
        now = progress(network, site)
        last = now.last or {}
        past = tuple((row["round"], float(row["disagreement"])) for row in network.history(site))
        sites.append(
            SiteNow(
                site, now.round, now.connected, now.clients, now.waiting_for, tuple(last.get("late", ())),
                last.get("disagreement"), past, tuple(sorted(seen.get(site, {}).items())),
            )
        )  # fmt: skip
    ended = network.ended()
    clients = []
    for index, client in enumerate(federation.client_ids):
        spent = ledger_summary(network, client) or {}
        clients.append(
            ClientNow(
                client, federation.server_ids[federation.client_server[index]],
                federation.cluster_ids[federation.client_cluster[index]],
                client in network.running and client not in ended,
                int(spent.get("releases", 0)), spent.get("epsilon"), float(network.privacy["epsilon"]),
            )
        )  # fmt: skip
    started = any(site.round for site in sites)
    return NetworkNow(
        "running" if started else "starting", "", network.training.rounds, tuple(sites), tuple(clients),
        tuple(network.edges()),
    )  # fmt: skip
