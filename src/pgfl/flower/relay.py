"""A site of pgfl's own network whose clients are nodes of a Flower federation, so that several federations can train.

Each organisation has its own SuperLink, and a site (`pgfl site serve`) that is linked with the sites of the others.
The ServerApp keeps a stream to the site for every node, and carries frames from one to the other. What a client
releases is noised and charged on its node; the site's neighbours see the site's aggregates, as always.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import closing
from enum import StrEnum
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from pgfl.errors import NetworkError
from pgfl.flower.graph import GraphSettings
from pgfl.network.client.rounds import decline
from pgfl.network.logs import RateLimitedLogger
from pgfl.network.protocol import messages
from pgfl.network.protocol.connection import TLS, Transport
from pgfl.network.protocol.identity import (
    CLIENT_KEY,
    SITE_CERTIFICATE,
    SiteCertificate,
    create_client,
    public_key_of,
    read_client_key,
)
from pgfl.network.protocol.messages import encode_request, read_request
from pgfl.network.protocol.streams import SiteStream
from pgfl.network.protocol.wire import Frame, Limits, encode
from pgfl.network.site.settings import load_site
from pgfl.network.site.store import SiteStore

log = logging.getLogger(__name__)
KEYS = "nodes"  # the folder in the site's that has the keys with which nodes are admitted there
_PAUSE = 1.0  # seconds until a stream that broke is opened again


class Trouble(StrEnum):
    """Why a node does not answer."""

    FAILED = "its node answered with an error, or is gone"


class SiteRelay:
    """What `Nodes` asks of servers, passed on to a site that runs on this machine."""

    def __init__(self, graph: GraphSettings, home: Path, transport: Transport = TLS) -> None:
        """Admit the graph's clients at the site in `home`, with keys that are kept there."""
        site = load_site(home / "site.toml")
        if list(graph.servers) != [site.name]:
            raise NetworkError(f"`servers` in graph.toml must be {site.name} alone, the site in {home}.")
        if said := site.training.differences(graph.training):
            raise NetworkError(f"The training in graph.toml is not that of the site in {home}: {'; '.join(said)}.")
        self.graph, self.ended = graph, dict[str, str]()
        self._site, self._transport = site.name, transport
        host = "127.0.0.1" if site.listen.host in ("0.0.0.0", "::", "") else site.listen.host
        self._address = f"[{host}]:{site.listen.port}" if ":" in host else f"{host}:{site.listen.port}"
        self._pins = {SiteCertificate.read(home / SITE_CERTIFICATE).fingerprint}
        self._keys = {name: _key(home / KEYS / name, name) for name in graph.clients}
        with closing(SiteStore.of_site(home)) as store:
            for name, member in graph.clients.items():
                if name not in store.clients():
                    store.admit(name, public_key_of(self._keys[name]), member.cluster)
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._streams: dict[str, Future[None]] = {}
        self._stopped: set[str] = set()
        self._welcomes: dict[str, bytes] = {}
        self._requests: dict[str, tuple[int, bytes]] = {}
        self._replies: dict[str, queue.SimpleQueue[bytes | None]] = {
            name: queue.SimpleQueue() for name in graph.clients
        }
        self._limited_log = RateLimitedLogger(log)

    def start(self, now: float) -> None:
        """Begin to carry frames, in a thread of its own."""
        threading.Thread(target=self._loop.run_forever, name="streams to the site", daemon=True).start()

    def close(self) -> None:
        """Close all streams."""
        for client in list(self._streams):
            self.disconnect(client, 0.0)
        self._loop.call_soon_threadsafe(self._loop.stop)

    @property
    def over(self) -> bool:
        """Whether the site has said to every node that is here that the training is over."""
        return bool(self._stopped) and self._stopped >= self._streams.keys()

    @property
    def deadline(self) -> float | None:
        """The site keeps deadlines."""
        return None

    def tick(self, now: float) -> None:
        """Do nothing: the site keeps deadlines."""

    def take_requests(self) -> Mapping[str, tuple[int, bytes]]:
        """Return what nodes are to be asked now: a round and its frame, by client."""
        with self._lock:
            taken, self._requests = self._requests, {}
        return taken

    def welcome(self, client: str) -> bytes:
        """Return what the site said to this client first; it goes with every request."""
        return self._welcomes[client]

    def connect(self, client: str, now: float) -> None:
        """Open a stream to the site for a client whose node is there."""
        self._streams[client] = asyncio.run_coroutine_threadsafe(self._carry(client), self._loop)

    def disconnect(self, client: str, now: float) -> None:
        """Close the stream of a client whose node is gone."""
        self._streams.pop(client).cancel()
        self._replies[client].put(None)

    def receive(self, client: str, round: int, frame: bytes | None, now: float) -> None:
        """Pass a node's reply on; None if it answered with an error."""
        self._replies[client].put(frame)

    async def _carry(self, client: str) -> None:
        limits = Limits(self.graph.training.dimension)
        stream = SiteStream(
            lambda: self._pins, self._keys[client], limits, lambda: 0, lambda frame: self._ask(client, frame),
            transport=self._transport,
        )  # fmt: skip
        try:
            while True:
                ended = await stream.run(self._address)
                if ended.how == "stopped":
                    self.ended[self._site] = ended.reason
                    self._stopped.add(client)
                    return
                why = f"the stream of {client} to site {self._site} ended: {ended.reason}"
                self._limited_log.warning(f"{client} {ended.how}", why)
                await asyncio.sleep(_PAUSE)
        finally:
            stream.computing.shutdown(wait=False)

    def _ask(self, client: str, frame: Frame) -> bytes | None:
        """Have a node answer what the site asks; in a thread of the client's, which waits for that."""
        if isinstance(frame.header, messages.Welcome):
            self._welcomes[client] = encode(frame.header)
        if not isinstance(frame.header, messages.Request):
            return None
        replies, request = self._replies[client], read_request(frame)
        while not replies.empty():
            replies.get()  # to what was asked on an earlier stream
        with self._lock:
            self._requests[client] = request.round, encode_request(request)
        return replies.get() or decline(request.round, Trouble.FAILED)


def _key(folder: Path, name: str) -> ec.EllipticCurvePrivateKey:
    if not (folder / CLIENT_KEY).exists():
        create_client(folder, name)
    return read_client_key(folder / CLIENT_KEY)
