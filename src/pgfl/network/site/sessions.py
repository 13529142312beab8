"""A site's port, and its sessions with clients: authentication, their frames, and the end of training."""

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
from pgfl.network.protocol.connection import TLS, Connection, Conversation, Transport
from pgfl.network.protocol.identity import ClientKey
from pgfl.network.protocol.listener import LIMITS, ConnectionLimits
from pgfl.network.protocol.masked_messages import Consent, MaskedAnswer, Reveal
from pgfl.network.protocol.messages import read_answer
from pgfl.network.protocol.proxy_header import Network
from pgfl.network.protocol.streams import AuthenticationFailed, ClientStreams
from pgfl.network.protocol.tls_frames import KEEP_ALIVE, KeepAlive
from pgfl.network.protocol.wire import Frame, encode
from pgfl.network.site.admission import Admission
from pgfl.network.site.effects import Handle, Phase
from pgfl.network.site.masked_pairs import MaskedPairs
from pgfl.network.site.state import SiteState

log = logging.getLogger(__name__)
_FIRST_BYTES: Final = 1 << 16  # the longest frame before authentication
_OUTBOX_FRAMES: Final = 4  # of the longest, that may wait for a client or a neighbour
_SAVE_SECONDS: Final = 0.05  # after an answer, until the number of its release is saved

Converse = Callable[[str], Conversation]


@dataclass
class Port:
    """The site's listening port; `clients` and `neighbours` make a conversation for a peer's address."""

    certificate: Path
    key: Path
    frame_bytes: int  # of the longest frame
    clients: Converse
    neighbours: Converse
    trusted: Callable[[], bytes] = bytes  # certificates of the linked sites, in PEM
    connections: ConnectionLimits = LIMITS
    keep_alive: KeepAlive = KEEP_ALIVE
    transport: Transport = TLS
    balancers: tuple[Network, ...] = ()  # load balancers that say who calls
    refused: Counter[str] = field(default_factory=Counter)
    _limited_log: RateLimitedLogger = field(default_factory=lambda: RateLimitedLogger(log))
    _tls: tuple[bytes, ssl.SSLContext] | None = None

    async def start(self, address: str) -> int:
        """Listen; return the port number. Raise `OSError` if that is impossible."""
        self.tls()  # a certificate that cannot be read is found now
        self._listening = self.transport.listen(self)
        return self._listening.open(address)

    async def stop(self) -> None:
        """Close every connection; clients and neighbours retry."""
        await self._listening.close()

    def renew(self) -> None:
        """Show new connections the certificate that is in its file now; open connections go on."""
        self._tls = None

    @property
    def first_bytes(self) -> int:
        """The longest frame of a peer that is not authenticated yet."""
        return _FIRST_BYTES

    @property
    def outbox_bytes(self) -> int:
        """How much may wait to be sent to one peer."""
        return _OUTBOX_FRAMES * self.frame_bytes

    def converse(self, host: str) -> Conversation:
        """Return the conversation for a new connection from this address."""
        return _InboundConnection(self, host)

    def tls(self) -> ssl.SSLContext:
        """Return one context for all connections, renewed when the trusted certificates change."""
        trusted = self.trusted()
        if self._tls is None or self._tls[0] != trusted:
            self._tls = trusted, pinned_tls.server_context(self.certificate, self.key, trusted)
        return self._tls[1]

    def refuse(self, host: str, why: str) -> None:
        """Count and log a failed handshake."""
        self.refused["handshake"] += 1
        self._limited_log.warning(f"{host} {why}", f"a connection from {host} was refused: {why}")


class _InboundConnection:
    """One connection to the port: a neighbour's if it shows a certificate, else a client's."""

    def __init__(self, port: Port, host: str) -> None:
        self._port, self._host = port, host
        self._conversation: Conversation | None = None

    def on_open(self, connection: Connection) -> None:
        known = connection.certificate is not None
        self._conversation = (self._port.neighbours if known else self._port.clients)(self._host)
        if known:
            connection.longest = self._port.frame_bytes
        self._conversation.on_open(connection)

    def on_frame(self, frame: bytes) -> None:
        assert self._conversation is not None
        self._conversation.on_frame(frame)

    def on_close(self, why: str | None) -> None:
        if self._conversation is not None:
            self._conversation.on_close(why)
        elif why is not None:
            self._port.refuse(self._host, why)


