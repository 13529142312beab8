"""Site and masked trust in a simulation: the rounds, the noise, the accounts, and what is left to see."""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pgfl import PGFL, ClientData, Federation, Huber, Logistic, Privacy, Result, synthetic_regression, train
from pgfl.errors import ConfigError, PrivacyError
from pgfl.privacy import accounting, lattice
from pgfl.privacy.trust import Trust
from pgfl.results.arrays import SIMULATION_ONLY
from pgfl.simulate import training
from pgfl.simulate.checkpoint import Checkpoints
from pgfl.simulate.observers import Observer
from pgfl.simulate.options import Performance, TrainingOptions
from pgfl.simulate.simulator import Replay, Simulator
from tests import bridges, oracle
from tests.federations import SHAPES, random_case

STEP = PGFL(rho=2.0, tau=0.2, client="gradient")
RHO, KAPPA = 2.0, 1.5
SHAPE = {"servers": 3, "clients_per_server": 9, "clusters": 2, "dimension": 6, "graph": "ring", "x_norm": 1.0}
LEVELS = ("site", "masked")


def federation(run=0, samples=(4, 9)):
    return synthetic_regression(run=run, samples=samples, **SHAPE)


def privacy(level, **changes):
    chosen = {"epsilon": 20.0, "zeta": 0.97, "max_releases": 8, "index": "release", "x_norm": 1.0, "trust": level}
    return Privacy(**{**chosen, **changes})


def trained(level="site", data=federation, algorithm=STEP, rounds=8, asked=None, **options):
    return train(data, algorithm, Huber(kappa=KAPPA), rounds=rounds, privacy=asked or privacy(level), **options)


# --- the rounds -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["pgfl", "pgfl-exact", "pgfl-onestep", "fedavg"])
@pytest.mark.parametrize("library", ["numpy", "numba"])
def test_noise_of_a_pair_moves_the_mean_of_its_contributors(algorithm, library):
    """In the plain loops every contributor of a pair has the pair's noise, so that their mean has it too."""
    for seed, shape in enumerate(SHAPES[:4]):
        kinds = ("ridge", "huber", "mixed", "logistic")
        case = random_case(seed, kinds[seed], shape, "half", algorithm=algorithm, client="gradient")
        assert_same(case, library)


def test_noise_of_a_pair_moves_the_mean_in_jax_too():
    assert_same(random_case(0, "ridge", SHAPES[0], "all", algorithm="pgfl", client="gradient"), "jax")


def assert_same(case, library):
    problem, everywhere = case.problem, case.problem.algorithm == "fedavg"
    place = {client.id: (client.server, oracle.GLOBAL if everywhere else client.cluster) for client in problem.clients}

    def noise(n, server, cluster):
        named = f"{server}/{oracle.GLOBAL if everywhere else cluster}"
        return 0.1 * np.random.default_rng([n, *named.encode()]).standard_normal(problem.dimension)

    participants, _, spent = case.draws
    expected = oracle.run(problem, 8, participants, lambda n, client: noise(n, *place[client]), spent)
    replay = Replay(participants, None, spent, pair_noise=noise)
    played = Simulator(
        [bridges.federation(problem)], bridges.algorithm(problem), bridges.objective(problem),
        TrainingOptions(performance=Performance(engine=library)), replay=replay,
    )  # fmt: skip
    for reference in expected[1:]:
        played.run_round()
        actual = bridges.snapshot(played)["servers"]
        assert actual.keys() == reference.servers.keys()
        for key, value in reference.servers.items():
            np.testing.assert_allclose(actual[key], value, atol=1e-8 * (1 + np.abs(value).max()))


# --- the noise and the accounts, worked out once more by plain loops --------------------------------------------------


class Watched(Observer):
    """What each round released and from what, pair by pair."""

    def __init__(self):
        self.rounds = []

    def on_round(self, simulator):
        layout, active, state = simulator.layout, simulator.engine.participants, simulator.state
        found = {}
        for pair in np.unique(layout.client_pair[active]):
            who = active[layout.client_pair[active] == pair]
            released = np.asarray(state.released)[who]
            assert (released == released[0]).all()
            found[int(pair)] = (who, released[0], np.asarray(state.model)[who].mean(axis=0))
        self.rounds.append(found)


