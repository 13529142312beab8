"""Private cluster discovery: releases are noised and charged, one record moves nothing else, the budget holds."""

from dataclasses import replace

import numpy as np
import pytest

from pgfl import PGFL, Huber, Logistic, Privacy, Ridge, Softmax, synthetic_regression, train
from pgfl.errors import ConfigError, DataError, PrivacyError
from pgfl.metrics import adjusted_rand_index
from pgfl.objectives import Objective
from pgfl.privacy import accounting
from pgfl.privacy.discovery import DiscoveryBudget, sketch_sensitivity
from pgfl.privacy.mechanism import Account
from pgfl.privacy.noise import SeededNoise
from pgfl.simulate import discovery
from pgfl.simulate.late_choice import LateChoice, keeping_pairs
from pgfl.simulate.sketches import Sketches
from tests.simulate.test_discovery import without

HUBER, STEPS = Huber(0.001, kappa=1.0), PGFL(0.6, client="gradient")
EIGHT = Privacy(epsilon=8.0, zeta=0.95, max_releases=40, index="release", x_norm=1.0)


def hidden(seed, clusters=3, **changes):
    shape = {"servers": 4, "clients_per_server": 12, "dimension": 10, "samples": (150, 200), "gamma": 0.5}
    return synthetic_regression(clusters=clusters, seed=seed, observation_noise=0.7, x_norm=1.0, **shape | changes)


def found(federation, privacy=EIGHT, **changes):
    options = {"rounds": 40, "discover": True, "engine": "numpy", "metrics": ["nmsd"], "privacy": privacy}
    return train(federation, STEPS, HUBER, **options | changes)


class Recorded:
    """What was released, clean and with noise, in the order of the releases; `forced` makes another world repeat it."""

    def __init__(self, monkeypatch, forced=None):
        self.clean, self.sigma, self.released = [], [], []
        own = SeededNoise.release

        def release(source, models, sigma, clients, round):
            noised = own(source, models, sigma, clients, round) if forced is None else forced[len(self.released)]
            self.clean.append(np.array(models))
            self.sigma.append(np.array(sigma))
            self.released.append(noised)
            return noised

        monkeypatch.setattr(SeededNoise, "release", release)


def choose_always(monkeypatch):
    monkeypatch.setattr(discovery, "DOUBT", -1.0)


@pytest.mark.parametrize(("seed", "choices"), [pytest.param(6303, 0, marks=pytest.mark.proof), (6304, 1)])
def test_one_record_changes_nothing_but_releases_and_those_by_what_is_charged(monkeypatch, seed, choices):
    """Two worlds that differ in one record, with the same releases: all else is the same, and every release of that
    client moves by no more than its charge pays for.
    """
    if choices:
        choose_always(monkeypatch)
    federation, rng = hidden(seed, clients_per_server=6, gamma=0.9), np.random.default_rng(seed)
    client = int(rng.integers(federation.size))
    row = int(federation.offsets[client])
    targets = federation.targets.copy()
    targets[row] = 100.0
    federation = federation.replace(targets=targets, generated=True)
    targets = targets.copy()
    targets[row] = -100.0
    other = federation.replace(targets=targets, generated=True)
    first = Recorded(monkeypatch)
    one = found(federation)
    second = Recorded(monkeypatch, first.released)
    two = found(other)
    assert len(first.released) == len(second.released) == 40 + 3 + 40 + choices
    for name, values in one.clusters.items():
        assert (two.clusters[name] == values).all()
    assert (one.privacy[0]["rho"] == two.privacy[0]["rho"]).all()
    lost = 0.0
    for number, (here, there, sigma) in enumerate(zip(first.clean, second.clean, first.sigma, strict=True)):
        sketch = 40 <= number < 43 or (choices and number == 43 + 30)
        moved = np.linalg.norm(here - there, axis=1)
        changed = np.flatnonzero(moved)
        assert changed.tolist() == [client] if sketch else len(changed) <= 1  # nobody else's knows of the record
        lost += float((moved[changed] ** 2 / (2.0 * sigma[changed] ** 2)).sum())
    assert 0.0 < lost <= one.privacy[0]["rho"][client]


class Attained:
    """A source of noise that remembers what it was asked to hide."""

    label = "none"

    def widen(self, sensitivity):
        return np.asarray(sensitivity)

    def check(self, sigma):
        pass

    def release(self, models, sigma, clients, round):
        self.clean, self.sigma = np.array(models), np.array(sigma)
        return self.clean


