"""A running client: its data, its account, its stream to the site, and the invitations to it."""

from __future__ import annotations

import logging
import queue
import threading
import time
from contextlib import suppress
from pathlib import Path

from pgfl.core.assured import Terms
from pgfl.core.roles import EVERYONE, Client
from pgfl.deploy import identity, messages
from pgfl.deploy.agreed_training import TASK_OF, Training
from pgfl.deploy.client.acceptance import Offer, accepted, check_accepted
from pgfl.deploy.client.accounts import NoiseRecorder, OpenAccount, PrivateAccount
from pgfl.deploy.client.client_backup import LOCK, check_not_moved
from pgfl.deploy.client.client_rounds import ClientRounds, release_prefix
from pgfl.deploy.client.client_samples import Samples
from pgfl.deploy.client.client_settings import ClientSettings
from pgfl.deploy.client.masked_rounds import MaskedRounds
from pgfl.deploy.client.session import Session
from pgfl.deploy.entrusting import SiteTerms
from pgfl.deploy.identity import SiteCertificate
from pgfl.deploy.invitations import Invitation, Invitations
from pgfl.deploy.masked_messages import TO_CLIENT, MaskedRequest
from pgfl.deploy.messages import read_request
from pgfl.deploy.rotation import TwoFiles
from pgfl.deploy.round_streams import Ended, SiteStream
from pgfl.deploy.shared_budget import told
from pgfl.deploy.sparing_log import SparingLog
from pgfl.deploy.wire import Frame, Limits
from pgfl.errors import DataError, NetworkError
from pgfl.masking.masked_terms import Demands
from pgfl.masking.member import Member
from pgfl.masking.rosters import Roster, read_roster
from pgfl.objectives import Bounds

log = logging.getLogger(__name__)
SESSION = "session.json"
__all__ = ["LOCK", "Participant"]
_LONGEST_PAUSE = 5.0
_INVITE_ANEW_SECONDS = 30.0  # without a working stream: the site may have moved, so a new invitation is waited for too


