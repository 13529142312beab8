"""A model as a scikit-learn pipeline: standard transformers and a linear model, with the same predictions.

Clipping to `x_norm` as a step of a scikit-learn pipeline; scikit-learn itself has none.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import make_pipeline

from pgfl.arrays import AnyFloats, Floats
from pgfl.errors import ResultError
from pgfl.federation.clipping import clip_rows
from pgfl.federation.columns import ArrayColumn, BooleanColumn, CategoryColumn, FeatureColumn, NumberColumn

if TYPE_CHECKING:
    from pgfl.federation.encoding import RowEncoding
    from pgfl.results.export import Chosen


class _Stateless(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A transformer that learns nothing, so that it need not be fitted."""

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Nothing is learnt."""
        self.n_features_in_ = np.shape(X)[1]
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> object:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags


class RowClipper(_Stateless):
    """Append a 1 if the model has an intercept, round to `dtype`, and scale long rows back to ‖x‖ ≤ `x_norm`.

    A pipeline that holds it needs pgfl where it is loaded.
    """

    def __init__(self, x_norm: float, intercept: bool = True, dtype: str = "float64") -> None:
        self.x_norm, self.intercept, self.dtype = x_norm, intercept, dtype

    def transform(self, X: ArrayLike) -> AnyFloats:
        """Return the rows as training saw them."""
        rows = np.asarray(X, dtype=np.float64)
        if self.intercept:
            rows = np.concatenate([rows, np.ones((len(rows), 1))], axis=1)
        return clip_rows(rows.astype(self.dtype), self.x_norm)


class RowMapper(_Stateless):
    """Apply the maps of a model to encoded rows, and append its intercept.

    A pipeline that holds it needs pgfl where it is loaded.
    """

    def __init__(self, encoding: RowEncoding) -> None:
        self.encoding = encoding

    def transform(self, X: ArrayLike) -> AnyFloats:
        """Return the rows as training saw them, but for rounding and clipping."""
        rows = np.asarray(X, dtype=np.float64)
        arrays = [column for column in self.encoding.columns if isinstance(column, ArrayColumn)]
        mapped = np.empty((len(rows), self.encoding.dimension))
        self.encoding.map_into(arrays[0].scale(rows) if arrays else rows, mapped)
        return mapped


MISSING_CELL = "\N{EMPTY SET}"
"""What stands for an empty cell of a category column inside the pipeline."""


def write(chosen: Chosen) -> bytes:
    """Return the pipeline as joblib writes it."""
    made = pipeline(chosen)
    import joblib

    stream = io.BytesIO()
    joblib.dump(made, stream)
    return stream.getvalue()


def pipeline(chosen: Chosen) -> object:
    """Return the model as a fitted `Pipeline`: it takes a data frame with the model's columns, or else an array.

    Where clipping to `x_norm` can change a row, or rows are mapped, it has a step of pgfl's own (`RowClipper`,
    `RowMapper`) and needs pgfl to be loaded.
    """
    steps: list[Any] = []
    coefficients, model = chosen.coefficients, chosen.model
    constant = np.zeros(len(coefficients))
    maps = model.encoding is not None and not model.encoding.is_plain
    appended = not maps and (model.encoding.intercept if model.encoding else model.intercept)
    if chosen.clips:
        assert model.x_norm is not None
        steps.append(RowClipper(model.x_norm, appended, model.dtype).fit(np.zeros((1, model.features - appended))))
    elif appended:
        coefficients, constant = coefficients[:, :-1], coefficients[:, -1].copy()
    if model.encoding is not None:
        if maps:
            steps.insert(0, RowMapper(model.encoding))
        columns = model.encoding.columns
        if not any(isinstance(column, ArrayColumn) for column in columns):
            encoder, folded_coefficients, folded = _encoder(columns, coefficients, fold=not chosen.clips and not maps)
            steps.insert(0, encoder)
            if not maps:
                coefficients, constant = folded_coefficients, constant + folded
    return make_pipeline(*steps, _linear(chosen, coefficients, constant))


def _linear(chosen: Chosen, coefficients: Floats, constant: Floats) -> Any:
    """Return a fitted linear model with these coefficients."""
    from sklearn.linear_model import LinearRegression, LogisticRegression

    linear: Any
    if chosen.task == "regression":
        offset, scale = chosen.unit
        linear = LinearRegression()
        linear.coef_, linear.intercept_ = scale * coefficients[0], float(offset + scale * constant[0])
    else:
        linear = LogisticRegression()
        linear.coef_, linear.intercept_ = coefficients, constant
        labels = chosen.model.labels
        linear.classes_ = np.arange(chosen.model.classes or 2) if labels is None else np.array(labels)
        if labels is not None and list(labels) != sorted(labels):
            linear = _sorted_labels(linear, labels)
        linear.n_iter_ = np.array([0], dtype=np.int32)
    linear.n_features_in_ = coefficients.shape[1]
    return _cut(linear, chosen) if chosen.threshold else linear


def _cut(linear: Any, chosen: Chosen) -> Any:
    """Return the classifier with the threshold of the costs that the training stated."""
    from sklearn.model_selection import FixedThresholdClassifier

    positive = 1 if chosen.model.labels is None else chosen.model.labels[1]
    turned = linear.classes_[1] != positive
    threshold = -chosen.threshold if turned else chosen.threshold
    cut = FixedThresholdClassifier(
        linear, threshold=threshold, pos_label=linear.classes_[1], response_method="decision_function"
    )
    cut.estimator_ = linear
    return cut


def _sorted_labels(linear: Any, labels: tuple[str, ...]) -> Any:
    """scikit-learn keeps labels sorted; the coefficients follow them."""
    order = np.argsort(np.array(labels))
    linear.classes_ = np.array(labels)[order]
    if len(labels) == 2:
        linear.coef_, linear.intercept_ = -linear.coef_, -linear.intercept_
    else:
        linear.coef_, linear.intercept_ = linear.coef_[order], linear.intercept_[order]
    return linear


def _encoder(columns: tuple[FeatureColumn, ...], coefficients: Floats, fold: bool) -> tuple[Any, Floats, Floats]:
    """Return the columns' transformers, the coefficients of what they return, and a constant that comes on top.

    scikit-learn has no feature for unknown categories. With `fold` its coefficient becomes part of the constant, and
    the others are taken relative to it; a clipped row would need the feature itself.
    """
    from sklearn.compose import ColumnTransformer

    parts, kept, start, constant = [], [], 0, np.zeros(len(coefficients))
    for column in columns:
        own = coefficients[:, start : start + len(column.feature_names)]
        start += len(column.feature_names)
        if isinstance(column, CategoryColumn) and column.other:
            if not fold:
                raise ResultError(
                    f"Column '{column.name}' has a category for unknown texts and rows are clipped or mapped, which "
                    "no scikit-learn pipeline does exactly; export to ONNX instead."
                )
            other = own[:, [len(column.categories)]]
            constant = constant + other[:, 0]
            own = np.delete(own, len(column.categories), axis=1) - other
        kept.append(own)
        parts.append((column.name, _transformer(column), [column.name]))
    encoder = ColumnTransformer(parts, verbose_feature_names_out=False)
    encoder.fit(_typical_rows(columns))
    return encoder, np.concatenate([*kept, coefficients[:, start:]], axis=1), constant


def _transformer(column: FeatureColumn) -> Any:
    """Return what scikit-learn calls the column's encoding."""
    if isinstance(column, CategoryColumn):
        return _categories(column)
    assert isinstance(column, NumberColumn | BooleanColumn)
    from sklearn.impute import MissingIndicator, SimpleImputer
    from sklearn.pipeline import make_pipeline, make_union
    from sklearn.preprocessing import MinMaxScaler

    bounds = column.bounds if isinstance(column, NumberColumn) else None
    made: Any = "passthrough" if bounds is None else MinMaxScaler((-1.0, 1.0), clip=True)
    if column.fill is not None:
        made = make_pipeline(SimpleImputer(strategy="constant", fill_value=float(column.fill)), made)
    return make_union(made, MissingIndicator(features="all")) if column.indicator else made


def _categories(column: CategoryColumn) -> Any:
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    known = [*column.categories, *([MISSING_CELL] if column.missing else [])]
    unknown = "ignore" if column.other else "error"
    encode = OneHotEncoder(categories=[known], handle_unknown=unknown, sparse_output=False)
    fill = MISSING_CELL if column.missing else column.fill
    if fill is None:
        return encode
    empty = (SimpleImputer(missing_values=cell, strategy="constant", fill_value=fill) for cell in (np.nan, None))
    return make_pipeline(*empty, encode)


def _typical_rows(columns: tuple[FeatureColumn, ...]) -> Any:
    """A made-up table whose extremes are the declared bounds: fitted to it, the transformers do what was declared."""
    import polars

    made: dict[str, list[Any]] = {}
    for column in columns:
        if isinstance(column, CategoryColumn):
            made[column.name] = [column.categories[0], column.categories[-1]]
        else:
            bounds = column.bounds if isinstance(column, NumberColumn) else None
            made[column.name] = list(bounds or (0.0, 1.0))
    return polars.DataFrame(made)