@pytest.mark.parametrize("release", ["sketch", "choice"])
@pytest.mark.parametrize("objective", [HUBER, Logistic(), Ridge(w_norm=2.0), Softmax(classes=3)], ids=lambda o: o.kind)
def test_no_replaced_record_moves_a_sketch_further_than_delta(objective: Objective, release):
    """Records, models and directions at random and at the worst; Δ is attained by records that are opposed."""
    rng, largest = np.random.default_rng(6310), 0.0
    labels = {"logistic": lambda size: rng.integers(0, 2, size), "softmax": lambda size: rng.integers(0, 3, size)}
    for _ in range(120):
        count = int(rng.integers(1, 5))
        made = hidden(6310, servers=1, clients_per_server=1, clusters=1, dimension=6, samples=count, graph="none")
        targets = labels.get(objective.kind, lambda size: rng.choice([-50.0, -1.0, 0.0, 1.0, 50.0], size))
        rows = rng.standard_normal((2, count, 6)) * 10.0 ** rng.uniform(-2, 2, (2, count, 1))
        rows /= np.maximum(np.linalg.norm(rows, axis=2, keepdims=True), 1.0)
        if rng.random() < 0.5:
            rows[1, 0] = -rows[0, 0]
        rows[1, 1:], y = rows[0, 1:], targets((2, count)).astype(float)
        y[1, 1:] = y[0, 1:]
        length = objective.model_length(6)
        model = rng.standard_normal(length) * 10.0 ** rng.uniform(-2, 3)
        along = np.linalg.qr(rng.standard_normal((length, 4)))[0].T
        clip, phi = 10.0 ** rng.uniform(-3, 0), 0.02
        models = rng.standard_normal((3, length)) * 10.0 ** rng.uniform(-2, 3)
        seen = []
        for features, own in zip(rows, y, strict=True):
            source, account = Attained(), Account.empty(1)
            worlds = made.replace(features=features, targets=own)
            sketches = Sketches(worlds, objective, account, lambda width, source=source: source)
            if release == "sketch":
                sketches.sketch(model, along, clip, phi)
            else:
                sketches.choose(models, clip, phi)
            assert account.rho[0] == phi and account.releases[0] == 1
            seen.append(source)
        moved = float(np.linalg.norm(seen[0].clean - seen[1].clean))
        delta = float(sketch_sensitivity(clip, [count])[0])
        assert moved <= delta
        assert seen[0].sigma[0] == pytest.approx(delta / np.sqrt(2.0 * phi))
        largest = max(largest, moved / delta)
    assert largest > (0.99 if release == "sketch" else 0.9)


@pytest.mark.proof
@pytest.mark.parametrize(("trust", "more"), [("local", {}), ("masked", {"contributors": 1, "colluders": 0})])
def test_the_budget_holds_with_what_finding_cost(trust, more):
    result = found(hidden(6320), replace(EIGHT, trust=trust, **more))
    account, cost = result.privacy[0], result.clusters
    total = accounting.exact_rho(8.0, 1e-5)
    assert account["rho"].max() > 0.99 * total  # masked, a client with many records pays for less than its pair's noise
    assert (account["epsilon"] <= 8.0).all()
    assert (account["releases"] == 40 + 3 + 40).all()
    assert result.privacy_card.epsilon == account["epsilon"].max()
    assert result.privacy_card.headline.endswith("83 of 83 releases")
    budget = DiscoveryBudget.of(EIGHT, hidden(6320).counts, 10)
    assert cost["rho"] == pytest.approx(budget.model + 3 * budget.sketch, rel=1e-6)
    assert (cost["releases"] == 40 + 3).all()
    assert "finding them cost ε = " in result.notes[0] and "of 8" in result.notes[0]


@pytest.mark.proof
@pytest.mark.parametrize(
    ("trust", "more"),
    [("local", {}), pytest.param("masked", {"contributors": 1, "colluders": 0}, marks=pytest.mark.proof)],
)
def test_the_budget_holds_with_a_late_choice(monkeypatch, trust, more):
    choose_always(monkeypatch)
    federation, privacy = hidden(6322, gamma=0.9), replace(EIGHT, trust=trust, **more)
    result = found(federation, privacy)
    account, cost = result.privacy[0], result.clusters
    budget = DiscoveryBudget.of(EIGHT, federation.counts, 10)
    assert cost["rho"] == pytest.approx(budget.model + 3 * budget.sketch + budget.choice, rel=1e-6)
    assert (cost["releases"] == 40 + 3 + 1).all() and (account["releases"] == 40 + 3 + 1 + 40).all()
    assert account["rho"].max() > 0.99 * accounting.exact_rho(8.0, 1e-5)
    assert (account["epsilon"] <= 8.0).all() and result.rounds[-1] == 40
    if trust == "local":
        trained = account["rho"] - cost["rho"]  # all that was not spent on finding, and no more
        assert trained == pytest.approx(accounting.exact_rho(8.0, 1e-5) - cost["rho"], rel=1e-3)


@pytest.mark.proof
def test_nobody_chooses_where_membership_is_certain():
    """Nor is anything reserved for it: these clients are far apart."""
    result = found(hidden(6324, gamma=0.9, samples=2000))
    assert len(result.cluster_ids) == 3 and (result.clusters["releases"] == 40 + 3).all()


