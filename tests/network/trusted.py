"""A site that its clients trust, without a network: its role, a real store and real ledgers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pgfl.algorithms.roles import Client, Server
from pgfl.network.agreement import SiteTerms, Training
from pgfl.network.site.role import SiteRole
from pgfl.network.site.store import SiteStore
from pgfl.network.site.trustee import Trustee
from pgfl.privacy import lattice
from pgfl.privacy.request import Privacy

D, RECORDS, ROUNDS, CLIENTS = 3, {"ann": 40, "bob": 20, "cem": 40}, 4, ("ann", "bob", "cem")
X_NORM, VICTIM = 2.0, "bob"  # in world 1 one record of the victim is another
POLICY = Privacy(epsilon=2.0, max_releases=ROUNDS, zeta=0.9, x_norm=X_NORM).policy()
TERMS = {name: SiteTerms(records, POLICY) for name, records in RECORDS.items()}


def agreed(dimension=D, contributors=2, **algorithm):
    return Training.model_validate(
        {
            "rounds": 50,
            "dimension": dimension,
            "clusters": ("a", "b"),
            "objective": {"kind": "huber", "kappa": 1.0},
            "algorithm": {"kind": "pgfl", "client": "gradient", "rho": 4.0, **algorithm},
            "privacy": {"trust": "site", "contributors": contributors},
        }
    )


class TrustedSite:
    """A site's role with a trustee, a real store and real ledgers, without a network."""

    def __init__(self, folder, training=None, terms=TERMS, clusters=None, local=(), noise=lattice.with_noise, world=0):
        self.folder, self.training, self.world = folder, training or agreed(), world
        self.store = SiteStore(folder / "site.db")
        self.trustee = Trustee(self.training, folder / "ledgers", self.store, noise=noise)
        clusters = clusters or dict.fromkeys(CLIENTS, "a")
        server = Server(self.training.build_algorithm(), self.training.dimension, ("south",))
        self.role = SiteRole(server, clusters, trustee=self.trustee)
        saved = self.store.load_state()
        if saved is not None:
            self.role.restore(saved[1])
        for name in clusters:
            if name not in local:
                self.trustee.accept(name, terms[name])

    def answers(self, round, names=CLIENTS, local=()):
        """Every client's contribution, clean unless it is local."""
        found = {}
        for name in names:
            request = self.role.request(name, round)
            rng = np.random.default_rng(CLIENTS.index(name))
            features, targets = (
                rng.normal(size=(RECORDS[name], self.training.dimension)),
                rng.normal(size=RECORDS[name]),
            )
            if name == VICTIM:  # the record that matters most: opposite residuals beyond κ, on a row of full length
                features[0], targets[0] = 10.0 * np.eye(len(features[0]))[0], 1e6 * (-1.0) ** self.world
            features *= np.minimum(1.0, X_NORM / np.linalg.norm(features, axis=1))[:, None]
            client = Client(self.training.build_objective("a"), self.training.build_algorithm(), features, targets)
            found[name] = replace(client.answer(request, lambda model: model), clean=name not in local)
        return found

    def play(self, round, names=CLIENTS, local=()):
        return self.finish(round, self.answers(round, names, local))

    def finish(self, round, answers):
        publication = self.role.aggregate(round, answers)
        self.role.combine(round, {})
        self.store.save_round(round, self.role.snapshot(), answers, {})
        return publication

    def charged(self):
        return {name: account.ledger.count for name, account in self.trustee.accounts.items()}

    def restarted(self, **options):
        """As after a kill: nothing is closed in order, only the locks are let go, as the kernel would."""
        self.trustee.close()
        self.store.close()
        return TrustedSite(self.folder, self.training, world=self.world, **options)
