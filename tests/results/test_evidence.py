"""A verdict agrees with held-out rows and with a known truth, on made-up figures, real tables and every preset."""

import math
from dataclasses import replace

import numpy as np
import pytest

from pgfl import PGFL, ExactMixing, Huber, Logistic, Privacy, Ridge, experiment, synthetic_regression, train
from pgfl.config import load_config
from pgfl.metrics import MEASURES
from pgfl.results.evidence import Evidence, weigh
from pgfl.results.measures import ClientFigures, Figure, Measured
from pgfl.results.result import Result
from pgfl.results.verdict import GOOD, WORST_FIRST, Verdict, joined
from tests.real_data import federation

PRESETS = ("exact", "fedavg", "paper-fig1", "paper-fig2", "paper-fig3", "paper-fig5", "private-huber")


def figures(clusters=None, **pairs):
    nothing = Figure(math.nan, math.nan)
    return [
        Measured(name, Figure(*pair), {q: Figure(*each) for q, each in (clusters or {}).items()}, nothing, nothing)
        for name, pair in pairs.items()
    ]


def judged(kind, measures=(), nmsd=None, private=False, findings=()):
    rounds = np.arange(0, 101, 10)
    curve = None if nmsd is None else np.asarray(nmsd, dtype=float)
    return weigh(Verdict(kind, kind, findings=tuple(findings)), Evidence.of(measures, rounds, curve), private)


def agrees(result):
    """Whether a verdict contradicts the figures beside it, worked out from them alone."""
    known = {each.name: each.whole for each in result.measures}
    worse = ("r2" in known and known["r2"].value < 0.0) or (
        "log_loss" in known and known["log_loss"].value > known["log_loss"].baseline
    )
    if not known and "nmsd" in result.metrics:
        worse = result.curve("nmsd").mean(axis=0)[-1] > 1.0
    assert worse == (result.verdict.kind == "not useful"), result.verdict
    better = "r2" in known and known["r2"].value > 0.05
    better |= "log_loss" in known and known["log_loss"].value < 0.95 * known["log_loss"].baseline
    if better and result.private:
        assert result.verdict.kind in (*GOOD, "budget spent"), result.verdict


@pytest.mark.parametrize("kind", [kind for kind in WORST_FIRST if kind != "diverging"])
@pytest.mark.parametrize(
    "bad",
    [
        {"r2": (-0.01, 0.0)},
        {"r2": (math.nan, 0.0)},
        {"log_loss": (0.245, 0.214), "auc": (0.553, 0.5), "accuracy": (0.94, 0.94)},
        {"log_loss": (0.6, 0.65), "accuracy": (0.5, 0.6)},
        {"accuracy": (0.5, 0.6)},
    ],
)
def test_worse_than_trivial_is_not_useful_whatever_the_drift(kind, bad):
    for private in (False, True):
        assert judged(kind, figures(**bad), private=private).kind == "not useful"
    assert judged("diverging", figures(**bad)).kind == "diverging"


@pytest.mark.parametrize(
    "good", [{"r2": (0.17, 0.0)}, {"log_loss": (0.49, 0.69), "accuracy": (0.92, 0.53)}, {"accuracy": (0.92, 0.53)}]
)
def test_useful_models_are_neither_drowned_nor_blamed_for_rounds_they_could_not_afford(good):
    drowned, early = Verdict("noise drowns the signal", "Loud."), Verdict("not yet", "Far.")
    found = judged(drowned.kind, figures(**good), private=True, findings=(drowned, early))
    assert found.kind == "useful"
    assert not any(word in found.text for word in ("Loud", "Far"))
    assert judged("not yet", figures(**good)).kind == "not yet"  # without privacy more rounds are free
    assert judged("converged", figures(**good), private=True).kind == "converged"


def test_a_rare_label_may_be_useful_at_the_majority_s_accuracy():
    rare = figures(log_loss=(0.202, 0.214), auc=(0.675, 0.5), accuracy=(0.938, 0.94))
    assert judged("converged", rare).kind == "converged"


def test_hardly_better_is_said_and_stays_drowned():
    found = judged("noise drowns the signal", figures(r2=(0.01, 0.0)), private=True)
    assert found.kind == "noise drowns the signal"
    assert "hardly better" in found.text


def test_a_cluster_for_which_the_models_are_worse_than_trivial_is_named():
    found = judged("converged", figures(clusters={"north": (0.5, 0.0), "south": (-0.2, 0.0)}, r2=(0.3, 0.0)))
    assert (found.kind, "Not useful for south" in found.text) == ("converged", True)


def test_a_known_truth_decides_whether_models_have_converged():
    falling, flat, wrong = 0.9 ** np.arange(11), np.full(11, 0.01), np.full(11, 4.9)
    assert judged("converged", nmsd=falling).kind == "not yet"
    assert judged("converged", nmsd=falling, private=True).kind == "useful"
    assert judged("not yet", nmsd=flat).kind == "converged"
    assert judged("converged", nmsd=wrong).kind == "not useful"


def test_without_evidence_the_verdict_says_what_it_cannot_know():
    assert "No held-out rows" in judged("converged").text


