"""What a client can contribute is publicly bounded: honest answers are not touched, lies are clipped or refused."""

from __future__ import annotations

import numpy as np
import pytest

from pgfl.algorithms.algorithms import PGFL, FedAvg
from pgfl.algorithms.roles import Answer, Client, Publication, Server
from pgfl.network.site.bounds import Ball, ClientBound, UsualDistance, clipped_memory, clipped_publication
from pgfl.network.site.effects import Members, Rollback
from pgfl.network.site.role import SiteRole
from pgfl.network.site.settings import BoundSettings
from pgfl.objectives import Bounds, Huber, Logistic, Ridge

DIMENSION, SAMPLES, NOISE = 4, 6, 0.3
BOUNDS = Bounds(x_norm=2.0, y_bound=3.0, w_norm=1.5)
PAIRS = {
    "huber": (PGFL(rho=0.7, tau=0.2), Huber(lam=0.05, kappa=0.5)),
    "logistic": (PGFL(rho=0.2, tau=0.2), Logistic(lam=0.05)),
    "bounded ridge": (PGFL(rho=0.5, tau=0.2), Ridge(lam=0.05, w_norm=1.5)),
    "averaging": (FedAvg(step_size=0.2, local_steps=3), Huber(lam=0.05, kappa=0.5)),
}
NAMES = ("ann", "bob", "eve")


class Site:
    """One site and its clients in memory, with the real roles; `lies` maps a client to what it sends instead."""

    def __init__(self, pair, bounds=BOUNDS, bounded=True, noise=NOISE, radius=None):
        self.algorithm, self.objective = PAIRS[pair]
        bound = ClientBound(self.algorithm, {"a": self.objective}, bounds, noise)
        self.role = SiteRole(
            Server(self.algorithm, DIMENSION), dict.fromkeys(NAMES, "a"), bound=bound if bounded else None,
            neighbour_radius=radius,
        )  # fmt: skip
        self.chance = np.random.default_rng(5)
        self.clients = {name: self.client() for name in NAMES}
        self.refused, self.clipped = {}, set()

    def client(self):
        """The worst rows that the bounds allow: as long as may be, all in one direction, labels at their ends."""
        direction = self.chance.normal(size=DIMENSION)
        features = np.tile(2.0 * direction / np.linalg.norm(direction), (SAMPLES, 1))
        targets = np.full(SAMPLES, 3.0 * self.chance.choice([-1.0, 1.0]))
        if isinstance(self.objective, Logistic):
            targets = (targets > 0).astype(float)
        return Client(self.objective, self.algorithm, features, targets)

    def noised(self, model):
        return model + NOISE * self.chance.normal(size=DIMENSION)

    def play(self, round, lies=None):
        answers = {}
        for name, client in self.clients.items():
            answer = client.answer(self.role.request(name, round), self.noised)
            answer = (lies or {}).get(name, lambda honest: honest)(answer)
            refusal = self.role.judge(name, answer)
            if refusal is None:
                answers[name] = answer
            else:
                self.refused[name] = refusal
        self.role.aggregate(round, answers)
        self.role.combine(round, {})
        self.clipped |= self.role.clipped
        return self.role.server.model("a")


@pytest.mark.parametrize("pair", PAIRS)
def test_honest_answers_are_never_touched_however_bad_the_data(pair):
    bounded, free = Site(pair), Site(pair, bounded=False)
    for round in range(1, 31):
        np.testing.assert_array_equal(bounded.play(round), free.play(round))
    assert (bounded.refused, bounded.clipped) == ({}, set())
    for name, client in bounded.clients.items():
        client.settle(bounded.role.request(name, 31).accepted)
        np.testing.assert_array_equal(client.dual, bounded.role._dual(name))


