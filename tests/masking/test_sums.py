"""The sum comes out exactly, whoever drops out and whenever, or nothing does."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgfl.masking import primitives
from pgfl.masking.collector import Stage
from pgfl.masking.terms import threshold_for
from tests.masking.masked_group import Group, exact_sum, names_of

COUNT = 5


@st.composite
def drop_outs(draw):
    """Of five clients, everyone's last act: nothing, a contribution, a consent, or all of it."""
    return draw(st.lists(st.sampled_from(["before", "unsigned", "after", "stays"]), min_size=COUNT, max_size=COUNT))


@settings(max_examples=40, deadline=None)
@given(drop_outs(), st.integers(0, 2))
def test_every_pattern_of_drop_outs_gives_the_exact_sum_or_nothing(acts, colluders):
    group = Group(COUNT, colluders=colluders, slots=1)
    lost = {act: {name for name, did in zip(group.names, acts, strict=True) if did == act} for act in set(acts)}
    terms, points = group.terms(), group.points()
    kinds = {kind: lost.get(kind, set()) for kind in ("before", "unsigned", "after")}
    done = group.play(terms, points, **kinds)
    survivors = [name for name in group.names if name not in kinds["before"]]
    signers = [name for name in survivors if name not in kinds["unsigned"]]
    revealers = [name for name in signers if name not in kinds["after"]]
    enough = len(survivors) >= terms.fewest and len(signers) >= terms.threshold and len(revealers) >= terms.threshold
    assert (done.stage is Stage.DONE) == enough, (acts, done.why)
    if enough:
        assert np.array_equal(done.total, exact_sum(points, survivors))
    else:
        assert done.total is None
        assert done.why


@pytest.mark.parametrize("count", [2, 3, 20])
def test_groups_of_other_sizes(count):
    group = Group(count, slots=1)
    terms, points = group.terms(), group.points()
    assert np.array_equal(group.play(terms, points).total, exact_sum(points, group.names))


def test_only_those_invited_are_summed_and_the_others_of_the_cohort_hold_shares():
    group = Group(7, slots=1)
    terms, points = group.terms(invited=group.names[1:]), group.points()
    done = group.play(terms, points, before={group.names[1]})
    assert np.array_equal(done.total, exact_sum(points, group.names[2:]))


def test_one_cohort_serves_one_round_after_the_other():
    group = Group(4, slots=3)
    for round in (1, 2, 3):
        points = group.points(round)
        done = group.play(group.terms(round, slot=round - 1), points)
        assert np.array_equal(done.total, exact_sum(points, group.names))


def test_a_spoilt_sum_is_dropped():
    group = Group(4, slots=1)
    terms, points = group.terms(), group.points()
    points["c02"] = points["c02"] + 2**58
    done = group.play(terms, points)
    assert (done.stage, done.total) == (Stage.GIVEN_UP, None)
    assert "spoilt" in done.why


def test_wrong_shares_of_a_key_are_noticed():
    group = Group(6, slots=1)
    terms, points = group.terms(), group.points()
    for member in group.members.values():
        for slot in member._batches[group.batch].slots:
            slot.key_shares["c00"] = bytes(16)
    done = group.play(terms, points, before={"c00"})
    assert (done.stage, done.total) == (Stage.GIVEN_UP, None)
    assert "c00" in done.why


@pytest.mark.parametrize("colluders", [0, 1, 2, 3])
def test_two_lists_with_enough_consents_have_an_honest_client_in_common(colluders):
    for holders in range(colluders + 1, 60):
        threshold = threshold_for(holders, colluders)
        assert 2 * threshold > holders + colluders
        assert 2 * (threshold - 1) <= holders + colluders  # and no larger than need be


def test_shares_below_the_threshold_do_not_open_a_seed():
    seed = primitives.fresh_seed()
    shares = list(enumerate(primitives.split(seed, 4, 7)))
    assert primitives.combined(shares[2:6]) == seed
    assert primitives.combined(shares[2:5]) != seed


def test_a_share_of_any_holder_counts():
    seed = primitives.fresh_seed()
    shares = list(enumerate(primitives.split(seed, 3, 6)))
    for chosen in ([0, 1, 2], [5, 3, 1], [2, 4, 5]):
        assert primitives.combined([shares[place] for place in chosen]) == seed


def test_what_comes_late_twice_or_unasked_is_not_taken():
    group = Group(4, slots=1)
    terms, points = group.terms(invited=group.names), group.points()
    collector = group.collector(terms)
    masked = {name: group.members[name].contribute(group.batch, terms, points[name]) for name in group.names}
    assert collector.add_contribution("c00", masked["c00"])
    assert not collector.add_contribution("c00", masked["c00"])
    assert not collector.add_contribution("stranger", masked["c00"])
    assert not collector.add_contribution("c01", masked["c01"][:2])
    assert not collector.add_consent("c00", {})
    for name in names_of(4)[1:]:
        collector.add_contribution(name, masked[name])
    collector.close()
    assert not collector.add_contribution("c01", masked["c01"])
    assert not collector.add_consent("c01", {"c00": bytes(32)})  # not for everybody
    assert collector.pending == {"c00", "c02", "c03"}
