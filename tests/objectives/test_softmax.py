"""Softmax regression: its bounds hold and are reached, its solver is certified, and with two classes it is logistic."""

import numpy as np
import pytest
from scipy.optimize import minimize

from pgfl import PGFL, ClientData, ExactMixing, Federation, Logistic, Softmax, TestSet, train
from pgfl.algorithms.theory import cluster_optimum
from pgfl.errors import ConfigError, DataError, PrivacyError
from pgfl.objectives import Bounds
from pgfl.privacy.request import Privacy
from pgfl.results.result import Result

B = Bounds(x_norm=2.0)


def drawn(clients=4, rows=9, features=4, classes=3, scale=1.0, seed=0):
    """Padded clients with 1 to `rows` rows, their moduli and centres."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, rows + 1, clients).astype(float)
    inside = np.arange(rows) < counts[:, None]
    x = scale * rng.standard_normal((clients, rows, features)) * inside[..., None]
    y = rng.integers(0, classes, (clients, rows)) * inside.astype(float)
    return x, y, counts, 0.2 + rng.random(clients), rng.standard_normal((clients, classes * features))


def exact(objective, x, y, count, weight, centre):
    rows = int(count)

    def penalised(w):
        value, gradient = objective.value_and_gradient(w, x[:rows], y[:rows], count)
        return value + 0.5 * weight * (w - centre) @ (w - centre), gradient + weight * (w - centre)

    found = minimize(penalised, centre, jac=True, method="L-BFGS-B", options={"gtol": 1e-12, "ftol": 0.0})
    return found.x, np.linalg.norm(penalised(found.x)[1]) / weight


# --- the loss and its bounds ------------------------------------------------------------------------------------------


def test_the_loss_is_the_cross_entropy_and_its_gradient_its_slope():
    x, y, counts, _, w = drawn()
    objective = Softmax(classes=3)
    for k, count in enumerate(counts.astype(int)):
        scores = x[k, :count] @ w[k].reshape(3, 4).T
        chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        wanted = -np.log(chances[np.arange(count), y[k, :count].astype(int)]).mean()
        assert objective.loss(w, x, y, counts)[k] == pytest.approx(wanted, rel=1e-12)
        np.testing.assert_allclose(objective.predict(objective.margins(w[k], x[k, :count])), chances, rtol=1e-12)
    v, h = np.random.default_rng(1).standard_normal(w.shape), 1e-6
    slope = (objective.loss(w + h * v, x, y, counts) - objective.loss(w - h * v, x, y, counts)) / (2 * h)
    np.testing.assert_allclose((objective.gradient(w, x, y, counts) * v).sum(axis=-1), slope, atol=1e-8)


def test_huge_margins_neither_overflow_nor_lose_the_label():
    objective = Softmax(classes=3)
    w = np.array([1e200, -1e200, 0.0])
    assert objective.loss(w, np.ones((1, 1)), np.array([1.0]), np.float64(1)) == 2e200
    np.testing.assert_array_equal(
        objective.gradient(w, np.ones((1, 1)), np.array([1.0]), np.float64(1)), [1.0, -1.0, 0.0]
    )


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_a_search_finds_no_gradient_beyond_the_bounds_and_some_close_to_them(classes):
    """√2·B for one record, 2√2·B for two at the same W; rows nearly alike under a huge W come near both."""
    objective, rng = Softmax(classes=classes), np.random.default_rng(classes)
    longest = furthest = 0.0
    for scale in 10.0 ** rng.uniform(-1, 6, 2000):
        w = scale * rng.standard_normal(classes * 2)
        one = rng.standard_normal(2)
        other = one + 10.0 ** rng.uniform(-6, 0.5) * rng.standard_normal(2)
        lengths = B.x_norm * np.array([1.0, rng.choice([1.0, rng.random()])])
        rows = np.array([size * row / np.linalg.norm(row) for size, row in zip(lengths, (one, other), strict=True)])
        denied = np.argmax(rows @ w.reshape(classes, 2).T, axis=1)[::-1]
        labels = rng.choice([denied, rng.integers(0, classes, 2)]).astype(float)
        first, second = (objective.gradient(w, rows[i : i + 1], labels[i : i + 1], np.float64(1)) for i in (0, 1))
        longest = max(longest, np.linalg.norm(first))
        furthest = max(furthest, np.linalg.norm(first - second))
    assert 0.99 * objective.gradient_bound(B) < longest <= objective.gradient_bound(B) * (1 + 1e-12)
    assert 0.98 * objective.gradient_change(B) < furthest <= objective.gradient_change(B) * (1 + 1e-12)


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_the_curvature_is_at_most_half(classes):
    """The largest eigenvalue of diag p − ppᵀ over random p and at p = (½, ½, 0, …), where it is attained."""
    rng, largest = np.random.default_rng(0), 0.0
    found = [*rng.dirichlet(np.full(classes, 0.3), 500), np.eye(classes)[:2].mean(axis=0)]
    for p in found:
        largest = max(largest, np.linalg.eigvalsh(np.diag(p) - np.outer(p, p))[-1])
    assert largest * B.x_norm**2 == pytest.approx(Softmax(classes=classes).smoothness(B), rel=1e-12)


# --- the solver -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.3, 3.0, 30.0])
@pytest.mark.parametrize("features", [4, 20], ids=["feature space", "sample space"])
def test_a_solution_is_as_near_as_it_says(features, scale):
    *data, centre = drawn(features=features, scale=scale)
    objective = Softmax(classes=3)
    solved, errors = objective.prepare(*data).solve(centre)
    assert (errors <= objective.tolerance).all()
    for k, (w, error) in enumerate(zip(solved, errors, strict=True)):
        best, off = exact(objective, *(part[k] for part in data), centre[k])
        assert np.linalg.norm(w - best) <= error + off + 1e-13 * (1.0 + np.linalg.norm(w))


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_repeat_are_solved_with_fewer_rows_than_features(seed):
    """Their XXᵀ is singular: in its inner products conjugate gradients grew without limit."""
    rng = np.random.default_rng(seed)
    x = np.repeat(rng.standard_normal((2, 5, 30)), 3, axis=1)
    y, counts = rng.integers(0, 3, (2, 15)).astype(float), np.full(2, 15.0)
    _, errors = Softmax(classes=3).prepare(x, y, counts, np.full(2, 2e-4)).solve(np.zeros((2, 90)))
    assert (errors <= 1e-8).all()


@pytest.mark.parametrize("features", [4, 20], ids=["feature space", "sample space"])
def test_company_changes_no_bit(features):
    *data, centre = drawn(clients=6, features=features, scale=2.0)
    objective = Softmax(classes=3)
    together, errors = objective.prepare(*data).solve(centre)
    for chosen in ([0], [5], [1, 2, 4]):
        picked, found = objective.prepare(*data).solve(centre[chosen], np.array(chosen))
        np.testing.assert_array_equal(picked, together[chosen])
        np.testing.assert_array_equal(found, errors[chosen])
        alone, found = objective.prepare(*(part[chosen] for part in data)).solve(centre[chosen])
        np.testing.assert_array_equal(alone, together[chosen])


def test_the_majoriser_alone_never_raises_the_objective(monkeypatch):
    """Böhning's bound: without Newton's steps the solver still descends to the same point, only more slowly."""
    from pgfl.objectives import softmax as softmax_solver

    *data, centre = drawn(scale=2.0)
    objective = Softmax(classes=3, tolerance=1e-6)
    wanted, _ = objective.prepare(*data).solve(centre)
    monkeypatch.setattr(softmax_solver, "backtracked", lambda enough, running, step, xp: 0.0 * step)
    values = []
    for steps in (0, 1, 2, 5, 20, 500):
        monkeypatch.setattr(softmax_solver, "STEPS", steps)
        w, error = objective.prepare(*data).solve(centre)
        values.append(objective.loss(w, *data[:3]) + 0.5 * data[3] * ((w - centre) ** 2).sum(axis=1))
    assert (np.diff(values, axis=0) <= 1e-14).all()
    np.testing.assert_allclose(w, wanted, atol=2e-6)
    assert (error <= 1e-6).all()


# --- training ---------------------------------------------------------------------------------------------------------


def federation(classes=3, seed=0, tests=False):
    """Two servers, two clusters, eight clients; labels follow a linear rule with noise."""
    rng = np.random.default_rng(seed)
    truth = {"a": rng.standard_normal((classes, 4)), "b": rng.standard_normal((classes, 4))}

    def labelled(cluster, rows):
        x = rng.standard_normal((rows, 4)) / 2
        return x, np.argmax(x @ truth[cluster].T + 0.1 * rng.standard_normal((rows, classes)), axis=1).astype(float)

    clients = {f"c{k}": ClientData("ns"[k % 2], "ab"[k // 4], *labelled("ab"[k // 4], 8 + k)) for k in range(8)}
    held = {q: TestSet(*labelled(q, 200)) for q in truth} if tests else None
    return Federation.from_clients(clients, edges=[("n", "s")], tests=held)


def test_two_classes_are_logistic_regression_round_by_round():
    """W = (−v/2, v/2) has half of v's squared norm, so λ and ρ count double."""
    made = federation(classes=2)
    multi = train(made, PGFL(rho=2.0, tau=0.1), Softmax(lam=0.2, classes=2), rounds=15)
    binary = train(made, PGFL(rho=1.0, tau=0.1), Logistic(lam=0.1), rounds=15)
    np.testing.assert_allclose(multi.curve("objective"), binary.curve("objective"), rtol=1e-8)
    for cluster in "ab":
        pair = multi.cluster(cluster).reshape(2, 4)
        np.testing.assert_allclose(pair[1] - pair[0], binary.cluster(cluster), atol=1e-8)
        np.testing.assert_allclose(pair[0] + pair[1], 0.0, atol=1e-9)
        rows = np.random.default_rng(3).standard_normal((5, 4))
        chances = multi.predict_proba(rows, cluster=cluster)
        np.testing.assert_allclose(chances[:, 1], binary.predict_proba(rows, cluster=cluster)[:, 1], atol=1e-8)
        np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-12)


