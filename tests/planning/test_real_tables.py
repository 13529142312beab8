"""Plans for real tables, beside what runs reach: bounds hold nearly all records, and the target's mean is stated.

The twin was designed on three of these and on others; all had been run before it was finished.
docs/affordable-privacy.md judges plans on 43 tables that were kept for that.
"""

from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.proof
TWO_LABELS = ("breast cancer", "fair", "election", "journeys")
NUMBERS = ("diabetes", "schools", "wine")


@pytest.fixture(scope="module")
def outcomes():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
        import plans

        studies = {name: plans.AT_HAND[name] for name in TWO_LABELS + NUMBERS}
        return list(plans.outcomes(studies, plans.QUICK_BUDGETS, plans.RUNS))


def distances(outcomes, names):
    """The mean ones, in points and in dB; nothing is foretold to be hopeless."""
    some = [each for each in outcomes if each.name in names]
    assert len(some) == 2 * len(names) and not any(each.hopeless for each in some)
    return np.mean([each.distance for each in some]), np.mean([each.decibels for each in some])


def test_the_auc_is_foretold_to_five_points(outcomes):
    """When this was written it was 3.9 of 100 points."""
    assert distances(outcomes, TWO_LABELS)[0] < 5.0
    assert distances(outcomes, ("election", "journeys"))[0] < 5.0


def test_the_error_of_predicted_numbers_is_foretold_to_one_and_a_half_db(outcomes):
    """Of small tables: a client has 9 to 18 records."""
    points, decibels = distances(outcomes, NUMBERS)
    assert decibels < 1.5
    assert points < 5.0


def test_runs_reach_what_good_settings_reach(outcomes):
    """A plan could foretell exactly that nothing is learned. When this was written it was 81 and 49."""
    for names, least in ((TWO_LABELS, 79.0), (NUMBERS, 46.0)):
        assert np.mean([each.mean for each in outcomes if each.name in names]) > least


def test_nine_runs_out_of_ten_are_in_the_interval(outcomes):
    assert np.mean([each.held for each in outcomes]) >= 0.9
