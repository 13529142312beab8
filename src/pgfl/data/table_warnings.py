"""What a person should look at in a table before training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pgfl.data.table_facts import ColumnFacts, TableFacts, is_label
from pgfl.did_you_mean import quoted

MOST_NAMED = 6
FEW_ROWS = 5
RARE = 0.2
"""A label is rare if it has less than this share of the rows that it would have if all were equally frequent."""
LOOKS_LIKE_ID = ("looks like an id; leave it out with `ignore`", "look like ids; leave them out with `ignore`")


def table_warnings(facts: TableFacts) -> list[str]:
    """What a person should look at before training."""
    features = facts.features
    found = [
        _named([column.name for column in features if column.looks_like_id], *LOOKS_LIKE_ID),
        _named(
            [column.name for column in features if column.empty],
            "is empty; leave it out with `ignore`",
            "are empty; leave them out with `ignore`",
        ),
        _named(
            [column.name for column in features if column.constant and not column.empty],
            "is constant; it can be left out with `ignore`",
            "are constant; they can be left out with `ignore`",
        ),
        _named(
            [column.name for column in features if column.kind == "text" and not column.looks_like_id],
            "holds free text; leave it out with `ignore`, or list its categories",
            "hold free text; leave them out with `ignore`, or list their categories",
        ),
        _named(
            [column.name for column in features if column.kind == "other"],
            "holds dates or lists; turn it into numbers, or leave it out with `ignore`",
            "hold dates or lists; turn them into numbers, or leave them out with `ignore`",
        ),
    ]
    mixed = [_mixed(column) for column in facts.features if column.kind == "mixed"]
    return [
        *(sentence for sentence in found if sentence),
        *mixed[:MOST_NAMED],
        *_target_warnings(facts),
        *_place_warnings(facts),
    ]


def _mixed(column: ColumnFacts, what: str = "Column") -> str:
    """That a column of numbers also holds other text, or signs and units beside every number."""
    examples = ", ".join(quoted(cell) for cell in column.strays)
    if column.stray_rows and column.low is None:
        return (
            f"{what} {quoted(column.name)} holds numbers with signs or units, such as {examples}; write plain numbers."
        )
    rows = "1 row" if column.stray_rows == 1 else f"{column.stray_rows} rows"
    return f"{what} {quoted(column.name)} holds numbers, but also {examples} in {rows}; correct or empty these cells."


def _target_warnings(facts: TableFacts) -> list[str]:
    if facts.target is None:
        return []
    target, found = facts.column(facts.target), []
    if target.missing:
        rows = "1 row; remove or fill it" if target.missing == 1 else f"{target.missing} rows; remove or fill them"
        found.append(f"The target {quoted(target.name)} is missing in {rows}.")
    if target.kind == "mixed":
        found.append(_mixed(target, "The target"))
    if target.constant:
        found.append(f"The target {quoted(target.name)} is the same in all rows; there is nothing to learn.")
    elif is_label(target):
        label, seen = min(target.frequent, key=lambda item: item[1])
        if seen < RARE * facts.rows / target.distinct:
            found.append(
                f"Label {quoted(label)} of {quoted(target.name)} is in {seen} of {facts.rows} rows only; judge by AUC "
                "or log loss rather than by accuracy."
            )
    return found


def _place_warnings(facts: TableFacts) -> list[str]:
    places = facts.places
    if places is None:
        return []
    found = []
    for what, column in (("server", places.columns.server), ("cluster", places.columns.cluster)):
        if column is None:
            found.append(
                f"There is no column '{what}', so all clients are in one {what}, 'all'; name another with --{what}."
            )
    if places.small_clients:
        found.append(f"{places.small_clients} of {places.clients} clients have fewer than {FEW_ROWS} rows.")
    together = np.array(places.clients_by_cluster_and_server)
    alone = [name for name, count in zip(places.clusters, together.sum(axis=1), strict=True) if count == 1]
    if alone and places.clients > 1:
        one, many = "has one client only, which learns alone", "have one client only, which learn alone"
        found.append(_named(alone, one, many, "Cluster"))
    return found


def _named(names: Sequence[str], one: str, many: str, what: str = "Column") -> str:
    """A sentence about some columns or clusters; nothing if there are none."""
    shown = ", ".join(quoted(name) for name in names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")
    return "" if not names else f"{what} {shown} {one}." if len(names) == 1 else f"{what}s {shown} {many}."
