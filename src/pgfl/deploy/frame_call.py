"""Frames over TLS in a thread: a call to a site, on which one thread hears and any thread speaks.

The thread that hears may be busy with a frame for as long as it likes: another one gives the signs of life. What the
site sends meanwhile waits at the site, not in this process.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Self

from pgfl.deploy.tls_frames import (
    CHUNK,
    CONNECT_SECONDS,
    HUNG_UP,
    PULSE,
    SIGN_OF_LIFE,
    UNFINISHED,
    BadConnection,
    Pulse,
    TlsFrames,
)


class FrameCall:
    """One call, from `with` on; all that goes wrong with it is a `BadConnection`."""

    def __init__(self, address: str, frames: TlsFrames, pulse: Pulse = PULSE) -> None:
        self._address, self._frames, self._pulse = address, frames, pulse
        self._using, self._sending = threading.Lock(), threading.Lock()
        self._answered: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        self._over = threading.Event()
        self._socket: socket.socket | None = None
        self._early: list[bytes] = []  # frames that came with the end of the handshake
        self._keeper = threading.Thread(target=self._keep_alive, name="frame-call", daemon=True)

    def __enter__(self) -> Self:
        self._keeper.start()
        if (failure := self._answered.get()) is not None:
            raise failure
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._keeper.join()
        if self._socket is not None:
            self._socket.close()

    def close(self) -> None:
        """Hang up, from any thread, also while it is being connected."""
        self._over.set()
        self._answered.put(BadConnection("it was closed here"))
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def frames(self) -> Iterator[bytes]:
        """Every frame that the site sends, until it hangs up."""
        yield from filter(None, self._early)
        while data := self._read():
            yield from filter(None, self._received(data))

    def send(self, frame: bytes) -> None:
        """Send a frame; this waits for as long as the site takes more of it."""
        with self._using:
            self._frames.send(frame)
        self._flush()

    # bytes ------------------------------------------------------------------------------------------------------------

    def _read(self) -> bytes:
        assert self._socket is not None
        try:
            return self._socket.recv(CHUNK)
        except TimeoutError as error:
            raise BadConnection(self._pulse.unheard if self._frames.ready else UNFINISHED) from error
        except OSError as error:
            raise BadConnection.because(error) from error

    def _received(self, data: bytes) -> list[bytes]:
        try:
            with self._using:
                return self._frames.receive(data)
        finally:
            self._flush()

    def _flush(self) -> None:
        """Send what there is to send, in the order in which it was encrypted."""
        assert self._socket is not None
        with self._sending:
            with self._using:
                data = memoryview(self._frames.outgoing())
            try:
                while data:
                    data = data[self._socket.send(data) :]
            except TimeoutError as error:
                raise BadConnection(self._pulse.untaken) from error
            except OSError as error:
                raise BadConnection.because(error) from error

    # the second thread ------------------------------------------------------------------------------------------------

    def _keep_alive(self) -> None:
        try:
            self._connect()
        except BadConnection as error:
            self._answered.put(error)
            return
        self._answered.put(None)
        with suppress(BadConnection):
            while not self._over.wait(self._pulse.beat):
                self.send(SIGN_OF_LIFE)
        self.close()

    def _connect(self) -> None:
        until = time.monotonic() + CONNECT_SECONDS
        host, _, port = self._address.rpartition(":")
        try:
            self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (OSError, ValueError) as error:
            raise BadConnection.because(error) from error
        try:
            self._shake_hands(until)
            self._socket.settimeout(self._pulse.silent)
        except BadConnection:
            self._socket.close()
            raise

    def _shake_hands(self, until: float) -> None:
        assert self._socket is not None
        data = b""
        while not self._frames.ready:
            self._early += self._received(data)
            self._socket.settimeout(max(0.01, until - time.monotonic()))
            if self._over.is_set():
                raise BadConnection("it was closed here")
            if not self._frames.ready and not (data := self._read()):
                raise BadConnection(f"{HUNG_UP} in the TLS handshake")
