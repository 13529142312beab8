"""Coefficients by name and in the table's own units, with standard errors and intervals.

A model holds coefficients of encoded features: numbers scaled to [−1, 1], one feature per category. Undoing that is
linear, so a standard error in the table's units follows from the covariance of the encoded ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtrit

from pgfl.arrays import Floats
from pgfl.errors import ResultError
from pgfl.federation.columns import ArrayColumn, CategoryColumn, FeatureColumn, NumberColumn, centre
from pgfl.federation.encoding import INTERCEPT, RowEncoding

if TYPE_CHECKING:
    import polars

    from pgfl.results.model import Model
    from pgfl.results.result import Columns

LEVEL = 0.95
FITS = ("estimate", "std_error", "df")
"""The columns that a result keeps; the others follow from them and from its models."""
NAMES_OF_COLUMNS = {
    "reference": "against",
    "std_error": "std. error",
    "odds_ratio": "odds ratio",
    "odds_low": "odds, low",
    "odds_high": "odds, high",
}
"""What columns of the table are called on screens and pages, where it is not their own name."""
ODDS = ("logistic", "softmax")
"""The objectives whose margins are log-odds."""
MOST_FEATURES = 4000
IDENTIFIED = 1e-6  # the largest share of a coefficient's direction that the records may leave open


@dataclass(frozen=True, eq=False)
class Fit:
    """What is known about the coefficients of one cluster's encoded features.

    `estimate` is what the records say without penalty, `covariance` that of its error, `df` the degrees of freedom of
    the interval, and `unidentified` an orthonormal basis (L × k) of the directions that no record tells apart.
    """

    estimate: Floats
    covariance: Floats
    df: float
    unidentified: Floats


@dataclass(frozen=True)
class Term:
    """One coefficient: its name, and the category or number that it is compared with, if any."""

    feature: str
    reference: str = ""


@dataclass(frozen=True, eq=False)
class Units:
    """From encoded to original units: `matrix` (terms × d) times a model, plus `offset`.

    A number's coefficient is per unit of its column. A category's is compared with the first category, a curve's with
    its value at the lower bound; the intercept is the prediction where every number is 0 and every category the first.

    >>> from pgfl.federation.columns import NumberColumn, TargetColumn
    >>> encoding = RowEncoding((NumberColumn("age", (20.0, 80.0)),), TargetColumn("y", (0.0, 10.0)))
    >>> units = Units.of(encoding)
    >>> [term.feature for term in units.terms], (units.matrix @ [0.6, 0.2] + units.offset).round(6).tolist()
    (['age', 'intercept'], [0.1, 1.0])
    """

    terms: tuple[Term, ...]
    matrix: Floats
    offset: Floats

    @classmethod
    def of(cls, encoding: RowEncoding) -> Units:
        """Return the units of a table; raises `ResultError` where a map leaves no coefficient per column."""
        mixing = [one.kind for one, _ in encoding.stages if not one.additive]
        if mixing or (not encoding.is_plain and len(encoding.groups) != len(encoding.columns)):
            kind = mixing[0] if mixing else encoding.stages[0][0].kind
            raise ResultError(f'The map "{kind}" mixes columns, so that no coefficient belongs to one of them.')
        if encoding.dimension > MOST_FEATURES:
            raise ResultError(
                f"{encoding.dimension} features are too many for a table; see `model().coefficients` for the numbers."
            )
        terms, rows, constant = [], [], np.zeros(encoding.dimension)
        start = 0
        for place, column in enumerate(encoding.columns):
            size = len(column.feature_names) if encoding.is_plain else encoding.groups[place].size
            where = slice(start, start + size)
            for term, own in _terms(encoding, column, size, constant[where]):
                row = np.zeros(encoding.dimension)
                row[where] = own
                terms.append(term)
                rows.append(row)
            start += size
        constant[-1] += encoding.intercept
        target = encoding.target
        matrix = target.unit * np.array([*rows, constant])
        offset = np.zeros(len(matrix))
        offset[-1] = float(target.decode(np.zeros(1))[0])
        return cls((*terms, Term(INTERCEPT)), matrix, offset)

    @classmethod
    def encoded(cls, names: Sequence[str]) -> Units:
        """Return those of features without a table: coefficients as they are."""
        return cls(tuple(map(Term, names)), np.eye(len(names)), np.zeros(len(names)))


def _terms(encoding: RowEncoding, column: FeatureColumn, size: int, constant: Floats) -> Iterator[tuple[Term, Floats]]:
    """Yield a column's terms, each with its row of the matrix; adds what belongs to the intercept to `constant`."""
    unit = np.eye(size)
    own = len(column.feature_names)
    if isinstance(column, CategoryColumn):
        constant[0] += 1.0
        for place, name in enumerate(column.feature_names[1:], start=1):
            yield Term(name, column.categories[0]), unit[place] - unit[0]
        return
    first = 0  # features that are not taken as they are
    if isinstance(column, NumberColumn) and column.bounds is not None:
        knots = size - own + 1
        first = knots
        if knots == 1:
            middle, half = centre(column.bounds)
            constant[0] -= middle / half
            yield Term(column.name), unit[0] / half
        else:
            _, heights = encoding.of_number(column.name, np.linspace(-1.0, 1.0, knots))
            values = np.linspace(*column.bounds, knots)
            constant += heights[0]
            for place in range(1, knots):
                yield Term(f"{column.name}={values[place]:g}", f"{values[0]:g}"), heights[place] - heights[0]
    elif isinstance(column, ArrayColumn) and column.bounds is not None:
        first = size
        low, high = column.bounds
        middle, half = (low, high - low) if column.shape else centre(column.bounds)
        constant -= middle / half
        yield from ((Term(name), unit[place] / half) for place, name in enumerate(column.feature_names))
    rest = column.feature_names[own - (size - first) :]  # an indicator, or all
    yield from ((Term(name), unit[place]) for place, name in enumerate(rest, start=first))


