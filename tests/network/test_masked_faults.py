"""Masked rounds with faults: the sum of those who stayed, or a round without it; every ledger is right."""

from dataclasses import replace

import numpy as np
import pytest

from pgfl import equations as eq
from pgfl.masking.collector import CohortGathering
from pgfl.masking.terms import Reason, Roster
from pgfl.network.client.rounds import STATE
from pgfl.network.protocol import masked_messages as masked
from pgfl.network.protocol.wire import Frame, Malformed, decode, encode
from pgfl.network.site.masked_pairs import _Gathering, slots_for
from pgfl.privacy import lattice
from pgfl.privacy.trust import charge
from tests.network.masked_site import LIMITS, TO_SITE, MaskedSite, training_of


@pytest.fixture
def made(tmp_path):
    sites = []

    def make(*arguments, **named):
        sites.append(MaskedSite(tmp_path, *arguments, **named))
        sites[-1].rounds.start(0.0)
        return sites[-1]

    yield make
    for site in sites:
        site.close()


def losing(*kinds_by_client):
    """Lose every message of these kinds to or from these clients."""
    return lambda client, header: any(client == who and isinstance(header, kind) for who, kind in kinds_by_client)


def model(site):
    return site.role.server.model("q")


def test_rounds_are_sums_of_what_clients_noised_and_everyone_pays_its_own_part(made):
    site = made()
    site.connect()
    for round in (1, 2, 3):
        done = site.until(round)
        assert done.accepted == site.names
        assert np.allclose(model(site), site.expected(site.names), rtol=0.0, atol=1e-12)
    for device in site.devices.values():
        assert [row.trust for row in device.ledger] == ["masked"] * 3
        for row in device.ledger:
            assert row.phi == pytest.approx(float(charge(row.sensitivity, row.sigma)))
            assert row.phi <= float(device.account.ledger.policy.budget.phi(row.number)) * (1 + 1e-9)
    by_round = [{device.ledger[number].sigma for device in site.devices.values()} for number in range(3)]
    assert all(len(sigmas) == 1 for sigmas in by_round)  # one σ per pair and round


@pytest.mark.parametrize(
    ("kinds", "accepted"),
    [
        ((masked.MaskedRequest,), 4),  # it never hears of the round
        ((masked.MaskedAnswer,), 4),  # its contribution is lost
        ((masked.Survivors,), 5),  # it contributes, and is gone
        ((masked.Consent,), 5),
        ((masked.Consents,), 5),
        ((masked.Reveal,), 5),
    ],
)
def test_a_client_that_drops_out_at_any_stage(made, kinds, accepted):
    site = made()
    site.connect()
    site.lost = losing(*(("c02", kind) for kind in kinds))
    done = site.until(1)
    assert len(done.accepted) == accepted
    assert np.allclose(model(site), site.expected(done.accepted), rtol=0.0, atol=1e-12)
    charged = {name: len(device.ledger) for name, device in site.devices.items()}
    assert charged == {**dict.fromkeys(site.names, 1), "c02": 0 if kinds == (masked.MaskedRequest,) else 1}
    site.lost = lambda client, header: False
    assert len(site.until(2).accepted) >= 4  # who was silent sits a round out, and is not waited for


def test_a_group_below_its_threshold_is_given_up_and_the_next_round_goes_on(made):
    site = made()
    site.connect()
    site.lost = losing(("c01", masked.MaskedAnswer), ("c02", masked.MaskedAnswer))
    done = site.until(1)
    assert done.accepted == ()
    assert "3 of 5 clients contributed, 4 are needed" in site.masked.sat_out(1)["q"]
    assert model(site) is None
    assert all(len(device.ledger) == 1 for device in site.devices.values())  # charged for good
    site.lost = lambda client, header: False
    assert site.until(4).accepted == site.names


