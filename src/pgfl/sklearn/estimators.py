"""The estimators: arrays in, a federation trained, a model that predicts.

Columns are scaled to [−1, 1] inside, from `feature_bounds` or else from the training rows, and the scaling is kept in
the model; so is that of a regression's target. With one client of D rows, `lam` is scikit-learn's `alpha / D` of Ridge
and `1 / (2 C D)` of LogisticRegression in these units; the intercept is penalised too, and λ is small by default.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any, Self
from weakref import WeakSet

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from pgfl.array_types import AnyArray, AnyFloats, Floats
from pgfl.core.algorithms import KINDS as ALGORITHMS
from pgfl.core.algorithms import Algorithm, FedAvg
from pgfl.core.federation import Federation
from pgfl.core.row_encoding import NumberColumn, RowEncoding, TargetColumn
from pgfl.core.training_defaults import ENGINE, Library
from pgfl.errors import PrivacyError
from pgfl.objectives import KINDS as OBJECTIVES
from pgfl.objectives import Huber, Objective
from pgfl.privacy.request import Noise, Privacy
from pgfl.results.array_rows import ArrayRows
from pgfl.results.model import Clusters
from pgfl.simulate.training import train
from pgfl.sklearn.fits_account import PrivacyAccount
from pgfl.sklearn.penalties import penalty
from pgfl.sklearn.places import CLUSTER, federation_of, names_of

Bounds = tuple[float, float] | list[tuple[float, float]] | ArrayLike
"""One pair (low, high) for all columns, or one pair per column."""

CLEAN_TOLERANCE = 1e-8
ROUNDS, ROUNDS_ALONE = 100, 10
_Places = dict[str, ArrayLike | None]
_CLONES: WeakSet[BaseEstimator] = WeakSet()
"""Estimators that scikit-learn copied: several of them may be fitted to the same records without anyone counting."""


class _Estimator(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: parameters become a federation, an algorithm and privacy; a model comes back."""

    def _fitted(self, X: Floats, targets: Floats, target: TargetColumn, places: _Places) -> Self:
        names = getattr(self, "feature_names_in_", None)
        columns = [f"x{n}" for n in range(X.shape[1])] if names is None else [str(name) for name in names]
        encoding = self._encoding(X, columns, target)
        rows = encoding.encode(ArrayRows(X, columns))
        federation = federation_of(rows, targets, **places, graph=self.graph).replace(encoding=encoding)
        alone = len(federation.cluster_ids) == federation.size
        rounds = self.rounds or (ROUNDS_ALONE if alone else ROUNDS)
        privacy, seed = self._privacy(rounds), self._seed()
        objective = self._objective(self.lam * float(federation.server_sizes[federation.client_server].mean()))
        algorithm = self._algorithm(objective, federation, privacy)
        if privacy is not None:
            self._charge()
        result = train(
            federation, algorithm, objective, rounds=rounds, privacy=privacy, seed=seed, engine=self.engine,
            record_every=rounds, metrics=(),
        )  # fmt: skip
        self.result_, self.model_ = result, result.model()
        self.clusters_, self.clients_ = np.array(result.cluster_ids), np.array(result.client_ids)
        self.n_iter_ = int(result.rounds[-1])
        if privacy is not None:
            self.privacy_ = {name: spent["worst"] for name, spent in result.spending().items()}
        self._set_coefficients()
        verdict = getattr(result, "verdict", None)
        if verdict is not None and verdict.kind != "converged":
            warnings.warn(verdict.text, ConvergenceWarning, stacklevel=3)
        return self

    def _encoding(self, X: Floats, columns: list[str], target: TargetColumn) -> RowEncoding:
        if self.feature_bounds is None:
            if self.epsilon is not None:
                raise PrivacyError(
                    "With epsilon, state feature_bounds: one pair (low, high) for all columns or one per column; those "
                    "that are read from the records are not private."
                )
            bounds = [spanned(column) for column in X.T]
        else:
            bounds = stated_bounds(self.feature_bounds, X.shape[1])
        numbers = tuple(NumberColumn(name, pair) for name, pair in zip(columns, bounds, strict=True))
        return RowEncoding(numbers, target, bool(self.fit_intercept))

    def _algorithm(self, objective: Objective, federation: Federation, privacy: Privacy | None) -> Algorithm:
        if isinstance(self.algorithm, Algorithm):
            return self.algorithm
        exact = self.tau == 0 and privacy is None
        name = ("pgfl-exact" if exact else "pgfl") if self.algorithm == "auto" else self.algorithm
        if name not in ALGORITHMS:
            raise ValueError(f"algorithm must be one of auto, {', '.join(ALGORITHMS)}; got {name!r}.")
        kind = ALGORITHMS[name]
        if kind is FedAvg:
            return FedAvg()
        rho = penalty(objective, federation, privacy is not None) if self.rho == "auto" else self.rho
        return kind(rho=rho, tau=self.tau)  # type: ignore[call-arg]

    def _privacy(self, rounds: int) -> Privacy | None:
        if self.epsilon is None:
            return None
        return Privacy(
            epsilon=self.epsilon,
            delta=self.delta,
            zeta=1.0,
            max_releases=rounds,
            x_norm=self.x_norm,
            w_norm=getattr(self, "w_norm", None),
            noise=self.noise,
        )

    def _charge(self) -> None:
        """Charge this fit to the account before anything is computed."""
        if self.account is None and self in _CLONES:
            raise PrivacyError(
                "This private estimator is a copy, as a search or a cross-validation makes them, and what each copy "
                "spends adds up; pass account=PrivacyAccount(), which all copies share."
            )
        self.account_ = self.account or getattr(self, "account_", None) or PrivacyAccount(delta=self.delta)
        self.account_.charge(self.epsilon, self.delta)

    def _tolerance(self) -> float:
        """How exactly primal problems are solved: the sensitivity of a private fit counts on the default."""
        return CLEAN_TOLERANCE if self.epsilon is None else Huber.tolerance

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31)) if self.random_state is not None else 0

    def _margins(self, X: ArrayLike, cluster: Clusters | None) -> AnyFloats:
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=np.float64)
        if cluster is None and len(self.clusters_) > 1:
            known = ", ".join(self.clusters_[:8])
            raise ValueError(f"The model has {len(self.clusters_)} clusters ({known}); pass cluster=, one per row.")
        chosen = None if cluster is None else names_of("cluster", cluster, len(rows), CLUSTER)
        return self.model_.margins(rows, cluster=chosen)

    def _set_coefficients(self) -> None:
        """`coef_` and `intercept_` in the units of X and y: one row per cluster, or flat if there is only one."""
        encoding, model = self.model_.encoding, self.model_
        assert encoding is not None
        low, high = np.array([column.bounds for column in encoding.columns]).T  # type: ignore[attr-defined]
        half = 0.5 * (high - low)
        weights = model.clusters.astype(np.float64).reshape(len(model.cluster_ids), model.classes or 1, -1)
        slopes, constant = weights[..., : len(half)], weights[..., len(half) :].sum(axis=-1)
        offset, unit = float(encoding.target.decode(np.zeros(1))[0]), encoding.target.unit
        coefficients = unit * slopes / half
        intercepts = offset + unit * constant - coefficients @ (low + half)
        self._keep_coefficients(coefficients, intercepts)

    def __sklearn_clone__(self) -> Self:
        made = type(self)(**{name: clone(value, safe=False) for name, value in self.get_params(deep=False).items()})
        if hasattr(self, "_metadata_request"):
            made._metadata_request = copy.deepcopy(self._metadata_request)
        _CLONES.add(made)
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_is_clone": self in _CLONES}

    def __setstate__(self, state: dict[str, Any]) -> None:
        kept = dict(state)
        if kept.pop("_is_clone", False):
            _CLONES.add(self)
        super().__setstate__(kept)


class PGFLRegressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    """Personalised federated regression: one linear model per cluster.

    `fit` takes one client, server and cluster name per row; without them it is a plain ridge regression. `predict`
    takes one cluster per row where there are several; `model_` (a `pgfl.Model`) has the models of clients as well.

    Parameters
    ----------
    objective : "auto", "ridge", "huber" or an `Objective`
        "auto" is ridge, and huber (whose gradient is bounded) where `epsilon` is given.
    lam : float
        λ of the penalty λ‖w‖² on a client's mean loss, in scaled units, however many clients there are; see the
        module for `alpha`. (pgfl's own λ is divided by the clients of a server.)
    kappa : float
        Where huber turns linear, in units of the scaled target.
    rho : "auto" or float
        The ADMM penalty; "auto" takes it from the curvature of the data, and is 1 where `epsilon` is given.
    tau : float
        How much a cluster learns from the others.
    rounds : int or None
        How many rounds are played; None is 100, or 10 where every cluster has one client, which needs fewer.
    algorithm : "auto", "pgfl", "pgfl-exact", "pgfl-onestep", "fedavg" or an `Algorithm`
        "auto" is the exact one, which reaches the optimum at `tau` = 0, and pgfl with `tau` or `epsilon`.
    graph : str or list of pairs
        The kind of server graph, or its edges.
    fit_intercept : bool
    feature_bounds, target_bounds : (low, high), and for features also one pair per column
        Public bounds; values outside are clipped. Without privacy they are computed from the training rows.
    epsilon, delta : float
        The privacy of one fit, for one replaced record; None is no privacy.
    x_norm, w_norm : float
        Further bounds of a private fit: rows are clipped to ‖x‖ ≤ x_norm, ridge models to ‖w‖ ≤ w_norm.
    noise : "secure" or "seeded"
        Float-safe noise by default; seeded noise is for experiments.
    account : PrivacyAccount
        Adds up what several fits spend; clones share it. A search with `epsilon` needs one.
    engine : "auto", "numpy", "numba" or "jax"
    random_state : int, RandomState or None
        The seed of seeded noise.

    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> round(PGFLRegressor().fit(X, y).score(X, y), 2)
    0.52
    """

    def __init__(
        self,
        *,
        objective: str | Objective = "auto",
        lam: float = 1e-4,
        kappa: float = Huber.kappa,
        rho: float | str = "auto",
        tau: float = 0.0,
        rounds: int | None = None,
        algorithm: str | Algorithm = "auto",
        graph: str | list[tuple[str, str]] = "complete",
        fit_intercept: bool = True,
        feature_bounds: Bounds | None = None,
        target_bounds: tuple[float, float] | None = None,
        epsilon: float | None = None,
        delta: float = 1e-5,
        x_norm: float | None = None,
        w_norm: float | None = None,
        noise: Noise | None = None,
        account: PrivacyAccount | None = None,
        engine: Library = ENGINE,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.objective, self.lam, self.kappa, self.rho, self.tau = objective, lam, kappa, rho, tau
        self.rounds, self.algorithm, self.graph, self.fit_intercept = rounds, algorithm, graph, fit_intercept
        self.feature_bounds, self.target_bounds = feature_bounds, target_bounds
        self.epsilon, self.delta, self.x_norm, self.w_norm = epsilon, delta, x_norm, w_norm
        self.noise, self.account, self.engine, self.random_state = noise, account, engine, random_state

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        client: ArrayLike | None = None,
        server: ArrayLike | None = None,
        cluster: ArrayLike | None = None,
    ) -> Self:
        """Train on rows, with one client, server and cluster name per row."""
        rows, values = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        values = np.asarray(values, dtype=np.float64)
        if self.target_bounds is None and self.epsilon is not None:
            raise PrivacyError(
                "With epsilon, state target_bounds, a pair (low, high): bounds that are read from the records are not "
                "private."
            )
        bounds = spanned(values) if self.target_bounds is None else stated_bounds(self.target_bounds, 1)[0]
        target = TargetColumn("y", bounds)
        scaled = target.encode(ArrayRows(values[:, None], ["y"]))
        places = {"client": client, "server": server, "cluster": cluster}
        return self._fitted(rows, scaled, target, places)

    def predict(self, X: ArrayLike, cluster: Clusters | None = None) -> AnyFloats:
        """Predicted values, by the models of the rows' clusters."""
        margins = self._margins(X, cluster)
        return self.model_.in_target_unit(margins)

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        cluster: Clusters | None = None,
    ) -> float:
        """R² of the predictions."""
        return float(r2_score(y, self.predict(X, cluster=cluster), sample_weight=sample_weight))

    def _objective(self, lam: float) -> Objective:
        if isinstance(self.objective, Objective):
            return self.objective
        kind = self.objective
        if kind == "auto":
            kind = "ridge" if self.epsilon is None else "huber"
        tolerance = self._tolerance()
        if kind == "huber":
            return Huber(lam=lam, tolerance=tolerance, kappa=self.kappa)
        if kind != "ridge":
            raise ValueError(f"objective must be auto, ridge, huber or an Objective; got {self.objective!r}.")
        return OBJECTIVES["ridge"](lam=lam, tolerance=tolerance)

    def _keep_coefficients(self, coefficients: Floats, intercepts: Floats) -> None:
        alone = len(coefficients) == 1
        self.coef_ = coefficients[0, 0] if alone else coefficients[:, 0]
        self.intercept_ = float(intercepts[0, 0]) if alone else intercepts[:, 0]


class PGFLClassifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """Personalised federated classification: one logistic (or, with more than two classes, softmax) model per cluster.

    The parameters are those of `PGFLRegressor`, without `kappa`, `target_bounds` and `w_norm`. With `epsilon` the
    `classes` have to be stated, because those in the records are not public.

    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> PGFLClassifier().fit(X, y).score(X, y) > 0.97
    True
    """

    def __init__(
        self,
        *,
        objective: str | Objective = "auto",
        lam: float = 1e-4,
        rho: float | str = "auto",
        tau: float = 0.0,
        rounds: int | None = None,
        algorithm: str | Algorithm = "auto",
        graph: str | list[tuple[str, str]] = "complete",
        fit_intercept: bool = True,
        feature_bounds: Bounds | None = None,
        classes: ArrayLike | None = None,
        epsilon: float | None = None,
        delta: float = 1e-5,
        x_norm: float | None = None,
        noise: Noise | None = None,
        account: PrivacyAccount | None = None,
        engine: Library = ENGINE,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.objective, self.lam, self.rho, self.tau = objective, lam, rho, tau
        self.rounds, self.algorithm, self.graph, self.fit_intercept = rounds, algorithm, graph, fit_intercept
        self.feature_bounds, self.classes = feature_bounds, classes
        self.epsilon, self.delta, self.x_norm = epsilon, delta, x_norm
        self.noise, self.account, self.engine, self.random_state = noise, account, engine, random_state

    def __sklearn_tags__(self) -> object:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = "softmax" in OBJECTIVES
        return tags

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        client: ArrayLike | None = None,
        server: ArrayLike | None = None,
        cluster: ArrayLike | None = None,
    ) -> Self:
        """Train on rows, with one client, server and cluster name per row."""
        rows, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_, numbers = self._numbered(np.asarray(labels))
        target = TargetColumn("y", labels=tuple(str(label) for label in self.classes_.tolist()))
        places = {"client": client, "server": server, "cluster": cluster}
        return self._fitted(rows, numbers, target, places)

    def predict(self, X: ArrayLike, cluster: Clusters | None = None) -> AnyArray:
        """The most probable classes."""
        margins = self._margins(X, cluster)
        return np.asarray(self.classes_[self.model_.label_numbers(margins)])

    def predict_proba(self, X: ArrayLike, cluster: Clusters | None = None) -> AnyFloats:
        """The probability of every class, in the order of `classes_`."""
        margins = self._margins(X, cluster)
        return self.model_.label_probabilities(margins)

    def decision_function(self, X: ArrayLike, cluster: Clusters | None = None) -> AnyFloats:
        """The margins: above 0 for the second of two classes, or one per class."""
        return self._margins(X, cluster)

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        cluster: Clusters | None = None,
    ) -> float:
        """The share of rows whose class is right."""
        return float(accuracy_score(y, self.predict(X, cluster=cluster), sample_weight=sample_weight))

    def _numbered(self, labels: AnyArray) -> tuple[AnyArray, Floats]:
        """The classes, and the number of every row's."""
        if self.classes is None:
            if self.epsilon is not None:
                raise PrivacyError(
                    "With epsilon, state `classes`: those that are read from the records are not private."
                )
            classes = np.unique(labels)
        else:
            classes = np.unique(np.asarray(self.classes))
        if len(classes) < 2:
            raise ValueError(f"There is one class only, {classes.tolist()}; a classifier needs at least two classes.")
        if len(classes) > 2 and "softmax" not in OBJECTIVES:
            raise ValueError(f"Only binary classification is supported. Unknown label type: {len(classes)} classes.")
        numbers = np.searchsorted(classes, labels)
        known = classes[np.minimum(numbers, len(classes) - 1)] == labels
        if not known.all():
            raise ValueError(f"y holds {labels[np.argmin(known)]!r}, which is not one of `classes`.")
        return classes, numbers.astype(np.float64)

    def _objective(self, lam: float) -> Objective:
        if isinstance(self.objective, Objective):
            return self.objective
        if self.objective not in ("auto", "logistic", "softmax"):
            raise ValueError(f"objective must be auto, logistic, softmax or an Objective; got {self.objective!r}.")
        if len(self.classes_) > 2 or self.objective == "softmax":
            kind: Any = OBJECTIVES["softmax"]
            return kind(lam=lam, tolerance=self._tolerance(), classes=len(self.classes_))  # type: ignore[no-any-return]
        return OBJECTIVES["logistic"](lam=lam, tolerance=self._tolerance())

    def _keep_coefficients(self, coefficients: Floats, intercepts: Floats) -> None:
        alone = len(coefficients) == 1
        self.coef_: Floats = coefficients[0] if alone else coefficients
        self.intercept_: Floats = intercepts[0] if alone else intercepts


def spanned(values: Floats) -> tuple[float, float]:
    """Bounds of a column's values; a constant gets room on both sides."""
    low, high = float(values.min()), float(values.max())
    room = max(1.0, abs(low))
    return (low, high) if high - low > 1e-12 * room else (low - room, high + room)


def stated_bounds(bounds: Bounds, columns: int) -> list[tuple[float, float]]:
    """One pair (low, high) per column."""
    try:
        pairs = np.asarray(bounds, dtype=np.float64)
    except (TypeError, ValueError):
        pairs = np.empty(0)
    pairs = np.tile(pairs, (columns, 1)) if pairs.shape == (2,) else pairs
    if pairs.shape != (columns, 2) or not np.isfinite(pairs).all() or not (pairs[:, 0] < pairs[:, 1]).all():
        raise ValueError(f"Bounds are one pair (low, high) or {columns} of them, with low < high; got {bounds!r}.")
    return [(float(low), float(high)) for low, high in pairs]
