"""A site's clients: the port that they call, how they are recognised, what they say and are told."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from pgfl.errors import NetworkError, PrivacyError
from pgfl.network.agreement import SharedBudget, SiteTerms, decode_budget
from pgfl.network.logs import RateLimitedLogger
from pgfl.network.protocol import identity as pinned_tls
from pgfl.network.protocol import messages
from pgfl.network.protocol.connection import Conversation, FrameConnection, FramePort
from pgfl.network.protocol.identity import ClientKey
from pgfl.network.protocol.listener import LIMITS, ConnectionLimits
from pgfl.network.protocol.masked_messages import Consent, MaskedAnswer, Reveal
from pgfl.network.protocol.messages import read_answer
from pgfl.network.protocol.streams import AuthenticationFailed, ClientStreams
from pgfl.network.protocol.tls_frames import KEEP_ALIVE, KeepAlive
from pgfl.network.protocol.wire import Frame, encode
from pgfl.network.site.life import SiteLife
from pgfl.network.site.masked_pairs import MaskedPairs
from pgfl.network.site.parts import SiteParts
from pgfl.network.site.round_effects import Handle, Phase

log = logging.getLogger(__name__)
_FIRST_BYTES: Final = 1 << 16  # the longest frame of one who is not known yet
_OUTBOX_FRAMES: Final = 4  # of the longest, that may wait for a client or a neighbour

Converse = Callable[[str], Conversation]


@dataclass
class SitePort:
    """Listens; `clients` and `neighbours` converse with those who call, whose address they get."""

    certificate: Path
    key: Path
    frame_bytes: int  # of the longest frame
    clients: Converse
    neighbours: Converse
    trusted: Callable[[], bytes] = bytes  # certificates of the linked sites, in PEM
    connections: ConnectionLimits = LIMITS
    keep_alive: KeepAlive = KEEP_ALIVE
    refused: Counter[str] = field(default_factory=Counter)
    _limited_log: RateLimitedLogger = field(default_factory=lambda: RateLimitedLogger(log))
    _tls: tuple[bytes, ssl.SSLContext] | None = None

    async def start(self, address: str) -> int:
        """Listen; returns the port. Raises `OSError` where one cannot listen."""
        self.tls()  # a certificate that cannot be read is found now
        self._port = FramePort(
            self.tls, _FIRST_BYTES, lambda host: _InboundConnection(self, host), _OUTBOX_FRAMES * self.frame_bytes, self.refused,
            self.connections, self.keep_alive,
        )  # fmt: skip
        return self._port.open(address)

    async def stop(self) -> None:
        """Close every connection; clients and neighbours take it for a break and come back."""
        await self._port.close()

    def renew(self) -> None:
        """Show those who connect from now on the certificate that is in its file now; open connections go on."""
        self._tls = None

    def tls(self) -> ssl.SSLContext:
        """One context for all connections, made anew when the trusted certificates change."""
        trusted = self.trusted()
        if self._tls is None or self._tls[0] != trusted:
            self._tls = trusted, pinned_tls.server_context(self.certificate, self.key, trusted)
        return self._tls[1]

    def refuse(self, host: str, why: str) -> None:
        """Count and log who did not get through TLS; the same of one address is logged at most once a minute."""
        self.refused["handshake"] += 1
        self._limited_log.warning(f"{host} {why}", f"a connection from {host} was refused: {why}")


class _InboundConnection:
    """One connection to the port: once TLS is done, it is a neighbour's or a client's."""

    def __init__(self, port: SitePort, host: str) -> None:
        self._port, self._host = port, host
        self._conversation: Conversation | None = None

    def on_open(self, connection: FrameConnection) -> None:
        known = connection.frames.certificate is not None
        self._conversation = (self._port.neighbours if known else self._port.clients)(self._host)
        if known:
            connection.frames.longest = self._port.frame_bytes
        self._conversation.on_open(connection)

    def on_frame(self, frame: bytes) -> None:
        assert self._conversation is not None
        self._conversation.on_frame(frame)

    def on_close(self, why: str | None) -> None:
        if self._conversation is not None:
            self._conversation.on_close(why)
        elif why is not None:
            self._port.refuse(self._host, why)


_SEEN_SECONDS = 0.05  # after an answer, until the number of its release is saved


class SiteClients:
    """All clients of a site; what they say becomes events, which `handle` carries out."""

    def __init__(self, parts: SiteParts, life: SiteLife, handle: Handle, on_change: Callable[[], None]) -> None:
        """`on_change` is called whenever a client comes or goes."""
        self._parts, self._life, self._handle, self._on_change = parts, life, handle, on_change
        self._rounds, self._store, self._masked = parts.rounds, parts.store, parts.masked
        self.streams = ClientStreams(
            parts.settings.name, parts.limits, self._authenticate, self._stream_opened, self._frame,
            self._stream_closed, self._refused_release,
        )  # fmt: skip
        self.budgets: dict[str, SharedBudget | None] = {}
        self.seen: dict[str, int] = {}  # releases that are not saved yet
        self._saving: asyncio.TimerHandle | None = None
        self._dismissed: set[str] = set()  # they were sent the end of training
        self._informed = self._store.informed()  # they have received it

    # coming and going -------------------------------------------------------------------------------------------------

    def _authenticate(self, hello: messages.Hello, nonce: bytes) -> str:
        try:
            key = ClientKey.parse(hello.key.encode())
        except Exception as error:
            raise AuthenticationFailed("its key cannot be read") from error
        client = self._store.client_of(key)
        if client is None or client not in self._rounds.admitted:
            raise AuthenticationFailed(f"the key with fingerprint {key.fingerprint[:16]}… is not admitted")
        if not key.verifies(bytes.fromhex(hello.signature), self._parts.shown.fingerprint, nonce):
            raise AuthenticationFailed(f"the signature for client {client} is wrong")
        self._entrusted(client, hello.terms)
        if self._masked is not None:
            self._masked.joined(client, hello.masks)
        self._store.record_release(client, hello.releases)
        self.budgets[client] = decode_budget(hello.budget)
        return client

    def _entrusted(self, client: str, terms: str) -> None:
        """Keep an account for a client that trusts this site; one that does not adds its noise itself."""
        trustee = self._parts.trustee
        if trustee is None:
            return
        if not terms:
            trustee.close_account(client)
            return
        try:
            trustee.accept(client, SiteTerms.parse(terms))
        except PrivacyError as error:
            raise AuthenticationFailed(f"the account of client {client} here cannot go on: {error}") from error

    def _stream_opened(self, client: str) -> None:
        known = self._store.clients().get(client)
        if known is None:  # expelled this very moment
            self.streams.close(client)
            return
        welcome = messages.Welcome(
            client=client,
            cluster=known.cluster,
            training=self._parts.training.text,
            releases=known.releases,
            round=self._rounds.round,
        )
        self.streams.send(client, encode(welcome))
        log.info("client %s is connected", client)
        if self._rounds.phase is Phase.FINISHED:
            self._dismiss(client, "all rounds are done")
        self._handle(lambda: self._rounds.on_client_connected(client, time.monotonic()))
        self._on_change()

    def _stream_closed(self, client: str) -> None:
        log.info("client %s is gone", client)
        if client in self._dismissed:
            self._informed.add(client)
            self._store.remember_informed(self._informed)
        self._handle(lambda: self._rounds.on_client_disconnected(client, time.monotonic()))
        self._on_change()

    # what they say ----------------------------------------------------------------------------------------------------

    def _frame(self, client: str, frame: Frame) -> None:
        now = time.monotonic()
        match frame.header:
            case messages.Answer(round=round, release=release):
                if not self._note_release(client, round, release):
                    return
                self._handle(lambda: self._rounds.on_answer(client, round, read_answer(frame), now))
            case messages.Decline(round=round, final=final, reason=reason):
                self._handle(lambda: self._rounds.on_decline(client, round, final, reason, now))
            case _ if self._masked is not None:
                self._masked_frame(self._masked, client, frame, now)

    def _masked_frame(self, masked: MaskedPairs, client: str, frame: Frame, now: float) -> None:
        header = frame.header
        match header:
            case MaskedAnswer(round=round, release=release):
                if self._note_release(client, round, release):
                    take = partial(masked.contributed, client, header, frame.words[0])
                    self._handle(lambda: self._rounds.on_masked_answer(client, round, take, now))
            case Consent() | Reveal():
                self._handle(
                    lambda: self._rounds.on_masked_message(lambda: masked.on_unmasking_frame(client, frame), now)
                )
            case _:
                self._handle(
                    lambda: self._rounds.on_masked_message(lambda: masked.on_preparation_frame(client, frame), now)
                )

    def _note_release(self, client: str, round: int, number: int) -> bool:
        """Remember it; returns whether that worked.

        An answer to the open round is saved with the round, or soon if that takes longer: a transaction for each would
        cost too much. Any other is saved at once.
        """
        self.seen[client] = max(number, self.seen.get(client, 0))
        if round != self._rounds.current or self._rounds.phase is not Phase.COLLECTING:
            return self.save_seen()
        if self._saving is None:
            self._saving = self._life.loop.call_later(_SEEN_SECONDS, self.save_seen)
        return True

    def _refused_release(self, client: str, number: int) -> None:
        """Remember, at once, a release whose answer was malformed."""
        self.seen[client] = max(number, self.seen.get(client, 0))
        self.save_seen()

    def save_seen(self) -> bool:
        """Save the numbers of releases that came since the last round; returns whether that worked."""
        if self._saving is not None:
            self._saving.cancel()
            self._saving = None
        try:
            if self.seen:
                self._store.record_releases(self.seen)
                self.seen.clear()
        except NetworkError as error:
            self._life.fail(error)
            return False
        return True

    # the end of training ----------------------------------------------------------------------------------------------

    def dismiss_all(self, reason: str) -> None:
        """Tell all who are connected that training is over."""
        for client in list(self._rounds.connected):
            self._dismiss(client, reason)

    def _dismiss(self, client: str, reason: str) -> None:
        self._dismissed.add(client)
        accepted = self._parts.role.accepted.get(client)
        self.streams.send(client, encode(messages.Stop(reason=reason, accepted=accepted)))

    @property
    def uninformed(self) -> set[str]:
        """Those who have not received the end of training."""
        return self._rounds.admitted - self._informed
