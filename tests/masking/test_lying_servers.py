"""A server that lies about who takes part, who dropped out, or what was agreed learns nothing about anyone."""

import itertools
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from pgfl.errors import PrivacyError
from pgfl.masking import preparation, primitives
from pgfl.masking.collector import CohortGathering, Stage, disputed
from pgfl.masking.member import Member, signed_mask
from pgfl.masking.preparation import Batch, Cohort, pairwise_key
from pgfl.masking.terms import (
    Declined,
    Demands,
    Reason,
    Roster,
    identity_line,
    identity_signature,
    read_roster,
    roster_text,
)
from tests.masking.masked_group import DIMENSION, Group, exact_sum, identity, names_of, roster_of


def declines(reason, call, *arguments, **named):
    with pytest.raises(Declined) as caught:
        call(*arguments, **named)
    assert caught.value.reason is reason


def contributed(group, terms, points=None):
    points = points or group.points()
    return {name: group.members[name].contribute(group.batch, terms, points[name]) for name in terms.invited}


def consents_of(group, round, survivors, willing):
    """What those who are willing send: a tag for every other survivor, by sender."""
    return {name: group.members[name].consent(round, survivors) for name in willing}


def shown_to(name, consents):
    """What a server that forwards all of it shows one client."""
    return {sender: tags[name] for sender, tags in consents.items() if name in tags}


def colluding(group, sender, survivors):
    """A colluder consents to whatever a server wants, to everybody."""
    keys, message = group.members[sender]._batches[group.batch].consents, group.terms().list_digest(survivors)
    return {name: primitives.tag(key, sender, message) for name, key in keys.items()}


# Who dropped out ------------------------------------------------------------------------------------------------------


def test_a_client_agrees_to_one_list_of_survivors_per_round():
    group = Group(6)
    contributed(group, group.terms())
    all_but_last, all_but_first = group.names[:-1], group.names[1:]
    member = group.members["c02"]
    first = member.consent(1, all_but_last)
    declines(Reason.OTHER_LIST, member.consent, 1, all_but_first)
    declines(Reason.OTHER_LIST, member.consent, 1, group.names)
    assert member.consent(1, tuple(reversed(all_but_last))) == first  # the same list, asked again


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sets(st.sampled_from(names_of(5)), min_size=1), min_size=1, max_size=4))
def test_nobody_ever_reveals_both_halves_of_a_client(lists):
    """Whatever lists a server shows in whatever order; every member consents to and reveals what it can."""
    group = Group(5, colluders=0, slots=1)
    contributed(group, group.terms())
    given_away = {name: (set(), set()) for name in group.names}
    for survivors in lists:
        consents = {}
        for name, member in group.members.items():
            try:
                consents[name] = member.consent(1, sorted(survivors))
            except Declined:
                continue
        for name, member in group.members.items():
            try:
                revealed = member.reveal(1, shown_to(name, consents))
            except Declined:
                continue
            given_away[name][0].update(revealed.self_shares)
            given_away[name][1].update(revealed.key_shares)
    for alive, dead in given_away.values():
        assert not alive & dead
    everyone_alive = set().union(*(alive for alive, _ in given_away.values()))
    everyone_dead = set().union(*(dead for _, dead in given_away.values()))
    assert not everyone_alive & everyone_dead


def test_a_restarted_client_has_nothing_left_to_reveal():
    group = Group(5)
    contributed(group, group.terms())
    consents = consents_of(group, 1, group.names, group.names)
    reborn = Member("c00", identity("c00"), roster_of(group.names), group.demands)
    declines(Reason.OLD_ROUND, reborn.consent, 1, group.names[:-1])
    declines(Reason.OLD_ROUND, reborn.reveal, 1, shown_to("c00", consents))
    declines(Reason.UNPREPARED, reborn.share, group.cohort)
    declines(Reason.UNPREPARED, reborn.contribute, group.batch, group.terms(2, 1), np.zeros(DIMENSION, dtype=np.int64))
    # keys that it announces anew are others, so its old ones bind nobody
    assert reborn.announce(group.batch, 2).digest != group.cohort.by_name["c00"].digest


