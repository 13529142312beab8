"""Compiled rounds for the page: loaded behind the first trainings, and used by all that follow.

Until then, and without Numba, trainings run on NumPy. Compiling takes about half a minute, once on a machine; loading
what was compiled takes about a second.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Any

from pgfl.simulate.engine_choice import installed

_loaded = threading.Event()
_TINY: dict[str, Any] = {"servers": 2, "clients_per_server": 8, "dimension": 60, "clusters": 2, "samples": [2, 4]}
_NOISE = {"phi0": 1e-3, "zeta": 0.99, "x_norm": 1.0}
_HUBER = {"kind": "huber"}
_KINDS: tuple[dict[str, Any], ...] = (
    {"algorithm": {"tau": 0.5}},
    {"algorithm": {"participants": 1}},
    {"algorithm": {"participants": 1}, "objective": _HUBER, "privacy": _NOISE},
    {"algorithm": {"client": "gradient"}, "objective": _HUBER, "privacy": _NOISE},
    {"algorithm": {"client": "gradient"}, "objective": _HUBER, "privacy": {**_NOISE, "trust": "site"}},
)
"""Trainings that call every kernel of the page between them: all or some take part; without noise, with each client's
or with that of a pair; exactly or by a step. Kernels depend on how many registers a row fills; rows are the paper's."""


def loaded() -> bool:
    """Whether all kernels are at hand in this process."""
    return _loaded.is_set()


def load_behind(one_at_a_time: AbstractContextManager[Any]) -> None:
    """Load the kernels in a thread of their own; one process compiles them, and the next finds them in the cache."""
    if installed():
        threading.Thread(target=load, args=(one_at_a_time,), daemon=True).start()


def load(one_at_a_time: AbstractContextManager[Any]) -> None:
    """Call every kernel once, so that it is compiled, or loaded, when a user waits."""
    from pgfl.config import parse
    from pgfl.experiment import run

    with one_at_a_time:
        for kind in _KINDS:
            run(parse({"rounds": 2, "metrics": ["nmsd"], "engine": "numba", "data": _TINY, **kind}))
    _loaded.set()
