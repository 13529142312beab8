"""Ridge rounds in coordinates: the vectors that are never stored are those of the NumPy engine.

Every test is run with orthogonal rows and with rows that stay where they lie.
"""

import weakref

import numpy as np
import pytest

from pgfl import PGFL, ExactMixing, OneStep, Ridge, metrics, synthetic_regression
from pgfl.simulate.checkpoint import Checkpoints
from pgfl.simulate.compiled import engine as numba_engine
from pgfl.simulate.compiled import kind
from pgfl.simulate.compiled.orthogonal import OrthogonalRows
from pgfl.simulate.options import Performance, TrainingOptions
from pgfl.simulate.simulator import Simulator

SHAPES = {
    "the paper's": {"dimension": 60, "samples": (2, 9)},
    "shorter than a register": {"dimension": 5, "samples": (1, 9)},
    "as long as registers": {"dimension": 16, "samples": (8, 17)},
    "longer than registers hold at once": {"dimension": 100, "samples": (1, 9)},
    "more rows than the kernels know": {"dimension": 9, "samples": (1, 20)},
}


@pytest.fixture(autouse=True, params=["turned", pytest.param("in place", marks=pytest.mark.proof)])
def rows(request, monkeypatch):
    if request.param == "in place":
        monkeypatch.setattr(kind, "COPIED", 0)
    return request.param


def federation(**changes):
    settings = {"servers": 4, "clients_per_server": 6, "clusters": 3, "seed": 3} | changes
    return synthetic_regression(**settings)


def simulator(data, engine, algorithm=None, objective=None, rounds=30, **options):
    performance = Performance(engine=engine, threads=options.pop("threads", None))
    chosen = TrainingOptions(rounds, **options, performance=performance)
    return Simulator([data], algorithm or PGFL(rho=5.0, tau=0.3), objective or Ridge(0.01), chosen)


def in_coordinates(played):
    return played.engine._coordinates is not None


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("lam", [0.0, 0.01, 300.0])
@pytest.mark.parametrize("algorithm", [PGFL(rho=5.0, tau=0.3), ExactMixing(rho=5.0), OneStep(rho=5.0)], ids=repr)
def test_models_and_duals_are_those_of_numpy(shape, lam, algorithm, rows):
    data = federation(**SHAPES[shape])
    ours, theirs = (simulator(data, engine, algorithm, Ridge(lam)) for engine in ("numba", "numpy"))
    assert in_coordinates(ours)
    assert isinstance(ours.engine._coordinates, OrthogonalRows) == (rows == "turned")
    for _ in range(30):
        ours.run_round(), theirs.run_round()
        for name in ("model", "dual", "released", "server_models"):
            expected = getattr(theirs.state, name)
            error = np.abs(getattr(ours.state, name) - expected).max()
            assert error <= 1e-12 * (1.0 + np.abs(expected).max()), name


def test_neither_a_look_nor_threads_change_a_bit():
    data = federation(servers=12, **SHAPES["the paper's"])
    alone, watched = simulator(data, "numba"), simulator(data, "numba", threads=2)
    for _ in range(12):
        alone.run_round(), watched.run_round()
        assert watched.state.dual.any() or watched.state.round < 2
        assert watched.state.model.any()
    for name in ("model", "dual", "server_models"):
        np.testing.assert_array_equal(getattr(alone.state, name), getattr(watched.state, name))


def test_a_checkpoint_goes_on_with_the_same_bits(tmp_path):
    data = federation(**SHAPES["the paper's"])
    whole, first, second = (simulator(data, "numba") for _ in range(3))
    whole.run(20)
    checkpoints = Checkpoints(tmp_path, "this", every=7)
    first.run(7)
    checkpoints.save(first)
    assert checkpoints.restore(second)
    assert second.state.round == 7
    np.testing.assert_array_equal(second.state.dual, first.state.dual)
    second.run(20)
    assert in_coordinates(second)
    for name in ("model", "dual", "server_models"):
        np.testing.assert_array_equal(getattr(second.state, name), getattr(whole.state, name))


