"""A real site that its clients trust, attacked by a neighbour who works with all of its clients but one.

The site is what `pgfl site serve` runs, without its sockets: its role, its record and the ledgers that it keeps for its
clients. The neighbour sees what the site publishes, knows what the other contributor sent, and chooses what it
publishes itself so that the site's model is where the victim's record matters most. Before the last round is saved the
site is killed and asked for it again; a second draw of the noise would be averaged with the first.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from pgfl.algorithms.roles import Answer, Client, Publication, Server
from pgfl.arrays import AnyInts, Floats
from pgfl.lab.audit.cases import ROUNDS, Case
from pgfl.lab.audit.deployed import CLUSTER, IN_MEMORY, training_of
from pgfl.lab.audit.subjects import Integers, LyingServer, Mechanism, Played
from pgfl.network.agreement import AgreedPrivacy, SiteTerms, Training
from pgfl.network.site.role import SiteRole
from pgfl.network.site.store import STORE, SiteStore
from pgfl.network.site.trustee import LEDGERS, Noise, Trustee
from pgfl.privacy import lattice
from pgfl.privacy.ledger.rows import Policy
from pgfl.privacy.noise import NoiseSource

VICTIM, SPY, NEIGHBOUR = "ann", "eve", "south"
CONTRIBUTORS = 2
_SPYS_RECORDS = 10**6  # so that the noise is what the victim's own record asks for


def play(case: Case, mechanism: Mechanism, worlds: Integers, seed: int) -> Played:
    """One site per trial; ρ is the largest sum of charges to the victim in a site's ledger."""
    # the spy's many records must not put the victim over the cap: the sum is to have the least noise that it can have
    privacy = AgreedPrivacy(trust="site", contributors=CONTRIBUTORS, noise_cap=1e12)
    agreed = training_of(case).model_copy(update={"privacy": privacy})
    policy = replace(mechanism.privacy, max_releases=ROUNDS, index="release").policy()
    assert case.contributors == CONTRIBUTORS  # the victim, and a spy in the place of its companion
    whole, rho = LyingServer(case, len(worlds), CONTRIBUTORS), 0.0
    received = np.empty((ROUNDS, len(worlds), len(case.centre)))
    federation = mechanism.privacy.bounded(case.federation(worlds))
    place = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="pgfl-audit-", dir=place) as folder:
        for trial in range(len(worlds)):
            victim = mechanism.client(*federation.rows(trial * (federation.size // len(worlds))))
            with _Site(Path(folder) / str(trial), agreed, policy, victim, mechanism) as site:
                received[:, trial] = site.attacked(case.centre)
                rho = max(rho, site.charged)
    for released in received:
        whole.receive(released)
    return whole, rho


@dataclass
class _Site:
    """One site with a victim and a spy as its clients, and the neighbour's view of it."""

    home: Path
    training: Training
    policy: Policy
    victim: Client
    mechanism: Mechanism

    def __enter__(self) -> _Site:
        self.home.mkdir()
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    @property
    def charged(self) -> float:
        """What the site's ledger says that the victim has spent."""
        return sum(row.phi for row in self.trustee.accounts[VICTIM].ledger.rows())

    def attacked(self, centre: Floats) -> list[Floats]:
        """What the neighbour makes of every round: the victim's contribution with the noise of the sum."""
        self._exchange(1, {}, centre)
        return [self._round(number, centre) for number in range(2, ROUNDS + 2)]

    def _round(self, number: int, centre: Floats) -> Floats:
        seen = [self._published(number)]
        if number == ROUNDS + 1:
            self._end()
            self._start()
            seen.append(self._published(number))
        told = CONTRIBUTORS * np.mean(seen, axis=0) - centre  # the spy contributed the model that it was sent
        self._exchange(number, self._answers(number), centre)
        return np.asarray(told)

    def _published(self, number: int) -> Floats:
        return self.role.aggregate(number, self._answers(number)).models[CLUSTER]

    def _answers(self, number: int) -> dict[str, Answer]:
        answers = {}
        for name in (VICTIM, SPY):
            request = self.role.request(name, number)
            assert request.model is not None
            answers[name] = Answer(number, request.model, np.zeros_like(request.model), clean=True)
        clean = self.victim.answer(self.role.request(VICTIM, number), release=lambda model: model)
        return answers | {VICTIM: replace(clean, clean=True)}

    def _exchange(self, number: int, answers: dict[str, Answer], centre: Floats) -> None:
        """The neighbour publishes what takes the site's model to the centre, and the site saves the round."""
        published = self.role.aggregate(number, answers).models.get(CLUSTER)
        theirs = centre if published is None else 2.0 * centre - published
        self.role.combine(number, {NEIGHBOUR: Publication(number, 1, {CLUSTER: theirs})})
        self.store.save_round(number, self.role.snapshot(), answers, {})

    def _start(self) -> None:
        self.store = SiteStore(self.home / STORE)
        disturbed = self.mechanism.disturb(_OnLattice())
        self.trustee = Trustee(self.training, self.home / LEDGERS, self.store, noise=_as_noise(disturbed))
        server = Server(self.training.build_algorithm(), self.training.dimension, (NEIGHBOUR,))
        self.role = SiteRole(server, dict.fromkeys((VICTIM, SPY), CLUSTER), trustee=self.trustee)
        saved = self.store.load_state()
        if saved is not None:
            self.role.restore(saved[1])
        for name, records in ((VICTIM, self.victim.records), (SPY, _SPYS_RECORDS)):
            self.trustee.accept(name, SiteTerms(records, self.policy))

    def _end(self) -> None:
        self.trustee.close()
        self.store.close()


class _OnLattice:
    """The noise of a site's sums in the form in which bugs are planted."""

    label = "secure"

    def widen(self, sensitivity: ArrayLike) -> Floats:
        return np.asarray(sensitivity, dtype=np.float64)

    def check(self, sigma: ArrayLike) -> None:
        pass

    def release(self, models: ArrayLike, sigma: ArrayLike, clients: AnyInts, round: int) -> Floats:
        (scale,) = np.asarray(sigma, dtype=np.float64).tolist()
        return lattice.from_lattice(lattice.with_noise(lattice.to_lattice(models), scale))


def _as_noise(source: NoiseSource) -> Noise:
    def noised(points: lattice.Points, sigma: float) -> lattice.Points:
        released = source.release(lattice.from_lattice(points)[None], np.array([sigma]), np.zeros(1, np.int64), 1)
        return lattice.to_lattice(released[0])

    return noised