@pytest.mark.parametrize("pair", PAIRS)
def test_an_answer_of_norm_900_million_is_refused_and_named_and_hurts_nobody(pair):
    site, without = Site(pair), Site(pair)
    del without.clients["bob"]
    huge = {"bob": lambda honest: Answer(honest.round, honest.model * 0 + 4.5e8, honest.dual)}
    for round in range(1, 6):
        model = site.play(round, huge)
    assert set(site.refused) == {"bob"}
    assert "times as far from its public centre" in site.refused["bob"]
    assert np.linalg.norm(model) < 50.0


def test_a_lie_within_the_refusal_is_clipped_to_the_ball_and_its_harm_is_bounded_by_the_radius():
    honest, lying = Site("huber"), Site("huber")
    ball = lying.role._ball("bob")
    outside = ball.centre + 5.0 * ball.radius * np.eye(DIMENSION)[0]
    lie = {"bob": lambda answer: Answer(answer.round, outside, answer.dual)}
    difference = lying.play(1, lie) - honest.play(1)
    assert lying.clipped == {"bob"}
    assert np.linalg.norm(difference) <= 2.0 * ball.radius / len(NAMES)
    bob = lying.clients["bob"]
    bob.sent = (1, outside)
    bob.settle(lying.role.request("bob", 2).accepted)
    np.testing.assert_array_equal(bob.dual, lying.role._dual("bob"), "clipping keeps both sides' duals the same")
    assert np.linalg.norm(bob.dual) < 3.0 * ball.radius


def test_the_dual_in_a_message_is_never_used_and_one_that_does_not_follow_begins_anew():
    """The centre would otherwise be the liar's to choose: model and dual moved together leave no trace."""
    site = Site("huber")
    site.play(1)
    away = np.full(DIMENSION, 1e6)
    site.play(2, {"bob": lambda honest: Answer(honest.round, honest.model + away, honest.dual + away)})
    assert "does not follow from its answers" in site.refused.pop("bob")
    request = site.role.request("bob", 3)
    assert (request.restarted, request.accepted) == (2, None)
    model = site.play(3)
    assert site.refused == {}
    assert np.linalg.norm(model) < 50.0
    np.testing.assert_array_equal(site.clients["bob"].dual, np.zeros(DIMENSION))


def test_a_client_that_leaves_and_comes_back_begins_with_a_dual_of_zero_on_both_sides():
    site = Site("huber")
    for round in (1, 2):
        site.play(round)
    bob = site.clients.pop("bob")
    site.role.adopt(Members({"ann": "a", "eve": "a"}, frozenset()))
    site.play(3)
    site.role.adopt(Members(dict.fromkeys(NAMES, "a"), frozenset()))
    site.clients["bob"] = bob
    for round in (4, 5, 6):
        site.play(round)
    assert (site.refused, site.clipped) == ({}, set())


def test_a_restarted_site_knows_the_duals_and_one_that_has_none_begins_anew():
    site, forgetful = Site("huber"), Site("huber", bounded=False)
    for round in (1, 2, 3):
        site.play(round)
        forgetful.play(round)
    for old in (site, forgetful):
        again = Site("huber")
        again.clients = old.clients
        again.role.restore(old.role.snapshot())
        for round in (4, 5):
            again.play(round)
        assert (again.refused, again.clipped) == ({}, set())
        assert all(client.restarted == (4 if old is forgetful else 0) for client in again.clients.values())


def test_ridge_without_a_bound_has_none_and_says_so():
    objective = Ridge(lam=0.05)
    bound = ClientBound(PGFL(), {"a": objective, "b": Huber()}, Bounds(x_norm=1.0, y_bound=1.0), noise=0.1)
    assert bound.unbounded() == ["a"]
    assert bound.ball("a", None, np.zeros(3), 5) is None
    assert bound.ball("b", None, np.zeros(3), 5) is not None