@pytest.mark.parametrize("engine", ["numba", "jax"])
def test_engines_agree(engine):
    made, options = federation(tests=True), {"rounds": 6, "participants": 2}
    plain = train(made, PGFL(rho=0.5, tau=0.2), Softmax(lam=0.1), **options)
    other = train(made, PGFL(rho=0.5, tau=0.2), Softmax(lam=0.1), engine=engine, **options)
    for name in plain.metrics:
        np.testing.assert_allclose(other.curve(name), plain.curve(name), rtol=1e-8, atol=1e-9)


def test_exact_mixing_reaches_the_optimum_that_is_found_from_all_rows():
    made = federation()
    result = train(made, ExactMixing(rho=0.1), Softmax(lam=0.1), rounds=150, metrics=("distance", "objective"))
    assert result.curve("distance")[0, -1] < 1e-6
    best = cluster_optimum(made, Softmax(lam=0.1, classes=3), 1)
    np.testing.assert_allclose(result.cluster("b"), best, atol=1e-3)


def test_the_classes_are_those_of_the_data_unless_they_are_stated():
    made = federation()
    assert (train(made, PGFL(), Softmax(), rounds=1).classes, made.targets.max()) == (3, 2.0)
    stated = train(made, PGFL(), Softmax(classes=5), rounds=1)
    assert (stated.classes, stated.dimension, stated.features) == (5, 20, 4)
    with pytest.raises(DataError, match=r"Client c0: sample \d+ has target 2, but softmax .* whole labels"):
        train(made, PGFL(), Softmax(classes=2), rounds=1)
    halves = made.replace(targets=made.targets + 0.5)
    with pytest.raises(DataError, match="whole labels"):
        train(halves, PGFL(), Softmax(), rounds=1)


