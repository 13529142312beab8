"""The grid behind docs/verdict.md, in part: private classifications by gradient steps, and what the verdict says."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from pgfl.results.verdict import BAD, chance_useless


@pytest.fixture
def verdicts(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    import verdicts

    return verdicts


CLEAR = ("breast cancer", "synthetic, 8 × 20 records of 4", "synthetic, 16 × 50 records of 60")


@pytest.mark.proof
@pytest.mark.parametrize("name", CLEAR)
def test_useless_models_are_called_drowned_and_useful_ones_are_not(verdicts, name):
    found = list(verdicts.runs(verdicts.STUDIES[name](), name, (0.5, 16.0), (20,), range(2)))
    for each in found:
        useless = each.worse_loss or each.worse_accuracy
        assert (each.drowned, useless) == ((True, True) if each.epsilon == 0.5 else (False, False)), each
        assert each.kind == "not useful" if each.worse_loss else each.kind not in BAD


def test_public_quantities_do_not_see_that_a_task_is_easy(verdicts):
    """The same noise ruins most tables, but not pictures of noughts and ones; the verdict errs on the safe side."""
    name = "digits, 0 or 1"
    (found,) = verdicts.runs(verdicts.STUDIES[name](), name, (2.0,), (20,), range(1))
    assert found.drowned and found.accuracy[0] > 0.75 > found.accuracy[1]
    assert found.kind not in BAD


def test_of_all_kept_runs_with_held_out_rows_no_useless_one_passed_and_few_useful_ones_are_blamed(verdicts):
    found = verdicts.kept_runs(verdicts.RESULTS)
    useless = [each for each in found if each.worse_loss and each.worse_accuracy]
    useful = [each for each in found if not (each.worse_loss or each.worse_accuracy)]
    assert len(found) == 648 and len(useless) > 90 and all(each.kind in BAD for each in useless)
    assert sum(each.kind in BAD for each in useful) <= 0.05 * len(useful)


def test_what_is_said_of_such_noise_is_what_it_did_on_average(verdicts):
    found = verdicts.kept_runs(verdicts.RESULTS)
    for low, high in pairwise((0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 1.0, np.inf)):
        some = [each for each in found if low <= each.ratio < high]
        said = np.mean([chance_useless(each.ratio) for each in some])
        assert abs(said - np.mean([each.worse_loss for each in some])) < 0.09


def test_the_tables_count_every_run_once(verdicts):
    def made(drowned, loss, accuracy, ratio):
        return verdicts.Found("a", 1.0, 20, 0, ratio, drowned, (loss, 0.7), (accuracy, 0.6))

    found = [made(True, 0.8, 0.5, 0.25), made(False, 0.6, 0.9, 0.01), made(True, 0.6, 0.9, 0.5)]
    rows = verdicts.confusion(found).splitlines()
    assert rows[2].endswith("| 1 | 0 | 0 |") and rows[5].endswith("| 1 | 1 | 0 |")
    assert "| 0.2 to 0.3 | 1 | 100% | 100% |" in verdicts.by_ratio(found)
    assert "2 / 1 of 3" in verdicts.by_table(found)
