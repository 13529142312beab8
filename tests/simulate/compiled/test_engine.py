"""The compiled engine equals the plain loops and the NumPy engine, whatever the threads and batches."""

import numpy as np
import pytest

from pgfl import PGFL, FedAvg, Hinge, Huber, Logistic, Privacy, Ridge, synthetic_regression, train
from pgfl.errors import SolverError
from pgfl.objectives import Objective
from pgfl.simulate import training
from pgfl.simulate.compiled import blocks as fast
from pgfl.simulate.layout import lay_out
from tests import bridges, oracle
from tests.federations import SHAPES, random_case

ROUNDS = 30
LINEARISED = PGFL(rho=40.0, client="gradient")


def assert_equals_the_oracle(case, threads=1):
    played = bridges.simulator(case.problem, *case.draws, engine="numba", threads=threads)
    for reference in oracle.run(case.problem, ROUNDS, *case.draws)[1:]:
        played.run_round()
        actual = bridges.snapshot(played)
        for name in ("clients", "duals", "servers"):
            for key, value in getattr(reference, name).items():
                assert np.abs(actual[name][key] - value).max() <= 1e-8 * (1.0 + np.abs(value).max()), (name, key)


@pytest.mark.parametrize("algorithm", ["pgfl", "pgfl-exact", "pgfl-onestep"])
@pytest.mark.parametrize("kind", ["ridge", "logistic", "huber", "mixed"])
@pytest.mark.parametrize("seed", [1, 2])
def test_awkward_federations_agree_with_plain_loops(algorithm, kind, seed):
    assert_equals_the_oracle(random_case(seed, kind, algorithm=algorithm))


@pytest.mark.parametrize("algorithm", ["pgfl", "pgfl-exact", "pgfl-onestep"])
@pytest.mark.parametrize("kind", ["ridge", "logistic", "huber", "mixed", "ball"])
def test_linearised_steps_agree_with_plain_loops(algorithm, kind):
    assert_equals_the_oracle(random_case(2, kind, algorithm=algorithm, client="gradient"))


@pytest.mark.parametrize("shape", SHAPES)
def test_linearised_steps_agree_in_every_shape_with_scheduling_noise_and_threads(shape):
    case = random_case(3, "mixed", shape, "few", True, algorithm="pgfl", client="gradient")
    assert_equals_the_oracle(case, threads=2)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_agrees_with_scheduling_noise_and_threads(shape):
    assert_equals_the_oracle(random_case(3, "huber", shape, "few", True, algorithm="pgfl"), threads=2)


def federation(run=0, **changes):
    settings = {"servers": 5, "clients_per_server": 7, "dimension": 6, "samples": (1, 20), "seed": 4} | changes
    return synthetic_regression(run=run, **settings)


def same_bits(one, other):
    for mine, theirs in zip(one.models, other.models, strict=True):
        np.testing.assert_array_equal(mine.clients, theirs.clients)
        np.testing.assert_array_equal(mine.servers, theirs.servers)
    for name, values in one.history.items():
        np.testing.assert_array_equal(values, other.history[name])


@pytest.mark.proof
@pytest.mark.parametrize("engine", ["numpy", "numba"])
@pytest.mark.parametrize("objective", [Ridge(), Huber()])
@pytest.mark.parametrize("participants", ["all", 3])
@pytest.mark.parametrize("client", ["admm", "gradient"])
@pytest.mark.parametrize("dimension", [6, 60])
def test_batches_and_threads_change_no_bit(monkeypatch, engine, objective, participants, client, dimension):
    settings = {"rounds": 20, "runs": 3, "participants": participants, "engine": engine}
    algorithm = PGFL(rho=40.0, tau=0.2, client=client)

    def made(run):
        return federation(run, dimension=dimension)

    whole = train(made, algorithm, objective, **settings)
    monkeypatch.setattr(training, "BATCH_ELEMENTS", 1)
    monkeypatch.setattr("pgfl.simulate.problems.BLOCK_ELEMENTS", 200)
    same_bits(whole, train(made, algorithm, objective, threads=2, **settings))


@pytest.mark.parametrize("client", ["admm", "gradient"])
def test_private_runs_agree_between_engines(client):
    privacy = Privacy(x_norm=1.0, phi0=1e-2, zeta=0.99)
    runs = [
        train(
            federation, PGFL(client=client), Huber(), rounds=25, participants=2, privacy=privacy, runs=2, engine=engine
        )
        for engine in ("numpy", "numba")
    ]
    for mine, theirs in zip(runs[0].models, runs[1].models, strict=True):
        np.testing.assert_allclose(mine.released, theirs.released, atol=1e-9)
    np.testing.assert_array_equal(runs[0].privacy[0]["rho"], runs[1].privacy[0]["rho"])


@pytest.mark.parametrize("objective", [Ridge(0.1), Huber(), Logistic(), Hinge()], ids=lambda objective: objective.kind)
@pytest.mark.parametrize("participants", ["all", 2])
def test_local_gradient_steps_are_those_of_numpy(objective, participants):
    made = federation(samples=(1, 30), dimension=20)
    made = made.replace(targets=(made.targets > 0).astype(float))
    algorithm = FedAvg(step_size=0.01, local_steps=4)
    one, other = (
        train(made, algorithm, objective, rounds=12, participants=participants, engine=engine)
        for engine in ("numpy", "numba")
    )
    np.testing.assert_allclose(other.models[0].clients, one.models[0].clients, rtol=0, atol=1e-12)
    np.testing.assert_allclose(other.models[0].servers, one.models[0].servers, rtol=0, atol=1e-12)


