"""A plan rests on public facts, its twin is as predictable as stated, and what it predicts is what runs achieve."""

import json
from dataclasses import replace

import numpy as np
import pytest

from pgfl import Facts, Privacy, plan, synthetic_regression, train
from pgfl.config import load_config, parse
from pgfl.errors import ConfigError
from pgfl.metrics import auc, decibels
from pgfl.planning import forecast, planner
from pgfl.planning.facts import MOST_NUMBERS, facts_of
from pgfl.planning.forecast import NAMES
from pgfl.planning.planner import errors
from pgfl.planning.search import Settings, best_foreseen
from pgfl.planning.twin import twin
from tests.command_line import run

SMALL = Facts(servers=4, clients_per_server=6, clusters=2, records=(60, 100), columns=8, x_norm=1.0, epsilon=2.0)

SETTINGS = Settings(rho=0.2, zeta=0.926, releases=15, tau=0.4, kappa=0.15)


def write_table(folder, seed):
    """The same places and counts for every seed, other features and labels."""
    rng = np.random.default_rng(seed)
    lines = ["client,server,cluster,y,a,b"]
    for client in range(6):
        for _ in range(3 + client):
            numbers = ",".join(f"{v:.3f}" for v in rng.normal(size=3))
            lines.append(f"c{client},s{client % 3},q{client % 2},{numbers}")
    (folder / "clients.csv").write_text("\n".join(lines) + "\n")
    privacy = {"epsilon": 1.0, "x_norm": 2.0}
    settings = {"data": {"kind": "table", "table": "clients.csv"}, "objective": {"kind": "huber"}, "privacy": privacy}
    return parse(settings, folder)


def test_scrambled_records_leave_the_facts_as_they_are(tmp_path):
    found = []
    for seed in (1, 2):
        (tmp_path / str(seed)).mkdir()
        found.append(facts_of(write_table(tmp_path / str(seed), seed)))
    assert found[0] == found[1]
    assert (found[0].servers, found[0].clients, found[0].clusters, found[0].columns) == (3, 6, 2, 2)
    assert found[0].records == (3, 8)
    assert [records for _, _, records in found[0].placement.clients] == [3, 4, 5, 6, 7, 8]


@pytest.mark.proof
def test_scrambled_records_leave_the_plan_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(planner, "LEVELS", (1.0,))
    found = []
    for seed in (1, 2):
        (tmp_path / str(seed)).mkdir()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / str(seed)))  # where no other plan is kept
        config = write_table(tmp_path / str(seed), seed)
        columns = {name: {"bounds": [-5, 5]} for name in "aby"}
        settings = config.model_dump(exclude_none=True)
        settings["data"] |= {"columns": columns, "intercept": True}
        found.append(plan(parse(settings, tmp_path / str(seed))))
    assert found[0] == found[1]
    assert found[0].described() == found[1].described()
    assert found[0].facts.rows is not None and found[0].measure == "R²"


def test_the_facts_of_generated_data_are_its_settings():
    facts = facts_of(load_config("private-huber"))
    assert (facts.servers, facts.clients, facts.records, facts.columns) == (10, 150, (50, 100), 60)
    assert facts.label_scale == pytest.approx(np.sqrt(60 + 0.49))
    assert facts_of(load_config("private-logistic-mnist")).records == (20, 36)
    assert facts_of(load_config("private-huber"), epsilon=3.0, expected=None).epsilon == 3.0


@pytest.mark.parametrize(
    ("change", "word"),
    [({"epsilon": 0.0}, "epsilon"), ({"expected": 1.2}, "expected share"), ({"records": (5, 2)}, "least, most")],
)
def test_facts_that_make_no_sense_are_refused(change, word):
    with pytest.raises(ConfigError, match=word):
        replace(SMALL, **change)


def test_a_plan_without_an_epsilon_or_a_bound_says_what_is_missing():
    with pytest.raises(ConfigError, match=r"privacy\.epsilon"):
        facts_of(load_config("paper-fig2"))


