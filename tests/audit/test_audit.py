"""The audit itself: its bound is a bound, and it fails when it should."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binomtest

from pgfl import PGFL
from pgfl.lab.audit import findings as report
from pgfl.lab.audit import planted_bugs as bugs
from pgfl.lab.audit.cases import MU, ROUNDS, Welsch, cases, huber, linearised_huber, masked, pair_cases, scattered, site
from pgfl.lab.audit.findings import ENOUGH, FULL, QUICK, Scale, attack, audit, planted_in
from pgfl.lab.audit.pairs import AT_A_SITE, IN_MASKED_CLIENTS, UNDER_MASKS
from pgfl.lab.audit.statistics import mu_lower, rate_upper
from pgfl.lab.audit.subjects import SERVER_CLIENTS, Mechanism, clean_models
from pgfl.privacy import request
from pgfl.privacy.noise import SeededNoise

ALPHA = 1e-4
TIGHT = [case for case in cases() if case.attained]


# --- the bound -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mistakes", "trials"), [(0, 10), (1, 10), (9, 10), (10, 10), (67, 1000), (0, 5000)])
def test_rates_are_bounded_as_scipy_bounds_them(mistakes, trials):
    interval = binomtest(mistakes, trials).proportion_ci(confidence_level=0.99, method="exact")
    assert rate_upper(mistakes, trials, 0.005) == pytest.approx(interval.high, rel=1e-9)


@pytest.mark.parametrize("mu", [0.0, 1.0, 3.0])
def test_the_bound_is_too_high_no_more_often_than_it_says(mu):
    rng, alpha, trials = np.random.default_rng(1), 0.1, 300
    wrong = ndtr(-mu / 2)
    bounds = [mu_lower(*rng.binomial(trials, wrong, size=2), trials, alpha) for _ in range(2000)]
    excess = np.mean(np.array(bounds) > mu)
    assert excess <= alpha
    assert np.mean(bounds) > 0.8 * mu - 0.3


def test_an_attack_that_shows_nothing_has_the_bound_zero():
    assert mu_lower(0, 50, 50, 0.01) == 0.0
    assert mu_lower(25, 25, 50, 0.01) == 0.0


# --- the cases -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [*cases(), scattered()], ids=lambda case: case.name)
def test_the_canary_moves_a_model_by_the_sensitivity_that_is_claimed(case):
    """The worst case is real: the shift is at most Δ, and reaches it where the sensitivity is said to be attained."""
    mechanism = Mechanism.shipped(case)
    apart = np.subtract(*clean_models(case, mechanism, SERVER_CLIENTS))
    data = mechanism.privacy.bounded(case.federation(np.array([0])))
    delta = mechanism.sensitivity(mechanism.client(*data.rows(0)), data.counts)[0]
    ratio = np.linalg.norm(apart) / delta
    assert ratio <= 1.0
    assert ratio > (0.99 if case.attained else 0.85)


def test_bounded_ridge_attains_its_sensitivity_where_labels_may_be_large():
    """Y ≫ BW: the same row with opposite labels. At Y = BW, as in the case above, 0.87 is the most that was found."""
    row, bounds = np.eye(4)[0], {"x_norm": 1.0, "y_bound": 1e6, "w_norm": 1.0}
    ridge = next(case for case in cases() if case.name == "ridge, bounded")
    case = replace(
        ridge,
        algorithm=PGFL(rho=1e8),  # within the ball ‖w‖ ≤ W the solution moves as far as it would without it
        privacy=replace(ridge.privacy, **bounds),
        shared=(np.zeros((3, 4)), np.zeros(3)),
        canaries=((row, -1e6), (row, 1e6)),
        centre=np.zeros(4),
    )
    mechanism = Mechanism.shipped(case)
    data = mechanism.privacy.bounded(case.federation(np.array([0])))
    delta = mechanism.sensitivity(mechanism.client(*data.rows(0)), data.counts)[0]
    ratio = np.linalg.norm(np.subtract(*clean_models(case, mechanism, SERVER_CLIENTS))) / delta
    assert 0.99999 < ratio <= 1.0


@pytest.mark.parametrize("case", [*cases(), scattered()], ids=lambda case: case.name)
def test_the_worlds_differ_in_one_record(case):
    one, other = (case.federation(np.array([world])) for world in (0, 1))
    rows = [np.column_stack([data.features, data.targets]) for data in (one, other)]
    assert (np.any(rows[0] != rows[1], axis=1)).sum() == 1


def test_the_clipped_case_is_not_convex():
    margins = np.linspace(-3, 3, 61)
    second = np.gradient(np.gradient(Welsch().scalar_loss(margins, 0.0), margins), margins)
    assert second.min() < -0.5
    assert not Welsch().convex
    slope = np.gradient(Welsch().scalar_loss(margins, 0.3), margins)
    np.testing.assert_allclose(slope[1:-1], Welsch().slope(margins, 0.3)[1:-1], atol=0.02)


def test_the_claim_is_the_account_s():
    found = attack(huber(), "simulator", 50, ALPHA)
    assert found.claimed_mu == pytest.approx(np.sqrt(2 * huber().phi.sum()))
    assert found.claimed_mu == pytest.approx(MU)


# --- what is shipped, and what is planted ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case", [TIGHT[0], *(pytest.param(case, marks=pytest.mark.proof) for case in TIGHT[1:])], ids=lambda case: case.name
)
def test_what_is_shipped_keeps_its_claim_and_reaches_nine_tenths_of_it(case):
    found = attack(case, "simulator", ENOUGH, ALPHA, seed=5)
    assert found.required == 0.9
    assert found.verdict == "holds"
    assert 0.9 <= found.ratio <= 1.0


@pytest.mark.proof
@pytest.mark.parametrize("case", [huber(), linearised_huber()], ids=lambda case: case.name)
def test_the_compiled_simulator_keeps_its_claim_too(case):
    assert attack(case, "compiled", ENOUGH, ALPHA, seed=5).verdict == "holds"


@pytest.mark.parametrize("ridge", [case for case in cases() if not case.attained], ids=lambda case: case.name)
def test_a_bound_that_is_not_attained_is_reported(ridge):
    found = attack(ridge, "simulator", ENOUGH, ALPHA)
    assert found.required is None
    assert 0.6 < found.ratio < 0.9


@pytest.mark.parametrize("path", ["simulator", pytest.param("device", marks=pytest.mark.proof)])
@pytest.mark.parametrize("bug", bugs.PLANTED)
def test_every_planted_bug_is_found(bug, path):
    trials = 800 if bug == "variance halved" else 200
    found = attack(planted_in(bug), path, trials, ALPHA, bug=bug, seed=2)
    assert found.verdict == "flagged"
    assert found.as_it_should_be


@pytest.mark.parametrize("bug", ["sensitivity halved", "rows unclipped", "sum for mean", "noise reused"])
def test_planted_bugs_are_found_in_linearised_steps_too(bug):
    assert attack(linearised_huber(), "simulator", 200, ALPHA, bug=bug, seed=2).verdict == "flagged"


def test_all_bugs_of_the_issue_are_planted():
    assert set(bugs.PLANTED) == {
        "sensitivity halved",
        "variance halved",
        "deviation decayed",
        "rows unclipped",
        "sum for mean",
        "noise reused",
        "clean dual",
        "model unprojected",
    }


def test_a_reused_draw_and_a_clean_dual_are_found_by_the_scores_made_for_them():
    assert attack(huber(), "simulator", 200, ALPHA, bug="noise reused").by == "cancelled"
    assert attack(huber(), "simulator", 200, ALPHA, bug="clean dual").by == "dual"


def test_float_safe_noise_and_ledgers_are_attacked_too():
    found = attack(huber(), "safe-noise", 150, ALPHA)
    assert found.verdict == "holds"
    assert found.ratio > 0.3
    found = attack(huber(), "ledger", 15, ALPHA)
    assert found.claimed_mu == pytest.approx(MU)
    assert found.false_alarms + found.misses < 10


# --- a real client is attacked by the quick audit, in tests/cli/test_audit.py -----------------------------------------


def test_the_deployed_bugs_are_these():
    assert set(bugs.IN_THE_FIELD) == {"no noise", "noise a millionth", "last coordinate clean"}


# --- the audit can fail ----------------------------------------------------------------------------------------------


TINY = Scale("tiny", {"simulator": 400}, bugs=0)


def plant_only(monkeypatch, planted):
    for name in ("PLANTED", "AT_A_SITE", "UNDER_MASKS"):
        monkeypatch.setattr(report, name, planted if name == "PLANTED" else {})


def only_objectives(monkeypatch):
    plant_only(monkeypatch, {})


def test_a_sensitivity_that_is_shipped_too_small_leaks(monkeypatch):
    only_objectives(monkeypatch)
    assert audit(TINY).passed
    right = request.release_sensitivity
    monkeypatch.setattr(request, "release_sensitivity", lambda *given: 0.5 * right(*given))
    found = audit(TINY)
    assert not found.passed
    verdicts = {f.subject: f.verdict for f in found.findings}
    assert verdicts["huber"] == verdicts["logistic"] == "leaks"


def test_noise_that_is_shipped_too_weak_leaks(monkeypatch):
    only_objectives(monkeypatch)
    right = SeededNoise.release
    monkeypatch.setattr(
        SeededNoise, "release", lambda self, w, sigma, *rest: right(self, w, np.asarray(sigma) / 2, *rest)
    )
    assert not audit(TINY).passed


@pytest.mark.proof
def test_noise_that_is_needlessly_strong_does_not_reach_the_claim(monkeypatch):
    right = SeededNoise.release
    monkeypatch.setattr(
        SeededNoise, "release", lambda self, w, sigma, *rest: right(self, w, np.asarray(sigma) * 1.2, *rest)
    )
    found = attack(huber(), "simulator", ENOUGH, ALPHA)
    assert found.verdict == "no power"
    assert not found.as_it_should_be


def test_a_bug_that_is_none_is_missed_and_fails_the_audit(monkeypatch):
    plant_only(monkeypatch, {"nothing wrong": lambda mechanism: mechanism})
    found = audit(Scale("tiny", {"simulator": 200}, bugs=200))
    assert [f.verdict for f in found.findings if f.bug] == ["missed", "missed"]
    assert not found.passed


def test_only_the_full_audit_plants_bugs_in_masked_clients_that_take_many_trials_to_show():
    planted = [{bug for _, path, bug in report._jobs(scale) if path == "deployed"} for scale in (QUICK, FULL)]
    assert [found & set(IN_MASKED_CLIENTS) for found in planted] == [{report.BLATANT}, set(IN_MASKED_CLIENTS)]


def test_scales_have_the_power_they_need():
    for scale in (QUICK, FULL):
        assert scale.trials["simulator"] >= ENOUGH
        assert scale.bugs >= 800
    assert min(FULL.trials["device"], FULL.trials["safe-noise"]) >= ENOUGH
    assert ROUNDS >= 3


# --- noise that the clients of a pair share ---------------------------------------------------------------------------


@pytest.mark.parametrize("case", pair_cases(), ids=lambda case: case.name)
def test_a_pair_s_canary_moves_its_own_model_by_delta_and_nobody_else_s(case):
    mechanism = Mechanism.shipped(case)
    apart = np.subtract(*clean_models(case, mechanism, case.contributors))
    assert np.linalg.norm(apart) == pytest.approx(4.0 / (4 * case.algorithm.rho), rel=1e-6)
    one, other = (case.federation(np.array([world])) for world in (0, 1))
    assert (one.features != other.features).any(axis=1).sum() + (one.targets != other.targets).sum() == 1


@pytest.mark.parametrize(
    ("path", "trials"),
    [
        ("simulator", 2000),
        pytest.param("compiled", 2000, marks=pytest.mark.proof),
        pytest.param("safe-noise", 300, marks=pytest.mark.proof),
    ],
)
@pytest.mark.parametrize("case", pair_cases(), ids=lambda case: case.name)
def test_the_noise_of_pairs_keeps_its_claim(case, path, trials):
    found = attack(case, path, trials, ALPHA)
    assert found.verdict == "holds"
    assert found.claimed_mu == pytest.approx(MU)
    assert found.ratio > 0.45


def test_colluders_learn_more_than_the_server_alone_and_no_more_than_is_claimed():
    """Two of four know their own shares: half of the sum's noise is left, which is what was paid for."""
    alone, together = (attack(masked(), path, 600, ALPHA) for path in ("simulator", "safe-noise"))
    assert alone.mu_lower < together.mu_lower < MU


@pytest.mark.parametrize("bug", AT_A_SITE)
def test_bugs_at_a_site_are_flagged(bug):
    assert attack(site(), "simulator", 600, ALPHA, bug=bug).verdict == "flagged"


@pytest.mark.proof
@pytest.mark.parametrize("bug", UNDER_MASKS)
def test_bugs_under_masks_are_flagged(bug):
    assert attack(masked(), "safe-noise", 800, ALPHA, bug=bug).verdict == "flagged"
