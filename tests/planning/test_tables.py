"""Plans for real tables: what the twin takes from them, and whether what it predicts is what real runs reach."""

import runpy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from pgfl import Privacy, experiment, train
from pgfl.config import load_config, parse
from pgfl.errors import ConfigError
from pgfl.metrics import auc
from pgfl.planning import planner
from pgfl.planning import twin as twins
from pgfl.planning.facts import SPREAD_IN_BOUNDS, Facts, facts_of
from pgfl.planning.forecast import Forecast, Plan, choices, configured, forecast
from pgfl.planning.row_shapes import SPREAD, RowShape
from pgfl.planning.search import Point, best_foreseen
from pgfl.planning.twin import twin
from tests.command_line import run

MADE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "tables" / "make_tables.py"))
RUNS = 6


def outwards(value, up):
    """A bound with two digits, as a person would state it."""
    unit = 10.0 ** (np.floor(np.log10(abs(value))) - 1) if value else 1.0
    return float((np.ceil if up else np.floor)(value / unit) * unit)


def digits_pair():
    table = MADE["digits"]()
    table = table[table["digit"].isin([3, 8])].reset_index(drop=True)
    labels = table["digit"].map({3: "three", 8: "eight"})
    return MADE["placed"](table.drop(columns=["client", "server", "digit"]).assign(digit=labels), clients=12)


TABLES = {
    "diabetes": (MADE["diabetes"], "progression", 0.48),
    "breast_cancer": (MADE["breast_cancer"], "diagnosis", 0.99),
    "fair": (MADE["fair"], "affair", 0.73),
    "digits": (digits_pair, "digit", 0.99),
}


@pytest.fixture(scope="module")
def configs(tmp_path_factory):
    """A config for each table, with bounds that are a little wider than the records."""
    folder, found = tmp_path_factory.mktemp("tables"), {}
    for name, (make, target, _) in TABLES.items():
        table = make()
        table.to_csv(folder / f"{name}.csv", index=False)
        columns, constant = {}, []
        for column in table.columns.drop(["client", "server", "cluster"], errors="ignore"):
            values = table[column]
            if values.nunique() < 2:
                constant.append(column)
            elif values.dtype.kind in "iuf":
                columns[column] = {"bounds": [outwards(values.min(), False), outwards(values.max(), True)]}
            else:
                columns[column] = {"labels": sorted(values.unique())}
        data = {"kind": "table", "table": f"{name}.csv", "target": target, "intercept": True, "test": 0.2}
        settings = {
            "data": data | {"columns": columns, "ignore": constant},
            "graph": {"kind": "complete"},
            "objective": {"kind": "huber" if name == "diabetes" else "logistic"},
            "privacy": {"epsilon": 8.0},
        }
        found[name] = parse(settings, folder)
    return found


def predicted_and_reached(config, facts):
    """A plan's forecast, and what runs with its settings reach on the table itself, over several splits and noises."""
    settings = planner.full_search(facts)
    measure, reached = "r2" if facts.task == "regression" else "auc", []
    for seed in range(RUNS):
        budget = {"epsilon": facts.epsilon, "zeta": settings.zeta, "max_releases": settings.releases}
        x_norm = settings.x_norm or facts.x_norm
        privacy = Privacy(**budget, index="release", x_norm=x_norm, noise="seeded", trust=facts.trust)
        made = config.model_copy(update={"seed": seed}).federations()(0, None)
        result = train(
            made, settings.algorithm, settings.objective, rounds=settings.rounds, privacy=privacy, seed=seed,
            metrics=[measure], record_every=settings.rounds,
        )  # fmt: skip
        reached.append(100.0 * float(result.history[measure][-1]))
    return forecast(planner.evaluate_on_twins(facts, settings), facts), np.array(reached)


CASES = [
    ("diabetes", 8.0, "local"),
    ("diabetes", 4.0, "masked"),
    ("breast_cancer", 4.0, "local"),
    ("breast_cancer", 8.0, "site"),
    ("fair", 1.0, "local"),
    ("fair", 4.0, "masked"),
    ("digits", 4.0, "local"),
    ("digits", 8.0, "local"),
]


