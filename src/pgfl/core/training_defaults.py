"""The defaults of a training, for `train` and for the config alike."""

from __future__ import annotations

from typing import Final, Literal

from pgfl.core.metrics import DEFAULT_METRICS

Library = Literal["auto", "numpy", "numba", "jax"]
Stop = Literal["converged", "never"]

ROUNDS: Final = 300
PARTICIPANTS: Final = "all"
SEED: Final = 0
RUNS: Final = 1
RECORD_EVERY: Final = 1
METRICS: Final = DEFAULT_METRICS
ENGINE: Final = "auto"
THREADS: Final = None
STOP: Final = "never"
