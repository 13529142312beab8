"""Counter-based random streams: a draw depends on what it is for, never on order, batch, thread or rank.

Philox takes a 128-bit key and a 256-bit counter. The key holds (seed, run and purpose), the upper half of the counter
(server, round); the lower half counts the numbers drawn. Distinct arguments therefore give disjoint streams.
"""

from enum import IntEnum
from typing import Any

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
    HELD_OUT = 11
    MAP = 12
    DISCOVERY = 13
    ALTERNATIVES = 14
    DELAYS = 15


def stream(seed: int, run: int, purpose: Purpose, server: int = 0, round: int = 0) -> np.random.Generator:
    """The generator for one purpose of one run.

    >>> a = stream(0, 0, Purpose.DATA, server=3).random()
    >>> b = stream(0, 0, Purpose.DATA, server=3).random()
    >>> a == b, a == stream(0, 1, Purpose.DATA, server=3).random()
    (True, False)
    """
    key = np.array(key_of(seed, run, purpose), dtype=np.uint64)
    counter = np.array([0, 0, server, round], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


class Streams:
    """The streams of one purpose on one reused generator: building one costs as much as drawing 2,000 numbers.

    Not thread-safe.

    >>> streams = Streams(0, Purpose.DATA)
    >>> streams.at(1, server=3).random() == stream(0, 1, Purpose.DATA, server=3).random()
    True
    """

    def __init__(self, seed: int, purpose: Purpose) -> None:
        self._seed, self._purpose = seed, purpose
        self._generator = stream(seed, 0, purpose)
        self._start: dict[str, Any] = dict(self._generator.bit_generator.state)

    def at(self, run: int, server: int = 0, round: int = 0) -> np.random.Generator:
        """The generator at the start of a stream, valid until the next call."""
        self._start["state"]["key"][:] = key_of(self._seed, run, self._purpose)
        self._start["state"]["counter"][:] = (0, 0, server, round)
        self._generator.bit_generator.state = self._start
        return self._generator


def key_of(seed: int, run: int, purpose: Purpose) -> tuple[int, int]:
    """The key of the streams of one purpose of a run."""
    if not (0 <= seed < SEED_LIMIT and 0 <= run < _RUN_LIMIT):
        raise ConfigError(f"A seed must lie in 0 to 2^63 − 1 and a run in 0 to 2^55 − 1; got seed {seed}, run {run}.")
    return seed, (run << _RUN_SHIFT) | purpose
