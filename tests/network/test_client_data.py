"""A client's table: its own rows, clipped to its own bounds."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from pgfl.errors import DataError
from pgfl.network.client.samples import load_samples
from pgfl.network.client.settings import ClientSettings

SITE = {"address": "x:1", "fingerprint": "00" * 32}


def settings(path, **changes):
    privacy = changes.pop(
        "privacy", {"enabled": True, "epsilon": 1.0, "max_releases": 3, "x_norm": 1.0, "y_bound": 2.0}
    )
    return ClientSettings.model_validate(
        {"name": "ann", "data": str(path), "site": SITE, "privacy": privacy, **changes}
    )


def test_csv_and_parquet_are_the_same_and_rows_are_clipped(tmp_path):
    table = {"x1": [3.0, 0.1], "y": [5.0, -1.0], "x2": [4.0, 0.2]}
    pl.DataFrame(table).write_csv(tmp_path / "a.csv")
    pl.DataFrame(table).write_parquet(tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        samples = load_samples(settings(tmp_path / name))
        np.testing.assert_allclose(samples.features, [[0.6, 0.8], [0.1, 0.2]])
        assert samples.targets.tolist() == [2.0, -1.0]


def test_without_privacy_nothing_is_clipped_and_an_intercept_can_be_added(tmp_path):
    (tmp_path / "a.csv").write_text("y,x\n9,30\n\n1,2\n")
    samples = load_samples(settings(tmp_path / "a.csv", privacy={"enabled": False}, intercept=True))
    assert samples.features.tolist() == [[30, 1], [2, 1]]
    assert samples.targets.tolist() == [9, 1]


@pytest.mark.parametrize(
    ("text", "words"),
    [("y\n1\n", "beside"), ("y,x\n1,\n", "data row 1"), ("x\n1\n", "no column"), ("y,x\n", "no samples|no rows|empty")],
)
def test_a_table_that_cannot_be_used_is_one_sentence(tmp_path, text, words):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError, match=words):
        load_samples(settings(tmp_path / "a.csv"))
