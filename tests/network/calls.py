"""Somebody who speaks frames, in the thread of a test: a blocking call without heartbeats."""

from __future__ import annotations

import socket

from pgfl.network.protocol.tls_frames import CHUNK, BadConnection


class Call:
    """One call to a port on loopback."""

    def __init__(self, port, frames, patience=60.0):
        self._frames, self._early = frames, []
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=patience)

    def __enter__(self):
        data = b""
        while not self._frames.ready:
            self._early += self._received(data)
            if not self._frames.ready and not (data := self._read()):
                raise BadConnection("peer disconnected during the TLS handshake")
        return self

    def __exit__(self, *_):
        self._socket.close()

    def send(self, frame):
        self._frames.send(frame)
        self._flush()

    def frames(self):
        """Every frame that comes, until the other end disconnects."""
        yield from filter(None, self._early)
        while data := self._read():
            yield from filter(None, self._received(data))

    def _read(self):
        try:
            return self._socket.recv(CHUNK)
        except OSError as error:
            raise BadConnection.because(error) from error

    def _received(self, data):
        try:
            return self._frames.receive(data)
        finally:
            self._flush()

    def _flush(self):
        try:
            self._socket.sendall(self._frames.outgoing())
        except OSError as error:
            raise BadConnection.because(error) from error
