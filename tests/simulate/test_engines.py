"""The contract of engines, which any of them must keep; and what the debug engine says of errors."""

from importlib.metadata import EntryPoint

import numpy as np
import pytest

from pgfl import PGFL, FedAvg, Huber, Privacy, Ridge, synthetic_regression, train
from pgfl.algorithms import client_rules
from pgfl.algorithms.schedules import ENGINES
from pgfl.errors import ConfigError, StageError
from pgfl.simulate.debug_engine import DebugEngine
from pgfl.simulate.engine import Engine
from pgfl.simulate.engines import EngineKind, engine_kind
from pgfl.simulate.memory import Shape
from pgfl.simulate.options import Performance, TrainingOptions
from pgfl.simulate.simulator import Simulator

DATA = synthetic_regression(servers=3, clients_per_server=5, dimension=6, samples=(3, 8), graph="ring", seed=1)
PRIVATE = Privacy(x_norm=1.0, phi0=1e-3, zeta=0.99)
CASES = {
    "ridge": (PGFL(2.0, tau=0.2), Ridge(), {}),
    "some take part": (PGFL(2.0, tau=0.2), Huber(), {"participants": 2}),
    "private": (PGFL(2.0), Huber(), {"privacy": PRIVATE, "participants": 2}),
    "private sums": (
        PGFL(2.0, client="gradient"),
        Huber(),
        {"privacy": Privacy(x_norm=1.0, phi0=1e-3, trust="site", contributors=2)},
    ),
    "steps": (FedAvg(step_size=0.01), Ridge(), {"runs": 2}),
}


@pytest.mark.parametrize("name", list(ENGINES))
@pytest.mark.parametrize("case", CASES)
def test_every_engine_computes_what_numpy_does(name, case):
    algorithm, objective, settings = CASES[case]
    one, other = (train(DATA, algorithm, objective, rounds=6, engine=each, **settings) for each in ("numpy", name))
    assert other.engine == name
    for mine, theirs in zip(one.models, other.models, strict=True):
        np.testing.assert_allclose(theirs.servers, mine.servers, rtol=0, atol=1e-10)
        np.testing.assert_allclose(theirs.clients, mine.clients, rtol=0, atol=1e-10)
        if mine.released is not None:
            np.testing.assert_allclose(theirs.released, mine.released, rtol=0, atol=1e-10)
    for mine, theirs in zip(one.privacy, other.privacy, strict=True):
        np.testing.assert_array_equal(theirs["epsilon"], mine["epsilon"])


@pytest.mark.parametrize("name", list(ENGINES))
def test_every_engine_answers_what_a_simulation_asks_before_its_first_round(name):
    kind = engine_kind(name)
    shape = Shape(clients=10, rows=50, dimension=6, pairs=4, engine=name)
    assert isinstance(kind, EngineKind) and kind.useful_threads(100) >= 1
    assert kind.row_copies(0.0) >= 1.0 and 0 <= kind.kernel_bytes(shape) < shape.total
    assert 0.0 <= kind.sparse_share(DATA.features, np.float64) <= 1.0
    simulator = Simulator([DATA], PGFL(), Ridge(), TrainingOptions(performance=Performance(engine=name)))
    assert isinstance(simulator.engine, Engine)


def test_an_engine_of_another_package_is_one_entry_point(monkeypatch):
    entry = EntryPoint("slow", "pgfl.simulate.debug_engine:DebugKind", ENGINES.group)
    monkeypatch.setitem(ENGINES.__dict__, "_entries", {"slow": entry})
    monkeypatch.setattr(ENGINES, "_known", {**ENGINES._known})
    result = train(DATA, rounds=2, engine="slow")
    assert result.engine == "slow"


def test_an_unknown_engine_is_one_sentence():
    with pytest.raises(ConfigError, match=r"^Unknown engine the text 'debugg' \(did you mean debug\?\); choose auto, "):
        train(DATA, rounds=1, engine="debugg")


@pytest.mark.parametrize(("stage", "method"), [("solve", "step"), ("aggregate", "contribution"), ("settle", "settle")])
def test_the_debug_engine_names_the_round_the_stage_and_the_client(monkeypatch, stage, method):
    rule, seen = client_rules.ProximalStep, []
    plain = getattr(rule, method)

    def fail(self, *given):
        seen.append(given)
        if len(seen) == DATA.size + 3:
            raise ZeroDivisionError("something of yours")
        return plain(self, *given)

    monkeypatch.setattr(rule, method, fail)
    said = rf"^In round 2, stage {stage}, client client-.*: ZeroDivisionError: something of yours$"
    with pytest.raises(StageError, match=said) as found:
        train(DATA, PGFL(2.0), Ridge(), rounds=4, engine="debug")
    assert found.value.round == 2 and found.value.stage == stage and found.value.client.startswith("client ")
    assert isinstance(found.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("stage", ["publish", "combine"])
def test_the_debug_engine_names_the_stage_of_servers(monkeypatch, stage):
    def fail(self, *given):
        raise ZeroDivisionError("something of yours")

    monkeypatch.setattr(type(PGFL().server_rule), stage, fail)
    with pytest.raises(StageError, match=rf"^In round 1, stage {stage}: ZeroDivisionError"):
        train(DATA, PGFL(2.0), Ridge(), rounds=4, engine="debug")


def test_the_debug_engine_finds_whose_release_fails():
    options = TrainingOptions(3, privacy=PRIVATE, performance=Performance("debug"))
    simulator = Simulator([DATA], PGFL(2.0), Huber(), options)
    engine = simulator.engine
    assert isinstance(engine, DebugEngine)
    plain = engine.noise.release

    def release(models, sigma, clients, round):
        if 7 in clients:
            raise ValueError("no noise")
        return plain(models, sigma, clients, round)

    engine.noise = type("Noise", (), {"release": staticmethod(release)})()
    with pytest.raises(StageError, match=r"^In round 1, stage release, client .*: ValueError: no noise$") as found:
        simulator.run_round()
    assert found.value.client == simulator.layout.client(7)
