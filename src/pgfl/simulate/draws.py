"""Standard normals for simulated releases, from each server's own stream."""

from __future__ import annotations

from functools import cached_property
from threading import Lock, local
from typing import Any

import numpy as np

from pgfl.array_types import AnyArray, AnyFloats, DTypeLike, Ints
from pgfl.core.schedules import Participants
from pgfl.core.streams import Purpose, Streams, key_of
from pgfl.simulate.flat_layout import Layout

ROWS_AHEAD = 64  # starting a stream costs as much as drawing some hundred numbers, so several rounds share one


class ServerNormals:
    """`normals(clients, round, dimension)`: the j-th participant of a server gets the j-th row of its server's draw.

    With `server_of`, the server of every pair, `clients` are pairs.

    How many rounds share a generator depends on the setting `participants` alone, so a draw does not depend on what
    else is simulated. Large servers are drawn round by round, straight into the answer. `compiled` changes no number.
    """

    def __init__(
        self,
        layout: Layout,
        participants: Participants,
        seed: int,
        dtype: DTypeLike = np.float64,
        server_of: Ints | None = None,
        compiled: bool = False,
    ) -> None:
        self._layout, self._seed, self._own = layout, seed, local()
        self._server_of = layout.client_server if server_of is None else server_of
        self._dtype: Any = dtype
        self._rows = None if participants == "all" else participants
        self._rounds = 1 if self._rows is None else max(1, ROWS_AHEAD // self._rows)
        self._cached: tuple[int, AnyFloats] | None = None
        self._compiled = compiled and np.dtype(dtype) == np.float64
        self._lock = Lock()

    def __call__(self, clients: Ints, round: int, dimension: int) -> AnyFloats:
        """(A, d) numbers for the clients (ascending flat places) that take part in a round."""
        if self._rounds == 1:
            server = self._server_of[clients]
            return self._directly(server, _runs(server), round, dimension)
        block, within = divmod(round - 1, self._rounds)
        with self._lock:
            drawn = self._of_round(block, within, dimension)
        if len(clients) == drawn.shape[0] * drawn.shape[1]:
            return drawn.reshape(-1, dimension)
        server = self._server_of[clients]
        whole = drawn[server[0] : server[-1] + 1] if len(server) else drawn[:0]
        if len(clients) == whole.shape[0] * whole.shape[1]:
            return np.asarray(whole.reshape(-1, dimension))
        rank = np.arange(len(clients)) - server.searchsorted(server)
        return np.asarray(drawn[server, rank])

    @cached_property
    def streams(self) -> AnyArray | None:
        """For kernels that draw where they need it: every server's stream; None if it is not to be compiled."""
        if not self._compiled:
            return None
        from pgfl.simulate.numba_normals import streams_of

        keys = [key_of(self._seed, run, Purpose.PRIVACY_NOISE) for run, _ in self._layout.server_keys]
        servers = [server for _, server in self._layout.server_keys]
        states: AnyArray = streams_of(np.array(keys, dtype=np.uint64), np.array(servers, dtype=np.uint64))
        return states

    def place(self, round: int) -> tuple[int, int, int]:
        """The block of rounds that share streams, a round's number within it, and how many rows it has for a server.

        0 rows are as many as take part.
        """
        return (round, 0, 0) if self._rounds == 1 else (*divmod(round - 1, self._rounds), self._rows or 0)

    def _directly(self, server: Ints, bounds: Ints, round: int, dimension: int) -> AnyFloats:
        out = np.empty((len(server), dimension), dtype=self._dtype)
        if self._compiled:
            from pgfl.simulate.numba_normals import fill_rows

            fill_rows(self.streams, server[bounds[:-1]], bounds, round, out)
            return out
        for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            self._stream(int(server[start]), round).standard_normal(out=out[start:stop], dtype=self._dtype)
        return out

    def _of_round(self, block: int, within: int, dimension: int) -> AnyFloats:
        """(server, participant, d) for a round of a block."""
        if self._cached is None or self._cached[0] != block:
            self._cached = (block, self._drawn(block, dimension))
        return np.asarray(self._cached[1][within])

    def _drawn(self, block: int, dimension: int) -> AnyFloats:
        """(round of the block, server, participant, d), so that a round lies together."""
        shape = (self._rounds, self._rows or 0, dimension)
        out = np.empty((self._rounds, self._layout.servers, *shape[1:]), dtype=self._dtype)
        for server in range(self._layout.servers):
            out[:, server] = self._stream(server, block).standard_normal(shape, dtype=self._dtype)
        return out

    def _stream(self, server: int, round: int) -> np.random.Generator:
        if not hasattr(self._own, "streams"):
            self._own.streams = Streams(self._seed, Purpose.PRIVACY_NOISE)
        streams: Streams = self._own.streams
        run, own = self._layout.server_keys[server]
        return streams.at(run, own, round)


def _runs(values: Ints) -> Ints:
    """Where each run of equal values begins, and the end."""
    begins = np.ones(len(values) + 1, dtype=bool)
    np.not_equal(values[1:], values[:-1], out=begins[1:-1])
    return np.flatnonzero(begins) if len(values) else np.zeros(1, dtype=np.int64)
