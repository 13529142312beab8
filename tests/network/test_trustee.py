"""The noise that a site adds for clients that trust it: charged first, drawn once, as strong as their schedules ask."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pgfl.algorithms.roles import Answer
from pgfl.errors import LedgerError, PrivacyError
from pgfl.network.agreement import SiteTerms, Training
from pgfl.network.site.effects import Completed
from pgfl.network.site.reports import Reports
from pgfl.network.site.role import SiteRole
from pgfl.network.site.trustee import Contribution
from pgfl.privacy import lattice
from pgfl.privacy.ledger.ledger import Ledger
from pgfl.privacy.ledger.rows import Policy
from pgfl.privacy.request import Privacy
from tests.command_line import run
from tests.network.trusted import CLIENTS, POLICY, RECORDS, TERMS, D, TrustedSite, agreed


@pytest.fixture
def site(tmp_path):
    made = TrustedSite(tmp_path)
    yield made
    made.trustee.close()
    made.store.close()


class Killed(BaseException):
    """The process ends here."""


def killed(points, sigma):
    """Noise that is never drawn, because the process ends before."""
    raise Killed


def without_noise(points, sigma):
    return points


def test_every_charge_is_on_disk_before_the_noise_is_drawn(site):
    seen = []

    def drawn(points, sigma):
        for name in CLIENTS:
            with Ledger.read(site.folder / "ledgers" / f"{name}.db") as ledger:
                seen.append([(row.trust, row.sigma == sigma, row.void) for row in ledger.rows()])
        return lattice.with_noise(points, sigma)

    site.trustee.noise = drawn
    site.play(1)
    assert seen == [[("site", True, True)]] * 3


def test_the_charge_is_by_each_clients_own_effect_and_within_its_schedule(site):
    """σ is what the client with the fewest records needs; the others' records move the sum less, so they pay less."""
    for round in (1, 2):
        site.play(round)
    rows = {name: account.ledger.rows() for name, account in site.trustee.accounts.items()}
    for round in (0, 1):
        sigma = {row[round].sigma for row in rows.values()}
        assert len(sigma) == 1
        phi = float(POLICY.budget.phi(round + 1))
        delta = {name: 4.0 * 2.0 / (4.0 * RECORDS[name]) for name in CLIENTS}  # 4κB/(ρD)
        assert sigma.pop() == pytest.approx(delta["bob"] / math.sqrt(2 * phi), rel=1e-5)
        assert rows["bob"][round].phi == pytest.approx(phi)
        assert rows["ann"][round].phi == pytest.approx(phi / 4, rel=1e-5)
    for account in site.trustee.accounts.values():
        account.ledger.verify()