def test_a_large_federation_is_planned_on_fewer_servers():
    large = replace(SMALL, servers=100_000)
    small = large.planned
    assert small.clients * small.mean_records * small.columns <= MOST_NUMBERS
    assert SMALL.planned is SMALL


def test_a_twin_is_as_predictable_as_expected():
    made = twin(replace(SMALL, expected=0.7, label_scale=3.0, records=(400, 400)), 1)
    cluster = np.repeat(made.client_cluster, made.counts)
    predicted = np.einsum("ij,ij->i", made.features, made.truth[cluster])
    assert made.targets.std() == pytest.approx(3.0, rel=0.25)
    assert 1.0 - np.var(made.targets - predicted) / np.var(made.targets) == pytest.approx(0.7, abs=0.1)
    assert np.linalg.norm(made.features, axis=1) == pytest.approx(np.ones(len(made.targets)))


def test_a_twin_of_a_classification_has_the_expected_auc():
    facts = replace(SMALL, task="classification", expected=0.85, records=(400, 400))
    plain, made = twin(replace(facts, task="regression", expected=0.999), 1), twin(facts, 1)
    assert float(auc(plain.targets[:, None], made.targets)[0]) == pytest.approx(0.85, abs=0.02)
    assert set(made.targets) == {0.0, 1.0}


@pytest.fixture(scope="module")
def planned():
    return plan(SMALL)


@pytest.mark.proof
def test_what_is_predicted_is_what_runs_on_other_federations_achieve(planned):
    """Data that the twin does not know: another generator's seed and noise; on average the plan is right to 1.5 dB."""
    settings, scale = planned.settings, np.sqrt(8 / 0.8)
    reached = []
    for seed in range(50, 56):
        made = synthetic_regression(
            servers=4, clients_per_server=6, clusters=2, dimension=8, samples=(60, 100), x_norm=1.0,
            observation_noise=np.sqrt(8 * 0.25), seed=seed,
        )  # fmt: skip
        made = made.replace(targets=made.targets / scale, truth=made.truth / scale, generated=True)
        budget = {"epsilon": 2.0, "zeta": settings.zeta, "max_releases": settings.releases, "index": "release"}
        privacy = Privacy(**budget, x_norm=1.0)
        run_ = train(
            made, settings.algorithm, settings.objective, rounds=settings.rounds, privacy=privacy, metrics=["nmsd"],
            record_every=settings.rounds, seed=seed,
        )  # fmt: skip
        reached.append(decibels(run_.curve("nmsd")[0, -1]))
    assert np.mean(reached) == pytest.approx(planned.predicted.value, abs=1.5)


@pytest.mark.proof
def test_a_plan_says_what_more_privacy_and_more_data_would_do(planned):
    curve = list(planned.by_epsilon.values())
    assert curve[0] > curve[1] > curve[-1] >= planned.limit
    assert planned.helps["twice the records per client"] > 0
    assert planned.predicted.low < planned.predicted.value < planned.predicted.high
    assert "explain about" in planned.verdict
    json.dumps(planned.described())


@pytest.mark.proof
def test_a_picture_shows_every_level_of_trust_beside_the_limit(planned):
    axes = planned.plot()
    assert [line.get_label() for line in axes.lines if not line.get_label().startswith("_")][:4] == [
        *(NAMES[trust] for trust in planner.TRUSTS), "without privacy",
    ]  # fmt: skip
    assert list(axes.lines[0].get_ydata()) == list(planned.by_trust["local"].values())
    assert axes.lines[3].get_ydata()[0] == planned.limit


@pytest.mark.proof
def test_a_plan_shows_every_level_of_trust(planned):
    assert set(planned.by_trust) == {"local", "masked", "site"}
    assert planned.by_epsilon == planned.by_trust["local"]
    assert list(planned.described()["by_trust"]["site"]) == ["0.25", "1", "2", "4", "16"]


