"""The regressor."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import validate_data

from pgfl.algorithms.algorithms import Algorithm
from pgfl.algorithms.schedules import ENGINE, Library
from pgfl.arrays import AnyFloats, Floats
from pgfl.errors import PrivacyError
from pgfl.federation.columns import TargetColumn
from pgfl.maps import MapSource
from pgfl.objectives import OBJECTIVES, Huber, Objective
from pgfl.privacy.request import Noise
from pgfl.results.model import Clusters
from pgfl.results.rows import ArrayRows
from pgfl.sklearn.arguments import INSTEAD, INSTEAD_IN_FIT, Bounds, PrivacyAccount, spanned, stated_bounds
from pgfl.sklearn.estimator import FederatedEstimator
from pgfl.suggestions import friendly_signature


class PGFLRegressor(RegressorMixin, FederatedEstimator):  # type: ignore[misc]
    """Personalised federated regression: one linear model per cluster.

    `fit` takes one client, server and cluster name per row; without them it is a plain ridge regression. `predict`
    takes one cluster per row where there are several; `model_` (a `pgfl.Model`) has the models of clients as well.

    Parameters
    ----------
    objective : "auto", "ridge", "huber" or an `Objective`
        "auto" is ridge, and huber (whose gradient is bounded) where `epsilon` is given.
    lam : float
        λ of the penalty λ‖w‖² on a client's mean loss, in scaled units, however many clients there are; see
        `federated_estimator` for `alpha`. (pgfl's own λ is divided by the clients of a server.)
    kappa : float
        Where huber turns linear, in units of the scaled target.
    rho : "auto" or float
        The ADMM penalty; "auto" chooses it as `train` does: from the curvature of the data or, where `epsilon` is
        given, from public facts.
    tau : float
        How much a cluster learns from the others.
    rounds : int or None
        Number of rounds; None is 100, or 10 where every cluster has one client, which needs fewer.
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
    map : str, dict, `RowMap` or list of them
        A row map, for instance "curves": a curve in every column. `coef_` and `intercept_` are then about mapped
        columns. Without privacy, "auto" chooses one by cross-validation, or none.
    weight_cap : float, optional
        With `epsilon`, the public bound to which the weights in `sample_weight` are clipped.

    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> round(PGFLRegressor().fit(X, y).score(X, y), 2)
    0.52
    """

    @friendly_signature("PGFLRegressor(lam=1e-4, rounds=100)", INSTEAD)
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
        map: MapSource = None,
        weight_cap: float | None = None,
    ) -> None:
        self.objective, self.lam, self.kappa, self.rho, self.tau = objective, lam, kappa, rho, tau
        self.rounds, self.algorithm, self.graph, self.fit_intercept = rounds, algorithm, graph, fit_intercept
        self.feature_bounds, self.target_bounds = feature_bounds, target_bounds
        self.epsilon, self.delta, self.x_norm, self.w_norm = epsilon, delta, x_norm, w_norm
        self.noise, self.account, self.engine, self.random_state = noise, account, engine, random_state
        self.map, self.weight_cap = map, weight_cap

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
        rows, values = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        values = np.asarray(values, dtype=np.float64)
        if self.target_bounds is None and self.epsilon is not None:
            raise PrivacyError(
                "With epsilon, state target_bounds, a pair (low, high): bounds that are read from the records are not "
                "private."
            )
        weights = self._row_weights(sample_weight, rows)
        counted = values if weights is None else values[weights > 0]
        bounds = spanned(counted) if self.target_bounds is None else stated_bounds(self.target_bounds, 1)[0]
        target = TargetColumn("y", bounds)
        scaled = target.encode(ArrayRows(values[:, None], ["y"]))
        places = {"client": client, "server": server, "cluster": cluster}
        return self._fitted(rows, scaled, target, places, weights)

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
