"""What streams cost without a site behind them: an echo of frames as long as an answer.

python benchmarks/bare_streams.py FOLDER PORT      serves the echo
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from harness import Row
from network_rounds import DIMENSION, processor_seconds
from pgfl.network import processes
from pgfl.network.protocol import identity
from pgfl.network.protocol import identity as pinned_tls
from pgfl.network.protocol.connection import FrameConnection, FramePort
from pgfl.network.protocol.listener import ConnectionLimits
from pgfl.network.protocol.tls_frames import CHUNK, KEEP_ALIVE, TlsFrames

STREAMS, SETTLE_SECONDS, SECONDS, PATIENCE = 200, 1.0, 5.0, 60.0
FRAME, OUTBOX = bytes(2 * 8 * DIMENSION + 50), 1 << 20


def bare() -> Iterator[Row]:
    """Messages a second that a server in a process of its own returns to streams of this process."""
    with tempfile.TemporaryDirectory() as folder:
        site, port = identity.create_site(Path(folder) / "site", "north", []), processes.free_port()
        command = [sys.executable, __file__, str(Path(folder) / "site"), str(port)]
        child = processes.start(command, Path(folder) / "log.txt")
        try:
            rate, own, theirs = asyncio.run(_measured(site, port, child.pid))
        finally:
            processes.stop(child)
    yield Row(
        "echo-frames", f"an echo of {STREAMS} streams without a site behind them: messages a second", "—", "—",
        *[rate] * 3, f"{own * 1e6:.0f} µs of processor time each, {theirs * 1e6:.0f} µs at the callers", "—",
        clock="wall",
    )  # fmt: skip


class Echo:
    """Returns every frame, and counts them."""

    count = 0

    def on_open(self, connection: FrameConnection) -> None:
        """The connection stands."""
        self.connection = connection

    def on_frame(self, frame: bytes) -> None:
        """Send it back."""
        Echo.count += 1
        self.connection.send(frame)

    def on_close(self, why: str | None) -> None:
        """It is over."""


async def _measured(site: identity.SiteCertificate, port: int, server: int) -> tuple[float, float, float]:
    """Messages a second, and the processor time of each at the server and here."""
    tls, chunk, loop = pinned_tls.client_context(site.pem), memoryview(bytearray(CHUNK)), asyncio.get_running_loop()
    until = time.monotonic() + PATIENCE
    callers: list[Echo] = []
    while len(callers) < STREAMS:
        caller, frames = Echo(), TlsFrames(tls, len(FRAME), site.tls_name)
        connection = FrameConnection(frames, caller, PATIENCE, OUTBOX, KEEP_ALIVE, chunk)
        try:
            await loop.create_connection(lambda made=connection: made, "127.0.0.1", port)
            callers.append(caller)
        except OSError:  # it does not listen yet
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.1)
    while not all(hasattr(caller, "connection") for caller in callers):
        await asyncio.sleep(0.1)
    for caller in callers:
        caller.connection.send(FRAME)
    await asyncio.sleep(SETTLE_SECONDS)
    first, own, theirs, began = Echo.count, processor_seconds(server), time.process_time(), time.monotonic()
    await asyncio.sleep(SECONDS)
    done, lasted = max(1, Echo.count - first), time.monotonic() - began
    figures = done / lasted, (processor_seconds(server) - own) / done, (time.process_time() - theirs) / done
    for caller in callers:
        caller.connection.abort()
    return figures


async def _serve(home: Path, port: int) -> None:
    tls = pinned_tls.server_context(home / identity.SITE_CERTIFICATE, home / identity.SITE_KEY)
    limits = ConnectionLimits(per_address=2 * STREAMS, handshake=PATIENCE)
    echoing = FramePort(lambda: tls, len(FRAME), lambda host: Echo(), OUTBOX, Counter(), limits)
    echoing.open(f"127.0.0.1:{port}")
    await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2])))
