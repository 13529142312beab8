"""The link between neighbouring sites: one connection over TLS in which both know each other's certificate.

Both ends ask and reply on it. A greeting carries a site's name, configuration and round, a publication one round's
aggregates; every such question is replied to, in order. A site calls the neighbours whose address it knows, and makes a
call that breaks again; the newest publications wait until there is a connection. A site that cannot be reached is not
called: it calls.

Where two sites call each other, they use the call of the one whose name comes first, and the other one disconnects.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pgfl.network.logs import RateLimitedLogger
from pgfl.network.protocol import messages
from pgfl.network.protocol.connection import TLS, Callee, Connection, Conversation, Transport
from pgfl.network.protocol.identity import Neighbour, SiteCertificate
from pgfl.network.protocol.tls_frames import KEEP_ALIVE, BadConnection, KeepAlive
from pgfl.network.protocol.wire import Expected, Frame, Limits, Malformed, decode, encode, kind_of

log = logging.getLogger(__name__)
REPLY_SECONDS: Final = 20.0  # enough for 8 MB over 20 Mbit/s with losses; a dead link is noticed by its silence
_HEARTBEAT_SECONDS: Final = 2.0
_KEPT_PUBLICATIONS: Final = 3
_OUTBOX_FRAMES: Final = _KEPT_PUBLICATIONS + 1  # of the longest, that may wait for a neighbour
_NEW_SECONDS: Final = 5.0  # a call that is younger may cross one of the neighbour; an older one it does not use
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 3.0  # between two calls, in seconds
_QUESTION: Expected = (messages.PeerHello, messages.Publication, messages.LearnedPublication)
_REPLY: Expected = (messages.Acknowledged, messages.Refused)
_REPLIES: Final = frozenset(message.kind for message in _REPLY)


class Refused(Exception):
    """A neighbour's frame is refused; the text goes to the neighbour and to the log."""


class _Superseded(BadConnection):
    """The link goes on over another connection."""


Receive = Callable[[str, Frame], bytes]


@dataclass
class PeerService:
    """Answers neighbours: `receive` gets the name of an authenticated neighbour and a valid question, and replies."""

    neighbours: Callable[[], Mapping[str, Neighbour]]
    limits: Limits
    receive: Receive
    on_switched: Callable[[str], None] = lambda peer: None  # it shows the certificate that was to come
    on_call: Callable[[str, PeerConnection], None] = lambda peer, talk: None  # it called this site
    refused: Counter[str] = field(default_factory=Counter)
    _limited_log: RateLimitedLogger = field(default_factory=lambda: RateLimitedLogger(log))

    def conversation(self, host: str) -> Conversation:
        """With a site that calls, whatever its address."""
        return PeerConnection(self, calls=True)

    def trusted(self) -> bytes:
        """The certificates of all neighbours."""
        return b"".join(neighbour.trusted for neighbour in self.neighbours().values())

    def reply(self, certificate: SiteCertificate, data: bytes) -> tuple[bytes, bool]:
        """The reply to a question of the site that shows this certificate, and whether the question is taken."""
        peer = certificate.name
        try:
            self.recognise(certificate)
            frame = decode(data, self.limits, _QUESTION)
            assert isinstance(frame.header, messages.PeerHello | messages.Publication)
            if frame.header.site != peer:
                raise Refused(f"it calls itself {frame.header.site!r}")
            return self.receive(peer, frame), True
        except Malformed as error:
            self.refused["malformed"] += 1
            self._limited_log.warning(f"{peer} malformed", f"site {peer}: refused {error}")
            why = str(error)
        except Refused as error:
            self.refused["refused"] += 1
            self._limited_log.warning(f"{peer} {error}", f"site {peer}: refused, {error}")
            why = str(error)
        return encode(messages.Refused(reason=why[:300])), False

    def recognise(self, certificate: SiteCertificate) -> None:
        """Refuse a certificate that is not the one that is linked, or was to come."""
        pinned = self.neighbours().get(certificate.name)
        if pinned is None or certificate not in (pinned.certificate, pinned.coming):
            raise Refused(f"its certificate names {certificate.name!r} and is not the one that is linked")
        if certificate == pinned.coming:
            self.on_switched(certificate.name)


