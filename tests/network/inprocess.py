"""Sites and clients in this process: real TLS sockets, real stores and ledgers, quick to start."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from pgfl.network.client.client import Participant
from pgfl.network.client.samples import load_samples
from pgfl.network.client.settings import load_client
from pgfl.network.protocol.identity import SITE_CERTIFICATE, SiteCertificate
from pgfl.network.site.settings import load_site
from pgfl.network.site.site import Site


def train_in_process(network, seconds=400.0, peer_address=None, client_port=lambda port: port):
    """Prepare a `LocalNetwork` and train it here; returns why each site and client ended.

    `peer_address(from, to)` and `client_port(port)` lead links and streams another way.
    """
    network.prepare(peer_address)
    clients = [participant(network, client, client_port) for client in network.federation.client_ids]
    ends: dict[str, str] = {}

    def take_part(name, participant):
        ends[name] = participant.take_part()

    threads = [
        threading.Thread(target=take_part, args=pair, daemon=True)
        for pair in zip(network.federation.client_ids, clients, strict=True)
    ]

    async def sites():
        running = {name: Site(load_site(network.home(name) / "site.toml")) for name in network.federation.server_ids}
        for thread in threads:
            thread.start()
        reasons = await asyncio.wait_for(asyncio.gather(*(site.run() for site in running.values())), seconds)
        ends.update(zip(running, reasons, strict=True))

    asyncio.run(sites())
    for thread in threads:
        thread.join(10)
    return ends


def participant(network, client, client_port=lambda port: port):
    """A client; `client_port(port)` leads its stream another way."""
    settings = load_client(Path(network.home(client)) / "client.toml")
    host, _, port = settings.site.address.rpartition(":")
    site = settings.site.model_copy(update={"address": f"{host}:{client_port(int(port))}"})
    joining = Participant(settings.model_copy(update={"site": site}), load_samples(settings))
    home = next(network.home(site) for site in network.federation.server_ids if client in network.clients_of(site))
    joining.stream.shown = SiteCertificate.read(home / SITE_CERTIFICATE)  # for tests without a stream
    return joining