@pytest.mark.parametrize(("count", "colluders"), [(5, 1), (6, 2), (4, 0)])
def test_no_two_lists_are_ever_revealed_even_if_colluders_consent_to_everything(count, colluders):
    """All ways to tell one part of the honest clients one list and the others another one."""
    for first in itertools.product([True, False], repeat=count - colluders):
        group = Group(count, colluders=colluders, slots=1, contributors=2)
        contributed(group, group.terms())
        honest = group.names[colluders:]
        lists = group.names, group.names[:-1]  # the last client, who is honest, is alive or dead
        told = dict(zip(honest, first, strict=True)) | {group.names[-1]: True}
        consents = {True: {}, False: {}}
        for which, survivors in zip((True, False), lists, strict=True):
            for name in survivors:
                if name in honest and told[name] is which:
                    if len(survivors) >= group.terms().fewest:
                        consents[which][name] = group.members[name].consent(1, survivors)
                elif name not in honest:
                    consents[which][name] = colluding(group, name, survivors)
        opened = set()
        for name in honest:
            try:
                group.members[name].reveal(1, shown_to(name, consents[told[name]]))
                opened.add(told[name])
            except Declined:
                continue
        assert len(opened) <= 1


def test_a_list_must_be_of_those_invited_and_large_enough_and_hold_the_client_itself():
    group = Group(5)
    contributed(group, group.terms(invited=group.names))
    member = group.members["c00"]
    declines(Reason.TOO_FEW, member.consent, 1, group.names[:3])  # the threshold is 4
    declines(Reason.NOT_ME, member.consent, 1, group.names[1:])
    declines(Reason.STRANGER, member.consent, 1, (*group.names, "ghost"))
    declines(Reason.REPEATED, member.consent, 1, (*group.names, "c01"))
    declines(Reason.BELOW_THRESHOLD, member.reveal, 1, {})  # before any list was agreed to


def test_the_least_number_of_survivors_is_the_one_that_was_agreed():
    group = Group(10)
    contributed(group, group.terms(required=9))  # the threshold is 6
    declines(Reason.TOO_FEW, group.members["c00"].consent, 1, group.names[:8])
    group.members["c00"].consent(1, group.names[:9])


def test_consents_count_once_each_and_only_those_of_survivors():
    group = Group(5)
    contributed(group, group.terms())
    survivors, message = group.names[:4], group.terms().list_digest(group.names[:4])  # the threshold is 4
    consents = consents_of(group, 1, survivors, survivors)
    member, shown = group.members["c00"], shown_to("c00", consents)
    two = {name: shown[name] for name in ("c01", "c02")}
    outsider = colluding(group, "c04", survivors)["c00"]
    itself = primitives.tag(member._batches[group.batch].consents["c01"], "c00", message)
    for third in ({}, {"c03": two["c02"]}, {"c04": outsider}, {"c00": itself}, {"c03": b""}):
        declines(Reason.BELOW_THRESHOLD, member.reveal, 1, two | third)
    declines(Reason.BELOW_THRESHOLD, member.reveal, 1, {})
    assert set(member.reveal(1, shown).key_shares) == {"c04"}


def test_a_consent_is_worth_nothing_but_from_its_sender_to_its_receiver():
    """A server shows c00 its own tags as those of others, or what others have for somebody else."""
    group = Group(5)
    contributed(group, group.terms())
    consents = consents_of(group, 1, group.names, group.names)
    reflected = dict(consents["c00"])
    elsewhere = {sender: tags["c04"] for sender, tags in consents.items() if sender != "c04"}
    swapped = dict(zip(group.names[1:], reversed(list(shown_to("c00", consents).values())), strict=True))
    for bad in (reflected, elsewhere, swapped):
        declines(Reason.BELOW_THRESHOLD, group.members["c00"].reveal, 1, bad)
    group.members["c00"].reveal(1, shown_to("c00", consents))


