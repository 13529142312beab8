"""Both noise sources pass the same checks, and the same checks reject every planted fault.

Each check has a false-alarm probability below 1e-8, so that OpenDP's noise, which has no seed, fails them by chance
less than once in a million runs.
"""

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

from pgfl import PGFL, Huber, Privacy, synthetic_regression, train
from pgfl.errors import PrivacyError
from pgfl.privacy.accounting import exact_epsilon
from pgfl.privacy.budget import Budget
from pgfl.privacy.noise import SecureNoise, SeededNoise
from pgfl.streams import Purpose, stream

FALSE_ALARM = 1e-8
ROUNDS, CLIENTS, DIMENSION = 6, 30, 20
SCHEDULE = Budget(phi0=1e-3, zeta=0.7, delta=1e-5, index="round", last=ROUNDS)
SENSITIVITY = np.linspace(0.5, 2.0, CLIENTS)
LATTICE = 2.0**-40


def normals(clients, round, dimension):
    return stream(0, 0, Purpose.PRIVACY_NOISE, 0, round).standard_normal((CLIENTS, dimension))[clients]


SOURCES = {"seeded": lambda: SeededNoise(normals), "secure": lambda: SecureNoise(DIMENSION)}


def right(n):
    return SCHEDULE.sigma(SENSITIVITY, n)


def faults(noise: np.ndarray, sigma: np.ndarray) -> set[str]:
    """What is wrong with noise (rounds, clients, d) that should have deviation sigma (rounds, clients)."""
    z = noise / sigma[..., None]
    rounds, _, dimension = z.shape
    found = set()
    by_round, by_coordinate = [z[n] for n in range(rounds)], [z[..., j] for j in range(dimension)]
    for name, parts in {"variance": [z], "variance of a round": by_round, "one coordinate": by_coordinate}.items():
        for part in parts:
            chi2 = stats.chi2(part.size)
            if min(chi2.cdf(np.sum(part**2)), chi2.sf(np.sum(part**2))) < FALSE_ALARM / len(parts) / 6:
                found.add(name)
    if stats.kstest(z.ravel(), "norm").pvalue < FALSE_ALARM:
        found.add("shape")
    if _correlated(z.reshape(-1, dimension)):
        found.add("coordinates")
    if _correlated(z.reshape(-1, dimension).T):
        found.add("repetition")
    return found


def _correlated(samples: np.ndarray) -> bool:
    """Whether any two columns correlate; each coefficient's p-value is exact for independent normals (Student's t)."""
    correlation = np.corrcoef(samples.T)
    pairs = np.abs(correlation[np.triu_indices(len(correlation), 1)]).max()
    freedom = len(samples) - 2
    t = pairs * math.sqrt(freedom / max(1 - pairs**2, 1e-300))
    return bool(2 * stats.t(freedom).sf(t) * len(correlation) ** 2 / 2 < FALSE_ALARM)


def draw(source, sigma=right, models=None):
    everyone = np.arange(CLIENTS)
    clean = np.full((CLIENTS, DIMENSION), 0.3) if models is None else models
    return np.stack([source.release(clean, sigma(n), everyone, n) - clean for n in range(1, ROUNDS + 1)])


EXPECTED = np.stack([right(n) for n in range(1, ROUNDS + 1)])


@pytest.mark.parametrize("kind", SOURCES)
def test_the_right_noise_is_accepted(kind):
    assert faults(draw(SOURCES[kind]()), EXPECTED) == set()


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("factor", [2 / 3, 3 / 2])
def test_a_wrong_deviation_is_rejected(kind, factor):
    assert "variance" in faults(draw(SOURCES[kind](), lambda n: factor * right(n)), EXPECTED)


@pytest.mark.parametrize("kind", SOURCES)
def test_a_deviation_decayed_in_place_of_the_variance_is_rejected(kind):
    def decayed(n):
        return right(1) * SCHEDULE.zeta ** (n - 1)

    assert "variance" in faults(draw(SOURCES[kind](), decayed), EXPECTED)


@pytest.mark.parametrize("kind", SOURCES)
def test_an_index_off_by_one_is_rejected(kind):
    """φ(0) for the first release: the whole schedule is late by one, and under-reported."""
    assert "variance" in faults(draw(SOURCES[kind]()), np.stack([right(1) / 0.7**0.5, *EXPECTED[:-1]]))


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("factor", [1e-9, 0.1, 0.5, 2.0])
def test_a_coordinate_with_other_noise_is_rejected(kind, factor):
    for coordinate in (0, -1):
        noise = draw(SOURCES[kind]())
        noise[..., coordinate] *= factor
        assert "one coordinate" in faults(noise, EXPECTED)


@pytest.mark.parametrize("kind", SOURCES)
def test_correlated_coordinates_are_rejected(kind):
    noise = draw(SOURCES[kind]())
    noise[..., 1] = 0.8 * noise[..., 0] + 0.6 * noise[..., 1]
    assert "coordinates" in faults(noise, EXPECTED)