class ClientSessions:
    """The sessions with all clients; their frames become events for `handle`."""

    def __init__(
        self,
        state: SiteState,
        handle: Handle,
        fail: Callable[[BaseException], None],
        on_change: Callable[[], None],
        on_members: Callable[[], None] = lambda: None,
    ) -> None:
        """`fail` ends the site; `on_change` is called whenever a client connects or disconnects.

        `on_members` is called after an invitation was used.
        """
        self._state, self._handle, self._fail, self._on_change = state, handle, fail, on_change
        self._rounds, self._store, self._masked = state.rounds, state.store, state.masked
        self.streams = ClientStreams(
            state.settings.name, state.limits, self._authenticate, self._stream_opened, self._frame,
            self._stream_closed, self._refused_release,
        )  # fmt: skip
        self.admission = Admission(state, on_members)
        self.streams.introduce = self.admission.introduce
        self.budgets: dict[str, SharedBudget | None] = {}
        self.unsaved_releases: dict[str, int] = {}  # by client
        self._save_timer: asyncio.TimerHandle | None = None
        self._dismissed: set[str] = set()  # they were sent the end of training
        self._informed = self._store.informed()  # they have received it

    # connecting and disconnecting -------------------------------------------------------------------------------------

    def _authenticate(self, hello: messages.Hello, nonce: bytes, host: str = "") -> str:
        try:
            key = ClientKey.parse(hello.key.encode())
        except Exception as error:
            raise AuthenticationFailed("its key cannot be read") from error
        client, proof = self._store.client_of(key), bytes.fromhex(hello.signature)
        if client is None and hello.invitation:
            if not key.verifies(proof, self._state.certificate.fingerprint, nonce):
                raise AuthenticationFailed("the signature of a client that was invited is wrong")
            self.admission.admit(hello.invitation, key, host)
            client = self._store.client_of(key)
        if client is not None and client not in self._rounds.admitted:
            raise AuthenticationFailed(f"client {client} takes part from the next round on, if its cluster is trained")
        if client is None:
            raise AuthenticationFailed(f"the key with fingerprint {key.fingerprint[:16]}… is not admitted")
        if not key.verifies(proof, self._state.certificate.fingerprint, nonce):
            raise AuthenticationFailed(f"the signature for client {client} is wrong")
        self._entrusted(client, hello.terms)
        if self._masked is not None:
            self._masked.set_member(client, hello.masks)
        self._store.record_release(client, hello.releases)
        budget = self.budgets[client] = decode_budget(hello.budget)
        self._rounds.role.paces[client] = 1 if budget is None else budget.pace(self._state.training.rounds)
        return client

    def _entrusted(self, client: str, terms: str) -> None:
        """Keep an account for a client that trusts this site; one that does not adds its noise itself."""
        trustee = self._state.trustee
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
            training=self._state.training.text,
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
        log.info("client %s is disconnected", client)
        if client in self._dismissed:
            self._informed.add(client)
            self._store.remember_informed(self._informed)
        self._handle(lambda: self._rounds.on_client_disconnected(client, time.monotonic()))
        self._on_change()

    # frames -----------------------------------------------------------------------------------------------------------

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
                    take = partial(masked.add_contribution, client, header, frame.words[0])
                    self._handle(lambda: self._rounds.on_masked_answer(client, round, take, now))
            case _:
                unmasking = isinstance(header, Consent | Reveal)
                on_frame = masked.on_unmasking_frame if unmasking else masked.on_preparation_frame
                self._handle(lambda: self._rounds.on_masked_message(lambda: on_frame(client, frame), now))

    def _note_release(self, client: str, round: int, number: int) -> bool:
        """Remember the number of a release; return whether that worked.

        An answer to the open round is saved with the round, or soon if that takes longer: a transaction for each would
        cost too much. Any other is saved at once.
        """
        self.unsaved_releases[client] = max(number, self.unsaved_releases.get(client, 0))
        if round != self._rounds.current or self._rounds.phase is not Phase.COLLECTING:
            return self.save_releases()
        if self._save_timer is None:
            self._save_timer = asyncio.get_running_loop().call_later(_SAVE_SECONDS, self.save_releases)
        return True

    def _refused_release(self, client: str, number: int) -> None:
        """Remember, at once, a release whose answer was malformed."""
        self.unsaved_releases[client] = max(number, self.unsaved_releases.get(client, 0))
        if self.save_releases():
            self._handle(lambda: self._rounds.on_malformed_answer(client, time.monotonic()))

    def save_releases(self) -> bool:
        """Save the numbers of releases that came since the last round; return whether that worked."""
        if self._save_timer is not None:
            self._save_timer.cancel()
            self._save_timer = None
        try:
            if self.unsaved_releases:
                self._store.record_releases(self.unsaved_releases)
                self.unsaved_releases.clear()
        except NetworkError as error:
            self._fail(error)
            return False
        return True

    # the end of training ----------------------------------------------------------------------------------------------

    def dismiss_all(self, reason: str) -> None:
        """Tell all who are connected that training is over."""
        for client in list(self._rounds.connected):
            self._dismiss(client, reason)

    def _dismiss(self, client: str, reason: str) -> None:
        self._dismissed.add(client)
        accepted = self._state.role.accepted.get(client)
        self.streams.send(client, encode(messages.Stop(reason=reason, accepted=accepted)))

    def begin_anew(self) -> None:
        """Training goes on: nobody knows its end any more."""
        self._dismissed.clear()
        self._informed.clear()

    @property
    def uninformed(self) -> set[str]:
        """Those who have not received the end of training."""
        return self._rounds.admitted - self._informed
