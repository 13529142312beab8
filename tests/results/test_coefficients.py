"""Coefficients in the table's units, and how often their intervals cover the truth."""

import json
from functools import cache

import numpy as np
import polars as pl
import pytest

from pgfl import PGFL, Column, Federation, Huber, Logistic, Privacy, Result, Ridge, Softmax, train
from pgfl.algorithms.algorithms import ExactMixing
from pgfl.errors import ResultError
from pgfl.results.coefficients import Units
from pgfl.simulate.inference import WeightedLoss, fit
from pgfl.simulate.private_inference import NoisePath, private_fits
from tests import command_line
from tests.sample_results import sample_result

TRUTH = np.array([0.8, -0.5, 0.3])
COLUMNS = {
    "age": Column(bounds=(20.0, 80.0)),
    "sex": Column(categories=("f", "m", "x")),
    "smoker": Column(boolean=True),
}


def people(rows=400, seed=0):
    """Two clusters of clients with unequally many rows; errors grow with age, so that a plain formula is wrong."""
    rng = np.random.default_rng(seed)
    age, sex, smoker = rng.uniform(20, 80, rows), rng.choice(["f", "m", "x"], rows), rng.integers(0, 2, rows)
    cluster = rng.choice(["a", "b"], rows)
    client = [f"{q}{number}" for q, number in zip(cluster, (rng.random(rows) ** 2 * 5).astype(int), strict=True)]
    effect = 0.1 * age + 2.0 * (sex == "m") - 1.5 * smoker
    odds = 0.03 * (age - 50) + 0.8 * (sex == "m") - 0.5 * smoker
    return pl.DataFrame(
        {
            "client": client,
            "cluster": cluster,
            "age": age,
            "sex": sex,
            "smoker": smoker,
            "y": 5.0 + effect + rng.normal(size=rows) * (0.2 + 0.03 * age),
            "ill": (rng.random(rows) < 1 / (1 + np.exp(-odds))).astype(int),
            "stage": np.digitize(odds + rng.logistic(size=rows), [-0.8, 0.8]),
        }
    )


def trained(target="y", objective=None, count="records", columns=None, rounds=40, **options):
    declared = COLUMNS | (columns or {})
    if target == "y":
        declared["y"] = Column(bounds=(-10.0, 30.0))
    if target == "stage":
        declared["stage"] = Column(labels=("0", "1", "2"))
    table = people().select("client", "cluster", "age", "sex", "smoker", target)
    federation = Federation.read(table, target=target, columns=declared, intercept=True)
    algorithm = ExactMixing(rho="auto", count=count)
    return train(federation, algorithm, objective or Ridge(lam=0.01), rounds=rounds, progress=False, **options)


def design(frame):
    return np.column_stack(
        [frame["age"], frame["sex"] == "m", frame["sex"] == "x", frame["smoker"], np.ones(len(frame))]
    ).astype(float)


@pytest.mark.parametrize("count", ["records", "clients"])
def test_estimates_and_errors_of_a_regression_are_those_of_statsmodels(count):
    import statsmodels.api as sm

    table, frame = trained(count=count).coefficients(level=0.9), people().filter(pl.col("cluster") == "b")
    sizes = frame.select(pl.len().over("client"))["len"].to_numpy()
    weights = 1.0 / sizes if count == "clients" else np.ones(len(frame))
    expected = sm.WLS(frame["y"].to_numpy(), design(frame), weights).fit(cov_type="HC1", use_t=True)
    found = table.filter(pl.col("cluster") == "b")
    assert found["feature"].to_list() == ["age", "sex=m", "sex=x", "smoker", "intercept"]
    assert found["reference"].to_list() == [None, "f", "f", None, None]
    np.testing.assert_allclose(found["estimate"], expected.params, rtol=1e-6)
    np.testing.assert_allclose(found["std_error"], expected.bse, rtol=1e-6)
    np.testing.assert_allclose(found.select("low", "high"), expected.conf_int(0.1), rtol=1e-6)
    np.testing.assert_allclose(found["coefficient"], expected.params, rtol=0.02, atol=1e-3)  # a small penalty


