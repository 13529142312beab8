"""The estimators behave as scikit-learn's do, and a federation is behind them."""

import importlib
import pickle
import re
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from pgfl import PGFL, Huber, train
from pgfl.errors import BudgetSpent, MissingExtra, PrivacyError, UsageError
from pgfl.objectives import OBJECTIVES
from pgfl.privacy.accounting import exact_epsilon, exact_rho
from pgfl.sklearn import PGFLClassifier, PGFLRegressor, PrivacyAccount

ROWS, VALUES = [[0.0], [1.0]], [0.0, 1.0]
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # most fits here are short


@pytest.mark.proof
@pytest.mark.parametrize("estimator", [PGFLRegressor(rounds=20), PGFLClassifier(rounds=20)], ids=repr)
def test_scikit_learn_s_own_checks_pass(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checks = check_estimator(estimator, on_fail="raise", on_skip=None)
    assert len(checks) > 45
    others = {check["check_name"] for check in checks if check["status"] != "passed"}
    assert others <= {"check_array_api_input"}  # which needs an environment variable


# ------------------------------------------------------------------------------------------------- beside scikit-learn


@pytest.mark.parametrize("seed", range(3))
def test_at_the_defaults_a_plain_regression_is_as_good_as_ridge(seed):
    X, y = load_diabetes(return_X_y=True)
    X = X * 1000 + 5000  # unscaled, and far from 0
    a, b, c, d = train_test_split(X, y, random_state=seed)
    ridge = make_pipeline(StandardScaler(), Ridge()).fit(a, c)
    assert abs(PGFLRegressor().fit(a, c).score(b, d) - ridge.score(b, d)) < 0.01


@pytest.mark.parametrize("seed", range(3))
def test_at_the_defaults_a_plain_classification_is_as_good_as_logistic_regression(seed):
    X, y = load_breast_cancer(return_X_y=True)
    a, b, c, d = train_test_split(X, y, random_state=seed)
    plain = make_pipeline(StandardScaler(), LogisticRegression()).fit(a, c)
    mine = PGFLClassifier().fit(a, c)
    found, expected = (roc_auc_score(d, model.predict_proba(b)[:, 1]) for model in (mine, plain))
    assert abs(found - expected) < 0.01


def test_lam_is_alpha_over_the_number_of_rows():
    """In scaled units, with the intercept penalised as any other coefficient."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(50, 3))
    X[:2] = [[-1] * 3, [1] * 3]  # so that scaling changes nothing
    y = X @ [1.0, -2.0, 0.5] + rng.normal(size=50)
    mine = PGFLRegressor(lam=0.1, feature_bounds=(-1, 1), target_bounds=(-10, 10)).fit(X, y)
    ridge = Ridge(alpha=0.1 * 50, fit_intercept=False).fit(np.column_stack([X, np.ones(50)]), y)
    np.testing.assert_allclose([*mine.coef_, mine.intercept_], ridge.coef_, rtol=1e-6)
    labels = (y > 0).astype(int)
    mine = PGFLClassifier(lam=0.01, feature_bounds=(-1, 1)).fit(X, labels)
    plain = LogisticRegression(C=1 / (2 * 0.01 * 50), fit_intercept=False, tol=1e-12, max_iter=1000)
    plain.fit(np.column_stack([X, np.ones(50)]), labels)
    np.testing.assert_allclose([*mine.coef_[0], mine.intercept_[0]], plain.coef_[0], rtol=1e-5)


def test_coefficients_are_in_the_units_of_the_data():
    X, y = load_diabetes(return_X_y=True)
    model = PGFLRegressor().fit(X, y)
    np.testing.assert_allclose(X @ model.coef_ + model.intercept_, model.predict(X))
    X, y = load_breast_cancer(return_X_y=True)
    model = PGFLClassifier(rounds=20).fit(X, y)
    np.testing.assert_allclose(X @ model.coef_[0] + model.intercept_[0], model.decision_function(X), atol=1e-8)


# -------------------------------------------------------------------------------------------------------- a federation


def federated(rows=300, seed=0):
    """Two clusters with opposite slopes, at three servers, ten clients each."""
    rng = np.random.default_rng(seed)
    cluster = rng.choice(["up", "down"], rows)
    client = np.char.add(cluster, rng.integers(0, 10, rows).astype(str))
    server = np.array([f"s{int(name[-1]) % 3}" for name in client])
    X = rng.uniform(100, 200, size=(rows, 2))
    y = np.where(cluster == "up", 1, -1) * X[:, 0] + 0.3 * X[:, 1] + rng.normal(size=rows)
    return X, y, {"client": client, "server": server, "cluster": cluster}


def test_every_cluster_has_its_own_model_and_clients_have_theirs():
    X, y, places = federated()
    model = PGFLRegressor().fit(X, y, **places)
    assert model.clusters_.tolist() == ["down", "up"]
    assert len(model.clients_) == 20
    assert model.score(X, y, cluster=places["cluster"]) > 0.99
    np.testing.assert_allclose(model.coef_[:, 0], [-1, 1], atol=0.05)
    up = places["cluster"] == "up"
    assert np.mean((model.model_.predict(X[up], client="up3") - y[up]) ** 2) < 5.0
    np.testing.assert_array_equal(model.predict(X[up], cluster="up"), model.predict(X, cluster=places["cluster"])[up])
    assert PGFLRegressor().fit(X, y).score(X, y) < 0.5  # without clusters the slopes cancel


def test_a_regression_over_many_clients_is_as_good_as_one_over_all_rows():
    X, y = load_diabetes(return_X_y=True)
    client = np.random.default_rng(0).integers(0, 8, len(y))
    alone, spread = PGFLRegressor().fit(X, y), PGFLRegressor().fit(X, y, client=client)
    assert abs(alone.score(X, y) - spread.score(X, y)) < 0.01


def test_lam_means_the_same_however_rows_are_spread_over_clients():
    """Rows twice over, at two clients of one server, are the same problem as the rows once."""
    X, y = load_diabetes(return_X_y=True)
    twice = {"client": [0] * len(y) + [1] * len(y)}
    alone = PGFLRegressor(lam=0.1, rounds=300).fit(X, y)
    spread = PGFLRegressor(lam=0.1, rounds=300).fit(np.concatenate([X, X]), np.concatenate([y, y]), **twice)
    np.testing.assert_allclose(spread.predict(X), alone.predict(X), rtol=1e-4)


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda m, X, y, p: m.predict(X), "2 clusters (down, up); pass cluster="),
        (lambda m, X, y, p: m.predict(X, cluster=["up"]), "rows but 1 entries in cluster"),
        (lambda m, X, y, p: m.fit(X, y, client=p["client"][:3]), "entries in client; give one per row"),
        (lambda m, X, y, p: m.fit(X, y, client=["a"] * len(y), server=p["server"]), "Client a has rows in server s0"),
        (lambda m, X, y, p: m.fit(X, y, client=[None] * len(y)), "Row 0 has no client"),
        (lambda m, X, y, p: m.set_params(algorithm="sgd").fit(X, y), "algorithm must be one of"),
        (lambda m, X, y, p: m.set_params(objective="tree").fit(X, y), "objective must be auto"),
        (lambda m, X, y, p: m.set_params(feature_bounds=[(0, 1)] * 3).fit(X, y), "Bounds are one pair"),
        (lambda m, X, y, p: m.set_params(feature_bounds=(2, 1)).fit(X, y), "Bounds are one pair"),
    ],
)
def test_mistakes_are_one_sentence(ask, sentence):
    X, y, places = federated()
    model = PGFLRegressor(rounds=2).fit(X, y, **places)
    with pytest.raises(ValueError, match=re.escape(sentence)) as error:
        ask(model, X, y, places)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda: PGFLRegressor(alpha=1.0), "PGFLRegressor has no argument alpha; use lam: with D rows"),
        (lambda: PGFLClassifier(C=1.0), "PGFLClassifier has no argument C; use lam: with D rows"),
        (lambda: PGFLClassifier(max_iter=10), "PGFLClassifier has no argument max_iter; use rounds."),
        (lambda: PGFLRegressor(round=10), "PGFLRegressor has no argument round (did you mean rounds?)"),
        (lambda: PGFLRegressor(1.0), "PGFLRegressor takes no arguments by position"),
        (lambda: PGFLRegressor(sample_weight=1.0), "PGFLRegressor has no argument sample_weight; pass it to fit"),
        (lambda: PGFLClassifier().fit(ROWS, VALUES, groups=VALUES), "fit has no argument groups; name it client"),
        (lambda: PGFLRegressor().fit(ROWS), "fit lacks y; call it as in fit(X, y, client=names)"),
    ],
)
def test_arguments_of_other_models_are_answered_with_what_to_use(ask, sentence):
    with pytest.raises(TypeError, match=re.escape(sentence)) as error:
        ask()
    assert isinstance(error.value, UsageError) and "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["converged", "not yet", "noise drowns the signal"])
def test_a_verdict_that_is_not_good_is_a_warning(monkeypatch, kind):
    def judged(*arguments, **options):
        result = train(*arguments, **options)
        result.verdict = SimpleNamespace(kind=kind, text=f"{kind}: play more rounds.", to_json=dict)
        return result

    monkeypatch.setattr("pgfl.sklearn.estimator.train", judged)
    X, y = load_diabetes(return_X_y=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        PGFLRegressor(rounds=2).fit(X, y)
    of_fit = [warning for warning in caught if warning.category is ConvergenceWarning]
    assert all(warning.filename == __file__ for warning in of_fit)
    found = [str(warning.message) for warning in of_fit]
    assert found == ([] if kind == "converged" else [f"{kind}: play more rounds."])


# --------------------------------------------------------------------------------------------- pipelines and searches


def test_metadata_is_routed_through_a_pipeline_and_a_search():
    X, y, places = federated()
    with config_context(enable_metadata_routing=True):
        names = dict.fromkeys(places, True)
        estimator = (
            PGFLRegressor(rounds=60)
            .set_fit_request(**names)
            .set_predict_request(cluster=True)
            .set_score_request(cluster=True)
        )
        pipeline = make_pipeline(StandardScaler(), estimator)
        search = GridSearchCV(pipeline, {"pgflregressor__lam": [1e-4, 100.0]}, cv=3)
        search.fit(X, y, **places)
        assert search.best_params_ == {"pgflregressor__lam": 1e-4}
        assert search.best_score_ > 0.99
        assert search.best_estimator_.predict(X, cluster=places["cluster"]).shape == y.shape


def test_without_routing_a_pipeline_passes_names_by_step():
    X, y, places = federated()
    pipeline = make_pipeline(StandardScaler(), PGFLRegressor(rounds=60))
    pipeline.fit(X, y, **{f"pgflregressor__{name}": values for name, values in places.items()})
    assert pipeline[-1].clusters_.tolist() == ["down", "up"]


def test_a_data_frame_with_categories_goes_through_a_column_transformer():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    X["sex"] = np.where(X["sex"] > 0, "f", "m")
    encode = make_column_transformer((OneHotEncoder(), ["sex"]), remainder="passthrough")
    assert cross_val_score(make_pipeline(encode, PGFLRegressor()), X, y).mean() > 0.45
    frame = pandas.DataFrame(X.drop(columns="sex"))
    model = PGFLRegressor().fit(frame, y)
    assert model.feature_names_in_.tolist() == list(frame.columns)
    assert model.model_.columns == tuple(frame.columns)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[frame.columns[::-1]])


def test_parameters_survive_clone_and_a_fitted_model_survives_pickle():
    X, y, places = federated()
    model = PGFLRegressor(algorithm=PGFL(rho=3.0), objective=Huber(), rounds=5)
    copy = clone(model)
    assert {name: repr(value) for name, value in copy.get_params().items()} == {
        name: repr(value) for name, value in model.get_params().items()
    }
    model.fit(X, y, **places)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X, cluster="up"), model.predict(X, cluster="up"))


# -------------------------------------------------------------------------------------------------------------- labels


def test_labels_keep_their_type_and_order():
    X, y = load_breast_cancer(return_X_y=True)
    for classes in ([10, 3], ["ill", "healthy"], [True, False]):
        labels = np.array(classes)[y]
        model = PGFLClassifier(rounds=20).fit(X, labels)
        assert model.classes_.tolist() == sorted(classes)
        assert model.predict(X).dtype == labels.dtype
        assert model.score(X, labels) > 0.95
        np.testing.assert_array_equal(model.classes_[model.predict_proba(X).argmax(axis=1)], model.predict(X))


def test_more_than_two_classes_are_learnt_by_softmax():
    X, y = load_iris(return_X_y=True)
    labels = np.array(["setosa", "versicolor", "virginica"])[y]
    model = PGFLClassifier()
    if "softmax" not in OBJECTIVES:
        with pytest.raises(ValueError, match="Only binary classification is supported"):
            model.fit(X, labels)
        return
    assert model.fit(X, labels).score(X, labels) > 0.96
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    np.testing.assert_allclose(X @ model.coef_.T + model.intercept_, model.decision_function(X))


# ------------------------------------------------------------------------------------------------------------- privacy


def private_regressor(**changes):
    settings = {
        "epsilon": 8.0,
        "feature_bounds": (-0.2, 0.2),
        "target_bounds": (0, 400),
        "rounds": 5,
        "noise": "seeded",
    }
    return PGFLRegressor(**{**settings, **changes})


def test_a_private_fit_spends_what_it_promises_and_the_account_says_so():
    X, y = load_diabetes(return_X_y=True)
    model = private_regressor().fit(X, y)
    assert model.privacy_["epsilon"] == pytest.approx(8.0, rel=1e-6)
    assert model.privacy_["epsilon"] <= 8.0 * (1 + 1e-9)
    assert model.result_.private
    assert model.account_.epsilon == pytest.approx(8.0, rel=1e-6)
    model.fit(X, y)  # the same records once more
    assert model.account_.fits == 2
    assert model.account_.epsilon == pytest.approx(float(exact_epsilon(2 * exact_rho(8.0, 1e-5), 1e-5)))


def test_a_private_classifier_learns_with_stated_bounds_and_classes():
    X, y = load_breast_cancer(return_X_y=True)
    bounds = np.stack([np.zeros(30), np.ceil(X.max(axis=0))], axis=1)  # public knowledge, for the test's sake
    model = PGFLClassifier(
        epsilon=8.0, feature_bounds=bounds, classes=[0, 1], rounds=10, noise="seeded", random_state=1
    )
    assert model.fit(X, y).score(X, y) > 0.7
    assert model.privacy_["epsilon"] <= 8.0 * (1 + 1e-9)
    other = clone(model).set_params(random_state=2, account=PrivacyAccount()).fit(X, y)
    assert not np.array_equal(other.coef_, model.coef_)


@pytest.mark.parametrize(
    ("estimator", "sentence"),
    [
        (private_regressor(feature_bounds=None), "state feature_bounds"),
        (private_regressor(target_bounds=None), "state target_bounds"),
        (PGFLClassifier(epsilon=1.0, feature_bounds=(0, 1)), "state `classes`"),
        (PGFLClassifier(epsilon=1.0, classes=[0, 1]), "state feature_bounds"),
        (private_regressor(objective="ridge"), "no bounded gradient"),
        (private_regressor(map="auto"), "name a map"),
    ],
)
def test_privacy_refuses_bounds_that_nobody_stated(estimator, sentence):
    X, y = load_diabetes(return_X_y=True)
    with pytest.raises(PrivacyError, match=sentence):
        estimator.fit(X, y > 100 if isinstance(estimator, PGFLClassifier) else y)


@pytest.mark.parametrize(
    ("kind", "bends"), [(PGFLRegressor, True), (PGFLRegressor, False), (PGFLClassifier, True)], ids=repr
)
def test_an_automatic_map_bends_where_straight_lines_fail(kind, bends):
    rows = np.random.default_rng(5).uniform(-1.0, 1.0, (800, 2))
    y = np.abs(rows[:, 0]) - 0.5 if bends else rows[:, 0] - rows[:, 1]
    y = y if kind is PGFLRegressor else y > 0
    fitted = kind(map="auto").fit(rows[:400], y[:400])
    assert bool(fitted.model_.encoding.maps) == bends
    assert fitted.score(rows[400:], y[400:]) > 0.95


def test_a_search_adds_up_what_its_fits_spend():
    X, y = load_diabetes(return_X_y=True)
    account = PrivacyAccount()
    search = GridSearchCV(private_regressor(epsilon=1.0, account=account), {"lam": [1e-4, 1e-2]}, cv=3).fit(X, y)
    assert account.fits == 2 * 3 + 1
    assert account.rho == pytest.approx(7 * exact_rho(1.0, 1e-5))
    assert account.epsilon == pytest.approx(float(exact_epsilon(7 * exact_rho(1.0, 1e-5), 1e-5)))
    assert account.epsilon > 2.5  # not the 1.0 that one fit promises
    assert search.best_estimator_.account_ is account
    cross_validate(private_regressor(epsilon=1.0, account=account), X, y, cv=2)
    assert account.fits == 9


def test_a_search_without_an_account_is_refused():
    X, y = load_diabetes(return_X_y=True)
    with pytest.raises(PrivacyError, match=r"pass account=PrivacyAccount\(\), which all copies share"):
        GridSearchCV(private_regressor(), {"lam": [1e-4, 1e-2]}, cv=2, error_score="raise").fit(X, y)
    with pytest.raises(ValueError, match="pass account=PrivacyAccount"):
        GridSearchCV(private_regressor(epsilon=None), {"epsilon": [1.0, 2.0]}, cv=2).fit(X, y)
    with pytest.raises(PrivacyError, match="pass account=PrivacyAccount"):
        pickle.loads(pickle.dumps(clone(private_regressor()))).fit(X, y)  # as a process of joblib gets it


def test_an_account_has_a_limit_and_does_not_count_in_another_process():
    X, y = load_diabetes(return_X_y=True)
    account = PrivacyAccount(epsilon=2.0)
    estimator = private_regressor(epsilon=1.0, account=account)
    for _ in range(3):
        estimator.fit(X, y)
    with pytest.raises(BudgetSpent, match=r"would carry the account past epsilon = 2 \(3 fits have spent"):
        estimator.fit(X, y)
    assert account.fits == 3
    assert account.epsilon <= 2.0
    with pytest.raises(PrivacyError, match="copy from another process"):
        pickle.loads(pickle.dumps(estimator)).fit(X, y)
    assert clone(estimator).account is account


def test_a_refused_fit_costs_nothing_and_a_charged_one_is_not_given_back(monkeypatch):
    X, y = load_diabetes(return_X_y=True)
    account = PrivacyAccount()
    with pytest.raises(ValueError, match="NaN"):
        private_regressor(account=account).fit(np.where(X > 0, np.nan, X), y)
    assert account.fits == 0

    def broken(*_, **__):
        assert account.fits == 1  # charged before anything is computed
        raise RuntimeError

    monkeypatch.setattr("pgfl.sklearn.estimator.train", broken)
    with pytest.raises(RuntimeError):
        private_regressor(account=account).fit(X, y)
    assert account.fits == 1


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    for name in [
        name for name in sys.modules if name.partition(".")[0] == "sklearn" or name.startswith("pgfl.sklearn")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingExtra, match=r"pip install 'pgfl\[sklearn\]'"):
        importlib.import_module("pgfl.sklearn")
