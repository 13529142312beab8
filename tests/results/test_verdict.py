"""The verdict as a function of what was seen: sentences, advice, and which finding comes first."""

import json
import math

import pytest

from pgfl.results.verdict import (
    SETTLED,
    Noise,
    Setting,
    Verdict,
    Window,
    is_diverging,
    joined,
    judge_run,
    remaining,
    worst_of_runs,
)


def windows_of(models, step=None, last=200):
    """Windows of a scalar model w(n), each a quarter longer than all before."""
    ends, found, before, start = [], [], 0.0, 0
    end = 1
    while end <= last:
        ends.append(end)
        end = max(end + 1, int(1.25 * end))
    for end in ends:
        rounds = range(start + 1, end + 1)
        mean, now = sum(map(models, rounds)) / len(rounds), models(end)
        moved = abs(now - models(end - 1)) if step is None else step(end)
        found.append(Window(end, len(rounds), abs(mean), abs(now), abs(mean - before), moved, abs(now - mean)))
        before, start = mean, end
    return found


def setting(**changes):
    return Setting(**{"played": 200, "rounds": 200, "rho": 5.0, "task": "regression", "pull": 0.2} | changes)


@pytest.mark.parametrize("rate", [0.002, 0.01, 0.05, 0.2])
def test_an_exponential_approach_is_extrapolated(rate):
    for last in (50, 200, 1000):
        windows = windows_of(lambda n: 1 - math.exp(-rate * n), last=last)
        found, end = remaining(windows).total, windows[-1].end
        assert found > 0.9 * math.exp(-rate * end) - 1e-12, last
        if rate * end >= 2:
            assert found < 5 * math.exp(-rate * 0.6 * end), last


def test_a_hidden_slow_mode_is_not_taken_for_convergence():
    """A fast mode has gone, a slow one holds 30 % of the distance and moves 3 % of what the fast one did."""

    def model(n):
        return 1.3 - math.exp(-0.1 * n) - 0.3 * math.exp(-0.003 * n)

    for last in (60, 100, 200, 400, 800):
        true = abs(model(last) - 1.3) / model(last)
        assert remaining(windows_of(model, last=last)).total > min(SETTLED, true / 2.5), last


def test_a_constant_pace_has_no_end_in_sight():
    found = judge_run(windows_of(lambda n: 0.01 * n), setting(pull=0.01))
    assert found.kind == "not yet"
    assert "still far from where they are heading" in found.sentence
    assert found.advice == "Lower algorithm.rho to about 0.6."


def test_growth_by_a_power_of_the_round_is_not_divergence_and_exponential_growth_is():
    for power in (1, 2):
        assert not any(is_diverging(windows_of(lambda n, p=power: n**p, last=last)) for last in range(3, 300, 7))
    assert is_diverging(windows_of(lambda n: 1.1**n, last=100))
    assert is_diverging(windows_of(lambda n: (-1.5) ** n, last=30))
    assert is_diverging(windows_of(lambda n: 1e4**n, last=4))
    assert not is_diverging(windows_of(lambda n: 5 - 0.9**n, last=100))


def test_what_to_change_depends_on_the_algorithm_and_the_duals():
    slow = windows_of(lambda n: 1 - math.exp(-0.005 * n))
    assert judge_run(slow, setting(pull=0.02)).advice.endswith("or lower algorithm.rho to about 1.")
    assert judge_run(slow, setting(pull=0.5)).advice.endswith("or raise algorithm.rho to about 30.")
    assert "algorithm.rho" not in judge_run(slow, setting(pull=0.2)).advice
    assert judge_run(slow, setting(rho=None, pull=0.0)).advice.endswith("or raise algorithm.step_size.")
    assert judge_run(slow, setting()).advice.startswith("Raise rounds to about ")
    torn = judge_run(windows_of(lambda n: 1 - math.exp(-0.2 * n)), setting(pull=3.0))
    assert (torn.kind, torn.advice) == ("not yet", "Raise algorithm.rho to about 50.")


