"""Slow clients in the simulator: what they answer counts later, once, and is charged once.

That it counts as at a site is in `tests/network/test_rounds.py`.
"""

from __future__ import annotations

import numpy as np
import pytest

from pgfl import PGFL, Delays, FedAvg, Huber, Privacy, Ridge, synthetic_regression, train
from pgfl.config.schema import Config
from pgfl.errors import ConfigError, UsageError
from pgfl.experiment import run
from pgfl.network.agreement import Training
from pgfl.simulate.checkpoint import Checkpoints
from pgfl.simulate.options import TrainingOptions
from pgfl.simulate.simulator import Simulator

DATA = synthetic_regression(
    servers=3, clients_per_server=10, clusters=2, dimension=3, samples=(3, 9), graph="line", seed=5
)
STEPS, LOSS = PGFL(rho=2.0, tau=0.2, client="gradient"), Huber(kappa=2.0)
PRIVATE = Privacy(phi0=1e-3, zeta=1.0, x_norm=1.0)


def test_a_slow_client_is_charged_once_for_every_answer_what_its_rounds_would_have_cost():
    """Of eleven rounds it answers those of rounds 1 and 5; what it were asked for in round 9 would never count."""
    simulator = Simulator([DATA], STEPS, LOSS, TrainingOptions(11, privacy=PRIVATE, delays=Delays(0.3, 3)))
    for _ in range(4):
        simulator.run_round()
    assert sorted(simulator.plan.releases.tolist()) == [1] * 9 + [4] * 21
    for _ in range(7):
        simulator.run_round()
    slow = np.array([len(np.unique(simulator.plan.releases[own])) for own in simulator.layout.members]) == 2
    assert slow.all(), "every server has slow clients"
    assert sorted(simulator.plan.releases.tolist()) == [2] * 9 + [11] * 21
    assert simulator.plan.rho.max() == pytest.approx(11 * simulator.plan.rho.min() / 8)


def test_slow_clients_spend_as_much_as_the_others_with_less_noise_and_nobody_more():
    private = Privacy(epsilon=2.0, zeta=0.9, x_norm=1.0)
    simulator = Simulator([DATA], STEPS, LOSS, TrainingOptions(12, privacy=private, delays=Delays(0.3, 3)))
    everyone = np.arange(simulator.layout.clients)
    first = simulator.plan.sigma(everyone, 1) / simulator.plan.sensitivity
    simulator.run()
    slow = simulator.plan.releases == 3
    assert slow.sum() == 9
    np.testing.assert_allclose(simulator.plan.table()["epsilon"], 2.0)
    cost = 1.0 / (2.0 * first**2)
    np.testing.assert_allclose(cost[slow], cost[~slow][0] * sum(0.9**-n for n in range(4)))


def test_an_answer_counts_in_its_round_at_the_model_of_that_round():
    """One client alone at one server: nothing changes until its answer counts, and then it counts once."""
    alone = synthetic_regression(servers=1, clients_per_server=1, clusters=1, dimension=3, samples=(9, 9), seed=2)
    algorithm = PGFL(rho=2.0, tau=0.0, client="gradient")
    late = Simulator([alone], algorithm, Ridge(), TrainingOptions(6, delays=Delays(1.0, 2)))
    models = [late.run_round().server_models.copy() for _ in range(6)]
    now = Simulator([alone], algorithm, Ridge(), TrainingOptions(1))
    first = now.run_round().server_models.copy()
    assert not np.any(models[0]) and not np.any(models[1])
    np.testing.assert_allclose(models[2], first, atol=1e-15)
    np.testing.assert_array_equal(models[2], models[4])
    assert np.linalg.norm(models[5] - models[4]) > 0.0


@pytest.mark.parametrize("algorithm", [STEPS, FedAvg(), PGFL(rho=8.0, tau="auto", client="gradient")])
def test_delays_without_slow_clients_change_no_bit(algorithm):
    plain = train(DATA, algorithm, Ridge(), rounds=9, engine="numpy")
    none_slow = train(DATA, algorithm, Ridge(), rounds=9, delays=Delays(0.04, 3))  # of ten clients: 0.4 of one
    np.testing.assert_array_equal(plain.models[0].servers, none_slow.models[0].servers)