@pytest.mark.parametrize(("scale", "right"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_the_noise_of_what_leaves_is_as_strong_as_charged(tmp_path, scale, right):
    """The deviation over many coordinates: the right σ/n is accepted, two thirds and three halves of it are not."""
    size = 3000
    site = TrustedSite(tmp_path, agreed(dimension=size))
    answers = site.answers(1)
    mean = np.mean([answer.model for answer in answers.values()], axis=0)
    published = site.role.aggregate(1, answers).models["a"]
    sigma = site.trustee.accounts["bob"].ledger.rows()[0].sigma / len(CLIENTS)
    spread = np.std(published - mean) / (scale * sigma)
    assert (abs(spread - 1.0) < 5.0 / math.sqrt(2 * size)) == right
    site.trustee.close()


def test_killed_between_charge_and_noise_the_pair_sits_out_and_is_not_charged_again(site):
    site.trustee.noise = killed
    with pytest.raises(Killed):
        site.role.aggregate(1, site.answers(1))
    again = site.restarted()
    publication = again.play(1)
    assert publication.models == {}
    assert again.trustee.sat_out == {"a": "its noise was lost after it was charged"}
    assert again.role.used == []
    assert set(again.charged().values()) == {1}
    assert set(again.play(2).models) == {"a"}
    assert set(again.charged().values()) == {2}
    assert all(account.ledger.rows()[0].void for account in again.trustee.accounts.values())
    again.trustee.close()


@pytest.mark.parametrize("names", [CLIENTS, ("ann", "cem")])
def test_killed_before_the_round_is_saved_the_same_numbers_are_sent_again(site, names):
    """Whoever answers the second time: what was drawn stands, and nobody pays twice."""
    first = site.role.aggregate(1, site.answers(1)).models["a"]
    again = site.restarted(noise=killed)
    second = again.role.aggregate(1, again.answers(1, names)).models["a"]
    np.testing.assert_array_equal(first, second)
    assert set(again.charged().values()) == {1}
    again.trustee.close()


@pytest.mark.parametrize("back", [(), ("ann",), ("ann", "cem")])
def test_who_is_away_when_a_killed_site_asks_again_is_still_in_the_sum_and_counted(site, back):
    """Else the record of a round lacks a client whose contribution is in its model."""
    first = site.role.aggregate(1, site.answers(1, ("ann", "bob"))).models["a"]
    again = site.restarted(noise=killed)
    for client in set(CLIENTS) - {*back}:
        again.trustee.close_account(client)  # it has not come back yet
    second = again.role.aggregate(1, again.answers(1, back)).models["a"]
    np.testing.assert_array_equal(first, second)
    assert again.role.used == ["ann", "bob"]
    again.trustee.close()


def test_only_those_in_a_sum_are_accepted_for_it(site):
    """Others answer when the round is asked again: what was drawn stands, and they are not in it."""
    site.role.aggregate(1, site.answers(1, names=("ann", "bob")))
    again = site.restarted()
    again.play(1, names=("bob", "cem"))
    assert again.role.used == ["ann", "bob"]
    assert again.role.accepted == {"ann": 1, "bob": 1}
    assert again.charged() == {"ann": 1, "bob": 1, "cem": 0}
    again.trustee.close()


def test_a_pair_with_too_few_goes_without_a_sum_and_nobody_is_charged(tmp_path):
    site = TrustedSite(tmp_path, agreed(contributors=3))
    publication = site.play(1, names=("ann", "bob"))
    assert publication.models == {}
    assert site.role.accepted == {}
    assert "asks for 3" in site.trustee.sat_out["a"]
    assert set(site.charged().values()) == {0}
    assert site.trustee.eligible(["ann", "bob"], dict.fromkeys(CLIENTS, "a")) == []
    site.trustee.close()


def test_the_average_is_over_those_who_contributed(site):
    site.trustee.noise = without_noise
    answers = site.answers(1, names=("ann", "cem"))
    published = site.role.aggregate(1, answers).models["a"]
    np.testing.assert_allclose(published, np.mean([a.model for a in answers.values()], axis=0), atol=1e-11)


def test_clients_that_noise_themselves_are_averaged_with_the_noised_sum(tmp_path):
    site = TrustedSite(tmp_path, local=("cem",), noise=without_noise)
    answers = site.answers(1, local=("cem",))
    published = site.role.aggregate(1, answers).models["a"]
    np.testing.assert_allclose(published, np.mean([a.model for a in answers.values()], axis=0), atol=1e-11)
    assert site.charged() == {"ann": 1, "bob": 1}
    site.trustee.close()


def test_a_local_client_alone_is_used_although_the_sum_sits_out(tmp_path):
    site = TrustedSite(tmp_path, local=("cem",))
    answers = site.answers(1, names=("ann", "cem"), local=("cem",))
    published = site.play(1, names=("ann", "cem"), local=("cem",))
    np.testing.assert_array_equal(published.models["a"], answers["cem"].model)
    assert site.role.accepted == {"cem": 1}
    assert site.charged() == {"ann": 0, "bob": 0}
    site.trustee.close()


def test_without_personalised_models_all_clusters_are_one_sum(tmp_path):
    training = agreed(kind="fedavg", client="admm", step_size=0.01)
    site = TrustedSite(tmp_path, training, clusters={"ann": "a", "bob": "b", "cem": "b"})
    assert set(site.play(1).models) == {"everyone"}
    assert set(site.charged().values()) == {1}
    site.trustee.close()


def test_a_clean_answer_is_refused_where_no_noise_would_be_added(tmp_path):
    site = TrustedSite(tmp_path, local=("cem",))
    clean = site.answers(1)["cem"]
    assert "carries no noise" in site.role.judge("cem", clean)
    assert "carries no noise" in SiteRole(site.role.server, site.role.clients).judge("ann", clean)
    with pytest.raises(PrivacyError, match="would have been published"):
        site.role.server.aggregate(1, [("a", clean)])
    site.trustee.close()


def test_a_liar_moves_the_sum_by_its_public_ball_at_most_and_words_about_it_are_constant(site):
    site.trustee.noise = without_noise
    answers = site.answers(1)
    honest = np.mean([answer.model for answer in answers.values()], axis=0)
    ball = site.trustee.ball("bob", "a", None, 3)
    assert all(site.trustee.ball(name, "a", None, 3).distance(answers[name].model) <= 1 for name in CLIENTS)
    far = {
        radii: Answer(1, np.array([radii * ball.radius, 0.0, 0.0]), np.zeros(D), clean=True) for radii in (9, 11, 12)
    }
    assert site.role.judge("bob", far[9]) is None
    assert site.role.judge("bob", far[11]) == site.role.judge("bob", far[12]) is not None
    published = site.role.aggregate(1, answers | {"bob": far[9]}).models["a"]
    assert site.role.clipped == {"bob"}
    assert np.linalg.norm(published - honest) <= 2 * ball.radius / 3 * (1 + 1e-9)


def test_contributions_are_added_on_the_lattice_where_order_and_rounding_do_not_matter(site):
    """Added as floats and then rounded, one record could move the sum by another client's rounding as well."""
    drawn, ball = [], site.trustee.ball("bob", "a", None, 3)
    site.trustee.noise = lambda points, sigma: drawn.append(np.array(points)) or points
    models = [np.array([0.1, -0.2, 0.3]) + 0.4 * lattice.STEP * place for place in (1, 1, 1)]
    models[1][0], models[2][0] = 0.4 * lattice.STEP, 0.4 * lattice.STEP
    clean = {name: Contribution("a", model, ball) for name, model in zip(CLIENTS, models, strict=True)}
    site.trustee.noised_sum(1, "a", clean, 3)
    exact = np.sum([lattice.to_lattice(model) for model in models], axis=0)
    np.testing.assert_array_equal(drawn[0], exact)
    assert (lattice.to_lattice(np.sum(models, axis=0)) != exact).any(), "else this test could not tell"


LIARS = {
    "budget": replace(TERMS["bob"], policy=Privacy(epsilon=1e-6, max_releases=4, zeta=0.9, x_norm=2.0).policy()),
    "records": replace(TERMS["bob"], records=1),
    "bounds": SiteTerms(10**9, Privacy(epsilon=2.0, max_releases=4, zeta=0.9, x_norm=1e6).policy()),
}


@pytest.mark.parametrize("lie", LIARS)
def test_a_client_that_states_too_much_sits_out_is_named_and_the_others_go_on(tmp_path, lie):
    """An ε of 1e-6 drowned the model of all in noise; bounds of 1e6 let one contribution move it anywhere."""
    site = TrustedSite(tmp_path, terms=TERMS | {"bob": LIARS[lie]})
    answers = site.answers(1)
    answers["bob"] = replace(answers["bob"], model=np.full(D, 1e4))
    honest = np.mean([answers[name].model for name in ("ann", "cem")], axis=0)
    published = site.role.aggregate(1, answers).models["a"]
    assert np.linalg.norm(published - honest) < 3.0
    assert site.trustee.over_cap == {"bob"}
    assert site.role.used == ["ann", "cem"]
    assert site.charged() == {"ann": 1, "bob": 0, "cem": 1}
    assert site.trustee.eligible(CLIENTS, dict.fromkeys(CLIENTS, "a")) == ["ann", "cem"]
    site.trustee.close()


def test_the_log_and_the_record_name_who_states_too_much(tmp_path, caplog):
    site = TrustedSite(tmp_path, terms=TERMS | {"bob": LIARS["budget"]})
    site.play(1)
    parts = SimpleNamespace(rounds=None, role=site.role, trustee=site.trustee, masked=None, training=site.training)
    nobody = SimpleNamespace(refused=Counter())
    parts.rounds = nobody
    reports = Reports(parts, SimpleNamespace(streams=nobody), SimpleNamespace(service=nobody), nobody)
    done = Completed(1, site.role.snapshot(), ("ann", "cem"), (), (), (), ())
    assert reports.round_row(done)["over_cap"] == ["bob"]
    with caplog.at_level("INFO"):
        reports.log_round(done)
    assert "client bob sits out: it asks for more than 10 times the noise" in caplog.text
    site.trustee.close()


def test_the_cap_is_that_of_the_agreed_training(tmp_path):
    wide = agreed()
    wide = wide.model_copy(update={"privacy": wide.privacy.model_copy(update={"noise_cap": 100.0})})
    site = TrustedSite(tmp_path, wide, terms=TERMS | {"bob": LIARS["records"]})
    site.play(1)
    assert (site.trustee.over_cap, site.role.used) == (set(), [*CLIENTS])
    site.trustee.close()


def test_a_cap_that_nobody_stated_leaves_a_training_as_it_was():
    """Sites that upgrade go on with the training that they have begun."""
    training, stated = agreed(), agreed().privacy.model_copy(update={"noise_cap": 7.0})
    assert "noise_cap" not in training.text
    other = training.model_copy(update={"privacy": stated})
    assert '"noise_cap":7.0' in other.text
    assert training.digest != other.digest
    assert Training.parse(other.text).privacy.noise_cap == 7.0
    with pytest.raises(ValueError, match="noise_cap"):
        Training.model_validate(training.model_dump() | {"privacy": {"trust": "site", "noise_cap": 0.5}})


def test_a_client_past_its_budget_is_not_asked_and_the_others_go_on(tmp_path):
    short = replace(TERMS["bob"], policy=Privacy(epsilon=2.0, max_releases=2, zeta=0.9, x_norm=2.0).policy())
    site = TrustedSite(tmp_path, terms=TERMS | {"bob": short})
    for round in (1, 2):
        site.play(round)
    assert site.trustee.spent == {"bob"}
    assert site.trustee.eligible(CLIENTS, dict.fromkeys(CLIENTS, "a")) == ["ann", "cem"]
    site.play(3, names=("ann", "cem"))
    assert site.charged() == {"ann": 3, "bob": 2, "cem": 3}
    again = site.restarted(terms=TERMS | {"bob": short})
    assert again.trustee.spent == {"bob"}
    again.trustee.close()


def test_other_terms_or_an_older_account_are_refused(site):
    site.play(1)
    old = {path: path.read_bytes() for path in (site.folder / "ledgers").iterdir() if path.suffix != ".lock"}
    site.trustee.close()
    old = {path: path.read_bytes() for path in old if path.exists()}
    again = site.restarted()
    with pytest.raises(LedgerError, match="made under another policy"):
        again.trustee.accept("ann", replace(TERMS["ann"], policy=replace(POLICY, delta=1e-6)))
    again.trustee.accept("ann", TERMS["ann"])
    again.play(2)
    again.trustee.close()
    for path, content in old.items():
        path.write_bytes(content)
    with pytest.raises(LedgerError, match="put back from a backup"):
        again.restarted()


def test_an_account_goes_on_however_its_client_shrinks_grows_leaves_and_comes_back(site):
    """Every record that was ever with ann has lost at most what the account under that name says."""
    lost, history = 0.0, [(1, 40), (2, None), (3, 10), (4, 80)]
    for round, records in history:
        if records is None:
            site.trustee.close_account("ann")
            site.play(round, names=("bob", "cem"))
        else:
            terms = replace(TERMS["ann"], records=records)
            site.trustee.accept("ann", terms)
            site.play(round)
            charged = site.trustee.accounts["ann"].ledger.rows()[-1]
            expected = terms.sensitivity(
                site.training.build_objective("a"), site.training.build_algorithm(), len(CLIENTS), D
            )
            assert charged.sensitivity == pytest.approx(expected)
            lost += expected**2 / (2 * charged.sigma**2)
            assert site.trustee.accounts["ann"].ledger.summary()["rho"] == pytest.approx(lost)
        site = site.restarted() if round == 2 else site
    assert site.charged() == {"ann": 3, "bob": 4, "cem": 4}
    assert site.trustee.spent == {"bob", "cem"}
    site.trustee.close()
    site.store.close()


def test_accounts_that_were_lost_are_noticed_by_what_clients_remember(site):
    """A site put back from a backup has no accounts, and may not remember them; its clients do."""
    with pytest.raises(LedgerError, match="put back from a backup"):
        site.trustee.accept("ann", replace(TERMS["ann"], records=30, used=1))


def test_noise_or_models_that_float_safe_noise_cannot_carry_let_the_pair_sit_out(tmp_path):
    much = Policy(1e12, 1.0, 1e-5, max_releases=3, bounds={"x_norm": 2.0})
    site = TrustedSite(tmp_path / "fine", terms={name: SiteTerms(10**6, much) for name in CLIENTS})
    assert site.play(1).models == {}
    assert "finer than" in site.trustee.sat_out["a"]
    site.trustee.close()
    huge = {name: replace(terms, policy=replace(POLICY, bounds={"x_norm": 1e7})) for name, terms in TERMS.items()}
    site = TrustedSite(tmp_path / "huge", terms=huge)
    assert site.play(1).models == {}
    assert "too large" in site.trustee.sat_out["a"]
    assert set(site.charged().values()) == {0}
    site.trustee.close()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", TERMS["ann"].text.replace("40", "0"), TERMS["ann"].text.replace("40", '"many"'),
     TERMS["ann"].text.replace("2.0", "-2.0"), TERMS["ann"].text.replace("null}", "NaN}")],
)  # fmt: skip
def test_terms_that_cannot_be_read_are_refused(text):
    with pytest.raises(PrivacyError, match="terms cannot be read"):
        SiteTerms.parse(text)


def test_terms_come_back_as_they_were():
    assert SiteTerms.parse(TERMS["bob"].text) == TERMS["bob"]


def test_the_ledger_that_a_site_keeps_is_shown_as_what_it_is(site):
    site.play(1)
    site.trustee.close()
    shown = " ".join(run("ledger", "show", site.folder / "ledgers" / "ann.db").out.split())
    assert "1 of at most 4, noised by the site" in shown
    assert "against everyone but the client's own site" in shown