@dataclass(frozen=True, eq=False)
class Terms:
    """All coefficients of a model, in the order of the table: cluster after cluster, label after label."""

    model: Model
    units: Units

    @classmethod
    def of(cls, model: Model) -> Terms:
        """Return those of a model; raises `ResultError` where coefficients have no meaning."""
        encoding = model.encoding
        return cls(model, Units.encoded(model.feature_names) if encoding is None else Units.of(encoding))

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that have coefficients of their own: all but the first, which they are compared with."""
        return self.model.label_names[1:] if self.model.classes else ("",)

    @property
    def matrix(self) -> Floats:
        """What a cluster's model is multiplied with, label after label."""
        if not self.model.classes:
            return self.units.matrix
        classes = self.model.classes
        against_first = np.concatenate([-np.ones((classes - 1, 1)), np.eye(classes - 1)], axis=1)
        return np.kron(against_first, self.units.matrix)

    def of_cluster(self, q: int) -> Floats:
        """Return the coefficients of a cluster's model."""
        return self._shifted(self.matrix @ self.model.clusters[q].astype(np.float64))

    def _shifted(self, values: Floats) -> Floats:
        return values if self.model.classes else values + self.units.offset

    def of_fit(self, fit: Fit | None) -> dict[str, Floats]:
        """Return estimates, standard errors and degrees of freedom of a cluster; NaN where there are none."""
        matrix = self.matrix
        if fit is None:
            return {name: np.full(len(matrix), np.nan) for name in FITS}
        variance = np.einsum("rl,lm,rm->r", matrix, fit.covariance, matrix)
        length = np.linalg.norm(matrix, axis=1)
        known = np.linalg.norm(matrix @ fit.unidentified, axis=1) <= IDENTIFIED * length
        known &= fit.df > 0
        return {
            "estimate": np.where(known, self._shifted(matrix @ fit.estimate), np.nan),
            "std_error": np.where(known, np.sqrt(np.maximum(variance, 0.0)), np.nan),
            "df": np.where(known, fit.df, np.nan),
        }

    def table(self, fits: Columns | None, level: float = LEVEL) -> polars.DataFrame:
        """Return the table; `fits` holds what `of_fit` found, one number per row."""
        import polars

        if not 0.0 < level < 1.0:
            raise ResultError(f"`level` must lie between 0 and 1, such as 0.95; got {level}.")
        model, terms, labels = self.model, self.units.terms, self.labels
        clusters, each = len(model.cluster_ids), len(terms) * len(labels)
        columns: dict[str, object] = {"cluster": np.repeat(np.array(model.cluster_ids, dtype=object), each)}
        if model.classes:
            columns["label"] = np.tile(np.repeat(np.array(labels, dtype=object), len(terms)), clusters)
        columns["feature"] = [term.feature for term in terms] * (clusters * len(labels))
        columns["reference"] = [term.reference or None for term in terms] * (clusters * len(labels))
        coefficient = np.concatenate([self.of_cluster(q) for q in range(clusters)])
        nothing = np.full(len(coefficient), np.nan)
        found = {name: nothing if fits is None else fits[name] for name in FITS}
        reach = found["std_error"] * stdtrit(found["df"], 0.5 + 0.5 * level)
        low, high = found["estimate"] - reach, found["estimate"] + reach
        columns |= {"coefficient": coefficient, **found, "low": low, "high": high}
        if set(model.objectives) <= set(ODDS):
            best = np.where(np.isnan(found["estimate"]), coefficient, found["estimate"])
            with np.errstate(over="ignore"):
                odds = {"odds_ratio": np.exp(best), "odds_low": np.exp(low), "odds_high": np.exp(high)}
            columns |= odds
        numbers = polars.selectors.float()
        return polars.DataFrame(columns, schema_overrides=_texts(columns)).with_columns(numbers.fill_nan(None))


def cell_text(cell: object) -> str:
    """Return a cell of the table as people read it.

    >>> cell_text(0.123456), cell_text("age"), cell_text(None)
    ('0.1235', 'age', '–')
    """
    return "–" if cell is None else f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _texts(columns: dict[str, object]) -> dict[str, type[polars.String]]:
    import polars

    return {name: polars.String for name in ("cluster", "label", "feature", "reference") if name in columns}
