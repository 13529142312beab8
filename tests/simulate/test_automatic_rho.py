"""ρ by itself: real tables converge in the default rounds, and under privacy no record is looked at."""

import threading
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from pgfl import (
    PGFL,
    ClientData,
    ExactMixing,
    FedAvg,
    Federation,
    Huber,
    Logistic,
    Objective,
    OneStep,
    Ridge,
    TestSet,
    synthetic_regression,
    train,
)
from pgfl.algorithms.algorithms import is_automatic
from pgfl.config import parse
from pgfl.errors import ConfigError, Diverged
from pgfl.federation.graphs import build
from pgfl.privacy.request import Privacy
from pgfl.results.result import Result
from pgfl.simulate import rho as automatic_rho
from pgfl.simulate.communicator import SINGLE_PROCESS
from pgfl.simulate.layout import lay_out
from pgfl.simulate.options import TrainingOptions
from pgfl.simulate.rho import with_count, with_rho
from pgfl.simulate.simulator import Simulator

RELEASES = [("local", "admm"), ("local", "gradient"), ("site", "gradient"), ("masked", "gradient")]
"""Every kind of release: under which trust, of which client rule."""


def split(features, targets, servers=3, clusters=2, clients=12):
    """Rows dealt out to clients at servers in a line; a column of ones is the intercept."""
    order = np.random.default_rng(0).permutation(len(features))
    features = np.column_stack([features, np.ones(len(features))])[order]
    targets = np.asarray(targets, dtype=float)[order]
    dealt = {}
    for k in range(clients):
        server, cluster = f"s{k % servers}", f"q{k // servers % clusters}"
        dealt[f"c{k:02}"] = ClientData(server, cluster, features[k::clients], targets[k::clients])
    return Federation.from_clients(dealt, edges=[(f"s{i}", f"s{i + 1}") for i in range(servers - 1)])


def generated(**changes):
    return synthetic_regression(**({"servers": 4, "clients_per_server": 5, "dimension": 6, "graph": "ring"} | changes))


def standardised(features):
    return (features - features.mean(axis=0)) / features.std(axis=0)


def scaled(features):
    low, high = features.min(axis=0), features.max(axis=0)
    return 2.0 * (features - low) / (high - low) - 1.0


def real(name):
    """A public table: features, targets and the objective for them."""
    from sklearn.datasets import load_breast_cancer, load_diabetes
    from statsmodels.datasets import fair

    if name == "diabetes":
        features, targets = load_diabetes(return_X_y=True)
        return features, (targets - targets.mean()) / targets.std(), Ridge()
    if name == "breast cancer":
        return *load_breast_cancer(return_X_y=True), Logistic()
    table = fair.load_pandas().data
    return table.drop(columns="affairs").to_numpy(float), (table["affairs"] > 0).to_numpy(float), Logistic()


def rho_of(federation, algorithm, objective, privacy=None, rounds=300, communicator=SINGLE_PROCESS):
    options = TrainingOptions(rounds=rounds, privacy=privacy)
    return with_rho(algorithm, objective, federation, options, communicator).rho


# --- without privacy --------------------------------------------------------------------------------------------------


@pytest.mark.proof
@pytest.mark.parametrize("scale", [standardised, scaled], ids=["standardised", "in [-1, 1]"])
@pytest.mark.parametrize("name", ["diabetes", "breast cancer", pytest.param("fair", marks=pytest.mark.proof)])
def test_real_tables_converge_in_the_default_rounds(name, scale):
    features, targets, objective = real(name)
    made = split(scale(features), targets)
    metrics = {"metrics": ("distance",), "record_every": 300}
    found = train(made, ExactMixing(rho="auto"), objective, **metrics)
    fixed = train(made, ExactMixing(rho=5.0), objective, **metrics)
    assert found.curve("distance")[0, -1] < 1e-3
    assert found.curve("distance")[0, -1] < 0.1 * fixed.curve("distance")[0, -1]


