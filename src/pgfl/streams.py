"""Counter-based random streams: a draw depends on what it is for, never on order, batch, thread or rank.

Philox takes a 128-bit key and a 256-bit counter. The key holds (seed, run and purpose), the upper half of the counter
(server, round); the lower half counts the numbers drawn. Distinct arguments therefore give disjoint streams.
"""

from enum import IntEnum

import numpy as np

from pgfl.errors import ConfigError

SEED_LIMIT = 2**63
_RUN_SHIFT = 8
_RUN_LIMIT = 2**55


class Purpose(IntEnum):
    """What a stream is drawn for."""

    GRAPH = 1
    TRUTH = 2
    CLUSTERS = 3
    DATA = 4
    PARTICIPANTS = 5
    PRIVACY_NOISE = 6
    AUDIT = 7
    PAPER = 8


def stream(seed: int, run: int, purpose: Purpose, server: int = 0, round: int = 0) -> np.random.Generator:
    """The generator for one purpose of one run.

    >>> a = stream(0, 0, Purpose.DATA, server=3).random()
    >>> b = stream(0, 0, Purpose.DATA, server=3).random()
    >>> a == b, a == stream(0, 1, Purpose.DATA, server=3).random()
    (True, False)
    """
    if not (0 <= seed < SEED_LIMIT and 0 <= run < _RUN_LIMIT):
        raise ConfigError(f"A seed must lie in 0 to 2^63 − 1 and a run in 0 to 2^55 − 1; got seed {seed}, run {run}.")
    key = np.array([seed, (run << _RUN_SHIFT) | purpose], dtype=np.uint64)
    counter = np.array([0, 0, server, round], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))
