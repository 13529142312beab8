"""A running client: its data, its account, its stream to the site, and Flower's invitation to it."""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pgfl.core.assured import Terms
from pgfl.core.roles import Client
from pgfl.data.frames import TableFile
from pgfl.deploy import identity
from pgfl.deploy.client.acceptance import Offer, check_accepted
from pgfl.deploy.client.accounts import OpenAccount, PrivateAccount
from pgfl.deploy.client.client_rounds import ClientRounds
from pgfl.deploy.flower.flower_client import Invitation, SuperNode, Worker
from pgfl.deploy.identity import SiteCertificate
from pgfl.deploy.messages import read_request
from pgfl.deploy.stream_of_client import Ended, SiteStream
from pgfl.deploy.training_files import TASK_OF, ClientSettings, Training
from pgfl.deploy.wire import Frame, Kind, Limits
from pgfl.errors import DataError, NetworkError, PgflError
from pgfl.objectives import Bounds, Logistic
from pgfl.privacy.sensitivity import LABEL_BOUND, clip_labels, clip_rows

log = logging.getLogger(__name__)
LOCK, SESSION = "client.lock", "session.json"
_LONGEST_PAUSE = 5.0


@dataclass(frozen=True)
class Samples:
    """A client's own rows, within its own bounds."""

    features: NDArray[np.float64]
    targets: NDArray[np.float64]


def load_samples(settings: ClientSettings) -> Samples:
    """The table of one client: its target column, all other columns are features; rows and labels are clipped."""
    table = TableFile(settings.data)
    table.require(settings.target)
    names = [name for name in table.columns if name != settings.target]
    if not names:
        raise DataError(f"{settings.data} has no column beside {settings.target}; a row needs at least one feature.")
    filled = ~table.blank()
    columns = {}
    for name, (_, numbers) in zip([settings.target, *names], table.numbers([settings.target, *names]), strict=True):
        columns[name] = numbers[filled]
        if not np.isfinite(columns[name]).all():
            row = int(np.flatnonzero(filled)[np.argmin(np.isfinite(columns[name]))])
            raise table.refuse(row, f"column {name} holds no finite number; remove or fill it.")
    if not len(columns[settings.target]):
        raise DataError(f"{settings.data} has no samples; a client needs at least one.")
    _check_task(settings, table, columns[settings.target], filled)
    features = np.column_stack([columns[name] for name in names] + [np.ones(int(filled.sum()))] * settings.intercept)
    return clipped(settings, features, columns[settings.target])


def _check_task(
    settings: ClientSettings, table: TableFile, targets: NDArray[np.float64], filled: NDArray[np.bool_]
) -> None:
    """Labels that do not suit the owner's own task end the client here, before it says a word to anyone."""
    wrong = ~Logistic().suitable(targets)
    if settings.task == "classification" and wrong.any():
        row = int(np.flatnonzero(filled)[np.argmax(wrong)])
        raise table.refuse(
            row, f'{settings.target} is not 0 or 1, which task = "classification" needs; recode it, or change the task.'
        )


def clipped(settings: ClientSettings, features: NDArray[np.float64], targets: NDArray[np.float64]) -> Samples:
    """The rows within the owner's bounds."""
    privacy = settings.privacy
    if privacy.enabled and privacy.x_norm is not None:
        features = clip_rows(features, privacy.x_norm).astype(np.float64)
    if privacy.enabled:
        targets = clip_labels(targets, privacy.y_bound or LABEL_BOUND).astype(np.float64)
    return Samples(features, targets)


