"""The link between neighbouring sites: questions and replies over TLS in which both know each other's certificate.

A greeting carries the caller's name, configuration and round, a publication one round's aggregates. Every frame is
replied to, in order. Both sites call each other; a call that breaks is made again, and the newest publications wait
until it works.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pgfl.deploy import messages, pinned_tls
from pgfl.deploy.frame_connection import FrameConnection, FramePort
from pgfl.deploy.guarded_listener import LIMITS, ConnectionLimits
from pgfl.deploy.identity import SiteCertificate
from pgfl.deploy.site.members import Neighbour
from pgfl.deploy.sparing_log import SparingLog
from pgfl.deploy.tls_frames import CONNECT_SECONDS, PULSE, BadConnection, Pulse, TlsFrames
from pgfl.deploy.wire import Expected, Frame, Limits, Malformed, decode, encode

log = logging.getLogger(__name__)
REPLY_SECONDS: Final = 20.0  # enough for 8 MB over 20 Mbit/s with losses; a dead link is noticed by its silence
_HEARTBEAT_SECONDS: Final = 2.0
_KEPT_PUBLICATIONS: Final = 3
_OUTBOX_FRAMES: Final = _KEPT_PUBLICATIONS + 1  # of the longest, that may wait for a neighbour
_TO_NEIGHBOUR: Expected = (messages.PeerHello, messages.Publication)
_REPLY: Expected = (messages.Acknowledged, messages.Refused)


# The site that is called ----------------------------------------------------------------------------------------------


class Refused(Exception):
    """A neighbour's frame is refused; the text goes to the neighbour and to the log."""


Receive = Callable[[str, Frame], bytes]


@dataclass
class PeerService:
    """Answers neighbours: `receive` gets the name of an authenticated neighbour and a valid frame, and replies."""

    certificate: Path
    key: Path
    neighbours: Callable[[], Mapping[str, Neighbour]]
    limits: Limits
    receive: Receive
    on_switched: Callable[[str], None] = lambda peer: None  # it shows the certificate that was to come
    connections: ConnectionLimits = LIMITS
    pulse: Pulse = PULSE
    refused: Counter[str] = field(default_factory=Counter)
    _sparing: SparingLog = field(default_factory=lambda: SparingLog(log))
    _tls: tuple[bytes, ssl.SSLContext] | None = None

    async def start(self, address: str) -> int:
        """Listen; returns the port. Raises `OSError` where one cannot listen."""
        longest = self.limits.frame_bytes
        self._port = FramePort(
            self.tls, longest, lambda host: _Caller(self, host), _OUTBOX_FRAMES * longest, self.refused,
            self.connections, self.pulse,
        )  # fmt: skip
        return self._port.open(address)

    async def stop(self) -> None:
        """Stop listening."""
        await self._port.close()

    def renew(self) -> None:
        """Read this site's own certificate and key again, for those who connect from now on."""
        self._tls = None

    def tls(self) -> ssl.SSLContext:
        """One context for all connections, made anew when the trusted certificates change."""
        pinned = b"".join(neighbour.trusted for neighbour in self.neighbours().values())
        if self._tls is None or self._tls[0] != pinned:
            self._tls = pinned, pinned_tls.listening(self.certificate, self.key, pinned)
        return self._tls[1]

    def reply(self, certificate: SiteCertificate, data: bytes) -> tuple[bytes, bool]:
        """The reply to a frame of the caller that shows this certificate, and whether the frame is taken."""
        peer = certificate.name
        try:
            self._recognise(certificate)
            frame = decode(data, self.limits, _TO_NEIGHBOUR)
            assert isinstance(frame.header, messages.PeerHello | messages.Publication)
            if frame.header.site != peer:
                raise Refused(f"it calls itself {frame.header.site!r}")
            return self.receive(peer, frame), True
        except Malformed as error:
            self.refused["malformed"] += 1
            self._sparing.warning(f"{peer} malformed", f"site {peer}: refused {error}")
            why = str(error)
        except Refused as error:
            self.refused["refused"] += 1
            self._sparing.warning(f"{peer} {error}", f"site {peer}: refused, {error}")
            why = str(error)
        return encode(messages.Refused(reason=why[:300])), False

    def _recognise(self, certificate: SiteCertificate) -> None:
        pinned = self.neighbours().get(certificate.name)
        if pinned is None or certificate not in (pinned.certificate, pinned.coming):
            raise Refused(f"its certificate names {certificate.name!r} and is not the one that is linked")
        if certificate == pinned.coming:
            self.on_switched(certificate.name)

    def turned_away(self, host: str, why: str) -> None:
        """Count and log a caller that has proved nothing; the same of one address is logged at most once a minute."""
        self.refused["certificate"] += 1
        self._sparing.warning(f"{host} {why}", f"a site that calls from {host} is refused: {why}")


class _Caller:
    """One connection to a site's port for neighbours."""

    def __init__(self, service: PeerService, host: str) -> None:
        self._service, self._host = service, host
        self._certificate: SiteCertificate | None = None

    def opened(self, connection: FrameConnection) -> None:
        self._connection, shown = connection, connection.frames.certificate
        try:
            assert shown is not None  # as TLS wants one here
            self._certificate = SiteCertificate.parse(ssl.DER_cert_to_PEM_cert(shown).encode())
        except ValueError as error:
            self._service.turned_away(self._host, f"the certificate that it shows is no site's ({error})")
            self._connection.close()

    def heard(self, frame: bytes) -> None:
        assert self._certificate is not None
        reply, taken = self._service.reply(self._certificate, frame)
        self._connection.send(reply)
        if not taken:
            self._connection.close()

    def ended(self, why: str | None) -> None:
        if self._certificate is None and why is not None:
            self._service.turned_away(self._host, why)


# The site that calls --------------------------------------------------------------------------------------------------


class _Call:
    """One connection to a neighbour, which replies to questions in their order."""

    def __init__(self) -> None:
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked: deque[asyncio.Future[bytes]] = deque()
        self._broken: BadConnection | None = None

    async def reply(self, question: bytes) -> bytes:
        """The reply to a question; raises `BadConnection` if none comes."""
        if self._broken is not None:
            raise self._broken
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked.append(reply)
        self._connection.send(question)
        try:
            return await asyncio.wait_for(reply, REPLY_SECONDS)
        except TimeoutError:
            raise BadConnection(f"it did not reply in {REPLY_SECONDS:g} s") from None

    def opened(self, connection: FrameConnection) -> None:
        self._connection = connection
        self.ready.set_result(None)

    def heard(self, frame: bytes) -> None:
        if not self._asked:
            self._break("it replies to what was not asked")
            self._connection.abort()
        elif not (reply := self._asked.popleft()).done():
            reply.set_result(frame)

    def ended(self, why: str | None) -> None:
        self._break(why or "it was closed here")

    def _break(self, why: str) -> None:
        self._broken = self._broken or BadConnection(why)
        waiting: tuple[asyncio.Future[None] | asyncio.Future[bytes], ...] = (self.ready, *self._asked)
        for future in waiting:
            if not future.done():
                future.set_exception(self._broken)
                future.exception()  # somebody may wait for it, or nobody any more


