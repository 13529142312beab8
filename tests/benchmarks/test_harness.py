"""The short form of the benchmarks fails loudly where a row has fallen behind, and only there."""

import json
import sys
from pathlib import Path

import pytest


@pytest.fixture
def harness(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    import harness

    monkeypatch.setattr(harness, "HERE", tmp_path)
    monkeypatch.setattr(harness, "_quick", False)
    return harness


def row(harness, name, goal, ratio):
    return harness.Row(name, name, "a limit", goal, ratio, ratio, ratio, "1 s", "1 s")


@pytest.mark.parametrize(
    ("goal", "committed", "fine", "behind"),
    [("≥ 20×", 25.0, 20.5, 19.5), ("≤ 2×", 1.0, 1.19, 1.21), ("—", 4.0, 4.7, 4.9)],
)
def test_twenty_per_cent_is_allowed(harness, goal, committed, fine, behind):
    assert not harness.fell_behind(row(harness, "x", goal, fine), committed)
    assert harness.fell_behind(row(harness, "x", goal, behind), committed)


def test_seconds_are_not_compared_between_days(harness):
    assert not harness.fell_behind(row(harness, "x", "≤ 0.3 s", 9.0), 0.1)


@pytest.mark.parametrize(("cores", "ends"), [(None, 1), (77, 0)], ids=["same machine", "another"])
def test_a_row_that_fell_behind_fails_on_the_same_kind_of_machine(harness, monkeypatch, capsys, cores, ends):
    where = harness.machine() | ({} if cores is None else {"cores": cores})
    kept = {"machine": where, "rows": [{"name": "fast", "ratio": 10.0}, {"name": "steady", "ratio": 1.0}]}
    (harness.HERE / "results-bench.json").write_text(json.dumps(kept))
    before = (harness.HERE / "results-bench.json").read_bytes()
    cases = {"a": lambda: iter([row(harness, "fast", "≥ 5×", 7.0), row(harness, "steady", "≤ 2×", 1.1)])}
    monkeypatch.setattr(sys, "argv", ["run.py", "--quick"])
    assert harness.main("bench", None, cases, [], ["a"]) == ends
    shown = capsys.readouterr().out
    assert ("behind the committed figures: fast." in shown) == bool(ends)
    assert "steady" in shown
    assert ("another kind of machine" in shown) == (not ends)
    assert (harness.HERE / "results-bench.json").read_bytes() == before, "the short form writes nothing"
