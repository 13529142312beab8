"""`engine = "auto"`: Numba where it is installed and pays off, NumPy otherwise, and the result says which."""

import json
import sys

import numpy as np
import pytest

from pgfl import PGFL, FedAvg, Huber, Privacy, Result, Ridge, Softmax, synthetic_regression, train
from pgfl.errors import KernelError
from pgfl.simulate import compiled
from pgfl.simulate.compiled import cache as numba_compiled
from pgfl.simulate.compiled import kernels as numba_kernels
from pgfl.simulate.compiled import kind
from pgfl.simulate.compiled.engine import CompiledEngine
from pgfl.simulate.engines import choose_engine
from pgfl.simulate.options import Performance, TrainingOptions
from pgfl.simulate.simulator import Simulator

SMALL = synthetic_regression(servers=3, clients_per_server=5, dimension=12, samples=(3, 8), graph="ring", seed=1)
LONG = TrainingOptions(rounds=200_000)


def chosen(options=LONG, algorithm=PGFL(), objective=Ridge(), federation=SMALL):  # noqa: B008
    return choose_engine(options, algorithm, objective, federation).performance.engine


def test_compiled_where_it_pays_off():
    assert chosen() == "numba"
    assert chosen(TrainingOptions(rounds=300)) == "numpy", "loading Numba takes longer than these rounds"
    assert chosen(TrainingOptions(rounds=2_000, runs=100)) == "numba"
    assert chosen(objective=Huber()) == chosen(algorithm=PGFL(client="gradient")) == "numba"
    assert chosen(algorithm=FedAvg(step_size=0.01)) == "numba"


def test_what_a_round_saves_depends_on_who_takes_part_and_on_what_they_compute():
    large = synthetic_regression(servers=40, clients_per_server=50, dimension=60, samples=(2, 9), seed=1)
    some = TrainingOptions(rounds=2_000)
    assert chosen(some, federation=large) == "numba"
    assert chosen(TrainingOptions(rounds=2_000, participants=1), federation=large) == "numpy"
    assert chosen(some, PGFL(client="gradient"), federation=large) == "numpy", "steps save less"
    few = TrainingOptions(rounds=6_000)
    assert (chosen(few), chosen(few, objective=Huber())) == ("numpy", "numba"), "problems without a formula save more"


def test_numpy_where_numba_is_missing(monkeypatch):
    monkeypatch.setattr(kind, "find_spec", lambda name: None)
    assert chosen() == "numpy"


@pytest.fixture(params=["import", "compilation"])
def broken(request, monkeypatch):
    """Numba is installed, but its kernels cannot be imported, or not be compiled."""
    if request.param == "import":
        monkeypatch.setitem(sys.modules, "pgfl.simulate.compiled.engine", None)
        monkeypatch.delattr(compiled, "engine")
    else:
        kernel = numba_compiled.compiled(numba_kernels.settle.py_func)
        kernel._cache.disable()
        monkeypatch.setattr(numba_kernels, "settle", kernel)
        monkeypatch.setattr(numba_compiled._KernelLibrary, "_optimize_final_module", _no_longer_there)
    kind.failure.cache_clear()
    yield {"import": "ModuleNotFoundError", "compilation": "KernelError"}[request.param]
    kind.failure.cache_clear()


def _no_longer_there(library):
    raise AttributeError("Numba has changed.")


def test_numpy_and_one_sentence_where_kernels_fail(broken, monkeypatch):
    monkeypatch.setattr(kind, "START", 0.0)
    result = train(SMALL, PGFL(), Ridge(), rounds=3)
    (said,) = (warning for warning in result.warnings if "kernels" in warning)
    assert result.engine == "numpy"
    assert said.startswith(f"The compiled kernels cannot be used ({broken}: ")
    assert said.endswith("), so NumPy computes, more slowly.") and "\n" not in said


def test_an_error_of_one_sentence_where_kernels_fail_that_were_asked_for(broken):
    with pytest.raises(
        KernelError, match=rf"^The compiled kernels cannot be used \({broken}: .*\); choose the engine numpy"
    ):
        train(SMALL, PGFL(), Ridge(), rounds=3, engine="numba")


@pytest.mark.parametrize(
    ("algorithm", "objective", "privacy"),
    [
        (PGFL(), Ridge(w_norm=1.0), None),
        (PGFL(), Softmax(classes=3), None),
        (PGFL(), Huber(), Privacy(x_norm=1.0, phi0=1e-3, zeta=0.99, update_norm=0.5)),
    ],
    ids=["constrained ridge", "softmax", "bounded updates"],
)
def test_numpy_for_what_the_kernels_do_not_know(algorithm, objective, privacy):
    assert chosen(TrainingOptions(rounds=200_000, privacy=privacy), algorithm, objective) == "numpy"


def test_an_engine_that_is_named_is_kept():
    for name in ("numpy", "numba", "jax"):
        assert chosen(TrainingOptions(rounds=200_000, performance=Performance(engine=name))) == name


@pytest.mark.parametrize("start", [0.0, 1e9], ids=["pays off", "does not"])
def test_the_bits_are_those_of_the_engine_named_outright(monkeypatch, tmp_path, start):
    monkeypatch.setattr(kind, "START", start)
    settings = {"rounds": 12, "participants": 2, "runs": 2, "seed": 3}
    result = train(SMALL, PGFL(tau=0.2), Ridge(), **settings)
    expected = "numpy" if start else "numba"
    assert result.engine == expected
    named = train(SMALL, PGFL(tau=0.2), Ridge(), engine=expected, **settings)
    for mine, theirs in zip(result.models, named.models, strict=True):
        np.testing.assert_array_equal(mine.clients, theirs.clients)
        np.testing.assert_array_equal(mine.servers, theirs.servers)
    result.save(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["engine"] == expected
    assert Result.load(tmp_path / "out").engine == expected


def test_a_simulator_chooses_too(monkeypatch):
    monkeypatch.setattr(kind, "START", 0.0)
    simulator = Simulator([SMALL], PGFL(), Ridge())
    assert isinstance(simulator.engine, CompiledEngine) and simulator.options.performance.engine == "numba"