@pytest.mark.parametrize("kind", SOURCES)
def test_a_repeated_draw_is_rejected(kind):
    over_rounds = draw(SOURCES[kind]())
    over_rounds[4] = over_rounds[2] * (EXPECTED[4] / EXPECTED[2])[:, None]
    assert "repetition" in faults(over_rounds, EXPECTED)
    over_clients = draw(SOURCES[kind]())
    over_clients[:, 7] = over_clients[:, 3] * (EXPECTED[:, 7] / EXPECTED[:, 3])[:, None]
    assert "repetition" in faults(over_clients, EXPECTED)


@pytest.mark.parametrize("kind", SOURCES)
def test_another_distribution_of_the_same_variance_is_rejected(kind):
    """The checks look at the shape too: the noise of a uniform with the right deviation is not Gaussian."""
    ranks = stats.norm.cdf(draw(SOURCES[kind]()) / EXPECTED[..., None])
    assert "shape" in faults((ranks - 0.5) * math.sqrt(12) * EXPECTED[..., None], EXPECTED)


@pytest.mark.parametrize("kind", SOURCES)
def test_single_precision_models_are_widened(kind):
    clean = np.zeros((CLIENTS, DIMENSION), dtype=np.float32)
    released = SOURCES[kind]().release(clean, right(1), np.arange(CLIENTS), 1)
    assert released.dtype == np.float64
    assert (released != released.astype(np.float32)).any()


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize(
    ("models", "sigma"),
    [
        (np.full((2, DIMENSION), np.nan), np.ones(2)),
        (np.full((2, DIMENSION), np.inf), np.ones(2)),
        (np.array([[np.inf] + [0.0] * (DIMENSION - 2) + [-np.inf]]), np.ones(1)),
        (np.zeros(DIMENSION), np.ones(1)),
        (np.zeros((2, DIMENSION)), np.ones(3)),
        (np.zeros((2, DIMENSION)), 1.0),
        (np.zeros((2, DIMENSION), dtype=int), np.ones(2)),
        (np.zeros((2, DIMENSION), dtype=object), np.ones(2)),
        (np.zeros((2, DIMENSION)), np.array([1.0, 0.0])),
        (np.zeros((2, DIMENSION)), np.array([1.0, -1.0])),
        (np.zeros((2, DIMENSION)), np.array([1.0, np.nan])),
        (np.zeros((2, DIMENSION)), np.array([1.0, np.inf])),
    ],
)
def test_the_guard_refuses(kind, models, sigma):
    with pytest.raises(PrivacyError):
        SOURCES[kind]().release(models, sigma, np.arange(len(models)), 1)


def test_the_secure_guard_refuses_a_wrong_length_and_a_sigma_below_its_lattice():
    source = SecureNoise(3)
    for length in (2, 4):
        with pytest.raises(PrivacyError, match="coordinates"):
            source.release(np.zeros((1, length)), np.ones(1), np.arange(1), 1)
    with pytest.raises(PrivacyError, match="float-safe"):
        source.release(np.zeros((1, 3)), np.full(1, 999 * LATTICE), np.arange(1), 1)
    assert np.isfinite(source.release(np.zeros((1, 3)), np.full(1, 1000 * LATTICE), np.arange(1), 1)).all()
    with pytest.raises(PrivacyError):
        SecureNoise(0)


def discrete_epsilon(units, delta=1e-5):
    """ε of a discrete Gaussian of σ = `units` lattice units, and Δ = σ, by summing what it puts on every point."""
    points = np.arange(-13 * units, 14 * units + 1, dtype=np.int64)
    weights = np.exp(-(points**2) / (2.0 * units**2))
    one, other = (np.exp(-((points - shift) ** 2) / (2.0 * units**2)) / weights.sum() for shift in (0, units))

    def excess(epsilon):
        return np.maximum(one - math.exp(epsilon) * other, 0.0).sum() - delta

    return brentq(excess, 0.0, 20.0, xtol=1e-12)


def test_the_discrete_noise_is_as_private_as_is_stated_from_a_thousand_lattice_units_on():
    stated = float(exact_epsilon(0.5, 1e-5))
    assert (round(stated, 3), round(discrete_epsilon(1), 3)) == (4.377, 4.430)
    assert discrete_epsilon(10) > stated * (1 + 1e-4)
    least = round(SecureNoise(1).least_sigma / LATTICE)
    assert discrete_epsilon(least) == pytest.approx(stated, rel=1e-6)


def test_a_device_can_refuse_before_it_charges():
    source = SecureNoise(3)
    assert source.least_sigma == 1000 * LATTICE
    source.check(1000 * LATTICE)
    source.check([1.0, 1000 * LATTICE])
    for sigma in (999 * LATTICE, [1.0, 999 * LATTICE], 0.0, math.nan, math.inf, -1.0):
        with pytest.raises(PrivacyError):
            source.check(sigma)