@pytest.mark.parametrize("algorithm", [PGFL(rho="auto"), OneStep(rho="auto")], ids=["pgfl", "one step"])
def test_other_servers_come_near_to_their_own_fixed_point(algorithm):
    features, targets, objective = real("diabetes")
    made = split(standardised(features), targets)
    found = train(made, algorithm, objective, record_every=300)
    limit = train(made, replace(algorithm, rho=found.rho), objective, rounds=3000, record_every=3000)
    off = sum(np.sum((found.cluster(q) - limit.cluster(q)) ** 2) for q in made.cluster_ids)
    assert off < 5e-3 * sum(np.sum(limit.cluster(q) ** 2) for q in made.cluster_ids)


def test_plain_averages_get_the_rho_below_which_they_diverge():
    """On a line of three, the weights' least eigenvalue is −1/6: errors grow where ρ < h/7."""
    features, targets, objective = real("diabetes")
    made = split(standardised(features), targets)
    plain, exact = (rho_of(made, kind(rho="auto"), objective) for kind in (PGFL, ExactMixing))
    assert 2.0 * exact < plain
    assert grows(made, PGFL(rho=plain / 3.0), objective)
    assert not grows(made, PGFL(rho=plain), objective)
    assert not grows(made, ExactMixing(rho=exact), objective)


def grows(federation, algorithm, objective):
    """Whether models are still growing after 300 rounds."""
    simulator = Simulator([federation], algorithm, objective, TrainingOptions(rounds=600, metrics=()))
    try:
        sizes = [np.abs(simulator.run(round).server_models).max() for round in (300, 600)]
    except Diverged:
        return True
    return sizes[1] > 2.0 * sizes[0]


@pytest.mark.parametrize("kind", ["line", "ring", "star", "complete"])
@pytest.mark.parametrize("mixing", ["uniform", "metropolis"])
def test_the_least_eigenvalue_of_the_weights_is_found(kind, mixing):
    graph = build(kind, 7)
    exact = np.linalg.eigvals(graph.weights(mixing).toarray()).real.min()
    assert automatic_rho._least_eigenvalue(graph, mixing) == pytest.approx(exact, abs=2e-2)


def test_weights_by_clients_have_no_lesser_eigenvalue_than_is_assumed():
    """A hub with ten clients and many leaves with one: leaves follow the hub, and the hub follows the leaves."""
    graph = build("star", 60)
    clients = {"hub": 10} | {f"leaf-{k:02}": 1 for k in range(59)}
    datum = ClientData("hub", "q", np.eye(1), [1.0])
    made = Federation.from_clients(
        {f"{server} {k}": replace(datum, server=server) for server, count in clients.items() for k in range(count)},
        [("hub", leaf) for leaf in clients if leaf != "hub"],
    )
    weights = lay_out([made]).mixing("clients")
    least = np.linalg.eigvals(weights(np.eye(60))).real.min()
    assert least < np.linalg.eigvals(graph.weights("uniform").toarray()).real.min() - 0.2
    assert automatic_rho._least_eigenvalue(graph, "clients") <= least


def test_rho_balances_the_extreme_curvatures():
    """One client per server and equal curvatures h_min and h_max: √(h_min·h_max), whatever the number of rounds."""
    rows = np.diag([2.0, 0.2])
    made = Federation.from_clients({f"c{k}": ClientData("s", "q", rows, [1.0, 1.0]) for k in range(2)})
    curvatures = 2.0 * np.array([4.0, 0.04]) / 2.0
    for rounds in (200, 2000):
        found = rho_of(made, ExactMixing(rho="auto"), Ridge(lam=0.0), rounds=rounds)
        assert found == pytest.approx(np.sqrt(curvatures.prod()), rel=0.2)


