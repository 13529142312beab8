"""A site that prepares a batch again, with old announcements of clients whose keys it has opened, opens nothing.

What it tries: it prepares a batch honestly and lets as many clients drop out as the protocol allows, so that their key
pairs of a slot are opened. The others forget the batch. It prepares the batch once more, with fresh keys of those who
are left and with the old announcements of the dropped, whose signatures are still good. It knows all masks of the
dropped, so it makes up their vectors, without noise, and counts them as contributors.
"""

import numpy as np
import pytest

from pgfl import synthetic_regression
from pgfl.algorithms.roles import RoundRequest
from pgfl.masking import primitives
from pgfl.masking.member import signed_mask
from pgfl.masking.preparation import Cohort, pairwise_key
from pgfl.masking.terms import Reason, RoundTerms, centre_digest, threshold_for
from pgfl.network.protocol import masked_messages as masked
from pgfl.network.protocol import messages
from pgfl.network.protocol.masked_messages import centre_of, update_bound
from pgfl.network.protocol.wire import decode, encode
from pgfl.privacy import lattice
from tests.masking.masked_group import names_of, roster_of
from tests.network.masked_site import DIMENSION, LIMITS, SITE, TO_SITE, Device, training_of

BATCH, LATER, LATEST = (letter * 32 for letter in "abc")


class LyingSite:
    """A site without conscience in front of real clients: frames go in and out, ledgers are files."""

    def __init__(self, folder, count, colluders):
        self.names, self.training, self.colluders = names_of(count), training_of(colluders=colluders), colluders
        made = synthetic_regression(
            servers=1, clients_per_server=count, clusters=1, dimension=DIMENSION, samples=(20, 20), x_norm=3.0
        )
        roster = roster_of(self.names)
        self.devices = {
            name: Device(name, roster, made.rows(k), self.training, folder, colluders=colluders)
            for k, name in enumerate(self.names)
        }
        self.sigma, self.reach, self.declined = {}, 0.0, set()

    def ask(self, name, header_or_frame):
        data = header_or_frame if isinstance(header_or_frame, bytes) else encode(header_or_frame)
        frame = decode(self.devices[name].reply(data), LIMITS, TO_SITE)
        if isinstance(frame.header, messages.Decline | masked.Unprepared):
            self.declined.add(frame.header.reason)
            return None
        return frame

    def prepare(self, batch, live, old=()):
        """The cohort of a batch, of fresh announcements and of old ones."""
        keys = {name: self.ask(name, masked.Prepare(batch=batch, slots=1)).header.announced for name in live}
        fresh = [masked.announcement_of(batch, name, announced) for name, announced in keys.items()]
        cohort = Cohort.of(batch, self.colluders, [*fresh, *old])
        boxes = {name: self.ask(name, masked.cohort_frame(cohort)).header.boxes for name in live}
        for name in live:
            sealed = {sender: sent[name] for sender, sent in boxes.items() if sender != name}
            sealed |= {each.name: bytes(1 + len(sealed)).hex() * 30 for each in old}  # made up
            header = self.ask(name, masked.Delivery(batch=batch, boxes=sealed)).header
            self.sigma[name], self.reach = header.sigma, header.reach
        return cohort

    def terms(self, cohort, round, required):
        request = RoundRequest(round, len(self.names), None)
        centre = centre_of(None, DIMENSION)
        parts = self.training.build_algorithm(), self.training.build_objective("q")
        length = update_bound(*parts, self.reach, centre, len(self.names)) * (1 + 1e-6)
        terms = RoundTerms(
            self.training.digest, SITE, "q", round, cohort.digest, len(cohort.names), 0, cohort.names, required,
            self.colluders, max(self.sigma.values()), length, centre_digest(centre), DIMENSION,
        )  # fmt: skip
        return terms, masked.masked_request_frame(request, cohort.batch, terms)

    def contributions(self, names, request):
        """The masked vectors of those who do not decline."""
        answers = {name: self.ask(name, request) for name in names}
        for name, frame in answers.items():
            if frame is not None:
                self.sigma[name] = frame.header.sigma
        return {name: frame.words[0] for name, frame in answers.items() if frame is not None}

    def revealed(self, names, terms, survivors):
        """What those names reveal for a list of survivors that they are told."""
        tags = {}
        for name in names:
            header = self.ask(name, masked.Survivors(round=terms.round, survivors=list(survivors))).header
            tags[name] = masked.tags_of(header, [other for other in survivors if other != name])
        given = {}
        for name in names:
            shown = {sender: each[name] for sender, each in tags.items() if sender != name}
            joined = masked.joined_tags(shown, [other for other in survivors if other != name])
            given[name] = masked.revealed_of(self.ask(name, masked.Consents(round=terms.round, tags=joined)).header)
        return given

    def close(self):
        for device in self.devices.values():
            device.account.close()


def restarted(site, names):
    for name in names:
        site.devices[name].restart()


def evicted(site, names):
    """A client keeps two batches; two later ones make it forget the first."""
    for batch in (LATER, LATEST):
        for name in names:
            site.ask(name, masked.Prepare(batch=batch, slots=1))


def attack(site, forgotten):
    """The variance of the noise in a sum that the site opened, over the charged one; None if it opened none."""
    count, needed = len(site.names), threshold_for(len(site.names), site.colluders)
    live, dropped = site.names[:needed], site.names[needed:]
    first = site.prepare(BATCH, site.names)
    terms, request = site.terms(first, 1, required=needed)
    site.contributions(live, request)
    opened = site.revealed(live, terms, live)
    seeds = {
        name: primitives.combined([(first.place(holder), given.key_shares[name]) for holder, given in opened.items()])
        for name in dropped
    }

    forgotten(site, live)
    again = site.prepare(BATCH, live, old=[first.by_name[name] for name in dropped])
    terms, request = site.terms(again, 2, required=count)
    vectors = site.contributions(live, request)
    if not vectors:
        return None
    given = site.revealed(live, terms, site.names)
    total = np.sum(list(vectors.values()), axis=0, dtype=np.uint64)
    for name, seed in seeds.items():
        own = primitives.mask_key_pair(seed)
        for other in live:
            total = total + signed_mask(name, other, pairwise_key(again, 0, own, name, other), terms)
    for name in live:
        total = total - primitives.mask(primitives.self_mask_key(given[name].own_seed), DIMENSION)
    drawn = [site.devices[name].drawn[2][1] for name in live]  # what each of them noised, in its second release
    assert np.allclose(lattice.from_lattice(total.view(np.int64)), np.sum(drawn, axis=0), rtol=0.0, atol=1e-9)
    charged = {site.devices[name].ledger[1].sigma for name in live}
    return len(live) * terms.share_sigma**2 / max(charged) ** 2


@pytest.mark.parametrize("forgotten", [restarted, evicted])
@pytest.mark.parametrize(("count", "colluders"), [(6, 0), (7, 1)])
def test_old_announcements_of_clients_whose_keys_were_opened_open_no_sum(tmp_path, count, colluders, forgotten):
    """Without any colluder the site would be left with a share t/n of the noise that every ledger counts on."""
    site = LyingSite(tmp_path, count, colluders)
    try:
        assert attack(site, forgotten) is None
        assert site.declined == {str(Reason.UNSHARED)}
        needed = threshold_for(count, colluders)
        releases = {name: len(device.ledger) for name, device in site.devices.items()}
        assert releases == {name: int(place < needed) for place, name in enumerate(site.names)}, "a refusal is free"
    finally:
        site.close()
