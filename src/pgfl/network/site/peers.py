"""A running site's neighbours: what it sends them, what they send, and who of them is reached and ready."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from pgfl.algorithms.roles import Publication
from pgfl.network.protocol import messages
from pgfl.network.protocol.connection import TLS, Transport
from pgfl.network.protocol.identity import Neighbour
from pgfl.network.protocol.links import PeerConnection, PeerLink, PeerService, Refused
from pgfl.network.protocol.messages import encode_publication, read_publication
from pgfl.network.protocol.wire import Frame, encode
from pgfl.network.site.effects import Handle, Phase
from pgfl.network.site.introduction import Introducing
from pgfl.network.site.state import SiteState

log = logging.getLogger(__name__)
Supervise = Callable[[Awaitable[None]], None]


class Peers:
    """The links to all neighbours; what they send becomes events for `handle`."""

    def __init__(self, state: SiteState, handle: Handle, supervise: Supervise, transport: Transport = TLS) -> None:
        """`supervise` runs a task without which the site cannot go on."""
        self._state, self._handle, self._supervise, self._transport = state, handle, supervise, transport
        self._rounds = state.rounds
        self.neighbours: Mapping[str, Neighbour] = state.membership.neighbours
        self.service = PeerService(
            lambda: self.neighbours, state.limits, self._received_from, self._switched, self._called
        )
        self._links: dict[str, PeerLink] = {}
        self._latest = self._last_models() if state.resumed else None
        self._last_received: dict[str, int] = {}  # the newest round of each neighbour
        self.why_down: dict[str, str] = {}
        self._ready: dict[str, bool] = {}
        self._was_ready = False

    # links ------------------------------------------------------------------------------------------------------------

    def link_all(self) -> None:
        """Begin to call every neighbour whose address is known."""
        for name in self.neighbours:
            self._link(name)

    def adopt(self, neighbours: Mapping[str, Neighbour], from_round: int) -> None:
        """Open and close links as these neighbours say, who count from now on."""
        known, self.neighbours = self.neighbours, neighbours
        for name in sorted(known.keys() | neighbours.keys()):
            if known.get(name) == neighbours.get(name):
                continue
            self._unlink(name)
            if name in neighbours:
                log.info("site %s is linked, at %s", name, neighbours[name].address or "an address that it calls from")
                self._link(name)
            else:
                log.info("site %s is unlinked from round %d on", name, from_round)

    def show_new_certificate(self) -> None:
        """Call everyone anew, with the certificate that this site shows now."""
        for name in self.neighbours:
            self._unlink(name)
            self._link(name)
            if self._latest is not None:
                self._links[name].publish(*self._latest)

    def _link(self, name: str) -> None:
        shown = self._state.certificate
        link = self._links[name] = PeerLink(
            self._state.settings.name, name, self.neighbours[name], shown.certificate_file, shown.key_file,
            self.service, lambda: self._greeting(name), self._replied, self._down, transport=self._transport,
            introduce=Introducing(shown, self._state.store, self.neighbours[name], self._transport).run,
        )  # fmt: skip
        self._supervise(link.start())

    def _unlink(self, name: str) -> None:
        if name in self._links:
            self._supervise(self._links.pop(name).stop())

    def _called(self, peer: str, talk: PeerConnection) -> None:
        if peer in self._links:
            self._links[peer].called(talk)

    def _switched(self, peer: str) -> None:
        log.info("site %s shows its new certificate; the one before is trusted no more", peer)
        self._state.store.switched(peer)
        self.neighbours = {**self.neighbours, peer: self._state.store.neighbours()[peer]}

    # what they are sent -----------------------------------------------------------------------------------------------

    def publish(self, publication: Publication) -> None:
        """Send a round's aggregates to every neighbour."""
        self._latest = publication.round, self._published(publication)
        for link in self._links.values():
            link.publish(*self._latest)

    def roll_back(self) -> None:
        """Forget what belongs to the rolled-back models, and send the present ones."""
        self._last_received.clear()
        self._latest = self._last_models()
        for link in self._links.values():
            link.clear()
            link.publish(*self._latest)

    def announce_readiness(self) -> None:
        """Neighbours begin when everyone is ready, so they learn it at once and not with the next heartbeat."""
        if self._rounds.ready is not self._was_ready:
            self._was_ready = self._rounds.ready
            for link in self._links.values():
                link.greet_now()

    @property
    def uninformed(self) -> set[str]:
        """Those who have not acknowledged the last models."""
        return {name for name, link in self._links.items() if not link.drained}

    def _last_models(self) -> tuple[int, bytes]:
        """The models of the last round as a publication, with which a neighbour that is behind can catch up."""
        publication = self._state.role.publication()
        return publication.round, self._published(publication)

    def _published(self, publication: Publication) -> bytes:
        parts = self._state
        return encode_publication(parts.settings.name, parts.digest, publication, parts.role.rollbacks)

    def _greeting(self, peer: str) -> bytes:
        hello = messages.PeerHello(
            site=self._state.settings.name,
            training=self._state.digest,
            round=self._rounds.round,
            degree=len(self.neighbours),
            heard=self._last_received.get(peer, 0),
            ready=self._rounds.ready,
            rollbacks=list(self._state.role.rollbacks),
        )
        return encode(hello)

    # what they send ---------------------------------------------------------------------------------------------------

    def _received_from(self, peer: str, frame: Frame) -> bytes:
        header, digest, rollbacks = frame.header, self._state.digest, self._state.role.rollbacks
        assert isinstance(header, messages.PeerHello | messages.Publication)
        if header.training != digest:
            raise Refused(f"it has another training configuration ({header.training[:16]}…, here {digest[:16]}…)")
        if tuple(header.rollbacks) != rollbacks:
            raise Refused(
                f"it has rolled back to {rounds_in_words(header.rollbacks)}, this site to "
                f"{rounds_in_words(rollbacks)}; the operators must agree (`pgfl site rollback`)"
            )
        if isinstance(header, messages.Publication):
            publication = read_publication(frame)
            if publication.round <= self._state.training.rounds:
                self._last_received[peer] = max(self._last_received.get(peer, 0), publication.round)
            self._handle(lambda: self._rounds.on_publication(peer, publication.round, publication, time.monotonic()))
        else:
            self._greeted(peer, header)
        acknowledged = messages.Acknowledged(
            site=self._state.settings.name,
            training=digest,
            round=self._rounds.round,
            degree=len(self.neighbours),
            finished=self._rounds.phase is Phase.FINISHED,
            ready=self._rounds.ready,
        )
        return encode(acknowledged)

    def _greeted(self, peer: str, hello: messages.PeerHello) -> None:
        if peer in self._rounds.up:
            self._note_readiness(peer, hello.ready)
        link = self._links.get(peer)
        if self._latest is not None and self._latest[0] > hello.heard and link is not None and link.drained:
            link.publish(*self._latest)

    def _note_readiness(self, peer: str, ready: bool) -> None:
        if peer not in self._rounds.up or ready is not self._ready.get(peer):
            self._ready[peer] = ready
            self._handle(lambda: self._rounds.on_peer_up(peer, time.monotonic(), ready))

    def _replied(self, peer: str, reply: messages.Acknowledged) -> None:
        if reply.training != self._state.digest:
            self._down(peer, "it has another training configuration")
            return
        if self.why_down.pop(peer, None) is not None or peer not in self._rounds.up:
            log.info("site %s is there, at round %d", peer, reply.round)
        self._note_readiness(peer, reply.ready)

    def _down(self, peer: str, reason: str) -> None:
        if self.why_down.get(peer) != reason:
            self.why_down[peer] = reason
            log.warning("site %s cannot be reached: %s", peer, reason)
        if peer in self._rounds.up:
            self._handle(lambda: self._rounds.on_peer_down(peer, time.monotonic()))


def rounds_in_words(rollbacks: Sequence[int]) -> str:
    """The rounds that a site has rolled back to."""
    return f"round {', '.join(map(str, rollbacks))}" if rollbacks else "no round"