def watched(level, engine="numpy", rounds=40, participants="all", noise=None, data=None, **changes):
    asked = privacy(level, max_releases=rounds, noise=noise, **changes)
    seen = Watched()
    options = TrainingOptions(
        rounds=rounds, privacy=asked, participants=participants, seed=5, performance=Performance(engine=engine)
    )
    simulator = Simulator([data or federation()], STEP, Huber(kappa=KAPPA), options, observers=[seen])
    simulator.run()
    return simulator, seen, asked


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("index", ["release", "round"])
@pytest.mark.parametrize(
    ("participants", "engine"), [("all", "numpy"), ("all", "numba"), ("all", "jax"), (5, "numpy"), (5, "numba")]
)
def test_noise_and_charges_are_those_of_plain_loops(level, index, participants, engine):
    simulator, seen, asked = watched(level, engine, 40, participants, index=index)
    counts, budget = simulator.layout.counts, asked.budget(40)
    ratios = []
    rho, made = np.zeros(len(counts)), np.zeros(len(counts), dtype=int)
    for number, pairs in enumerate(seen.rounds, start=1):
        for who, released, clean in pairs.values():
            n = len(who)
            needed = max(2, n - math.floor(0.1 * n))
            honest = n if level == "site" else needed - 1
            assert n >= 2 and honest >= 1
            price = {k: budget.phi0 / budget.zeta ** (made[k] + 1 if index == "release" else number) for k in who}
            delta = {k: 4 * KAPPA / (counts[k] * RHO) + 2e-9 for k in who}
            sigma = max(delta[k] / math.sqrt(2 * price[k]) for k in who)
            variance = sigma**2 if level == "site" else n * sigma**2 / honest
            ratios.append((released - clean) / math.sqrt(variance) * n)
            for k in who:
                charged = delta[k] ** 2 / (2 * sigma**2)
                assert charged <= price[k] * (1 + 1e-12)
                rho[k] += charged
                made[k] += 1
    np.testing.assert_allclose(simulator.plan.rho, rho, rtol=1e-6)
    np.testing.assert_array_equal(simulator.plan.releases, made)
    drawn = np.concatenate(ratios)
    assert 0.85 < float(np.mean(drawn**2)) < 1.15  # 2/3 and 3/2 of the variance would not pass
    assert abs(float(np.mean(drawn))) < 0.1


@pytest.mark.parametrize("level", LEVELS)
def test_float_safe_sums_are_exact_on_the_lattice_and_have_the_noise_that_is_stated(level):
    simulator, seen, asked = watched(level, rounds=40, noise="secure")
    budget, ratios = asked.budget(40), []
    for number, pairs in enumerate(seen.rounds, start=1):
        for who, released, clean in pairs.values():
            n = len(who)
            points = released * n / lattice.STEP
            assert np.abs(points - np.rint(points)).max() < 0.02  # points are as large as 10¹³
            least = simulator.layout.counts[who].min()
            sigma = (4 * KAPPA / (least * RHO) + 2e-9) / math.sqrt(2 * budget.phi0 / budget.zeta**number)
            excess = 1.0 if level == "site" else n / Trust("masked").honest(n)
            ratios.append((released - clean) * n / (sigma * math.sqrt(excess)))
    squares = np.concatenate(ratios) ** 2
    assert abs(squares.mean() - 1.0) < 6.0 * math.sqrt(2.0 / len(squares)) < 0.4  # it has no seed


@pytest.mark.parametrize("level", LEVELS)
def test_nobody_passes_the_target_and_somebody_reaches_it(level):
    result = trained(level, asked=privacy(level, epsilon=3.0))
    epsilon = result.privacy[0]["epsilon"]
    assert (epsilon <= 3.0).all()
    assert epsilon.max() > 2.99
    assert result.guarantee == Trust(level).promise.label


# --- sensitivity ------------------------------------------------------------------------------------------------------

NUMBERS = st.floats(-1e3, 1e3, allow_nan=False)


@given(seed=st.integers(0, 2**32), size=st.floats(0, 1e4), objective=st.sampled_from([Huber(kappa=KAPPA), Logistic()]))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_one_record_moves_a_pair_s_sum_by_no_more_than_its_own_delta(seed, size, objective):
    """Whatever the server's model is and whoever else contributes; worst rows are tried as often as random ones."""
    rng = np.random.default_rng(seed)
    clients = int(rng.integers(2, 6))
    rows = [int(n) for n in rng.integers(1, 6, clients)]
    data = {f"c{k}": _some_rows(rng, n, objective) for k, n in enumerate(rows)}
    changed = int(rng.integers(clients))
    (x, y), (other_x, other_y) = data[f"c{changed}"], _some_rows(rng, 1, objective)
    other = data | {f"c{changed}": (np.concatenate([x[:-1], other_x]), np.concatenate([y[:-1], other_y]))}
    start = rng.standard_normal((1, 3)) * size
    sums = [_sum(world, objective, start) for world in (data, other)]
    change = 4 * KAPPA if isinstance(objective, Huber) else 2.0
    delta = change / (rows[changed] * RHO) + 2e-9
    assert np.linalg.norm(np.subtract(*sums)) <= lattice.widened(delta, 3) + 1e-12 * (1 + size) * clients