def test_a_twin_of_a_table_has_its_places_and_rows_of_its_length(configs):
    config = configs["breast_cancer"]
    facts, real = facts_of(config), config.federations()(0, None)
    made = [twin(facts, seed) for seed in range(1, 7)]
    assert (made[0].client_server == real.client_server).all() and (made[0].client_cluster == real.client_cluster).all()
    assert abs(made[0].counts - real.counts).max() <= 1
    assert made[0].dimension == real.dimension == facts.rows.columns == 31
    length = np.mean([np.linalg.norm(one.features, axis=1).mean() for one in made])
    assert length == pytest.approx(np.linalg.norm(real.features, axis=1).mean(), rel=0.3)
    assert length < 0.7 * facts.x_norm


def test_kinds_of_columns_are_told_apart():
    shape = RowShape(numbers=3, booleans=2, categories=(3, 2), indicators=1, intercept=True)
    rows = shape.table(np.random.default_rng(0)).rows(500, np.random.default_rng(1))
    assert rows.shape == (500, shape.columns) and (np.abs(rows[:, :3]) <= 1.0).all()
    assert set(np.unique(rows[:, 3:5])) == {0.0, 1.0}
    assert (rows[:, 5:8].sum(axis=1) == 1.0).all() and (rows[:, 8:10].sum(axis=1) == 1.0).all()
    assert (rows[:, -1] == 1.0).all() and np.linalg.norm(rows, axis=1).max() <= shape.longest
    assert shape.halved.columns < shape.columns


REGRESSION = Facts(
    servers=4, clients_per_server=8, clusters=2, records=(100, 100), columns=8, x_norm=2.0, epsilon=1.0, expected=0.6,
    rows=RowShape(numbers=4, booleans=1, intercept=True, quantities=2, categories=(2,)), label_scale=0.4,
)  # fmt: skip
LABELS = replace(REGRESSION, task="classification", expected=0.8)


def pooled(made):
    """Features and labels of clients and test sets."""
    tests = made.tests.values()
    features = np.vstack([made.features, *(test.features for test in tests)])
    return features, np.concatenate([made.targets, *(test.targets for test in tests)])


def explained(made):
    """The share of the labels' variance that one linear model explains."""
    features, labels = pooled(made)
    left = labels - features @ np.linalg.lstsq(features, labels, rcond=None)[0]
    return 1.0 - left.var() / labels.var()


@pytest.mark.parametrize("expected", [0.2, 0.6, 0.9])
def test_labels_of_a_made_up_table_are_as_predictable_as_expected(expected):
    facts = replace(REGRESSION, expected=expected, gamma=0.0)
    found = np.mean([explained(twin(facts, seed)) for seed in range(1, 9)])
    assert found == pytest.approx(expected, abs=0.04)
    assert all(np.abs(pooled(twin(facts, seed))[1]).max() <= 1.0 for seed in range(1, 9))


def by_cluster(made):
    """Features, labels and test set of each cluster."""
    cluster = np.repeat(made.client_cluster, made.counts)
    for number, name in enumerate(made.cluster_ids):
        yield made.features[cluster == number], made.targets[cluster == number], made.tests[name]


@pytest.mark.parametrize("expected", [0.3, 0.6])
def test_models_of_a_twin_explain_what_was_expected_of_as_few_records(tmp_path, expected):
    """36 records and 9 columns: a user who has read of 60 % has read of a model that was fitted to some records."""
    rows = [f"c{k % 12},s{k % 3},q{k % 2}" + 9 * ",0.5" for k in range(72)]
    (tmp_path / "clients.csv").write_text("\n".join(["client,server,cluster,y,a,b,c,d,e,f,g,h", *rows]) + "\n")
    columns = {name: {"bounds": [-1, 1]} for name in "yabcdefgh"}
    data = {"kind": "table", "table": "clients.csv", "target": "y", "columns": columns, "intercept": True}
    settings = {"data": data, "objective": {"kind": "huber"}, "privacy": {"epsilon": 1.0}}
    facts, found = facts_of(parse(settings, tmp_path), expected=expected), []
    for seed in range(1, 21):
        for features, labels, test in by_cluster(twin(facts, seed)):
            model = np.linalg.lstsq(features, labels, rcond=None)[0]
            found.append(1.0 - np.mean((test.targets - test.features @ model) ** 2) / test.targets.var())
    assert np.mean(found) == pytest.approx(expected, abs=0.06)


@pytest.mark.parametrize("facts", [REGRESSION, LABELS])
def test_labels_of_clusters_differ_even_where_their_rows_do_not(facts, monkeypatch):
    monkeypatch.setattr(twins, "CLUSTERS_DIFFER", 0.0)
    apart = []
    for seed in range(2001, 2013):
        labels = [labels for _, labels, _ in by_cluster(twin(facts, seed))]
        apart.append(np.std([own.mean() for own in labels]) / np.mean([own.std() for own in labels]))
    assert np.mean(apart) == pytest.approx(0.14, abs=0.07)


