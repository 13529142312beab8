"""Columns that look like ids: a model can learn them by heart, and learns nothing from them."""

from __future__ import annotations

import re

import numpy as np

from pgfl.array_types import AnyFloats
from pgfl.core.encoded_columns import NumberColumn
from pgfl.core.federation import Federation
from pgfl.did_you_mean import quoted

NEARLY_ALL = 0.95
FEWEST_ROWS = 20
_NAME = re.compile(r"(?i:^(id|uuid|guid|index|key)$|[_\- ](id|uuid|guid|key)$|^(id|unnamed)[_\-: ])|[a-z]I[dD]$")


def named_like_an_id(name: str) -> bool:
    """Whether a column's name says that it is an id.

    >>> [name for name in ("patient_id", "patientID", "id", "acid", "Unnamed: 0", "grid") if named_like_an_id(name)]
    ['patient_id', 'patientID', 'id', 'Unnamed: 0']
    """
    return _NAME.search(name) is not None


def numbered_like_an_id(values: AnyFloats) -> bool:
    """Whether numbers are whole, nearly all distinct and nearly without gaps, as serial numbers are.

    >>> numbered_like_an_id(np.arange(100.0) + 7), numbered_like_an_id(np.arange(100.0) ** 2)
    (True, False)
    """
    known = values[np.isfinite(values)]
    if len(known) < FEWEST_ROWS or not np.array_equal(known, np.floor(known)):
        return False
    distinct = len(np.unique(known))
    return distinct >= NEARLY_ALL * len(known) and float(np.ptp(known)) + 1 <= 2 * distinct


def id_warning(federation: Federation, *, values: bool) -> str | None:
    """That a feature looks like an id, if one does that nobody has declared.

    Without `values` only names are looked at, so that nothing depends on records.
    """
    columns = federation.encoding.columns if federation.encoding else ()
    start, found = 0, []
    for column in columns:
        undeclared = isinstance(column, NumberColumn) and column.bounds is None
        numbers = federation.features[:, start]
        if undeclared and (named_like_an_id(column.name) or (values and numbered_like_an_id(numbers))):
            found.append(quoted(column.name))
        start += len(column.feature_names)
    if not found:
        return None
    if len(found) == 1:
        return f"Column {found[0]} looks like an id but is a feature; leave it out with `ignore`."
    return f"Columns {', '.join(found)} look like ids but are features; leave them out with `ignore`."
