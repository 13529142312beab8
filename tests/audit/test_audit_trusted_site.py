"""A site that its clients trust, attacked by a neighbour who works with its other clients."""

import math

import numpy as np
import pytest

from pgfl.lab.audit import subjects
from pgfl.lab.audit.cases import deployed_site
from pgfl.lab.audit.planted_bugs import IN_THE_FIELD
from pgfl.lab.audit.statistics import mu_lower, scores
from pgfl.lab.audit.subjects import Mechanism
from pgfl.lab.audit.trusted_site import play

TRIALS, ALPHA = 60, 1e-4


def measured(bug=None, trials=TRIALS):
    """(what the site's ledger claims, what the neighbour measures at least), as μ."""
    case = deployed_site()
    mechanism = Mechanism.shipped(case)
    if bug is not None:
        mechanism = IN_THE_FIELD[bug](mechanism)
    server, rho = play(case, mechanism, np.repeat([0, 1], trials), seed=0)
    found = scores(server, subjects.clean_models(case, mechanism, case.contributors))
    bounds = [
        mu_lower(int((score[:trials] > 0).sum()), int((score[trials:] <= 0).sum()), trials, ALPHA / len(found))
        for score in found.values()
    ]
    return math.sqrt(2.0 * rho), max(bounds)


@pytest.mark.proof
def test_a_neighbour_learns_no_more_of_a_record_than_the_sites_ledger_says():
    claimed, found = measured()
    assert claimed == pytest.approx(1.5, rel=1e-3), "the whole schedule was charged"
    assert found <= claimed


@pytest.mark.proof
def test_an_aggregate_that_is_published_before_it_has_noise_is_found():
    claimed, found = measured("no noise")
    assert found > claimed