@pytest.mark.parametrize("kind", [masked.Consent, masked.Reveal])
def test_too_few_consents_or_shares_open_nothing(made, kind):
    site = made()
    site.connect()
    site.lost = losing(("c01", kind), ("c02", kind))
    done = site.until(1)
    assert done.accepted == ()
    assert "3 of 5" in site.masked.sat_out(1)["q"]
    assert model(site) is None
    site.lost = lambda client, header: False
    assert site.until(2).accepted == site.names


def test_who_is_away_when_a_round_opens_is_not_invited_and_costs_nothing(made):
    site = made(6)
    site.connect()
    site.until(1)
    site.vanish("c05")
    done = site.until(2)
    assert done.accepted == site.names[:5]
    assert [len(device.ledger) for device in site.devices.values()] == [2, 2, 2, 2, 2, 1]


def test_too_few_clients_are_not_even_asked(made):
    site = made(training=training_of(contributors=4))
    site.connect("c00", "c01", "c02")
    done = site.until(1)
    assert done.accepted == ()
    assert all(device.ledger == [] for device in site.devices.values())
    site.connect("c03", "c04")
    assert site.until(3).accepted == site.names


@pytest.mark.parametrize("kind", [masked.MaskedAnswer, masked.Consent, masked.Reveal])
def test_a_site_killed_between_the_stages_goes_on_with_the_next_round(made, kind):
    site = made()
    site.connect()
    saved = site.until(1)
    site.lost = lambda client, header: isinstance(header, kind)
    with pytest.raises(AssertionError):
        site.until(2, seconds=5.0)  # killed while it waits for the stage to end
    site.start(saved)
    site.lost = lambda client, header: False
    site.rounds.start(site.now)
    site.connect()
    done = site.until(2)
    assert done.accepted == ()  # what was noised for the first try is not masked for a second group
    assert {len(device.ledger) for device in site.devices.values()} == {2}
    done = site.until(3)
    assert done.accepted == site.names
    assert {len(device.ledger) for device in site.devices.values()} == {3}


def test_a_client_restarted_after_its_contribution_sends_the_same_bytes_and_reveals_nothing(made):
    site = made()
    site.connect()
    sent = []

    def lost(client, header):
        if client == "c02" and isinstance(header, masked.MaskedAnswer) and not sent:
            sent.append(header)
            site.devices["c02"].restart()
            site.vanish("c02")
            return True
        return False

    site.lost = lost
    with pytest.raises(AssertionError):
        site.until(1, seconds=3.0)
    site.connect("c02")
    done = site.until(1)
    assert done.accepted == site.names  # its mask was recovered from the shares of the others
    assert np.allclose(model(site), site.expected(site.names), rtol=0.0, atol=1e-12)
    assert len(site.devices["c02"].ledger) == 1
    done = site.until(2)  # it declines, for it has no secrets any more, and is prepared anew
    assert set(done.accepted) in ({*site.names}, {*site.names} - {"c02"})
    site.until(5)
    assert site.until(6).accepted == site.names


def test_a_local_client_stays_local_and_is_averaged_with_the_masked_ones(made):
    site = made(6, local=("c05",))
    site.connect()
    done = site.until(1)
    assert done.accepted == site.names
    assert np.allclose(model(site), site.expected(site.names), rtol=0.0, atol=1e-12)
    assert [row.trust for row in site.devices["c05"].ledger] == ["local"]
    assert [row.trust for row in site.devices["c00"].ledger] == ["masked"]


def test_the_client_with_the_smallest_budget_sets_the_noise_and_the_others_pay_less(made):
    site = made(privacy={"c01": {"epsilon": 3.0}})
    site.connect()
    site.until(1)
    paid = {name: device.ledger[0].phi for name, device in site.devices.items()}
    whole = {name: float(d.account.ledger.policy.budget.phi(1)) for name, d in site.devices.items()}
    assert paid["c01"] == pytest.approx(whole["c01"], rel=1e-4)
    assert all(paid[name] < 0.2 * whole[name] for name in site.names if name != "c01")