def test_recovering_a_client_that_dropped_out_does_not_let_a_server_speak_for_it():
    """What is shared out of a slot gives its masks in common with others, and no key for consents."""
    group = Group(5)
    contributed(group, group.terms())
    survivors = group.names[:4]
    consents = consents_of(group, 1, survivors, survivors)
    shares = [
        (group.cohort.place(name), group.members[name].reveal(1, shown_to(name, consents)).key_shares["c04"])
        for name in survivors
    ]
    opened = primitives.mask_key_pair(primitives.combined(shares))
    assert opened.public_key().public_bytes_raw() == group.cohort.by_name["c04"].masks[0]
    public = group.cohort.by_name["c00"]
    pair = preparation._pair(group.cohort, "c04", "c00")
    found = {primitives.agreed(opened, key, "consent", pair) for key in public.keys}
    assert group.members["c00"]._batches[group.batch].consents["c04"] not in found


# Who takes part -------------------------------------------------------------------------------------------------------


def cohort_of(batch, members, slots=1, colluders=1):
    return Cohort.of(batch, colluders, [member.announce(batch, slots) for member in members])


def members_of(count, demands=None):
    names = names_of(count)
    return [Member(name, identity(name), roster_of(names), demands or Demands(2, 1)) for name in names]


def test_invented_participants_are_refused():
    members = members_of(4)
    ghost = Batch.begin("b", "ghost", identity("ghost"), 1).announcement
    impostor = Batch.begin("b", "c03", identity("ghost"), 1).announcement
    own = [member.announce("b", 1) for member in members]
    declines(Reason.STRANGER, members[0].share, Cohort.of("b", 1, [*own, ghost]))
    declines(Reason.STRANGER, members[0].share, Cohort.of("b", 1, [*own[:3], impostor]))
    altered = replace(own[3], transport=own[2].transport)
    declines(Reason.STRANGER, members[0].share, Cohort.of("b", 1, [*own[:3], altered]))
    declines(Reason.REPEATED, members[0].share, Cohort.of("b", 1, [*own, own[3]]))
    members[0].share(Cohort.of("b", 1, own))


def announcing_copies(copier, victim, spelled):
    """The copier's announcement with the victim's keys for masks, signed as it should be."""
    masks = tuple(spelled(key) for key in victim.masks)
    bare = replace(copier, masks=masks, signature=b"")
    return replace(bare, signature=identity_signature(identity(copier.name), bare.digest))


def spelled_otherwise(key):
    """The same point of X25519, which ignores the last bit of a public key."""
    return key[:-1] + bytes([key[-1] ^ 0x80])


def test_a_cohort_in_which_a_key_is_copied_is_refused():
    members = members_of(5)
    own = [member.announce("b", 2) for member in members]
    for place in ("masks", "transport"):
        copier = replace(own[4], **{place: getattr(own[0], place)}, signature=b"")
        copier = replace(copier, signature=identity_signature(identity("c04"), copier.digest))
        declines(Reason.COPIED, members[1].share, Cohort.of("b", 1, [*own[:4], copier]))
    members[1].share(Cohort.of("b", 1, own))


def test_whoever_copies_a_key_in_another_spelling_shares_no_mask_with_anybody():
    """If it did, the masks of c00 and c04 would cancel in every other vector, and the sum over the rest would open.

    It would hold fewer shares of the noise than each of them was charged for.
    """
    members = members_of(5)
    own = [member.announce("b", 1) for member in members]
    cohort = Cohort.of("b", 1, [*own[:4], announcing_copies(own[4], own[0], spelled_otherwise)])
    anyone, keys = X25519PrivateKey.generate(), (own[0].masks[0], cohort.by_name["c04"].masks[0])
    assert len(set(keys)) == 2
    assert len({anyone.exchange(X25519PublicKey.from_public_bytes(key)) for key in keys}) == 1
    boxes = {member.name: member.share(cohort) for member in members[:4]}
    boxes["c04"] = members[4]._batches["b"]._share_out(cohort)
    for member in members[:4]:
        member.receive("b", {sender: sent[member.name] for sender, sent in boxes.items() if sender != member.name})
    secrets = {member.name: member._batches["b"].slots[0] for member in members[:4]}
    for name in ("c01", "c02", "c03"):
        assert secrets[name].pairwise["c00"] != secrets[name].pairwise["c04"]
    terms = Group(5).terms(cohort=cohort.digest, holders=5)
    points = {member.name: np.full(DIMENSION, 5, dtype=np.int64) for member in members[:4]}
    total = np.zeros(DIMENSION, dtype=np.uint64)
    for member in members[1:4]:
        own_mask = primitives.mask(primitives.self_mask_key(secrets[member.name].self_seed), DIMENSION)
        total += member.contribute("b", terms, points[member.name]) - own_mask
    assert (total != 15).all()


