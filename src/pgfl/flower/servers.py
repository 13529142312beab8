"""All servers of a graph in one process: the state machine of a site for each, joined by function calls.

A server publishes to its neighbours as on pgfl's network, without a wire between. It keeps its rounds in `site.db` in a
folder of its own, so another run goes on where the last one ended.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from pathlib import Path

from pgfl.errors import NetworkError
from pgfl.flower.graph import GraphSettings
from pgfl.network.logs import RateLimitedLogger
from pgfl.network.protocol.messages import Answer, Decline, Welcome, encode_request, read_answer
from pgfl.network.protocol.wire import Limits, Malformed, decode, encode
from pgfl.network.site.backup import model_of_site
from pgfl.network.site.effects import Ask, Completed, Effect, Finished, Note, Publish, Quorum, Timing
from pgfl.network.site.rounds import SiteRounds
from pgfl.network.site.settings import SiteSettings
from pgfl.network.site.state import build_role, draw_participants
from pgfl.network.site.store import STORE, SiteStore
from pgfl.results.model import Model

log = logging.getLogger(__name__)
_RELEASES = "releases"  # the fact of a store: the largest number of a release that was seen, by client
_ERROR = "its node answered with an error"


class PlayedServer:
    """One server: its rounds and its store, ready to go on from."""

    def __init__(self, name: str, graph: GraphSettings, home: Path) -> None:
        training, clients = graph.training, graph.clients_of(name)
        self.name, self.home, self.training = name, home / name, training
        self.store = SiteStore(self.home / STORE)
        self.store.bind_training(training.digest, training.clusters)
        self.releases: dict[str, int] = json.loads(self.store.fact(_RELEASES) or "{}")
        self.role = build_role(training, name, clients, graph.neighbours(name), graph.bounds)
        saved = self.store.load_state()
        if saved is not None:
            self.role.restore(saved[1])
        self.resumed = saved is not None
        self.was_ready = False
        self.rounds = SiteRounds(
            self.role,
            training.rounds,
            set(graph.neighbours(name)),
            set(clients),
            Timing(**graph.timing.model_dump()),
            Quorum(**graph.quorum.model_dump()),
            choose=lambda round, able: draw_participants(training, name, round, able),
            round=self.role.server.round if saved is not None else 0,
        )

    def save(self, done: Completed, seconds: float) -> None:
        """Keep a completed round, and first what clients have released, whatever became of it."""
        self.store.remember(_RELEASES, json.dumps(self.releases))
        row = {
            "accepted": list(done.accepted),
            "late": list(done.late),
            "neighbours": list(done.neighbours),
            "absent": list(done.absent),
            "retired": list(done.retired),
            "clipped": sorted(self.role.clipped),
            "disagreement": float(done.snapshot["disagreement"]),
            "seconds": seconds,
            "refused": dict(self.rounds.refused),
        }
        self.store.save_round(done.round, done.snapshot, done.accepted, row)

    def model(self) -> Model:
        """Its models of all clusters, as of its last round."""
        return model_of_site(SiteSettings(name=self.name, home=str(self.home), training=self.training))


class ServerGraph:
    """The servers of a `graph.toml`; what happens to clients goes in, and `take_requests` gives what to send them."""

    def __init__(self, graph: GraphSettings, home: Path) -> None:
        self.graph, self.training = graph, graph.training
        self.servers = {name: PlayedServer(name, graph, home) for name in sorted(graph.servers)}
        self.ended: dict[str, str] = {}
        self._home_of = {client: self.servers[member.server] for client, member in graph.clients.items()}
        self._limits = Limits(self.training.dimension, norm=self.training.max_norm)
        self._requests: dict[str, tuple[int, bytes]] = {}
        self._completed: dict[str, float] = {}
        self._limited_log = RateLimitedLogger(log)

    def start(self, now: float) -> None:
        """Begin to wait for clients."""
        self._completed = dict.fromkeys(self.servers, now)
        for server in self.servers.values():
            self._play(server, server.rounds.start(now), now)
        for server in self.servers.values():
            for peer in self._neighbours(server):
                if server.resumed:  # with which a neighbour that was not saved as far goes on
                    last = server.role.publication()
                    self._play(peer, peer.rounds.on_publication(server.name, last.round, last, now), now)
                self._play(peer, peer.rounds.on_peer_up(server.name, now, server.rounds.ready), now)

    def close(self) -> None:
        """Close all stores."""
        for server in self.servers.values():
            server.store.close()

    @property
    def over(self) -> bool:
        """Whether every server has ended."""
        return self.ended.keys() == self.servers.keys()

    @property
    def deadline(self) -> float | None:
        """When `tick` is due."""
        due = [server.rounds.deadline for name, server in self.servers.items() if name not in self.ended]
        return min((at for at in due if at is not None), default=None)

    def tick(self, now: float) -> None:
        """Advance to this time."""
        for server in self.servers.values():
            self._play(server, server.rounds.tick(now), now)

    def take_requests(self) -> dict[str, tuple[int, bytes]]:
        """Return what clients are to be asked now: a round and its frame, by client."""
        taken, self._requests = self._requests, {}
        return taken

    def welcome(self, client: str) -> bytes:
        """Return the frame that goes with every request, since a client remembers nothing but its account."""
        server = self._home_of[client]
        header = Welcome(
            client=client,
            cluster=self.graph.clients[client].cluster,
            training=self.training.text,
            releases=server.releases.get(client, 0),
            round=server.rounds.round,
        )
        return encode(header)

    def connect(self, client: str, now: float) -> None:
        """Handle a client whose node is there."""
        server = self._home_of[client]
        self._play(server, server.rounds.on_client_connected(client, now), now)

    def disconnect(self, client: str, now: float) -> None:
        """Handle a client whose node is gone."""
        server = self._home_of[client]
        self._play(server, server.rounds.on_client_disconnected(client, now), now)

    def receive(self, client: str, round: int, frame: bytes | None, now: float) -> None:
        """Handle the reply to the request of a round; None if the node answered with an error."""
        server = self._home_of[client]
        rounds = server.rounds
        if frame is None:
            self._play(server, rounds.on_decline(client, round, False, _ERROR, now), now)
            return
        try:
            read = decode(frame, self._limits, (Answer, Decline))
        except Malformed as error:
            self._note_release(server, client, error.release or 0)
            self._limited_log.warning(f"malformed {client}", f"client {client} sent {error}: refused")
            self._play(server, rounds.on_malformed_answer(client, now), now)
            return
        if isinstance(read.header, Decline):
            header = read.header
            self._play(server, rounds.on_decline(client, round, header.final, header.reason, now), now)
            return
        assert isinstance(read.header, Answer)
        self._note_release(server, client, read.header.release)
        self._play(server, rounds.on_answer(client, read.header.round, read_answer(read), now), now)

    def save_models(self, home: Path) -> list[Path]:
        """Write a model file for every server that has models; return their paths."""
        written = []
        for name, server in self.servers.items():
            try:
                server.model().save(home / f"{name}.pgfl")
                written.append(home / f"{name}.pgfl")
            except NetworkError as error:
                log.warning("%s", error)
        return written

    def _note_release(self, server: PlayedServer, client: str, number: int) -> None:
        server.releases[client] = max(number, server.releases.get(client, 0))

    def _neighbours(self, server: PlayedServer) -> list[PlayedServer]:
        return [self.servers[name] for name in sorted(server.rounds.neighbours)]

    def _play(self, first: PlayedServer, effects: list[Effect], now: float) -> None:
        """Carry out effects, and those that they have at other servers, one after the other."""
        pending = deque((first, effect) for effect in effects)
        while True:
            while pending:
                server, effect = pending.popleft()
                pending.extend(self._apply(server, effect, now))
            for server in self.servers.values():
                if server.rounds.ready is not server.was_ready:
                    server.was_ready = server.rounds.ready
                    for peer in self._neighbours(server):
                        ready = peer.rounds.on_peer_up(server.name, now, server.was_ready)
                        pending.extend((peer, effect) for effect in ready)
            if not pending:
                return

    def _apply(self, server: PlayedServer, effect: Effect, now: float) -> list[tuple[PlayedServer, Effect]]:
        """Carry out one effect; return what it has to be followed by."""
        match effect:
            case Ask(client, request):
                self._requests[client] = request.round, encode_request(request)
            case Publish(round, publication):
                return [
                    (peer, more)
                    for peer in self._neighbours(server)
                    for more in peer.rounds.on_publication(server.name, round, publication, now)
                ]
            case Completed():
                took, self._completed[server.name] = now - self._completed[server.name], now
                server.save(effect, took)
                late = f", late {', '.join(effect.late)}" if effect.late else ""
                log.info(
                    "%s round %d: %d accepted%s, %.1f s", server.name, effect.round, len(effect.accepted), late, took
                )
            case Finished(round, reason):
                log.info("%s finished after round %d: %s", server.name, round, reason)
                self.ended[server.name] = reason
            case Note(text, about):
                self._limited_log.info(about or text, f"{server.name}: {text}")
        return []
