"""The page's trainings are compiled once the kernels are loaded, and are then those of `engine = "numba"`."""

import subprocess
import sys
import threading
from contextlib import nullcontext

import numpy as np
import pytest

from pgfl import experiment
from pgfl.simulate.engines import engine_kind
from pgfl.studio import workers as kernels
from pgfl.studio.play_state import PlayState
from pgfl.studio.workers import play
from tests.studio.test_play_state import TINY

COUNTED = """
from contextlib import nullcontext
from importlib import import_module
from pkgutil import iter_modules
from numba.core.registry import CPUDispatcher
from pgfl import experiment
from pgfl.simulate import compiled
from pgfl.simulate.engines import engine_kind
from pgfl.studio import workers as kernels
from pgfl.studio.play_state import PlayState, comparison_configs

def at_hand():
    modules = [import_module(f"pgfl.simulate.compiled.{one.name}") for one in iter_modules(compiled.__path__)]
    found = {value for module in modules for value in vars(module).values() if isinstance(value, CPUDispatcher)}
    return {one.__name__: len(one.signatures) for one in found}

kernels.load(nullcontext())
before = at_hand()
assert sum(before.values()) > 5, before
changes = (("rounds", "2"), ("data.servers", "3"), ("data.clients_per_server", "3"), ("graph.kind", "'ring'"))
for preset in ("fig1", "fig2", "fig3", "fig3-guaranteed", "private-huber"):
    config = PlayState(preset, changes).config()
    for one in (config, *comparison_configs(config).values()):
        assert experiment.run(one, kernels_loaded=True).engine == "numba", preset
        assert at_hand() == before, (preset, one.algorithm.kind)
for trust in ("masked", "site"):
    changes = (("rounds", "2"), ("privacy.trust", repr(trust)))
    experiment.run(PlayState("private-huber", changes).config(), kernels_loaded=True)
    assert at_hand() == before, trust
"""


@pytest.mark.proof
def test_nothing_is_left_to_compile_once_the_kernels_are_loaded():
    ran = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.fixture
def fresh(monkeypatch):
    monkeypatch.setattr(kernels, "_loaded", threading.Event())


@pytest.mark.parametrize("preset", ["fig1", "fig3-guaranteed", "private-huber", "fedavg"])
def test_compiled_trainings_are_those_of_the_compiled_engine(fresh, preset):
    config = PlayState(preset, TINY).config()
    slow = play(config)
    kernels.load(nullcontext())
    fast = play(config)
    assert (slow.engine, fast.engine) == ("numpy", "numba")
    named = experiment.run(config.model_copy(update={"engine": "numba"}))
    assert list(fast.curve) == named.curve(config.metrics[0])[0].tolist()
    assert np.allclose(fast.curve, slow.curve, rtol=1e-9, atol=0.0)


def test_without_numba_nothing_is_loaded(fresh, monkeypatch):
    monkeypatch.setattr(type(engine_kind("numba")), "installed", lambda self: False)
    kernels.load_behind(nullcontext())
    assert not kernels.loaded()