def test_a_checkpoint_of_the_other_kernel_goes_on_from_its_duals(tmp_path, monkeypatch, rows):
    data = federation(**SHAPES["the paper's"])
    whole, first = (simulator(data, "numba") for _ in range(2))
    monkeypatch.setattr(kind, "COPIED", 2**28 if rows == "in place" else 0)
    second = simulator(data, "numba")
    assert type(second.engine._coordinates) is not type(first.engine._coordinates)
    whole.run(20)
    checkpoints = Checkpoints(tmp_path, "this", every=7)
    first.run(7)
    checkpoints.save(first)
    assert checkpoints.restore(second)
    second.run(20)
    for name in ("model", "dual", "server_models"):
        np.testing.assert_allclose(getattr(second.state, name), getattr(whole.state, name), rtol=0, atol=1e-12)


def test_duals_that_are_set_from_outside_count():
    data = federation(**SHAPES["the paper's"])
    ours, theirs = (simulator(data, engine) for engine in ("numba", "numpy"))
    for played in (ours, theirs):
        played.run_round()
        played.state.dual = np.full_like(played.state.dual, 0.25)
        played.run(5)
    np.testing.assert_allclose(ours.state.dual, theirs.state.dual, atol=1e-12)
    np.testing.assert_allclose(ours.state.model, theirs.state.model, atol=1e-12)


def test_models_outlive_the_engine():
    data = federation(**SHAPES["the paper's"])
    ours, theirs = (simulator(data, engine) for engine in ("numba", "numpy"))
    for played in (ours, theirs):
        played.run(5)
        played.close()
    np.testing.assert_allclose(ours.models().clients, theirs.models().clients, atol=1e-12)


def test_the_certificate_counts_what_earlier_rounds_got_wrong(monkeypatch):
    played = simulator(federation(**SHAPES["the paper's"]), "numba", objective=Ridge(10.0))
    engine, found = played.engine, []
    monkeypatch.setattr(engine, "check_solved", lambda errors, models, part: found.append(errors.copy()))
    problems, pair = engine.blocks[0].problems, played.layout.client_pair
    problems.slack[:] = np.linspace(1e-6, 2e-6, len(problems.slack))
    lost, drift = problems.ridge_penalty / problems.modulus, np.zeros(len(pair))
    rows = [slice(start, start + count) for start, count in zip(problems.first, problems.counts, strict=True)]
    for _ in range(6):
        centres = problems.centre_scale[:, None] * (played.state.server_models[pair] + played.state.dual)
        away = [problems.targets[own] - problems.features[own] @ c for own, c in zip(rows, centres, strict=True)]
        wrong = problems.slack * [np.linalg.norm(one) for one in away]
        played.run_round()
        np.testing.assert_allclose(found[-1], wrong + drift, rtol=1e-9)
        drift = lost * drift + wrong


@pytest.mark.parametrize("shape", ["the paper's", "more rows than the kernels know"])
def test_the_sizes_of_duals_need_no_duals(monkeypatch, shape):
    monkeypatch.setattr(numba_engine, "CLIENTS_AT_A_TIME", 5)
    played = simulator(federation(**SHAPES[shape]), "numba", threads=2)
    played.run(5)
    sizes = played.engine.dual_sizes()
    assert "dual" in played.state.deferred, "nobody has written them out"
    np.testing.assert_array_equal(sizes, metrics.squared_norm(played.state.dual))
    assert sizes.all()
    np.testing.assert_array_equal(played.engine.dual_sizes(), sizes)


def test_a_closed_engine_holds_no_duals():
    played = simulator(federation(**SHAPES["the paper's"]), "numba")
    played.run(3)
    duals = weakref.ref(played.state.dual)
    played.close()
    assert duals() is None


@pytest.mark.parametrize(
    ("objective", "options"),
    [
        ({"cluster-0": Ridge(0.1), "cluster-1": Ridge(0.2), "cluster-2": Ridge(0.1)}, {}),
        (Ridge(0.1), {"participants": 2}),
    ],
    ids=["several λ", "some take part"],
)
def test_elsewhere_vectors_are_kept(objective, options):
    data = federation(**SHAPES["the paper's"])
    ours, theirs = (simulator(data, engine, objective=objective, **options) for engine in ("numba", "numpy"))
    assert not in_coordinates(ours)
    ours.run(9), theirs.run(9)
    np.testing.assert_allclose(ours.state.dual, theirs.state.dual, atol=1e-12)
    np.testing.assert_allclose(ours.state.model, theirs.state.model, atol=1e-12)
