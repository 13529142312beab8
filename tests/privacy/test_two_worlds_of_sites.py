"""Two worlds at a trusted site: all that leaves it or is written by it is the same, but for noised sums within Δ."""

from __future__ import annotations

import numpy as np
import pytest

from pgfl.core.roles import Publication
from pgfl.privacy import lattice
from pgfl.privacy.ledger import Ledger
from tests.deploy.trusted import CLIENTS, VICTIM, TrustedSite

SEQUENCES, ROUNDS = 8, 6


class Killed(BaseException):
    """The site ends here."""


class SharedNoise:
    """World 0 draws; world 1 gets what world 0 drew, as the Gaussian mechanism allows, at the price of the distance."""

    def __init__(self):
        self.drawn, self.kill_next, self.replayed = [], False, 0

    def __call__(self, points, sigma):
        if self.kill_next:
            self.kill_next = False
            raise Killed
        self.drawn.append((points, sigma, lattice.with_noise(points, sigma)))
        return self.drawn[-1][2]

    def replay(self):
        replaying = SharedNoise()

        def again(points, sigma):
            if replaying.kill_next:
                replaying.kill_next = False
                raise Killed
            clean, before, noised = self.drawn[self.replayed]
            self.replayed += 1
            assert sigma == before
            replaying.drawn.append(float(np.linalg.norm((clean - points).astype(float))) * lattice.STEP)
            return noised

        return replaying, again


def play(folder, world, noise, draw, seed):
    """One hostile sequence; returns everything that others can see of it, the ledgers among it."""
    chance, seen = np.random.default_rng(seed), []
    site = TrustedSite(folder, noise=draw, world=world)
    for round in range(1, ROUNDS + 1):
        present = [name for name in CLIENTS if chance.random() < 0.85]
        fate = chance.choice(["fine", "killed in the draw", "killed after it"], p=[0.6, 0.2, 0.2])
        forced = chance.normal(size=3) * 10.0 ** chance.integers(-2, 3)
        asked = site.trustee.worth_asking(present, dict.fromkeys(CLIENTS, "a"))
        answering = [name for name in asked if chance.random() < 0.8]
        if fate == "killed in the draw":
            noise.kill_next = True
        try:
            published = site.role.aggregate(round, site.answers(round, answering))
        except Killed:
            seen.append("killed")
            site = site.restarted(noise=draw)
            published = site.role.aggregate(round, site.answers(round, answering))
        noise.kill_next = False
        seen += [asked, _bytes(published), dict(site.trustee.sat_out)]
        if fate == "killed after it":
            site = site.restarted(noise=draw)
            seen.append(_bytes(site.role.aggregate(round, site.answers(round, answering))))
        site.role.combine(round, {"south": Publication(round, 1, {"a": forced})})
        snapshot = site.role.snapshot()
        seen.append({name: array.tobytes() for name, array in snapshot.items()})
        site.store.save_round(round, snapshot, asked, {})
    site.trustee.close()
    site.store.close()
    return seen, {name: _ledger(folder, name) for name in CLIENTS}


def _bytes(publication):
    models = {cluster: model.tobytes() for cluster, model in publication.models.items()}
    return publication.round, models, sorted(publication.able), sorted(publication.exhausted)


def _ledger(folder, name):
    with Ledger.read(folder / "ledgers" / f"{name}.db") as ledger:
        return [row.described() for row in ledger.rows()]


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    outcomes = []
    for seed in range(SEQUENCES):
        noise = SharedNoise()
        first = play(tmp_path_factory.mktemp("world0"), 0, noise, noise, seed)
        again, draw = noise.replay()
        second = play(tmp_path_factory.mktemp("world1"), 1, again, draw, seed)
        outcomes.append((first, second, again.drawn))
    return outcomes


def test_one_record_changes_nothing_but_the_noised_sums_and_those_by_delta_at_most(played):
    nearest = 0.0
    for (seen, ledgers), (others_seen, others_ledgers), distances in played:
        assert seen == others_seen
        assert ledgers == others_ledgers
        drawn = [row for row in ledgers[VICTIM] if not row["void"]]
        with_victim = [distance for distance in distances if distance > 0]
        assert len(with_victim) <= len(drawn)
        for distance in distances:
            assert distance <= min((row["sensitivity"] for row in drawn), default=0.0)
            nearest = max(nearest, distance / drawn[0]["sensitivity"] if drawn else 0.0)
    assert nearest > 0.99, "the worlds differ by what a record can do"


def test_the_sequences_were_hostile(played):
    """Every kind of end was there: sums, pairs that sat out, noise lost after its charge, the same numbers again."""
    said = [entry for (seen, _), _, _ in played for entry in seen]
    reasons = {
        why.split(" ")[0] for entry in said if isinstance(entry, dict) for why in entry.values() if type(why) is str
    }
    assert {"only", "its"} <= reasons
    assert said.count("killed") >= 3
    assert any(row["void"] for (_, ledgers), _, _ in played for rows in ledgers.values() for row in rows)