def test_the_noise_is_within_the_radius():
    """2·10⁵ draws of noise alone, against a bound that one in 10¹² passes."""
    bound = ClientBound(PGFL(), {"a": Huber(kappa=1e-9)}, Bounds(x_norm=1.0), noise=1.0)
    for dimension in (1, 3, 100):
        ball = bound.ball("a", None, np.zeros(dimension), 1)
        drawn = np.random.default_rng(1).normal(size=(200_000 // dimension, dimension))
        assert np.linalg.norm(drawn, axis=1).max() < ball.radius < 3.0 * np.sqrt(dimension) + 8.0


def test_a_neighbour_is_taken_within_a_radius_of_the_sites_own_model():
    own = Publication(3, 1, {"a": np.zeros(2)})
    near, changed = clipped_publication(own, Publication(3, 2, {"a": np.array([0.3, 0.4])}), 1.0)
    assert (near.models["a"].tolist(), changed) == ([0.3, 0.4], False)
    theirs = Publication(3, 2, {"a": np.array([30.0, 40.0]), "b": np.ones(2)})
    far, changed = clipped_publication(own, theirs, 1.0)
    np.testing.assert_allclose(far.models["a"], [0.6, 0.8])
    assert (far.degree, far.models["b"].tolist(), changed) == (2, [1.0, 1.0], True)


def test_a_lying_neighbour_moves_a_site_no_further_than_the_radius():
    site = Site("huber", radius=0.5)
    site.role.adopt(Members(dict.fromkeys(NAMES, "a"), frozenset({"south"})))
    sent = site.role.aggregate(1, {})
    assert sent.models == {}
    site.role.combine(1, {})
    site.play(2)
    before = site.role.aggregate(3, {}).models["a"]
    site.role.combine(3, {"south": Publication(3, 1, {"a": np.full(DIMENSION, 1e8)})})
    assert site.role.clipped == {"south"}
    assert np.linalg.norm(site.role.server.model("a") - before) <= 0.5


def test_a_neighbour_that_claims_a_million_clients_weighs_no_more_than_the_agreed_training_has_at_a_site():
    members = Members(dict.fromkeys(NAMES, "a"), frozenset({"south"}))
    own, theirs = np.zeros(DIMENSION), np.ones(DIMENSION)
    for claimed, weight in ((1, 1 / 4), (5, 5 / 8), (10**6, 5 / 8)):
        role = SiteRole(Server(PGFL(tau=0.0, mixing="clients"), DIMENSION), members.clients, {"a": 5})
        role.adopt(members)
        role.aggregate(1, {name: Answer(1, own, own) for name in NAMES})
        role.combine(1, {"south": Publication(1, 1, {"a": theirs}, clients={"a": claimed})})
        np.testing.assert_allclose(role.server.model("a"), weight * theirs)


def test_a_rollback_takes_models_back_and_duals_begin_anew_while_rounds_go_on():
    site = Site("huber")
    for round in range(1, 4):
        site.play(round)
    past, model = site.role.snapshot(), site.role.server.model("a").copy()
    for round in range(4, 7):
        site.play(round)
    site.role.roll_back(Rollback(past, (3,), round=1003, last=1100))
    np.testing.assert_array_equal(site.role.server.model("a"), model)
    request = site.role.request("ann", 1004)
    assert (request.round, request.accepted, request.restarted) == (1004, None, 1004)
    again = Site("huber")
    again.clients = site.clients
    again.role.restore(site.role.snapshot())
    assert again.role.rollbacks == (3,)
    for round in (1004, 1005, 1006):
        again.play(round)
    assert (again.refused, again.clipped) == ({}, set())
    again.role.roll_back(Rollback(None, (3, 0), round=2000, last=2100))
    assert again.role.request("ann", 2001).model is None


def test_a_ball_of_no_size_is_a_point():
    ball = Ball(np.ones(2), 0.0)
    assert ball.distance(np.ones(2)) == 0.0
    np.testing.assert_array_equal(ball.clipped(np.zeros(2)), np.ones(2))


# without a statement: what is usual ---------------------------------------------------------------------------------


def usual_site(clients=3, neighbours=("south", "west")):
    server = Server(PGFL(rho=2.0, tau=0.0), 2, neighbours)
    return SiteRole(server, dict.fromkeys(NAMES[:clients], "a"), usual=UsualDistance(10.0))


def played(role, round, lies=None, published=None):
    """A round in which clients send vectors of norm about 1 and neighbours of norm 0.5, but for the lies."""
    answers = {
        name: Answer(round, np.array([1.0, 0.1 * place]), np.zeros(2)) for place, name in enumerate(role.clients)
    }
    answers |= {name: Answer(round, np.full(2, far), dual) for name, (far, dual) in (lies or {}).items()}
    role.aggregate(round, answers)
    near = {name: Publication(round, 2, {"a": np.array([0.5, 0.0])}) for name in role.server.neighbours}
    near |= {name: Publication(round, 2, {"a": np.full(2, far)}) for name, far in (published or {}).items()}
    role.combine(round, near)


@pytest.mark.parametrize("lie", [(1e8, np.zeros(2)), (1.0, np.full(2, 1e8)), (-1e8, np.full(2, 1e8))])
def test_by_default_a_client_far_from_all_others_is_refused_and_moves_nothing(lie):
    role = usual_site()
    for round in range(1, 6):
        played(role, round, lies={"bob": lie})
        assert list(role.outliers) == ["bob"] and "bob" not in role.used
        assert np.linalg.norm(role.server.model("a")) < 2.0
    played(role, 6)
    assert role.outliers == {} and "bob" in role.used, "an honest answer counts again"


def test_of_two_clients_the_one_is_refused_that_the_neighbours_contradict():
    role = usual_site(clients=2)
    for round in range(1, 31):
        played(role, round, lies={"bob": (1e8, np.zeros(2))})
    assert list(role.outliers) == ["bob"]
    assert np.linalg.norm(role.server.model("a")) < 2.0, "the first round, in which nobody knew, is forgotten"


def test_by_default_a_neighbour_far_from_all_others_is_clipped():
    role = usual_site()
    for round in range(1, 6):
        played(role, round, published={"south": 1e8})
        assert "south" in role.clipped
        assert np.linalg.norm(role.server.model("a")) < 5.0


def test_what_is_usual_outlives_a_restart_and_no_single_one_raises_it():
    role = usual_site()
    for round in range(1, 15):
        played(role, round, lies={"bob": (2.0**round, np.zeros(2))})
    again = usual_site()
    again.restore(role.snapshot())
    assert again.usual.medians == role.usual.medians
    assert max(role.usual.medians) < 2.0


def test_a_site_has_this_bound_unless_its_operator_says_otherwise():
    assert BoundSettings().spread == 10.0


def test_a_neighbour_moves_learned_weights_no_further_than_its_models_may_be():
    """Estimates are clipped around this site's own, masses to [0, 1]; what is too short counts as nothing."""
    masses = np.array([0.5, 0.25, 0.5, 0.5, 1.0])
    mine = np.concatenate(
        [np.ones(8), masses, [0.3]]
    )  # four averages of two numbers, masses, and how far uphill it was
    own = Publication(3, 2, {"a": np.zeros(2)}, memory={"a": mine})
    honest = Publication(3, 2, {"a": np.zeros(2)}, memory={"a": mine * 1.01, "b": np.zeros(5)})
    kept = clipped_memory(own, honest, 2, 1.0, 3.0).memory
    assert kept.keys() == {"a"} and np.allclose(kept["a"][:12], 1.01 * mine[:12]) and np.isclose(kept["a"][13], 0.303)
    lie = np.concatenate([np.full(8, 1e8), [7.0, -1.0, 0.5, 0.5, 9.0, -1e8]])
    found = clipped_memory(own, Publication(3, 2, {"a": np.zeros(2)}, memory={"a": lie}), 2, 1.0, 3.0).memory["a"]
    assert found[8:13].tolist() == [1.0, 0.0, 0.5, 0.5, 1.0] and not found[2:4].any()
    for place, mass in ((0, 1.0), (2, 0.5), (3, 0.5)):
        part = slice(2 * place, 2 * place + 2)
        assert np.linalg.norm(found[part] / mass - mine[part] / masses[place]) <= 3.0
    assert abs(found[13] - 0.3 / 0.75) <= 3.0