def test_a_problem_that_no_rho_solves_in_time_still_gets_a_useful_one():
    """Nearly equal columns and no regulariser: the hopeless direction does not drag ρ down to nothing."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 3))
    made = split(np.column_stack([x, x[:, 0] + 1e-7 * rng.standard_normal(300)]), x[:, 0])
    assert 0.05 < rho_of(made, ExactMixing(rho="auto"), Ridge(lam=0.0)) < 5.0


def test_a_sample_is_enough_and_wide_tables_are_not_squared(monkeypatch):
    made = generated(servers=6, clients_per_server=20, dimension=8, samples=(20, 30), seed=2)
    whole = rho_of(made, ExactMixing(rho="auto"), Ridge())
    monkeypatch.setattr(automatic_rho, "MOST_CLIENTS", 20)
    assert len(automatic_rho.sampled_clients(made, SINGLE_PROCESS)) == 20
    assert rho_of(made, ExactMixing(rho="auto"), Ridge()) == pytest.approx(whole, rel=0.4)
    monkeypatch.setattr(automatic_rho, "MOST_FEATURES", 4)
    monkeypatch.setattr(np.linalg, "eigvalsh", None)
    assert 0.01 < rho_of(made, ExactMixing(rho="auto"), Ridge()) < whole * 2


# --- with privacy -----------------------------------------------------------------------------------------------------

PRIVATE = Privacy(epsilon=4.0, x_norm=1.0, index="release")


@pytest.mark.parametrize("algorithm", [PGFL(rho="auto"), ExactMixing(rho="auto")], ids=["pgfl", "exact"])
def test_under_privacy_no_record_is_looked_at(algorithm):
    """Other records in the same places give the same ρ to the last bit; public facts change it."""
    made = generated(samples=(20, 40), seed=1)
    rng = np.random.default_rng(5)
    other = made.replace(
        features=1e3 * rng.standard_cauchy(made.features.shape), targets=rng.standard_normal(len(made.targets))
    )
    poisoned = made.replace(features=np.full_like(made.features, np.nan))
    first = rho_of(made, algorithm, Huber(), PRIVATE)
    assert rho_of(other, algorithm, Huber(), PRIVATE) == first == rho_of(poisoned, algorithm, Huber(), PRIVATE)
    assert rho_of(made, algorithm, Huber(), replace(PRIVATE, x_norm=3.0)) != first
    assert rho_of(made, algorithm, Huber(), replace(PRIVATE, epsilon=0.5)) > first
    assert rho_of(made, algorithm, Huber(), replace(PRIVATE, max_releases=20)) < first


def test_a_trained_result_does_not_tell_records_by_its_rho():
    made = generated(samples=(20, 40), x_norm=1.0, seed=1)
    other = made.replace(features=-made.features[::-1], generated=True)
    found = [train(f, PGFL(rho="auto"), Huber(), rounds=5, privacy=PRIVATE).rho for f in (made, other)]
    assert found[0] == found[1]


def test_noise_asks_for_more_rho_than_convergence_alone():
    """ε = 1 with few records: the chosen ρ fits where one for convergence drowns in noise."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (480, 6)) / 6**0.5
    made = split(x, x @ [1.0, -2.0, 0.5, 0.0, 1.0, 3.0] + 0.1 * rng.standard_normal(480))
    privacy = Privacy(epsilon=1.0, x_norm=1.1, index="release", noise="seeded")
    plain = rho_of(made, PGFL(rho="auto"), Huber())

    def loss(rho):
        runs = [train(made, PGFL(rho=rho), Huber(), rounds=60, privacy=privacy, seed=s) for s in range(3)]
        rows, targets = made.features, made.targets
        return np.mean([np.mean((rows @ r.cluster("q0") - targets) ** 2) for r in runs])

    assert loss("auto") < 0.5 * loss(plain)


def test_privacy_without_a_bound_on_rows_needs_a_number():
    made = generated()
    unbounded = Privacy(phi0=1e-3, update_norm=0.1)
    with pytest.raises(ConfigError, match=r"follows from privacy.x_norm .* give rho a number"):
        train(made, PGFL(rho="auto"), Huber(), rounds=2, privacy=unbounded)


