"""A client's side of trusting its site: when it sends clean contributions, what it tells, and what it writes down."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pgfl.algorithms.roles import RoundRequest
from pgfl.network.agreement import SiteTerms, Training
from pgfl.network.client.client import Participant
from pgfl.network.client.samples import load_samples
from pgfl.network.client.settings import load_client
from pgfl.network.protocol.identity import SITE_CERTIFICATE, SiteCertificate
from pgfl.network.protocol.messages import Answer, Decline, Welcome, encode_request, read_answer
from pgfl.network.protocol.streams import _TO_CLIENT
from pgfl.network.protocol.wire import Frame, Limits, decode
from pgfl.results.model import Model
from tests.command_line import run
from tests.network.client_folders import PRIVACY, client_folder

GRADIENT = {"kind": "pgfl", "client": "gradient", "rho": 4.0}


def agreed(trust="site", **algorithm):
    return Training.model_validate(
        {
            "rounds": 50,
            "dimension": 2,
            "clusters": ("a",),
            "objective": {"kind": "huber"},
            "algorithm": {**GRADIENT, **algorithm},
            "privacy": {"trust": trust},
        }
    )


@pytest.fixture
def joining(tmp_path):
    """A client whose owner trusts as is said, welcomed to a training."""
    made = []

    def join(mine, training):
        path = tmp_path / "client.toml"
        if not path.exists():
            client_folder(tmp_path, privacy={**PRIVACY, "trust": mine, "max_releases": 3})
        settings = load_client(path)
        participant = Participant(settings, load_samples(settings))
        made.append(participant)
        participant.stream.shown = SiteCertificate.read(tmp_path / "site" / SITE_CERTIFICATE)
        participant._handle(Frame(Welcome(client="ann", cluster="a", training=training.text, releases=0, round=0)))
        return participant

    yield join
    for participant in made:
        participant.account.close()


def answer(participant, round, model=(0.0, 0.0), accepted=None):
    request = decode(encode_request(RoundRequest(round, 3, np.array(model), accepted)), Limits(2), _TO_CLIENT)
    return decode(participant._handle(request), Limits(2), (Answer, Decline))


@pytest.mark.parametrize("mine", ["local", "site"])
@pytest.mark.parametrize("theirs", ["local", "site", "masked"])
def test_a_client_sends_clean_contributions_only_where_its_owner_and_the_training_say_so(joining, mine, theirs):
    participant = joining(mine, agreed(theirs))
    clean = participant.rounds.role.answer(RoundRequest(1, 3, np.zeros(2)), lambda model: model).model
    participant.rounds.role.sent = None
    sent = read_answer(answer(participant, 1))
    trusting = mine == theirs == "site"
    assert sent.clean == trusting == participant.account.ledger.rows()[0].entrusted
    assert (sent.model == clean).all() == trusting
    assert bool(participant.stream.terms()) == (mine == "site"), "only a trusted site is told"


def test_a_round_asked_again_gets_the_same_bytes_and_the_budget_is_the_clients_own(joining):
    participant = joining("site", agreed())
    first = answer(participant, 1)
    again = answer(participant, 1, model=(5.0, 5.0))
    np.testing.assert_array_equal(first.vectors, again.vectors)
    for round in (2, 3):
        answer(participant, round)
    declined = answer(participant, 4).header
    assert declined.final
    assert "budget is spent" in declined.reason
    summary = participant.account.ledger.summary()
    assert (summary["releases"], summary["entrusted"], summary["spent"]) == (3, 3, True)
    assert summary["epsilon"] == pytest.approx(4.0)


def test_terms_are_public_facts_and_count_what_the_site_used(joining):
    participant = joining("site", agreed())
    told = SiteTerms.parse(participant.stream.terms())
    assert (told.records, told.bounds.x_norm, told.policy.max_releases, told.used) == (2, 1.0, 3, 0)
    answer(participant, 1)
    participant.account.ledger.confirm(participant.rounds.key(1))
    answer(participant, 2)
    assert SiteTerms.parse(participant.stream.terms()).used == 1


def test_the_ledger_says_what_left_clean_and_against_whom_its_epsilon_is(joining, tmp_path):
    participant = joining("site", agreed())
    answer(participant, 1)
    participant.account.close()
    shown = run("ledger", "show", tmp_path / "ledger.db").out
    assert "1 clean to the site" in shown
    assert "against everyone but the client's own site" in " ".join(shown.split())
    status = run("client", "status", tmp_path / "client.toml").out
    assert "1 left clean to the site" in status
    assert "against everyone but the site" in status
    summary = json.loads(run("ledger", "show", tmp_path / "ledger.db", "--json").out)
    assert (summary["trust"], summary["rows"][0]["trust"], summary["rows"][0]["entrusted"]) == ("site", "site", True)
    assert run("client", "model", tmp_path / "client.toml", tmp_path / "ann.pgfl").code == 0
    assert Model.load(tmp_path / "ann.pgfl").client_ids == (), "no model of its own was released"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"algorithm": {"kind": "pgfl", "client": "admm"}}, 'client = "gradient"'),
        ({"privacy": {"trust": "sight"}}, "did you mean site"),
        ({"privacy": {"trust": "site", "contributors": 0}}, "at least 1"),
    ],
)
def test_a_training_that_cannot_be_trusted_with_is_refused(change, words):
    with pytest.raises(ValueError, match=words):
        Training.model_validate({**agreed().model_dump(), **change})
