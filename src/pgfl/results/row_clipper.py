"""Clipping to `x_norm` as a step of a scikit-learn pipeline; scikit-learn itself has none."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin

from pgfl.array_types import AnyFloats
from pgfl.privacy.sensitivity import clip_rows


class RowClipper(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Append a 1 if the model has an intercept, round to `dtype`, and scale long rows back to ‖x‖ ≤ `x_norm`.

    A pipeline that holds it needs pgfl where it is loaded.
    """

    def __init__(self, x_norm: float, intercept: bool = True, dtype: str = "float64") -> None:
        self.x_norm, self.intercept, self.dtype = x_norm, intercept, dtype

    def fit(self, X: ArrayLike, y: object = None) -> RowClipper:
        """Nothing is learnt."""
        self.n_features_in_ = np.shape(X)[1]
        return self

    def transform(self, X: ArrayLike) -> AnyFloats:
        """The rows as training saw them."""
        rows = np.asarray(X, dtype=np.float64)
        if self.intercept:
            rows = np.concatenate([rows, np.ones((len(rows), 1))], axis=1)
        return clip_rows(rows.astype(self.dtype), self.x_norm)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> object:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags
