"""The verdict on real data: never "converged" far from the limit, "diverging" early, and the same after a resume."""

import json

import numpy as np
import pytest

from pgfl import PGFL, FedAvg, Huber, Privacy, Ridge, synthetic_regression, train
from pgfl.errors import ConfigError, Diverged, SolverError
from pgfl.results.result import Result
from pgfl.results.verdict import SETTLED, remaining
from pgfl.simulate.checkpoint import Checkpoints
from pgfl.simulate.observers import Observer
from pgfl.simulate.options import TrainingOptions
from pgfl.simulate.simulator import Simulator
from tests.real_data import federation

ENOUGH = {"diabetes": (2.0, 1800), "fair": (2.0, 250), "breast_cancer": (0.5, 500), "digits": (0.5, 500)}


class Estimates(Observer):
    """The estimated distance and the server models wherever the monitor looks."""

    def __init__(self):
        self.rounds, self.found, self.models = [], [], []

    def on_round(self, simulator):
        (windows,) = simulator.monitor.windows
        if windows and windows[-1].end == simulator.state.round:
            self.rounds.append(simulator.state.round)
            self.found.append(remaining(windows).total)
            self.models.append(np.array(simulator.state.server_models))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.proof) if name == "digits" else name for name in ENOUGH]
)
def test_converged_is_never_said_far_from_the_limit(name):
    rho, rounds = ENOUGH[name]
    made, objective = federation(name)
    simulator = Simulator([made], PGFL(rho=rho), objective, TrainingOptions(rounds=rounds, metrics=()))
    estimates = Estimates()
    simulator.observers = [simulator.monitor, estimates]
    limit = np.array(simulator.run().server_models)
    far = np.array([np.linalg.norm(models - limit) for models in estimates.models]) / np.linalg.norm(limit)
    said = np.array(estimates.found) <= SETTLED
    assert said[-1]
    assert (far[said] ** 2 <= 1e-2).all()
    assert not said[np.array(estimates.rounds) <= 40].any()
    (verdict,) = simulator.monitor.verdicts(simulator)
    assert (verdict.kind, verdict.advice) == ("converged", "")


@pytest.mark.parametrize("name", ENOUGH)
@pytest.mark.parametrize(("rho", "rounds", "advice"), [(50.0, 60, "or lower algorithm.rho to about"), (5.0, 20, "")])
def test_too_few_rounds_and_too_large_a_rho_are_not_yet(name, rho, rounds, advice):
    made, objective = federation(name)
    verdict = train(made, PGFL(rho=rho), objective, rounds=rounds, metrics=[]).verdict
    assert verdict.kind == "not yet"
    assert f"not converged after {rounds} rounds" in verdict.sentence
    assert "Raise rounds" in verdict.advice or "ower algorithm.rho" in verdict.advice
    assert advice.removeprefix("or ") in verdict.advice or not advice


@pytest.mark.proof
def test_the_advice_leads_to_convergence():
    made, objective = federation("fair")
    verdict = train(made, PGFL(rho=20.0), objective, rounds=300, metrics=[]).verdict
    rho = float(verdict.advice.split("about ")[-1].rstrip("."))
    assert train(made, PGFL(rho=rho), objective, rounds=300, metrics=[]).verdict.kind == "converged"
    more = int(verdict.advice.split("about ")[1].split(",")[0])
    assert train(made, PGFL(rho=20.0), objective, rounds=3 * more // 2, metrics=[]).verdict.kind == "converged"


@pytest.mark.parametrize(
    ("data", "raw", "algorithm"),
    [
        ("diabetes", False, FedAvg(step_size=5.0)),
        ("diabetes", False, PGFL(rho=0.2)),
        ("fair", False, PGFL(rho=0.05)),
        ("fair", True, FedAvg(step_size=0.5)),
        ("breast_cancer", True, FedAvg(step_size=0.005, local_steps=1)),
    ],
)
def test_a_diverging_run_is_stopped_early_and_leaves_a_result(tmp_path, data, raw, algorithm):
    made, objective = federation(data, raw=raw)
    result = train(made, algorithm, Ridge() if isinstance(algorithm, FedAvg) else objective, rounds=300)
    assert result.verdict.kind == "diverging"
    assert (
        "Lower algorithm.step_size" if isinstance(algorithm, FedAvg) else "Raise algorithm.rho"
    ) in result.verdict.advice
    assert result.rounds[-1] <= 30
    result.save(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))["verdict"]["kind"] == "diverging"
    assert Result.load(tmp_path / "out").verdict == result.verdict