# --- one number, stated and kept --------------------------------------------------------------------------------------


class Ranks:
    """Processes as threads: sums and maxima over all of them."""

    def __init__(self, size):
        self._given, self._barrier = [None] * size, threading.Barrier(size)

    def rank(self, number):
        return _Rank(self, number)

    def gathered(self, number, values):
        self._barrier.wait()
        self._given[number] = np.asarray(values)
        self._barrier.wait()
        return list(self._given)


class _Rank:
    def __init__(self, ranks, number):
        self._ranks, self._number = ranks, number

    def sum(self, values):
        return sum(self._ranks.gathered(self._number, values))

    def maximum(self, values):
        return np.maximum.reduce(self._ranks.gathered(self._number, values))


@pytest.mark.parametrize("privacy", [None, PRIVATE], ids=["data", "public"])
@pytest.mark.parametrize("parts", [[[0, 1, 2], [3, 4]], [[4], [0, 2], [1, 3]]], ids=["two", "three"])
def test_it_is_the_same_bits_on_any_number_of_processes(parts, privacy, monkeypatch):
    monkeypatch.setattr(automatic_rho, "MOST_CLIENTS", 17)
    made = generated(servers=5, clients_per_server=7, samples=(5, 40), seed=3)
    alone = rho_of(made, PGFL(rho="auto"), Huber(), privacy)
    ranks, found = Ranks(len(parts)), {}

    def work(number):
        part = made.part(parts[number])
        found[number] = rho_of(part, PGFL(rho="auto"), Huber(), privacy, communicator=ranks.rank(number))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert set(found.values()) == {alone}
    assert len(found) == len(parts)


def test_the_result_states_the_number(tmp_path):
    made = generated(samples=(4, 8), seed=1)
    found = train(made, PGFL(rho="auto"), Ridge(), rounds=5)
    assert found.rho == found.summary()["rho"] == Result.load(found.save(tmp_path / "a")).rho
    same = train(made, PGFL(rho=found.rho), Ridge(), rounds=5)
    np.testing.assert_array_equal(found.cluster("cluster-1"), same.cluster("cluster-1"))
    assert train(made, PGFL(rho=3.0), Ridge(), rounds=1).rho == 3.0


