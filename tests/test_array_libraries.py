"""One small network under NumPy, array-api-strict and JAX: the same equations, the same numbers."""

import array_api_strict
import numpy as np
import pytest

import bridges
from federations import random_case
from pgfl.simulate.jax import namespace as jax_namespace

LIBRARIES = {"array-api-strict": lambda: array_api_strict, "jax": jax_namespace}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("algorithm", ["pgfl", "pgfl-exact", "pgfl-onestep", "fedavg"])
@pytest.mark.parametrize("kind", ["ridge", "huber", "logistic"])
def test_libraries_agree(library, algorithm, kind):
    case = random_case(0, kind, "ordinary", "half", True, algorithm=algorithm)
    played = [bridges.engine(case.problem, *case.draws, xp=xp) for xp in (np, LIBRARIES[library]())]
    for _ in range(15):
        for engine in played:
            engine.play()
    expected, actual = map(bridges.snapshot, played)
    for name in ("clients", "duals", "servers"):
        assert actual[name].keys() == expected[name].keys()
        for key, value in expected[name].items():
            np.testing.assert_allclose(actual[name][key], value, atol=1e-9 * (1 + np.abs(value).max()), rtol=0)