def test_a_client_whose_budget_is_spent_leaves_and_the_others_go_on(made):
    site = made(6, privacy={"c01": {"max_releases": 2}})
    site.connect()
    site.until(2)
    done = site.until(3)
    assert "c01" not in done.accepted
    assert len(site.until(4).accepted) == 5
    assert len(site.devices["c01"].ledger) == 2


def test_a_cohort_is_used_up_and_the_next_one_is_ready_in_time(made, monkeypatch):
    from pgfl.network.site import masked_pairs

    monkeypatch.setattr(masked_pairs, "slots_for", lambda clients: 4)
    site = made()
    site.connect()
    for round in range(1, 10):
        assert site.until(round).accepted == site.names
    batches = sum("have prepared" in note for note in site.notes)
    assert 2 <= batches <= 4
    assert slots_for(5) == 32


# A site that lies -----------------------------------------------------------------------------------------------------


@pytest.fixture
def asked(made):
    """A site with a round open for which nobody has contributed, and what it would ask."""
    site = made()
    site.connect()
    site.until(1)
    site.lost = lambda client, header: isinstance(header, masked.MaskedRequest)
    with pytest.raises(AssertionError):
        site.until(2, seconds=3.0)
    return site


LIES = {
    Reason.TOO_LITTLE_NOISE: {"sigma": 1e-3},
    Reason.TOO_FEW: {"required": 1},
    Reason.OTHER_VIEW: {"centre": "00" * 32},
    Reason.WOULD_WRAP: {"bound": 1e6},
    Reason.UNPREPARED: {"batch": "00" * 16},
    Reason.STRANGER: {"invited": ["c00", "c01", "c02", "c03", "ghost"]},
    Reason.REPEATED: {"invited": ["c00", "c01", "c02", "c03", "c03"]},
}


@pytest.mark.parametrize("reason", LIES)
def test_a_request_on_other_terms_is_declined_in_constant_words_and_costs_nothing(asked, reason):
    site = asked
    device = site.devices["c00"]
    before = len(device.ledger)
    pair, request = site.masked._pairs["q"], site.role.request("c00", 2)
    batch, terms = pair.cohort.gathered.batch, pair.round.terms
    good = masked.masked_request_frame(request, batch, terms)
    told = {key: tuple(value) if key == "invited" else value for key, value in LIES[reason].items() if key != "batch"}
    lie = masked.masked_request_frame(request, LIES[reason].get("batch", batch), replace(terms, **told))
    assert str(reason).encode() in device.reply(lie)
    assert len(device.ledger) == before
    assert isinstance(device.reply(good), bytes)
    assert len(device.ledger) == before + 1  # the true one is answered


def test_messages_out_of_order_or_out_of_shape_end_no_client(made):
    site = made()
    device, batch = site.devices["c00"], "00" * 16
    unprepared = str(Reason.UNPREPARED).encode()
    assert unprepared in device.reply(masked.encode(masked.Delivery(batch=batch, boxes={})))
    device.reply(masked.encode(masked.Prepare(batch=batch, slots=2)))
    assert unprepared in device.reply(masked.encode(masked.Delivery(batch=batch, boxes={"c01": "00"})))
    empty = {name: ["00"] * 4 for name in site.names}
    cohort = masked.CohortKeys(batch=batch, colluders=1, members=empty)
    assert str(Reason.STRANGER).encode() in device.reply(masked.encode(cohort))
    short = masked.CohortKeys.model_construct(batch=batch, colluders=1, members={"c01": ["00"] * 2})
    with pytest.raises(Malformed, match="'members' is out of range"):
        device.reply(masked.encode(short))  # as any frame that cannot be read: it is counted, and the stream goes on
    old = str(Reason.OLD_ROUND).encode()
    assert old in device.reply(masked.encode(masked.Survivors(round=1, survivors=[])))
    assert old in device.reply(masked.encode(masked.Consents(round=1, tags="00")))
    assert device.ledger == []


