"""The examples run, and do what they say."""

import importlib.util
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_own_objective_learns_with_and_without_privacy():
    without, private, epsilon = load("own_objective").main()
    assert without < private < 0.3
    assert 7.5 < epsilon <= 8.0
