"""A running site: it carries out the effects of its rounds, for its clients, its neighbours and its store.

`Site` owns the rest and is passed to nobody. `SiteState` is what survives a restart; `ClientSessions` and `Peers` turn
frames into events for `Site._handle`; `Reports` only reads.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from pgfl.errors import NetworkError, SiteCrashed, is_damage
from pgfl.network.protocol.connection import TlsTransport, Transport
from pgfl.network.protocol.messages import RequestFrames
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
    Send,
)
from pgfl.network.site.peers import Peers, rounds_in_words
from pgfl.network.site.reports import MetricsServer, Reports
from pgfl.network.site.sessions import ClientSessions, Port
from pgfl.network.site.settings import SiteSettings
from pgfl.network.site.state import SiteState

log = logging.getLogger(__name__)
_LIVE_SECONDS = 0.2  # delay of the status file after a round, or when a client connects or disconnects
_POLL_SECONDS = 1.0  # how often the operator's changes are polled


class Site:
    """One site, from its start to its last round. It is running or it has ended, never half alive."""

    def __init__(self, settings: SiteSettings, transport: Transport | None = None) -> None:
        """Load the site's folder; nothing is sent or received before `run`."""
        self.settings = settings
        transport = transport or TlsTransport(settings.proxies())
        self.state = SiteState(settings)
        self.store, self.role, self.rounds = self.state.store, self.state.role, self.state.rounds
        self.sessions = ClientSessions(
            self.state, self._handle, self._fail, self._write_live_soon, self._poll_membership_soon
        )
        self.peers = Peers(self.state, self._handle, self._supervise, transport)
        certificate = self.state.certificate
        self.port = Port(
            certificate.certificate_file, certificate.key_file, self.state.limits.frame_bytes,
            self.sessions.streams.conversation, self.peers.service.conversation, self.peers.service.trusted,
            settings.listen.limits(), transport=transport, balancers=settings.listen.networks(),
        )  # fmt: skip
        self.reports = Reports(self.state, self.sessions, self.peers, self.port)
        self._membership = self.state.membership  # as the operator changed it last
        self._tasks: set[asyncio.Future[None]] = set()
        self._live_timer: asyncio.TimerHandle | None = None
        self._round_timer: asyncio.TimerHandle | None = None
        self._timer_deadline: float | None = None

    # start and end ----------------------------------------------------------------------------------------------------

    async def run(self) -> str:
        """Serve until the last round is done; return why it ended."""
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[str] = self._loop.create_future()
        listen = self.settings.listen
        async with AsyncExitStack() as ending:
            ending.callback(self.store.close)
            if self.state.trustee is not None:
                ending.callback(self.state.trustee.close)
            ending.callback(self.sessions.save_releases)
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
            self.store.acknowledge(self._membership.change, self.rounds.round + 1)
            self._supervise(self._poll())
            return await self._over

    def stop(self, reason: str) -> None:
        """End soon; what is saved stays saved, and the next start goes on from there."""
        if not self._over.done():
            self._over.set_result(reason)

    def _fail(self, error: BaseException) -> None:
        """End with an error, and with an exit code that makes a service manager restart the site."""
        if self._over.done():
            return
        if isinstance(error, NetworkError):
            why = str(error)
        else:
            log.error("round %d failed", self.rounds.current, exc_info=error)
            why = f"Round {self.rounds.current} failed ({type(error).__name__}: {error}); please report it."
        failure = NetworkError(why)
        if not is_damage(error):
            failure = SiteCrashed(f"{why} Started again, the site goes on from its last completed round.")
        failure.__cause__ = error
        self._over.set_exception(failure)

    def _supervise(self, work: Awaitable[None]) -> None:
        """Run a task that the site cannot do without: if it fails, so does the site."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    async def _end_tasks(self) -> None:
        for timer in (self._round_timer, self._live_timer):
            if timer is not None:
                timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _linger(self, reason: str) -> None:
        """Stay until every client knows that training is over and every neighbour has the last models."""
        self.sessions.dismiss_all(reason)
        until, waited_for = time.monotonic() + self.settings.timing.linger, set[str]()
        while (absent := self.uninformed) and time.monotonic() < until:
            if absent != waited_for and not absent & self.rounds.connected:
                log.info("the training is over; staying for %s, who do not know yet", ", ".join(sorted(absent)))
                waited_for = absent
            await asyncio.sleep(0.05)
            if self.rounds.phase is not Phase.FINISHED:  # the operator rolled back
                return
        self.stop(reason)

    @property
    def uninformed(self) -> set[str]:
        """Clients that have not received the end of training, and neighbours that have not the last models."""
        return self.sessions.uninformed | self.peers.uninformed

    # effects of rounds ------------------------------------------------------------------------------------------------

    def _handle(self, event: Callable[[], list[Effect]]) -> None:
        """Carry out an event and its effects; end the process if anything goes wrong."""
        try:
            effects = event()
            self.reports.phases.enter(self.rounds.phase)
            if not self._over.done():  # else as after a crash: what is not saved did not happen
                self._apply(effects)
                self._retire_spent()
                self.peers.announce_readiness()
        except Exception as error:
            self._fail(error)

    def _apply(self, effects: list[Effect]) -> None:
        frames, streams = RequestFrames(), self.sessions.streams
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
                        self._supervise(self._linger(reason))
                    else:
                        self.stop(reason)
                case Note():
                    self.reports.note(effect)
        self._set_timer()

    def _save(self, done: Completed) -> None:
        row = self.reports.round_row(done)
        self.store.save_round(done.round, done.snapshot, done.accepted, row, self.sessions.unsaved_releases)
        self.sessions.unsaved_releases.clear()
        self.reports.log_round(done)
        self._write_live_soon()

    def _retire_spent(self) -> None:
        """Ask no more clients that trust this site and whose accounts here are spent."""
        trustee = self.state.trustee
        spent = set() if trustee is None else trustee.spent - self.rounds.retired
        if spent & self.rounds.admitted:
            self._apply(self.rounds.on_budgets_spent(spent, time.monotonic()))

    def _set_timer(self) -> None:
        deadline = None if self.rounds.phase is Phase.FINISHED else self.rounds.deadline
        if deadline == self._timer_deadline:
            return
        if self._round_timer is not None:
            self._round_timer.cancel()
        self._round_timer, self._timer_deadline = None, deadline
        if deadline is not None:
            delay = max(0.0, deadline - time.monotonic())
            self._round_timer = self._loop.call_later(delay, self._tick)

    def _tick(self) -> None:
        self._round_timer = self._timer_deadline = None
        self._handle(lambda: self.rounds.tick(time.monotonic()))

    # changes by the operator ------------------------------------------------------------------------------------------

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            self._poll_membership()
            self._poll_certificate()
            self._write_live()

    def _poll_membership(self) -> None:
        """Pass on what the operator changed; it counts from the next round on."""
        try:
            coming = self.store.membership()
        except NetworkError as error:
            log.warning("changes cannot be read: %s", error)
            return
        if (coming.change, coming.invited) != (self._membership.change, self._membership.invited):
            self._membership = coming
            members = Members(self.state.clusters_of(coming), frozenset(coming.neighbours), coming.invited)
            rollback = None
            if coming.rollbacks != self.role.rollbacks:
                rollback = self.state.rollback(coming.rollbacks)
            self._handle(lambda: self.rounds.change(members, time.monotonic(), rollback))

    def _poll_membership_soon(self) -> None:
        """After a client or a site has used its invitation, once its frame is dealt with."""
        self._loop.call_soon(self._poll_membership)

    def _poll_certificate(self) -> None:
        """Use the certificate to which the operator has switched; open streams go on."""
        if self.state.certificate.reload():
            self.port.renew()
            self.peers.show_new_certificate()

    def _members_changed(self, changed: Changed) -> None:
        """Open and close streams and links as the members say that count from now on."""
        if changed.rolled_back:
            log.info("rolled back to %s; duals begin anew", rounds_in_words(self.role.rollbacks[-1:]))
            self.store.save_rollback(self.rounds.round, self.role.snapshot())
            self.sessions.begin_anew()
            self.peers.roll_back()
        self.store.acknowledge(self._membership.change, changed.round)
        for client in changed.expelled:
            log.info("client %s is expelled from round %d on", client, changed.round)
            self.sessions.streams.close(client)
        for client in changed.admitted:
            log.info("client %s is admitted to cluster %s", client, self.role.clients[client])
        self.peers.adopt(self._membership.neighbours, changed.round)

    # the status file --------------------------------------------------------------------------------------------------

    def _write_live_soon(self) -> None:
        """Write once for many rounds, and for many clients that connect or disconnect at a time."""
        if self._live_timer is None:
            self._live_timer = self._loop.call_later(_LIVE_SECONDS, lambda: self._handle(self._live_effects))

    def _live_effects(self) -> list[Effect]:
        self._write_live()
        return []

    def _write_live(self) -> None:
        if self._live_timer is not None:
            self._live_timer.cancel()
            self._live_timer = None
        self.reports.write_live()


async def _listening(starting: Any, port: int | str) -> None:
    try:
        await starting
    except (RuntimeError, OSError) as error:
        raise NetworkError(f"Port {port} cannot be listened on; is another site running, or the host wrong?") from error
