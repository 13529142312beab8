"""A site with many streams: its clients are simulated in this process, answer at once, and compute nothing."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from harness import Row, quartiles
from network_rounds import DIMENSION, SITE, one_site, processor_seconds
from pgfl.network import processes
from pgfl.network.local import LocalNetwork
from pgfl.network.protocol import identity, messages
from pgfl.network.protocol import identity as pinned_tls
from pgfl.network.protocol.connection import FrameConnection
from pgfl.network.protocol.listener import allow_many_files
from pgfl.network.protocol.tls_frames import CHUNK, KEEP_ALIVE, TlsFrames
from pgfl.network.protocol.wire import Kind, Limits, decode, encode

SIZES, WINDOWS, WINDOW_SECONDS, PATIENCE = (10, 50, 100, 200, 1000), 5, 2.0, 120.0
LIMITS = Limits(DIMENSION)
SERVE = (
    "import asyncio, sys; from pathlib import Path; from pgfl.network.site.settings import load_site; "
    "from pgfl.network.site.site import Site; asyncio.run(Site(load_site(Path(sys.argv[1]))).run())"
)


def streams() -> Iterator[Row]:
    """Rounds a second of one site, in which everyone answers."""
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            network = one_site(Path(folder), size, "without noise")
            home = network.home(SITE)
            settings = home / "site.toml"
            settings.write_text(settings.read_text().replace("[listen]", f"[listen]\nper_address = {2 * size}"))
            allow_many_files()
            child = processes.start([sys.executable, "-c", SERVE, str(settings)], home / "log.txt")
            try:
                rates, site, callers = asyncio.run(_measured(network, child.pid))
            finally:
                processes.stop(child)
        each = f"{1e6 * site / size:.0f} µs of processor time each, {1e6 * callers / size:.0f} µs at the clients"
        yield Row(
            f"streams-{size}", f"a site with {size} simulated streams: rounds a second", "—",
            "≥ 50" if size == 200 else "—", *quartiles(rates),
            f"{np.median(rates) * size:,.0f} answers a second, {each}", "—", clock="wall",
        )  # fmt: skip


async def _measured(network: LocalNetwork, site: int) -> tuple[np.ndarray, float, float]:
    """Rounds a second in some windows, and the processor time of a round, at the site and here."""
    crowd = Crowd(network)
    for client in network.federation.client_ids:
        await crowd.join(client)
    await crowd.until_round(5)
    rates: list[float] = []
    first, spent, own = crowd.round, processor_seconds(site), time.process_time()
    for _ in range(WINDOWS):
        before, began = crowd.round, time.monotonic()
        await asyncio.sleep(WINDOW_SECONDS)
        rates.append((crowd.round - before) / (time.monotonic() - began))
    rounds = max(1, crowd.round - first)
    a_round = (processor_seconds(site) - spent) / rounds, (time.process_time() - own) / rounds
    crowd.leave()
    return np.array(rates), *a_round


class Crowd:
    """All simulated clients of one site."""

    def __init__(self, network: LocalNetwork) -> None:
        self.network, self.round = network, 0
        self.site = identity.SiteCertificate.read(network.home(SITE) / identity.SITE_CERTIFICATE)
        self._tls, self._chunk = pinned_tls.client_context(self.site.pem), memoryview(bytearray(CHUNK))
        self._connections: list[FrameConnection] = []
        self._answer = b""

    async def join(self, client: str) -> None:
        """Connect a client, as soon as the site listens; one after the other, as they would come from many machines."""
        frames, simulated = TlsFrames(self._tls, LIMITS.frame_bytes, self.site.tls_name), SimulatedClient(self, client)
        connection = FrameConnection(frames, simulated, PATIENCE, LIMITS.frame_bytes, KEEP_ALIVE, self._chunk)
        loop, until = asyncio.get_running_loop(), time.monotonic() + PATIENCE
        while True:
            try:
                await loop.create_connection(lambda: connection, "127.0.0.1", self.network.ports[SITE])
                break
            except OSError:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(0.1)
        await simulated.ready.wait()
        self._connections.append(connection)

    async def until_round(self, round: int) -> None:
        """Wait until everyone has been asked so often."""
        until = time.monotonic() + PATIENCE
        while self.round < round:
            if time.monotonic() > until:
                raise TimeoutError(self.network.log(SITE)[-2000:])
            await asyncio.sleep(0.1)

    def answer(self, request: bytes) -> bytes:
        """The same for all in a round."""
        start = request.index(b":", 10) + 1  # of the header's first field
        round = int(request[start : request.index(b",", start)])
        if round != self.round:
            self.round = round
            self._answer = encode(messages.Answer(round=round, release=1, clean=False), np.ones((2, DIMENSION)))
        return self._answer

    def leave(self) -> None:
        """Disconnect; everyone must have held until now."""
        for connection in self._connections:
            if connection.over.done():
                raise AssertionError(f"a stream did not hold: {self.network.log(SITE)[-2000:]}")
            connection.abort()


class SimulatedClient:
    """A client without arithmetic."""

    def __init__(self, crowd: Crowd, client: str) -> None:
        self._crowd, self.ready = crowd, asyncio.Event()
        self._key = identity.read_client_key(crowd.network.home(client) / identity.CLIENT_KEY)

    def on_open(self, connection: FrameConnection) -> None:
        """The site says something first."""
        self._connection = connection
        self.ready.set()

    def on_frame(self, frame: bytes) -> None:
        """Answer at once."""
        if frame[5] == Kind.REQUEST:
            self._connection.send(self._crowd.answer(frame))
        elif frame[5] == Kind.CHALLENGE:
            challenge = decode(frame, LIMITS, (messages.Challenge,)).header
            assert isinstance(challenge, messages.Challenge)
            nonce = bytes.fromhex(challenge.nonce)
            proof = identity.sign_challenge(self._key, self._crowd.site.fingerprint, nonce).hex()
            line = identity.public_key_of(self._key).line
            self._connection.send(encode(messages.Hello(key=line, signature=proof, releases=0)))

    def on_close(self, why: str | None) -> None:
        """Whether it should have is looked at in the end."""