def test_a_site_that_sees_other_terms_than_the_client_gets_nothing_and_nobody_pays(asked):
    site = asked
    device, pair = site.devices["c00"], site.masked._pairs["q"]
    device.masked.site = "south"
    asking = masked.masked_request_frame(site.role.request("c00", 2), pair.cohort.gathered.batch, pair.round.terms)
    assert str(Reason.OTHER_VIEW).encode() in device.reply(asking)
    assert len(device.ledger) == 1


def test_another_list_or_group_for_the_same_round_is_refused(asked):
    site = asked
    device, pair = site.devices["c00"], site.masked._pairs["q"]
    request = site.role.request("c00", 2)
    batch, terms = pair.cohort.gathered.batch, pair.round.terms
    first = device.reply(masked.masked_request_frame(request, batch, terms))
    assert device.reply(masked.masked_request_frame(request, batch, terms)) == first
    other = replace(terms, slot=terms.slot + 1, invited=terms.invited[:4])
    assert b"was lost after it was paid for" in device.reply(masked.masked_request_frame(request, batch, other))
    assert len(device.ledger) == 2
    one = masked.encode(masked.Survivors(round=2, survivors=list(site.names)))
    two = masked.encode(masked.Survivors(round=2, survivors=list(site.names[:4])))
    assert b"tags" in device.reply(one)
    assert str(Reason.OTHER_LIST).encode() in device.reply(two)


def test_nothing_that_only_a_share_of_the_noise_protects_is_kept_on_the_device(made):
    site = made()
    site.connect()
    site.until(1)
    device = site.devices["c00"]
    clean, noised = device.drawn[1]
    stored = device.account.ledger.state(STATE) + device.ledger[0].payload
    for vector in (clean, noised, noised - clean):
        for value in np.asarray(vector, dtype="<f8"):
            assert value.tobytes() not in stored


def test_rounding_of_clipped_updates_is_part_of_what_is_charged(made):
    """Updates that are clipped to a large bound come further apart by rounding than the models they come from."""
    site, bound = made(2), 2.0**20
    device, random = site.devices["c00"].masked, np.random.default_rng(5)
    farthest = 0.0
    for _ in range(50):
        one = random.normal(size=4)
        one *= 1.0001 * bound / np.linalg.norm(one)
        other = one + random.normal(size=4) * 5e-10
        apart = float(np.linalg.norm(one - other))
        plain = float(lattice.widened(apart, 4))
        device._plain_sensitivity = {2: plain}
        clipped = [lattice.to_lattice(eq.clip_update(each, np.zeros(4), bound)) for each in (one, other)]
        moved = float(np.linalg.norm((clipped[0] - clipped[1]).astype(float))) * lattice.STEP
        assert moved <= device._sensitivity(2, np.zeros(4), bound)
        farthest = max(farthest, moved / plain)
    assert farthest > 1.0, "else this test could not tell"


# one bad member -------------------------------------------------------------------------------------------------------


def sealing_badly(device, *receivers):
    """It seals shares for these receivers that they cannot open."""
    member = device.masked.member
    real = member.share
    member.share = lambda cohort: {name: b"?" * 60 if name in receivers else box for name, box in real(cohort).items()}


def sealing_for_few(device, *receivers):
    """It seals shares for these receivers only."""
    member = device.masked.member
    real = member.share
    member.share = lambda cohort: {name: box for name, box in real(cohort).items() if name in receivers}


def complaining(device, *about):
    """It says that it could not open the shares of these, although it could."""
    real = device.reply

    def reply(data):
        said = real(data)
        header = None if said is None else decode(said, LIMITS, TO_SITE).header
        return encode(header.model_copy(update={"unopened": list(about)})) if isinstance(header, masked.Ready) else said

    device.reply = reply


OTHERS = ("c00", "c01", "c03", "c04")


