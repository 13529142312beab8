"""Cables that a test can cut, or make long, lossy and narrow: TCP forwarders."""

from __future__ import annotations

import contextlib
import queue
import random
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


class LongCable(Cable):
    """A wide-area link: a round trip, lost packets that are sent again, and a limited rate; nothing is ever reordered.

    TCP hides a loss from those who talk over it, except that everything after it waits for the packet to come again.
    """

    def __init__(self, target, round_trip=0.5, loss=0.02, bits_per_second=20e6, seed=0):
        self.one_way, self.loss, self.rate = round_trip / 2, loss, bits_per_second / 8
        self.again = max(0.2, 2 * round_trip)  # seconds until a lost packet is sent again
        self.chance = random.Random(seed)
        self.lost = 0
        super().__init__(target)

    def _pump(self, source, sink):
        waiting: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=self._deliver, args=(waiting, source, sink), daemon=True).start()
        free = time.monotonic()
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                now = time.monotonic()
                free = max(free, now) + len(data) / self.rate
                packets = -(-len(data) // 1460)
                if self.chance.random() > (1 - self.loss) ** packets:
                    self.lost += 1
                    free += self.again
                waiting.put((free + self.one_way, data))
        waiting.put(None)

    def _deliver(self, waiting, source, sink):
        with contextlib.suppress(OSError):
            while (item := waiting.get()) is not None:
                time.sleep(max(0.0, item[0] - time.monotonic()))
                sink.sendall(item[1])
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
