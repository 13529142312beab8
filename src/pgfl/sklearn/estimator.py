"""What the estimators share: arrays in, a federation trained, a model that predicts.

Columns are scaled to [−1, 1] inside, from `feature_bounds` or else from the training rows, and the scaling is kept in
the model; so is that of a regression's target. With one client of D rows, `lam` is scikit-learn's `alpha / D` of Ridge
and `1 / (2 C D)` of LogisticRegression in these units; the intercept is penalised too, and λ is small by default.
"""

from __future__ import annotations

import copy
import warnings
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, Self
from weakref import WeakSet

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from pgfl.algorithms.algorithms import ALGORITHMS, RECORDS, Algorithm
from pgfl.arrays import AnyFloats, Floats
from pgfl.errors import PrivacyError
from pgfl.federation.columns import NumberColumn, TargetColumn
from pgfl.federation.encoding import RowEncoding
from pgfl.federation.federation import Federation
from pgfl.federation.map_choice import choose_map
from pgfl.maps import AUTO, read_maps
from pgfl.objectives import Huber, Objective
from pgfl.privacy.request import Privacy
from pgfl.registry import config_keys
from pgfl.results.model import Clusters
from pgfl.results.rows import ArrayRows
from pgfl.results.verdict import GOOD
from pgfl.simulate.training import train
from pgfl.sklearn.arguments import CLUSTER, PrivacyAccount, federation_of, names_of, spanned, stated_bounds

CLEAN_TOLERANCE = 1e-8
ROUNDS, ROUNDS_ALONE = 100, 10
_Places = dict[str, ArrayLike | None]
_CLONES: WeakSet[BaseEstimator] = WeakSet()
"""Estimators that scikit-learn copied: several of them may be fitted to the same records without anyone counting."""


class FederatedEstimator(BaseEstimator, ABC):  # type: ignore[misc]
    """What both estimators share: parameters become a federation, an algorithm and privacy; a model comes back."""

    weight_cap: float | None

    def _fitted(
        self, X: Floats, targets: Floats, target: TargetColumn, places: _Places, weights: Floats | None = None
    ) -> Self:
        names = getattr(self, "feature_names_in_", None)
        columns = [f"x{n}" for n in range(X.shape[1])] if names is None else [str(name) for name in names]
        encoding = self._encoding(X if weights is None else X[weights > 0], columns, target)
        federation = self._federation(encoding, ArrayRows(X, columns), targets, places, weights)
        if self.map == AUTO:
            if self.epsilon is not None:
                raise PrivacyError(
                    'With epsilon, name a map, such as map="curves": a choice that looks at records is not private.'
                )
            chosen = choose_map(federation, self.lam, labels=target.labels is not None).maps
            encoding = replace(encoding, maps=chosen)
            federation = self._federation(encoding, ArrayRows(X, columns), targets, places, weights)
        alone = len(federation.cluster_ids) == federation.size
        rounds = self.rounds or (ROUNDS_ALONE if alone else ROUNDS)
        privacy, seed = self._privacy(rounds), self._seed()
        heavy = 1.0 if weights is None or privacy is not None else float(weights.mean())  # as if rows were repeated
        lam = self.lam * heavy * float(federation.server_sizes[federation.client_server].mean())
        objective = self._objective(lam)
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
        if verdict is not None and verdict.kind not in GOOD:
            warnings.warn(verdict.text, ConvergenceWarning, stacklevel=4)  # the caller of `fit`, which is wrapped
        return self

    def _federation(
        self, encoding: RowEncoding, rows: ArrayRows, targets: Floats, places: _Places, weights: Floats | None
    ) -> Federation:
        encoded = encoding.encode(rows)
        return federation_of(encoded, targets, **places, graph=self.graph, weights=weights).replace(encoding=encoding)

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
        maps = () if self.map == AUTO else read_maps(self.map)
        return RowEncoding(numbers, target, bool(self.fit_intercept), maps=maps)

    def _algorithm(self, objective: Objective, federation: Federation, privacy: Privacy | None) -> Algorithm:
        if isinstance(self.algorithm, Algorithm):
            return self.algorithm
        exact = self.tau == 0 and privacy is None
        name = ("pgfl-exact" if exact else "pgfl") if self.algorithm == "auto" else self.algorithm
        if name not in ALGORITHMS:
            raise ValueError(f"algorithm must be one of auto, {', '.join(ALGORITHMS)}; got {name!r}.")
        kind = ALGORITHMS[name]
        if "rho" not in config_keys(kind):
            return kind()
        counted = {"count": RECORDS} if "count" in config_keys(kind) else {}
        return kind(rho=self.rho, tau=self.tau, **counted)  # type: ignore[call-arg]

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
            weight_cap=self._weight_cap(),
        )

    def _weight_cap(self) -> float | None:
        """Return the public bound on weights."""
        return self.weight_cap

    def _row_weights(self, sample_weight: ArrayLike | None, X: Floats) -> Floats | None:
        """Return one weight per row, None where all count alike."""
        if sample_weight is None:
            return None
        found = np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))
        if not found.any():
            raise ValueError("All weights in sample_weight are 0; at least one row must count.")
        return found

    def _charge(self) -> None:
        """Charge this fit to the account before anything is computed."""
        if self.account is None and self in _CLONES:
            raise PrivacyError(
                "This private estimator is a copy, as a search or a cross-validation makes them, and what each copy "
                "spends adds up; pass account=PrivacyAccount(), which all copies share."
            )
        before = getattr(self, "account_", None)
        if before is not None and self.account is not None and self.account is not before:
            raise PrivacyError(
                "The earlier fits of this estimator are in another account, and what they spent would be forgotten; "
                "keep that account, or make a new estimator for other records."
            )
        self.account_ = self.account or before or PrivacyAccount(delta=self.delta)
        self.account_.charge(self.epsilon, self.delta)

    def _tolerance(self) -> float:
        """Return how exactly primal problems are solved: the sensitivity of a private fit counts on the default."""
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
        """`coef_` and `intercept_` in the units of X and y: one row per cluster, or flat if there is only one.

        With a map, the coefficients are those of mapped columns.
        """
        encoding, model = self.model_.encoding, self.model_
        assert encoding is not None
        if encoding.is_plain:
            low, high = np.array([column.bounds for column in encoding.columns]).T  # type: ignore[attr-defined]
        else:
            low, high = np.array([[-1.0, 1.0]] * (encoding.dimension - encoding.intercept)).T
        half = 0.5 * (high - low)
        weights = model.clusters.astype(np.float64).reshape(len(model.cluster_ids), model.classes or 1, -1)
        slopes, constant = weights[..., : len(half)], weights[..., len(half) :].sum(axis=-1)
        offset, unit = float(encoding.target.decode(np.zeros(1))[0]), encoding.target.unit
        coefficients = unit * slopes / half
        intercepts = offset + unit * constant - coefficients @ (low + half)
        self._keep_coefficients(coefficients, intercepts)

    @abstractmethod
    def _objective(self, lam: float) -> Objective:
        """Return the objective that the parameters ask for, with λ as pgfl counts it."""

    @abstractmethod
    def _keep_coefficients(self, coefficients: Floats, intercepts: Floats) -> None:
        """Set `coef_` and `intercept_` from (clusters, classes, columns) and (clusters, classes)."""

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