def test_under_privacy_the_classes_are_stated_and_never_read():
    made, privacy = federation(), Privacy(phi0=1e-2, x_norm=1.0)
    with pytest.raises(PrivacyError, match="under privacy the number of classes is stated, never read from records"):
        train(made, PGFL(), Softmax(), rounds=1, privacy=privacy)
    with pytest.raises(PrivacyError, match="would clip labels up to 2 to another class"):
        train(made, PGFL(), Softmax(classes=3), rounds=1, privacy=Privacy(phi0=1e-2, x_norm=1.0, y_bound=1.0))
    result = train(made, PGFL(rho=1.0), Softmax(classes=3), rounds=3, privacy=privacy)
    assert result.client("c0").shape == (12,)
    assert np.isfinite(result.client("c0")).all()
    assert result.spending()["epsilon"]["worst"] > 0


def test_clusters_have_models_of_one_length():
    with pytest.raises(ConfigError, match="cluster a have 12 numbers and those of cluster b 4"):
        train(federation(), PGFL(), {"a": Softmax(classes=3), "b": Logistic()}, rounds=1)
    same = {"a": Softmax(lam=0.1), "b": Softmax(lam=0.2)}
    assert train(federation(), PGFL(), same, rounds=2).classes == 3


@pytest.mark.parametrize("classes", [1, 0, 2.5, "3"])
def test_a_number_of_classes_is_a_whole_one_from_two(classes):
    with pytest.raises(ConfigError, match="whole number from 2 up"):
        Softmax(classes=classes)