def test_a_server_leaves_out_whoever_announces_keys_that_all_others_would_refuse():
    group, batch = members_of(5), "b" * 32
    copied = announcing_copies(group[4].announce(batch, 1), group[0].announce(batch, 1), bytes)
    fixed = announcing_copies(group[4].announce(batch, 1), group[0].announce(batch, 1), lambda key: bytes(32))
    for last, taken in ((copied, False), (fixed, False), (group[4].announce(batch, 1), True)):
        gathering = CohortGathering(frozenset(names_of(5)), 1, 1, batch)
        for member in group[:4]:
            gathering.add_keys(member.name, member.announce(batch, 1))
        gathering.add_keys("c04", last)
        assert gathering.pending == frozenset()
        assert ("c04" in gathering.fix_cohort().names) is taken


def test_a_server_looks_at_the_first_keys_of_a_client_only(monkeypatch):
    """Checking keys takes a while, so a client that repeats them, good or bad, must not keep a server busy."""
    group, batch, looked_at = members_of(3), "b" * 32, []
    real = primitives.is_agreeable
    monkeypatch.setattr(primitives, "is_agreeable", lambda key: looked_at.append(key) or real(key))
    gathering = CohortGathering(frozenset(names_of(3)), 1, 2, batch)
    good, bad = group[0].announce(batch, 2), replace(group[1].announce(batch, 2), transport=bytes(32))
    for _ in range(5):
        gathering.add_keys("c00", good)
        gathering.add_keys("c01", bad)
        gathering.add_keys("stranger", good)
    assert len(looked_at) <= 6  # three keys each
    assert (gathering.pending, gathering.fix_cohort().names) == ({"c02"}, ("c00",))
    gathering.add_keys("c02", group[2].announce(batch, 2))
    assert len(looked_at) <= 6


def test_shares_before_a_cohort_are_declined():
    member = members_of(4)[0]
    member.announce("b", 1)
    declines(Reason.UNPREPARED, member.receive, "b", {"c01": b"x"})


def test_keys_of_an_earlier_batch_do_not_come_back():
    members = members_of(4)
    old = [member.announce("old", 1) for member in members]
    new = [member.announce("new", 1) for member in members]
    declines(Reason.STRANGER, members[0].share, Cohort.of("new", 1, [new[0], *old[1:]]))
    renamed = [replace(each, batch="new") for each in old[1:]]
    declines(Reason.STRANGER, members[0].share, Cohort.of("new", 1, [new[0], *renamed]))


def test_a_client_must_find_its_own_keys_in_its_cohort():
    members = members_of(4)
    others = [member.announce("b", 1) for member in members[1:]]
    members[0].announce("b", 1)
    declines(Reason.NOT_ME, members[0].share, Cohort.of("b", 1, others))
    forged = Batch.begin("b", "c00", identity("c00"), 1).announcement  # as if it had announced other keys
    declines(Reason.NOT_ME, members[0].share, Cohort.of("b", 1, [forged, *others]))


def test_a_batch_has_one_cohort():
    members = members_of(5)
    everyone = cohort_of("b", members)
    boxes = members[0].share(everyone)
    assert members[0].share(everyone) == boxes
    declines(Reason.OTHER_VIEW, members[0].share, Cohort.of("b", 1, everyone.announcements[:4]))
    declines(Reason.OTHER_VIEW, members[0].share, Cohort.of("b", 2, everyone.announcements))