@pytest.mark.parametrize("objective", [Huber(), Logistic(), Hinge()], ids=lambda objective: objective.kind)
@pytest.mark.parametrize(("rho", "fixed"), [(0.05, False), (2.0, True)], ids=["newton", "fixed curvature"])
@pytest.mark.parametrize("participants", ["all", 2])
def test_both_ways_to_solve_a_margin_loss_are_those_of_numpy(objective, rho, fixed, participants):
    made = federation(samples=(2, 19), dimension=20, x_norm=None if rho < 1 else 1.0)
    made = made.replace(targets=(made.targets > 0).astype(float))
    (block,) = fast.prepare(lay_out([made]), objective, rho, np.float64)
    assert ((block.problems.slack > 0) == fixed).all(), "every client is solved in the way that is tested"
    settings = {"rounds": 12, "participants": participants, "metrics": ("objective", "residuals")}
    one, other = (train(made, PGFL(rho=rho), objective, engine=engine, **settings) for engine in ("numpy", "numba"))
    for name in ("clients", "servers"):
        expected = getattr(one.models[0], name)
        assert np.abs(expected).max() > 0.01
        np.testing.assert_allclose(getattr(other.models[0], name), expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(other.history["objective"], one.history["objective"], rtol=1e-9)


class Quartic(Objective):
    tolerance = 1e-6

    def value_and_gradient(self, w, features, targets, counts):
        away = features @ w - targets
        return (away**2 + away**4).mean(), features.T @ (2 * away + 4 * away**3) / len(targets)


@pytest.mark.parametrize(
    ("algorithm", "objective", "samples"),
    [
        (FedAvg(step_size=0.01), Ridge(), (1, 20)),
        (PGFL(), Ridge(w_norm=0.5), (1, 5)),
        (PGFL(), {"cluster-0": Ridge(), "cluster-1": Quartic(), "cluster-2": Logistic()}, (1, 4)),
        (PGFL(), Huber(), (30, 40)),
        (LINEARISED, Ridge(w_norm=0.5), (1, 5)),
        (
            PGFL(rho=40.0, client="gradient"),
            {"cluster-0": Ridge(), "cluster-1": Quartic(), "cluster-2": Logistic()},
            (1, 4),
        ),
    ],
    ids=[
        "fedavg",
        "constrained",
        "own objective",
        "more rows than features",
        "linearised, constrained",
        "linearised, own objective",
    ],
)
def test_what_the_kernels_do_not_know_is_computed_all_the_same(algorithm, objective, samples):
    made = federation(samples=samples, clusters=3)
    made = made.replace(targets=(made.targets > 0).astype(float))
    expected, actual = (train(made, algorithm, objective, rounds=10, engine=engine) for engine in ("numpy", "numba"))
    np.testing.assert_allclose(actual.models[0].clients, expected.models[0].clients, atol=1e-5)


def test_measures_agree_between_engines():
    made = federation(samples=(2, 5), test_samples=20)
    wanted = ("nmsd", "r2", "mae", "rmse", "objective", "residuals", "disagreement", "distance")
    one, other = (train(made, PGFL(), Huber(), rounds=6, metrics=wanted, engine=e) for e in ("numpy", "numba"))
    for name, values in one.history.items():
        np.testing.assert_allclose(other.history[name], values, atol=1e-8)


@pytest.mark.proof
def test_single_precision_is_as_accurate_as_it_can_be():
    made = federation(samples=(2, 9), dimension=20)
    small = made.replace(features=made.features.astype(np.float32), targets=made.targets.astype(np.float32))
    double = train(made, PGFL(tau=0.1), rounds=100, engine="numba")
    single = train(small, PGFL(tau=0.1), rounds=100, engine="numba", dtype=np.float32)
    assert single.models[0].clients.dtype == np.float32
    assert np.abs(single.models[0].clients - double.models[0].clients).max() < 1e-4


def test_linearised_steps_factor_nothing_and_know_clients_with_any_number_of_rows():
    layout = lay_out([federation(samples=(30, 90))])
    (block,) = fast.prepare(layout, Huber(), 5.0, np.float64, solved=False)
    assert isinstance(block, fast.CompiledBlock)
    assert block.problems.factors.size == 0


def test_the_data_is_not_copied():
    made = federation(samples=(2, 9), dimension=20)
    layout = lay_out([made])
    blocks = fast.prepare(layout, Ridge(), 5.0, np.float64, threads=2)
    assert len(blocks) > 1
    assert all(np.shares_memory(block.problems.features, made.features) for block in blocks)


@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_a_solution_short_of_its_tolerance_is_an_error(engine):
    with pytest.raises(SolverError, match=r"client client-\d+ was solved.*scale the features"):
        train(federation(), PGFL(), Ridge(tolerance=1e-18), rounds=3, engine=engine)
    with pytest.raises(SolverError, match=r"client client-\d+ in run [01] was solved"):
        train(federation(), PGFL(), Ridge(tolerance=1e-18), rounds=3, engine=engine, runs=2)
