"""The link between neighbouring sites by itself."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from harness import Row, quartiles
from pgfl.algorithms.roles import Publication
from pgfl.network.protocol import identity, messages
from pgfl.network.protocol.identity import Neighbour
from pgfl.network.protocol.links import PeerLink, PeerService
from pgfl.network.protocol.messages import encode_publication
from pgfl.network.protocol.wire import Limits, encode
from pgfl.network.site.sessions import Port

EXCHANGES = 300


def peers() -> Iterator[Row]:
    """Publication to acknowledgement between ready neighbours, over TLS on loopback."""
    for dimension in (60, 7840):
        milliseconds = 1e3 * asyncio.run(_exchange(dimension))
        median, slow = quartiles(milliseconds), np.quantile(milliseconds, 0.95)
        yield Row(
            f"peers-{dimension}", f"an exchange between neighbours, d = {dimension:,}, 3 clusters: milliseconds", "—",
            "≤ 20 ms", *median, f"{median[0]:.3g} ms, p95 {slow:.2g} ms", "—", clock="wall",
        )  # fmt: skip


async def _exchange(dimension: int) -> np.ndarray:
    limits, digest = Limits(dimension, frozenset({"a", "b", "c"})), "00" * 32
    reply = messages.Acknowledged(site="south", training=digest, round=0, degree=1, finished=False)
    hello = messages.PeerHello(site="north", training=digest, round=0, degree=1, heard=0)
    with tempfile.TemporaryDirectory() as folder:
        homes = [Path(folder) / name for name in ("north", "south")]
        north, south = (identity.create_site(home, home.name, []) for home in homes)
        called = PeerService(lambda: {"north": Neighbour(north, "")}, limits, lambda peer, frame: encode(reply))
        caller = PeerService(lambda: {"south": Neighbour(south, "")}, limits, lambda peer, frame: encode(reply))
        service = Port(
            homes[1] / identity.SITE_CERTIFICATE, homes[1] / identity.SITE_KEY, limits.frame_bytes,
            called.conversation, called.conversation, called.trusted,
        )  # fmt: skip
        port = await service.start("127.0.0.1:0")
        replied = asyncio.Event()
        link = PeerLink(
            "north", "south", Neighbour(south, f"127.0.0.1:{port}"), homes[0] / identity.SITE_CERTIFICATE,
            homes[0] / identity.SITE_KEY, caller, lambda: encode(hello), lambda *_: replied.set(), print,
        )  # fmt: skip
        link.start()
        await replied.wait()
        times = []
        models = {cluster: np.random.default_rng(0).normal(size=dimension) for cluster in "abc"}
        for round in range(1, EXCHANGES + 1):
            replied.clear()
            began = time.perf_counter()
            link.publish(round, encode_publication("north", digest, Publication(round, 1, models)))
            await replied.wait()
            times.append(time.perf_counter() - began)
        await link.stop()
        await service.stop()
    return np.array(times)
