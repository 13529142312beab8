"""A running client: its data, its account, and its stream to the site."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from pathlib import Path

from pgfl.algorithms.roles import EVERYONE
from pgfl.errors import NetworkError
from pgfl.masking.member import Member
from pgfl.masking.terms import Demands, Roster, read_roster
from pgfl.network.agreement import Training, encode_budget
from pgfl.network.client.accounts import Offer, PrivateAccount
from pgfl.network.client.core import ClientCore
from pgfl.network.client.masked_rounds import MaskedRounds
from pgfl.network.client.rounds import ClientRounds
from pgfl.network.client.samples import Samples
from pgfl.network.client.settings import ClientSettings
from pgfl.network.logs import RateLimitedLogger
from pgfl.network.protocol import identity, messages
from pgfl.network.protocol.connection import TlsTransport, Transport
from pgfl.network.protocol.identity import SiteCertificate
from pgfl.network.protocol.masked_messages import TO_CLIENT, MaskedRequest
from pgfl.network.protocol.messages import read_request
from pgfl.network.protocol.streams import NOT_INVITED, Ended, SiteStream
from pgfl.network.protocol.wire import Frame, Limits
from pgfl.network.rotation import PINS, RotatedFile, SitePins
from pgfl.objectives import Bounds

log = logging.getLogger(__name__)
CODE = "invitation.code"  # in a client's folder
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0  # between two streams, in seconds


class Participant(ClientCore):
    """One client, from its start until its site ends the training or its own account ends its part."""

    def __init__(self, settings: ClientSettings, samples: Samples, transport: Transport | None = None) -> None:
        self.settings, home = settings, Path(settings.home)
        self._keys = RotatedFile(home / identity.CLIENT_KEY)
        self._pins = SitePins(home / PINS, settings.site.fingerprint)
        self.key = identity.read_client_key(self._keys.path)
        self.roster = self._read_roster(None)  # before the account is opened
        super().__init__(settings, samples)
        self.masked: MaskedRounds | None = None
        self.answered = 0
        self.stream_worked = self._over = self.training_over = False
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[str]] | None = None
        self._limited_log = RateLimitedLogger(log)
        self.stream = SiteStream(
            self._pins.accepted, self.key, Limits(self.dimension), lambda: self.account.releases, self._handle,
            encode_budget(self.account.ledger.policy) if settings.share_budget else None, self._terms_text,
            self.takes_part_masked, self._code, transport=transport or TlsTransport(settings.proxies()),
        )  # fmt: skip

    @property
    def site(self) -> SiteCertificate:
        """The site's certificate, as it showed it on the newest stream."""
        assert self.stream.shown is not None  # there is a stream
        return self.stream.shown

    def run(self) -> str:
        """Take part; returns why it ended."""
        try:
            return self.take_part()
        except OSError as error:
            raise NetworkError(f"Client {self.settings.name} cannot go on: {error}.") from error

    def stop(self) -> None:
        """End soon, from any thread; what is being computed is finished."""
        self._over = True
        if self._running is not None:
            loop, task = self._running
            with suppress(RuntimeError):  # the loop is closed: it has ended
                loop.call_soon_threadsafe(task.cancel)

    def take_part(self) -> str:
        """Answer rounds in an event loop of its own."""
        return asyncio.run(self.join())

    async def join(self) -> str:
        """Answer rounds, over one stream after the other; return why it ended."""
        try:
            return await self._join()
        except asyncio.CancelledError:
            if not self._over:  # somebody else cancelled it, not `stop`
                raise
            return "stopped here"
        finally:
            self.stream.computing.shutdown()
            self.account.close()

    async def _join(self) -> str:
        task, pause = asyncio.current_task(), _SHORTEST_PAUSE
        assert task is not None
        self._running = asyncio.get_running_loop(), task
        while not self._over:
            self.stream_worked = False
            ended = await self.stream.run(self.settings.site.address)
            if ended.how == "stopped":
                self.training_over = True
                return ended.reason
            if ended.how == "refused" and ended.reason.startswith(NOT_INVITED) and self._code():
                raise NetworkError(f"The site refuses this client: {ended.reason}.")
            where = self.settings.site.address
            self._limited_log.warning(
                f"{ended.how} {ended.reason}", f"the stream to {where} ended ({ended.how}: {ended.reason})"
            )
            if not self._try_other_key(ended):
                pause = _SHORTEST_PAUSE if self.stream_worked else pause
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        return "stopped here"

    def _try_other_key(self, ended: Ended) -> bool:
        """Where a rotation is under way: try the next key if the site refuses this one."""
        before = self._keys.path
        other = ended.how == "refused" and not self.stream_worked and self._keys.try_other()
        if not other:
            self._keys.reset()
        if self._keys.path != before:
            self.key = self.stream.key = identity.read_client_key(self._keys.path)
        return other

    def _identity_worked(self) -> None:
        if self._keys.worked():
            public = identity.public_key_of(self.key)
            (self.home / identity.CLIENT_PUBLIC).write_text(f"{public.line} {self.settings.name}\n")
            log.info("the site knows this client by its new key; the old one is gone")
        if self._pins.saw(self.site.fingerprint):
            log.info("the site shows its new certificate; the one before is trusted no more")

    # frames -----------------------------------------------------------------------------------------------------------

    def _handle(self, frame: Frame) -> bytes | None:
        self.stream_worked = True
        if isinstance(frame.header, messages.Welcome):
            self._welcomed(frame.header)
            return None
        if self.rounds is None:
            log.warning("the site sent %s before its welcome: ignored", frame.kind.name)
            return None
        if isinstance(frame.header, messages.Stop):
            self.rounds.confirm(frame.header.accepted)
            return None
        if isinstance(frame.header, tuple(TO_CLIENT)):
            return self._handle_masked(frame)
        reply = self.rounds.answer(read_request(frame))
        self.answered += 1
        return reply

    def _code(self) -> str:
        """The code of the invitation, until the site has let this client in."""
        try:
            return (self.home / CODE).read_text().strip()
        except FileNotFoundError:
            return ""

    def _handle_masked(self, frame: Frame) -> bytes | None:
        if self.masked is None:
            log.warning("the site asks for masked sums, in which this client takes no part: ignored")
            return None
        self.answered += isinstance(frame.header, MaskedRequest)
        return self.masked.handle(frame)

    def _welcomed(self, welcome: messages.Welcome) -> None:
        offer, before = Offer(Training.parse(welcome.training), welcome.cluster), self.rounds
        rounds = self.take_up(offer, welcome.releases)
        if rounds is not before:
            self.masked = self._begin_masked(offer, rounds)
        (self.home / CODE).unlink(missing_ok=True)
        self._identity_worked()
        made = self.account.releases
        log.info("welcome as %s in cluster %s; %d releases so far", welcome.client, offer.cluster, made)

    def _begin_masked(self, offer: Offer, rounds: ClientRounds) -> MaskedRounds | None:
        """Take part in masked sums, where both the training and the owner say so; secrets are new with every start."""
        privacy, training = self.settings.privacy, offer.training
        if not (self.takes_part_masked and training.privacy.trust == "masked"):
            return None
        self.roster = self._read_roster(self.site.pem)  # now that the site has shown its key
        assert self.roster is not None and isinstance(self.account, PrivateAccount)
        demands = Demands(privacy.contributors, privacy.colluders)
        member = Member(self.settings.name, self.key, self.roster, demands)
        bounds = Bounds(privacy.x_norm, privacy.y_bound, privacy.w_norm)
        log.info(
            "contributions are masked; the roster names %d clients (%s)", len(self.roster.keys), self.roster.digest
        )
        pair = offer.cluster if rounds.role.algorithm.server_rule.personalised else EVERYONE
        return MaskedRounds(rounds, self.account, member, self.site.name, pair, bounds)

    def _read_roster(self, site: bytes | None) -> Roster | None:
        if not self.takes_part_masked:
            return None
        assert self.settings.roster is not None  # as settings are validated
        roster = read_roster(Path(self.settings.roster.file), self.settings.roster.steward, site)
        if roster.keys.get(self.settings.name) != identity.public_key_of(self.key).line:
            raise NetworkError(
                f"The roster {self.settings.roster.file} does not list {self.settings.name} with this client's own "
                "key; ask whoever made it for a new one."
            )
        return roster

    @property
    def takes_part_masked(self) -> bool:
        """Whether the owner wants contributions to be masked."""
        return self.settings.privacy.enabled and self.settings.privacy.trust == "masked"

    def _terms_text(self) -> str:
        privacy = self.settings.privacy
        return self._terms().text if privacy.enabled and privacy.trust == "site" else ""