@dataclass
class PeerLink:
    """Calls one neighbour for as long as the site runs."""

    peer: str
    neighbour: Neighbour
    certificate: Path  # of the site that calls
    key: Path
    limits: Limits
    greeting: Callable[[], bytes]
    on_reply: Callable[[str, messages.Acknowledged], None]  # the neighbour is reached
    on_down: Callable[[str, str], None]  # it is not, with the reason
    pulse: Pulse = PULSE
    _outbox: deque[tuple[int, bytes]] = field(default_factory=lambda: deque(maxlen=_KEPT_PUBLICATIONS))
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _sending: bool = False

    def start(self) -> asyncio.Task[None]:
        """Begin to call; returns the task, which ends only if it is stopped or fails."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self._task

    async def stop(self) -> None:
        """Stop calling."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def publish(self, round: int, data: bytes) -> None:
        """Send this as soon as the link allows; only the newest few wait."""
        self._outbox.append((round, data))
        self._wake.set()

    def clear(self) -> None:
        """Forget what waits to be sent."""
        self._outbox.clear()

    def greet_now(self) -> None:
        """Greet the neighbour at once instead of with the next heartbeat."""
        self._wake.set()

    @property
    def drained(self) -> bool:
        """Whether the neighbour has acknowledged everything."""
        return not self._outbox and not self._sending

    async def _run(self) -> None:
        pause = 0.1
        while True:
            try:
                async with self._calling() as call:
                    while True:
                        self._acknowledged(await call.reply(self.greeting()))
                        pause = 0.1
                        await self._send(call)
            except BadConnection as error:
                self.on_down(self.peer, str(error)[:200])
            except Malformed as error:
                self.on_down(self.peer, f"its reply is malformed: {error}")
            await asyncio.sleep(pause)
            pause = min(2 * pause, 3.0)

    async def _send(self, call: _Call) -> None:
        """Publications as they come; returns when a heartbeat is due.

        The next one does not wait until the last is acknowledged: far apart, that would cost half of the rounds.
        """
        loop = asyncio.get_running_loop()
        sent: dict[asyncio.Task[None], tuple[int, bytes]] = {}
        try:
            while True:
                under_way = {id(item) for item in sent.values()}
                for item in self._outbox:
                    if id(item) not in under_way:
                        sent[loop.create_task(self._publish(call, item))] = item
                self._sending = bool(sent)
                self._wake.clear()
                heartbeat = loop.call_later(_HEARTBEAT_SECONDS, self._wake.set)
                woken = loop.create_task(self._wake.wait())
                try:
                    await asyncio.wait({woken, *sent}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    woken.cancel()
                    heartbeat.cancel()
                for task in [task for task in sent if task.done()]:
                    del sent[task]
                    task.result()
                self._sending = bool(sent)
                if self._wake.is_set() and self.drained:
                    return
        finally:
            self._sending = False
            for task in sent:
                task.cancel()
            await asyncio.gather(*sent, return_exceptions=True)

    async def _publish(self, call: _Call, item: tuple[int, bytes]) -> None:
        self._acknowledged(await call.reply(item[1]))
        with suppress(ValueError):
            self._outbox.remove(item)

    def _acknowledged(self, data: bytes) -> None:
        reply = decode(data, self.limits, _REPLY).header
        if isinstance(reply, messages.Refused):
            raise BadConnection(f"it refuses: {reply.reason}")
        assert isinstance(reply, messages.Acknowledged)
        if reply.site != self.peer:
            raise Malformed(f"it calls itself {reply.site!r}")
        self.on_reply(self.peer, reply)

    @asynccontextmanager
    async def _calling(self) -> AsyncIterator[_Call]:
        loop, longest, pinned = asyncio.get_running_loop(), self.limits.frame_bytes, self.neighbour.certificate
        host, _, port = self.neighbour.address.rpartition(":")
        call = _Call()
        try:
            tls = pinned_tls.calling(self.neighbour.trusted, self.certificate, self.key)
            connection = FrameConnection(
                TlsFrames(tls, longest, pinned.tls_name), call, CONNECT_SECONDS, _OUTBOX_FRAMES * longest, self.pulse
            )
            async with asyncio.timeout(CONNECT_SECONDS):
                await loop.create_connection(lambda: connection, host.strip("[]"), int(port))
        except (OSError, ValueError) as error:
            raise BadConnection.because(error) from error
        try:
            await call.ready
            yield call
        finally:
            connection.abort()