@pytest.mark.proof
def test_the_table_has_the_same_figure_for_the_plan_itself(planned):
    assert planned.by_trust["local"][SMALL.epsilon] == planned.predicted.value < planned.by_trust["local"][1.0]


@pytest.mark.parametrize("facts", [SMALL, replace(SMALL, task="classification", expected=0.9)])
def test_no_figure_is_worse_than_one_with_less_epsilon_or_trust(facts):
    """Whatever was found: a search that ends badly, or a figure of other twins, does not show."""
    rng = np.random.default_rng(0)
    sign = -1.0 if facts.uses_nmsd else 1.0
    for _ in range(50):
        found = {(trust, level): rng.normal() for trust in planner.TRUSTS for level in (0.25, 1.0, 2.0, 4.0)}
        own = ("masked", 2.0)
        curves, instead = planner.monotone(found, own, facts)
        shown = sign * np.array([list(curves[trust].values()) for trust in planner.TRUSTS])
        assert (np.diff(shown, axis=0) >= 0.0).all() and (np.diff(shown, axis=1) >= 0.0).all()
        assert curves["masked"][2.0] == found[own]
        assert all(curves[cell[0]][cell[1]] == curves[trust][cell[1]] for cell, trust in instead.items())


def test_more_trust_is_never_planned_worse(planned):
    """Who trusts more can still do what needs less trust; where that is better, the plan says so."""
    for level in planner.LEVELS:
        local, masked, site = (planned.by_trust[trust][level] for trust in planner.TRUSTS)
        assert local >= masked >= site
    for (trust, level), instead in planned.instead.items():
        assert planned.by_trust[trust][level] == planned.by_trust[instead][level]


def test_nothing_private_is_planned_better_than_the_limit_without_privacy():
    curves = {"local": {1.0: -8.0, 16.0: -33.8}, "site": {16.0: -35.8}}
    assert planner.limit_beside(curves, SMALL, -34.5) == -35.8
    assert planner.limit_beside(curves, SMALL, -36.0) == -36.0
    accuracies = {"local": {1.0: 60.0, 16.0: 91.0}}
    assert planner.limit_beside(accuracies, replace(SMALL, task="classification"), 90.0) == 91.0


def test_trust_helps_where_many_clients_share_a_cluster():
    """With three of them, as in `SMALL`, it need not: those who are alone sit out, and h is 1 where there are two."""
    many = replace(SMALL, clients_per_server=16, epsilon=0.25)
    local, masked, site = (
        planner.evaluate_on_twins(replace(many, trust=trust), SETTINGS).mean() for trust in ("local", "masked", "site")
    )
    assert site < masked < local - 2.0


@pytest.mark.proof
@pytest.mark.parametrize("trust", ["site", "masked"])
def test_what_is_predicted_for_shared_noise_is_what_runs_on_other_federations_achieve(trust):
    """With more columns than `SMALL` has, so that the length of a cluster's true model depends less on chance."""
    facts = replace(SMALL, trust=trust, clients_per_server=12, columns=24)
    settings = best_foreseen(facts, (1,))
    predicted = planner.evaluate_on_twins(facts, settings, range(11, 17)).mean()
    reached = []
    for seed in range(50, 56):
        made = synthetic_regression(
            servers=4, clients_per_server=12, clusters=2, dimension=24, samples=(60, 100), x_norm=1.0,
            observation_noise=np.sqrt(24 * 0.25), seed=seed,
        )  # fmt: skip
        scale = np.sqrt(24 / 0.8)
        made = made.replace(targets=made.targets / scale, truth=made.truth / scale, generated=True)
        budget = {"epsilon": 2.0, "zeta": settings.zeta, "max_releases": settings.releases, "index": "release"}
        run_ = train(
            made, settings.algorithm, settings.objective, rounds=settings.rounds, metrics=["nmsd"], seed=seed,
            privacy=Privacy(**budget, x_norm=1.0, trust=trust), record_every=settings.rounds,
        )  # fmt: skip
        reached.append(decibels(run_.curve("nmsd")[0, -1]))
    assert np.mean(reached) == pytest.approx(predicted, abs=1.5)


