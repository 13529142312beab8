"""A small HTTP CONNECT proxy, in the event loop of a test or a thread of its own: it leads where the test says."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from base64 import b64encode


class ConnectProxy:
    """Leads every address in `ways` to a port of this machine; `asked` has the heads of all requests."""

    def __init__(self, ways=None, secret=None, reply=None):
        self.ways, self.reply, self.asked = ways or {}, reply, []
        self.wanted = None if secret is None else b"Basic " + b64encode(secret.encode())

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()

    def url(self, secret=None):
        return f"http://{'' if secret is None else secret + '@'}127.0.0.1:{self.port}"

    def start(self):
        """Serve in a thread of its own, as long as this process lives."""
        started = threading.Event()

        async def serve():
            async with self:
                started.set()
                await asyncio.Future()

        threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
        assert started.wait(30.0)

    async def _serve(self, reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.asked.append(head)
            address = head.split(b" ")[1].decode()
            lines = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
            if self.reply is not None:
                writer.write(self.reply)
            elif self.wanted is not None and lines.get(b"Proxy-Authorization") != self.wanted:
                writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            elif address not in self.ways:
                writer.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
            else:
                await self._lead(reader, writer, self.ways[address])
            await writer.drain()
        writer.close()

    async def _lead(self, reader, writer, port):
        onward, back = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        ends = (self._pump(reader, back), self._pump(onward, writer))
        await asyncio.wait([asyncio.ensure_future(end) for end in ends], return_when=asyncio.FIRST_COMPLETED)
        back.close()

    async def _pump(self, source, sink):
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