class PeerConnection:
    """One connection to a neighbour, whoever called: it is asked, and what it asks is replied to."""

    def __init__(self, service: PeerService, *, calls: bool) -> None:
        """`calls` says that it was the neighbour who called."""
        self._service, self._calls = service, calls
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._certificate: SiteCertificate | None = None
        self._connection: Connection | None = None
        self._asked: deque[asyncio.Future[bytes]] = deque()
        self._broken: BadConnection | None = None

    @property
    def alive(self) -> bool:
        """Whether it can be used."""
        return self._broken is None

    async def reply(self, question: bytes) -> bytes:
        """The neighbour's reply to a question; raises `BadConnection` if none comes."""
        if self._broken is not None:
            raise self._broken
        assert self._connection is not None
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked.append(reply)
        self._connection.send(question)
        try:
            async with asyncio.timeout(REPLY_SECONDS):  # `wait_for` may swallow that the link is stopped
                return await reply
        except TimeoutError:
            raise BadConnection(f"it did not reply in {REPLY_SECONDS:g} s") from None

    def close(self, why: BadConnection | None = None) -> None:
        """Disconnect; whoever waits for a reply gets this reason."""
        self._break(why or BadConnection("it was closed here"))
        if self._connection is not None:
            self._connection.close()

    def on_open(self, connection: Connection) -> None:
        """Look at who it is."""
        self._connection, shown = connection, connection.certificate
        try:
            assert shown is not None  # TLS wants one, of whoever calls and whoever is called
            self._certificate = SiteCertificate.parse(ssl.DER_cert_to_PEM_cert(shown).encode())
        except ValueError as error:
            self.close(BadConnection(f"the certificate that it shows is no site's ({error})"))
            return
        with suppress(Refused):  # it is told when it asks
            self._service.recognise(self._certificate)
            if self._calls:
                self._service.on_call(self._certificate.name, self)
        if not self.ready.done():
            self.ready.set_result(None)

    def on_frame(self, frame: bytes) -> None:
        """Reply to a question, or pass a reply on to whoever asked."""
        assert self._certificate is not None and self._connection is not None
        if kind_of(frame) not in _REPLIES:
            reply, taken = self._service.reply(self._certificate, frame)
            self._connection.send(reply)
            if not taken:
                self._connection.close()
        elif not self._asked:
            self._break(BadConnection("it replies to what was not asked"))
            self._connection.abort()
        elif not (asked := self._asked.popleft()).done():
            asked.set_result(frame)

    def on_close(self, why: str | None) -> None:
        """Tell whoever waits for a reply."""
        self._break(BadConnection(why or "it was closed here"))

    def _break(self, why: BadConnection) -> None:
        self._broken = self._broken or why
        waiting: tuple[asyncio.Future[None] | asyncio.Future[bytes], ...] = (self.ready, *self._asked)
        for future in waiting:
            if not future.done():
                future.set_exception(self._broken)
                future.exception()  # somebody may wait for it, or nobody any more