@pytest.mark.parametrize(
    ("badly", "to", "out"),
    [
        (sealing_badly, OTHERS, "c02"),
        (sealing_badly, ("c00", "c04"), "c02"),
        (sealing_badly, ("c00",), "c00"),
        (sealing_for_few, ("c00",), "c02"),
        (complaining, OTHERS, "c02"),
        (complaining, ("c00",), "c02"),
        (complaining, ("nobody", "c02"), None),
    ],
)
def test_a_member_with_bad_shares_or_false_complaints_costs_one_client_at_most_and_is_named(made, badly, to, out):
    """A client contributes only with those who sealed shares for it; that must not let one of them stop the others.

    One bad member could always stop its pair, unseen: with a vector that is too long in every round. Here it costs the
    pair itself, or one other client, and the log names both.
    """
    site = made()
    badly(site.devices["c02"], *to)
    site.connect()
    for round in (1, 2):
        done = site.until(round)
        assert set(done.accepted) == set(site.names) - {out}
        assert np.allclose(model(site), site.expected(done.accepted), rtol=0.0, atol=1e-12)
    assert {name for name, device in site.devices.items() if not device.ledger} == {out} - {None}
    if badly is not sealing_for_few and out is not None:
        assert any("could not open the shares of" in note and "c02" in note for note in site.notes)
        assert f"client {out} is not asked for these masked rounds" in site.notes


@pytest.mark.parametrize("lie", [{"epsilon": 1e-4}, {"x_norm": 300.0, "epsilon": None, "phi0": 7e3}])
def test_a_member_that_asks_for_too_much_sits_out_is_named_and_the_others_go_on(made, lie):
    """Noise or bounds beyond the modulus of sums made everybody decline, in every round."""
    site = made(privacy={"c02": lie})
    site.connect()
    for round in (1, 2):
        done = site.until(round)
        assert set(done.accepted) == {*OTHERS}
        assert site.masked.over_cap == {"c02"}
        assert np.allclose(model(site), site.expected(OTHERS), rtol=0.0, atol=1e-12)
    assert not site.devices["c02"].ledger


def test_keys_that_come_again_are_not_checked_again(made, monkeypatch):
    site = made()
    site.connect()
    keys = []
    site.lost = lambda client, header: isinstance(header, masked.AnnouncedKeys) and keys.append((client, header))
    checked = []
    monkeypatch.setattr("pgfl.network.site.masked_pairs.Roster", lambda known: checked.append(known) or Roster(known))
    site.until(1)
    under_way = site.masked._pairs["q"]
    assert len(checked) == len(site.names)
    gathering = CohortGathering(frozenset(site.names), 1, 32, keys[0][1].batch)
    under_way.gathering = _Gathering(gathering, 1e9)
    for client, header in keys * 20:
        assert site.masked.on_preparation_frame(client, Frame(header)) == []
    assert len(checked) == 2 * len(site.names)


def test_keys_without_a_good_signature_are_checked_once_and_the_others_go_on(made, monkeypatch):
    """A signature takes a millisecond to check: a client that repeats a wrong one would keep its site busy."""
    site, keys, checked = made(), [], []
    liar = site.devices["c02"]
    real = liar.reply

    def reply(data):
        said = real(data)
        header = None if said is None else decode(said, LIMITS, TO_SITE).header
        if not isinstance(header, masked.AnnouncedKeys):
            return said
        keys.append(header.model_copy(update={"announced": ["00" * 100, *header.announced[1:]]}))
        return encode(keys[-1])

    liar.reply = reply
    monkeypatch.setattr("pgfl.network.site.masked_pairs.Roster", lambda known: checked.extend(known) or Roster(known))
    site.connect()
    while not keys:
        site._deliver(site.queue.popleft())
    for _ in range(20):
        site._put(site.masked.on_preparation_frame("c02", Frame(keys[0])))
    assert checked.count("c02") == 1
    assert site.notes.count("client c02 announced keys that it did not sign") == 1
    assert set(site.until(1).accepted) == {*OTHERS}
