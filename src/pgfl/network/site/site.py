"""A running site: it carries out what its rounds ask for, between its clients, its neighbours and its store."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from pgfl.errors import NetworkError
from pgfl.network.protocol.messages import RequestFrames
from pgfl.network.site.life import SiteLife
from pgfl.network.site.parts import SiteParts
from pgfl.network.site.peers import SitePeers, rounds_in_words
from pgfl.network.site.reports import MetricsServer, SiteReports
from pgfl.network.site.round_effects import (
    Ask,
    Changed,
    Completed,
    Effect,
    Finished,
    Members,
    Note,
    Phase,
    Publish,
    Rollback,
    Send,
)
from pgfl.network.site.sessions import SiteClients, SitePort
from pgfl.network.site.settings import SiteSettings

log = logging.getLogger(__name__)
LOCK = "site.lock"
_LIVE_SECONDS = 0.2  # after a round, or when a client comes or goes, until the status says so
_LOOK_SECONDS = 1.0  # how often new admissions and links are looked for


class Site:
    """One site, from its start to its last round."""

    def __init__(self, settings: SiteSettings) -> None:
        self.settings = settings
        self.parts = SiteParts(settings)
        self.store, self.role, self.rounds = self.parts.store, self.parts.role, self.parts.rounds
        self.life = SiteLife(lambda: self.rounds.current)
        self.clients = SiteClients(self.parts, self.life, self._handle, self._write_live_soon)
        self.peers = SitePeers(self.parts, self.life, self._handle)
        self.port = SitePort(
            self.parts.shown.certificate_file, self.parts.shown.key_file, self.parts.limits.frame_bytes,
            self.clients.streams.conversation, self.peers.service.conversation, self.peers.service.trusted,
            settings.listen.limits(),
        )  # fmt: skip
        self.reports = SiteReports(self.parts, self.clients, self.peers, self.port)
        self._coming = self.parts.membership
        self._writing: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timed: float | None = None  # the deadline that the timer is set to

    # life -------------------------------------------------------------------------------------------------------------

    async def run(self) -> str:
        """Serve until the last round is done; returns why it ended."""
        self.life.begin()
        listen = self.settings.listen
        async with AsyncExitStack() as ending:
            ending.callback(self.store.close)
            if self.parts.trustee is not None:
                ending.callback(self.parts.trustee.close)
            ending.callback(self.clients.save_seen)
            log.info("site %s serves from round %d on", self.settings.name, self.rounds.round)
            self._handle(lambda: self.rounds.start(time.monotonic()))  # before anyone can connect
            await _listening(self.port.start(f"{listen.host}:{listen.port}"), listen.port)
            ending.push_async_callback(self.port.stop)
            ending.push_async_callback(self._end_tasks)
            self.peers.link_all()
            if listen.metrics is not None:
                metrics = MetricsServer(self.reports.figures)
                await _listening(metrics.start(listen.metrics), listen.metrics)
                ending.push_async_callback(metrics.stop)
            self.store.acknowledge(self._coming.change, self.rounds.round + 1)
            self.life.keep(self.life.loop.create_task(self._watch()))
            return await self.life.over

    def stop(self, reason: str) -> None:
        """End soon; what is saved stays saved, and the next start goes on from there."""
        self.life.stop(reason)

    async def _end_tasks(self) -> None:
        for timer in (self._timer, self._writing):
            if timer is not None:
                timer.cancel()
        await self.life.end_tasks()

    async def _linger(self, reason: str) -> None:
        """Stay until every client knows that training is over and every neighbour has the last models."""
        self.clients.dismiss_all(reason)
        until, waited_for = time.monotonic() + self.settings.timing.linger, set[str]()
        while (absent := self.uninformed) and time.monotonic() < until:
            if absent != waited_for and not absent & self.rounds.connected:
                log.info("the training is over; staying for %s, who do not know yet", ", ".join(sorted(absent)))
                waited_for = absent
            await asyncio.sleep(0.05)
        self.stop(reason)

    @property
    def uninformed(self) -> set[str]:
        """Clients that have not received the end of training, and neighbours that have not the last models."""
        return self.clients.uninformed | self.peers.uninformed

    # the protocol's effects -------------------------------------------------------------------------------------------

    def _handle(self, event: Callable[[], list[Effect]]) -> None:
        """Carry out an event and its effects. If anything goes wrong the process ends: never is a site half alive."""
        try:
            effects = event()
            self.reports.phases.enter(self.rounds.phase)
            if not self.life.over.done():  # else as after a crash: what is not saved did not happen
                self._apply(effects)
                self._retire_spent()
                self.peers.announce_readiness()
        except Exception as error:
            self.life.fail(error)

    def _apply(self, effects: list[Effect]) -> None:
        frames, streams = RequestFrames(), self.clients.streams
        for effect in effects:
            match effect:
                case Ask(client, request):
                    streams.send(client, frames.of(request))
                case Send(client, frame):
                    streams.send(client, frame)
                case Publish(_, publication):
                    self.peers.publish(publication)
                case Completed():
                    self._save(effect)
                case Changed():
                    self._members_changed(effect)
                case Finished(round, reason, training_over):
                    log.info("finished after round %d: %s", round, reason)
                    if training_over:
                        self.life.keep(self.life.loop.create_task(self._linger(reason)))
                    else:
                        self.stop(reason)
                case Note():
                    self.reports.note(effect)
        self._set_timer()

    def _save(self, done: Completed) -> None:
        row = self.reports.round_row(done)
        self.store.save_round(done.round, done.snapshot, done.accepted, row, self.clients.seen)
        self.clients.seen.clear()
        self.reports.log_round(done)
        self._write_live_soon()

    def _retire_spent(self) -> None:
        """Clients that trust this site and whose accounts here are spent are not asked any more."""
        trustee = self.parts.trustee
        spent = set() if trustee is None else trustee.spent - self.rounds.retired
        if spent & self.rounds.admitted:
            self._apply(self.rounds.on_budgets_spent(spent, time.monotonic()))

    def _set_timer(self) -> None:
        deadline = None if self.rounds.phase is Phase.FINISHED else self.rounds.deadline
        if deadline == self._timed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timed = None, deadline
        if deadline is not None:
            delay = max(0.0, deadline - time.monotonic())
            self._timer = self.life.loop.call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = self._timed = None
        self._handle(lambda: self.rounds.tick(time.monotonic()))

    # what the operator changes meanwhile ------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self._look_for_changes()
            self._look_for_certificate()
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
            members = Members(self.parts.clusters_of(coming), frozenset(coming.neighbours))
            rollback = None
            if coming.rollbacks != self.role.rollbacks:
                rollback = Rollback(self.store.past(coming.rollbacks[-1]), coming.rollbacks)
            self._handle(lambda: self.rounds.change(members, time.monotonic(), rollback))

    def _look_for_certificate(self) -> None:
        """Take over a certificate to which the operator has switched; open streams go on."""
        if self.parts.shown.switched():
            self.port.renew()
            self.peers.show_new_certificate()

    def _members_changed(self, changed: Changed) -> None:
        """Open and close streams and links as the members say that count from now on."""
        if changed.rolled_back:
            log.info("rolled back to %s; duals begin anew", rounds_in_words(self.role.rollbacks[-1:]))
            self.store.save_state(self.rounds.round, self.role.snapshot())
            self.peers.roll_back()
        self.store.acknowledge(self._coming.change, changed.round)
        for client in changed.expelled:
            log.info("client %s is expelled from round %d on", client, changed.round)
            self.clients.streams.close(client)
        for client in changed.admitted:
            log.info("client %s is admitted to cluster %s", client, self.role.clients[client])
        self.peers.adopt(self._coming.neighbours, changed.round)

    # the file for the status ------------------------------------------------------------------------------------------

    def _write_live_soon(self) -> None:
        """Once for many rounds, and for many clients that come or go at a time."""
        if self._writing is None:
            self._writing = self.life.loop.call_later(_LIVE_SECONDS, lambda: self._handle(self._live_effects))

    def _live_effects(self) -> list[Effect]:
        self._write_live()
        return []

    def _write_live(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        self.reports.write_live()


async def _listening(starting: Any, port: int | str) -> None:
    try:
        await starting
    except (RuntimeError, OSError) as error:
        raise NetworkError(f"Port {port} cannot be listened on; is another site running, or the host wrong?") from error
