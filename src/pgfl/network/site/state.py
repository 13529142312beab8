"""The state of a site, loaded from its settings and its folder: store, role, rounds, certificate."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from pgfl.algorithms.roles import EVERYONE, Server
from pgfl.algorithms.server_rules import half_of_server
from pgfl.errors import NetworkError
from pgfl.network.agreement import Training
from pgfl.network.protocol.messages import vectors_each
from pgfl.network.protocol.wire import Limits
from pgfl.network.rotation import ActiveCertificate
from pgfl.network.site.bounds import UsualDistance
from pgfl.network.site.effects import Quorum, Rollback, Timing
from pgfl.network.site.masked_pairs import MaskedPairs
from pgfl.network.site.role import SiteRole
from pgfl.network.site.rounds import SiteRounds
from pgfl.network.site.settings import BoundSettings, SiteSettings
from pgfl.network.site.store import STORE, Membership, SiteStore
from pgfl.network.site.trustee import LEDGERS, SumRecorder, Trustee
from pgfl.streams import Purpose, stream

log = logging.getLogger(__name__)


class SiteState:
    """Everything of a site but its connections: what the last process saved, ready to go on from."""

    def __init__(self, settings: SiteSettings) -> None:
        self.settings, self.training = settings, settings.training
        self.home = Path(settings.home)
        self.certificate = ActiveCertificate(self.home, settings.name)
        self.store = SiteStore(self.home / STORE)
        self.digest = self.training.digest
        self.store.bind_training(self.digest, self.training.clusters)
        self.membership = self.store.membership()
        clients = self._clusters_of_all()
        algorithm = self.training.build_algorithm()
        trained = frozenset(self.training.clusters) | (
            {EVERYONE} if not algorithm.server_rule.personalised else frozenset()
        )
        length = self.training.dimension
        each = vectors_each(length, algorithm.server_rule.published_length(length))
        self.limits = Limits(length, trained, self.training.max_norm, vectors=max(Limits.vectors, each * len(trained)))
        neighbours = self.membership.neighbours
        self.trustee = self._trustee()
        self.masked = self._masked_pairs()
        self.role = build_role(
            self.training, settings.name, clients, neighbours, settings.bounds, self.trustee, self.masked
        )
        saved = self.store.load_state()
        self.resumed = saved is not None
        if saved is not None:
            self.role.restore(saved[1])
            if self.membership.rollbacks != self.role.rollbacks:
                self.role.roll_back(self.rollback(self.membership.rollbacks))
                self.store.save_rollback(self.role.server.round, self.role.snapshot())
        self.rounds = SiteRounds(
            self.role,
            self.training.rolled_back(self.role.rollbacks)[1],
            set(neighbours),
            set(clients),
            Timing(**settings.timing.model_dump()),
            Quorum(**settings.quorum.model_dump()),
            choose=self._choose,
            masked=self.masked,
            invited=self.membership.invited,
            round=self.role.server.round if saved is not None else 0,
            idle=self.store.idle(),
            apart=self._apart_before(len(neighbours)),
        )

    def rollback(self, rollbacks: tuple[int, ...]) -> Rollback:
        """The last of these rollbacks, with the models that are kept."""
        return Rollback(self.store.past(rollbacks[-1]), rollbacks, *self.training.rolled_back(rollbacks))

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

    def _trustee(self) -> Trustee | None:
        if self.training.privacy.trust != "site":
            return None
        recorded = self.settings.record_noise
        on_draw = None if recorded is None else SumRecorder(Path(recorded))
        return Trustee(self.training, self.home / LEDGERS, self.store, on_draw)

    def _masked_pairs(self) -> MaskedPairs | None:
        if self.training.privacy.trust != "masked":
            return None
        return MaskedPairs(
            self.training, self.settings.name,
            lambda client: self.role.pair(client), lambda client: self.role.clients.get(client),
            lambda: {name: client.key.line for name, client in self.store.clients().items()},
            self.settings.timing.answers,
        )  # fmt: skip

    def _apart_before(self, neighbours: int) -> int:
        """How many rounds, in a row, the last life of this site trained with too few neighbours."""
        needed = min(self.settings.quorum.neighbours, neighbours)
        history = self.store.history()
        together = (len(row["neighbours"]) >= needed for row in reversed(history))
        return next((rounds for rounds, enough in enumerate(together) if enough), len(history))

    def _choose(self, round: int, able: list[str]) -> list[str]:
        """The clients that are asked in a round."""
        chosen = draw_participants(self.training, self.settings.name, round, able)
        if self.masked is not None:
            return self.masked.eligible(chosen)
        if self.trustee is None:
            return chosen
        self.role.update_over_cap()
        return self.trustee.eligible(chosen, {client: self.role.pair(client) for client in chosen})


def build_role(
    training: Training,
    site: str,
    clients: Mapping[str, str],
    neighbours: Iterable[str],
    bounds: BoundSettings,
    trustee: Trustee | None = None,
    masked: MaskedPairs | None = None,
) -> SiteRole:
    """Return the role of a site before its first round; `clients` has their clusters."""
    bound = bounds.of_clients(training)
    if bound is None:
        log.info("answers are bounded by %g times the usual distance (bounds.spread)", bounds.spread)
    elif unbounded := bound.unbounded():
        log.warning("answers of %s are not bounded: ridge needs bounds.w_norm", ", ".join(unbounded))
    clusters, half = training.clusters, half_of_server(site)
    server = Server(training.build_algorithm(), training.dimension, neighbours, clusters=clusters, half=half)
    usual = UsualDistance(bounds.spread)
    return SiteRole(
        server, clients, training.most_clients, bound, bounds.neighbours, trustee, masked, usual, training.position
    )


def draw_participants(training: Training, site: str, round: int, able: list[str]) -> list[str]:
    """Return the clients of a site that are drawn for a round: the same ones whoever draws."""
    wanted = training.algorithm.participants
    if wanted == "all" or len(able) <= wanted:
        return able
    lots = stream(training.seed, 0, Purpose.PARTICIPANTS, zlib.crc32(site.encode()), round)
    return sorted(able[place] for place in lots.permutation(len(able))[:wanted])
