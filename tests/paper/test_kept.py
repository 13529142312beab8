"""Measurements that are kept: interrupted work goes on, and nothing is measured twice."""

from dataclasses import dataclass

import numpy as np
import pytest

from pgfl.lab.paper.runner import Kept, Runner


@dataclass(frozen=True)
class Counted:
    """An experiment that leaves a file for every time it is run."""

    folder: str
    factor: float = 1.0
    fails: bool = False

    cost = 1.0

    def run(self, seed, runs):
        from pathlib import Path

        if self.fails:
            raise RuntimeError("cut")
        with (Path(self.folder) / "log").open("a") as log:
            log.write(f"{self.factor} {seed}\n")
        return {"value": self.factor * np.arange(runs) + seed}


def test_what_was_measured_before_an_interruption_is_not_measured_again(tmp_path):
    one, other = Counted(str(tmp_path)), Counted(str(tmp_path), 2.0)
    kept = Kept(tmp_path / "kept")
    failing = Counted("", fails=True)
    with Runner({one: 15, failing: 3}, 1, kept=kept) as runner:
        runner.measured(one)
        with pytest.raises(RuntimeError, match="cut"):
            runner.measured(failing)
    with Runner({one: 15, other: 15}, 1, kept=kept) as runner:
        again, new = runner.measured(one), runner.measured(other)
    with Runner({one: 15}, 1) as runner:
        fresh = runner.measured(one)
    np.testing.assert_array_equal(again["value"], fresh["value"])
    assert not np.array_equal(again["value"], new["value"])
    lines = (tmp_path / "log").read_text().split("\n")
    assert lines.count("1.0 0") == 2 and lines.count("1.0 1") == 2 and lines.count("2.0 0") == 1


def test_another_number_of_runs_or_a_damaged_file_is_measured(tmp_path):
    one, kept = Counted(str(tmp_path)), Kept(tmp_path / "kept")
    kept.write(one, 0, 5, one.run(0, 5))
    assert kept.read(one, 0, 4) is None and kept.read(Counted(str(tmp_path), 3.0), 0, 5) is None
    np.testing.assert_array_equal(kept.read(one, 0, 5)["value"], np.arange(5.0))
    for file in (tmp_path / "kept").iterdir():
        file.write_bytes(file.read_bytes()[:20])
    assert kept.read(one, 0, 5) is None
