"""A cable that a test can cut, or make long: a TCP forwarder."""

from __future__ import annotations

import contextlib
import socket
import threading
import time


class Cable:
    """Forwards connections to a port; while it is cut, connections break and new ones are refused."""

    def __init__(self, target, delay=0.0):
        self.target, self.delay, self.is_cut, self.pairs = target, delay, False, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        self.is_cut = True
        for pair in self.pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        self.pairs.clear()

    def mend(self):
        self.is_cut = False

    def _accept(self):
        while True:
            here, _ = self.listener.accept()
            if self.is_cut:
                here.close()
                continue
            try:
                there = socket.create_connection(("127.0.0.1", self.target), timeout=5)
            except OSError:
                here.close()
                continue
            there.settimeout(None)
            self.pairs.append((here, there))
            for source, sink in ((here, there), (there, here)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                time.sleep(self.delay)
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
