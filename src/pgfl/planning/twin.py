"""A synthetic twin: a made-up federation of the planned shape, on which settings are tried."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from pgfl.array_types import AnyFloats, Floats
from pgfl.core.federation import Federation, TestSet
from pgfl.data.synthetic import synthetic_regression
from pgfl.planning.facts import Facts

TEST_SAMPLES = 400
TWINS_KEPT = 8
PLAIN: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "trust": "local"}


def twin(facts: Facts, seed: int) -> Federation:
    """Rows of full norm in random directions, and labels of related linear models, as predictable as expected.

    It is the same whatever the privacy.
    """
    return _twin(replace(facts, **PLAIN), seed)


@lru_cache(maxsize=TWINS_KEPT)
def _twin(facts: Facts, seed: int) -> Federation:
    dimension, share = facts.columns, facts.expected
    regression = facts.task == "regression"
    noise = math.sqrt(dimension * (1.0 - share) / share) if regression else 0.0
    made = synthetic_regression(
        servers=facts.servers,
        clients_per_server=facts.clients_per_server,
        clusters=facts.clusters,
        dimension=dimension,
        samples=facts.records,
        gamma=facts.gamma,
        observation_noise=noise,
        x_norm=facts.x_norm,
        test_samples=0 if regression else TEST_SAMPLES,
        graph=facts.graph,
        average_degree=facts.average_degree,
        seed=seed,
    )
    if regression:
        scale = facts.label_scale / math.sqrt(dimension / share)
        assert made.truth is not None
        return made.replace(targets=scale * made.targets, truth=scale * made.truth, generated=True)
    rng = np.random.default_rng(seed)
    doubt = math.sqrt(dimension) * math.tan(math.pi * (1.0 - share))
    tests = {
        name: TestSet(test.features, _labels(test.targets, doubt, rng)) for name, test in (made.tests or {}).items()
    }
    return made.replace(targets=_labels(made.targets, doubt, rng), tests=tests, truth=None, generated=True)


def _labels(margins: AnyFloats, doubt: float, rng: np.random.Generator) -> Floats:
    """1 where a margin with noise is positive: the margin's own sign is right as often as is expected."""
    return np.asarray(margins + doubt * rng.standard_normal(len(margins)) > 0, dtype=float)
