"""The links of the network by themselves: between neighbouring sites, and from a site to many simulated streams."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import grpc.aio
import numpy as np

from harness import Row, quartiles
from network_rounds import DIMENSION, SITE, one_site, processor_seconds
from pgfl.core.roles import Publication
from pgfl.deploy import identity, messages, processes
from pgfl.deploy.grpc_options import channel_options
from pgfl.deploy.guarded_listener import allow_many_files
from pgfl.deploy.local import LocalNetwork
from pgfl.deploy.messages import encode_publication
from pgfl.deploy.round_streams import SERVICE
from pgfl.deploy.site.members import Neighbour
from pgfl.deploy.site.peer_links import PeerLink, PeerService
from pgfl.deploy.site.site_store import STORE, SiteStore
from pgfl.deploy.wire import Limits, decode, encode

EXCHANGES, WINDOWS, WINDOW_SECONDS = 300, 5, 2.0
SERVE = (
    "import asyncio, sys; from pathlib import Path; from pgfl.deploy.site.site_settings import load_site; "
    "from pgfl.deploy.site.site import Site; asyncio.run(Site(load_site(Path(sys.argv[1]))).run())"
)


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
        key = (homes[0] / identity.SITE_KEY).read_bytes()
        service = PeerService(
            homes[1] / identity.SITE_CERTIFICATE, homes[1] / identity.SITE_KEY,
            lambda: {"north": Neighbour(north, "")}, limits, lambda peer, frame: encode(reply),
        )  # fmt: skip
        port = await service.start("127.0.0.1:0")
        replied = asyncio.Event()
        link = PeerLink(
            "south", Neighbour(south, f"127.0.0.1:{port}"), north.pem, key, limits,
            lambda: encode(hello), lambda *_: replied.set(), print,
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


def streams() -> Iterator[Row]:
    """Rounds a second of one site; its clients are coroutines of this process that answer at once."""
    for size in (10, 50, 100, 200, 1000):
        with tempfile.TemporaryDirectory() as folder:
            network = one_site(Path(folder), size, "without noise")
            home = network.home(SITE)
            settings = home / "site.toml"
            settings.write_text(settings.read_text().replace("[listen]", f"[listen]\nper_address = {2 * size}"))
            store = SiteStore(home / STORE)
            for client in network.federation.client_ids:
                store.give_token(client, client)
            store.close()
            allow_many_files()
            child = processes.start([sys.executable, "-c", SERVE, str(settings)], home / "log.txt")
            try:
                rates, processor = asyncio.run(_rates(network, child.pid))
            finally:
                processes.stop(child)
        yield Row(
            f"streams-{size}", f"a site with {size} simulated streams: rounds a second", "—",
            "≥ 50" if size == 200 else "—", *quartiles(rates),
            f"{np.median(rates) * size:,.0f} answers a second, {1e6 * processor / size:.0f} µs of processor time each",
            "—", clock="wall",
        )  # fmt: skip


async def _rates(network: LocalNetwork, site: int) -> tuple[np.ndarray, float]:
    """Rounds a second in some windows, and the site's processor time a round."""
    tasks = [asyncio.create_task(_answering(network, client)) for client in network.federation.client_ids]
    deadline = time.monotonic() + 120
    while network.round_of(SITE) < 5:
        if time.monotonic() > deadline:
            raise TimeoutError(network.log(SITE)[-2000:])
        await asyncio.sleep(0.2)
    rates: list[float] = []
    first, spent = network.round_of(SITE), processor_seconds(site)
    for _ in range(WINDOWS):
        before, began = network.round_of(SITE), time.monotonic()
        await asyncio.sleep(WINDOW_SECONDS)
        rates.append((network.round_of(SITE) - before) / (time.monotonic() - began))
    a_round = (processor_seconds(site) - spent) / max(1, network.round_of(SITE) - first)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return np.array(rates), a_round


async def _answering(network: LocalNetwork, client: str) -> None:
    """A client without arithmetic."""
    site = identity.SiteCertificate.read(network.home(SITE) / identity.SITE_CERTIFICATE)
    key = identity.read_client_key(network.home(client) / identity.CLIENT_KEY)
    limits, vectors = Limits(DIMENSION), np.ones((2, DIMENSION))
    options = channel_options(limits.frame_bytes, site.tls_name)
    address = f"127.0.0.1:{network.ports[SITE][1]}"
    while True:
        async with grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(site.pem), options=options) as channel:
            call = channel.stream_stream(f"/{SERVICE}/Stream")()
            try:
                async for data in call:
                    match decode(data, limits, messages.BETWEEN_SITE_AND_CLIENT).header:
                        case messages.Challenge(nonce=nonce):
                            proof = identity.sign_challenge(key, site.fingerprint, bytes.fromhex(nonce)).hex()
                            line = identity.public_key_of(key).line
                            await call.write(
                                encode(messages.Hello(key=line, token=client, signature=proof, releases=0))
                            )
                        case messages.Request(round=round):
                            await call.write(encode(messages.Answer(round=round, release=1, clean=False), vectors))
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.5)