@pytest.mark.parametrize("share", [0.5, 0.06])
def test_two_labels_of_a_made_up_table_are_as_predictable_as_expected(share):
    found = []
    for seed in range(1, 9):
        features, labels = pooled(twin(replace(LABELS, gamma=0.0, label_mean=share), seed))
        model = np.linalg.lstsq(features, labels - 0.5, rcond=None)[0]
        found.append(float(auc((features @ model)[:, None], labels)[0]))
    assert np.mean(found) == pytest.approx(0.8, abs=0.025)


def test_how_well_an_unknown_table_can_be_predicted_is_drawn_for_every_twin():
    unknown = replace(REGRESSION, expected_stated=False, gamma=0.0)
    found = [explained(twin(unknown, seed)) for seed in range(1, 9)]
    assert min(found) < 0.3 and max(found) > 0.5


def test_what_is_stated_of_a_target_is_not_guessed():
    guessed = [pooled(twin(REGRESSION, seed))[1] for seed in range(1, 7)]
    stated = replace(REGRESSION, label_mean=0.3, label_scale=0.2, label_stated=True)
    known = [pooled(twin(stated, seed))[1] for seed in range(1, 7)]
    assert np.std([labels.mean() for labels in guessed]) > 4 * np.std([labels.mean() for labels in known])
    assert np.mean([labels.mean() for labels in known]) == pytest.approx(0.3, abs=0.03)
    assert np.mean([labels.std() for labels in known]) == pytest.approx(0.2, abs=0.03)
    rare = [pooled(twin(replace(LABELS, expected=0.95, label_mean=0.1), seed))[1].mean() for seed in range(1, 7)]
    assert np.mean(rare) == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize(
    ("facts", "mean", "word"),
    [(LABELS, 1.2, "share of the second label"), (REGRESSION, 1.5, "lies within")],
)
def test_a_mean_that_makes_no_sense_is_refused(facts, mean, word):
    with pytest.raises(ConfigError, match=word):
        replace(facts, label_mean=mean)


def test_the_better_labels_can_be_predicted_the_more_columns_have_in_common():
    """As in public tables; so a twin of a table that is easy to learn is easy to learn with noise."""

    def largest(expected):
        shares = []
        for seed in range(1, 25):
            values = np.linalg.eigvalsh(np.cov(twin(replace(REGRESSION, expected=expected), seed).features.T))
            shares.append(values[-1] / values.sum())
        return np.mean(shares)

    assert largest(0.9) > largest(0.2) + 0.05


@pytest.mark.parametrize(
    "facts", [pytest.param(replace(REGRESSION, epsilon=8.0), marks=pytest.mark.proof), replace(LABELS, epsilon=8.0)]
)
def test_no_step_overshoots_whatever_rows_are_like(facts):
    """Even if all rows pointed in one direction, as those of a table nearly do whose categories are uneven."""
    settings = best_foreseen(facts, (1,))
    curvature = (settings.x_norm or facts.x_norm) ** 2 * (2.0 if facts.task == "regression" else 0.25)
    assert curvature / settings.rho <= 2.0 + 1e-9


@pytest.mark.proof
def test_loose_bounds_are_said_to_cost():
    """A target that fills a tenth of its bounds, because of an outlier: tighter bounds are tried, and help most."""
    loose = replace(REGRESSION, label_scale=0.08, label_mean=-0.9, label_stated=True, epsilon=4.0)
    name = "bounds that hold nearly all records and no more"
    assert name not in planner._variants(REGRESSION)
    tighter = planner._variants(loose)[name]
    assert (tighter.label_scale, tighter.label_mean) == (SPREAD_IN_BOUNDS, None)
    reached = [planner.typical(facts, planner.full_search(facts)) for facts in (loose, tighter)]
    assert reached[1] > reached[0] + 10.0
    wide = replace(LABELS, rows=replace(LABELS.rows, spread=0.1))
    assert planner._variants(wide)[name].rows.spread == SPREAD


