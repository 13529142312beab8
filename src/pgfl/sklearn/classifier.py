"""The classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from pgfl.algorithms.algorithms import Algorithm
from pgfl.algorithms.schedules import ENGINE, Library
from pgfl.arrays import AnyArray, AnyFloats, Floats
from pgfl.errors import PrivacyError
from pgfl.federation.columns import TargetColumn
from pgfl.maps import MapSource
from pgfl.objectives import OBJECTIVES, Objective
from pgfl.privacy.request import Noise
from pgfl.results.model import Clusters
from pgfl.sklearn.arguments import INSTEAD, INSTEAD_IN_FIT, Bounds, PrivacyAccount, balanced
from pgfl.sklearn.estimator import FederatedEstimator
from pgfl.suggestions import friendly_signature


class PGFLClassifier(ClassifierMixin, FederatedEstimator):  # type: ignore[misc]
    """Personalised federated classification: one logistic (or, with more than two classes, softmax) model per cluster.

    The parameters are those of `PGFLRegressor`, without `kappa`, `target_bounds` and `w_norm`. With `epsilon` the
    `classes` have to be stated, because those in the records are not public. `class_weight` says how much rows of each
    class count, or is "balanced" (without `epsilon` only).

    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> PGFLClassifier().fit(X, y).score(X, y) > 0.97
    True
    """

    @friendly_signature("PGFLClassifier(lam=1e-4, rounds=100)", INSTEAD)
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
        map: MapSource = None,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        weight_cap: float | None = None,
    ) -> None:
        self.objective, self.lam, self.rho, self.tau = objective, lam, rho, tau
        self.rounds, self.algorithm, self.graph, self.fit_intercept = rounds, algorithm, graph, fit_intercept
        self.feature_bounds, self.classes = feature_bounds, classes
        self.epsilon, self.delta, self.x_norm = epsilon, delta, x_norm
        self.noise, self.account, self.engine, self.random_state = noise, account, engine, random_state
        self.map, self.weight_cap = map, weight_cap
        self.class_weight = class_weight

    def __sklearn_tags__(self) -> object:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = "softmax" in OBJECTIVES
        return tags

    @friendly_signature("fit(X, y, client=names)", INSTEAD_IN_FIT)
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        client: ArrayLike | None = None,
        server: ArrayLike | None = None,
        cluster: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train on rows, with one client, server and cluster name per row, and perhaps how much each row counts."""
        rows, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_, numbers = self._numbered(np.asarray(labels))
        target = TargetColumn("y", labels=tuple(str(label) for label in self.classes_.tolist()))
        places = {"client": client, "server": server, "cluster": cluster}
        weights = self._of_classes(numbers, self._row_weights(sample_weight, rows))
        return self._fitted(rows, numbers, target, places, weights)

    def predict(self, X: ArrayLike, cluster: Clusters | None = None) -> AnyArray:
        """Return the most probable classes."""
        margins = self._margins(X, cluster)
        return np.asarray(self.classes_[self.model_.label_numbers(margins)])

    def predict_proba(self, X: ArrayLike, cluster: Clusters | None = None) -> AnyFloats:
        """Return the probability of every class, in the order of `classes_`."""
        margins = self._margins(X, cluster)
        return self.model_.label_probabilities(margins)

    def decision_function(self, X: ArrayLike, cluster: Clusters | None = None) -> AnyFloats:
        """Return the margins: above 0 for the second of two classes, or one per class."""
        return self._margins(X, cluster)

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        cluster: Clusters | None = None,
    ) -> float:
        """Return the share of rows whose class is right."""
        return float(accuracy_score(y, self.predict(X, cluster=cluster), sample_weight=sample_weight))

    def _numbered(self, labels: AnyArray) -> tuple[AnyArray, Floats]:
        """Return the classes, and the number of every row's."""
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

    def _of_classes(self, numbers: Floats, weights: Floats | None) -> Floats | None:
        """Return the rows' weights times those of their classes."""
        if self.class_weight is None:
            return weights
        factors = np.ones(len(self.classes_))
        for number, weight in self._class_weights(numbers).items():
            factors[number] = weight
        chosen = factors[numbers.astype(np.int64)]
        return chosen if weights is None else weights * chosen

    def _class_weights(self, numbers: Floats) -> dict[int, float]:
        """Return the weights of the classes by their numbers."""
        if self.class_weight == "balanced":
            if self.epsilon is not None:
                raise PrivacyError(
                    "Balanced class weights are read from the records; with epsilon, state class_weight as a dict."
                )
            return balanced(numbers, len(self.classes_))
        if not isinstance(self.class_weight, Mapping):
            raise ValueError(f'class_weight must be a dict, "balanced" or None; got {self.class_weight!r}.')
        place = {label: number for number, label in enumerate(self.classes_.tolist())}
        return {place[label]: float(weight) for label, weight in self.class_weight.items() if label in place}

    def _weight_cap(self) -> float | None:
        """Return the stated bound, or the largest weight of a class, which is public."""
        if self.weight_cap is None and isinstance(self.class_weight, Mapping):
            return max([1.0, *map(float, self.class_weight.values())])
        return self.weight_cap

    def _objective(self, lam: float) -> Objective:
        if isinstance(self.objective, Objective):
            return self.objective
        if self.objective not in ("auto", "logistic", "hinge", "softmax"):
            raise ValueError(
                f"objective must be auto, logistic, hinge, softmax or an Objective; got {self.objective!r}."
            )
        if len(self.classes_) > 2 or self.objective == "softmax":
            kind: Any = OBJECTIVES["softmax"]
            return kind(lam=lam, tolerance=self._tolerance(), classes=len(self.classes_))  # type: ignore[no-any-return]
        return OBJECTIVES["hinge" if self.objective == "hinge" else "logistic"](lam=lam, tolerance=self._tolerance())

    def _keep_coefficients(self, coefficients: Floats, intercepts: Floats) -> None:
        alone = len(coefficients) == 1
        self.coef_: Floats = coefficients[0] if alone else coefficients
        self.intercept_: Floats = intercepts[0] if alone else intercepts
