"""The nodes of a Flower run: who is there, whose client each one is, and which letter is on its way to it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

from pgfl.flower.letters import FRAME, HELLO, NAME, REQUEST, ROUND, WELCOME, Letter, Parts
from pgfl.flower.relay import SiteRelay
from pgfl.flower.servers import ServerGraph

log = logging.getLogger(__name__)
_NODES_EVERY, _REPLIES_EVERY = 3.0, 0.2  # seconds


class Post(Protocol):
    """What carries letters to nodes and replies back: Flower's grid, or a test's."""

    def nodes(self) -> set[int]:
        """Return the nodes that are there."""
        ...

    def send(self, letter: Letter) -> str | None:
        """Send a letter; return its number, None if that was not possible."""
        ...

    def collect(self, sent: Collection[str]) -> list[tuple[str, Parts | None]]:
        """Return the replies that have come to these letters; None where a node answered with an error."""
        ...


@dataclass
class Nodes:
    """Joins a graph of servers to nodes. A node is asked once whose client it is, and a name belongs to one node."""

    graph: ServerGraph | SiteRelay
    post: Post
    client_of: dict[int, str] = field(default_factory=dict)
    _present: set[int] = field(default_factory=set)
    _greeted: dict[str, int] = field(default_factory=dict)  # the node of each letter
    _asked: dict[str, tuple[str, int, int]] = field(default_factory=dict)  # client, round and node of each letter
    _strangers: set[int] = field(default_factory=set)  # no clients of this graph
    _look_at: float = -math.inf

    def step(self, now: float) -> None:
        """Look who is there, take what has come, advance the rounds, and send what they ask for."""
        if now >= self._look_at:
            self._look_at = now + _NODES_EVERY
            self._look(now)
        for number, parts in self.post.collect([*self._greeted, *self._asked]):
            if number in self._greeted:
                self._introduced(self._greeted.pop(number), parts, now)
            elif number in self._asked:
                client, round, node = self._asked.pop(number)
                if parts is not None:
                    self.graph.receive(client, round, parts.get(FRAME, b""), now)
                elif self.client_of.get(node) == client:  # else another node has taken its place
                    self.graph.receive(client, round, None, now)
        deadline = self.graph.deadline
        if deadline is not None and now >= deadline:
            self.graph.tick(now)
        self._send(now)

    def _look(self, now: float) -> None:
        there = self.post.nodes()
        for node in sorted(there - self._present):
            if node in self.client_of:
                log.info("client %s is back", self.client_of[node])
                self.graph.connect(self.client_of[node], now)
            elif node not in self._greeted.values() and node not in self._strangers:
                number = self.post.send(Letter(node, HELLO, 0, {}))
                if number is None:
                    there = there - {node}  # it is looked at again
                else:
                    self._greeted[number] = node
        for node in sorted(self._present - there):
            if node in self.client_of:
                log.info("client %s is gone", self.client_of[node])
                self.graph.disconnect(self.client_of[node], now)
        self._present = there

    def _introduced(self, node: int, parts: Parts | None, now: float) -> None:
        name = b"" if parts is None else parts.get(NAME, b"")
        client = name.decode(errors="replace")
        member = self.graph.graph.clients.get(client)
        why = None
        if member is None:
            why = "is no client of this graph"
        elif member.node not in (None, node):
            why = f"calls itself {client}, whose node is {member.node}"
        elif self._holds(client):
            why = f"calls itself {client}, as another node does"
        if why is not None:
            self._strangers.add(node)
            log.warning("node %d %s: it takes no part", node, why)
            return
        for former in [known for known, held in self.client_of.items() if held == client]:
            del self.client_of[former]  # a client that came back as another node
        self.client_of[node] = client
        log.info("client %s is node %d", client, node)
        self.graph.connect(client, now)

    def _holds(self, client: str) -> bool:
        return any(held == client and node in self._present for node, held in self.client_of.items())

    def _send(self, now: float) -> None:
        """Send each request, unless it is on its way to the same node already."""
        node_of = {client: node for node, client in self.client_of.items()}
        for client, (round, frame) in self.graph.take_requests().items():
            asked = client, round, node_of[client]
            if asked in self._asked.values():
                continue
            parts = {WELCOME: self.graph.welcome(client), REQUEST: frame}
            number = self.post.send(Letter(node_of[client], ROUND, round, parts))
            if number is None:
                self.graph.receive(client, round, None, now)
            else:
                self._asked[number] = asked


def play(
    graph: ServerGraph | SiteRelay,
    post: Post,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, str]:
    """Play all rounds; return why each server ended."""
    nodes = Nodes(graph, post)
    graph.start(clock())
    while not graph.over:
        nodes.step(clock())
        if not graph.over:
            sleep(_REPLIES_EVERY)
    return graph.ended
