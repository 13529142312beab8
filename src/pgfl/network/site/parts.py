"""What a running site is made of, put together from its settings and its folder; the certificate that it shows."""

from __future__ import annotations

import logging
import zlib
from pathlib import Path

from pgfl.algorithms.roles import EVERYONE, Server
from pgfl.errors import NetworkError
from pgfl.network.logs import RateLimitedLogger
from pgfl.network.protocol import identity
from pgfl.network.protocol.identity import ClientKey, SiteCertificate
from pgfl.network.protocol.wire import Limits
from pgfl.network.rotation import matching
from pgfl.network.site.bounds import ClientBound
from pgfl.network.site.masked_pairs import MaskedPairs
from pgfl.network.site.role import SiteRole
from pgfl.network.site.round_effects import Quorum, Timing
from pgfl.network.site.rounds import SiteRounds
from pgfl.network.site.settings import SiteSettings
from pgfl.network.site.store import STORE, Membership, SiteStore
from pgfl.network.site.trustee import LEDGERS, SumRecorder, Trustee
from pgfl.streams import Purpose, stream

log = logging.getLogger(__name__)


class ShownCertificate:
    """The certificate in a site's folder, as it was read last."""

    def __init__(self, home: Path, name: str) -> None:
        """Refuse a folder whose certificate has another name."""
        self.certificate_file, self.key_file = home / identity.SITE_CERTIFICATE, home / identity.SITE_KEY
        self.certificate = SiteCertificate.read(self.certificate_file)
        if self.certificate.name != name:
            raise NetworkError(
                f"site.toml calls this site {name}, its certificate {self.certificate.name}; use one name."
            )
        self.key = _read_key(self.key_file)
        self._limited_log = RateLimitedLogger(log)

    @property
    def fingerprint(self) -> str:
        """The fingerprint that clients and neighbours pin."""
        return self.certificate.fingerprint

    @property
    def pem(self) -> bytes:
        """The certificate as it is shown."""
        return self.certificate.pem

    def switched(self) -> bool:
        """Look into the folder; returns whether the operator has switched to another certificate, which counts now."""
        try:
            shown, key = SiteCertificate.read(self.certificate_file), _read_key(self.key_file)
        except NetworkError as error:
            self._limited_log.warning("certificate", f"the certificate cannot be read: {error}")
            return False
        if shown == self.certificate or shown.name != self.certificate.name or not matching(shown, key):
            return False
        log.info("this site shows the certificate with fingerprint %s… from now on", shown.fingerprint[:16])
        self.certificate, self.key = shown, key
        return True