class Participant:
    """One client from its start until its site says that training is over, or its own account says stop."""

    def __init__(self, settings: ClientSettings, samples: Samples) -> None:
        self.settings, self.samples = settings, samples
        self.home = Path(settings.home)
        self.key = identity.read_client_key(self.home / identity.CLIENT_KEY)
        self.site = SiteCertificate.read(Path(settings.site.certificate))
        self.dimension = samples.features.shape[1]
        self.account = self._open_account()
        self.rounds: ClientRounds | None = None
        self.answered = 0
        self.stream_worked = False
        self._invitations: queue.Queue[Invitation] = queue.Queue()
        self._released = threading.Event()
        self._over = threading.Event()
        self.stream = SiteStream(
            self.site, self.key, Limits(self.dimension), lambda: self.account.releases, self._handle
        )

    def run(self) -> str:
        """Take part, on Flower's invitation; returns why it ended."""
        site, certificate = self.settings.site, Path(self.settings.site.certificate)
        node = SuperNode(self.home, site.superlink, certificate, self.home / identity.CLIENT_KEY)
        worker = Worker(node, self._invited)
        worker.start()
        try:
            return self.take_part()
        finally:
            self._over.set()
            self._released.set()
            worker.stop()

    def stop(self) -> None:
        """End soon, from any thread or a signal."""
        self._over.set()
        self.stream.close()

    def take_part(self) -> str:
        """Answer rounds, over one stream after the other; a remembered invitation is tried before a new one comes."""
        invitation, pause = self._remembered(), 0.2
        try:
            while not self._over.is_set():
                invitation = self._newest(invitation)
                if invitation is None:
                    continue
                ended = self.stream.run(invitation.address, invitation.token)
                if ended.how == "stopped":
                    return ended.reason
                log.warning("the stream to %s ended (%s: %s)", self.site.name, ended.how, ended.reason)
                invitation, pause = self._after(ended, invitation, pause)
            return "stopped here"
        finally:
            self.account.close()

    def _after(self, ended: Ended, invitation: Invitation, pause: float) -> tuple[Invitation | None, float]:
        if ended.how == "refused":
            self._forget()
            self._released.set()  # Flower may deliver another invitation
            return None, 0.2
        self._over.wait(pause)
        return invitation, 0.2 if self.stream_worked else min(2 * pause, _LONGEST_PAUSE)

    def _newest(self, current: Invitation | None) -> Invitation | None:
        """The last invitation that came, else the current one; waits a moment if there is none."""
        self.stream_worked = False
        with suppress(queue.Empty):
            newest = self._invitations.get(timeout=0.5) if current is None else self._invitations.get_nowait()
            while not self._invitations.empty():
                newest = self._invitations.get_nowait()
            self.remember(newest)
            return newest
        return current

    def _invited(self, invitation: Invitation) -> str:
        """Called by Flower's worker; returns when training is over or a new invitation is needed."""
        log.info("the site invites to %s", invitation.address)
        self._released.clear()
        self._invitations.put(invitation)
        while not self._released.wait(1.0) and not self._over.is_set():
            pass
        return f"{self.answered} rounds answered"

    # frames -----------------------------------------------------------------------------------------------------------

    def _handle(self, frame: Frame) -> bytes | None:
        self.stream_worked = True
        if frame.kind is Kind.WELCOME:
            self._welcomed(frame)
            return None
        if self.rounds is None:
            log.warning("the site asked before it said welcome: ignored")
            return None
        reply = self.rounds.answer(read_request(frame))
        self.answered += 1
        return reply

    def _welcomed(self, frame: Frame) -> None:
        offer = Offer(Training.parse(frame.header["training"]), frame.header["cluster"])
        self._check(offer)
        if self.rounds is None or self.rounds.training != offer.training.digest:
            self.rounds = self._begin(offer)
        self.rounds.welcomed(frame.header["releases"])
        log.info(
            "welcome as %s in cluster %s; %d releases so far",
            *(frame.header["client"], offer.cluster, self.account.releases),
        )

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
            self.account.sensitivity(role, 1)  # refuse now, in one sentence, what could never be released
        return ClientRounds(role, self.account, training.digest)

    def _open_account(self) -> PrivateAccount | OpenAccount:
        path, privacy = Path(self.settings.ledger), self.settings.privacy
        if not privacy.enabled:
            log.warning("privacy is off: this client's models leave it without noise")
            return OpenAccount.open(path, self.settings.name)
        account = PrivateAccount.open(path, self.settings.name, privacy, len(self.samples.targets), self.dimension)
        if self.settings.record_noise is not None:
            account.drawn = _Recorder(Path(self.settings.record_noise))
        return account

    # the invitation survives a restart --------------------------------------------------------------------------------

    def remember(self, invitation: Invitation) -> None:
        """Where the site is and what opens it, for the next start."""
        path = self.home / SESSION
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            json.dump({"address": invitation.address, "token": invitation.token}, file)

    def _remembered(self) -> Invitation | None:
        try:
            stored = json.loads((self.home / SESSION).read_text())
            return Invitation(str(stored["address"]), str(stored["token"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _forget(self) -> None:
        (self.home / SESSION).unlink(missing_ok=True)


class _Recorder:
    """Writes clean and released models side by side, for a demonstration that is compared with the simulator."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, number: int, model: NDArray[np.float64], released: NDArray[np.float64]) -> None:
        np.save(self.folder / f"{number:06d}.npy", np.stack([model, released]), allow_pickle=False)


def run_client(settings: ClientSettings, participant: Participant | None = None) -> str:
    """Take part as these settings say; every foreseen end is a sentence."""
    try:
        return (participant or Participant(settings, load_samples(settings))).run()
    except PgflError:
        raise
    except OSError as error:
        raise NetworkError(f"Client {settings.name} cannot go on: {error}.") from error
