"""Intervals, regions and verdicts: what a claim is judged with."""

from __future__ import annotations

import numpy as np
import pytest

from pgfl.lab.paper.claims_page import value_text
from pgfl.lab.paper.judging import (
    Interval,
    band_db,
    claim,
    difference_db,
    interval,
    judged_on,
    region,
    rounds_to,
    with_region,
)
from pgfl.lab.paper.maps import Grid
from pgfl.lab.paper.plots import Heat, words
from pgfl.streams import Purpose, stream


def test_intervals_cover_as_often_as_they_say() -> None:
    draws = stream(0, 0, Purpose.PAPER).standard_normal((2000, 8)) + 0.3
    covered = np.mean([found.low <= 0.3 <= found.high for found in map(interval, draws)])
    assert 0.93 < covered < 0.97


def test_intervals_that_must_hold_at_once_are_wider() -> None:
    sample = [1.0, 2.0, 4.0, 3.0]
    assert interval(sample, among=5).high > interval(sample).high


def test_one_run_decides_nothing() -> None:
    assert not interval([-5.0]).below() and not interval([-5.0]).above()


def test_differences_are_paired() -> None:
    common = np.array([1.0, 10.0, 100.0, 1000.0])
    found = difference_db(common * 0.5, common)
    assert found.value == pytest.approx(-3.0103, abs=1e-3) and found.high - found.low < 1e-9


def test_rounds_to_a_level() -> None:
    curves = np.array([[1.0, 0.2, 0.05, 0.01], [1.0, 0.9, 0.8, 0.7]])
    assert rounds_to(curves, -10.0).tolist() == [2.0, 4.0]


def test_bands_contain_their_mean() -> None:
    mean, low, high = band_db(np.array([[1.0, 0.5], [2.0, 0.7], [1.5, 0.6]]))
    assert (low < mean).all() and (mean < high).all()


HERE = Interval(-1.0, -2.0, -0.5, 10)


@pytest.mark.parametrize(
    ("holds", "everywhere", "anywhere", "verdict"),
    [
        (True, True, True, "holds"),
        (True, False, True, "holds where …"),
        (False, False, True, "holds where …"),
        (False, False, False, "does not hold"),
    ],
)
def test_a_map_qualifies_a_verdict(holds, everywhere, anywhere, verdict) -> None:
    judged = claim("k", "text", "measured", HERE, "dB", holds)
    found = with_region(judged, "noise ≥ 1", everywhere=everywhere, anywhere=anywhere, map="m.csv")
    assert found.verdict == verdict
    assert found.where == ("noise ≥ 1" if verdict == "holds where …" else None)


def test_a_claim_whose_interval_has_the_limit_is_not_decided() -> None:
    found = claim("k", "text", "measured", Interval(0.2, -0.1, 0.5, 6), "dB", False)
    assert found.verdict == "does not hold" and found.sentence == "does not hold (not decided by 6 runs)"
    assert claim("k", "text", "measured", Interval(0.2, 0.1, 0.3, 6), "dB", False).sentence == "does not hold"


def heat(value: list[list[float]], half: float = 0.1, good: int = -1) -> Heat:
    centre = np.array(value)
    rows, columns = centre.shape
    x, y = tuple(float(i) for i in range(columns)), tuple(float(i) for i in range(rows))
    return Heat("t", "noise", r"$\rho$", x, y, centre, centre - half, centre + half, "dB", good=good)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([[1.0, -1.0, -1.0], [1.0, -1.0, -1.0]], "noise ≥ 1"),
        ([[-1.0, -1.0, 1.0], [1.0, 1.0, 1.0]], "ρ = 0: noise ≤ 1"),
        ([[-1.0, -1.0, -1.0], [1.0, -1.0, 1.0]], "ρ = 0; ρ = 1: noise = 1"),
        ([[-1.0, -1.0], [-1.0, -1.0], [1.0, 1.0]], "ρ ≤ 1"),
        ([[1.0, 1.0, 1.0]], "nowhere else on the map"),
        ([[-0.05, -1.0, -1.0]], "noise ≥ 1"),
    ],
)
def test_a_region_in_words(value, said) -> None:
    assert region(heat(value)) == said


def test_a_map_of_gains_holds_above_its_limit() -> None:
    assert heat([[1.0, -1.0]], good=1).holds.tolist() == [[True, False]]


def test_a_grid_pairs_runs_of_unequal_numbers() -> None:
    grid = Grid("x", "y", (0.0, 1.0), (5.0,), lambda x, y: ["long", "short"])  # type: ignore[list-item]
    found = {
        "long": {"round": np.zeros((4, 1)), "v": np.array([1.0, 2.0, 3.0, 100.0])},
        "short": {"round": np.zeros((3, 1)), "v": np.array([2.0, 3.0, 4.0])},
    }
    drawn = grid.heat("t", "dB", found.__getitem__, lambda a, b: interval(a["v"] - b["v"]))  # type: ignore[arg-type]
    assert drawn.value.tolist() == [[-1.0, -1.0]]
    judged = judged_on(claim("k", "text", "measured", HERE, "dB", True), drawn, "fig0-map")
    assert judged.verdict == "holds" and judged.map == "fig0-map.csv"


def test_labels_become_words() -> None:
    assert words(r"PGFL, $\tau = 0.4 \times 0.98^n$, $\varepsilon$ = 8") == "PGFL, τ = 0.4 × 0.98ⁿ, ε = 8"


def test_values_are_told_with_their_interval() -> None:
    assert value_text(claim("k", "text", "measured", HERE, "dB", True)) == "−1.00 [−2.00, −0.50] dB"
    assert value_text(claim("k", "text", "m", Interval(0.0001, 0.0, np.inf, 2), "", True)) == "1.0e−04 [0.00, ∞]"