def test_a_plan_asks_for_what_a_user_may_know():
    found = Plan(REGRESSION, best_foreseen(REGRESSION, (1,)), Forecast(30.0, 10.0, 50.0), 60.0, {}, {"x": 1.0})
    assert "--label-mean" in found.advice and "--label-scale" in found.advice and "--expect" not in found.advice
    assert "--expect" in replace(found, facts=replace(REGRESSION, expected_stated=False)).advice
    assert replace(found, facts=replace(REGRESSION, label_mean=0.1, label_stated=True)).advice is None
    assert "second label" in replace(found, facts=LABELS).advice
    assert replace(found, facts=replace(LABELS, label_mean=0.3)).advice is None


@pytest.mark.proof
def test_hopeless_training_on_a_real_table_is_foretold(configs):
    """Nine records per client and ε = 0.3: the plan says so before anything is spent, and a run confirms it."""
    facts = facts_of(configs["diabetes"], expected=0.48, epsilon=0.3)
    foretold, reached = predicted_and_reached(configs["diabetes"], facts)
    found = planner.Plan(facts, best_foreseen(facts, (1,)), foretold, 40.0, {}, {"twice the records per client": 3.0})
    assert found.drowned and "too noisy" in found.verdict
    assert reached.mean() < 10.0


def stated_bounds(config):
    """The bounds of a config, as options of `pgfl init`."""
    columns = config.data.columns.items()
    return [f"--bounds={name}={low}:{high}" for name, column in columns for low, high in [column.bounds]]


@pytest.mark.proof
def test_init_plans_by_default_and_its_run_agrees_without_a_warning(configs, tmp_path):
    """The path that most people take, on a table that was useless on it: R² −0.25, called "converged"."""
    table, bounds, out = Path(configs["diabetes"].data.table), stated_bounds(configs["diabetes"]), tmp_path / "p.toml"
    assert run("init", str(table), "--no-plan", "--out", str(out)).code == 2
    found = run("init", str(table), "--target", "progression", "--epsilon", "8", "--out", str(out), *bounds)
    assert (found.code, found.err) == (0, "") and "Planned from public facts alone: At ε = 8 models" in found.out
    text = out.read_text("utf-8")
    assert "# At ε = 8 models will keep" in text.splitlines()[1]
    config = load_config(str(out))
    assert config.algorithm.count == "records" and config.privacy.max_releases == config.rounds
    assert not planner.is_open(config)
    result = experiment.run(load_config(str(out), ["privacy.noise=seeded"]))
    whole = next(each.whole for each in result.measures if each.name == "r2")
    assert whole.value > 0.2 and not result.warnings and result.verdict.kind in ("useful", "converged")


def test_the_plan_of_a_planned_config_is_the_same(configs, monkeypatch):
    """Of what `pgfl init` wrote, `pgfl plan` foretells what `pgfl init` did."""
    for name, seeds in (("SEEDS", (1,)), ("JUDGING_SEEDS", (11, 12, 13))):
        monkeypatch.setattr(planner, f"TABLE_{name}", seeds)
    first = planner.plan(configs["fair"], whole=False)
    assert first.settings.x_norm is not None
    again = planner.plan(first.config, whole=False)
    assert again.config == first.config and again.settings == replace(first.settings, x_norm=None)
    assert (again.predicted, again.kept, again.verdict) == (first.predicted, first.kept, first.verdict)


@pytest.mark.proof
def test_a_private_run_that_states_no_settings_plans_first(configs, tmp_path, monkeypatch):
    """Which is the same as planning before; nobody plans over what is stated."""
    monkeypatch.setattr(planner, "TABLE_SEEDS", (1,))
    monkeypatch.setattr(planner, "TABLE_JUDGING_SEEDS", (11, 12))
    table, bounds, out = Path(configs["diabetes"].data.table), stated_bounds(configs["diabetes"]), tmp_path / "o.toml"
    options = ["--target", "progression", "--epsilon", "8", "--out", str(out)]
    assert run("init", str(table), *options, *bounds[:-1]).code == 0  # a bound is missing, so nothing can be planned
    name, _, value = bounds[-1].removeprefix("--bounds=").partition("=")
    missing = f"# {name} = {{ bounds = [LOW, HIGH] }}"
    assert missing in out.read_text("utf-8")
    out.write_text(out.read_text("utf-8").replace(missing, f"{name} = {{ bounds = [{value.replace(':', ', ')}] }}"))
    config = load_config(str(out))
    assert planner.is_open(config)
    for stated in ("rounds=9", "algorithm.rho=3", "algorithm.tau=0.1", "privacy.zeta=0.9", "objective.lam=0.1"):
        assert not planner.is_open(load_config(str(out), [stated])), stated
    assert not planner.is_open(load_config(str(out), ["privacy.enabled=false"]))
    ended = run("run", str(out), "--set", "privacy.noise=seeded", "--out", str(tmp_path / "result"), "--json")
    assert ended.code == 0
    ran = load_config(tmp_path / "result" / "config.toml")
    planned = planner.plan(config, whole=False).config
    assert (ran.algorithm, ran.rounds, ran.privacy.zeta) == (planned.algorithm, planned.rounds, planned.privacy.zeta)