def _some_rows(rng, n, objective):
    x = rng.standard_normal((n, 3))
    x = x / np.linalg.norm(x, axis=1, keepdims=True) * rng.choice([1.0, 1.0, 0.3])
    y = (rng.random(n) < 0.5).astype(float) if isinstance(objective, Logistic) else rng.standard_normal(n) * 1e3
    return x, y


def _sum(world, objective, start):
    """The sum that a site adds noise to, in units of the lattice."""
    made = Federation.from_clients({name: ClientData("s", "q", x, y) for name, (x, y) in world.items()})
    simulator = Simulator([made], PGFL(rho=RHO, client="gradient"), objective, TrainingOptions(rounds=2, privacy=None))
    simulator.state.servers["model"] = start + 0.0
    simulator.network.known = np.array([True])
    simulator.run_round()
    return lattice.from_lattice(lattice.to_lattice(simulator.state.model, summands=len(world)).sum(axis=0))


# --- pairs with too few contributors ----------------------------------------------------------------------------------


def uneven(generated=True):
    """One pair with one client, one with two, one with five."""
    rng = np.random.default_rng(0)
    places = [("a", "p")] + [("a", "q")] * 2 + [("b", "p")] * 5
    rows = rng.standard_normal((len(places), 6, 3)) / 4
    made = {f"c{k}": ClientData(s, q, rows[k], rows[k] @ [1.0, 2.0, 3.0]) for k, (s, q) in enumerate(places)}
    return Federation.from_clients(made, edges=[("a", "b")]).replace(generated=generated)


@pytest.mark.parametrize(
    ("level", "numbers", "contribute"),
    [
        ("site", {"contributors": 1}, [True] * 8),
        ("site", {}, [False] + [True] * 7),
        ("site", {"contributors": 3}, [False] * 3 + [True] * 5),
        ("masked", {}, [False] + [True] * 7),
        ("masked", {"contributors": 1, "colluders": 0}, [True] * 8),
        ("masked", {"colluders": 2}, [False] * 3 + [True] * 5),
    ],
)
def test_pairs_with_too_few_contributors_sit_out_and_nobody_is_charged(level, numbers, contribute):
    result = trained(level, uneven(), asked=privacy(level, **numbers))
    table = result.privacy[0]
    assert (table["releases"] == np.where(contribute, 8, 0)).all()
    assert ((table["rho"] > 0) == contribute).all()
    assert (table["refused"] == 0).all()
    assert (np.isnan(result.models[0].released).all(axis=1) == ~np.array(contribute)).all()
    small = [warning for warning in result.warnings if "sit out" in warning]
    assert bool(small) == (not all(contribute))


def test_training_that_no_pair_can_take_part_in_is_refused():
    for level in LEVELS:
        with pytest.raises(ConfigError, match=r"privacy\.contributors"):
            trained(level, uneven(), asked=privacy(level, contributors=6))
    with pytest.raises(ConfigError, match=r"algorithm\.participants"):
        trained("site", participants=2, asked=privacy("site", contributors=3))


def test_a_pair_rests_and_training_ends_when_too_few_of_it_are_left():
    """Clients come at random, so their releases end at different rounds; a pair of one is no pair."""
    result = trained("site", rounds=60, participants=3, asked=privacy("site", max_releases=4, contributors=2))
    assert result.ended_by == "budget"
    releases = result.privacy[0]["releases"]
    assert releases.max() == 4
    assert releases.min() < 4  # somebody was left alone


# --- the same bits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("participants", ["all", 4])
def test_batches_threads_and_engines_agree(monkeypatch, level, participants):
    options = {"runs": 3, "participants": participants}
    whole = trained(level, **options)
    compiled = trained(level, engine="numba", **options)
    monkeypatch.setattr(training, "BATCH_ELEMENTS", 1)
    monkeypatch.setattr("pgfl.simulate.problems.BLOCK_ELEMENTS", 100)
    alone = trained(level, threads=2, **options)
    for one, two, three in zip(whole.models, alone.models, compiled.models, strict=True):
        np.testing.assert_array_equal(one.servers, two.servers)
        np.testing.assert_array_equal(one.released, two.released)
        np.testing.assert_allclose(one.servers, three.servers, atol=1e-10)
    np.testing.assert_array_equal(whole.privacy[0]["rho"], alone.privacy[0]["rho"])


