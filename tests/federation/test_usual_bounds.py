"""Bounds from a name, and bounds from records that far values do not widen."""

import numpy as np
import pytest

from pgfl import Column, Federation
from pgfl.config.starter import InitOptions, draft_config
from pgfl.federation.survey import survey


def table(values, target=None):
    rows = len(values)
    return {
        "client": [f"c{k % 4}" for k in range(rows)],
        "visits": values,
        "y": np.arange(rows) * 1.0 if target is None else target,
    }


def bounds_of(made):
    return made.encoding.columns[0].bounds


def test_far_values_do_not_widen_the_bounds_of_a_feature_but_those_of_the_target():
    values = [*np.tile(np.arange(25.0), 8), 61_370.0]
    declared = {"visits": Column(bounds="data"), "y": Column(bounds="data")}
    made = Federation.read(table(values, values), columns=declared)
    assert bounds_of(made) == (0.0, 48.0) and made.features.max() == 1.0
    assert made.encoding.target.bounds == (0.0, 61_370.0)
    assert bounds_of(Federation.read(table(values[:-1]), columns={"visits": Column(bounds="data")})) == (0.0, 24.0)


def test_what_an_empty_cell_counts_as_stays_within_bounds():
    values = [None, *np.tile(np.arange(25.0), 8)]
    made = Federation.read(table(values), columns={"visits": Column(bounds="data", missing=-99.0)})
    assert bounds_of(made) == (-99.0, 24.0)


@pytest.mark.parametrize("values", [[3.0, 4.0], [1e9, -1e9]])
def test_a_private_draft_guesses_from_names_alone_and_leaves_the_answer_open(values):
    cells = table(values * 4) | {"age": values * 4, "share_pct": values * 4}
    draft = draft_config(survey(cells), InitOptions("clients.csv", epsilon=4.0))
    assert "# age = { bounds = [0, 110] }" in draft.text and "# share_pct = { bounds = [0, 100] }" in draft.text
    assert "# visits = { bounds = [LOW, HIGH] }" in draft.text
    assert draft.text.count("guessed from its name alone") == 2
    assert {"age", "share_pct", "visits"} <= set(draft.unstated)
