"""Two worlds at a trusted site: all that leaves it or is written by it is the same, but for noised sums within Δ."""

from __future__ import annotations

import os
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from pgfl.algorithms.roles import Publication
from pgfl.network.site.trustee import Trustee
from pgfl.privacy import lattice
from pgfl.privacy.ledger.ledger import Ledger
from tests.network.trusted import CLIENTS, VICTIM, TrustedSite

SEQUENCES, ROUNDS = int(os.environ.get("PGFL_TWO_WORLDS", "1200")) // 150, 6


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
        asked = site.trustee.eligible(present, dict.fromkeys(CLIENTS, "a"))
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
        return [row.describe() for row in ledger.rows()]


def both_worlds(folder, seed):
    """One sequence in both of them: what was seen and charged in each, and how far clean sums are apart."""
    noise = SharedNoise()
    worlds = [folder / f"{seed}-{world}" for world in (0, 1)]
    for home in worlds:
        home.mkdir()
    first = play(worlds[0], 0, noise, noise, seed)
    again, draw = noise.replay()
    return first, play(worlds[1], 1, again, draw, seed), again.drawn


def judged(outcome):
    """What breaks the promise; and how much of the charged Δ was used."""
    (seen, ledgers), (others_seen, others_ledgers), distances = outcome
    drawn = [row for row in ledgers[VICTIM] if not row["void"]]
    least = min((row["sensitivity"] for row in drawn), default=0.0)
    found = ["what others see differs"] if seen != others_seen else []
    found += ["ledgers differ"] if ledgers != others_ledgers else []
    found += ["more draws than charges"] if sum(distance > 0 for distance in distances) > len(drawn) else []
    found += ["sums differ by more than Δ"] if max(distances, default=0.0) > least else []
    return found, max(distances, default=0.0) / least if drawn else 0.0


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    return [both_worlds(tmp_path_factory.mktemp("worlds"), seed) for seed in range(SEQUENCES)]


def test_one_record_changes_nothing_but_the_noised_sums_and_those_by_delta_at_most(played):
    outcomes = [judged(outcome) for outcome in played]
    assert [found for found, _ in outcomes] == [[]] * SEQUENCES
    assert max(used for _, used in outcomes) > 0.99, "the worlds differ by what a record can do"


def test_the_sequences_were_hostile(played):
    """Every kind of end was there: sums, pairs that sat out, noise lost after its charge, the same numbers again."""
    said = [entry for (seen, _), _, _ in played for entry in seen]
    reasons = {
        why.split(" ")[0] for entry in said if isinstance(entry, dict) for why in entry.values() if type(why) is str
    }
    assert {"only", "its"} <= reasons
    assert said.count("killed") >= 3
    assert any(row["void"] for (_, ledgers), _, _ in played for rows in ledgers.values() for row in rows)


# bugs that are planted on purpose -------------------------------------------------------------------------------------


def a_sum_is_published_before_it_has_noise():
    real = Trustee.noised_sum

    def noised_sum(self, round, pair, clean, server_clients):
        made = real(self, round, pair, clean, server_clients)
        bare = np.sum([clean[name].model for name in sorted(clean)], axis=0) if clean else None
        return made if made is None or bare is None else replace(made, sum=bare)

    return mock.patch.object(Trustee, "noised_sum", noised_sum)


def the_noise_of_a_round_is_drawn_again():
    real = Trustee.noised_sum

    def noised_sum(self, round, pair, clean, server_clients):
        before = self.store.noised(round, pair)
        made = real(self, round, pair, clean, server_clients)
        if before is None or not clean:
            return made
        summed = lattice.to_lattice(np.stack([each.model for each in clean.values()])).sum(axis=0)
        return replace(made, sum=lattice.from_lattice(self.noise(summed, 1.0)))

    return mock.patch.object(Trustee, "noised_sum", noised_sum)


def less_is_charged_than_a_record_does():
    real = Trustee._sensitivity
    return mock.patch.object(Trustee, "_sensitivity", lambda self, *given: 0.9 * real(self, *given))


def a_reason_depends_on_a_record():
    real = Trustee._judged

    def judge(self, round, pair, clean, server_clients):
        why, sigma, deltas = real(self, round, pair, clean, server_clients)
        ann = [float(each.model[0]) for name, each in clean.items() if name == VICTIM]
        return (None if why is None else f"{why} {ann}"), sigma, deltas

    return mock.patch.object(Trustee, "_judged", judge)


PLANTED = (
    a_sum_is_published_before_it_has_noise,
    the_noise_of_a_round_is_drawn_again,
    less_is_charged_than_a_record_does,
    a_reason_depends_on_a_record,
)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_noticed(plant, tmp_path):
    with plant():
        assert any(judged(both_worlds(tmp_path, seed))[0] for seed in range(SEQUENCES))