class Participant:
    """One client, from its start until its site ends the training or its own account ends its part."""

    def __init__(self, settings: ClientSettings, samples: Samples) -> None:
        self.settings, self.samples = settings, samples
        self.home = Path(settings.home)
        self.session = Session(self.home / SESSION)
        self._keys = TwoFiles(self.home / identity.CLIENT_KEY)
        self._pins = TwoFiles(Path(settings.site.certificate))
        self.key = identity.read_client_key(self._keys.path)
        self.site = SiteCertificate.read(self._pins.path)
        self.dimension = samples.features.shape[1]
        self.roster = self._read_roster()
        self.account = self._open_account()
        self.rounds: ClientRounds | None = None
        self.masked: MaskedRounds | None = None
        self.answered = 0
        self.stream_worked, self._worked_at = False, time.monotonic()
        self._invitations: queue.Queue[Invitation] = queue.Queue()
        self._service: Invitations | None = None
        self._listening = False  # for invitations
        self._released = threading.Event()
        self._over = threading.Event()
        self._sparing = SparingLog(log)
        self.stream = SiteStream(
            self.site, self.key, Limits(self.dimension), lambda: self.account.releases, self._handle,
            told(self.account.ledger.policy) if settings.share_budget else None, self._terms_text,
            self.takes_part_masked,
        )  # fmt: skip

    def run(self, invitations: Invitations) -> str:
        """Take part, on the invitations of the site; returns why it ended."""
        self._service = invitations
        try:
            return self.take_part()
        except OSError as error:
            raise NetworkError(f"Client {self.settings.name} cannot go on: {error}.") from error
        finally:
            self._over.set()
            self._released.set()
            if self._listening:
                invitations.stop()

    def stop(self) -> None:
        """End soon, from any thread or a signal."""
        self._over.set()
        self.stream.close()

    def take_part(self) -> str:
        """Answer rounds, over one stream after the other; a remembered invitation is tried before a new one comes."""
        invitation, pause = self.session.load(), 0.2
        if invitation is None:
            self._want_invitation()
        try:
            while not self._over.is_set():
                invitation = self._newest(invitation)
                if invitation is None:
                    continue
                ended = self.stream.run(invitation.address, invitation.token)
                if ended.how == "stopped":
                    return ended.reason
                self._sparing.warning(
                    f"{ended.how} {ended.reason}", f"the stream to {self.site.name} ended ({ended.how}: {ended.reason})"
                )
                invitation, pause = self._after(ended, invitation, pause)
            return "stopped here"
        finally:
            self.account.close()

    def _after(self, ended: Ended, invitation: Invitation, pause: float) -> tuple[Invitation | None, float]:
        if self._try_other(ended):
            return invitation, pause
        if ended.how == "refused":
            self.session.forget()
            self._want_invitation()
            return None, 0.2
        now = time.monotonic()
        if self.stream_worked:
            self._worked_at = now
        elif now - self._worked_at > _INVITE_ANEW_SECONDS:
            self._want_invitation()
        self._over.wait(pause)
        return invitation, 0.2 if self.stream_worked else min(2 * pause, _LONGEST_PAUSE)

    def _try_other(self, ended: Ended) -> bool:
        """Where a rotation is under way: try the next key if the site refuses this one, or its next certificate."""
        before = self._keys.path, self._pins.path
        tried = self._keys if ended.how == "refused" else self._pins
        other = not self.stream_worked and tried.try_other()
        if not other:
            self._keys.reset()
            self._pins.reset()
        if (self._keys.path, self._pins.path) != before:
            self.key, self.site = identity.read_client_key(self._keys.path), SiteCertificate.read(self._pins.path)
            self.stream.key, self.stream.site = self.key, self.site
        return other

    def _identity_worked(self) -> None:
        if self._keys.worked():
            public = identity.public_key_of(self.key)
            (self.home / identity.CLIENT_PUBLIC).write_text(f"{public.line} {self.settings.name}\n")
            log.info("the site knows this client by its new key; the old one is gone")
        if self._pins.worked():
            log.info("the site shows its new certificate; the one before is trusted no more")

    def _want_invitation(self) -> None:
        """Listen for another invitation; a client whose stream works does not."""
        self._released.set()
        if self._service is not None and not self._listening:
            self._listening = True
            self._service.start(self._invited)

    def _newest(self, current: Invitation | None) -> Invitation | None:
        """The last invitation that came, else the current one; waits a moment if there is none."""
        self.stream_worked = False
        with suppress(queue.Empty):
            newest = self._invitations.get(timeout=0.5) if current is None else self._invitations.get_nowait()
            while not self._invitations.empty():
                newest = self._invitations.get_nowait()
            self.session.save(newest)
            return newest
        return current

    def _invited(self, invitation: Invitation) -> str:
        """Called from another thread; returns when training is over or a new invitation is needed."""
        log.info("the site invites to %s", invitation.address)
        self._released.clear()
        if not self._over.is_set():
            self._invitations.put(invitation)
            self._released.wait()
        return f"{self.answered} rounds answered"

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

    def _handle_masked(self, frame: Frame) -> bytes | None:
        if self.masked is None:
            log.warning("the site asks for masked sums, in which this client takes no part: ignored")
            return None
        self.answered += isinstance(frame.header, MaskedRequest)
        return self.masked.handle(frame)

    def _welcomed(self, welcome: messages.Welcome) -> None:
        offer = Offer(Training.parse(welcome.training), welcome.cluster)
        self._check(offer)
        if self.rounds is None or self.rounds.training != offer.training.digest:
            self.rounds = self._begin(offer)
            self.masked = self._begin_masked(offer, self.rounds)
        self.rounds.welcomed(welcome.releases)
        self._identity_worked()
        made = self.account.releases
        log.info("welcome as %s in cluster %s; %d releases so far", welcome.client, offer.cluster, made)

    def _check(self, offer: Offer) -> None:
        """Whether the owner takes part in this: declarations are compared, data is not looked at."""
        training, cluster = offer.training, offer.cluster
        if cluster not in training.clusters:
            raise NetworkError(f"The site put this client in cluster {cluster!r}, which its training does not have.")
        kind = training.objective.of(cluster).kind
        if TASK_OF[kind] != self.settings.task:
            raise NetworkError(
                f'The site trains with {kind}, which is {TASK_OF[kind]}, but client.toml says task = "'
                f'{self.settings.task}"; ask its operator, or change the task if your data suits it.'
            )
        if refused := self.settings.limits.refused(training, cluster):
            raise NetworkError(f"{refused} Ask the site's operator, or widen your limits in client.toml.")
        if training.dimension != self.dimension:
            raise DataError(
                f"The site trains models of dimension {training.dimension}, but {self.settings.data} has "
                f"{self.dimension} features; check the columns and `intercept`."
            )
        if self.settings.training is not None and training.digest != self.settings.training:
            raise NetworkError(
                f"The site's training configuration is {training.digest[:16]}…, but client.toml insists on "
                f"{self.settings.training[:16]}…; ask its operator."
            )
        if check_accepted(self.home, offer):
            log.info("accepted and pinned %s: %s", training.digest[:16], training.described(cluster))

    def _begin(self, offer: Offer) -> ClientRounds:
        training, privacy, limits = offer.training, self.settings.privacy, self.settings.limits
        terms, own_bound = None, None
        if privacy.enabled:
            bounds, own_bound = Bounds(privacy.x_norm, privacy.y_bound, privacy.w_norm), privacy.w_norm
            terms = Terms(bounds, limits.tolerance, limits.solver_steps)
        objective = training.build_objective(offer.cluster, own_bound)
        data = (self.samples.features, self.samples.targets)
        role = Client(objective, training.build_algorithm(), *data, terms=terms)
        if isinstance(self.account, PrivateAccount):
            trusted = training.privacy.trust == "site" == privacy.trust
            self.account.entrusted = self._terms() if trusted else None
            masked = training.privacy.trust == "masked" == privacy.trust
            shared = "here and from others, in a masked sum" if masked else "here"
            log.info("releases carry noise from %s", "the site, which gets them clean" if trusted else shared)
            self.account.sensitivity(role, 1)  # refuse now, in one sentence, what could never be released
        return ClientRounds(role, self.account, training.digest, training.rounds)

    def _begin_masked(self, offer: Offer, rounds: ClientRounds) -> MaskedRounds | None:
        """Take part in masked sums, where both the training and the owner say so; secrets are new with every start."""
        privacy, training = self.settings.privacy, offer.training
        if not (self.takes_part_masked and training.privacy.trust == "masked"):
            return None
        assert self.roster is not None and isinstance(self.account, PrivateAccount)
        demands = Demands(privacy.contributors, privacy.colluders)
        member = Member(self.settings.name, self.key, self.roster, demands)
        bounds = Bounds(privacy.x_norm, privacy.y_bound, privacy.w_norm)
        log.info(
            "contributions are masked; the roster names %d clients (%s)", len(self.roster.keys), self.roster.digest
        )
        pair = offer.cluster if rounds.role.algorithm.personalised else EVERYONE
        return MaskedRounds(rounds, self.account, member, self.site.name, pair, bounds)

    def _read_roster(self) -> Roster | None:
        if not self.takes_part_masked:
            return None
        assert self.settings.roster is not None  # as settings are validated
        roster = read_roster(Path(self.settings.roster.file), self.settings.roster.steward, self.site.pem)
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

    def _terms(self) -> SiteTerms:
        """What a trusted site needs to know to add the noise, and how many contributions it is known to have used."""
        policy, pinned = self.settings.privacy.request().policy(), accepted(self.home)
        training = None if pinned is None else release_prefix(pinned.training.digest)
        used = 0 if training is None else self.account.ledger.used_by_site(training)
        return SiteTerms(len(self.samples.targets), policy, self.settings.limits.tolerance, used)

    def _terms_text(self) -> str:
        privacy = self.settings.privacy
        return self._terms().text if privacy.enabled and privacy.trust == "site" else ""

    def _open_account(self) -> PrivateAccount | OpenAccount:
        path, privacy = Path(self.settings.ledger), self.settings.privacy
        check_not_moved(self.home)
        if not privacy.enabled:
            log.warning("privacy is off: this client's models leave it without noise")
            return OpenAccount.open(path, self.settings.name)
        account = PrivateAccount.open(path, self.settings.name, privacy, len(self.samples.targets), self.dimension)
        if self.settings.record_noise is not None:
            account.drawn = NoiseRecorder(Path(self.settings.record_noise))
        return account
