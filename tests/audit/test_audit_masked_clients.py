"""Real clients of a masked sum, attacked by their site and two contributors who work with it."""

import math
from dataclasses import replace

import numpy as np
import pytest

from pgfl.lab.audit import subjects
from pgfl.lab.audit.cases import ROUNDS, deployed_masked
from pgfl.lab.audit.masked_clients import VICTIM, play
from pgfl.lab.audit.pairs import IN_MASKED_CLIENTS
from pgfl.lab.audit.statistics import mu_lower, scores
from pgfl.lab.audit.subjects import Mechanism
from pgfl.masking.member import Member
from pgfl.network.client.masked_rounds import MaskedRounds
from pgfl.network.protocol import masked_messages as masked

TRIALS, ALPHA, DIMENSION = 60, 1e-4, 3


def played(bug=None, trials=TRIALS, spoil=None):
    """(what the victim's ledger claims, the transcript, what the victim computes in either world)."""
    case = deployed_masked()
    mechanism = Mechanism.shipped(case)
    if bug is not None:
        mechanism = IN_MASKED_CLIENTS[bug](mechanism)
    if spoil is not None:
        mechanism = replace(mechanism, spoil_masked=spoil)
    server, rho = play(case, mechanism, np.repeat([0, 1], trials), seed=0)
    return math.sqrt(2.0 * rho), server, subjects.clean_models(case, mechanism, case.contributors)


def measured(server, clean, trials=TRIALS):
    """What the site measures at least, as μ."""
    found = scores(server, clean)
    bounds = [
        mu_lower(int((score[:trials] > 0).sum()), int((score[trials:] <= 0).sum()), trials, ALPHA / len(found))
        for score in found.values()
    ]
    return max(bounds)


def noise_of(server, clean, trials=TRIALS):
    """The deviation of what the site is left with, over that which the schedule pays for, round by round."""
    apart = np.linalg.norm(clean[1] - clean[0])
    paid = [apart / math.sqrt(2.0 * phi) for phi in server.case.phi]
    middles = np.repeat(np.stack(clean), trials, axis=0)
    return [float((released - middles).std()) / sigma for released, sigma in zip(server.released, paid, strict=True)]


@pytest.mark.proof
def test_a_site_and_its_colluders_learn_no_more_of_a_record_than_the_ledger_says():
    """And they learn it: what is left when they have subtracted all they know is the noise that was paid for."""
    claimed, server, clean = played()
    assert claimed == pytest.approx(1.5, rel=1e-3), "the whole schedule was charged"
    assert measured(server, clean) <= claimed
    assert noise_of(server, clean) == pytest.approx([1.0] * ROUNDS, abs=0.2)


@pytest.mark.proof
@pytest.mark.parametrize(
    ("bug", "left"),
    [("shares too small", 0.5**0.5), ("count as claimed", 0.4**0.5), ("second list agreed to", 0.5**0.5)],
)
def test_planted_bugs_leave_the_site_with_less_noise_than_is_paid_for(bug, left):
    """The full audit flags them; few trials show the noise, and what would be flagged with more of them."""
    _, server, clean = played(bug, 40)
    assert noise_of(server, clean, 40) == pytest.approx([left] * ROUNDS, abs=0.15)
    assert max(noise_of(server, clean, 40)) < 0.85


def test_a_second_vector_for_a_round_would_count():
    """The site averages what a client sends when it is asked again, so a second draw of the noise would show."""

    def moved(client):
        handle, asked = client.handle, set()

        def again(frame):
            reply, round = handle(frame), getattr(frame.header, "round", None)
            if isinstance(frame.header, masked.MaskedRequest) and round in asked and client.member.name == VICTIM:
                words = np.frombuffer(reply[-8 * DIMENSION :], dtype="<u8") + np.uint64(2**60)
                reply = reply[: -8 * DIMENSION] + words.tobytes()
            asked.add(round if isinstance(frame.header, masked.MaskedRequest) else None)
            return reply

        client.handle = again

    _, server, clean = played(trials=1, spoil=moved)
    assert server.released[0][0] - clean[0] == pytest.approx(0.5 * 2.0**20, rel=1e-3)


def test_what_is_audited_is_what_a_client_runs():
    spoilt = []
    played(trials=1, spoil=spoilt.append)
    assert len(spoilt) == 2 * 4  # three honest clients in either world, and the victim once more when it starts again
    assert all(type(client) is MaskedRounds and type(client.member) is Member for client in spoilt)
    assert [client.member.name for client in spoilt].count(VICTIM) == 4