@pytest.mark.parametrize("algorithm", [STEPS, FedAvg(), PGFL(rho=8.0, tau="auto", client="gradient")])
def test_late_answers_lead_nearly_where_the_others_do(algorithm):
    late = train(DATA, algorithm, Ridge(lam=0.1), rounds=80, delays=Delays(0.3, 4))
    together = train(DATA, algorithm, Ridge(lam=0.1), rounds=80)
    assert late.engine == "numpy"
    apart = np.linalg.norm(late.models[0].servers - together.models[0].servers)
    assert 0.0 < apart < 0.3 * np.linalg.norm(together.models[0].servers)


def test_a_stopped_training_goes_on_with_the_answers_that_are_on_their_way(tmp_path):
    options = {"rounds": 9, "privacy": PRIVATE, "delays": Delays(0.5, 3), "engine": "numpy"}
    whole = train(DATA, STEPS, LOSS, **options)
    train(DATA, STEPS, LOSS, **{**options, "rounds": 8}, checkpoints=Checkpoints(tmp_path, "same", 1))
    resumed = train(DATA, STEPS, LOSS, **options, checkpoints=Checkpoints(tmp_path, "same", 1), resume=True)
    np.testing.assert_array_equal(whole.models[0].servers, resumed.models[0].servers)


def test_a_config_names_them():
    found = Config.model_validate(
        {
            "rounds": 5,
            "data": {"servers": 2, "clients_per_server": 10, "dimension": 2, "samples": (3, 5)},
            "graph": {"kind": "line"},
            "algorithm": {"client": "gradient", "delays": {"clients": 0.5, "rounds": 2}},
            "privacy": {"phi0": 1e-3, "x_norm": 1.0},
            "objective": {"kind": "huber"},
        }
    )
    releases = run(found).spending()["releases"]
    assert releases["worst"] == 5


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"delays": Delays(0.3, 2), "participants": 2}, r"^algorithm\.delays needs all clients to take part"),
        ({"delays": Delays(0.3, 2), "engine": "numba"}, r"is computed by NumPy, not by the numba engine"),
        ({"delays": Delays(0.3, 2), "engine": "debug"}, r"is computed by NumPy, not by the debug engine"),
        ({"delays": Delays(0.3, 2), "discover": True}, r"^algorithm\.delays is for given clusters"),
        (
            {"delays": Delays(0.3, 2), "privacy": Privacy(phi0=1e-3, x_norm=1.0, trust="site")},
            r'^algorithm\.delays needs privacy\.trust = "local"',
        ),
    ],
)
def test_what_late_answers_do_not_go_with_is_one_sentence(options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        train(DATA, STEPS, LOSS, rounds=2, **options)


def test_duals_and_continuations_are_refused():
    with pytest.raises(ConfigError, match=r"^algorithm\.delays needs clients without a dual"):
        train(DATA, PGFL(), Ridge(), rounds=2, delays=Delays(0.3, 2))
    before = train(DATA, STEPS, LOSS, rounds=2)
    with pytest.raises(ConfigError, match=r"^A run with algorithm\.delays cannot go on from another"):
        train(DATA, STEPS, LOSS, rounds=2, delays=Delays(0.3, 2), start=before)
    with pytest.raises(UsageError, match=r"^delays takes Delays\(clients, rounds\); got"):
        train(DATA, STEPS, LOSS, rounds=2, delays=0.3)


@pytest.mark.parametrize(("clients", "rounds"), [(0.0, 1), (1.5, 1), (0.3, 0), (0.3, 1.5), ("a", 1)])
def test_delays_have_ranges(clients, rounds):
    with pytest.raises(ConfigError, match=r"^algorithm\.delays\.(clients must lie in|rounds must be a whole)"):
        Delays(clients, rounds)


def test_a_real_network_has_delays_of_its_own():
    with pytest.raises(ValueError, match=r"`training\.algorithm\.delays` is for `pgfl run`"):
        Training.model_validate(
            {
                "rounds": 2,
                "dimension": 2,
                "clusters": ("a",),
                "algorithm": {"client": "gradient", "delays": {"clients": 0.3, "rounds": 2}},
            }
        )
