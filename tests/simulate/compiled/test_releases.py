"""Compiled releases are those of `SeededNoise`, bit by bit, and refuse what it refuses."""

import numpy as np
import pytest

from pgfl import PGFL, Huber, Privacy, synthetic_regression
from pgfl import equations as eq
from pgfl.errors import PrivacyError
from pgfl.privacy.noise import SeededNoise
from pgfl.privacy.trust import SeededPairNoise, Trust
from pgfl.simulate.compiled.noise import (
    ServerStreams,
    add_to_means_and_share,
    draw_release_and_average,
    release_and_average,
)
from pgfl.simulate.draws import ServerNormals
from pgfl.simulate.layout import lay_out
from pgfl.simulate.options import Performance, TrainingOptions
from pgfl.simulate.simulator import Simulator

CLIENTS, BOUNDS = np.array([0, 2, 3, 5, 8]), np.array([0, 2, 2, 5])
SHARES = np.array([[1 / 2], [1.0], [1 / 3]])


def given(dimension, dtype=np.float64):
    random = np.random.default_rng(dimension)
    model, dual = random.standard_normal((2, 9, dimension)).astype(dtype)
    return model, dual, random.standard_normal((5, dimension)).astype(dtype), random.uniform(0.1, 2.0, 5)


def released(model, dual, normals, sigma):
    out, means = np.full_like(model, 7.0), np.full((3, model.shape[1]), 7.0, dtype=model.dtype)
    shares = SHARES.astype(model.dtype)
    done = release_and_average(CLIENTS, BOUNDS, sigma, normals, model, dual, shares, out, means)
    return done, out, means


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("dimension", [1, 7, 8, 60, 67])
def test_a_compiled_release_is_the_plain_one_bit_by_bit(dimension, dtype):
    model, dual, normals, sigma = given(dimension, dtype)
    done, out, means = released(model, dual, normals, sigma)
    plain = np.full_like(model, 7.0)
    plain[CLIENTS] = SeededNoise(lambda clients, round, d: normals).release(model[CLIENTS], sigma, CLIENTS, 1)
    contributions = eq.contribution(plain[CLIENTS], dual[CLIENTS])
    expected = np.zeros_like(means)
    for pair, client in zip([0, 0, 2, 2, 2], contributions, strict=True):
        expected[pair] += client
    assert done
    np.testing.assert_array_equal(out, plain)
    np.testing.assert_array_equal(means, expected * SHARES.astype(dtype))


@pytest.mark.parametrize("dimension", [3, 60])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("what", ["model", "last", "sigma"])
def test_what_the_plain_release_refuses_is_not_released(dimension, wrong, what):
    model, dual, normals, sigma = given(dimension)
    if what == "sigma":
        sigma[3] = wrong
    else:
        model[8, -1 if what == "last" else 0] = wrong
    done, out, means = released(model, dual, normals, sigma)
    assert not done
    assert (out == 7.0).all() and (means == 7.0).all()
    with pytest.raises(PrivacyError):
        SeededNoise(lambda clients, round, d: normals).release(model[CLIENTS], sigma, CLIENTS, 1)


@pytest.mark.parametrize("sigma", [np.zeros(5), -np.ones(5), np.ones(4), np.ones(6)], ids=str)
def test_every_client_needs_a_deviation_above_zero(sigma):
    model, dual, normals, _ = given(60)
    assert not released(model, dual, normals, sigma)[0]


def test_those_who_do_not_take_part_may_have_any_model():
    model, dual, normals, sigma = given(60)
    model[1] = np.nan
    assert released(model, dual, normals, sigma)[0]


@pytest.mark.parametrize("participants", ["all", 2, 40])
@pytest.mark.parametrize("dimension", [7, 8, 20])
def test_numbers_that_are_drawn_where_they_are_needed_are_those_of_every_servers_stream(participants, dimension):
    """In any order of rounds, whoever of a server takes part, and though others' rounds come in between."""
    shape = {"servers": 4, "clients_per_server": 6, "dimension": dimension, "samples": (2, 3)}
    layout = lay_out([synthetic_regression(**shape, seed=run, run=run) for run in range(2)])
    plain, compiled = (ServerNormals(layout, participants, 5, fill=fill) for fill in (None, ServerStreams(layout, 5)))
    random, first_two = np.random.default_rng(0), np.arange(layout.clients) % 6 < 2
    model, dual = random.standard_normal((2, layout.clients, dimension))
    for round in (1, 2, 3, 3, 40, 65, 33, 34, 35, 2, 41, 64, 65):
        for taking_part in (random.random(layout.clients) < 0.5, layout.client_server == 5, layout.client_server != 5):
            clients = np.flatnonzero(taking_part & (first_two | (participants != 2)))
            bounds = np.searchsorted(layout.client_pair[clients], np.arange(layout.pairs + 1))
            shares = 1.0 / np.maximum(np.diff(bounds), 1)[:, None]
            sigma, results = random.uniform(0.1, 1.0, len(clients)), []
            vectors = (model, dual, shares)
            for _ in range(2):
                results += [np.zeros_like(model), np.zeros((layout.pairs, dimension))]
            normals = plain(clients, round, dimension)
            assert release_and_average(clients, bounds, sigma, normals, *vectors, *results[:2])
            np.testing.assert_array_equal(compiled(clients, round, dimension), normals)
            drawn = (layout.client_server, compiled.fill.states, *compiled.place(round))
            assert draw_release_and_average(clients, bounds, sigma, *drawn, *vectors, *results[2:])
            np.testing.assert_array_equal(results[2], results[0])
            np.testing.assert_array_equal(results[3], results[1])
            noise = (results[2] - model)[clients] / sigma[:, None]
            assert len(np.unique(noise.round(9))) == noise.size