def test_odds_ratios_are_those_of_statsmodels():
    import statsmodels.api as sm

    table, frame = trained("ill", Logistic(lam=0.05)).coefficients(), people().filter(pl.col("cluster") == "a")
    expected = sm.Logit(frame["ill"].to_numpy(), design(frame)).fit(disp=0, cov_type="HC0")
    found, size = table.filter(pl.col("cluster") == "a"), np.sqrt(len(frame) / (len(frame) - 5))
    np.testing.assert_allclose(found["odds_ratio"], np.exp(expected.params), rtol=1e-4)
    np.testing.assert_allclose(found["std_error"], expected.bse * size, rtol=3e-3)
    np.testing.assert_allclose(np.log(found["odds_low"]), found["low"], rtol=1e-9)
    assert found["coefficient"][0] < 0.95 * found["estimate"][0]  # the penalty shrinks


def test_labels_are_compared_with_the_first():
    import statsmodels.api as sm

    table, frame = (
        trained("stage", Softmax(lam=1e-4), rounds=10).coefficients(),
        people().filter(pl.col("cluster") == "a"),
    )
    expected = sm.MNLogit(frame["stage"].to_numpy(), design(frame)).fit(disp=0)
    for number, label in enumerate(("1", "2")):
        found = table.filter((pl.col("cluster") == "a") & (pl.col("label") == label))
        np.testing.assert_allclose(found["estimate"], expected.params[:, number], rtol=1e-3, atol=1e-4)


def test_the_table_predicts_what_the_model_predicts():
    """Every kind of column: in original units, rows times coefficients plus the intercept are the predictions."""
    rng = np.random.default_rng(3)
    rows = 120
    cells = {
        "client": rng.choice(["k", "l"], rows).tolist(),
        "age": [None if rng.random() < 0.2 else float(value) for value in rng.uniform(20, 80, rows)],
        "dose": rng.normal(size=rows).tolist(),
        "weight": rng.choice([40.0, 60.0, 80.0, 100.0], rows).tolist(),
        "town": rng.choice(["north", "south", "elsewhere"], rows).tolist(),
        "y": rng.uniform(0, 10, rows).tolist(),
    }
    columns = {
        "age": Column(bounds=(20.0, 80.0), missing="indicator"),
        "weight": Column(bounds=(40.0, 100.0), knots=4),
        "town": Column(categories=("north", "south"), other=True),
        "y": Column(bounds=(0.0, 10.0)),
    }
    federation = Federation.read(cells, target="y", columns=columns, intercept=True)
    result = train(federation, ExactMixing(rho="auto"), Ridge(), rounds=30, progress=False)
    table = result.coefficients()
    terms = dict(zip(table["feature"], table["coefficient"], strict=True))
    fill = 50.0  # of an indicator: the middle of the bounds
    expected = np.full(rows, terms["intercept"])
    for row in range(rows):
        age, weight, town = cells["age"][row], cells["weight"][row], cells["town"][row]
        expected[row] += terms["age"] * (fill if age is None else age) + terms["dose"] * cells["dose"][row]
        expected[row] += terms["age=missing"] if age is None else 0.0
        expected[row] += 0.0 if weight == 40.0 else terms[f"weight={weight:g}"]
        expected[row] += 0.0 if town == "north" else terms["town=south" if town == "south" else "town=other"]
    new = {name: values for name, values in cells.items() if name not in ("client", "y")}
    np.testing.assert_allclose(result.predict(new), expected, rtol=1e-9)


@pytest.mark.parametrize("kind", ["fourier", "products"])
def test_a_map_that_mixes_columns_leaves_no_coefficients(kind):
    table = people().select("client", "age", "smoker", "y")
    columns = {"age": Column(bounds=(20.0, 80.0)), "smoker": Column(boolean=True), "y": Column(bounds=(-10.0, 30.0))}
    federation = Federation.read(table, target="y", columns=columns, map=kind, intercept=True)
    result = train(federation, ExactMixing(), Ridge(), rounds=2, progress=False)
    with pytest.raises(ResultError, match=f'The map "{kind}" mixes columns'):
        result.coefficients()
    with pytest.raises(ResultError, match="mixes columns"):
        Units.of(federation.encoding)


