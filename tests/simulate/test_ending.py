"""Training ends when no client can ever contribute again, in every engine, batch and process, and results say so."""

import numpy as np
import pytest

import pgfl
from pgfl import PGFL, Huber, Privacy, Result, train
from pgfl.privacy.budget import Budget
from pgfl.simulate import training
from pgfl.simulate.checkpoint import Checkpoints
from pgfl.simulate.options import TrainingOptions
from pgfl.simulate.simulator import Simulator

SMALL = {"servers": 4, "clients_per_server": 4, "clusters": 2, "dimension": 3, "samples": (8, 9), "x_norm": 1.0}
FIVE = Privacy(epsilon=50.0, max_releases=5, index="release", x_norm=1.0)


def small(run=0):
    return pgfl.synthetic_regression(run=run, **SMALL)


def trained(federation=small, **changes):
    settings = {"rounds": 40, "privacy": FIVE, "participants": 2, "metrics": ("nmsd", "residuals", "disagreement")}
    return train(federation, PGFL(1.0, 0.4), Huber(kappa=2.0), **(settings | changes))


# --- who is spent -----------------------------------------------------------------------------------------------------


BUDGETS = {
    "so many releases": Budget(1e-2, 0.9, 1e-5, max_releases=4, index="release", last=12),
    "so much by release": Budget(1e-2, 0.9, 1e-5, rho_budget=0.06, index="release", last=12),
    "a schedule by release": Budget(1e-2, 0.9, 1e-5, index="release", last=3),
    "constant noise": Budget(1e-2, 1.0, 1e-5, rho_budget=0.05, index="release", last=12),
    "a schedule by round": Budget(1e-2, 0.9, 1e-5, index="round", last=7),
    "so many releases by round": Budget(1e-2, 0.9, 1e-5, max_releases=3, index="round", last=12),
    "so much by round": Budget(1e-2, 0.8, 1e-5, rho_budget=0.12, index="round", last=12),
}


@pytest.mark.parametrize("name", BUDGETS)
@pytest.mark.parametrize("seed", range(4))
def test_an_account_is_spent_if_no_later_release_can_be_paid(name, seed):
    """Tried release by release and round by round, for a client that takes part at random."""
    budget, chance = BUDGETS[name], np.random.default_rng(seed)
    rho, releases = np.zeros(1), np.zeros(1, dtype=np.int32)
    seen = set()
    for round in range(1, 31):
        later = [bool(np.all(budget.affordable(rho, releases, n))) for n in range(round, 40)]
        spent = bool(np.all(budget.spent(rho, releases, round)))
        assert spent == (not any(later)), (round, releases)
        seen.add(spent)
        if later[0] and chance.random() < 0.6:
            rho += budget.price(releases, round)
            releases += 1
    assert seen == {False, True}


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["numpy", "numba", "jax"])
def test_training_ends_with_the_last_release(engine):
    result = trained(participants="all", engine=engine)
    assert (result.ended_by, list(result.spent_at)) == ("budget", [5])
    assert result.rounds.tolist() == list(range(41))
    assert (result.privacy[0]["releases"] == 5).all() and (result.privacy[0]["refused"] == 0).all()
    for metric in result.metrics:
        assert (result.curve(metric)[0, 5:] == result.curve(metric)[0, 5]).all()
    short = trained(participants="all", engine=engine, rounds=5, privacy=Privacy(**vars(FIVE)))
    np.testing.assert_array_equal(result.models[0].servers, short.models[0].servers)


@pytest.mark.parametrize(
    "privacy",
    [
        Privacy(epsilon=50.0, max_releases=50, index="release", x_norm=1.0),
        Privacy(epsilon=50.0, x_norm=1.0),
        Privacy(phi0=1e-2, zeta=0.99, x_norm=1.0),
        None,
    ],
    ids=["more releases than rounds", "a target by round", "a schedule by round", "no privacy"],
)
def test_a_training_that_nobody_leaves_is_played_to_its_end(privacy):
    result = trained(privacy=privacy, rounds=12)
    assert (result.ended_by, list(result.spent_at)) == (None, [None])
    assert privacy is None or result.privacy[0]["releases"].sum() == 12 * 4 * 2


def test_the_last_round_is_no_early_end():
    result = trained(participants="all", rounds=5)
    assert (result.ended_by, list(result.spent_at)) == (None, [None])


@pytest.mark.parametrize("every", [1, 7])
def test_runs_that_end_at_different_rounds_do_not_depend_on_their_batch(monkeypatch, every):
    together = trained(runs=4, record_every=every)
    assert together.ended_by == "budget" and len(set(together.spent_at)) > 1
    monkeypatch.setattr(training, "BATCH_ELEMENTS", 1)
    alone = trained(runs=4, record_every=every)
    assert list(alone.spent_at) == list(together.spent_at)
    for metric in together.metrics:
        np.testing.assert_array_equal(alone.curve(metric), together.curve(metric), metric)
    for one, other in zip(alone.models, together.models, strict=True):
        np.testing.assert_array_equal(one.servers, other.servers)
        np.testing.assert_array_equal(one.present, other.present)
    assert together.rounds[-1] == 40 and (together.rounds[:-1] % every == 0).all()


@pytest.mark.parametrize("at", [3, 17, 25])
def test_a_resumed_training_ends_as_the_whole_one(tmp_path, at):
    """Stopped before the first run ends, between the ends of two, and after the last."""
    whole = trained(runs=3)
    assert 3 < min(whole.spent_at) < 17 < max(whole.spent_at) < 25
    stopped = Checkpoints(tmp_path, "same", 1)
    simulator = Simulator(
        [small(run) for run in range(3)], PGFL(1.0, 0.4), Huber(kappa=2.0),
        TrainingOptions(rounds=40, privacy=FIVE, participants=2, metrics=("nmsd", "residuals", "disagreement")),
    )  # fmt: skip
    simulator.observers = [simulator.recorder, stopped]
    simulator.recorder.record()
    simulator.run(at)
    resumed = trained(runs=3, checkpoints=Checkpoints(tmp_path, "same", 1), resume=True)
    again = trained(runs=3, checkpoints=Checkpoints(tmp_path, "same", 1), resume=True)
    for result in (resumed, again):
        assert (result.ended_by, list(result.spent_at)) == ("budget", list(whole.spent_at))
        for name in whole.history:
            np.testing.assert_array_equal(result.history[name], whole.history[name], name)
        for one, other in zip(result.models, whole.models, strict=True):
            np.testing.assert_array_equal(one.servers, other.servers)


def test_the_end_is_in_the_folder(tmp_path):
    result = trained()
    loaded = Result.load(result.save(tmp_path / "found"))
    assert (loaded.ended_by, loaded.spent_at) == (result.ended_by, result.spent_at) == ("budget", result.spent_at)
    assert result.summary()["ended_by"] == "budget"


def test_progress_reaches_its_end():
    seen = []
    trained(runs=2, progress=lambda done, total, news: seen.append((done, total)))
    assert seen[-1] == (80, 80)