@pytest.mark.parametrize(("index", "max_releases"), [("round", None), ("release", None), ("release", 5)])
def test_a_run_whose_noise_would_fall_below_the_lattice_is_refused_at_its_start(monkeypatch, index, max_releases):
    """The last release that can be made decides, by the client with the least noise, though earlier ones would do."""
    federation = synthetic_regression(
        servers=2, clients_per_server=3, clusters=1, dimension=4, samples=(3, 9), seed=1, graph="line"
    )
    drawn, sensitivities, plan = [], [], Privacy.plan

    def release(self, models, sigma, clients, round):
        drawn.append(float(np.min(sigma)))
        return np.array(models)

    def planned(self, deltas, rounds):
        sensitivities.append(deltas)
        return plan(self, deltas, rounds)

    monkeypatch.setattr(SecureNoise, "release", release)
    monkeypatch.setattr(Privacy, "plan", planned)

    def run(phi0):
        settings = {"zeta": 0.5, "x_norm": 1.0, "index": index, "max_releases": max_releases, "noise": "secure"}
        return train(federation, PGFL(5.0), Huber(), rounds=8, privacy=Privacy(phi0=phi0, **settings))

    run(1.0)
    most = 0.5 * (np.min(sensitivities[0]) / (1000 * LATTICE)) ** 2 * 0.5 ** (max_releases or 8)
    drawn.clear()
    run(most * 0.999)
    assert min(drawn) == pytest.approx(1000 * LATTICE, rel=1e-3)
    drawn.clear()
    with pytest.raises(PrivacyError, match="float-safe"):
        run(most * 1.001)
    assert not drawn


def test_seeded_noise_of_the_wrong_shape_is_refused():
    with pytest.raises(PrivacyError, match="shape"):
        SeededNoise(lambda clients, round, dimension: np.zeros((1, 1))).release(
            np.zeros((2, 3)), np.ones(2), np.arange(2), 1
        )


def test_seeded_noise_repeats_and_secure_noise_never():
    one, two = (draw(SOURCES["seeded"]()) for _ in range(2))
    assert (one == two).all()
    one, two = (draw(SOURCES["secure"]()) for _ in range(2))
    assert (one != two).all()


def test_large_finite_models_are_no_overflow():
    clean = np.full((1, DIMENSION), 1e308)
    for source in (SeededNoise(lambda clients, round, dimension: np.zeros((1, dimension))), SecureNoise(DIMENSION)):
        assert source.release(clean, np.ones(1), np.zeros(1, dtype=int), 1) == pytest.approx(clean)


def test_secure_noise_reaches_the_same_numbers_from_every_model():
    """Its outputs lie on one lattice, whatever the model; those of a floating-point Gaussian betray the model."""

    def on_the_lattice(source, model):
        released = source.release(np.full((1, DIMENSION), model), np.ones(1), np.zeros(1, dtype=int), 1)
        scaled = released * 2.0**40
        return bool((scaled == np.round(scaled)).all())

    assert all(on_the_lattice(SecureNoise(DIMENSION), model) for model in (0.0, 0.1, 1 / 3, 1e-9, 2.0**-50))
    assert not on_the_lattice(SeededNoise(normals), 0.1)


@pytest.mark.parametrize("dimension", [1, 60, 784])
@pytest.mark.parametrize("sensitivity", [1e-9, 1e-3, 1.0, 1e3])
def test_opendps_own_privacy_map_confirms_what_is_accounted(dimension, sensitivity):
    """With the widened sensitivity a release spends at most φ; with the plain one it would spend more."""
    source = SecureNoise(dimension)
    for phi in (1e-9, 1e-3, 1.0, 100.0):
        sigma = float(source.widen(sensitivity)) / math.sqrt(2 * phi)
        assert phi * (1 - 1e-5 - 4e-12 * math.sqrt(dimension) / sensitivity) < source.spent(sigma, sensitivity) <= phi
        assert source.spent(sensitivity / math.sqrt(2 * phi), sensitivity) > phi


def test_a_measurement_is_built_once_for_every_deviation(monkeypatch):
    """Building one costs more than drawing from it; how much the guard costs in all is measured by `make bench`."""
    import opendp.prelude as dp

    built, build = [], dp.m.make_gaussian
    monkeypatch.setattr(
        dp.m, "make_gaussian", lambda *given, **named: built.append(named["scale"]) or build(*given, **named)
    )
    source, models, sigma = SecureNoise(60), np.zeros((20, 60)), np.linspace(0.5, 1.0, 20)
    for round in (1, 2, 3):
        source.release(models, sigma, np.arange(20), round)
    assert built == sigma.tolist()


def test_opendp_is_imported_only_when_used():
    modules = "pgfl.privacy.noise, pgfl.privacy.mechanism, pgfl.privacy.ledger.ledger"
    code = f"import sys, {modules}; print('opendp' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
