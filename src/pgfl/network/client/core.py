"""One client without a connection: its rows, its account, and the trainings that its owner takes part in."""

from __future__ import annotations

import logging
from pathlib import Path

from pgfl.algorithms.accuracy import Terms
from pgfl.algorithms.roles import Client
from pgfl.errors import DataError, NetworkError, PrivacyError
from pgfl.network.agreement import SiteTerms, Training, task_of
from pgfl.network.client.accounts import (
    Account,
    NoiseRecorder,
    Offer,
    OpenAccount,
    PrivateAccount,
    accepted,
    check_accepted,
)
from pgfl.network.client.backup import check_not_moved
from pgfl.network.client.rounds import ClientRounds, release_prefix
from pgfl.network.client.samples import Samples
from pgfl.network.client.settings import ClientSettings
from pgfl.objectives import Bounds
from pgfl.privacy.usable import noise_in_words, unusable

log = logging.getLogger(__name__)


class ClientCore:
    """What a client is, whoever carries its messages: pgfl's own network (`Participant`) or Flower."""

    def __init__(self, settings: ClientSettings, samples: Samples) -> None:
        """Open the account; `account.close` closes it."""
        self.settings, self.samples = settings, samples
        self.home = Path(settings.home)
        self.dimension = samples.features.shape[1]
        self.account = self._open_account()
        self.rounds: ClientRounds | None = None

    def take_up(self, offer: Offer, releases: int) -> ClientRounds:
        """Return the rounds of this training, or raise why its owner takes no part in it.

        `releases` is the largest number of a release that the server has seen; an older ledger must not go on.
        """
        self._check(offer)
        if self.rounds is None or self.rounds.training != offer.training.digest:
            self.rounds = self._begin(offer)
        self.rounds.welcomed(releases)
        return self.rounds

    def _check(self, offer: Offer) -> None:
        """Whether the owner takes part in this: declarations are compared, data is not looked at."""
        training, cluster = offer.training, offer.cluster
        if cluster not in training.clusters:
            raise NetworkError(f"The site put this client in cluster {cluster!r}, which its training does not have.")
        kind = training.objective.of(cluster).kind
        if task_of(kind) != self.settings.task:
            raise NetworkError(
                f'The site trains with {kind}, which is {task_of(kind)}, but client.toml says task = "'
                f'{self.settings.task}"; ask its operator, or change the task if your data suits it.'
            )
        if refused := self.settings.limits.refused(training, cluster):
            raise NetworkError(f"{refused} Ask the site's operator, or widen your limits in client.toml.")
        if self.settings.weight is not None and training.largest_weight is None:
            raise NetworkError(
                f"client.toml weighs records by {self.settings.weight}, but the site's training has no weights; ask "
                "its operator for training.weight_cap, or leave `weight` out."
            )
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
            log.info("accepted and pinned %s: %s", training.digest[:16], training.describe(cluster))

    def _begin(self, offer: Offer) -> ClientRounds:
        training, privacy, limits = offer.training, self.settings.privacy, self.settings.limits
        terms, own_bound = None, None
        if privacy.enabled:
            bounds, own_bound = Bounds(privacy.x_norm, privacy.y_bound, privacy.w_norm), privacy.w_norm
            terms = Terms(bounds, limits.tolerance, limits.solver_steps)
        objective = training.build_objective(offer.cluster, own_bound)
        data = (self.samples.features, self.samples.targets_for(training))
        role = Client(objective, training.build_algorithm(), *data, terms=terms)
        if isinstance(self.account, PrivateAccount):
            trusted = training.privacy.trust == "site" == privacy.trust
            self.account.entrusted = self._terms() if trusted else None
            masked = training.privacy.trust == "masked" == privacy.trust
            shared = "here and from others, in a masked sum" if masked else "here"
            log.info("releases carry noise from %s", "the site, which gets them clean" if trusted else shared)
            self._check_noise(self.account, role, training)
        return ClientRounds(role, self.account, training.digest, training.has_round)

    def _check_noise(self, account: PrivateAccount, role: Client, training: Training) -> None:
        """State the noise in words, and refuse now, in one sentence, what could never be released or used."""
        sensitivity = account.sensitivity(role, 1)
        budget = self.settings.privacy.request().policy().budget
        if not account.releases and (why := unusable(budget, training.rounds)):
            raise PrivacyError(f"{why} Nothing was released.")
        one_record = f"one record can change the released model by {sensitivity:.3g}"
        log.info("%s (%s)", noise_in_words(budget, training.rounds), one_record)

    def _terms(self) -> SiteTerms:
        """What a trusted site needs to know to add the noise, and how many contributions it is known to have used."""
        policy, pinned = self.settings.privacy.request().policy(), accepted(self.home)
        training = None if pinned is None else release_prefix(pinned.training.digest)
        used = 0 if training is None else self.account.ledger.used_by_site(training)
        return SiteTerms(len(self.samples.targets), policy, self.settings.limits.tolerance, used)

    def _open_account(self) -> Account:
        path, privacy = Path(self.settings.ledger), self.settings.privacy
        check_not_moved(self.home)
        if not privacy.enabled:
            log.warning("privacy is off: this client's models leave it without noise")
            return OpenAccount.open(path, self.settings.name)
        account = PrivateAccount.open(path, self.settings.name, privacy, len(self.samples.targets), self.dimension)
        if self.settings.record_noise is not None:
            account.on_draw = NoiseRecorder(Path(self.settings.record_noise))
        return account