def test_the_command_line_and_the_page_show_the_number(tmp_path, monkeypatch, capsys):
    from pgfl.cli import main

    (tmp_path / "c.toml").write_text(
        'rounds = 3\n[data]\nservers = 4\nclients_per_server = 2\ndimension = 3\n[algorithm]\nrho = "auto"\n'
    )
    monkeypatch.setattr("sys.argv", ["pgfl", "run", str(tmp_path / "c.toml"), "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    rho = Result.load(tmp_path / "out").rho
    shown = " ".join(capsys.readouterr().out.split())
    assert f"rho, chosen {rho:g}" in shown
    assert f"ρ = {rho:g}" in (tmp_path / "out" / "report.html").read_text("utf-8")


def test_runs_share_the_number_of_the_first():
    def made(run):
        return generated(samples=(4, 8), seed=run)

    together = train(made, PGFL(rho="auto"), Ridge(), rounds=5, runs=3)
    assert together.rho == train(made(0), PGFL(rho="auto"), Ridge(), rounds=5).rho


def test_what_goes_on_keeps_the_number_of_the_earlier_run():
    made = generated(samples=(4, 8), seed=1)
    options = TrainingOptions(rounds=5)
    assert with_rho(PGFL(rho="auto"), Ridge(), made, options, SINGLE_PROCESS, known=0.7).rho == 0.7
    assert with_rho(PGFL(rho=3.0), Ridge(), made, options, SINGLE_PROCESS, known=0.7).rho == 3.0


def test_only_training_chooses():
    waiting = PGFL(rho="auto")
    assert is_automatic(waiting) and not is_automatic(PGFL())
    assert "auto" in repr(waiting)
    made = generated()
    with pytest.raises(ConfigError, match="replaced by a number when training starts"):
        Simulator([made], waiting, Ridge(), TrainingOptions(rounds=1))
    with pytest.raises(ConfigError, match="must be a number above 0 or"):
        PGFL(rho="automatic")


def test_an_objective_of_ones_own_states_its_smoothness_or_rho():
    class Own(Objective):
        def value_and_gradient(self, w, features, targets, counts):
            rest = (features @ w[..., None])[..., 0] - targets
            return np.sum(rest**2, axis=-1) / counts, 2.0 * np.asarray(rest) @ features / counts

    made = generated()
    with pytest.raises(ConfigError, match="needs the smoothness of the custom objective"):
        train(made, PGFL(rho="auto"), Own(), rounds=1)


def test_tables_choose_by_themselves_and_generated_data_do_not():
    table = {"data": {"kind": "table", "table": "a.csv"}}
    assert parse(table).algorithm.rho == "auto"
    assert parse(table | {"algorithm": {"rho": 5.0}}).algorithm.rho == 5.0
    assert parse({}).algorithm.rho == 5.0
    assert parse({"algorithm": {"rho": "auto"}}).algorithm.rho == "auto"
    with pytest.raises(ConfigError, match=r"`algorithm.rho`"):
        parse({"algorithm": {"rho": "automatic"}})


# --- more ε, better models --------------------------------------------------------------------------------------------


def lopsided(rows, seed=0):
    """Columns that are never negative: all rows point in about one direction, the steepest that bounds allow."""
    rng = np.random.default_rng(seed)
    features = rng.uniform(0.5, 1.0, (rows, 4))
    targets = np.clip(features @ [0.6, -0.4, 0.3, 0.2] - 0.4 + 0.1 * rng.normal(size=rows), -1, 1)
    return features, targets


def uneven(features, targets, servers=2, clients=12):
    """The first client has half of the rows, the others share the rest."""
    owner = np.where(np.arange(len(features)) < len(features) // 2, 0, np.arange(len(features)) % clients)
    rows = np.column_stack([features, np.ones(len(features))])
    tested = np.arange(len(rows)) % 5 == 0
    dealt = {
        f"c{k}": ClientData(f"s{k % servers}", "all", rows[mine], targets[mine])
        for k in range(clients)
        if (mine := (owner == k) & ~tested).any()
    }
    tests = {"all": TestSet(rows[tested], targets[tested])}
    return Federation.from_clients(dealt, edges=[("s0", "s1")], tests=tests)


def table_of(name):
    if name == "lopsided":
        features, targets = lopsided(1000)
        return uneven(features, targets), Huber(), 5**0.5
    features, targets, objective = real(name)
    targets = targets if isinstance(objective, Logistic) else targets / np.abs(targets).max()
    objective = objective if isinstance(objective, Logistic) else Huber()
    return uneven(scaled(features)[::3], targets[::3]), objective, (features.shape[1] + 1) ** 0.5


@pytest.mark.proof
@pytest.mark.parametrize(("trust", "client"), RELEASES)
@pytest.mark.parametrize("name", ["lopsided", "fair", "diabetes"])
def test_more_epsilon_never_gives_a_worse_model(name, client, trust):
    """Beyond noise: over three seeds, the median loss falls or is within a tenth of the trivial one's."""
    made, objective, x_norm = table_of(name)
    measure = "log_loss" if isinstance(objective, Logistic) else "r2"
    losses = []
    for epsilon in (1.0, 8.0, 64.0, 1e4):
        privacy = Privacy(
            epsilon=epsilon, x_norm=x_norm, y_bound=1.0, trust=trust, contributors=2, colluders=0, max_releases=30,
            index="release", noise="seeded",
        )  # fmt: skip
        settings = {"rounds": 30, "record_every": 30, "metrics": [measure], "privacy": privacy, "engine": "numpy"}
        algorithm = PGFL(rho="auto", client=client, count="records")
        results = [train(made, algorithm, objective, seed=seed, **settings) for seed in range(3)]
        found = [next(one.whole for one in result.measures if one.name == measure) for result in results]
        assert not any("overshoot" in warning for result in results for warning in result.warnings)
        losses.append(np.median([one.value if measure == "log_loss" else 1.0 - one.value for one in found]))
    trivial = 1.0 if measure == "r2" else found[0].baseline
    assert all(later <= earlier + 0.1 * trivial for earlier, later in pairwise(losses)), losses
    assert losses[-1] < trivial, losses


def test_gradient_steps_under_privacy_never_overshoot_what_bounds_allow():
    features, targets = lopsided(3000)
    for count in ("clients", "records"):
        for epsilon in (0.5, 8.0, 1e6):
            privacy = Privacy(epsilon=epsilon, x_norm=2.0, y_bound=1.0, max_releases=50, index="release")
            algorithm = PGFL(rho="auto", client="gradient", count=count)
            made = uneven(features, targets)
            found = rho_of(made, with_count(algorithm, made, SINGLE_PROCESS), Huber(), privacy, rounds=50)
            weight = 1.0 if count == "clients" else made.counts.mean() / made.counts.max()
            assert found > 0.5 * 2.0 * 2.0**2 * weight  # half of the steepest curvature


def test_one_rule_serves_train_configs_and_estimators():
    from pgfl.sklearn import PGFLRegressor

    features, targets, _ = real("diabetes")
    clients = np.arange(len(features)) % 6
    fitted = PGFLRegressor(epsilon=8.0, feature_bounds=(-1, 1), target_bounds=(-3, 3), rounds=20, noise="seeded")
    fitted.fit(scaled(features), targets, client=clients)
    assert fitted.result_.rho != 1.0
    table = parse({"data": {"kind": "table", "table": "x.csv"}}).algorithm
    assert (table.rho, table.count) == ("auto", "records")


# --- FedAvg's step ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [{}, {"samples": (20, 40), "observation_noise": 0.5}], ids=["few", "many"])
def test_fedavg_s_own_step_is_about_the_best_of_a_grid(shape):
    federation = generated(seed=41, **shape)

    def final(step):
        return train(federation, FedAvg(step_size=step), Ridge(), rounds=150, metrics=["nmsd"], progress=False)

    chosen = final("auto")
    errors = [final(chosen.step_size * factor).curve("nmsd")[0, -1] for factor in (0.25, 0.5, 2.0)]
    assert chosen.curve("nmsd")[0, -1] < 1.6 * min(errors), "within 2 dB"
    assert chosen.summary()["step_size"] == chosen.step_size


def test_under_privacy_fedavg_s_step_looks_at_no_record_and_keeps_its_guarantee():
    federation, privacy = generated(seed=5, x_norm=1.0), Privacy(epsilon=4.0, max_releases=20, x_norm=1.0)
    other = federation.replace(features=0.1 * federation.features, targets=-federation.targets)
    steps = [
        train(one, FedAvg(step_size="auto"), Huber(), rounds=20, privacy=privacy, progress=False).step_size
        for one in (federation, other)
    ]
    assert steps[0] == steps[1] <= 1.0


def test_a_step_is_a_number_or_auto_and_a_continued_run_keeps_it():
    with pytest.raises(ConfigError, match=r"algorithm.step_size must be a number above 0 or .auto.; got .none."):
        FedAvg(step_size="none")
    federation = generated(seed=6)
    first = train(federation, FedAvg(step_size="auto"), Ridge(), rounds=10, progress=False)
    assert (
        train(federation, FedAvg(step_size="auto"), Ridge(), rounds=90, start=first, progress=False).step_size
        == first.step_size
    )
    assert parse({"algorithm": {"kind": "fedavg", "step_size": "auto"}}).algorithm.step_size == "auto"