def test_what_is_no_longer_finite_is_still_an_error():
    made, _ = federation("breast_cancer", raw=True)
    with pytest.raises((Diverged, SolverError)), np.errstate(all="ignore"):
        train(made, FedAvg(step_size=1e60, local_steps=5), Ridge(), rounds=30)


def test_ordinary_runs_are_not_taken_for_diverging():
    made = synthetic_regression(servers=3, clients_per_server=4, dimension=8, samples=(3, 9), graph="ring", seed=4)
    for algorithm in (PGFL(rho=300.0), PGFL(rho=1.0, tau=0.3), FedAvg(step_size=1e-4), FedAvg(step_size=0.05)):
        for participants in ("all", 1):
            result = train(made, algorithm, Ridge(), rounds=80, participants=participants, metrics=[])
            assert result.verdict.kind in ("converged", "not yet"), (algorithm, participants)


@pytest.mark.proof
def test_training_stops_once_it_has_converged():
    made, objective = federation("fair")
    whole = train(made, PGFL(rho=2.0), objective, rounds=400)
    short = train(made, PGFL(rho=2.0), objective, rounds=400, stop="converged")
    assert short.rounds[-1] < 300
    assert "training stopped there" in short.verdict.sentence
    assert abs(short.history["r2"][-1] - whole.history["r2"][-1]) < 1e-3
    several = train(made, PGFL(rho=2.0), objective, rounds=400, stop="converged", runs=2, metrics=[])
    assert several.rounds[-1] == 400
    with pytest.raises(ConfigError, match='stop must be "converged" or "never"'):
        train(made, PGFL(), objective, rounds=2, stop="soon")


def test_with_privacy_nothing_stops_early():
    made = synthetic_regression(
        servers=2, clients_per_server=3, dimension=2, samples=(20, 20), x_norm=1.0, graph="line"
    )
    privacy = Privacy(epsilon=1e6, max_releases=60, index="release", x_norm=1.0)
    result = train(made, PGFL(rho=1.0), Huber(), rounds=60, privacy=privacy, stop="converged", metrics=[])
    assert result.rounds[-1] == 60


class GoesDown(Checkpoints):
    """A machine that goes down once a round is saved."""

    def save(self, simulator):
        super().save(simulator)
        if simulator.state.round >= 70:
            raise KeyboardInterrupt


@pytest.mark.proof
@pytest.mark.parametrize("private", [False, True])
def test_a_resumed_run_has_the_same_verdict_and_the_same_end(tmp_path, private):
    made, objective = federation("fair")
    objective = Huber() if private else objective
    privacy = Privacy(epsilon=3.0, max_releases=90, index="release", x_norm=3.0, noise="seeded") if private else None
    settings = {"rounds": 400, "privacy": privacy, "stop": "converged", "record_every": 50}
    whole = train(made, PGFL(rho=2.0), objective, **settings)
    with pytest.raises(KeyboardInterrupt):
        train(made, PGFL(rho=2.0), objective, checkpoints=GoesDown(tmp_path, "same", 35), **settings)
    resumed = train(
        made, PGFL(rho=2.0), objective, checkpoints=Checkpoints(tmp_path, "same", 35), resume=True, **settings
    )
    assert resumed.verdict == whole.verdict
    assert resumed.rounds.tolist() == whole.rounds.tolist()
    assert (resumed.rounds[-1] < 400) == (not private) or private


def test_a_checkpoint_at_the_stop_ends_again(tmp_path):
    made, objective = federation("fair")
    settings = {"rounds": 400, "stop": "converged", "metrics": []}
    first = train(made, PGFL(rho=2.0), objective, checkpoints=Checkpoints(tmp_path, "same", 1), **settings)
    again = train(made, PGFL(rho=2.0), objective, checkpoints=Checkpoints(tmp_path, "same", 1), resume=True, **settings)
    assert again.verdict == first.verdict
    assert again.rounds[-1] == first.rounds[-1] < 400


def test_the_verdict_of_several_runs_is_that_of_the_worst():
    made, objective = federation("fair")
    result = train(made, PGFL(rho=20.0), objective, rounds=30, participants=1, runs=3, metrics=[])
    assert result.verdict.kind == "not yet"
    assert result.verdict.sentence.endswith("(3 of 3 runs.)")
