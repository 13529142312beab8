"""What streams cost without a site behind them: an echo over gRPC, and one over bare TLS, with frames like an answer's.

python benchmarks/bare_streams.py grpc|tls FOLDER PORT      serves the echo
"""

from __future__ import annotations

import asyncio
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from harness import Row
from network_rounds import DIMENSION, processor_seconds
from pgfl.deploy import identity, processes
from pgfl.deploy.grpc_options import server_options

STREAMS, SETTLE_SECONDS, SECONDS = 200, 2.0, 5.0
FRAME = bytes(2 * 8 * DIMENSION + 50)


def bare() -> Iterator[Row]:
    """Messages a second that a server in a process of its own returns to streams of this process."""
    for kind, name in (("grpc", "gRPC, as the network uses it"), ("tls", "bare TLS, without gRPC")):
        with tempfile.TemporaryDirectory() as folder:
            site = identity.create_site(Path(folder) / "site", "north", [])
            port = processes.free_port()
            command = [sys.executable, __file__, kind, str(Path(folder) / "site"), str(port)]
            child = processes.start(command, Path(folder) / "log.txt")
            try:
                rate, own, theirs = asyncio.run(_measured(kind, site, port, child.pid))
            finally:
                processes.stop(child)
        yield Row(
            f"echo-{kind}", f"an echo of {STREAMS} streams over {name}: messages a second", "—", "—", *[rate] * 3,
            f"{own * 1e6:.0f} µs of processor time each", f"{theirs * 1e6:.0f} µs at the callers", clock="wall",
        )  # fmt: skip


async def _measured(kind: str, site: identity.SiteCertificate, port: int, server: int) -> tuple[float, float, float]:
    """Messages a second, and the processor time of each at the server and here."""
    for _ in range(100):
        try:
            (await asyncio.open_connection("127.0.0.1", port))[1].close()
            break
        except OSError:
            await asyncio.sleep(0.1)
    count = [0]
    calling = _call_grpc if kind == "grpc" else _call_tls
    tasks = [asyncio.create_task(calling(site, port, count)) for _ in range(STREAMS)]
    await asyncio.sleep(SETTLE_SECONDS)
    first, own, theirs, began = count[0], processor_seconds(server), time.process_time(), time.monotonic()
    await asyncio.sleep(SECONDS)
    done, lasted = max(1, count[0] - first), time.monotonic() - began
    figures = done / lasted, (processor_seconds(server) - own) / done, (time.process_time() - theirs) / done
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return figures


async def _call_grpc(site: identity.SiteCertificate, port: int, count: list[int]) -> None:
    options = [("grpc.ssl_target_name_override", site.tls_name)]
    credentials = grpc.ssl_channel_credentials(site.pem)
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options=options) as channel:
        call = channel.stream_stream("/echo/Echo")()
        while True:
            await call.write(FRAME)
            await call.read()
            count[0] += 1


async def _call_tls(site: identity.SiteCertificate, port: int, count: list[int]) -> None:
    trusting = ssl.create_default_context(cadata=site.pem.decode())
    loop = asyncio.get_running_loop()

    def arrived(transport: asyncio.Transport) -> None:
        count[0] += 1
        transport.write(FRAME)

    transport, _ = await loop.create_connection(
        lambda: _Frames(arrived), "127.0.0.1", port, ssl=trusting, server_hostname=site.tls_name
    )
    transport.write(FRAME)
    await loop.create_future()


class _Frames(asyncio.Protocol):
    """Calls `arrived` with the connection for every frame; all have one length."""

    def __init__(self, arrived: Any) -> None:
        self._arrived, self._received = arrived, 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        while self._received >= len(FRAME):
            self._received -= len(FRAME)
            self._arrived(self._transport)


async def _serve(kind: str, home: Path, port: int) -> None:
    certificate, key = home / identity.SITE_CERTIFICATE, home / identity.SITE_KEY
    if kind == "grpc":
        server = grpc.aio.server(options=server_options(1 << 20))
        method = grpc.stream_stream_rpc_method_handler(_echo)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("echo", {"Echo": method}),))
        credentials = grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])
        server.add_secure_port(f"127.0.0.1:{port}", credentials)
        await server.start()
        await server.wait_for_termination()
    showing = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    showing.load_cert_chain(certificate, key)
    plain = await asyncio.get_running_loop().create_server(
        lambda: _Frames(lambda transport: transport.write(FRAME)), "127.0.0.1", port, ssl=showing, backlog=1000
    )
    await plain.serve_forever()


async def _echo(requests: Any, context: Any) -> None:
    while isinstance(await context.read(), bytes):
        await context.write(FRAME)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