@pytest.mark.parametrize("name", PRESETS)
def test_the_verdict_on_a_preset_agrees_with_its_figures(name):
    agrees(experiment.run(load_config(name, ["runs=1", "record_every=10"])))


@pytest.mark.parametrize(
    "name", ["diabetes", *(pytest.param(n, marks=pytest.mark.proof) for n in ("fair", "breast_cancer"))]
)
def test_the_verdict_on_a_private_table_agrees_with_held_out_rows(name, tmp_path):
    made, objective = federation(name)
    objective = objective if isinstance(objective, Logistic) else Huber(kappa=1.0)
    for epsilon in (0.3, 3.0, 30.0):
        privacy = Privacy(epsilon=epsilon, max_releases=20, index="release", x_norm=5.0, noise="seeded")
        for rho in (0.5, 5.0):
            result = train(made, PGFL(rho=rho), objective, rounds=20, privacy=privacy, record_every=20)
            if result.verdict.kind != "diverging":
                agrees(result)
    result.save(tmp_path / "out")
    assert Result.load(tmp_path / "out").verdict == result.verdict


def test_movement_by_rounding_is_converged_and_a_continued_run_is_judged_like_a_fresh_one():
    made, objective = federation("fair")
    whole = train(made, PGFL(rho=2.0), objective, rounds=400, metrics=[])
    first = train(made, PGFL(rho=2.0), objective, rounds=300, metrics=[])
    continued = train(made, PGFL(rho=2.0), objective, rounds=100, start=first, metrics=[])
    assert whole.verdict.kind == continued.verdict.kind == "converged"
    at_rest = train(made, PGFL(rho=2.0), Ridge(), rounds=1500, metrics=[])
    assert at_rest.verdict.kind == "converged"


def test_models_on_which_all_servers_agree_are_not_called_wrong():
    """At one server the plain average has no bias: the models are those of exact mixing, however clients pull."""
    made = synthetic_regression(servers=1, clients_per_server=12, dimension=4, samples=(5, 9), graph="none", seed=3)
    plain, exact = (train(made, kind(rho=0.5), Ridge(lam=5.0), rounds=600, metrics=[]) for kind in (PGFL, ExactMixing))
    assert plain.verdict.figures["pull"] > 1.0
    assert plain.verdict.kind == "converged", plain.verdict
    for cluster in plain.cluster_ids:
        np.testing.assert_allclose(plain.cluster(cluster), exact.cluster(cluster), atol=1e-9)


def test_where_noise_drowns_the_signal_nobody_asks_for_longer_steps():
    said = {"not yet": "Lower algorithm.rho.", "noise drowns the signal": "Raise privacy.epsilon."}
    findings = tuple(Verdict(kind, f"{kind}.", advice) for kind, advice in said.items())
    worse = Evidence(-0.1, "R² −0.100 (trivial 0.000) on held-out rows")
    found = weigh(joined(findings), worse, private=True)
    assert found.kind == "not useful" and found.advice == "Raise privacy.epsilon." and "not yet" not in found.text
    assert "Lower algorithm.rho." in weigh(findings[0], worse, private=True).text


def test_constant_targets_are_measured_as_scikit_learn_does_and_baselines_have_no_sign():
    targets = np.full(3, 0.1)
    r2 = MEASURES["r2"]
    assert r2.of(np.array([[0.1], [0.1], [0.1]]), targets).tolist() == [1.0]
    assert r2.of(np.array([[0.2], [0.1], [0.1]]), targets).tolist() == [0.0]
    assert [MEASURES[name].trivial(targets) for name in ("r2", "mae", "rmse")] == [1.0, 0.0, 0.0]
    rng = np.random.default_rng(0)
    assert all(math.copysign(1.0, r2.trivial(rng.normal(size=7))) > 0 for _ in range(20))


def test_nobody_with_fewer_than_five_held_out_rows_is_the_worst_client():
    own = np.array([-9.0, 0.2, 0.5])
    one = ClientFigures("r2", own, np.zeros(3), own, np.zeros(3))
    found = one.measured(np.zeros(3, dtype=int), ["all"], ["a", "b", "c"], False, np.array([4, 5, 50]))
    assert (found.worst.value, found.worst_client) == (0.2, "b")
    nobody = one.measured(np.zeros(3, dtype=int), ["all"], ["a", "b", "c"], False, np.array([4, 4, 4]))
    assert math.isnan(nobody.worst.value)
    assert nobody.worst_client is None


@pytest.mark.parametrize(("chance", "words"), [(0.414, "about 41 % were worse"), (0.001, "fewer than 1 % were worse")])
def test_without_held_out_rows_it_is_said_how_often_such_noise_was_useless(chance, words):
    verdict = Verdict("converged", "The models have converged.", figures={"chance_useless": chance})
    assert f"Of trainings with as much noise {words} than a trivial prediction." in weigh(verdict, None, True).text
    assert "as much noise" not in weigh(replace(verdict, figures={}), None, True).text
    assert "as much noise" not in weigh(verdict, Evidence(0.5, "log loss 0.3"), True).text
