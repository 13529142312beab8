from itertools import product

import numpy as np
import pytest

from pgfl.errors import ConfigError
from pgfl.streams import SEED_LIMIT, Purpose, Streams, stream


def test_the_same_arguments_give_the_same_numbers_whatever_was_drawn_before():
    first = stream(5, 2, Purpose.DATA, server=7, round=9).random(100)
    stream(5, 2, Purpose.DATA, server=6, round=9).random(1000)
    assert np.array_equal(first, stream(5, 2, Purpose.DATA, server=7, round=9).random(100))


def test_every_argument_matters():
    draws = {
        stream(seed, run, purpose, server, round).integers(2**63)
        for seed, run, purpose, server, round in product([0, 1], [0, 1], Purpose, [0, 1, 255], [0, 1, 256])
    }
    assert len(draws) == 2 * 2 * len(Purpose) * 3 * 3


def test_neighbouring_streams_do_not_overlap():
    length = 50_000
    draws = np.concatenate(
        [
            stream(0, 0, Purpose.DATA, server, round).integers(2**64, size=length, dtype=np.uint64)
            for server, round in product(range(2), range(2))
        ]
    )
    assert len(np.unique(draws)) == 4 * length


def test_neighbouring_streams_are_uncorrelated_and_normal():
    draws = np.stack([stream(0, 0, Purpose.DATA, server).standard_normal(40_000) for server in range(6)])
    correlation = np.corrcoef(draws)
    assert np.abs(correlation - np.eye(6)).max() < 5 / np.sqrt(40_000)
    assert np.abs(draws.mean(axis=1)).max() < 5 / np.sqrt(40_000)
    assert np.abs(draws.var(axis=1) - 1).max() < 5 * np.sqrt(2 / 40_000)


@pytest.mark.parametrize(("seed", "run"), [(-1, 0), (SEED_LIMIT, 0), (0, -1), (0, 2**55)])
def test_seeds_and_runs_out_of_range_say_so(seed, run):
    with pytest.raises(ConfigError, match="seed"):
        stream(seed, run, Purpose.DATA)


def test_the_largest_seeds_and_runs_have_streams_of_their_own():
    corners = list(product([0, SEED_LIMIT - 2, SEED_LIMIT - 1], [0, 2**55 - 2, 2**55 - 1]))
    built = [stream(seed, run, Purpose.PAPER).integers(2**63) for seed, run in corners]
    reused = [Streams(seed, Purpose.PAPER).at(run).integers(2**63) for seed, run in corners]
    assert len(set(built)) == len(corners)
    assert built == reused