def test_what_the_records_do_not_determine_has_no_interval():
    """An unseen category, and a loss without curvature."""
    table = trained(columns={"sex": Column(categories=("f", "m", "x"), other=True)}, rounds=20).coefficients()
    unseen = table.filter(pl.col("feature") == "sex=other")
    assert unseen["std_error"].null_count() == 2 and unseen["coefficient"].null_count() == 0
    assert table.filter(pl.col("feature") != "sex=other")["std_error"].null_count() == 0


def private_federation(seed=0, rows=1500, test=0.2):
    """A table whose coefficients are known: 0.05 per year of age, 1 for men, in both clusters at both servers."""
    rng = np.random.default_rng([17, seed])
    age, sex, number = rng.uniform(20, 80, rows), rng.choice(["f", "m"], rows), rng.integers(0, 12, rows)
    cells = {
        "client": [f"client-{k}" for k in number],
        "server": [f"server-{k % 2}" for k in number],
        "cluster": ["a" if k < 6 else "b" for k in number],
        "age": age,
        "sex": sex,
        "y": 0.05 * (age - 50) + (sex == "m") + rng.normal(size=rows),
    }
    columns = {"age": COLUMNS["age"], "sex": Column(categories=("f", "m")), "y": Column(bounds=(-6.0, 6.0))}
    return Federation.read(cells, columns=columns, intercept=True, graph="complete", test=test, seed=seed)


def privately(federation, seed=0, rounds=20, epsilon=8.0, trust="local", client="gradient", **options):
    privacy = Privacy(epsilon=epsilon, max_releases=rounds, index="release", noise="seeded", trust=trust)
    algorithm = PGFL(rho="auto", count="records", client=client)
    return train(federation, algorithm, Huber(), rounds=rounds, seed=seed, privacy=privacy, progress=False, **options)


def test_a_private_run_reads_no_training_record_for_standard_errors():
    federation, path = private_federation(), NoisePath()
    result = privately(federation, observers=[path])
    assert "no training record was read" in result.fits_note
    assert result.coefficients()["std_error"].null_count() == 0
    other = federation.replace(features=0.0 * federation.features, targets=0.0 * federation.targets)
    found, _ = private_fits(path, result.model(), other, Huber())
    for name, values in result.fits.items():
        np.testing.assert_array_equal(found[name], values)


@pytest.mark.parametrize(("options", "test"), [({"client": "admm"}, 0.2), ({}, None)])
def test_without_what_they_need_private_standard_errors_are_left_out_and_it_is_said(options, test):
    result = privately(private_federation(test=test), rounds=3, **options)
    table = result.coefficients()
    assert table["std_error"].null_count() == len(table) and table["coefficient"].null_count() == 0
    assert "left out" in result.fits_note


@pytest.mark.proof
@pytest.mark.parametrize("trust", ["local", "site"])
def test_the_noise_of_final_models_is_what_the_rounds_pass_on(trust):
    """Over seeds of the noise: near misses are a wrong variance, and noise that nothing wears off."""
    federation, models = private_federation(rows=600, test=None), []
    for seed in range(20):
        path = NoisePath()
        models.append(privately(federation, seed, 12, 4.0, trust, observers=[path]).model().clusters)
    rows = np.repeat(federation.client_cluster == 0, federation.counts)
    features = federation.features[rows].astype(float)
    values, vectors = np.linalg.eigh(2.0 * features.T @ features / len(features))  # almost no residual is beyond κ
    seen = (np.array(models)[:, 0] @ vectors).var(axis=0, ddof=1)
    expected, unworn = path.passed_on(0, values)[1], sum(one.variance[0] for one in path.rounds)
    ratio = float(np.mean((seen / expected)[1:]))  # the first direction has no curvature
    assert 0.7 <= ratio <= 1.4, ratio
    assert float(np.mean((seen / unworn)[1:])) < 0.5