def test_a_trust_that_clients_are_too_few_for_is_refused_or_left_out():
    with pytest.raises(ConfigError, match=r"privacy\.contributors"):
        plan(replace(SMALL, trust="site", contributors=9))
    alone = replace(SMALL, clusters=6)
    assert not alone.trusted.aggregates and alone.per_pair == 1
    assert [planner.possible(replace(alone, trust=trust)) for trust in planner.TRUSTS] == [True, False, False]
    assert replace(SMALL, trust="site").equivalent_local_epsilon == pytest.approx(2.0 * np.sqrt(3))


def test_the_trust_of_a_config_is_a_fact_and_comes_back_in_the_planned_config():
    config = load_config("private-huber", ["privacy.trust=masked", "privacy.colluders=2"])
    facts = facts_of(config)
    assert (facts.trust, facts.colluders) == ("masked", 2)
    made = forecast.configured(config, facts, SETTINGS)
    assert (made.privacy.trust, made.privacy.colluders) == ("masked", 2)


def test_noise_that_will_drown_the_signal_is_said_so():
    facts = replace(SMALL, epsilon=0.02, records=(5, 5))
    hopeless = forecast.Plan(
        facts, SETTINGS, forecast.Forecast(2.0, 1.0, 3.0), -20.0, {}, {"twice the records per client": 3.0}
    )
    assert hopeless.drowned
    assert "too noisy" in hopeless.verdict and "twice the records" in hopeless.verdict
    assert decibels(errors(facts, SETTINGS, [1])[0]) > forecast.DROWNED_DB


@pytest.mark.proof
def test_the_command_writes_a_config_that_can_be_run(tmp_path):
    out = tmp_path / "planned.toml"
    chosen = ["data.servers=3", "data.clients_per_server=4", "data.dimension=4", "graph.kind=complete"]
    source = tmp_path / "mine.toml"
    base = load_config("private-huber", chosen)
    from pgfl.config import to_toml

    source.write_text(to_toml(base))
    picture = tmp_path / "plan.svg"
    options = ["--json", "--out", str(out), "--picture", str(picture)]
    code, printed, _ = run("plan", str(source), *options)
    assert code == 0
    drawn = picture.read_text("utf-8")
    assert drawn.startswith("<?xml") and "<svg" in drawn
    wrong = run("plan", str(source), "--picture", str(tmp_path / "plan.txt"))
    assert wrong.code == 2 and ".png" in wrong.err
    said = json.loads(printed)
    config = load_config(str(out))
    assert config.algorithm.client == "gradient"
    assert config.privacy.epsilon == base.privacy.epsilon
    assert config.privacy.max_releases == said["settings"]["releases"] == config.rounds


def test_the_bounds_of_declared_columns_are_facts(tmp_path):
    """`pgfl plan` takes the config that `pgfl init --epsilon` writes, which states bounds instead of x_norm."""
    config = write_table(tmp_path, 1)
    columns = {name: {"bounds": [-5, 5]} for name in "aby"}
    settings = config.model_dump(exclude_none=True) | {"privacy": {"epsilon": 1.0}}
    settings["data"] |= {"columns": columns, "intercept": True}
    facts = facts_of(parse(settings, tmp_path))
    assert (facts.x_norm, facts.label_scale) == (pytest.approx(np.sqrt(3.0)), 0.4)
    settings["privacy"]["x_norm"] = 0.7
    assert facts_of(parse(settings, tmp_path)).x_norm == 0.7
    settings["objective"] = {"kind": "softmax", "classes": 3}
    settings["data"]["columns"].pop("y")
    labels = facts_of(parse(settings, tmp_path))
    assert (labels.task, labels.labels, labels.expected_stated) == ("classification", 3, False)