def test_a_cohort_must_be_as_large_as_its_members_demand():
    members = members_of(4, Demands(contributors=5, colluders=1))
    declines(Reason.TOO_FEW, members[0].share, cohort_of("b", members))
    members = members_of(4, Demands(contributors=2, colluders=2))
    declines(Reason.TOO_TRUSTING, members[0].share, cohort_of("c", members, colluders=1))


def test_a_roster_has_one_key_per_name_and_may_be_signed_by_a_steward(tmp_path):
    names = names_of(3)
    keys = {name: identity_line(identity(name)) for name in names}
    with pytest.raises(PrivacyError, match="one key under two names"):
        Roster({**keys, "again": f"{keys['c00']} with a comment"})
    with pytest.raises(PrivacyError, match="no client's public key"):
        Roster({"c00": "ssh-rsa AAAA"})
    path, steward = tmp_path / "roster.json", identity("steward")
    path.write_text(roster_text(Roster(keys), steward))
    assert read_roster(path, identity_line(steward)).keys == keys
    assert read_roster(path).keys == keys
    with pytest.raises(PrivacyError, match="not signed by the steward"):
        read_roster(path, identity_line(identity("site")))
    path.write_text(roster_text(Roster({"c00": keys["c00"]})))
    with pytest.raises(PrivacyError, match="not signed by the steward"):
        read_roster(path, identity_line(steward))
    path.write_text("[]")
    with pytest.raises(PrivacyError, match="is not a roster"):
        read_roster(path)
    with pytest.raises(PrivacyError, match="cannot be read"):
        read_roster(tmp_path / "none.json")


def test_a_site_neither_vouches_for_participants_nor_is_one(tmp_path):
    path, site = tmp_path / "roster.json", identity("site")
    certificate, others = certificate_of(site), roster_of(names_of(3))
    path.write_text(roster_text(others, site))
    with pytest.raises(PrivacyError, match="the site itself"):
        read_roster(path, f"{identity_line(site)} with a comment", certificate)
    path.write_text(roster_text(Roster({**others.keys, "ward": identity_line(site)})))
    with pytest.raises(PrivacyError, match="site's own key"):
        read_roster(path, None, certificate)
    path.write_text(roster_text(others, identity("steward")))
    assert read_roster(path, identity_line(identity("steward")), certificate).keys == others.keys


def certificate_of(key):
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "north")]), datetime(2026, 1, 1)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=9))
    return made.sign(key, hashes.SHA384()).public_bytes(serialization.Encoding.PEM)


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(3, 9), st.integers(0, 2))
def test_complaints_of_liars_cost_no_more_honest_clients_than_there_are_liars(data, count, liars):
    """Whatever liars say about others, and whichever of their shares cannot be opened."""
    names = names_of(count)
    lying, honest = names[:liars], names[liars:]
    unopened = {name: data.draw(st.sets(st.sampled_from(names))) - {name} for name in lying}
    unopened |= {name: data.draw(st.sets(st.sampled_from(lying))) if lying else set() for name in honest}
    out = disputed(unopened)
    assert len(out & set(honest)) <= liars
    assert not any(one not in out and other not in out for one in unopened for other in unopened[one])


def test_two_liars_who_share_their_victims_do_not_cost_three_of_them():
    """Whoever is party to the most complaints is not always a liar: here it is an honest client."""
    assert disputed({"c02": {"c00", "c01"}, "c03": {"c00"}, "c04": {"c01"}}) == {"c00", "c01"}


# What was agreed ------------------------------------------------------------------------------------------------------

LIES = {
    "h": {"required": 6},
    "sigma": {"sigma": 0.25},
    "centre": {"centre": "0" * 64},
    "bound": {"bound": 2.0},
    "training": {"training": "u" * 64},
    "group": {"invited": names_of(7)[:6]},
    "cluster": {"cluster": "1"},
    "slot": {"slot": 1},
}