def test_a_result_is_saved_and_predicts_alike(tmp_path):
    result = train(federation(tests=True), PGFL(rho=0.3), Softmax(lam=0.01), rounds=60)
    assert result.curve("accuracy")[0, -1] > 0.85 > 0.5 > result.curve("accuracy")[0, 0]
    again = Result.load(result.save(tmp_path / "saved"))
    rows = np.random.default_rng(0).standard_normal((3, 4))
    assert (again.classes, again.features) == (3, 4)
    np.testing.assert_array_equal(again.predict_proba(rows, client="c1"), result.predict_proba(rows, client="c1"))
    assert result.summary()["classes"] == 3


@pytest.mark.proof
def test_digits_are_told_apart_as_well_as_by_scikit_learn():
    """One server and one cluster: the model is the pooled one, and λ of three equal clients is C = 1/(2λD)."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    pixels, digits = load_digits(return_X_y=True)
    pixels, digits = pixels / 16.0, digits.astype(float)
    clients = {f"c{k}": ClientData("n", "digits", pixels[k:450:3], digits[k:450:3]) for k in range(3)}
    tests = {"digits": TestSet(pixels[450:], digits[450:])}
    lam = 0.01
    ours = train(
        Federation.from_clients(clients, tests=tests), PGFL(rho=0.02), Softmax(lam=lam), rounds=60,
        metrics=("accuracy", "objective"),
    )  # fmt: skip
    # Σ_k f_k = Σ_k (1/150) Σ ℓ + λ‖W‖², and scikit-learn minimises ½‖W‖² + C Σ ℓ.
    theirs = LogisticRegression(C=1.0 / (2 * lam * 150), fit_intercept=False, tol=1e-8, max_iter=5000)
    theirs.fit(pixels[:450], digits[:450])
    np.testing.assert_allclose(ours.cluster("digits"), theirs.coef_.ravel(), atol=5e-3 * np.abs(theirs.coef_).max())
    assert abs(ours.curve("accuracy")[0, -1] - theirs.score(pixels[450:], digits[450:])) <= 0.005