@dataclass
class PeerLink:
    """Keeps in touch with one neighbour for as long as the site runs."""

    site: str  # this one
    peer: str
    neighbour: Neighbour
    certificate: Path  # that this site shows
    key: Path
    service: PeerService
    greeting: Callable[[], bytes]
    on_reply: Callable[[str, messages.Acknowledged], None]  # the neighbour is reached
    on_down: Callable[[str, str], None]  # it is not, with the reason
    keep_alive: KeepAlive = KEEP_ALIVE
    transport: Transport = TLS
    introduce: Callable[[], Awaitable[None]] | None = (
        None  # what comes before the first call, of a site that was invited
    )
    _outbox: deque[tuple[int, bytes]] = field(default_factory=lambda: deque(maxlen=_KEPT_PUBLICATIONS))
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _sending: bool = False
    _greeting_due: bool = False  # apart from `_wake`, or one that is asked for while another is answered would be lost
    _inbound: PeerConnection | None = None  # the neighbour's newest call
    _called: asyncio.Event = field(default_factory=asyncio.Event)  # it called, since this was looked at
    _own: PeerConnection | None = None  # this site's call that is used
    _own_since: float = 0.0

    def start(self) -> asyncio.Task[None]:
        """Begin; returns the task, which ends only if it is stopped or fails."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self._task

    async def stop(self) -> None:
        """Disconnect and call no more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._inbound is not None:
            self._inbound.close()

    def called(self, talk: PeerConnection) -> None:
        """The neighbour called."""
        if self._inbound is not None and self._inbound.alive:
            self._inbound.close(_Superseded("the neighbour called anew"))
        self._inbound = talk
        self._called.set()
        if self._own is not None and not self._keeps_own_call:
            self._own.close(_Superseded("the neighbour called"))

    @property
    def _keeps_own_call(self) -> bool:
        """Whether this site's own call goes on although the neighbour called, too."""
        return self.site < self.peer and asyncio.get_running_loop().time() - self._own_since < _NEW_SECONDS

    def publish(self, round: int, data: bytes) -> None:
        """Send this as soon as the link allows; only the newest few wait."""
        self._outbox.append((round, data))
        self._wake.set()

    def clear(self) -> None:
        """Forget what waits to be sent."""
        self._outbox.clear()

    def greet_now(self) -> None:
        """Greet the neighbour at once instead of with the next heartbeat."""
        self._greeting_due = True
        self._wake.set()

    @property
    def drained(self) -> bool:
        """Whether the neighbour has acknowledged everything."""
        return not self._outbox and not self._sending

    async def _run(self) -> None:
        pause = _SHORTEST_PAUSE
        while True:
            try:
                talk = await self._connected()
                try:
                    while True:
                        self._greeting_due = False
                        self._acknowledged(await talk.reply(self.greeting()))
                        pause = _SHORTEST_PAUSE
                        await self._send(talk)
                finally:
                    self._own = None
                    talk.close()
            except _Superseded:
                continue
            except BadConnection as error:
                self.on_down(self.peer, str(error)[:200])
            except Malformed as error:
                self.on_down(self.peer, f"its reply is malformed: {error}")
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._called.wait()
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _connected(self) -> PeerConnection:
        """The neighbour's call if there is one, else a call to it. Raises `BadConnection`."""
        self._called.clear()
        while not self.neighbour.address and not self._usable:
            self.on_down(self.peer, "it has not called, and no address of it is known here")
            await self._called.wait()
            self._called.clear()
        if self._usable:
            assert self._inbound is not None
            return self._inbound
        loop, self._own_since = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        calling, called = loop.create_task(self._call()), loop.create_task(self._called.wait())
        try:
            await asyncio.wait({calling, called}, return_when=asyncio.FIRST_COMPLETED)
            if not calling.done() and self.site < self.peer:  # both call: this one's counts, unless it takes too long
                await asyncio.wait({calling}, timeout=_NEW_SECONDS)
            if self._usable and (not calling.done() or calling.exception() is not None or self.site > self.peer):
                assert self._inbound is not None
                return self._inbound
            self._own = await calling
            return self._own
        finally:
            called.cancel()
            if calling.done() and not calling.cancelled() and calling.exception() is None:
                if self._own is not calling.result():
                    calling.result().close()
            else:
                calling.cancel()

    @property
    def _usable(self) -> bool:
        return self._inbound is not None and self._inbound.alive

    async def _send(self, talk: PeerConnection) -> None:
        """Publications as they come; returns when a greeting is due.

        The next one does not wait until the last is acknowledged: far apart, that would cost half of the rounds.
        """
        loop = asyncio.get_running_loop()
        sent: dict[asyncio.Task[None], tuple[int, bytes]] = {}
        try:
            while True:
                under_way = {id(item) for item in sent.values()}
                for item in self._outbox:
                    if id(item) not in under_way:
                        sent[loop.create_task(self._publish(talk, item))] = item
                self._sending = bool(sent)
                if self._greeting_due and self.drained:
                    return
                self._wake.clear()
                heartbeat = loop.call_later(_HEARTBEAT_SECONDS, self.greet_now)
                woken = loop.create_task(self._wake.wait())
                try:
                    await asyncio.wait({woken, *sent}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    woken.cancel()
                    heartbeat.cancel()
                for task in [task for task in sent if task.done()]:
                    del sent[task]
                    task.result()
        finally:
            self._sending = False
            for task in sent:
                task.cancel()
            await asyncio.gather(*sent, return_exceptions=True)

    async def _publish(self, talk: PeerConnection, item: tuple[int, bytes]) -> None:
        self._acknowledged(await talk.reply(item[1]))
        with suppress(ValueError):
            self._outbox.remove(item)

    def _acknowledged(self, data: bytes) -> None:
        reply = decode(data, self.service.limits, _REPLY).header
        if isinstance(reply, messages.Refused):
            raise BadConnection(f"it refuses: {reply.reason}")
        assert isinstance(reply, messages.Acknowledged)
        if reply.site != self.peer:
            raise Malformed(f"it calls itself {reply.site!r}")
        self.on_reply(self.peer, reply)

    async def _call(self) -> PeerConnection:
        if self.introduce is not None:
            await self.introduce()
            self.introduce = None
        longest, known = self.service.limits.frame_bytes, self.neighbour
        talk = PeerConnection(self.service, calls=False)
        callee = Callee(known.address, None, known.trusted, known.certificate.tls_name, self.certificate, self.key)
        connection = await self.transport.call(callee, talk, longest, _OUTBOX_FRAMES * longest, self.keep_alive)
        try:
            await talk.ready
        except BaseException:
            connection.abort()
            raise
        return talk
