"""A running site: it connects the rounds, the store, the clients' streams, the peer links and the invitations."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import shutil
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

from pgfl.core.roles import EVERYONE, Publication, Server
from pgfl.core.streams import Purpose, stream
from pgfl.deploy import identity, messages
from pgfl.deploy.entrusting import SiteTerms
from pgfl.deploy.identity import ClientKey, SiteCertificate
from pgfl.deploy.invitations import Invitation, Inviter
from pgfl.deploy.masked_messages import Consent, MaskedAnswer, Reveal
from pgfl.deploy.messages import RequestFrames, encode_publication, read_answer, read_publication
from pgfl.deploy.rotation import matching
from pgfl.deploy.round_streams import ClientStreams, Unwelcome
from pgfl.deploy.shared_budget import SharedBudget, heard
from pgfl.deploy.site.masked_pairs import MaskedPairs
from pgfl.deploy.site.members import Membership, Neighbour
from pgfl.deploy.site.peer_links import PeerLink, PeerService, Refused
from pgfl.deploy.site.public_bounds import ClientBound
from pgfl.deploy.site.round_effects import Ask, Changed, Completed, Effect, Finished, Note, Publish, Send
from pgfl.deploy.site.round_terms import Members, Phase, Quorum, Rollback, Timing
from pgfl.deploy.site.site_metrics import Figures, MetricsServer, PhaseClock, RoundClock
from pgfl.deploy.site.site_role import SiteRole
from pgfl.deploy.site.site_rounds import SiteRounds
from pgfl.deploy.site.site_settings import SiteSettings
from pgfl.deploy.site.site_store import STORE, SiteStore
from pgfl.deploy.site.trustee import LEDGERS, SumRecorder, Trustee
from pgfl.deploy.sparing_log import SparingLog
from pgfl.deploy.wire import Frame, Limits, encode
from pgfl.errors import NetworkError, PrivacyError, Unforeseen

log = logging.getLogger(__name__)
LOCK, LIVE = "site.lock", "live.json"
_INVITE_AFTER_SECONDS = 8.0  # a client that had a stream is given so long to come back by itself
_OVERTIME_SECONDS = 60.0  # for computing and saving a round
_SEEN_SECONDS = 0.05  # after an answer, until the number of its release is saved
_LIVE_SECONDS = 0.2  # after a client comes or goes, until the status says so
_LOOK_SECONDS = 1.0  # how often new admissions and links are looked for


class Site:
    """One site, from its start to its last round."""

    def __init__(self, settings: SiteSettings, inviter: Inviter | None = None) -> None:
        """Without an inviter, only clients that hold a token already get in."""
        self.settings, self.training, self.inviter = settings, settings.training, inviter
        self.home = Path(settings.home)
        self.certificate = SiteCertificate.read(self.home / identity.SITE_CERTIFICATE)
        if self.certificate.name != settings.name:
            raise NetworkError(
                f"site.toml calls this site {settings.name}, its certificate {self.certificate.name}; use one name."
            )
        self.key = _read_key(self.home / identity.SITE_KEY)
        self.store = SiteStore(self.home / STORE)
        self.digest = self.training.digest
        self.store.bind_training(self.digest, self.training.clusters)
        algorithm = self.training.build_algorithm()
        clusters = frozenset(self.training.clusters) | ({EVERYONE} if not algorithm.personalised else frozenset())
        self.limits = Limits(self.training.dimension, clusters, self.training.max_norm)
        self._coming = self.store.membership()
        self.neighbours = self._coming.neighbours
        clients = self._clusters_of(self._coming)
        if lost := self._coming.clients.keys() - clients.keys():
            raise NetworkError(
                f"Client {min(lost)} was admitted to cluster {self._coming.clients[min(lost)].cluster}, which "
                "training.clusters does not name; admit it to another one."
            )
        server = Server(algorithm, self.training.dimension, self.neighbours, clusters=self.training.clusters)
        self.trustee = self._trustee()
        self.masked = self._masked_pairs()
        self.role = SiteRole(
            server, clients, self.training.most_clients, self._client_bound(), settings.bounds.neighbours, self.trustee,
            self.masked,
        )  # fmt: skip
        saved = self.store.load_state()
        if saved is not None:
            self.role.restore(saved[1])
            if self._coming.rollbacks != self.role.rollbacks:
                self.role.roll_back(self.store.past(self._coming.rollbacks[-1]), self._coming.rollbacks)
                self.store.save_state(saved[0], self.role.snapshot())
        self.rounds = SiteRounds(
            self.role,
            self.training.rounds,
            set(self.neighbours),
            set(clients),
            Timing(**settings.timing.model_dump()),
            Quorum(**settings.quorum.model_dump()),
            choose=self._choose,
            masked=self.masked,
            round=saved[0] if saved is not None else 0,
            apart=self._apart_before(),
        )
        self._latest = self._last_models() if saved is not None else None
        self._received: dict[str, int] = {}
        self._why_down: dict[str, str] = {}
        self._ready_peers: dict[str, bool] = {}
        self._was_ready = False
        self._invited: dict[str, float] = dict.fromkeys(clients, time.monotonic() if saved is not None else 0.0)
        self._tokens: dict[str, str] = {}
        self._clock = RoundClock()
        self._phases = PhaseClock()
        self._seen: dict[str, int] = {}  # releases that are not saved yet
        self._saving: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._timed: float | None = None  # the deadline that the timer is set to
        self._budgets: dict[str, SharedBudget | None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._links: dict[str, PeerLink] = {}
        self._sparing = SparingLog(log)
        self._tasks: set[asyncio.Task[None]] = set()
        self._dismissed: set[str] = set()  # they were sent the end of training
        self._informed = self.store.informed()  # they have received it

    def _client_bound(self) -> ClientBound | None:
        bound = self.settings.bounds.of_clients(self.training)
        if bound is None:
            log.info("clients' answers are not bounded: `bounds` in site.toml states no x_norm and noise")
        elif unbounded := bound.unbounded():
            log.warning("answers of %s are not bounded: ridge needs bounds.w_norm", ", ".join(unbounded))
        return bound

    def _trustee(self) -> Trustee | None:
        if self.training.privacy.trust != "site":
            return None
        recorded = self.settings.record_noise
        drawn = None if recorded is None else SumRecorder(Path(recorded))
        return Trustee(self.training, self.home / LEDGERS, self.store, drawn)

    def _masked_pairs(self) -> MaskedPairs | None:
        if self.training.privacy.trust != "masked":
            return None
        return MaskedPairs(
            self.training, self.settings.name,
            lambda client: self.role.pair(client), lambda client: self.role.clients.get(client),
            lambda: {name: key.line for name, key in self._keys().items()}, self.settings.timing.answers,
        )  # fmt: skip

    # life -------------------------------------------------------------------------------------------------------------

    async def run(self) -> str:
        """Serve until the last round is done; returns why it ended."""
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[str] = self._loop.create_future()
        listen, certificate = self.settings.listen, self.certificate.pem
        self.streams = ClientStreams(
            self.settings.name, certificate, self.key, self.limits, self._authenticate,
            self._stream_opened, self._frame, self._stream_closed, listen.limits(),
        )  # fmt: skip
        self.service = PeerService(
            self.home / identity.SITE_CERTIFICATE, self.home / identity.SITE_KEY, lambda: self.neighbours, self.limits,
            self._from_peer, self._peer_switched, listen.limits(),
        )  # fmt: skip
        async with AsyncExitStack() as ending:
            ending.callback(self.store.close)
            if self.trustee is not None:
                ending.callback(self.trustee.close)
            ending.callback(self._save_seen)
            if self.inviter is not None:  # first: it may wait for the port of the life before, and then rounds begin
                await _listening(self.inviter.start(self._keys, self._invitation), listen.flower)
                ending.push_async_callback(asyncio.to_thread, self.inviter.stop)
            log.info("site %s serves from round %d on", self.settings.name, self.rounds.round)
            self._handle(lambda: self.rounds.start(time.monotonic()))  # before anyone can connect
            await _listening(self.streams.start(f"{listen.host}:{listen.clients}"), listen.clients)
            ending.push_async_callback(self.streams.stop)
            await _listening(self.service.start(f"{listen.host}:{listen.peers}"), listen.peers)
            ending.push_async_callback(self.service.stop)
            if listen.metrics is not None:
                metrics = MetricsServer(self.figures)
                await _listening(metrics.start(listen.metrics), listen.metrics)
                ending.push_async_callback(metrics.stop)
            ending.push_async_callback(self._end_tasks)
            for name, neighbour in self.neighbours.items():
                self._link(name, neighbour)
            self.store.acknowledge(self._coming.change, self.rounds.round + 1)
            self._keep(self._loop.create_task(self._watch()))
            return await self._over

    def stop(self, reason: str) -> None:
        """End soon; what is saved stays saved, and the next start goes on from there."""
        if not self._over.done():
            self._over.set_result(reason)

    async def _linger(self, reason: str) -> None:
        """Stay until every client knows that training is over and every neighbour has the last models."""
        for client in list(self.rounds.connected):
            self._dismiss(client, reason)
        until, waited_for = time.monotonic() + self.settings.timing.linger, set[str]()
        while (absent := self._uninformed()) and time.monotonic() < until:
            if absent != waited_for and not absent & self.rounds.connected:
                log.info("the training is over; staying for %s, who do not know yet", ", ".join(sorted(absent)))
                waited_for = absent
            await asyncio.sleep(0.05)
        self.stop(reason)

    def _uninformed(self) -> set[str]:
        """Clients that have not received the end of training, and neighbours that have not the last models."""
        return (self.rounds.admitted - self._informed) | {
            name for name, link in self._links.items() if not link.drained
        }

    def _dismiss(self, client: str, reason: str) -> None:
        self._dismissed.add(client)
        self.streams.send(client, encode(messages.Stop(reason=reason, accepted=self.role.accepted.get(client))))

    async def _end_tasks(self) -> None:
        for timer in (self._timer, self._writing, self._saving):
            if timer is not None:
                timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # the protocol's effects -------------------------------------------------------------------------------------------

    def _handle(self, event: Callable[[], list[Effect]]) -> None:
        """Carry out an event and its effects. If anything goes wrong the process ends: never is a site half alive."""
        try:
            effects = event()
            self._phases.enter(self.rounds.phase.value)
            if not self._over.done():  # else as after a crash: what is not saved did not happen
                self._apply(effects)
                self._retire_spent()
                self._announce_readiness()
        except Exception as error:
            self._fail(error)

    def _keep(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        """A task that the site cannot do without: if it fails, so does the site."""
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    def _apply(self, effects: list[Effect]) -> None:
        frames = RequestFrames()
        for effect in effects:
            match effect:
                case Ask(client, request):
                    self.streams.send(client, frames.of(request))
                case Send(client, frame):
                    self.streams.send(client, frame)
                case Publish(round, publication):
                    self._latest = (round, self._published(publication))
                    for link in self._links.values():
                        link.publish(*self._latest)
                case Completed():
                    self._save(effect)
                case Changed():
                    self._members_changed(effect)
                case Finished(round, reason, training_over):
                    log.info("finished after round %d: %s", round, reason)
                    if training_over:
                        self._keep(self._loop.create_task(self._linger(reason)))
                    else:
                        self.stop(reason)
                case Note(text, about):
                    if about:
                        self._sparing.info(about, text)
                    else:
                        log.info("%s", text)
        self._set_timer()

    def _save(self, done: Completed) -> None:
        figures = {
            "accepted": list(done.accepted),
            "late": list(done.late),
            "neighbours": list(done.neighbours),
            "absent": list(done.absent),
            "retired": list(done.retired),
            "clipped": sorted(self.role.clipped),
            "sat_out": self._sat_out(done.round),
            "disagreement": float(done.snapshot["disagreement"]),
            "seconds": self._clock.tick(),
            "refused": self._refused(),
        }
        self.store.save_round(done.round, done.snapshot, done.accepted, figures, self._seen)
        self._seen.clear()
        log.info(
            "round %d: %d accepted%s%s%s, disagreement %.3g",
            done.round,
            len(done.accepted),
            f", clipped {', '.join(sorted(self.role.clipped))}" if self.role.clipped else "",
            f", late {', '.join(done.late)}" if done.late else "",
            f", without site {', '.join(done.absent)}" if done.absent else "",
            figures["disagreement"],
        )
        for pair, why in self._sat_out(done.round).items():
            self._sparing.info(f"sat out {pair} {why}", f"cluster {pair} sat round {done.round} out: {why}")
        self._write_live()

    def _sat_out(self, round: int) -> dict[str, str]:
        if self.masked is not None:
            return self.masked.sat_out(round)
        return {} if self.trustee is None else dict(self.trustee.sat_out)

    def _retire_spent(self) -> None:
        """Clients that trust this site and whose accounts here are spent are not asked any more."""
        spent = set() if self.trustee is None else self.trustee.spent - self.rounds.retired
        if spent & self.rounds.admitted:
            self._apply(self.rounds.spent(spent, time.monotonic()))

    def _fail(self, error: BaseException) -> None:
        if self._over.done():
            return
        if isinstance(error, NetworkError):
            why = str(error)
        else:
            log.error("round %d failed", self.rounds.current, exc_info=error)
            why = f"Round {self.rounds.current} failed ({type(error).__name__}: {error}); please report it."
        failure = Unforeseen(f"{why} Started again, the site goes on from its last completed round.")
        failure.__cause__ = error
        self._over.set_exception(failure)

    def _set_timer(self) -> None:
        deadline = None if self.rounds.phase is Phase.FINISHED else self.rounds.deadline
        if deadline == self._timed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timed = None, deadline
        if deadline is not None:
            delay = max(0.0, deadline - time.monotonic())
            self._timer = self._loop.call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = self._timed = None
        self._handle(lambda: self.rounds.tick(time.monotonic()))

    def _choose(self, round: int, able: list[str]) -> list[str]:
        wanted, chosen = self.training.algorithm.participants, able
        if wanted != "all" and len(able) > wanted:
            lots = stream(self.training.seed, 0, Purpose.PARTICIPANTS, zlib.crc32(self.settings.name.encode()), round)
            chosen = sorted(able[place] for place in lots.permutation(len(able))[:wanted])
        if self.masked is not None:
            return self.masked.worth_asking(chosen)
        if self.trustee is None:
            return chosen
        return self.trustee.worth_asking(chosen, {client: self.role.pair(client) for client in chosen})

    # clients ----------------------------------------------------------------------------------------------------------

    def _keys(self) -> dict[str, ClientKey]:
        return {name: client.key for name, client in self.store.clients().items()}

    def _authenticate(self, hello: messages.Hello, nonce: bytes) -> str:
        try:
            key = ClientKey.parse(hello.key.encode())
        except Exception as error:
            raise Unwelcome("its key cannot be read") from error
        client = self.store.client_of(key)
        if client is None or client not in self.rounds.admitted:
            raise Unwelcome(f"the key with fingerprint {key.fingerprint[:16]}… is not admitted")
        if not key.verifies(bytes.fromhex(hello.signature), self.certificate.fingerprint, nonce):
            raise Unwelcome(f"the signature for client {client} is wrong")
        if not self.store.takes_token(client, hello.token):
            raise Unwelcome(f"the token of client {client} is not that of its last invitation")
        self._entrusted(client, hello.terms)
        if self.masked is not None:
            self.masked.joined(client, hello.masks)
        self.store.saw_release(client, hello.releases)
        self._budgets[client] = heard(hello.budget)
        return client

    def _entrusted(self, client: str, terms: str) -> None:
        """Keep an account for a client that trusts this site; one that does not adds its noise itself."""
        if self.trustee is None:
            return
        if not terms:
            self.trustee.part_with(client)
            return
        try:
            self.trustee.accept(client, SiteTerms.parse(terms))
        except PrivacyError as error:
            raise Unwelcome(f"the account of client {client} here cannot go on: {error}") from error

    def _stream_opened(self, client: str) -> None:
        self._tokens.pop(client, None)  # the next invitation gets a new one
        known = self.store.clients().get(client)
        if known is None:  # expelled this very moment
            self.streams.close(client)
            return
        welcome = messages.Welcome(
            client=client,
            cluster=known.cluster,
            training=self.training.text,
            releases=known.releases,
            round=self.rounds.round,
        )
        self.streams.send(client, encode(welcome))
        log.info("client %s is connected", client)
        if self.rounds.phase is Phase.FINISHED:
            self._dismiss(client, "all rounds are done")
        self._handle(lambda: self.rounds.client_connected(client, time.monotonic()))
        self._write_live_soon()

    def _stream_closed(self, client: str) -> None:
        log.info("client %s is gone", client)
        if client in self._dismissed:
            self._informed.add(client)
            self.store.remember_informed(self._informed)
        self._invited[client] = time.monotonic()
        self._handle(lambda: self.rounds.client_gone(client, time.monotonic()))
        self._write_live_soon()

    def _frame(self, client: str, frame: Frame) -> None:
        now = time.monotonic()
        match frame.header:
            case messages.Answer(round=round, release=release):
                if not self._note_release(client, round, release):
                    return
                self._handle(lambda: self.rounds.answered(client, round, read_answer(frame), now))
            case messages.Decline(round=round, final=final, reason=reason):
                self._handle(lambda: self.rounds.declined(client, round, final, reason, now))
            case _ if self.masked is not None:
                self._masked_frame(self.masked, client, frame, now)

    def _masked_frame(self, masked: MaskedPairs, client: str, frame: Frame, now: float) -> None:
        header = frame.header
        match header:
            case MaskedAnswer(round=round, release=release):
                if self._note_release(client, round, release):
                    take = partial(masked.contributed, client, header, frame.words[0])
                    self._handle(lambda: self.rounds.masked_answer(client, round, take, now))
            case Consent() | Reveal():
                self._handle(lambda: self.rounds.masked_message(lambda: masked.heard(client, frame), now))
            case _:
                self._handle(lambda: self.rounds.masked_message(lambda: masked.gathered(client, frame), now))

    def _note_release(self, client: str, round: int, number: int) -> bool:
        """Remember it; returns whether that worked.

        An answer to the open round is saved with the round, or soon if that takes longer: a transaction for each would
        cost too much. Any other is saved at once.
        """
        self._seen[client] = max(number, self._seen.get(client, 0))
        if round != self.rounds.current or self.rounds.phase is not Phase.COLLECTING:
            return self._save_seen()
        if self._saving is None:
            self._saving = self._loop.call_later(_SEEN_SECONDS, self._save_seen)
        return True

    def _save_seen(self) -> bool:
        self._saving = None
        try:
            if self._seen:
                self.store.saw_releases(self._seen)
                self._seen.clear()
        except NetworkError as error:
            self._fail(error)
            return False
        return True

    def _invitation(self, client: str) -> Invitation | None:
        """The invitation for a client that is online; called from the inviter's thread."""
        now = time.monotonic()
        if client in self.streams or now - self._invited.get(client, 0.0) < _INVITE_AFTER_SECONDS:
            return None
        self._invited[client] = now
        if client not in self._tokens:
            self._tokens[client] = secrets.token_urlsafe(32)
            self.store.give_token(client, self._tokens[client])
        listen = self.settings.listen
        return Invitation(f"{listen.public or listen.host}:{listen.clients}", self._tokens[client])

    # neighbours -------------------------------------------------------------------------------------------------------

    def _link(self, name: str, neighbour: Neighbour) -> None:
        link = self._links[name] = PeerLink(
            name, neighbour, self.certificate.pem, self.key, self.limits,
            lambda: self._greeting(name), self._peer_replied, self._peer_down,
        )  # fmt: skip
        self._keep(link.start())

    def _last_models(self) -> tuple[int, bytes]:
        """The models of the last round as a publication, with which a neighbour that is behind can catch up."""
        publication = self.role.publication()
        return publication.round, self._published(publication)

    def _published(self, publication: Publication) -> bytes:
        return encode_publication(self.settings.name, self.digest, publication, self.role.rollbacks)

    def _greeting(self, peer: str) -> bytes:
        hello = messages.PeerHello(
            site=self.settings.name,
            training=self.digest,
            round=self.rounds.round,
            degree=len(self.neighbours),
            heard=self._received.get(peer, 0),
            ready=self.rounds.ready,
            rollbacks=list(self.role.rollbacks),
        )
        return encode(hello)

    def _announce_readiness(self) -> None:
        """Neighbours begin when everyone is ready, so they learn it at once and not with the next heartbeat."""
        if self.rounds.ready is not self._was_ready:
            self._was_ready = self.rounds.ready
            for link in self._links.values():
                link.greet_now()

    def _apart_before(self) -> int:
        """How many rounds, in a row, the last life of this site trained with too few neighbours."""
        needed = min(self.settings.quorum.neighbours, len(self.neighbours))
        history = self.store.history()
        together = (len(row["neighbours"]) >= needed for row in reversed(history))
        return next((rounds for rounds, enough in enumerate(together) if enough), len(history))

    def _from_peer(self, peer: str, frame: Frame) -> bytes:
        header = frame.header
        assert isinstance(header, messages.PeerHello | messages.Publication)
        if header.training != self.digest:
            raise Refused(f"it has another training configuration ({header.training[:16]}…, here {self.digest[:16]}…)")
        if tuple(header.rollbacks) != self.role.rollbacks:
            raise Refused(
                f"it has rolled back to {_rounds(header.rollbacks)}, this site to {_rounds(self.role.rollbacks)}; the "
                "operators must agree (`pgfl site rollback`)"
            )
        if isinstance(header, messages.Publication):
            publication = read_publication(frame)
            if publication.round <= self.training.rounds:
                self._received[peer] = max(self._received.get(peer, 0), publication.round)
            self._handle(lambda: self.rounds.published(peer, publication.round, publication, time.monotonic()))
        else:
            self._greeted(peer, header)
        acknowledged = messages.Acknowledged(
            site=self.settings.name,
            training=self.digest,
            round=self.rounds.round,
            degree=len(self.neighbours),
            finished=self.rounds.phase is Phase.FINISHED,
            ready=self.rounds.ready,
        )
        return encode(acknowledged)

    def _greeted(self, peer: str, hello: messages.PeerHello) -> None:
        if peer in self.rounds.up:
            self._note_readiness(peer, hello.ready)
        link = self._links.get(peer)
        if self._latest is not None and self._latest[0] > hello.heard and link is not None and link.drained:
            link.publish(*self._latest)

    def _note_readiness(self, peer: str, ready: bool) -> None:
        if peer not in self.rounds.up or ready is not self._ready_peers.get(peer):
            self._ready_peers[peer] = ready
            self._handle(lambda: self.rounds.peer_up(peer, time.monotonic(), ready))

    def _peer_replied(self, peer: str, reply: messages.Acknowledged) -> None:
        if reply.training != self.digest:
            self._peer_down(peer, "it has another training configuration")
            return
        if self._why_down.pop(peer, None) is not None or peer not in self.rounds.up:
            log.info("site %s is there, at round %d", peer, reply.round)
        self._note_readiness(peer, reply.ready)

    def _peer_down(self, peer: str, reason: str) -> None:
        if self._why_down.get(peer) != reason:
            self._why_down[peer] = reason
            log.warning("site %s cannot be reached: %s", peer, reason)
        if peer in self.rounds.up:
            self._handle(lambda: self.rounds.peer_down(peer, time.monotonic()))

    # what the operator changes meanwhile ------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self._look_for_changes()
            await self._look_for_certificate()
            self._write_live()

    def _look_for_changes(self) -> None:
        """Pass on what the operator changed; it counts from the next round on."""
        try:
            coming = self.store.membership()
        except NetworkError as error:
            log.warning("changes cannot be read: %s", error)
            return
        if coming.change != self._coming.change:
            self._coming = coming
            members = Members(self._clusters_of(coming), frozenset(coming.neighbours))
            rollback = None
            if coming.rollbacks != self.role.rollbacks:
                rollback = Rollback(self.store.past(coming.rollbacks[-1]), coming.rollbacks)
            self._handle(lambda: self.rounds.change(members, time.monotonic(), rollback))

    async def _look_for_certificate(self) -> None:
        """Take over a certificate to which the operator has switched; open streams go on."""
        try:
            shown = SiteCertificate.read(self.home / identity.SITE_CERTIFICATE)
            key = _read_key(self.home / identity.SITE_KEY)
        except NetworkError as error:
            self._sparing.warning("certificate", f"the certificate cannot be read: {error}")
            return
        if shown == self.certificate or shown.name != self.certificate.name or not matching(shown, key):
            return
        log.info("this site shows the certificate with fingerprint %s… from now on", shown.fingerprint[:16])
        self.certificate, self.key = shown, key
        await self.streams.renew(shown.pem, key)
        self.service.proxy.renew()
        for name, neighbour in self.neighbours.items():
            self._keep(self._loop.create_task(self._links.pop(name).stop()))
            self._link(name, neighbour)
            if self._latest is not None:
                self._links[name].publish(*self._latest)

    def _peer_switched(self, peer: str) -> None:
        log.info("site %s shows its new certificate; the one before is trusted no more", peer)
        self.store.switched(peer)
        self.neighbours = {**self.neighbours, peer: self.store.neighbours()[peer]}

    def _members_changed(self, changed: Changed) -> None:
        """Open and close streams and links as the members say that count from now on."""
        if changed.rolled_back:
            self._rolled_back()
        known, self.neighbours = self.neighbours, self._coming.neighbours
        self.store.acknowledge(self._coming.change, changed.round)
        for client in changed.expelled:
            log.info("client %s is expelled from round %d on", client, changed.round)
            self.streams.close(client)
        for client in changed.admitted:
            log.info("client %s is admitted to cluster %s", client, self.role.clients[client])
        for name in sorted(known.keys() | self.neighbours.keys()):
            if known.get(name) == self.neighbours.get(name):
                continue
            if name in self._links:
                self._keep(self._loop.create_task(self._links.pop(name).stop()))
            if name in self.neighbours:
                log.info("site %s is linked, at %s", name, self.neighbours[name].address)
                self._link(name, self.neighbours[name])
            else:
                log.info("site %s is unlinked from round %d on", name, changed.round)

    def _rolled_back(self) -> None:
        log.info("rolled back to %s; duals begin anew", _rounds(self.role.rollbacks[-1:]))
        self.store.save_state(self.rounds.round, self.role.snapshot())
        self._received.clear()
        self._latest = self._last_models()
        for link in self._links.values():
            link.clear()
            link.publish(*self._latest)

    def _clusters_of(self, membership: Membership) -> dict[str, str]:
        """The clusters of the admitted clients; one whose cluster is not trained is left out, with a warning."""
        clusters = {name: client.cluster for name, client in membership.clients.items()}
        for name, cluster in clusters.items():
            if cluster not in self.training.clusters:
                log.warning("client %s is in cluster %s, which is not trained: it takes no part", name, cluster)
        return {name: cluster for name, cluster in clusters.items() if cluster in self.training.clusters}

    def _refused(self) -> dict[str, int]:
        return dict(self.rounds.refused + self.streams.refused + self.service.refused)

    def figures(self) -> Figures:
        """What is measured, as of now."""
        timing = self.settings.timing
        releases = {name: client.releases for name, client in self.store.clients().items()}
        return Figures(
            site=self.settings.name,
            phase=self.rounds.phase.value,
            round=self.rounds.round,
            rounds=self.training.rounds,
            clients_admitted=len(self.rounds.admitted),
            clients_connected=len(self.rounds.connected),
            neighbours_linked=len(self.rounds.neighbours),
            neighbours_up=len(self.rounds.up),
            disagreement=self.role.disagreement,
            seconds_since_round=self._clock.since,
            round_seconds=self._clock.seconds,
            refused=self._refused(),
            releases=releases,
            epsilon_left={
                name: budget.epsilon_left(releases[name])
                for name, budget in self._budgets.items()
                if budget is not None and name in releases
            },
            phase_seconds=self._phases.seconds(self.rounds.phase.value),
            disk_free_bytes=shutil.disk_usage(self.home).free,
            missing=self.rounds.missing if self.rounds.phase is Phase.WAITING else None,
            longest_round=timing.start + timing.answers + timing.exchange + timing.pace + _OVERTIME_SECONDS,
        )

    def _write_live_soon(self) -> None:
        """Once for many clients that come or go at a time."""
        if self._writing is None:
            self._writing = self._loop.call_later(_LIVE_SECONDS, lambda: self._handle(self._live_effects))

    def _live_effects(self) -> list[Effect]:
        self._write_live()
        return []

    def _write_live(self) -> None:
        """A small file for `pgfl site status` and the demo; losing it loses nothing."""
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        live = {
            "pid": os.getpid(),
            "site": self.settings.name,
            "round": self.rounds.round,
            "rounds": self.training.rounds,
            "phase": self.rounds.phase.value,
            "connected": sorted(self.rounds.connected),
            "waiting_for": sorted(
                self.rounds.pending if self.rounds.phase is Phase.COLLECTING else self.rounds.awaited
            ),
            "up": sorted(self.rounds.up),
            "missing": self.rounds.missing if self.rounds.phase is Phase.WAITING else None,
            "disagreement": self.role.disagreement,
            "refused": self._refused(),
            "budgets": {name: told.model_dump() for name, told in self._budgets.items() if told is not None},
        }
        partial = self.home / f"{LIVE}.part"
        with suppress(OSError):
            partial.write_text(json.dumps(live))
            partial.replace(self.home / LIVE)


def _rounds(rollbacks: Sequence[int]) -> str:
    return f"round {', '.join(map(str, rollbacks))}" if rollbacks else "no round"


async def _listening(starting: Any, port: int | str) -> None:
    try:
        await starting
    except (RuntimeError, OSError) as error:
        raise NetworkError(f"Port {port} cannot be listened on; is another site running, or the host wrong?") from error


def _read_key(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise NetworkError(f"The key {path} cannot be read: {error.strerror}; `pgfl site init` makes one.") from error
