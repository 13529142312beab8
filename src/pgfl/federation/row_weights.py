"""How much every record of a table counts: a column of weights, times the weight of its label."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pgfl.arrays import AnyFloats, Floats, Ints
from pgfl.errors import ConfigError
from pgfl.federation.columns import TargetColumn
from pgfl.federation.encoding import TableRows
from pgfl.federation.frames import Table
from pgfl.suggestions import nearest, quoted


def row_weights(
    table: Table,
    rows: Ints,
    targets: AnyFloats,
    target: TargetColumn,
    weight: str | None,
    class_weight: Mapping[str, float] | None,
) -> Floats | None:
    """Return the weights of some rows of a table, with the encoded `targets`; None where all count alike."""
    if weight is None and not class_weight:
        return None
    found = np.ones(len(rows)) if weight is None else _column(table, rows, weight)
    if class_weight:
        labels = target.labels or ("0", "1")
        check_class_weight(class_weight, labels)
        found *= np.array([class_weight.get(label, 1.0) for label in labels])[targets.astype(np.int64)]
    return found


def check_class_weight(class_weight: Mapping[str, float], labels: tuple[str, ...]) -> None:
    """Refuse weights of labels that the target does not have, and weights that are no numbers from 0 up."""
    for label, value in class_weight.items():
        if label not in labels:
            raise ConfigError(
                f"`class_weight` names the label {quoted(label)}, which the target does not have"
                f"{nearest(label, labels)}; its labels are {', '.join(labels)}."
            )
        if not (np.isfinite(value) and value >= 0.0):
            raise ConfigError(
                f"`class_weight` gives {quoted(label)} the weight {value!r}; weights are numbers from 0 up."
            )


def _column(table: Table, rows: Ints, name: str) -> Floats:
    """Return a column's numbers in the order of `rows`; empty and negative cells are refused."""
    needed = np.sort(rows)
    read = TableRows(table, needed)
    values = read.numbers(name)
    wrong = np.flatnonzero(~(values >= 0.0))
    if wrong.size:
        shown = "is empty" if np.isnan(values[wrong[0]]) else f"holds {values[wrong[0]]:g}"
        raise read.refuse(int(wrong[0]), f"the weight {quoted(name)} {shown}; weights are numbers from 0 up.")
    return np.asarray(values[np.searchsorted(needed, rows)], dtype=np.float64)
