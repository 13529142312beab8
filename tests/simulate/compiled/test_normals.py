"""Compiled normal numbers are NumPy's own, bit by bit: no result depends on who draws them."""

import numpy as np
import pytest

from pgfl import synthetic_regression
from pgfl.simulate.compiled.kind import CompiledKind
from pgfl.simulate.compiled.noise import fill_rows, streams_of
from pgfl.simulate.draws import ServerNormals
from pgfl.simulate.layout import lay_out
from pgfl.streams import Purpose, stream


def test_a_million_numbers_are_numpys():
    rows = 20_000
    out = np.empty((2 * rows, 40))
    servers = np.array([0, 2**40], dtype=np.uint64)
    keys = np.array([(7, (3 << 8) | Purpose.PRIVACY_NOISE), (2**63 - 1, Purpose.PRIVACY_NOISE)], dtype=np.uint64)
    fill_rows(streams_of(keys, servers), np.arange(2), np.array([0, rows, 2 * rows]), 11, out)
    for half, (seed, run, server) in zip((out[:rows], out[rows:]), [(7, 3, 0), (2**63 - 1, 0, 2**40)], strict=True):
        expected = stream(seed, run, Purpose.PRIVACY_NOISE, server, 11).standard_normal(half.shape)
        np.testing.assert_array_equal(half, expected)
    assert np.abs(out).max() > 4.5, "the tail was drawn too"


@pytest.mark.parametrize("participants", ["all", 2, 70])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_servers_draw_the_same_numbers_either_way(participants, dtype):
    made = [synthetic_regression(servers=4, clients_per_server=9, dimension=7, seed=run, run=run) for run in range(2)]
    layout = lay_out(made)
    fill = CompiledKind().fill_rows(layout, 5, dtype)
    plain, compiled = (ServerNormals(layout, participants, 5, dtype, fill=way) for way in (None, fill))
    for round in (1, 2, 2, 40, 65, 3, 41, 64):
        for clients in (np.arange(layout.clients), np.array([0, 1, 20, 36, 71]), np.arange(9, 18)):
            taking_part = (
                clients if participants != 2 else clients[np.r_[True, np.diff(layout.client_server[clients]) > 0]]
            )
            np.testing.assert_array_equal(compiled(taking_part, round, 7), plain(taking_part, round, 7))