@pytest.mark.proof
def test_private_intervals_cover_the_truth_as_often_as_they_say():
    hits, scores = [], []
    for seed in range(7000, 7080):
        table = privately(private_federation(seed), seed, 30).coefficients()
        table = table.filter(pl.col("feature") != "intercept")
        off = table["estimate"].to_numpy() - np.tile([0.05, 1.0], 2)
        hits.append(np.abs(off) <= table["high"].to_numpy() - table["estimate"].to_numpy())
        scores.append(off / table["std_error"].to_numpy())
    assert 0.93 <= np.mean(hits) <= 0.97, np.mean(hits)
    assert 0.9 <= np.std(scores) <= 1.1, np.std(scores)  # standard errors too short or too long by a sixth are seen


def test_saved_coefficients_read_back_and_show(tmp_path):
    result = trained("ill", Logistic(), rounds=30)
    folder = result.save(tmp_path / "out")
    again = Result.load(folder)
    assert again.coefficients(0.8).equals(result.coefficients(0.8))
    assert pl.read_csv(folder / "coefficients.csv").columns == result.coefficients().columns
    assert "Coefficients in the table" in (folder / "report.html").read_text("utf-8")
    shown = command_line.run("coefficients", folder, "--cluster", "b")
    assert shown.code == 0 and "Cluster b" in shown.out and "Cluster a" not in shown.out
    rows = json.loads(command_line.run("coefficients", folder, "--json").out)
    assert len(rows) == 10 and rows[0]["feature"] == "age"
    with pytest.raises(ResultError, match="between 0 and 1"):
        again.coefficients(95)


@cache
def simulated(kind, rows=160):
    """500 simulations with errors that grow with a feature: the loss and what was found out about its minimum.

    Newton's method starts at a model that is shrunk by a third, as a penalty or other clusters would.
    """
    objective, found = Ridge() if kind == "ridge" else Logistic(), []
    for seed in range(500):
        rng = np.random.default_rng([90, seed])
        features = np.column_stack([rng.uniform(-1, 1, (rows, 2)), np.ones(rows)])
        margin = features @ TRUTH
        targets = margin + rng.normal(size=rows) * (0.1 + np.abs(features[:, 0]))
        if kind == "logistic":
            targets = (rng.random(rows) < 1 / (1 + np.exp(-margin))).astype(float)
        loss = WeightedLoss(objective, features, targets, np.full(rows, 1.0 / rows))
        found.append((loss, fit(loss, TRUTH * 2 / 3)))
    return found


def covered(kind, interval):
    """The share of intervals that cover the truth; `interval` makes centre and standard errors of a fit."""
    made = [interval(loss, found.estimate, np.sqrt(np.diag(found.covariance))) for loss, found in simulated(kind)]
    return np.mean([np.abs(estimate - TRUTH) <= 1.975 * error for estimate, error in made], axis=0)


@pytest.mark.parametrize("kind", ["ridge", pytest.param("logistic", marks=pytest.mark.proof)])
def test_intervals_cover_the_truth_as_often_as_they_say(kind):
    share = covered(kind, lambda loss, estimate, error: (estimate, error))
    assert (share >= 0.93).all() and (share <= 0.97).all(), share


def plain_formula(loss, estimate, error):
    """σ²(XᵀX)⁻¹, which takes all errors for equally large."""
    left = loss.targets - loss.features @ estimate
    inverse = np.linalg.inv(loss.features.T @ loss.features)
    return estimate, np.sqrt(np.diag(inverse) * (left @ left) / (len(left) - 3))


@pytest.mark.parametrize(
    "worse",
    [
        lambda loss, estimate, error: (estimate, 0.85 * error),
        lambda loss, estimate, error: (estimate, 1.2 * error),
        lambda loss, estimate, error: (estimate * 0.8, error),
        plain_formula,
    ],
    ids=["too short", "too long", "shrunk", "plain formula"],
)
def test_near_misses_are_told_apart(worse):
    share = covered("ridge", worse)
    assert not ((share >= 0.93) & (share <= 0.97)).all(), share


def test_terms_of_arrays_are_numbered():
    table = sample_result().coefficients()
    assert table["feature"].unique().sort().to_list() == [f"feature-{number}" for number in range(1, 5)]
    assert table["std_error"].null_count() == len(table)