def _read_key(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise NetworkError(f"The key {path} cannot be read: {error.strerror}; `pgfl site init` makes one.") from error


class SiteParts:
    """The store, the role and the rounds of a site, as its last life left them; nothing is sent or received yet."""

    def __init__(self, settings: SiteSettings) -> None:
        self.settings, self.training = settings, settings.training
        self.home = Path(settings.home)
        self.shown = ShownCertificate(self.home, settings.name)
        self.store = SiteStore(self.home / STORE)
        self.digest = self.training.digest
        self.store.bind_training(self.digest, self.training.clusters)
        self.membership = self.store.membership()
        clients = self._clusters_of_all()
        algorithm = self.training.build_algorithm()
        trained = frozenset(self.training.clusters) | ({EVERYONE} if not algorithm.personalised else frozenset())
        self.limits = Limits(self.training.dimension, trained, self.training.max_norm)
        neighbours = self.membership.neighbours
        server = Server(algorithm, self.training.dimension, neighbours, clusters=self.training.clusters)
        self.trustee = self._trustee()
        self.masked = self._masked_pairs()
        self.role = SiteRole(
            server, clients, self.training.most_clients, self._client_bound(), settings.bounds.neighbours, self.trustee,
            self.masked,
        )  # fmt: skip
        saved = self.store.load_state()
        self.resumed = saved is not None
        if saved is not None:
            self.role.restore(saved[1])
            if self.membership.rollbacks != self.role.rollbacks:
                self.role.roll_back(self.store.past(self.membership.rollbacks[-1]), self.membership.rollbacks)
                self.store.save_state(saved[0], self.role.snapshot())
        self.rounds = SiteRounds(
            self.role,
            self.training.rounds,
            set(neighbours),
            set(clients),
            Timing(**settings.timing.model_dump()),
            Quorum(**settings.quorum.model_dump()),
            choose=self._choose,
            masked=self.masked,
            round=saved[0] if saved is not None else 0,
            apart=self._apart_before(len(neighbours)),
        )

    def keys(self) -> dict[str, ClientKey]:
        """The keys of the admitted clients."""
        return {name: client.key for name, client in self.store.clients().items()}

    def clusters_of(self, membership: Membership) -> dict[str, str]:
        """The clusters of the admitted clients; one whose cluster is not trained is left out, with a warning."""
        clusters = {name: client.cluster for name, client in membership.clients.items()}
        for name, cluster in clusters.items():
            if cluster not in self.training.clusters:
                log.warning("client %s is in cluster %s, which is not trained: it takes no part", name, cluster)
        return {name: cluster for name, cluster in clusters.items() if cluster in self.training.clusters}

    def _clusters_of_all(self) -> dict[str, str]:
        """The clusters of the clients that are admitted at the start, all of which must be trained."""
        admitted, clients = self.membership.clients, self.clusters_of(self.membership)
        if lost := admitted.keys() - clients.keys():
            raise NetworkError(
                f"Client {min(lost)} was admitted to cluster {admitted[min(lost)].cluster}, which training.clusters "
                "does not name; admit it to another one."
            )
        return clients

    def _client_bound(self) -> ClientBound | None:
        bound = self.settings.bounds.of_clients(self.training)
        if bound is None:
            log.info("clients' answers are not bounded: `bounds` in site.toml states no x_norm and noise")
        elif unbounded := bound.unbounded():
            log.warning("answers of %s are not bounded: ridge needs bounds.w_norm", ", ".join(unbounded))
        return bound

    def _trustee(self) -> Trustee | None:
        if self.training.privacy.trust != "site":
            return None
        recorded = self.settings.record_noise
        drawn = None if recorded is None else SumRecorder(Path(recorded))
        return Trustee(self.training, self.home / LEDGERS, self.store, drawn)

    def _masked_pairs(self) -> MaskedPairs | None:
        if self.training.privacy.trust != "masked":
            return None
        return MaskedPairs(
            self.training, self.settings.name,
            lambda client: self.role.pair(client), lambda client: self.role.clients.get(client),
            lambda: {name: key.line for name, key in self.keys().items()}, self.settings.timing.answers,
        )  # fmt: skip

    def _apart_before(self, neighbours: int) -> int:
        """How many rounds, in a row, the last life of this site trained with too few neighbours."""
        needed = min(self.settings.quorum.neighbours, neighbours)
        history = self.store.history()
        together = (len(row["neighbours"]) >= needed for row in reversed(history))
        return next((rounds for rounds, enough in enumerate(together) if enough), len(history))

    def _choose(self, round: int, able: list[str]) -> list[str]:
        """The clients that are asked in a round."""
        wanted, chosen = self.training.algorithm.participants, able
        if wanted != "all" and len(able) > wanted:
            lots = stream(self.training.seed, 0, Purpose.PARTICIPANTS, zlib.crc32(self.settings.name.encode()), round)
            chosen = sorted(able[place] for place in lots.permutation(len(able))[:wanted])
        if self.masked is not None:
            return self.masked.eligible(chosen)
        if self.trustee is None:
            return chosen
        self.role.update_over_cap()
        return self.trustee.eligible(chosen, {client: self.role.pair(client) for client in chosen})