def test_fluctuations_without_drift_are_named():
    wild = windows_of(lambda n: 1.0, step=lambda n: 0.3)
    wild = [Window(**(vars(window) | {"apart": 0.2, "wander": 0.2 / window.length**0.5})) for window in wild]
    found = judge_run(wild, setting())
    assert found.kind == "not yet"
    assert "fluctuate by 20 %" in found.sentence or "not converged" in found.sentence


def settled():
    return windows_of(lambda n: 1 - math.exp(-0.2 * n))


def test_two_findings_make_one_verdict_and_a_further_sentence():
    noise = Noise([1.0] * 80, reach=10.0, last_release=80, in_predictions=2.0)
    found = judge_run(settled(), setting(), noise)
    assert found.kind == "noise drowns the signal"
    assert "noise norm 8.94, model norm 1" in found.sentence
    assert any("spent in round 80 of 200" in sentence for sentence in found.further)
    spent = judge_run(settled(), setting(), Noise([1e-9] * 80, 10.0, 80, 1e-6))
    assert spent.kind == "budget spent"
    quiet = judge_run(settled(), setting(), Noise([1e-9] * 200, 10.0, 200, 1e-6))
    assert quiet.kind == "converged"
    assert "as far as the noise allows" in quiet.sentence


def test_a_classification_drowns_by_what_data_can_reach():
    for reach, kind in ((1.0, "noise drowns the signal"), (100.0, "converged")):
        noise = Noise([0.01] * 200, reach=reach, last_release=200, in_predictions=100.0)
        assert judge_run(settled(), setting(task="classification"), noise).kind == kind


def test_a_classification_by_gradient_steps_drowns_earlier():
    noise = Noise([0.01] * 200, reach=5.0, last_release=200)
    assert 0.2 < noise.walk / noise.reach < 0.45
    assert judge_run(settled(), setting(task="classification"), noise).kind == "converged"
    steps = setting(task="classification", linearised=True)
    assert judge_run(settled(), steps, noise).kind == "noise drowns the signal"


def test_the_worst_run_speaks_for_all():
    good, bad = Verdict("converged", "Good."), Verdict("not yet", "Far.", figures={"distance": 0.5})
    assert worst_of_runs([good, bad, good]).sentence == "Far. (1 of 3 runs.)"
    assert worst_of_runs([good]) is good
    assert worst_of_runs([]) is None
    assert joined([good, bad]).further == ()


def test_json_keeps_a_verdict():
    verdict = Verdict("not yet", "Far.", "More.", {"distance": math.inf, "drift": 0.25}, ("And more.",))
    assert Verdict.from_json(json.loads(json.dumps(verdict.to_json(), allow_nan=False))) == verdict
    assert verdict.text == "Far. More. And more."


def test_nothing_seen_is_not_yet():
    assert judge_run(windows_of(lambda n: 1.0, last=2), setting(played=2, rounds=2)).kind == "not yet"
    assert remaining([]).drift == math.inf


@pytest.mark.parametrize(
    ("kind", "figures", "tone"),
    [
        ("converged", {"skill": 0.5}, "good"),
        ("useful", {"skill": 0.03}, "good"),
        ("converged", {}, "mixed"),
        ("converged", {"skill": 0.01}, "mixed"),
        ("useful", {"skill": 0.5, "bad_clusters": 1.0}, "mixed"),
        ("not yet", {"skill": 0.9}, "mixed"),
        ("not useful", {"skill": -0.1}, "bad"),
    ],
)
def test_nothing_that_may_be_no_better_than_its_baseline_is_shown_as_good(kind, figures, tone):
    assert Verdict(kind, "…", "", figures).tone == tone


def test_the_figure_behind_a_verdict_stands_with_it_once():
    silent = Verdict("converged", "The models have converged.", "", {}, (), "R² 0.400 (trivial 0.000) on held-out rows")
    assert silent.text == "The models have converged. Measured: R² 0.400 (trivial 0.000) on held-out rows."
    assert Verdict("useful", f"Useful, with {silent.measured}.", measured=silent.measured).support == ""
    assert Verdict.from_json(silent.to_json()) == silent