def test_every_setting_of_a_plan_has_a_reason():
    settings = replace(best_foreseen(REGRESSION, (1,)), x_norm=1.5)
    found = {choice.key: choice.reason for choice in choices(REGRESSION, settings, own_records=True)}
    decided = ("rounds", "algorithm.rho", "algorithm.tau", "algorithm.count", "objective.kappa", "privacy.zeta",
               "privacy.max_releases", "privacy.x_norm")  # fmt: skip
    assert set(decided) < set(found) and all(found.values())


def test_no_plan_lets_clusters_swap_or_rows_overshoot():
    """What it writes runs without warnings: τ stays below (Q − 1)/Q, and ρ above half of the steepest curvature."""
    for clusters in (2, 3):
        facts = replace(REGRESSION, clusters=clusters, gamma=0.01, epsilon=0.3)
        length = facts.x_norm
        points = np.random.default_rng(0).normal(3.0, 3.0, (50, 6))
        tried = Point.candidates(points, facts, length)
        assert tried.tau.max() < (clusters - 1) / clusters
        assert tried.rho.min() > length**2


@pytest.mark.proof
@pytest.mark.parametrize("facts", [REGRESSION, replace(LABELS, expected=0.7), replace(LABELS, labels=4)])
def test_more_epsilon_clients_or_records_are_not_expected_to_do_worse(facts):
    """On twins that no search has seen, before figures are made monotone."""
    others = (replace(facts, epsilon=0.5), facts, replace(facts, epsilon=8.0))
    less, own, more = (planner.typical(other, best_foreseen(other, (1, 2))) for other in others)
    assert less - 0.5 < own < more + 0.5
    for other in (facts.with_more_clients(2), facts.with_more_records(2)):
        assert planner.typical(other, best_foreseen(other, (1, 2))) > own - 0.5


@pytest.mark.proof
@pytest.mark.parametrize(
    ("name", "measure", "trust"),
    [("diabetes", "r2", "local"), ("diabetes", "r2", "site"), ("fair", "log_loss", "masked")],
)
def test_more_epsilon_never_gives_a_worse_planned_model(configs, name, measure, trust):
    """Beyond noise: over three splits, the median loss falls or is within a tenth of the trivial one's."""
    losses = []
    for epsilon in (1.0, 8.0, 64.0):
        facts = facts_of(configs[name], epsilon=epsilon, trust=trust)
        config = configured(configs[name], facts, best_foreseen(facts, (1, 2)))
        config = config.model_copy(update={"privacy": config.privacy.model_copy(update={"noise": "seeded"})})
        results = [experiment.run(config.model_copy(update={"seed": seed})) for seed in range(3)]
        assert not any(result.warnings for result in results)
        found = [next(one.whole for one in result.measures if one.name == measure) for result in results]
        losses.append(np.median([one.value if measure == "log_loss" else 1.0 - one.value for one in found]))
    trivial = 1.0 if measure == "r2" else found[0].baseline
    assert all(later <= earlier + 0.1 * trivial for earlier, later in pairwise(losses)), losses
    assert losses[-1] < trivial, losses


@pytest.mark.proof
@pytest.mark.parametrize(("name", "epsilon", "trust"), CASES)
def test_what_is_predicted_for_a_table_is_what_runs_on_it_reach(configs, name, epsilon, trust, record_property):
    """Bounds are public and the twin has never seen a cell: what one run reaches lies in the interval nearly always."""
    spread = {"spread": 0.5} if name == "digits" else {}
    facts = replace(facts_of(configs[name], expected=TABLES[name][2], **spread), epsilon=epsilon, trust=trust)
    foretold, reached = predicted_and_reached(configs[name], facts)
    record_property("difference", float(foretold.value - reached.mean()))
    assert np.mean((reached >= foretold.low) & (reached <= foretold.high)) >= 0.8