@pytest.mark.parametrize("lie", LIES)
def test_clients_that_were_told_different_terms_reveal_nothing(lie):
    group = Group(7)
    true, other = group.terms(), group.terms(**LIES[lie])
    assert true.digest != other.digest
    points, told = group.points(), {}
    for place, name in enumerate(group.names):
        told[name] = other if place % 2 and name in other.invited else true
        group.members[name].contribute(group.batch, told[name], points[name])
    survivors = group.names[:6]
    consents = consents_of(group, 1, survivors, survivors)
    for name in survivors:
        declines(Reason.BELOW_THRESHOLD, group.members[name].reveal, 1, shown_to(name, consents))


@pytest.mark.parametrize("lie", sorted(LIES.keys() - {"slot", "group"}))
def test_a_client_that_alone_was_told_other_terms_stays_masked(lie):
    """The others are as many as the threshold, so they open their list; it must not open with it."""
    group = Group(7)
    terms, points, lonely = group.terms(), group.points(), "c03"
    told = {name: group.terms(**LIES[lie]) if name == lonely else terms for name in group.names}
    masked = {name: group.members[name].contribute(group.batch, told[name], points[name]) for name in group.names}
    consents = consents_of(group, 1, group.names, group.names)
    collector = group.collector(terms)
    collector.stage, collector.survivors, collector._masked = Stage.REVEALING, group.names, dict(masked)
    for name in group.names:
        if name == lonely:
            declines(Reason.BELOW_THRESHOLD, group.members[name].reveal, 1, shown_to(name, consents))
        else:
            collector.add_reveal(name, group.members[name].reveal(1, shown_to(name, consents)))
    total = collector._unmasked()
    assert (np.abs(total - exact_sum(points, group.names)) > terms.largest_sum(7)).all()
    collector.close()
    assert collector.stage is Stage.GIVEN_UP


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        (Reason.TOO_FEW, {"required": 4}),  # this client demands five
        (Reason.TOO_FEW, {"invited": names_of(7)[:4]}),
        (Reason.OTHER_VIEW, {"colluders": 0}),
        (Reason.OTHER_VIEW, {"colluders": 2}),
        (Reason.OTHER_VIEW, {"holders": 5}),
        (Reason.OTHER_VIEW, {"holders": 70}),
        (Reason.OTHER_VIEW, {"cohort": "0" * 64}),
        (Reason.STRANGER, {"invited": (*names_of(7), "ghost")}),
        (Reason.REPEATED, {"invited": (*names_of(7)[:4], "c03")}),
        (Reason.NOT_ME, {"invited": names_of(7)[1:]}),
        (Reason.UNPREPARED, {"slot": 2}),
        (Reason.WOULD_WRAP, {"bound": 1e6}),
        (Reason.WOULD_WRAP, {"sigma": 1e5}),
        (Reason.TOO_LITTLE_NOISE, {"sigma": 1e-10}),
    ],
)
def test_terms_below_what_a_client_demands_are_refused(reason, changes):
    group = Group(7, demands=Demands(contributors=5, colluders=1))
    member = group.members["c00"]
    declines(reason, member.contribute, group.batch, group.terms(**changes), group.points()["c00"])
    member.contribute(group.batch, group.terms(), group.points()["c00"])  # nothing was used up


def test_numbers_out_of_range_are_no_terms():
    group = Group(5)
    for changes in ({"sigma": float("nan")}, {"sigma": -1.0}, {"bound": float("inf")}, {"round": 0}, {"required": 0}):
        with pytest.raises(PrivacyError):
            group.terms(**changes)


def test_one_contribution_per_round_and_per_slot():
    group = Group(5)
    member, points = group.members["c00"], group.points()["c00"]
    member.contribute(group.batch, group.terms(), points)
    declines(Reason.OLD_ROUND, member.contribute, group.batch, group.terms(slot=1), points)
    declines(Reason.OLD_ROUND, member.contribute, group.batch, group.terms(slot=1, invited=group.names[:4]), points)
    declines(Reason.UNPREPARED, member.contribute, group.batch, group.terms(2, slot=0), points)
    member.contribute(group.batch, group.terms(2, slot=1), points)
    declines(Reason.OLD_ROUND, member.consent, 1, group.names)  # an old round is over