def test_a_late_choice_adds_to_what_was_known(monkeypatch):
    """Sketches that leave doubt are settled by choices; a choice that leaves doubt does not override sketches."""
    rng = np.random.default_rng(6326)
    labels = np.arange(60) % 2
    for before, after in ((0.8, 6.0), (6.0, 0.8)):
        made = [
            np.where(labels, distance, -distance)[:, None] + rng.standard_normal((60, 1))
            for distance in (before, after)
        ]
        records, one = np.full(60, 100), np.ones((60, 1))
        start = discovery.find_clusters(made[0], one, records, rng)
        if len(start.centres) == 1:
            start = discovery.find_clusters(3.0 * np.sign(made[0]), one, records, rng)  # some clients misplaced
            assert adjusted_rand_index(start.labels, labels) < 0.9

        class Released:
            points, noise = made[0], one

            def choose(self, models, clip, phi):
                self.points, self.noise = np.hstack(made), np.ones((60, 2))  # noqa: B023

        choice = LateChoice(Released(), start, 1.0, 0.01)
        assert adjusted_rand_index(choice.made(np.eye(2), records).labels, labels) == 1.0


def test_whoever_would_be_the_last_to_leave_a_cluster_at_a_server_stays():
    servers, before = np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1])
    posterior = np.array([[0.2, 0.8], [0.4, 0.6], [0.1, 0.9], [0.7, 0.3]])
    kept = keeping_pairs(posterior.argmax(axis=1), before, servers, posterior)
    assert kept.tolist() == [1, 0, 1, 1]


@pytest.mark.proof
def test_hidden_clusters_are_found_within_the_budget():
    agreement = []
    for seed in range(6333, 6336):
        federation = hidden(seed, clients_per_server=20, gamma=0.8)
        result = found(federation, rounds=80, privacy=replace(EIGHT, max_releases=80, zeta=0.97))
        agreement.append(adjusted_rand_index(result.clusters["cluster"], federation.client_cluster))
    assert np.mean(agreement) > 0.9, agreement


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(6340, 6342))
def test_one_cluster_is_never_split_and_the_answer_says_what_it_means(seed):
    result = found(hidden(seed, clusters=1))
    assert result.cluster_ids == ("all",)
    assert "which does not show that there is none; looking cost ε = " in result.notes[0]


def test_where_nothing_could_be_seen_nothing_is_spent():
    result = found(hidden(6350, samples=(2, 9)))
    assert (result.clusters["rho"] == 0.0).all() and (result.privacy[0]["releases"] == 40).all()
    assert "nothing was spent on looking" in result.notes[0]


def test_a_continued_run_keeps_clusters_and_account():
    federation = hidden(6360)
    first = found(federation)
    later = found(federation, start=first, privacy=replace(EIGHT, epsilon=10.0, max_releases=80))
    assert (later.clusters["cluster"] == first.clusters["cluster"]).all()
    assert (later.privacy[0]["rho"] > first.privacy[0]["rho"]).all()
    assert (later.privacy[0]["epsilon"] <= 10.0).all()
    assert (later.privacy[0]["releases"] == 40 + 3 + 80).all()


@pytest.mark.proof
def test_a_new_client_pays_for_the_choice_of_its_cluster(monkeypatch):
    federation, gone = hidden(6362, gamma=0.9), [0, 5]
    names = [federation.client_ids[client] for client in gone]
    first = found(without(federation, gone))
    asked = replace(EIGHT, epsilon=10.0, max_releases=80)
    with pytest.raises(DataError, match="list it in new_clients"):
        found(federation, asked, start=first)
    made = Recorded(monkeypatch)
    later = found(federation, asked, start=first, new_clients=names)
    phi = 0.04 * accounting.exact_rho(10.0, 1e-5)
    assert adjusted_rand_index(later.clusters["cluster"], federation.client_cluster) == 1.0
    assert later.clusters["rho"][gone] == pytest.approx(phi) and (later.clusters["releases"][gone] == 1).all()
    assert made.clean[0].shape == (2, 2)  # two clients, contrasts of three models
    charged = later.privacy[0]["rho"][gone]
    paid = found(without(federation, gone), asked, start=first).privacy[0]
    assert (charged > phi).all() and (later.privacy[0]["epsilon"] <= 10.0).all()
    assert later.privacy[0]["rho"][12] == pytest.approx(paid["rho"][10])  # nobody else pays


def test_float_safe_noise_is_drawn_for_records_of_ones_own():
    result = found(hidden(6370, clients_per_server=3, samples=200), replace(EIGHT, noise="secure"))
    assert result.noise == "secure" and result.clusters["releases"].tolist() == [43] * 12


def test_what_has_no_budget_or_no_gradient_steps_is_refused():
    with pytest.raises(PrivacyError, match="takes its part of a budget"):
        found(hidden(6380), Privacy(phi0=1e-3, x_norm=1.0))
    with pytest.raises(ConfigError, match="gradient steps"):
        train(hidden(6380), PGFL(), HUBER, privacy=EIGHT, rounds=40, discover=True)
