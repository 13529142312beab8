"""The round protocol under faults: every schedule ends, nobody pays twice, and without faults it is the simulator."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest

from pgfl.algorithms.accuracy import Refusal
from pgfl.algorithms.algorithms import PGFL
from pgfl.algorithms.roles import Answer, Server
from pgfl.algorithms.schedules import Delays
from pgfl.network.agreement import Training
from pgfl.network.site.effects import (
    Ask,
    Changed,
    Completed,
    Finished,
    Members,
    Note,
    Phase,
    Publish,
    Quorum,
    Rollback,
    Timing,
)
from pgfl.network.site.role import SiteRole
from pgfl.network.site.rounds import SiteRounds
from pgfl.simulate.options import TrainingOptions
from pgfl.simulate.simulator import Replay, Simulator
from tests.network.schedules import (
    ALGORITHM,
    BOUNDED,
    OBJECTIVE,
    TIMING,
    WITH_ANYONE,
    Faults,
    World,
    small_federation,
)

SCHEDULES = 2000
FEDERATION = small_federation()
SMALL = (small_federation(sites=2, clients=2), small_federation(sites=3, clients=1), FEDERATION)


def check(world: World) -> None:
    assert world.ended, f"seed {world.seed} did not end: {world.finished}"
    for client, account in world.accounts.items():
        accepted = [round for round, _, _ in world.accepted[client]]
        saved = world.saved[world.site_of[client]]
        assert accepted == sorted(set(accepted)), "a round is accepted once"
        assert (saved[2].get(client, 0) if saved else 0) == len(accepted) <= account.releases
        machine = world.clients[client] or world.new_client(client)
        dual = np.zeros(2)
        for round, model, answer in world.accepted[client]:
            if machine.role.restarted <= round <= machine.role.settled_round:
                dual = world.algorithm.client_rule.settle(dual, model, answer.model)
        np.testing.assert_allclose(machine.role.dual, dual, atol=1e-12)
    for site, rounds in world.sites.items():
        assert not rounds.refused["bound"], f"{site} computed another dual than its client"
    for site, rounds in world.completed.items():
        numbers = [done.round for done in rounds]
        assert numbers == sorted(set(numbers)), f"{site} completed a round twice"


def test_without_faults_it_is_the_simulator():
    federation = small_federation(sites=4, clients=3)
    world = World(federation, rounds=12, faults=Faults(), seed=0).play()
    check(world)
    simulator = Simulator([federation], ALGORITHM, OBJECTIVE)
    layout, models = simulator.layout, simulator.run(12).server_models
    for site, rounds in world.sites.items():
        assert [done.round for done in world.completed[site]] == list(range(1, 13))
        assert not any(done.late or done.absent for done in world.completed[site])
        for q, cluster in enumerate(federation.cluster_ids):
            server = federation.server_ids.index(site)
            (row,) = np.flatnonzero((layout.pair_server == server) & (layout.pair_cluster == q))
            np.testing.assert_allclose(rounds.role.server.model(cluster), models[row], atol=1e-10)


@pytest.mark.parametrize(("share", "late"), [(0.25, 1), (0.5, 3)])
def test_with_slow_clients_it_is_the_simulator_with_delays(share, late):
    """Given the noise: what comes late counts from the round that takes it, as long as it took, and is charged once."""
    federation, algorithm = small_federation(sites=2, clients=8, seed=4), PGFL(rho=2.0, tau=0.2, client="gradient")
    options, rounds = TrainingOptions(delays=Delays(share, late)), 11

    def noise(client, release):
        return np.random.default_rng([federation.client_ids.index(client), release]).normal(size=2)

    def noise_of_round(round, client):
        return noise(client, (round - 1) // (late + 1) + 1 if client in slow else round)

    replay = Replay(lambda round: federation.client_ids, noise_of_round)
    simulator = Simulator([federation], algorithm, OBJECTIVE, options, replay=replay)
    drawn = options.delays.slow(simulator.layout.members, simulator.layout.server_keys, options.seed)
    order = simulator.layout.runs[0].order
    slow = {federation.client_id(k) for k in order[drawn].tolist()}
    assert len(slow) == share * federation.size

    pace = Timing(answers=900.0, exchange=900.0, start=5.0, pace=1.0)
    seconds = dict.fromkeys(slow, late * 1.0 + 0.0005)
    world = World(
        federation,
        rounds,
        Faults(latency=0.001),
        seed=0,
        timing=pace,
        algorithm=algorithm,
        slow=seconds,
        quorum=Quorum(),
    )
    for client, account in world.accounts.items():
        account.noise = partial(noise, client)
    for machine in world.sites.values():
        machine.role.paces = dict.fromkeys(slow, late + 1)
    world.play()
    check(world)
    layout, models = simulator.layout, simulator.run(rounds).server_models
    for site, played in world.sites.items():
        for q, cluster in enumerate(federation.cluster_ids):
            server = federation.server_ids.index(site)
            (row,) = np.flatnonzero((layout.pair_server == server) & (layout.pair_cluster == q))
            np.testing.assert_allclose(played.role.server.model(cluster), models[row], atol=1e-10)
    cycles = -(-rounds // (late + 1))
    for client, account in world.accounts.items():
        assert account.releases == (cycles if client in slow else rounds), "charged once for every answer"


@pytest.mark.parametrize("schedules", [100, pytest.param(SCHEDULES, marks=pytest.mark.proof)])
def test_any_schedule_ends_and_charges_nobody_twice(schedules):
    chance = random.Random(1)
    for seed in range(schedules):
        faults = Faults(
            drop=chance.choice([0.0, 0.1, 0.4]),
            duplicate=chance.choice([0.0, 0.3]),
            delay=chance.choice([0.0, 1.0, 6.0]),
            crashes=chance.randint(0, 4),
            cuts=chance.randint(0, 3),
            flaps=chance.randint(0, 4),
            changes=chance.choice([0, 0, 1, 3]),
            last=chance.choice([3.0, 30.0]),
        )
        quorum = chance.choice([WITH_ANYONE, Quorum(), Quorum(clients=1.0, neighbours=2), Quorum(0.3, 1, apart=1)])
        settings = {"quorum": quorum, "bound": chance.choice([None, BOUNDED])}
        check(World(SMALL[seed % 3], rounds=chance.randint(1, 4), faults=faults, seed=seed, **settings).play())


def test_faults_were_really_there():
    """The schedules above would prove nothing if nothing went wrong in them."""
    faults = Faults(drop=0.3, duplicate=0.3, delay=6.0, crashes=4, cuts=3, flaps=4, last=30.0)
    worlds = [World(FEDERATION, rounds=6, faults=faults, seed=seed).play() for seed in range(60)]
    done = [completed for world in worlds for rounds in world.completed.values() for completed in rounds]
    assert any(completed.late for completed in done)
    assert any(completed.absent for completed in done)
    refused = sum(
        (rounds.refused for world in worlds for rounds in world.sites.values()),
        start=type(worlds[0].sites["server-0"].refused)(),
    )
    assert {"late", "duplicate", "replayed"} <= set(refused)
    spent = sum(account.releases for world in worlds for account in world.accounts.values())
    accepted = sum(len(rounds) for world in worlds for rounds in world.accepted.values())
    assert spent > accepted, "some answers were lost, and were spent all the same"
    assert any(len(rounds) < 6 for world in worlds for rounds in world.completed.values()), (
        "some site fell behind and caught up"
    )


def test_a_mended_partition_grows_together():
    world = World(FEDERATION, rounds=10**6, faults=Faults(latency=0.05), seed=3)
    world.at(4.0, lambda: world.cut_link("server-1", "server-2", 12.0))
    world.play(horizon=30.0)
    apart = [done for done in world.completed["server-2"] if not done.neighbours]
    assert len(apart) > 20, "the smaller part kept training while it was cut off"
    together = world.completed["server-1"][-40:]
    assert all(done.neighbours == ("server-0", "server-2") for done in together), "they hear each other again"
    assert (
        max(rounds.round for rounds in world.sites.values()) - min(rounds.round for rounds in world.sites.values()) <= 1
    )
    models = [rounds.role.server.model("cluster-0") for rounds in world.sites.values()]
    assert np.ptp(models, axis=0).max() < 0.5


def test_a_client_whose_budget_is_spent_is_not_asked_again():
    world = World(small_federation(sites=1, clients=2), rounds=6, faults=Faults(), seed=0, budget=3).play()
    assert {account.releases for account in world.accounts.values()} == {3}
    assert world.finished["server-0"] == "every client has spent its privacy budget"


# single decisions ----------------------------------------------------------------------------------------------------


class Question(NamedTuple):
    client: str
    round: int


class Recorder:
    """A role that only remembers its calls."""

    def __init__(self):
        self.aggregated, self.combined, self.used, self.outliers = [], [], [], {}

    def request(self, client, round):
        return Question(client, round)

    def aggregate(self, round, answers, retired, late=None):
        taken = dict(answers) | {client: answer for client, (answer, _) in (late or {}).items()}
        self.aggregated.append((round, taken))
        self.used = list(taken)
        return f"publication {round}"

    def combine(self, round, publications):
        self.combined.append((round, dict(publications)))

    def adopt(self, members):
        self.members = members

    def roll_back(self, rollback):
        self.rolled_back = rollback

    def judge(self, client, answer, late=None):
        return "it is a lie" if answer == "lie" else None

    def entrusted(self, client):
        return client == "trusting"

    def snapshot(self):
        return None


def site(neighbours=(), clients=("ann", "bob"), rounds=9, quorum=WITH_ANYONE, **changes):
    timing = Timing(**{"answers": 10.0, "exchange": 5.0, "start": 60.0, "staleness": 1, "pace": 0.0, **changes})
    rounds = SiteRounds(Recorder(), rounds, set(neighbours), set(clients), timing, quorum)
    effects = rounds.start(0.0)
    for client in clients:
        effects += rounds.on_client_connected(client, 0.0)
    return rounds, effects


def members(*clients, neighbours=()):
    return Members(dict.fromkeys(clients, "a"), frozenset(neighbours))


def asked(effects):
    """The questions among some effects, by client."""
    return {effect.client: effect.request for effect in effects if isinstance(effect, Ask)}


def published(effects):
    return [effect.round for effect in effects if isinstance(effect, Publish)]


def test_a_round_waits_for_everyone_then_asks_everyone():
    rounds, effects = site(neighbours=("south",))
    assert not asked(effects)
    assert set(asked(rounds.on_peer_up("south", 1.0))) == {"ann", "bob"}


def test_a_start_does_not_wait_for_ever():
    rounds, _ = site(neighbours=("south",))
    assert rounds.deadline == 60.0
    assert set(asked(rounds.tick(60.0))) == {"ann", "bob"}


def test_the_round_closes_at_its_deadline_without_the_late():
    rounds, _ = site()
    rounds.on_answer("ann", 1, "a", 1.0)
    effects = rounds.tick(10.0)
    (done,) = [e for e in effects if isinstance(e, Completed)]
    assert (done.accepted, done.late) == (("ann",), ("bob",))
    assert rounds.role.aggregated == [(1, {"ann": "a"})]
    assert rounds.on_answer("bob", 2, "b", 11.0) == [Note("client bob answered round 2 without being asked")]
    assert rounds.on_answer("bob", 1, "b", 11.0) == []
    rounds.on_answer("ann", 2, "a", 12.0)
    assert rounds.role.aggregated[-1] == (2, {"ann": "a", "bob": "b"}), "it was paid for, so it counts"
    assert rounds.on_answer("bob", 1, "b", 13.0) == [Note("client bob answered round 1, now is 3: not counted")]
    assert rounds.refused["late"] == 1


def test_the_first_answer_stands():
    rounds, _ = site()
    rounds.on_answer("ann", 1, "first", 1.0)
    rounds.on_answer("ann", 1, "second", 2.0)
    rounds.on_answer("bob", 1, "b", 3.0)
    assert rounds.role.aggregated == [(1, {"ann": "first", "bob": "b"})]
    assert rounds.refused["duplicate"] == 1


def test_an_answer_that_was_not_asked_for_is_refused():
    rounds, _ = site()
    rounds.change(members("ann", "bob", "eve"), 0.5)
    assert rounds.on_client_connected("eve", 0.6), "it is admitted from the next round on"
    assert rounds.refused["unadmitted"] == 1
    rounds.on_answer("eve", 1, "e", 1.0)
    assert rounds.refused["unasked"] == 1


def test_a_client_that_comes_back_is_asked_the_same_again():
    rounds, first = site()
    rounds.on_client_disconnected("ann", 1.0)
    (again,) = rounds.on_client_connected("ann", 2.0)
    assert again == next(e for e in first if isinstance(e, Ask) and e.client == "ann")


def test_a_neighbour_in_time_is_waited_for_and_a_late_one_only_once():
    rounds, _ = site(neighbours=("south",), clients=("ann",))
    rounds.on_peer_up("south", 0.0)
    rounds.on_answer("ann", 1, "a", 1.0)
    assert rounds.phase is Phase.EXCHANGING
    assert rounds.on_publication("south", 1, "s1", 2.0)
    assert rounds.role.combined == [(1, {"south": "s1"})]
    rounds.on_answer("ann", 2, "a", 3.0)
    rounds.tick(8.0)  # south is late: round 2 uses its round 1, which staleness allows
    assert rounds.role.combined[-1] == (2, {"south": "s1"})
    rounds.on_answer("ann", 3, "a", 9.0)
    assert rounds.role.combined[-1] == (3, {}), "and round 3 neither waits nor uses what is too old"
    rounds.on_publication("south", 2, "s2", 10.0)
    rounds.on_answer("ann", 4, "a", 11.0)
    assert rounds.phase is Phase.EXCHANGING, "it is at work again, so it is waited for again"
    rounds.on_publication("south", 4, "s4", 12.0)
    assert rounds.role.combined[-1] == (4, {"south": "s4"})


def test_a_neighbour_that_is_down_is_not_waited_for():
    rounds, _ = site(neighbours=("south",), clients=("ann",))
    rounds.on_peer_up("south", 0.0)
    rounds.on_answer("ann", 1, "a", 1.0)
    effects = rounds.on_peer_down("south", 2.0)
    (done,) = [e for e in effects if isinstance(e, Completed)]
    assert done.absent == ("south",)


def test_a_replayed_publication_is_refused():
    rounds, _ = site(neighbours=("south",), clients=("ann",))
    rounds.on_peer_up("south", 0.0)
    rounds.on_publication("south", 1, "s1", 0.5)
    rounds.on_publication("south", 1, "forged", 0.6)
    rounds.on_answer("ann", 1, "a", 1.0)
    assert rounds.role.combined == [(1, {"south": "s1"})]
    assert rounds.refused["replayed"] == 1
    assert rounds.on_publication("south", 10**6, "x", 1.0)
    assert rounds.refused["beyond"] == 1
    assert rounds.on_publication("elsewhere", 1, "x", 1.0)
    assert rounds.refused["unlinked"] == 1


def test_a_site_that_fell_behind_takes_the_neighbours_round_over_without_asking_anyone():
    rounds, _ = site(neighbours=("south",), clients=("ann",), rounds=20)
    effects = rounds.on_publication("south", 9, "s9", 0.5)
    assert published(effects) == [9]
    assert asked(effects) == {"ann": ("ann", 10)}
    assert rounds.role.aggregated == [(9, {})]
    assert rounds.role.combined == [(9, {"south": "s9"})]
    assert (rounds.round, rounds.current) == (9, 10)


def test_a_site_that_learns_in_a_round_that_it_fell_behind_closes_the_round_first():
    rounds, _ = site(neighbours=("south",), clients=("ann",), rounds=20)
    assert asked(rounds.on_peer_up("south", 0.5)) == {"ann": ("ann", 1)}
    assert rounds.on_publication("south", 9, "s9", 1.0) == []
    effects = rounds.on_answer("ann", 1, "a", 2.0)
    assert published(effects) == [1, 9]
    assert asked(effects) == {"ann": ("ann", 10)}
    assert rounds.role.aggregated == [(1, {"ann": "a"}), (9, {})]
    assert rounds.role.combined == [(1, {"south": "s9"}), (9, {"south": "s9"})]


def test_every_request_is_counted_by_what_became_of_it_and_rounds_without_fruit_in_a_row():
    rounds, _ = site(clients=("ann", "bob", "eve"), rounds=99)
    rounds.on_answer("ann", 1, "a", 1.0)
    rounds.on_decline("bob", 1, False, Refusal.TOO_LONG, 1.0)
    rounds.tick(10.0)
    rounds.on_answer("ann", 2, "lie", 11.0)
    rounds.on_decline("bob", 2, False, "whatever a client makes up", 11.0)
    assert rounds.answers == {
        "ann": {"accepted": 1, "refused: beyond its bound": 1},
        "bob": {f"declined: {Refusal.TOO_LONG}": 1, "declined: for another reason": 1},
        "eve": {"late": 1},
    }
    assert (rounds.round, rounds.fruitless) == (2, 1)
    for client in ("ann", "bob", "eve"):
        rounds.on_malformed_answer(client, 12.0)
    assert (rounds.round, rounds.fruitless) == (3, 2), "nobody waits for the answer of a frame that cannot be read"
    rounds.on_answer("ann", 4, "a", 13.0)
    rounds.on_answer("bob", 4, "b", 13.0)
    rounds.on_answer("eve", 4, "e", 13.0)
    assert rounds.fruitless == 0


# neighbours that lie about their round ------------------------------------------------------------------------------


def in_step(*neighbours, rounds=1000, **changes):
    """A site and its neighbours after round 1, just before round 2 opens at time 1."""
    machine, _ = site(neighbours=neighbours, clients=("ann",), rounds=rounds, **{"pace": 1.0} | changes)
    for peer in neighbours:
        machine.on_peer_up(peer, 0.0)
        machine.on_publication(peer, 1, f"{peer} 1", 0.5)
    machine.on_answer("ann", 1, "a", 0.9)
    assert (machine.round, machine.deadline) == (1, 1.0)
    return machine


def play(machine, honest, until, slow=0.0):
    """Rounds with the honest neighbours; every one opens a pace after the last, and takes `slow` seconds more."""
    effects, now = machine.tick(1.0), 1.0
    while machine.round < until:
        now += slow
        for peer in honest:
            effects += machine.on_publication(peer, machine.current, f"{peer} {machine.current}", now)
        effects += machine.on_answer("ann", machine.current, "a", now)
        if machine.phase is Phase.WAITING:
            now = machine.deadline
            effects += machine.tick(now)
    return [effect.request[1] for effect in effects if isinstance(effect, Ask)][: until - 1], now


@pytest.mark.parametrize("claimed", [51, 999, 1000])
def test_one_neighbours_claim_moves_nobody_who_has_another_neighbour(claimed):
    rounds = in_step("south", "west")
    (note,) = rounds.on_publication("west", claimed, "lie", 0.95)
    assert "site west claims" in note.text
    questions, _ = play(rounds, ["south"], until=30)
    assert questions == list(range(2, 31)), "clients are asked in every round"
    assert rounds.refused["ahead"] == 1


@pytest.mark.parametrize("claimed", [51, 999, 1000])
def test_a_lone_neighbours_claim_is_followed_at_a_plausible_pace_and_never_to_the_end(claimed):
    rounds = in_step("south")
    rounds.on_publication("south", claimed, "lie", 0.95)
    questions, now = play(rounds, [], until=20)
    assert now >= 20.0, "rounds take their least time"
    assert questions == list(range(2, 21))
    rounds = in_step("south")
    rounds.on_publication("south", claimed, "lie", 0.95)
    questions, now = play(rounds, [], until=40, slow=9.0)
    assert rounds.round <= now + 1, "slow rounds are skipped, as with an honest neighbour that is faster"
    assert questions, "but its clients are asked in between"


def test_a_site_that_was_away_believes_what_its_neighbour_can_have_done_meanwhile():
    role = Recorder()
    timing = Timing(start=60.0, pace=2.0)
    rounds = SiteRounds(role, 1000, {"south"}, {"ann"}, timing, WITH_ANYONE, round=40, idle=100.0)
    rounds.start(0.0)
    rounds.on_client_connected("ann", 0.0)
    rounds.on_publication("south", 900, "s", 0.0)
    assert asked(rounds.on_peer_up("south", 0.0)) == {} and rounds.round == 90
    assert role.combined == [(90, {"south": "s"})]


def test_what_two_neighbours_agree_on_is_followed_but_the_last_round_is_never_skipped():
    rounds = in_step("south", "west", rounds=100)
    rounds.on_publication("south", 70, "s", 1.2)
    rounds.on_publication("west", 90, "w", 1.2)
    rounds.tick(2.0)
    assert rounds.round == 1, "the round under way is finished first"
    effects = rounds.on_answer("ann", 2, "a", 2.0)
    assert rounds.round == 70
    rounds.on_publication("south", 100, "s", 2.2)
    rounds.on_publication("west", 100, "w", 2.2)
    effects = rounds.tick(3.0)
    effects += rounds.on_answer("ann", rounds.current, "a", 3.0) + rounds.tick(4.0)
    assert asked(effects) == {"ann": ("ann", 100)} and rounds.phase is not Phase.FINISHED
    effects = rounds.on_answer("ann", 100, "a", 5.0)
    assert [e.reason for e in effects if isinstance(e, Finished)] == ["all rounds are done"]


def test_the_last_round_is_played_with_a_neighbour_that_is_done_and_gone():
    rounds, _ = site(neighbours=("south",), clients=("ann",), rounds=20, quorum=Quorum())
    rounds.on_peer_up("south", 0.0)
    rounds.on_publication("south", 20, "s20", 0.5)
    rounds.on_peer_down("south", 0.6)
    effects = rounds.on_answer("ann", 1, "a", 1.0)
    effects += rounds.on_peer_up("south", 2.0) + rounds.on_peer_down("south", 2.0)
    assert asked(effects) == {"ann": ("ann", 20)}
    assert any(isinstance(e, Finished) for e in rounds.on_answer("ann", 20, "a", 3.0))


def test_a_new_site_waits_until_a_second_neighbour_says_which_round_it_is():
    rounds, _ = site(neighbours=("south", "west"), clients=("ann",), rounds=1000, quorum=Quorum())
    assert not asked(rounds.on_publication("south", 999, "s", 0.0) + rounds.on_peer_up("south", 0.0))
    assert not asked(rounds.tick(60.0)), "it may be a lie, and whoever spends for it"
    assert "west must confirm it" in rounds.missing
    assert asked(rounds.on_publication("west", 30, "w", 61.0)) == {"ann": ("ann", 31)}


def test_a_claim_that_was_never_true_can_be_taken_back():
    rounds = in_step("south", "west")
    rounds.on_publication("west", 900, "lie", 1.5)
    rounds.tick(2.0)
    rounds.on_publication("west", 2, "w2", 2.0)
    rounds.on_publication("south", 2, "s2", 2.0)
    rounds.on_answer("ann", 2, "a", 2.0)
    assert rounds.role.combined[-1] == (2, {"south": "s2", "west": "w2"})


def test_a_rollback_revives_a_training_that_was_over():
    rounds, _ = site(clients=("ann",), rounds=2)
    for round in (1, 2):
        effects = rounds.on_answer("ann", round, "a", float(round))
    assert isinstance(effects[-1], Finished)
    training = Training(rounds=2, dimension=1, clusters=("a",))
    rollback = Rollback(None, (1,), *training.rolled_back((1,)))
    effects = rounds.change(members("ann"), 3.0, rollback)
    assert effects[0] == Changed(12, rolled_back=True)
    assert asked(effects) == {"ann": ("ann", 12)}, "a number that was never used"
    effects = rounds.on_answer("ann", 12, "a", 4.0)
    assert isinstance(effects[-1], Finished), "one round was taken back, so one was played"


def test_rounds_keep_their_places_however_often_a_training_is_rolled_back():
    training = Training(rounds=100, dimension=1, clusters=("a",))
    assert training.rolled_back(()) == (0, 100)
    assert training.rolled_back((40,)) == (1040, 1100)
    assert training.rolled_back((40, 1070)) == (2070, 2100)
    assert [training.position(round) for round in (100, 1041, 2100)] == [100, 41, 100]


def test_a_liar_among_sites_spoils_no_schedule():
    """Real roles: one site claims to be 30 rounds ahead, and all the others play their rounds with their clients."""
    timing = replace(TIMING, pace=0.1)
    world = World(small_federation(sites=4, clients=1), rounds=40, faults=Faults(latency=0.01), seed=0, timing=timing)
    liar, tell = min(world.neighbours, key=lambda name: len(world.neighbours[name])), world.deliver_publication

    def lie(sender, receiver, effect):
        tell(sender, receiver, replace(effect, round=min(40, effect.round + 30)) if sender == liar else effect)

    world.deliver_publication = lie
    world.play(horizon=200.0)
    for name in set(world.neighbours) - {liar}:
        played = [done.round for done in world.completed[name] if done.accepted]
        assert len(played) >= 36 and played[-1] == 40, name


def test_alone_without_give_up_it_waits_and_with_it_it_stops():
    rounds, _ = site(clients=())
    assert rounds.tick(60.0) == [Note("round 1 waits: no client and no neighbour is left")]
    assert rounds.deadline is None
    assert rounds.tick(1e9) == []
    rounds, _ = site(clients=(), give_up=30.0)
    assert rounds.deadline == 30.0
    assert isinstance(rounds.tick(30.0)[0], Finished)


def test_a_new_client_takes_part_from_the_next_round():
    rounds, _ = site(clients=("ann",))
    assert rounds.change(members("ann", "bob"), 1.0) == []
    effects = rounds.on_answer("ann", 1, "a", 2.0)
    assert Changed(2, admitted=("bob",)) in effects
    assert set(asked(effects)) == {"ann"}
    rounds.on_client_connected("bob", 2.5)
    assert set(asked(rounds.on_answer("ann", 2, "a", 3.0))) == {"ann", "bob"}


def test_a_change_of_members_counts_between_rounds_and_holds_no_round_up():
    rounds, _ = site(neighbours=("south", "west"))
    rounds.on_peer_up("south", 0.0)
    rounds.on_peer_up("west", 0.0)
    rounds.on_answer("ann", 1, "a", 1.0)
    effects = rounds.change(members("bob", "eve", neighbours=("south",)), 2.0)
    assert not hasattr(rounds.role, "members"), "a round keeps its members to its end"
    effects = rounds.on_answer("bob", 1, "b", 3.0)
    assert rounds.role.aggregated == [(1, {"ann": "a", "bob": "b"})]
    assert rounds.awaited == {"south"}, "a neighbour that leaves is not waited for"
    effects = rounds.on_publication("south", 1, "s", 4.0)
    assert Changed(2, admitted=("eve",), expelled=("ann",), unlinked=("west",)) in effects
    assert rounds.role.members.clients.keys() == {"bob", "eve"}
    assert set(asked(effects)) == {"bob"}
    rounds.change(members("eve", neighbours=("south",)), 5.0)
    assert rounds.phase is Phase.EXCHANGING, "nor is a client that leaves"


def test_an_expulsion_during_the_exchange_leaves_the_round_whole():
    """With the real role: the combination still knows the cluster of the client that is leaving."""
    world = World(small_federation(sites=2, clients=2), rounds=5, faults=Faults(), seed=0)
    rounds, (leaving, staying) = world.sites["server-0"], sorted(world.members["server-0"])
    publish, expelled = world.deliver_publication, []

    def expel_first(sender, receiver, effect):
        if receiver == "server-0" and effect.round == 2 and not expelled:
            assert rounds.phase is Phase.EXCHANGING
            assert leaving in rounds.role._contributions
            expelled.append(leaving)
            world.expel(leaving)
        publish(sender, receiver, effect)

    world.deliver_publication = expel_first
    world.play()
    check(world)
    assert expelled
    assert [done.accepted for done in world.completed["server-0"]] == 2 * [(leaving, staying)] + 3 * [(staying,)]


@pytest.mark.parametrize("staleness", [0, 2])
def test_staleness_is_as_configured(staleness):
    rounds, _ = site(neighbours=("south",), clients=("ann",), staleness=staleness)
    rounds.on_peer_up("south", 0.0)
    rounds.on_publication("south", 1, "s1", 0.1)
    now = 1.0
    for round in (1, 2, 3, 4):
        rounds.on_answer("ann", round, "a", now)
        now += 10.0
        rounds.tick(now)
    used = [round for round, publications in rounds.role.combined if publications]
    assert used == list(range(1, 2 + staleness))


def test_a_slower_neighbour_does_not_run_behind_for_ever():
    """Once late, it must be waited for again; a site that never waits is always some rounds ahead."""
    world = World(SMALL[0], rounds=10**6, faults=Faults(latency=0.01), seed=5)
    ask, tell = world.deliver_request, world.deliver_publication
    hanging = world.members["server-1"]

    def request(client, data):
        if client not in hanging or world.now > 5.0:  # its clients hang for a while, so it is late
            ask(client, data)

    world.deliver_request = request
    world.deliver_publication = lambda *publication: world.later(0.1, tell, *publication)  # further than the clients
    world.play(horizon=20.0)
    assert all(done.neighbours for done in world.completed["server-0"][-30:])
    assert abs(world.sites["server-0"].round - world.sites["server-1"].round) <= 1


# who must be there ---------------------------------------------------------------------------------------------------


def test_a_start_waits_until_the_neighbours_are_ready_too():
    """The barrier is not per site: a neighbour whose clients are not there yet would find the rounds over."""
    rounds, effects = site(neighbours=("south",), quorum=Quorum())
    assert rounds.ready
    assert not asked(effects + rounds.on_peer_up("south", 1.0, ready=False))
    assert not asked(rounds.tick(60.0)), "nor does it begin alone when the time to start is over"
    assert "1 are needed" in rounds.missing
    assert set(asked(rounds.on_peer_up("south", 61.0, ready=True))) == {"ann", "bob"}


def test_a_site_is_ready_when_its_clients_are_there_or_the_time_to_start_is_over():
    rounds = SiteRounds(Recorder(), 9, set(), {"ann", "bob", "eve"}, Timing(start=60.0), Quorum(clients=0.5))
    rounds.start(0.0)
    rounds.on_client_connected("ann", 1.0)
    rounds.on_client_connected("bob", 2.0)
    assert not rounds.ready
    assert set(asked(rounds.tick(60.0))) == {"ann", "bob"}
    assert rounds.ready
    alone = SiteRounds(Recorder(), 9, set(), {"ann", "bob", "eve"}, Timing(start=60.0), Quorum(clients=0.5))
    alone.start(0.0)
    alone.on_client_connected("ann", 1.0)
    (note,) = alone.tick(60.0)
    assert note == Note("round 1 waits: 1 of 3 clients are connected, 2 are needed")
    assert not alone.ready
    assert alone.tick(1e6) == [], "it says so once"
    assert set(asked(alone.on_client_connected("bob", 1e6))) == {"ann", "bob"}


def test_by_default_a_site_that_is_cut_off_spends_nothing_alone():
    """The round that is under way is paid for already; no other one opens until a neighbour is back."""
    rounds, _ = site(neighbours=("south",), clients=("ann",), quorum=Quorum())
    rounds.on_peer_up("south", 0.0)
    rounds.on_answer("ann", 1, "a", 1.0)
    effects = rounds.on_peer_down("south", 2.0)
    assert [e.absent for e in effects if isinstance(e, Completed)] == [("south",)]
    assert not asked(effects)
    assert rounds.missing == "0 of 1 neighbours are here and at round 1, 1 are needed"
    assert not asked(rounds.tick(1e6))
    assert asked(rounds.on_peer_up("south", 1e6)) == {"ann": ("ann", 2)}


@pytest.mark.parametrize("apart", [1, 3])
def test_only_so_many_rounds_are_trained_apart(apart):
    rounds, _ = site(neighbours=("south",), clients=("ann",), quorum=Quorum(apart=apart))
    rounds.on_peer_up("south", 0.0)
    rounds.on_answer("ann", 1, "a", 1.0)
    rounds.on_peer_down("south", 2.0)
    for round in range(2, 10):
        rounds.on_answer("ann", round, "a", float(round))
    assert rounds.round == apart
    rounds.on_publication("south", apart, "s", 20.0)
    assert asked(rounds.on_peer_up("south", 20.0)) == {"ann": ("ann", apart + 1)}


def test_a_neighbour_that_is_reached_but_does_not_work_is_no_company():
    rounds, _ = site(neighbours=("south",), clients=("ann",), quorum=Quorum(), rounds=99)
    rounds.on_peer_up("south", 0.0)
    now = 0.0
    for _ in range(50):
        rounds.on_answer("ann", rounds.current, "a", now)
        now += 10.0
        rounds.tick(now)
    assert rounds.round == 2, "one round uses its models of the last, as staleness allows, and one is without"


def test_a_round_takes_its_least_time():
    rounds, _ = site(clients=("ann",), pace=4.0)
    assert not asked(rounds.on_answer("ann", 1, "a", 1.0))
    assert rounds.deadline == 4.0
    assert asked(rounds.tick(4.0)) == {"ann": ("ann", 2)}


def test_without_a_quorum_a_site_gives_up_only_where_it_may():
    rounds, _ = site(neighbours=("south",), clients=("ann",), quorum=Quorum(), give_up=30.0, start=0.0)
    (finished,) = [e for e in rounds.tick(30.0) if isinstance(e, Finished)]
    assert finished.reason == "0 of 1 neighbours are here and at round 0, 1 are needed"
    assert not finished.training_over


def test_a_cut_network_waits_and_goes_on_together():
    """With the default quorum and real roles: nobody pays for rounds that only a part of the network trains."""
    world = World(FEDERATION, rounds=30, faults=Faults(latency=0.05), seed=3, quorum=Quorum(clients=1.0, neighbours=2))
    world.at(2.0, lambda: world.cut_link("server-1", "server-2", 20.0))
    world.play()
    check(world)
    assert world.now > 22.0
    assert {rounds.round for rounds in world.sites.values()} == {30}
    assert sum(bool(done.absent) for rounds in world.completed.values() for done in rounds) <= 3


def test_a_silent_client_is_asked_once_and_holds_only_the_first_round_up():
    """Its request is repeated more and more seldom, for the same price, and nobody waits for it."""
    rounds, _ = site(rounds=200, patience=3.0)
    now, repeated = 0.0, {}
    rounds.on_answer("ann", 1, "a", 0.1)
    assert rounds.phase is Phase.COLLECTING
    effects = rounds.tick(10.0)
    now = 10.0
    while rounds.round < 40:
        if "bob" in asked(effects):
            repeated[rounds.current] = asked(effects)["bob"].round
        now += 0.1
        effects = rounds.on_answer("ann", rounds.current, "a", now)
    assert now < 15.0
    assert repeated == dict.fromkeys([3, 6, 11, 20, 37], 1), "always the first question"
    rounds.on_answer("bob", 1, "b", now)
    assert asked(rounds.on_answer("ann", rounds.current, "a", now)).keys() == {"ann", "bob"}


def test_a_round_closes_once_a_quorum_has_answered_and_the_usual_time_is_over():
    rounds, _ = site(clients=("ann", "bob", "eve", "joe"), rounds=99, quorum=Quorum(), patience=3.0, pace=0.5)
    now = 0.0
    for _ in range(3):
        for client in ("ann", "bob", "eve", "joe"):
            rounds.on_answer(client, rounds.current, "x", now + 0.4)
        now = rounds.deadline
        rounds.tick(now)
    rounds.on_answer("ann", 4, "a", now + 0.1)
    assert rounds.deadline == now + 10.0, "one of four is no quorum"
    rounds.on_answer("bob", 4, "b", now + 0.2)
    assert rounds.deadline == pytest.approx(now + 3 * 0.4)
    effects = rounds.tick(rounds.deadline)
    assert any("closes without eve" in e.text for e in effects if isinstance(e, Note)), "it is named"
    assert set(asked(effects)) == {"ann", "bob"}, "who is still computing is not asked, nor charged"
    for number in range(5, 12):  # for however many rounds: back-off alone would ask for round 6
        for client in ("ann", "bob"):
            rounds.on_answer(client, number, "x", rounds.deadline - 9.9)
        effects = rounds.tick(rounds.deadline)
        owed = {e.request for e in effects if isinstance(e, Ask) and e.client in ("eve", "joe")}
        assert owed <= {("eve", 4), ("joe", 4)}, "the same request may be repeated, as its answer is paid for"
    rounds.on_answer("eve", 4, "e", rounds.deadline - 9.9)
    for client in ("ann", "bob"):
        rounds.on_answer(client, 12, "x", rounds.deadline - 9.9)
    assert asked(rounds.tick(rounds.deadline))["eve"] == ("eve", 13)


def test_a_client_that_trusts_its_site_is_waited_for_because_its_answer_cannot_count_later():
    clients = ("ann", "bob", "eve", "trusting")
    rounds, _ = site(clients=clients, rounds=99, quorum=Quorum(), patience=3.0, pace=0.5)
    for client in clients:
        rounds.on_answer(client, 1, "x", 0.4)
    began = rounds.deadline
    rounds.tick(began)
    for client in ("ann", "bob"):
        rounds.on_answer(client, 2, "x", began + 0.2)
    assert rounds.deadline == began + 10.0, "two of four are a quorum, but what the third one paid for would be lost"
    rounds.on_answer("trusting", 2, "x", began + 0.3)
    assert rounds.deadline == pytest.approx(began + 3 * 0.4), "eve's answer counts whenever it comes"
    rounds.tick(rounds.deadline)
    began = rounds.deadline - 10.0
    for client in ("ann", "bob"):
        rounds.on_answer(client, 3, "x", began + 0.2)
    (note,) = [e.text for e in rounds.tick(began + 10.0) if isinstance(e, Note) and "without trusting" in e.text]
    assert "asked again in round" in note
    rounds.on_answer("trusting", 3, "x", began + 11.0)
    assert rounds.refused["late"] == 1


def test_an_answer_between_rounds_counts_in_the_next_and_one_that_comes_back_is_asked_what_it_owes():
    rounds, _ = site(neighbours=("south",), rounds=99)
    rounds.on_peer_up("south", 0.0)
    rounds.on_answer("ann", 1, "a", 1.0)
    rounds.tick(10.0)
    assert rounds.phase is Phase.EXCHANGING
    rounds.on_client_disconnected("bob", 10.5)
    (again,) = rounds.on_client_connected("bob", 11.0)
    assert again.request == ("bob", 1)
    rounds.on_answer("bob", 1, "b", 11.0)
    assert set(asked(rounds.on_publication("south", 1, "s", 12.0))) == {"ann"}
    rounds.on_answer("ann", 2, "a", 13.0)
    assert rounds.role.aggregated[-1] == (2, {"ann": "a", "bob": "b"})


def test_a_late_update_counts_at_todays_model_in_as_many_rounds_as_it_took():
    """With the real role: what bob sent for round 2 counts in round 4 and twice more, beside ann."""
    role = SiteRole(Server(PGFL(rho=2.0, tau=0.0), 2), dict.fromkeys(("ann", "bob"), "a"), paces={"bob": 8})

    def play(round, *in_time, **late):
        answers = {name: Answer(round, np.array([float(round), 0.0]), np.zeros(2)) for name in in_time}
        role.aggregate(round, answers, late=late)
        role.combine(round, {})
        return role.server.model("a")

    play(1, "ann")
    owed = role.request("bob", 2)
    play(2, "ann"), play(3, "ann")
    today, update = role.server.model("a").copy(), np.array([0.4, 0.8])
    np.testing.assert_allclose(play(4, bob=(Answer(2, owed.model + update, np.zeros(2)), owed)), today + update)
    asked = role.request("bob", 5)
    assert asked.accepted.round == 2, "the client settles the dual of the answer that it sent"
    np.testing.assert_array_equal(asked.accepted.model, role.server.model("a"))
    restarted = SiteRole(Server(PGFL(rho=2.0, tau=0.0), 2), role.clients, paces=role.paces)
    restarted.restore(role.snapshot())
    role = restarted
    expected = (np.array([5.0, 0.0]) + today + 2.0 * update) / 2.0
    np.testing.assert_allclose(play(5, "ann"), expected)
    np.testing.assert_allclose(play(6), expected)
    assert role.used == []
    np.testing.assert_array_equal(play(7, "ann"), [7.0, 0.0])


def test_late_updates_together_weigh_no_more_than_the_answers_in_time():
    names = ("ann", "bob", "cem", "dan", "eva")
    role = SiteRole(Server(PGFL(rho=2.0, tau=0.0), 1), dict.fromkeys(names, "a"))
    late = {name: (Answer(1, np.ones(1), np.zeros(1)), role.request(name, 1)) for name in names[1:]}
    role.aggregate(3, {"ann": Answer(3, np.zeros(1), np.zeros(1))}, late=late)
    role.combine(3, {})
    np.testing.assert_allclose(role.server.model("a"), 1.0 / 5.0)  # four quarters beside one answer in time


@pytest.mark.parametrize("leave", ["expelled", "rolled back", "on time", "planned for one round"])
def test_a_late_update_of_who_is_gone_answers_in_time_or_planned_for_one_round_counts_no_more(leave):
    role = SiteRole(Server(PGFL(rho=2.0, tau=0.0), 1), dict.fromkeys(("ann", "bob"), "a"), paces={"bob": 8})
    if leave == "planned for one round":
        role.paces.clear()
    late = {"bob": (Answer(1, np.ones(1), np.zeros(1)), role.request("bob", 1))}
    role.aggregate(9, {"ann": Answer(9, np.ones(1), np.zeros(1))}, late=late)
    role.combine(9, {})
    in_time, end = {"ann": Answer(10, np.zeros(1), np.zeros(1))}, 0.0
    if leave == "expelled":
        role.adopt(Members({"ann": "a"}, frozenset()))
    elif leave == "rolled back":
        role.roll_back(Rollback(None, (0,), 9, 100))
    elif leave == "on time":
        in_time["bob"], end = Answer(10, np.full(1, 4.0), np.zeros(1)), 2.0
    role.aggregate(10, in_time)
    role.combine(10, {})
    np.testing.assert_allclose(role.server.model("a"), end)


def test_a_client_that_connects_anew_is_asked_again():
    rounds, _ = site()
    rounds.on_answer("ann", 1, "a", 1.0)
    assert set(asked(rounds.tick(10.0))) == {"ann"}
    assert asked(rounds.on_client_connected("bob", 11.0)) == {"bob": ("bob", 1)}


def test_refusals_that_others_can_cause_at_will_name_a_subject_so_that_they_are_logged_sparingly():
    rounds, _ = site(neighbours=("south",))
    rounds.on_peer_up("south", 0.0)
    rounds.on_answer("ann", 1, "a", 1.0)
    floods = [rounds.on_answer("ann", 1, "a", 1.0) for _ in range(3)] + [rounds.on_publication("south", 99, "s", 1.0)]
    assert [note.about for (note,) in floods] == ["duplicate client ann"] * 3 + ["beyond site south"]


def test_an_answer_that_no_honest_client_sends_is_refused_by_name_and_not_waited_for():
    rounds, _ = site()
    (note,) = rounds.on_answer("ann", 1, "lie", 1.0)
    assert note == Note("client ann is refused in round 1: it is a lie")
    assert rounds.refused["bound"] == 1
    rounds.on_answer("bob", 1, "b", 2.0)
    assert rounds.role.aggregated == [(1, {"bob": "b"})]
