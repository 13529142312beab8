"""A masked vector is noise to whoever lacks the masks, and the sum carries the noise that was agreed."""

import math

import numpy as np
import pytest
from scipy import stats

from pgfl.errors import PrivacyError
from pgfl.masking import primitives
from pgfl.masking.member import noised_update
from pgfl.privacy import lattice
from tests.masking.masked_group import Group, exact_sum

FALSE_ALARM = 1e-8


def wide_terms(group, dimension, **changes):
    return group.terms(dimension=dimension, **changes)


def deviations(samples, sigma):
    """Both tails of the chi-squared test that zero-mean samples have this deviation."""
    chi2 = stats.chi2(samples.size)
    square = float(np.sum((samples / sigma) ** 2))
    return min(chi2.cdf(square), chi2.sf(square))


@pytest.fixture(scope="module")
def sums():
    """A sum over exactly h contributors whose updates are zero: what is left when colluders subtract what they know."""
    group = Group(6, slots=1)
    terms = wide_terms(group, 400, required=6)
    assert terms.honest == 5
    drawn = [noised_update(np.zeros(400), terms) for _ in range(terms.honest)]
    return lattice.from_lattice(np.sum(drawn, axis=0)), terms


def test_the_noise_of_the_honest_clients_is_that_of_the_account(sums):
    total, terms = sums
    assert deviations(total, terms.sigma) > FALSE_ALARM
    assert stats.kstest(total / terms.sigma, "norm").pvalue > FALSE_ALARM


@pytest.mark.parametrize("wrong", [2 / 3, 3 / 2])
def test_other_noise_is_rejected(sums, wrong):
    total, terms = sums
    assert deviations(total, wrong * terms.sigma) < FALSE_ALARM


def test_more_contributors_than_required_only_add_noise():
    group = Group(7, slots=1)
    terms = group.terms(required=5)
    assert terms.share_sigma == pytest.approx(terms.sigma / math.sqrt(4))


def test_updates_are_clipped_rounded_and_within_the_sum_s_bound():
    group = Group(5, slots=1)
    terms = group.terms(sigma=1e-6, bound=0.5)
    long = np.array([3.0, 4.0, 0.0])
    points = noised_update(long, terms)
    assert lattice.from_lattice(points) == pytest.approx([0.3, 0.4, 0.0], abs=1e-4)
    assert np.abs(lattice.from_lattice(5 * points)).max() < terms.largest_sum(5)
    for bad in (np.array([np.nan, 0.0, 0.0]), np.array([np.inf, 0.0, 0.0])):
        with pytest.raises(PrivacyError):
            noised_update(bad, terms)


def test_two_draws_differ():
    group = Group(5, slots=1)
    terms = group.terms()
    assert (noised_update(np.zeros(3), terms) != noised_update(np.zeros(3), terms)).all()


def test_a_masked_vector_is_uniform_whatever_is_under_it():
    group = Group(4, slots=1)
    size = 20_000
    terms = wide_terms(group, size)
    masked = group.members["c00"].contribute(group.batch, terms, np.full(size, 12345, dtype=np.int64))
    assert stats.kstest(masked / 2.0**64, "uniform").pvalue > FALSE_ALARM
    counts = np.bincount(masked.view(np.uint8), minlength=256)
    assert stats.chisquare(counts).pvalue > FALSE_ALARM


def test_masks_do_not_repeat_across_rounds_clients_or_purposes():
    group = Group(4, slots=3)
    zero = np.zeros(3, dtype=np.int64)
    seen = [
        member.contribute(group.batch, group.terms(round, slot=round - 1), zero)
        for round in (1, 2, 3)
        for member in group.members.values()
    ]
    assert len({vector.tobytes() for vector in seen}) == len(seen)
    batch = Group(4, slots=8).members["c00"]._batches.popitem()[1]
    keys = [key for slot in batch.slots for key in (primitives.self_mask_key(slot.self_seed), *slot.pairwise.values())]
    assert len(set(keys)) == len(keys) == 8 * 4
    assert len(set(batch.announcement.masks)) == 8


def test_masks_of_a_slot_that_was_opened_say_nothing_about_another_one():
    """Recovering a client that dropped out gives its key seed of that slot; no other slot's follows from it."""
    group = Group(4, slots=2)
    first, second = group.members["c00"]._batches[group.batch].slots
    assert first.key_seed != second.key_seed
    assert first.self_seed != second.self_seed
    assert first.pairwise != second.pairwise


def test_a_noised_round_gives_the_sum_of_what_was_noised():
    group = Group(5, slots=1)
    terms = group.terms()
    points = {name: noised_update(np.full(3, 0.1), terms) for name in group.names}
    done = group.play(terms, points, before={"c04"})
    assert np.array_equal(done.total, exact_sum(points, group.names[:4]))
    assert np.abs(done.total - 0.4).max() < 64 * terms.sigma