def test_slots_that_were_passed_over_are_forgotten():
    group = Group(5, slots=3)
    member, points = group.members["c00"], group.points()["c00"]
    member.contribute(group.batch, group.terms(slot=1), points)
    declines(Reason.UNPREPARED, member.contribute, group.batch, group.terms(2, slot=0), points)
    assert group.members["c00"]._batches[group.batch].slots[:2] == [None, None]


def test_shares_that_were_altered_on_their_way_are_not_used():
    members = members_of(4)
    cohort = cohort_of("b", members)
    boxes = {member.name: member.share(cohort) for member in members}
    good = boxes["c01"]["c00"]
    for bad in (good[:-1] + bytes([good[-1] ^ 1]), boxes["c01"]["c02"], b"", good[:20]):
        assert members[0].receive("b", {"c01": bad}) == {"c01"}
    assert members[0].receive("b", {"c01": good, "ghost": good}) == set()


# What a server can work out -------------------------------------------------------------------------------------------


def exposed(group, terms, masked, revealed, colluders):
    """The contributions that a server can unmask one by one, with all it was sent and all that colluders hold."""
    shares = {"self_shares": {}, "key_shares": {}}
    for holder, sent in revealed.items():
        for kind, known in shares.items():
            for name, share in getattr(sent, kind).items():
                known.setdefault(name, {})[group.cohort.place(holder)] = share
    seeds = {name: sent.own_seed for name, sent in revealed.items()}
    keys = {}
    for name in colluders:
        secrets = group.members[name]._open.secrets
        seeds[name], keys[name] = secrets.self_seed, secrets.key_seed
        for kind, known in shares.items():
            for other, share in getattr(secrets, kind).items():
                known.setdefault(other, {})[group.cohort.place(name)] = share
    for known, found in ((shares["self_shares"], seeds), (shares["key_shares"], keys)):
        for name, held in known.items():
            if len(held) >= terms.threshold:
                found.setdefault(name, primitives.combined(list(held.items())[: terms.threshold]))
    values = {}
    for name, vector in masked.items():
        others = [other for other in terms.invited if other != name]
        if name in seeds and (name in keys or all(other in keys for other in others)):
            clear = vector - primitives.mask(primitives.self_mask_key(seeds[name]), terms.dimension)
            for other in others:
                own, public = (name, other) if name in keys else (other, name)
                key = pairwise_key(group.cohort, terms.slot, primitives.mask_key_pair(keys[own]), own, public)
                clear = clear - signed_mask(name, other, key, terms)
            values[name] = clear.view(np.int64)
    return values


@settings(max_examples=30, deadline=None)
@given(st.sets(st.sampled_from(names_of(6)[1:]), max_size=2), st.booleans())
def test_a_server_and_its_colluder_unmask_nobody(dropped, late):
    """Those who drop out may have contributed: the server lists them as dead although it has their vectors."""
    group = Group(6, colluders=1, slots=1)
    terms, points = group.terms(), group.points()
    masked = contributed(group, terms, points)
    survivors = tuple(name for name in group.names if name not in dropped)
    if len(survivors) < terms.fewest:
        return
    consents = consents_of(group, 1, survivors, survivors)
    revealed = {name: group.members[name].reveal(1, shown_to(name, consents)) for name in survivors}
    if not late:
        masked = {name: masked[name] for name in survivors}
    values = exposed(group, terms, masked, revealed, {"c00"})
    assert set(values) <= {"c00"}
    assert np.array_equal(values["c00"], points["c00"])  # so the attack would find what there is to find


def test_a_group_below_its_threshold_reveals_nothing():
    group = Group(6, slots=1)
    terms, points = group.terms(), group.points()
    collector = group.play(terms, points, before=group.names[3:])
    assert collector.stage is Stage.GIVEN_UP
    assert not collector._masked
    for name in group.names[:3]:
        declines(Reason.BELOW_THRESHOLD, group.members[name].reveal, 1, {})