@pytest.mark.parametrize("level", ["masked", "site"])
@pytest.mark.parametrize("dimension", [7, 20])
def test_compiled_noise_of_means_is_the_plain_one_bit_by_bit(level, dimension):
    """In any order of rounds, for whichever pairs have contributors, who are told what their pair released."""
    shape = {"servers": 4, "clients_per_server": 9, "dimension": dimension, "samples": (2, 3)}
    layout = lay_out([synthetic_regression(**shape, seed=run, run=run) for run in range(2)])
    plain, compiled = (
        SeededPairNoise(Trust(level), ServerNormals(layout, "all", 5, server_of=layout.pair_server, fill=fill))
        for fill in (None, ServerStreams(layout, 5))
    )
    random = np.random.default_rng(0)
    for round in (1, 2, 3, 3, 40, 2, 41):
        clients = np.flatnonzero(np.isin(layout.client_pair, random.permutation(layout.pairs)[: layout.pairs // 2]))
        bounds = np.searchsorted(layout.client_pair[clients], np.arange(layout.pairs + 1))
        places = np.flatnonzero(np.diff(bounds))
        starts, sigma, means = (
            bounds[places],
            random.uniform(0.1, 1.0, len(places)),
            np.zeros((layout.pairs, dimension)),
        )
        means[places] = random.standard_normal((len(places), dimension))
        models = random.standard_normal((len(clients), dimension))
        expected = plain.release(models, means[places], starts, sigma, places, round)
        released = np.full((layout.clients, dimension), 7.0)
        deviations, place = compiled.deviations(sigma, np.diff(bounds)[places]), compiled.normals.place(round)
        drawn_from = (layout.pair_server, compiled.normals.fill.states, *place)
        add_to_means_and_share(clients, bounds, places, deviations, *drawn_from, means, released)
        np.testing.assert_array_equal(means[places], expected)
        assert (np.delete(means, places, axis=0) == 0.0).all() and (np.delete(released, clients, axis=0) == 7.0).all()
        np.testing.assert_array_equal(released[clients], means[layout.client_pair[clients]])


@pytest.mark.parametrize("trust", ["masked", "site"])
def test_engines_release_the_same_means_and_count_the_same_charges(trust):
    made = synthetic_regression(servers=3, clients_per_server=12, dimension=9, samples=(20, 30), graph="ring", seed=1)
    privacy = Privacy(x_norm=1.0, phi0=1e-3, trust=trust, contributors=3)
    results = [
        Simulator(
            [made],
            PGFL(0.5, client="gradient"),
            Huber(),
            TrainingOptions(20, 8, privacy, performance=Performance(engine=engine)),
        )
        for engine in ("numpy", "numba")
    ]
    for simulator in results:
        simulator.run()
    one, other = results
    assert one.state.released.any()
    for name in ("released", "server_models"):
        np.testing.assert_allclose(getattr(other.state, name), getattr(one.state, name), rtol=0, atol=1e-10)
    np.testing.assert_array_equal(other.plan.rho, one.plan.rho)


def test_nothing_is_drawn_for_a_release_that_is_refused():
    layout = lay_out([synthetic_regression(servers=4, clients_per_server=3, dimension=4, samples=(2, 3))])
    normals, everyone = ServerNormals(layout, 3, 5, fill=ServerStreams(layout, 5)), np.arange(12)
    before = normals.fill.states.copy()
    given = (everyone, np.arange(13), 1.0 * (everyone != 5), layout.client_server, normals.fill.states)
    out = np.full((12, 4), 7.0)
    assert not draw_release_and_average(*given, *normals.place(1), np.ones((12, 4)), out, np.ones((12, 1)), out, out)
    assert (out == 7.0).all()
    np.testing.assert_array_equal(normals.fill.states, before)


def test_an_engine_whose_noise_is_wrong_releases_nothing():
    made = synthetic_regression(servers=3, clients_per_server=4, dimension=9, samples=(2, 5), graph="ring", seed=1)
    options = TrainingOptions(20, 2, Privacy(x_norm=1.0, phi0=1e-3), performance=Performance(engine="numba"))
    simulator = Simulator([made], PGFL(), Huber(), options)
    simulator.run_round()
    engine, before = simulator.engine, simulator.state.released.copy()
    assert engine._release_simulated(engine._participation(2).parts[0], 2, np.empty((9, 9))), (
        "the compiled way is taken"
    )
    after = simulator.state.released.copy()
    assert (after != before).any()
    simulator.plan.sensitivity = -simulator.plan.sensitivity
    with pytest.raises(PrivacyError, match="sigma must be a positive number"):
        simulator.run_round()
    np.testing.assert_array_equal(simulator.state.released, after)