@pytest.mark.parametrize("level", LEVELS)
def test_a_resumed_run_and_a_continued_one_have_the_bits_of_the_whole(tmp_path, level):
    asked = privacy(level, epsilon=None, phi0=1e-2, max_releases=None, index="round")
    whole = trained(level, rounds=9, asked=asked, participants=5)
    stopped = Checkpoints(tmp_path, "same", 1)
    options = TrainingOptions(rounds=9, privacy=asked, participants=5)
    simulator = Simulator([federation()], STEP, Huber(kappa=KAPPA), options)
    simulator.observers = [simulator.monitor, simulator.recorder, stopped]
    simulator.recorder.record()
    simulator.run(4)
    resumed = trained(
        level, rounds=9, asked=asked, participants=5, checkpoints=Checkpoints(tmp_path, "same", 1), resume=True
    )
    first = trained(level, rounds=4, asked=asked, participants=5)
    first.save(tmp_path / "first")
    second = train(
        federation(), STEP, Huber(kappa=KAPPA), rounds=5, participants=5, start=Result.load(tmp_path / "first")
    )
    for other in (resumed, second):
        np.testing.assert_array_equal(other.models[0].servers, whole.models[0].servers)
        np.testing.assert_array_equal(other.models[0].released, whole.models[0].released)
        np.testing.assert_array_equal(other.privacy[0]["rho"], whole.privacy[0]["rho"])


def test_a_continuation_keeps_its_trust():
    first = trained("site", rounds=4)
    for asked in (privacy("local"), privacy("masked")):
        with pytest.raises(PrivacyError, match=r"privacy\.trust was site"):
            train(federation(), STEP, Huber(kappa=KAPPA), rounds=2, privacy=asked, start=first)


# --- what is left to see ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("noise", ["seeded", "secure"])
def test_no_clean_model_and_no_clean_mean_is_left_outside_simulation_only(tmp_path, level, noise):
    seen = Watched()
    options = TrainingOptions(rounds=3, privacy=privacy(level, noise=noise, max_releases=3))
    simulator = Simulator([federation()], STEP, Huber(kappa=KAPPA), options, observers=[seen])
    simulator.run()
    clean = list(np.asarray(simulator.state.model))
    clean += [mean for pairs in seen.rounds for _, _, mean in pairs.values()]
    folder = tmp_path / "found"
    trained(level, rounds=3, asked=privacy(level, noise=noise, max_releases=3)).save(folder)
    assert (folder / SIMULATION_ONLY).exists() == (noise == "seeded")
    for path in folder.glob("*.npz"):
        with np.load(path) as archive:
            arrays = [archive[name] for name in archive.files if archive[name].dtype == np.float64]
        for values in arrays:
            rows = (
                values.reshape(-1, values.shape[-1]) if values.ndim > 1 and values.shape[-1] == 6 else np.empty((0, 6))
            )
            for model in clean:
                assert not (np.abs(rows - model).max(axis=1) < 1e-9).any(), path.name
    first = np.asarray(Result.load(folder).models[0].released)
    pair = federation().client_server * 2 + federation().client_cluster
    for name in np.unique(pair):
        assert (first[pair == name] == first[pair == name][0]).all()


@pytest.mark.parametrize("level", LEVELS)
def test_masked_and_site_rounds_learn_more_from_the_same_budget(level):
    asked = {"epsilon": 2.0, "max_releases": 40, "zeta": 0.95}
    shape = {"servers": 3, "clients_per_server": 40, "clusters": 2, "dimension": 6, "graph": "ring", "x_norm": 1.0}
    data = synthetic_regression(samples=(20, 30), **shape)
    algorithm = PGFL(rho=0.5, tau=0.1, client="gradient")
    errors = [
        train(data, algorithm, Huber(kappa=KAPPA), rounds=50, privacy=privacy(who, **asked)).curve("nmsd")[0, -1]
        for who in ("local", level)
    ]
    assert errors[1] < 0.3 * errors[0]


def test_a_site_with_one_contributor_is_as_noisy_as_local_trust():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((10, 3)) / 4
    alone = Federation.from_clients({"c": ClientData("s", "q", rows, rows @ [1.0, 2.0, 3.0])})
    for asked in (privacy("local"), privacy("site", contributors=1)):
        options = TrainingOptions(rounds=4, privacy=asked)
        simulator = Simulator([alone], STEP, Huber(kappa=KAPPA), options)
        sigma = simulator.plan.sigma(np.array([0]), 1)
        assert float(accounting.exact_epsilon(simulator.plan.budget.phi(1), 1e-5)) > 0
        assert sigma == pytest.approx(4 * KAPPA / (10 * RHO) / math.sqrt(2 * simulator.plan.budget.phi(1)), rel=1e-6)
