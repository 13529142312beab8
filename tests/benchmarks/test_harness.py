"""The short form of the benchmarks fails loudly where a row has fallen behind, and only there."""

import json
import os
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


def case_that_tells_its_process():
    import harness

    harness.case_was_here = getattr(harness, "case_was_here", 0) + 1
    turns = harness.take_turns(lambda: None, lambda: None, 40)
    yield row(harness, f"process {os.getpid()}, case {harness.case_was_here}, {len(turns.ours)} turns", "—", 1.0)


def row(harness, name, goal, ratio):
    return harness.Row(name, name, "a limit", goal, ratio, ratio, ratio, "1 s", "1 s")


@pytest.mark.parametrize(
    ("goal", "committed", "fine", "behind"),
    [("≥ 20×", 25.0, 20.5, 19.5), ("≤ 2×", 1.0, 1.19, 1.21), ("—", 4.0, 4.7, 4.9)],
)
def test_twenty_per_cent_is_allowed(harness, goal, committed, fine, behind):
    assert not harness.fell_behind(row(harness, "x", goal, fine), committed)
    assert harness.fell_behind(row(harness, "x", goal, behind), committed)


@pytest.mark.proof
@pytest.mark.parametrize(("quick", "turns"), [(False, 40), (True, 10)])
def test_a_case_is_measured_in_a_process_of_its_own(harness, quick, turns):
    found = [harness._rows(case_that_tells_its_process, quick=quick)[0] for _ in range(2)]
    assert len({one.name for one in found}) == 2, "two processes"
    for one in found:
        assert str(os.getpid()) not in one.name
        assert one.name.endswith(f"case 1, {turns} turns")
        assert one.load is not None


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
    monkeypatch.setattr(harness, "_rows", lambda case, quick: list(case()))
    assert harness.main("bench", None, cases, [], ["a"]) == ends
    shown = capsys.readouterr().out
    assert ("behind the committed figures: fast." in shown) == bool(ends)
    assert "steady" in shown
    assert ("another kind of machine" in shown) == (not ends)
    assert (harness.HERE / "results-bench.json").read_bytes() == before, "the short form writes nothing"
