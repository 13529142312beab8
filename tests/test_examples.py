"""The examples run and give the results that they promise."""

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.proof
def test_own_objective_learns_with_and_without_privacy():
    without, private, epsilon = load("own_objective").main()
    assert without < private < 0.3
    assert 7.5 < epsilon <= 8.0


def test_train_on_arrays_finds_the_slopes_of_both_clusters():
    example = load("train_on_arrays")
    result = example.main()
    for cluster, slopes in example.SLOPES.items():
        assert result.cluster(cluster) == pytest.approx(slopes, abs=0.06)


def test_every_example_has_a_test():
    tested = Path(__file__).read_text("utf-8")
    for path in EXAMPLES.glob("*.py"):
        assert f'load("{path.stem}")' in tested
